/* What computing costs: the price of one operator on a local block (design, section 5).
 *
 * One set of functions for the search, which knows factors, and for the program, which knows axes.
 * Products cost max(flops / (peak x efficiency), bytes / bandwidth); everything else moves bytes.
 */
#ifndef SBP_COSTMODEL_PRICE_H
#define SBP_COSTMODEL_PRICE_H

#include "costmodel/program.h"

struct sbp_pricing {
    const struct sbp_graph *graph;
    const struct sbp_cluster *cluster;
    struct sbp_element_bytes bytes;
    enum sbp_type type; /* of the arithmetic */
};
struct sbp_pricing sbp_pricing_make(const struct sbp_graph *graph,
                                    const struct sbp_cluster *cluster,
                                    const struct sbp_element_bytes *bytes);

/* Local sizes: tokens = batch x sequence; linear and embedding: in x out is the weight's block;
 * others: tokens x out is the block that the operator reads, in = 1. */
struct sbp_op_local {
    double tokens, in, out;
};
/* Sizes before any split. */
struct sbp_op_local sbp_op_whole(const struct sbp_graph *graph, int op);

double sbp_price_forward_s(const struct sbp_pricing *pricing, int op,
                           const struct sbp_op_local *local);
/* Input gradient, and weight gradients (0 for operators without weights). */
double sbp_price_input_gradient_s(const struct sbp_pricing *pricing, int op,
                                  const struct sbp_op_local *local);
double sbp_price_weight_gradient_s(const struct sbp_pricing *pricing, int op,
                                   const struct sbp_op_local *local);
/* Optimizer step over so many local parameters. */
double sbp_price_update_s(const struct sbp_pricing *pricing, double parameters);

#endif

/* What computing costs: the price of one operator's work (design, section 5).
 *
 * One set of functions for the search and for the compiled program. Products cost max(flops / (peak
 * x efficiency), bytes / bandwidth); everything else max(flops / peak, bytes / bandwidth). Each
 * takes the cluster's kernel_launch_s besides, but for sums of gradients and their norm, which
 * trainers fuse with what comes before.
 */
#ifndef SBP_COSTMODEL_PRICE_H
#define SBP_COSTMODEL_PRICE_H

#include "costmodel/op_work.h"
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

/* Seconds of an operator's work on a device that its roles leave this share of. */
double sbp_price_pass_s(const struct sbp_pricing *pricing, int op, const struct sbp_factor *factor,
                        enum sbp_pass pass);
/* Optimizer step over so many local parameters. */
double sbp_price_update_s(const struct sbp_pricing *pricing, double parameters);

#endif

/* Prices of computing: seconds of one operator's work on a device (DESIGN.md, section 5).
 *
 * Input are the counts of op_cost.h, the cluster's rates and the sizes of elements. The search and
 * the compiled program share these functions. A product costs max(flops / (peak x share), bytes /
 * bandwidth), as does flash attention; any other kernel max(flops / peak, bytes / bandwidth of
 * streams, element-wise operations / their rate). Shares are the device's
 * (costmodel/cluster/device.h). The cluster's kernel_launch_s is added, except for sums of
 * gradients and their norm, which trainers fuse with the kernel before.
 */
#ifndef SBP_COSTMODEL_PROGRAM_PRICE_H
#define SBP_COSTMODEL_PROGRAM_PRICE_H

#include "costmodel/model/op_cost.h"
#include "costmodel/program/program.h"

struct sbp_pricing {
    const struct sbp_graph *graph;
    const struct sbp_cluster *cluster;
    struct sbp_element_bytes bytes;
    enum sbp_type type;         /* of the arithmetic */
    enum sbp_type product_type; /* of products with weights */
};
struct sbp_pricing sbp_price_setup(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                   const struct sbp_element_bytes *bytes);

/* Seconds of an operator's work on a device that its roles leave this share of. */
double sbp_price_pass_s(const struct sbp_pricing *pricing, int op, const struct sbp_factor *factor,
                        enum sbp_pass pass);
/* Flops at the peak that take no longer than a pass of the whole operator, shared out evenly, does
 * in any strategy: those of products and attention by the most that the device reaches of it. Work
 * that memory bounds counts nothing. */
double sbp_price_least_peak_flops(const struct sbp_pricing *pricing, int op, enum sbp_pass pass);
/* Optimizer step over so many local parameters, and the bytes that it moves of one. */
double sbp_price_update_bytes(const struct sbp_pricing *pricing);
double sbp_price_update_s(const struct sbp_pricing *pricing, double parameters);

/* The share of a collective's time that the trainer hides behind the arithmetic of its pass, where
 * that is long enough: by what the collective is for and, inside an operator, by the operator. 0
 * for those at the end of a step, but for weights that are gathered after their update; sums of
 * gradients there hide as struct sbp_stage_end says. */
double sbp_price_hidden_share(const struct sbp_runtime *runtime, enum sbp_section section,
                              enum sbp_cause cause, enum sbp_op_kind kind);

/* A group within a stage, with its members' likes in other stages: in all `pipeline` of them, or in
 * so many along the outermost level that stages take. `whole`: the cluster of all stages, by which
 * collectives over the group are priced. */
struct sbp_group sbp_price_stage_group(const struct sbp_cluster *whole,
                                       const struct sbp_cluster *stage, int64_t pipeline,
                                       int stages, struct sbp_group group);

#endif

/* Counts of an operator's block that several of its costs share: tokens, scores, slots, halo rows.
 *
 * op_cost.c has them; op_cost_work.c, op_cost_kept.c and op_cost_inner.c make costs of them.
 */
#ifndef SBP_COSTMODEL_MODEL_OP_COST_PRIV_H
#define SBP_COSTMODEL_MODEL_OP_COST_PRIV_H

#include "costmodel/model/op_cost.h"

static inline double sbp_op_volume(const double size[SBP_MAX_DIMS])
{
    return size[0] * size[1] * size[2] * size[3];
}

static inline double sbp_op_tokens(const double size[SBP_MAX_DIMS])
{
    return size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE];
}

static inline double sbp_op_features(const double size[SBP_MAX_DIMS])
{
    return size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
}

double sbp_op_factor_of(const struct sbp_op_node *node, const struct sbp_factor *factor,
                        const char *role);

/* Which element of a window: a byte as long as that can count them. */
double sbp_op_index_bytes(const int64_t kernel[2]);

/* Rows of a block that are patches: a class token is none. Where the sequence is split, the slowest
 * member has patches alone. */
double sbp_op_patches(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes);

/* Queries x keys over the heads of the block. Causal attention forms what the slowest rank forms:
 * the last queries see all keys but the average of those after them. */
struct sbp_op_scores {
    double all, formed;
};
struct sbp_op_scores sbp_op_scores(const struct sbp_graph *graph, int op,
                                   const struct sbp_op_sizes *sizes);

/* Elements of keys and values (with the keys' shared part) that a device holds of its own. */
double sbp_op_own_keys(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes);

/* Token copies that a device sends, and, since the experts it holds get as many from each member of
 * its group, receives. A device keeps equally many slots for every expert, full or not: tokens x
 * top_k / experts x capacity, rounded up (Lepikhin et al., GShard, 2020, section 2.2; Fedus et al.,
 * Switch Transformers, 2021, equation 3). The product may miss a whole number by rounding alone. */
double sbp_op_slots(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes);

/* A panel: the inner features that lie with one member of the longer side, which broadcasts its
 * operand's. X's features are split by columns, W's rows by grid rows, by digits of their own
 * (distribution.h): the other operand's share of a panel lies with all members of the shorter side,
 * as much with each, and is gathered, which takes no longer than a broadcast. */
struct sbp_op_grid {
    double rows, columns, panels;
    double m, width, n; /* a device's rows, a panel's features, a device's columns */
};
struct sbp_op_grid sbp_op_grid(const struct sbp_op_node *node, const struct sbp_factor *factor,
                               const struct sbp_op_sizes *sizes);

/* Parts that a custom operator's roles make of its work, those that split any operand; but not role
 * `except` (-1: all). */
double sbp_op_parts_of(const struct sbp_op_node *node, const struct sbp_factor *factor, int except);

/* Parts of a custom operator's costs, which are given for the whole model batch. */
double sbp_op_custom_parts(const struct sbp_graph *graph, const struct sbp_op_node *node,
                           const struct sbp_factor *factor);

/* Input rows that lie with other members but in windows of the member's output rows, before and
 * after its own. */
struct sbp_op_halo {
    double above, below;
};
/* Of the member that misses most: others have an image's edge on one side. Rows are split into runs
 * that lie one behind the other. */
struct sbp_op_halo sbp_op_halo(const struct sbp_graph *graph, const struct sbp_op_node *node,
                               const struct sbp_factor *factor);

/* Elements of a row of a device's images. */
double sbp_op_row_elements(const struct sbp_op_sizes *sizes);

double sbp_op_halo_elements(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            const struct sbp_factor *factor, const struct sbp_op_sizes *sizes);

#endif

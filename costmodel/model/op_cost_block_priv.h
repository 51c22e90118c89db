/* Counts of an operator's block that several of its costs share: tokens, scores, slots, halo rows.
 *
 * op_cost_block.c has them; op_cost_work.c, op_cost_kept.c and op_cost_inner.c make costs of them.
 */
#ifndef SBP_COSTMODEL_MODEL_OP_COST_BLOCK_PRIV_H
#define SBP_COSTMODEL_MODEL_OP_COST_BLOCK_PRIV_H

#include "costmodel/model/halo.h"
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

/* Bytes of the index of an element within a window: one where that can count them. */
double sbp_op_index_bytes(const int64_t kernel[2]);

/* Rows of a block that are patches and not the class token. Where the sequence is split, the
 * slowest member has patches alone. */
double sbp_op_patches(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes);

/* Scores, that is queries x keys over the heads of a block: all of them, and those that causal
 * attention, within its window, keeps and computes. Where the sequence is split each member has as
 * many, since trainers deal it out so: of 2 g pieces for g members one from the front and one from
 * the back (Megatron-LM's context parallelism; Dubey et al., The Llama 3 herd of models, 2024,
 * section 3.3.2). */
struct sbp_op_scores {
    double all, kept;
};
struct sbp_op_scores sbp_op_scores(const struct sbp_graph *graph, int op,
                                   const struct sbp_op_sizes *sizes);

/* Elements of keys and values (with the keys' shared part) that a device holds itself. */
double sbp_op_own_keys(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes);

/* SUMMA's grid and its panels. A panel is the inner features that one member of the grid's longer
 * side holds, and that it broadcasts. X's features are split by columns and W's rows by grid rows,
 * each by its own digits (distribution.h), so the other operand's share of a panel lies with all
 * members of the shorter side in equal parts and is gathered, which takes no longer than a
 * broadcast. */
struct sbp_op_grid {
    double rows, columns, panels;
    double m, width, n; /* a device's rows, a panel's features, a device's columns */
};
struct sbp_op_grid sbp_op_grid(const struct sbp_op_node *node, const struct sbp_factor *factor,
                               const struct sbp_op_sizes *sizes);

/* Parts into which a custom operator's roles divide its work: only roles that split an operand
 * count, and role `except` does not (-1: all do). */
double sbp_op_parts_of(const struct sbp_op_node *node, const struct sbp_factor *factor, int except);

/* The divisor of a custom operator's costs, which the file gives for the whole model batch. */
double sbp_op_custom_parts(const struct sbp_graph *graph, const struct sbp_op_node *node,
                           const struct sbp_factor *factor);

/* Rows that members of the role `height` fetch of each other. */
struct sbp_halo sbp_op_halo(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            const struct sbp_factor *factor);

/* Elements of one row of the images on a device. */
double sbp_op_row_elements(const struct sbp_op_sizes *sizes);

#endif

/* What builders of operators share: classes, tensors, nodes, and shapes made of them.
 *
 * Private to graph_build*.c. Indices stay valid while the graph grows; the pointers do too, since
 * the arrays are as long as they get from the start.
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_PARTS_H
#define SBP_COSTMODEL_MODEL_GRAPH_PARTS_H

#include "costmodel/model/graph_build.h"

/* Initial values: weights of a GPT and embeddings are normal(0, 0.02), as GPT-2's. Biases, and norm
 * gains around their 1, get the same spread instead of a constant: a bias that a run adds twice, or
 * a shard that it takes from the wrong place, then shows in every number. */
#define SBP_INIT_SPREAD 0.02

int sbp_part_class(struct sbp_builder *builder, int64_t size, const char *format, ...)
    SBP_PRINTF(3, 4);
/* Of one size. The older class names the union: what flows through a network is named where it
 * begins. */
void sbp_part_merge(struct sbp_builder *builder, int a, int b);
void sbp_part_rename_class(struct sbp_builder *builder, int dim_class, const char *format, ...)
    SBP_PRINTF(3, 4);

/* Four ones that are never split, to fill in. */
struct sbp_shape sbp_part_scalar(void);
void sbp_part_set_dim(struct sbp_shape *shape, int dim, int64_t size, int dim_class);
struct sbp_shape sbp_part_shape(const struct sbp_builder *builder, int tensor);
int64_t sbp_part_features(const struct sbp_shape *shape); /* times inner */
/* Other features for the tokens of a shape. */
struct sbp_shape sbp_part_with_features(const struct sbp_shape *tokens, int64_t features,
                                        int dim_class, int64_t inner);
/* A vector over the features of an activation: bias, gain, shift. */
struct sbp_shape sbp_part_vector(const struct sbp_shape *activation);
/* False: more than SBP_MOST_ELEMENTS. */
bool sbp_part_count(const int64_t size[SBP_MAX_DIMS], int64_t *elements);

/* A node without operands. */
struct sbp_op_node *sbp_part_op(struct sbp_builder *builder, enum sbp_op_kind kind,
                                const char *name);
void sbp_part_reads(struct sbp_op_node *op, int tensor);
/* Refuses a tensor that is read twice: its gradient would be two of the operator's. */
enum sbp_status sbp_part_distinct(const struct sbp_builder *builder, const struct sbp_json *at,
                                  const int *input, int count) SBP_MUST_USE;
/* `part` is appended to the operator's name: ".weight". */
enum sbp_status sbp_part_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                struct sbp_op_node *op, const char *part,
                                const struct sbp_shape *shape, double mean,
                                double spread) SBP_MUST_USE;
enum sbp_status sbp_part_bias(struct sbp_builder *builder, const struct sbp_json *at,
                              struct sbp_op_node *op, const struct sbp_shape *output) SBP_MUST_USE;
enum sbp_status sbp_part_output(struct sbp_builder *builder, const struct sbp_json *at,
                                struct sbp_op_node *op, const struct sbp_shape *shape) SBP_MUST_USE;
/* Spread of the values of a product's weight that keeps the scale of activations from layer to
 * layer, unless the model has one spread for all. */
double sbp_part_spread(const struct sbp_builder *builder, double terms);

#endif

/* One layer of a model's list while it is read: its keys become a call of the builder.
 * graph_layers.c reads the list, its names and inputs; graph_layer_ops.c the keys of each operator.
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_LAYER_OPS_PRIV_H
#define SBP_COSTMODEL_MODEL_GRAPH_LAYER_OPS_PRIV_H

#include "costmodel/model/graph_build_priv.h"

/* Images that the model reads; all 0: it reads none. */
struct sbp_images {
    int64_t height, width, channels;
};

struct sbp_layer {
    struct sbp_builder *builder;
    struct sbp_json at;
    enum sbp_op_kind kind;
    char name[SBP_OP_NAME_BYTES];
    int index, input_count;
    int input[SBP_MAX_INPUTS]; /* tensors */
    const struct sbp_images *images;
};

/* Images whose sizes, and kernels of windows whose sides, keep products within 2^62. */
#define SBP_MOST_IMAGE_SIDE (INT64_C(1) << 20)

/* The operator of that name, -1 when there is none yet. */
int sbp_layer_find(const struct sbp_graph *graph, const char *name);
/* The keys that a kind has beside op, name and inputs, NULL-terminated. */
const char *const *sbp_layer_keys(enum sbp_op_kind kind);
/* Adds the layer: name, kind and inputs are read, keys checked. */
enum sbp_status sbp_layer_read(const struct sbp_layer *layer) SBP_MUST_USE;

#endif

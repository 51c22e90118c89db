/* The steps from which every architecture builds its layers: a stream of layers, names by block,
 * repeats that share a strategy, and the keys that describe them.
 *
 * The readers of architectures (graph_language.c, graph_vision.c, graph_tabular.c) call these; each
 * step adds one layer through graph_build_priv.h.
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_BLOCKS_PRIV_H
#define SBP_COSTMODEL_MODEL_GRAPH_BLOCKS_PRIV_H

#include "costmodel/model/graph_build_priv.h"

/* Where an architecture is. `stream` is the tensor that the next layer reads and, where it is
 * passed by pointer, the layer's output afterwards: a branch is a stream of its own. */
struct sbp_blocks {
    struct sbp_builder builder;
    struct sbp_json at;
    char prefix[24]; /* "block3.", of every name that is made; "" outside */
    int64_t number;  /* 3 */
    double dropout;  /* of every dropout layer; 0: they are left out */
    double epsilon;  /* of every norm */
};

/* Sets "PART%lld." as the prefix; NULL: none. */
void sbp_blocks_enter(struct sbp_blocks *blocks, const char *part, int64_t number);
/* Operators from `first` on are `blocks` equal ones in a row; later ones repeat the first. */
void sbp_blocks_repeat(struct sbp_blocks *blocks, int first, int64_t count);

struct sbp_blocks_linear {
    int64_t out, heads; /* heads 0: out features, unpacked */
    bool bias;
    const char *out_class; /* NULL: the layer's name */
};
enum sbp_status sbp_blocks_linear(struct sbp_blocks *blocks, const char *part,
                                  struct sbp_blocks_linear linear, int *stream) SBP_MUST_USE;
/* The output layer over a padded vocabulary (or classes); `table`: -1 or the one that it is tied
 * to. A loss follows it. */
enum sbp_status sbp_blocks_head(struct sbp_blocks *blocks, int64_t classes, int64_t padded,
                                int table, bool bias, int stream) SBP_MUST_USE;
enum sbp_status sbp_blocks_norm(struct sbp_blocks *blocks, enum sbp_op_kind kind, const char *part,
                                int *stream) SBP_MUST_USE;
enum sbp_status sbp_blocks_elementwise(struct sbp_blocks *blocks, enum sbp_op_kind kind,
                                       const char *part, int *stream) SBP_MUST_USE;
/* stream = stream + branch */
enum sbp_status sbp_blocks_add(struct sbp_blocks *blocks, const char *part, int branch,
                               int *stream) SBP_MUST_USE;

/* ---- keys ---- */

#define SBP_MOST_BLOCKS 1000
/* Sizes of new layers, so that any two of them multiply to a size. */
#define SBP_MOST_WIDTH (INT64_C(1) << 26)

/* One of the numbers of a list of `count`; *choice is its place, and stays when the key is absent
 * and `choice` has a value already (>= 0). */
enum sbp_status sbp_blocks_depth(const struct sbp_json *at, const int *depths, int count,
                                 int *choice) SBP_MUST_USE;

#endif

/* The readers of a model file: what an architecture, a list of layers and both have to say.
 *
 * graph_read.c chooses by the key "architecture": an architecture from the table below, or the list
 * of layers. Each reader fills the graph through the builder (graph_build_priv.h).
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_READ_PRIV_H
#define SBP_COSTMODEL_MODEL_GRAPH_READ_PRIV_H

#include "costmodel/model/graph_blocks_priv.h"

#define SBP_MODEL_MOST_KEYS 40
/* The readers of the two forms of a model, and of what both have. Keys that both forms have are
 * listed once; a form's own ones follow them in `known` (room for SBP_MODEL_MOST_KEYS). */
enum sbp_status sbp_graph_read_layers(const struct sbp_json *at, struct sbp_graph *graph,
                                      enum sbp_attention_kind attention) SBP_MUST_USE;
enum sbp_status sbp_graph_read_training(const struct sbp_json *at,
                                        struct sbp_graph *graph) SBP_MUST_USE;
enum sbp_status sbp_graph_check_keys(const struct sbp_json *at,
                                     const char *const *own) SBP_MUST_USE;

struct sbp_architecture {
    const char *name;
    const char *keys[SBP_MODEL_MOST_KEYS]; /* besides those of all models */
    enum sbp_status (*read)(struct sbp_blocks *blocks, struct sbp_graph *graph,
                            enum sbp_attention_kind attention);
};
extern const struct sbp_architecture sbp_graph_gpt, sbp_graph_llama, sbp_graph_mixtral,
    sbp_graph_deepseek, sbp_graph_bert;
extern const struct sbp_architecture sbp_graph_vit, sbp_graph_vgg, sbp_graph_resnet, sbp_graph_face;
extern const struct sbp_architecture sbp_graph_mlp, sbp_graph_wide_deep;

#endif

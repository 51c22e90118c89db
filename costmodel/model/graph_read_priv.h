/* The readers of model files. graph_read.c takes the keys that both forms have, then calls the
 * reader of an architecture from the table below, or the reader of a list of layers.
 *
 * Each reader checks its keys and fills the graph through the builder (graph_build_priv.h).
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_READ_PRIV_H
#define SBP_COSTMODEL_MODEL_GRAPH_READ_PRIV_H

#include "costmodel/model/graph_blocks_priv.h"

#define SBP_MODEL_MOST_KEYS 42
/* Readers of the list form and of the training keys, and the check of legal keys: `own` (NULL at
 * the end, at most SBP_MODEL_MOST_KEYS with the common ones) lists those of one form. */
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

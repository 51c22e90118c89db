/* Stacks of transformer blocks. Every architecture on tokens is one setting of struct
 * sbp_transformer, which sbp_transformer_build turns into operators. */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_TRANSFORMER_PRIV_H
#define SBP_COSTMODEL_MODEL_GRAPH_TRANSFORMER_PRIV_H

#include "costmodel/model/graph_blocks_priv.h"

struct sbp_transformer {
    int64_t blocks, hidden, heads, ffn;
    int64_t kv_heads, head_size; /* of grouped attention */
    enum sbp_op_kind norm;       /* layernorm, rmsnorm */
    enum sbp_op_kind attention;  /* attention (packed), grouped_attention, latent_attention */
    enum sbp_op_kind activation; /* gelu; swiglu: a gated feed-forward */
    bool post_norm;              /* norms stand behind the sums (BERT), else before the halves */
    bool sandwich_norm;          /* and also behind the halves, before the sums (Gemma 2) */
    bool causal, ring;
    bool sinks;              /* of grouped attention, a score of each head (gpt-oss) */
    int64_t window;          /* keys that a query sees in a windowed layer; 0: no layer is */
    int64_t windowed_blocks; /* how many blocks are; all are priced as their mean */
    bool qkv_bias, projection_bias, ffn_bias;
    bool head_norms; /* of queries and keys (Qwen3) */
    double attention_dropout;
    struct { /* latent attention: ranks, and parts of a head (DeepSeek-V2, section 2.1) */
        int64_t q_rank, kv_rank; /* q_rank 0: queries are not compressed */
        int64_t nope, rope, value;
    } latent;
    struct { /* every `every`th block from `dense` on has experts in place of the feed-forward */
        int64_t dense, every, experts, top_k, ffn;
        int64_t shared_ffn; /* of the experts that every token takes, together; 0: none */
        double capacity;
        int64_t nodes_per_token, groups; /* 0: any, none */
        bool sigmoid, router_bias, expert_bias;
    } moe; /* experts 0: no block has */
};

#define SBP_TRANSFORMER_OPS 24 /* at most, of a block */
/* From the embedding's output to the last block's. */
enum sbp_status sbp_transformer_build(struct sbp_blocks *blocks,
                                      const struct sbp_transformer *transformer,
                                      int *stream) SBP_MUST_USE;

#endif

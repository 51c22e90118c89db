#include "executor/rank/latent_run_priv.h"

#include <stddef.h>

#include "costmodel/model/op_cost.h"
#include "executor/rank/context_run_priv.h"

static void *at(struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    return sbp_rank_buffer(rank, instr->buffer[place]);
}

static int64_t local_size(const struct sbp_rank *rank, const struct sbp_instr *instr, int dim)
{
    const struct sbp_buffer *q = &rank->program->buffer[instr->buffer[SBP_AT_IN]];
    return sbp_dist_local_size(&rank->program->mesh, &rank->program->graph->tensor[q->tensor].shape,
                               &q->dist, dim);
}

struct sbp_attention_shape sbp_rank_latent_shape(const struct sbp_rank *rank,
                                                 const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &rank->program->graph->op[instr->op];
    return (struct sbp_attention_shape){.batch = local_size(rank, instr, SBP_DIM_BATCH),
                                        .sequence = local_size(rank, instr, SBP_DIM_SEQUENCE),
                                        .heads = local_size(rank, instr, SBP_DIM_FEATURE),
                                        .head_size = node->attention.qk_size,
                                        .causal = node->attention.causal,
                                        .kind = node->attention.kind};
}

/* Keys and values where they are held, or, gathered, in rows with the shared part behind them. */
static struct sbp_latent_keys find_keys(struct sbp_rank *rank, const struct sbp_instr *instr,
                                        struct sbp_rank_context *context)
{
    const struct sbp_graph *graph = rank->program->graph;
    const struct sbp_latent_parts parts = sbp_op_latent_parts(graph, &graph->op[instr->op]);
    const int64_t own = local_size(rank, instr, SBP_DIM_FEATURE) * (parts.nope + parts.value);
    if (!sbp_rank_find_context(rank, instr, context))
        return (struct sbp_latent_keys){.kv = at(rank, instr, SBP_AT_IN2),
                                        .shared = at(rank, instr, SBP_AT_IN3),
                                        .kv_gradients = at(rank, instr, SBP_AT_OUT2),
                                        .shared_gradients = at(rank, instr, SBP_AT_OUT3),
                                        .kv_row = own,
                                        .shared_row = parts.rope,
                                        .parts = parts};
    const struct sbp_attention_context *all = &context->context;
    const int64_t behind = own * rank->kernels->real_bytes;
    return (struct sbp_latent_keys){.kv = all->keys,
                                    .shared = (const unsigned char *)all->keys + behind,
                                    .kv_gradients = all->key_gradients,
                                    .shared_gradients =
                                        (unsigned char *)all->key_gradients + behind,
                                    .kv_row = context->row,
                                    .shared_row = context->row,
                                    .parts = parts,
                                    .rows = all->rows,
                                    .block = all->block};
}

void sbp_rank_latent(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_attention_dropout dropout;
    struct sbp_attention_shape shape = sbp_rank_latent_shape(rank, instr);
    struct sbp_rank_context context;
    const struct sbp_latent_keys keys = find_keys(rank, instr, &context);
    shape.dropout = sbp_rank_find_attention_dropout(rank, instr, &dropout);
    rank->kernels->latent_attention_forward(
        at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_SAVED), at(rank, instr, SBP_AT_WORK),
        at(rank, instr, SBP_AT_IN), &keys, &shape);
}

void sbp_rank_latent_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_attention_dropout dropout;
    struct sbp_attention_shape shape = sbp_rank_latent_shape(rank, instr);
    struct sbp_rank_context context;
    const struct sbp_latent_keys keys = find_keys(rank, instr, &context);
    shape.dropout = sbp_rank_find_attention_dropout(rank, instr, &dropout);
    rank->kernels->latent_attention_backward(
        at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_WORK), at(rank, instr, SBP_AT_DY),
        at(rank, instr, SBP_AT_IN), at(rank, instr, SBP_AT_SAVED2), at(rank, instr, SBP_AT_SAVED),
        &keys, &shape);
}

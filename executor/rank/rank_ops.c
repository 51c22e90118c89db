#include "executor/rank/rank_ops_priv.h"

#include <stddef.h>

#include "executor/rank/context_run_priv.h"
#include "executor/rank/image_run_priv.h"
#include "executor/rank/latent_run_priv.h"
#include "executor/rank/linear_run_priv.h"
#include "executor/rank/mixture_run_priv.h"
#include "executor/rank/panels_run_priv.h"

typedef void (*run_op)(struct sbp_rank *rank, const struct sbp_instr *instr);

static const struct sbp_op_node *node_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return &rank->program->graph->op[instr->op];
}

static void *operand(struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    return sbp_rank_buffer(rank, instr->buffer[place]);
}

static const struct sbp_buffer *buffer_of(const struct sbp_rank *rank,
                                          const struct sbp_instr *instr, int place)
{
    return &rank->program->buffer[instr->buffer[place]];
}

static int64_t local_size(const struct sbp_rank *rank, const struct sbp_buffer *buffer, int dim)
{
    return sbp_dist_local_size(&rank->program->mesh,
                               &rank->program->graph->tensor[buffer->tensor].shape, &buffer->dist,
                               dim);
}

void *sbp_rank_added_once(struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    const struct sbp_dist *output = &buffer_of(rank, instr, SBP_AT_OUT)->dist;
    const sbp_axes partial = sbp_dist_of_kind(&rank->program->mesh, output, SBP_PARTIAL);
    return sbp_rank_leads(rank, partial) ? operand(rank, instr, place) : NULL;
}

bool sbp_rank_adds_to(const struct sbp_rank *rank, int buffer)
{
    return rank->adds && buffer >= 0 && rank->program->buffer[buffer].use == SBP_USE_GRADIENT;
}

unsigned sbp_rank_adds_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const bool first = instr->factor == 1.0 || sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW]);
    const bool rest = sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW2]);
    return (first ? SBP_ADDS_FIRST : 0U) | (rest ? SBP_ADDS_REST : 0U);
}

static void activate(struct sbp_rank *rank, const struct sbp_instr *instr,
                     void (*kernel)(void *y, const void *x, int64_t n))
{
    kernel(operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
           buffer_of(rank, instr, SBP_AT_OUT)->elements);
}

static void activate_backward(struct sbp_rank *rank, const struct sbp_instr *instr,
                              void (*kernel)(void *dx, const void *x, const void *dy, int64_t n))
{
    kernel(operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
           operand(rank, instr, SBP_AT_DY), buffer_of(rank, instr, SBP_AT_OUT)->elements);
}

static void relu_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    activate(rank, instr, rank->kernels->relu_forward);
}

static void relu_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    activate_backward(rank, instr, rank->kernels->relu_backward);
}

static void tanh_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    activate(rank, instr, rank->kernels->tanh_forward);
}

static void tanh_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    rank->kernels->tanh_backward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED2),
        operand(rank, instr, SBP_AT_DY), buffer_of(rank, instr, SBP_AT_OUT)->elements);
}

static void swiglu_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    activate(rank, instr, rank->kernels->swiglu_forward);
}

static void swiglu_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    rank->kernels->swiglu_backward(operand(rank, instr, SBP_AT_OUT),
                                   operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_DY),
                                   buffer_of(rank, instr, SBP_AT_DY)->elements);
}

/* The place of what an operator need not have, behind that of its first weight; -1: none. */
static int place_of(const struct sbp_instr *instr, int first, int weight)
{
    return weight > 0 && instr->buffer[first + weight] >= 0 ? first + weight : -1;
}

static int64_t rows_of(const struct sbp_rank *rank, int tensor)
{
    return rank->program->graph->tensor[tensor].shape.size[SBP_DIM_IN];
}

static int64_t sequence_of(const struct sbp_rank *rank, const struct sbp_op_node *node)
{
    return rank->program->graph->tensor[node->output].shape.size[SBP_DIM_SEQUENCE];
}

static void embedding_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = node_of(rank, instr);
    const int positions = place_of(instr, SBP_AT_W, node->positions);
    const int types = place_of(instr, SBP_AT_W, node->types);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_OUT);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_OUT);
    struct sbp_digits vocabulary;
    sbp_rank_vocabulary(rank, instr->buffer[SBP_AT_W], SBP_DIM_IN, &vocabulary);
    rank->kernels->embedding_forward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
        operand(rank, instr, SBP_AT_IN2), operand(rank, instr, SBP_AT_W),
        positions < 0 ? NULL : sbp_rank_added_once(rank, instr, positions), tokens, features,
        &vocabulary);
    const void *type_rows = types < 0 ? NULL : sbp_rank_added_once(rank, instr, types);
    if (type_rows != NULL)
        rank->kernels->token_types_forward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN2), type_rows, tokens,
            features, rows_of(rank, node->weight[node->types]), sequence_of(rank, node));
}

static void embedding_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = node_of(rank, instr);
    const int positions = place_of(instr, SBP_AT_DW, node->positions);
    const int types = place_of(instr, SBP_AT_DW, node->types);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_DY);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_DY);
    struct sbp_digits vocabulary;
    sbp_rank_vocabulary(rank, instr->buffer[SBP_AT_DW], SBP_DIM_IN, &vocabulary);
    rank->kernels->embedding_backward(
        operand(rank, instr, SBP_AT_DW), positions < 0 ? NULL : operand(rank, instr, positions),
        operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_IN2),
        operand(rank, instr, SBP_AT_DY), tokens, features,
        positions < 0 ? 0 : rows_of(rank, node->weight[node->positions]), &vocabulary,
        sbp_rank_adds_of(rank, instr));
    if (types >= 0)
        rank->kernels->token_types_backward(
            operand(rank, instr, types), operand(rank, instr, SBP_AT_IN2),
            operand(rank, instr, SBP_AT_DY), tokens, features,
            rows_of(rank, node->weight[node->types]), sequence_of(rank, node),
            sbp_rank_adds_to(rank, instr->buffer[types]));
}

/* The size of the normalised dimension over all ranks. */
static int64_t hidden(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int tensor = buffer_of(rank, instr, SBP_AT_IN)->tensor;
    const int64_t *size = rank->program->graph->tensor[tensor].shape.size;
    return size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
}

/* Whether two phases of an operator are done in the second one, at once: features are whole, so
 * that nobody sums between, and nobody looks at what the first phase writes. */
static bool works_at_once(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return !rank->keeps_apart &&
           sbp_dist_split(&rank->program->mesh, &buffer_of(rank, instr, SBP_AT_IN)->dist,
                          SBP_DIM_FEATURE) == 0;
}

static void layernorm_whole_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    if (instr->phase > 0)
        rank->kernels->layernorm_whole_forward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_W),
            operand(rank, instr, SBP_AT_W2), sbp_rank_tokens(rank, instr, SBP_AT_IN),
            hidden(rank, instr), node_of(rank, instr)->epsilon);
}

/* Sums of the first phase have room in the plan, which a run must touch. */
static void layernorm_whole_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    (void)operand(rank, instr, SBP_AT_SAVED2);
    if (instr->phase > 0)
        rank->kernels->layernorm_whole_backward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_DW),
            operand(rank, instr, SBP_AT_DW2), operand(rank, instr, SBP_AT_DY),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_SAVED),
            operand(rank, instr, SBP_AT_W), sbp_rank_tokens(rank, instr, SBP_AT_IN),
            hidden(rank, instr), node_of(rank, instr)->epsilon,
            sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW]));
}

static void layernorm_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_IN);
    if (rank->kernels->layernorm_whole_forward != NULL && works_at_once(rank, instr))
        layernorm_whole_forward(rank, instr);
    else if (instr->phase == 0)
        rank->kernels->layernorm_sums(operand(rank, instr, SBP_AT_SAVED),
                                      operand(rank, instr, SBP_AT_IN), tokens, features);
    else
        rank->kernels->layernorm_forward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
            operand(rank, instr, SBP_AT_SAVED), operand(rank, instr, SBP_AT_W),
            operand(rank, instr, SBP_AT_W2), tokens, features, hidden(rank, instr),
            node_of(rank, instr)->epsilon);
}

static void layernorm_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_IN);
    const double epsilon = node_of(rank, instr)->epsilon;
    if (rank->kernels->layernorm_whole_backward != NULL && works_at_once(rank, instr))
        layernorm_whole_backward(rank, instr);
    else if (instr->phase == 0)
        rank->kernels->layernorm_backward_sums(
            operand(rank, instr, SBP_AT_SAVED2), operand(rank, instr, SBP_AT_DY),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_SAVED),
            operand(rank, instr, SBP_AT_W), tokens, features, hidden(rank, instr), epsilon);
    else
        rank->kernels->layernorm_backward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_DW),
            operand(rank, instr, SBP_AT_DW2), operand(rank, instr, SBP_AT_DY),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_SAVED),
            operand(rank, instr, SBP_AT_SAVED2), operand(rank, instr, SBP_AT_W), tokens, features,
            hidden(rank, instr), epsilon, sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW]));
}

static void rmsnorm_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_IN);
    if (instr->phase == 0)
        rank->kernels->rmsnorm_sums(operand(rank, instr, SBP_AT_SAVED),
                                    operand(rank, instr, SBP_AT_IN), tokens, features);
    else
        rank->kernels->rmsnorm_forward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
            operand(rank, instr, SBP_AT_SAVED), operand(rank, instr, SBP_AT_W), tokens, features,
            hidden(rank, instr), node_of(rank, instr)->epsilon);
}

static void rmsnorm_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_IN);
    if (instr->phase == 0)
        rank->kernels->rmsnorm_backward_sums(
            operand(rank, instr, SBP_AT_SAVED2), operand(rank, instr, SBP_AT_DY),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_W), tokens, features);
    else
        rank->kernels->rmsnorm_backward(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_DW),
            operand(rank, instr, SBP_AT_DY), operand(rank, instr, SBP_AT_IN),
            operand(rank, instr, SBP_AT_SAVED), operand(rank, instr, SBP_AT_SAVED2),
            operand(rank, instr, SBP_AT_W), tokens, features, hidden(rank, instr),
            node_of(rank, instr)->epsilon, sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW]));
}

/* Heads of all tokens, and how many of the features of each are normalised. */
struct heads {
    int64_t count, width, size;
};

static struct heads heads_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_buffer *in = buffer_of(rank, instr, SBP_AT_IN);
    return (struct heads){
        .count = sbp_rank_tokens(rank, instr, SBP_AT_IN) * local_size(rank, in, SBP_DIM_FEATURE),
        .width = local_size(rank, in, SBP_DIM_INNER),
        .size = local_size(rank, buffer_of(rank, instr, SBP_AT_W), SBP_DIM_OUT_INNER)};
}

static void head_norm_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct heads heads = heads_of(rank, instr);
    rank->kernels->head_norm_forward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED),
        operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_W), heads.count, heads.width,
        heads.size, node_of(rank, instr)->epsilon);
}

static void head_norm_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct heads heads = heads_of(rank, instr);
    rank->kernels->head_norm_backward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_DW),
        operand(rank, instr, SBP_AT_DY), operand(rank, instr, SBP_AT_IN),
        operand(rank, instr, SBP_AT_SAVED), operand(rank, instr, SBP_AT_W), heads.count,
        heads.width, heads.size, node_of(rank, instr)->epsilon,
        sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW]));
}

/* Turns x in place, by the places of the rank's rows in the whole sequence. */
static void rotary(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_buffer *x = buffer_of(rank, instr, SBP_AT_OUT);
    struct sbp_region region;
    sbp_rank_region(rank, instr->buffer[SBP_AT_OUT], &region);
    rank->kernels->rotary(operand(rank, instr, SBP_AT_OUT), &region.dim[SBP_DIM_SEQUENCE],
                          local_size(rank, x, SBP_DIM_BATCH), local_size(rank, x, SBP_DIM_FEATURE),
                          local_size(rank, x, SBP_DIM_INNER), node_of(rank, instr)->rotated,
                          instr->kind == SBP_INSTR_BACKWARD);
}

/* The input is the packed (heads, 3, head size) projection. */
static struct sbp_attention_shape attention_shape(struct sbp_rank *rank,
                                                  const struct sbp_instr *instr,
                                                  struct sbp_rank_attention_dropout *dropout)
{
    const struct sbp_buffer *qkv = buffer_of(rank, instr, SBP_AT_IN);
    const struct sbp_op_node *node = node_of(rank, instr);
    return (struct sbp_attention_shape){
        .batch = local_size(rank, qkv, SBP_DIM_BATCH),
        .sequence = local_size(rank, qkv, SBP_DIM_SEQUENCE),
        .heads = local_size(rank, qkv, SBP_DIM_FEATURE),
        .head_size = local_size(rank, qkv, SBP_DIM_INNER) / 3,
        .causal = node->attention.causal,
        .kind = node->attention.kind,
        .dropout = sbp_rank_find_attention_dropout(rank, instr, dropout),
    };
}

static void attention_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_attention_dropout dropout;
    const struct sbp_attention_shape shape = attention_shape(rank, instr, &dropout);
    struct sbp_rank_context at;
    const bool has_context = sbp_rank_find_context(rank, instr, &at);
    rank->kernels->attention_forward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED),
        operand(rank, instr, SBP_AT_WORK), operand(rank, instr, SBP_AT_IN),
        has_context ? &at.context : NULL, &shape);
}

static void attention_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_attention_dropout dropout;
    const struct sbp_attention_shape shape = attention_shape(rank, instr, &dropout);
    struct sbp_rank_context at;
    const bool has_context = sbp_rank_find_context(rank, instr, &at);
    rank->kernels->attention_backward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_WORK),
        operand(rank, instr, SBP_AT_DY), operand(rank, instr, SBP_AT_IN),
        operand(rank, instr, SBP_AT_SAVED2), operand(rank, instr, SBP_AT_SAVED),
        has_context ? &at.context : NULL, &shape);
}

static struct sbp_attention_shape grouped_shape(struct sbp_rank *rank,
                                                const struct sbp_instr *instr,
                                                struct sbp_rank_attention_dropout *dropout)
{
    const struct sbp_buffer *q = buffer_of(rank, instr, SBP_AT_IN);
    const struct sbp_op_node *node = node_of(rank, instr);
    return (struct sbp_attention_shape){
        .batch = local_size(rank, q, SBP_DIM_BATCH),
        .sequence = local_size(rank, q, SBP_DIM_SEQUENCE),
        .heads = local_size(rank, q, SBP_DIM_FEATURE),
        .head_size = local_size(rank, q, SBP_DIM_INNER),
        .causal = node->attention.causal,
        .kind = node->attention.kind,
        .dropout = sbp_rank_find_attention_dropout(rank, instr, dropout),
    };
}

/* Keys and values as the kernel reads them, their gradients, and whose they are. */
struct grouped {
    struct sbp_rank_context at;
    struct sbp_region queries, keys; /* groups points to these: not to be copied */
    struct sbp_attention_groups groups;
    const void *kv;
    void *dkv;
};

static void find_groups(struct sbp_rank *rank, const struct sbp_instr *instr, struct grouped *g)
{
    const struct sbp_graph *graph = rank->program->graph;
    const struct sbp_op_node *node = node_of(rank, instr);
    const bool has_context = sbp_rank_find_context(rank, instr, &g->at);
    sbp_rank_region(rank, instr->buffer[SBP_AT_IN], &g->queries);
    sbp_rank_region(rank, instr->buffer[SBP_AT_IN2], &g->keys);
    g->groups = (struct sbp_attention_groups){
        .heads = &g->queries.dim[SBP_DIM_FEATURE],
        .kv_heads = &g->keys.dim[SBP_DIM_FEATURE],
        .share = graph->tensor[node->input[0]].shape.size[SBP_DIM_FEATURE] /
                 graph->tensor[node->input[1]].shape.size[SBP_DIM_FEATURE],
        .window = node->attention.own_window,
        .rows = has_context ? &g->at.rows : NULL,
        .block = has_context ? g->at.context.block : NULL,
        .sinks = operand(rank, instr, SBP_AT_W),
        .sink_gradients = operand(rank, instr, SBP_AT_DW),
        .adds = sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW])};
    g->kv = has_context ? g->at.context.keys : operand(rank, instr, SBP_AT_IN2);
    g->dkv = has_context ? g->at.context.key_gradients : operand(rank, instr, SBP_AT_OUT2);
}

static void grouped_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_attention_dropout dropout;
    const struct sbp_attention_shape shape = grouped_shape(rank, instr, &dropout);
    struct grouped g;
    find_groups(rank, instr, &g);
    rank->kernels->grouped_attention_forward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED),
        operand(rank, instr, SBP_AT_WORK), operand(rank, instr, SBP_AT_IN), g.kv, &g.groups,
        &shape);
}

static void grouped_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_attention_dropout dropout;
    const struct sbp_attention_shape shape = grouped_shape(rank, instr, &dropout);
    struct grouped g;
    find_groups(rank, instr, &g);
    rank->kernels->grouped_attention_backward(
        operand(rank, instr, SBP_AT_OUT), g.dkv, operand(rank, instr, SBP_AT_WORK),
        operand(rank, instr, SBP_AT_DY), operand(rank, instr, SBP_AT_IN), g.kv,
        operand(rank, instr, SBP_AT_SAVED2), operand(rank, instr, SBP_AT_SAVED), &g.groups, &shape);
}

static void add_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    rank->kernels->add(operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
                       operand(rank, instr, SBP_AT_IN2),
                       buffer_of(rank, instr, SBP_AT_OUT)->elements);
}

static void dropout_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_region region;
    sbp_rank_batch_region(rank, instr->buffer[SBP_AT_OUT], &region);
    rank->kernels->dropout_forward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED),
        operand(rank, instr, SBP_AT_IN), &region, node_of(rank, instr)->probability,
        rank->step_seed, sbp_rank_dropout_stream(instr));
}

static void dropout_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    rank->kernels->dropout_backward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_SAVED),
        operand(rank, instr, SBP_AT_DY), buffer_of(rank, instr, SBP_AT_OUT)->elements,
        node_of(rank, instr)->probability);
}

static void cross_entropy_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int64_t valid = node_of(rank, instr)->valid_vocabulary;
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    const int64_t local = sbp_rank_features(rank, instr, SBP_AT_IN);
    struct sbp_digits vocabulary;
    sbp_rank_vocabulary(rank, instr->buffer[SBP_AT_IN], SBP_DIM_FEATURE, &vocabulary);
    const bool at_once =
        rank->kernels->cross_entropy_whole_sums != NULL && works_at_once(rank, instr);
    if (at_once && instr->phase == 1)
        rank->kernels->cross_entropy_whole_sums(
            operand(rank, instr, SBP_AT_SAVED), operand(rank, instr, SBP_AT_SAVED2),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_IN2), tokens, local,
            valid);
    else if (instr->phase == 0 && !at_once)
        rank->kernels->cross_entropy_maxima(operand(rank, instr, SBP_AT_SAVED),
                                            operand(rank, instr, SBP_AT_IN), tokens, local,
                                            &vocabulary, valid);
    else if (instr->phase == 1)
        rank->kernels->cross_entropy_sums(
            operand(rank, instr, SBP_AT_SAVED2), operand(rank, instr, SBP_AT_IN),
            operand(rank, instr, SBP_AT_IN2), operand(rank, instr, SBP_AT_SAVED), tokens, local,
            &vocabulary, valid);
    else if (instr->phase == 2)
        rank->kernels->cross_entropy_loss(operand(rank, instr, SBP_AT_OUT),
                                          operand(rank, instr, SBP_AT_SAVED2), tokens);
}

static void cross_entropy_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_digits vocabulary;
    sbp_rank_vocabulary(rank, instr->buffer[SBP_AT_IN], SBP_DIM_FEATURE, &vocabulary);
    rank->kernels->cross_entropy_backward(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
        operand(rank, instr, SBP_AT_IN2), operand(rank, instr, SBP_AT_SAVED),
        operand(rank, instr, SBP_AT_SAVED2), sbp_rank_tokens(rank, instr, SBP_AT_IN),
        sbp_rank_features(rank, instr, SBP_AT_IN), &vocabulary,
        node_of(rank, instr)->valid_vocabulary, instr->factor, rank->state);
}

/* At once, or block by block. */
static enum sbp_status run_kernel(struct sbp_rank *rank, const struct sbp_instr *instr, run_op op,
                                  struct sbp_diag *diag)
{
    if (sbp_rank_has_ring(rank, instr))
        return sbp_rank_go_round(rank, instr, op, diag);
    op(rank, instr);
    return SBP_OK;
}

enum sbp_status sbp_rank_forward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag)
{
    static const run_op forward[SBP_OP_KINDS] = {
        [SBP_OP_LINEAR] = sbp_rank_linear,
        [SBP_OP_RELU] = relu_forward,
        [SBP_OP_GELU] = sbp_rank_gelu,
        [SBP_OP_TANH] = tanh_forward,
        [SBP_OP_SWIGLU] = swiglu_forward,
        [SBP_OP_EMBEDDING] = embedding_forward,
        [SBP_OP_LAYERNORM] = layernorm_forward,
        [SBP_OP_RMSNORM] = rmsnorm_forward,
        [SBP_OP_HEAD_NORM] = head_norm_forward,
        [SBP_OP_ROTARY] = rotary,
        [SBP_OP_ATTENTION] = attention_forward,
        [SBP_OP_GROUPED_ATTENTION] = grouped_forward,
        [SBP_OP_LATENT_ATTENTION] = sbp_rank_latent,
        [SBP_OP_MOE] = sbp_rank_mix,
        [SBP_OP_ADD] = add_forward,
        [SBP_OP_DROPOUT] = dropout_forward,
        [SBP_OP_CROSS_ENTROPY] = cross_entropy_forward,
        [SBP_OP_FIRST_TOKEN] = sbp_rank_first_token,
        [SBP_OP_FLATTEN] = sbp_rank_flatten,
        [SBP_OP_PATCH_EMBEDDING] = sbp_rank_patches,
        [SBP_OP_CONV2D] = sbp_rank_conv2d,
        [SBP_OP_MAXPOOL] = sbp_rank_pool,
        [SBP_OP_AVGPOOL] = sbp_rank_pool,
        [SBP_OP_BATCHNORM] = sbp_rank_batchnorm,
    };
    if (node_of(rank, instr)->kind == SBP_OP_SUMMA_LINEAR)
        return sbp_rank_panels(rank, instr, diag);
    return run_kernel(rank, instr, forward[node_of(rank, instr)->kind], diag);
}

enum sbp_status sbp_rank_backward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    static const run_op backward[SBP_OP_KINDS] = {
        [SBP_OP_LINEAR] = sbp_rank_linear_backward,
        [SBP_OP_RELU] = relu_backward,
        [SBP_OP_GELU] = sbp_rank_gelu_backward,
        [SBP_OP_TANH] = tanh_backward,
        [SBP_OP_SWIGLU] = swiglu_backward,
        [SBP_OP_EMBEDDING] = embedding_backward,
        [SBP_OP_LAYERNORM] = layernorm_backward,
        [SBP_OP_RMSNORM] = rmsnorm_backward,
        [SBP_OP_HEAD_NORM] = head_norm_backward,
        [SBP_OP_ROTARY] = rotary,
        [SBP_OP_ATTENTION] = attention_backward,
        [SBP_OP_GROUPED_ATTENTION] = grouped_backward,
        [SBP_OP_LATENT_ATTENTION] = sbp_rank_latent_backward,
        [SBP_OP_MOE] = sbp_rank_mix_backward,
        [SBP_OP_DROPOUT] = dropout_backward,
        [SBP_OP_CROSS_ENTROPY] = cross_entropy_backward,
        [SBP_OP_FIRST_TOKEN] = sbp_rank_first_token_backward,
        [SBP_OP_FLATTEN] = sbp_rank_flatten,
        [SBP_OP_PATCH_EMBEDDING] = sbp_rank_patches_backward,
        [SBP_OP_CONV2D] = sbp_rank_conv2d_backward,
        [SBP_OP_MAXPOOL] = sbp_rank_pool_backward,
        [SBP_OP_AVGPOOL] = sbp_rank_pool_backward,
        [SBP_OP_BATCHNORM] = sbp_rank_batchnorm_backward,
    };
    const enum sbp_op_kind kind = node_of(rank, instr)->kind;
    if (kind == SBP_OP_SUMMA_LINEAR)
        return sbp_rank_panels(rank, instr, diag);
    if (backward[kind] == NULL) /* the gradient of a sum is the one of its operands: no kernel */
        return sbp_fail(diag, SBP_E_INTERNAL, "%s has no backward kernel", sbp_op(kind)->name);
    return run_kernel(rank, instr, backward[kind], diag);
}

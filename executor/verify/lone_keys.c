/* A query that sees one key has the probability 1 whatever the score, and the score's gradient
 * p (dp - sum p dp) is exactly 0: the difference of two equal sums over the features of dy v. Both
 * are rounded, and by chance alike, so that the shadow may show nothing of what the run shows. */
#include "executor/verify/lone_keys_priv.h"

#include <math.h>

#include "costmodel/model/op_cost.h"

/* Queries and keys of one attention, or some of their features, with their gradients: elements from
 * row to row and from head to head, in the exact memory and in the shadow's. */
struct side {
    const double *exact;
    const double *gradient;
    float *shadow;
    int64_t row, head, size;
};

/* Latent attention has two parts of queries and keys, of which the second is one key for all heads;
 * others have one. */
struct attended {
    struct side q[2], k[2];
    int parts;
    const double *dy, *y;
    int64_t batch, sequence, heads, share, window;
    int64_t size, value; /* of a head: features of queries, of values */
    bool causal;
};

/* `size` features of a head from its feature `first` on. */
static struct side side_of(const struct sbp_lockstep *both, const struct sbp_instr *instr, int in,
                           int out, struct side of, int64_t first)
{
    of.exact = sbp_rank_buffer(both->exact, instr->buffer[in]);
    of.gradient = sbp_rank_buffer(both->exact, instr->buffer[out]);
    of.shadow = sbp_rank_buffer(both->shadow, instr->buffer[out]);
    of.exact += first;
    of.gradient += first;
    of.shadow += first;
    return of;
}

static void find_latent(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                        struct attended *at)
{
    const struct sbp_graph *graph = both->exact->program->graph;
    const struct sbp_latent_parts parts = sbp_op_latent_parts(graph, &graph->op[instr->op]);
    const int64_t heads = at->heads, size = at->size, width = parts.nope + parts.value;
    const struct side own = {.row = heads * size, .head = size, .size = parts.nope};
    const struct side turned = {.row = heads * size, .head = size, .size = parts.rope};
    const struct side keys = {.row = heads * width, .head = width, .size = parts.nope};
    const struct side shared = {.row = parts.rope, .size = parts.rope};
    at->parts = 2;
    at->value = parts.value;
    at->q[0] = side_of(both, instr, SBP_AT_IN, SBP_AT_OUT, own, parts.rope);
    at->q[1] = side_of(both, instr, SBP_AT_IN, SBP_AT_OUT, turned, 0);
    at->k[0] = side_of(both, instr, SBP_AT_IN2, SBP_AT_OUT2, keys, 0);
    at->k[1] = side_of(both, instr, SBP_AT_IN3, SBP_AT_OUT3, shared, 0);
}

static void find_grouped(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                         const struct sbp_op_node *node, struct attended *at)
{
    const struct sbp_graph *graph = both->exact->program->graph;
    const int64_t kv_heads = graph->tensor[node->input[1]].shape.size[SBP_DIM_FEATURE];
    const int64_t size = at->size;
    const struct side q = {.row = at->heads * size, .head = size, .size = size};
    const struct side k = {.row = kv_heads * 2 * size, .head = 2 * size, .size = size};
    at->share = at->heads / kv_heads;
    at->window = node->attention.own_window;
    at->q[0] = side_of(both, instr, SBP_AT_IN, SBP_AT_OUT, q, 0);
    at->k[0] = side_of(both, instr, SBP_AT_IN2, SBP_AT_OUT2, k, 0);
}

static struct attended attended_of(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const struct sbp_graph *graph = both->exact->program->graph;
    const struct sbp_op_node *node = &graph->op[instr->op];
    const int64_t *q = graph->tensor[node->input[0]].shape.size;
    const int64_t size = node->attention.qk_size;
    const struct side packed = {
        .row = q[SBP_DIM_FEATURE] * 3 * size, .head = 3 * size, .size = size};
    struct attended at = {.parts = 1,
                          .dy = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_DY]),
                          .y = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_SAVED2]),
                          .sequence = q[SBP_DIM_SEQUENCE],
                          .heads = q[SBP_DIM_FEATURE],
                          .share = 1,
                          .size = size,
                          .value = size,
                          .causal = node->attention.causal};
    at.batch = sbp_rank_tokens(both->exact, instr, SBP_AT_IN) / at.sequence;
    if (node->kind == SBP_OP_LATENT_ATTENTION) {
        find_latent(both, instr, &at);
    } else if (node->kind == SBP_OP_GROUPED_ATTENTION) {
        find_grouped(both, instr, node, &at);
    } else {
        at.q[0] = side_of(both, instr, SBP_AT_IN, SBP_AT_OUT, packed, 0);
        at.k[0] = side_of(both, instr, SBP_AT_IN, SBP_AT_OUT, packed, size);
    }
    return at;
}

/* The shadow deviates by no less than `least` of each factor, which only adds to what it has. */
static void deviate(const struct side *to, int64_t at, const double *factor, double least)
{
    for (int64_t i = 0; i < to->size; i++) {
        const double exact = to->gradient[at + i], deviation = least * fabs(factor[i]);
        const double own = (double)to->shadow[at + i] - exact;
        if (fabs(own) < deviation)
            to->shadow[at + i] = (float)(exact + copysign(deviation, own));
    }
}

/* One query of one head; others_see: so may other queries see its key. A key that is alone is the
 * first of its sequence, which is turned by no angle. */
static void note_query(const struct attended *a, int64_t row, int64_t head, bool others_see)
{
    const int64_t y = (row * a->heads + head) * a->value;
    double sum = 0;
    for (int64_t i = 0; i < a->value; i++)
        sum += fabs(a->dy[y + i] * a->y[y + i]);
    const double least = 0x1p-24 * 2 * sum / sqrt((double)a->size); /* both terms, scaled */
    for (int p = 0; p < a->parts; p++) {
        const int64_t q = row * a->q[p].row + head * a->q[p].head;
        const int64_t k = row * a->k[p].row + head / a->share * a->k[p].head;
        deviate(&a->q[p], q, a->k[p].exact + k, least);
        if (!others_see)
            deviate(&a->k[p], k, a->q[p].exact + q, least);
    }
}

void sbp_lone_keys_deviate(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const struct attended a = attended_of(both, instr);
    const bool all = a.sequence == 1 || a.window == 1;
    for (int64_t row = 0; row < a.batch * a.sequence; row++)
        for (int64_t h = 0; h < a.heads && (all || (a.causal && row % a.sequence == 0)); h++)
            note_query(&a, row, h, !all);
}

/* A query that sees one key has the probability 1 whatever the score, and the score's gradient
 * p (dp - sum p dp) is exactly 0: the difference of two equal sums over the features of dy v. Both
 * are rounded, and by chance alike, so that the shadow may show nothing of what the run shows. */
#include "executor/verify/lone_keys_priv.h"

#include <math.h>

/* Queries and keys of one attention, with their gradients: elements from row to row and from head
 * to head, in the exact memory and in the shadow's. */
struct side {
    const double *exact;
    const double *gradient;
    float *shadow;
    int64_t row, head;
};

struct attended {
    struct side q, k;
    const double *dy, *y;
    int64_t batch, sequence, heads, share, size, window;
    bool causal;
};

static struct side side_of(const struct sbp_lockstep *both, const struct sbp_instr *instr, int in,
                           int out, int64_t row, int64_t head)
{
    return (struct side){sbp_rank_buffer(both->exact, instr->buffer[in]),
                         sbp_rank_buffer(both->exact, instr->buffer[out]),
                         sbp_rank_buffer(both->shadow, instr->buffer[out]), row, head};
}

static void move_on(struct side *side, int64_t elements)
{
    side->exact += elements;
    side->gradient += elements;
    side->shadow += elements;
}

static struct attended attended_of(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const struct sbp_graph *graph = both->exact->program->graph;
    const struct sbp_op_node *node = &graph->op[instr->op];
    const int64_t *q = graph->tensor[node->input[0]].shape.size;
    const bool grouped = node->kind == SBP_OP_GROUPED_ATTENTION;
    const int64_t heads = q[SBP_DIM_FEATURE], size = q[SBP_DIM_INNER] / (grouped ? 1 : 3);
    const int64_t kv_heads =
        grouped ? graph->tensor[node->input[1]].shape.size[SBP_DIM_FEATURE] : heads;
    const int64_t width = grouped ? size : 3 * size, kv_width = grouped ? 2 * size : width;
    struct attended at = {.q = side_of(both, instr, SBP_AT_IN, SBP_AT_OUT, heads * width, width),
                          .k = side_of(both, instr, grouped ? SBP_AT_IN2 : SBP_AT_IN,
                                       grouped ? SBP_AT_OUT2 : SBP_AT_OUT, kv_heads * kv_width,
                                       kv_width),
                          .dy = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_DY]),
                          .y = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_SAVED2]),
                          .sequence = q[SBP_DIM_SEQUENCE],
                          .heads = heads,
                          .share = heads / kv_heads,
                          .size = size,
                          .window = grouped ? node->attention.own_window : 0,
                          .causal = node->attention.causal};
    at.batch = sbp_rank_tokens(both->exact, instr, SBP_AT_IN) / at.sequence;
    if (!grouped)
        move_on(&at.k, size);
    return at;
}

/* The shadow deviates by no less than `least` of each factor, which only adds to what it has. */
static void deviate(const struct side *to, int64_t at, const double *factor, double least,
                    int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        const double exact = to->gradient[at + i], deviation = least * fabs(factor[i]);
        const double own = (double)to->shadow[at + i] - exact;
        if (fabs(own) < deviation)
            to->shadow[at + i] = (float)(exact + copysign(deviation, own));
    }
}

/* One query of one head; others_see: so may other queries see its key. */
static void note_query(const struct attended *a, int64_t row, int64_t head, bool others_see)
{
    const int64_t y = (row * a->heads + head) * a->size;
    const int64_t q = row * a->q.row + head * a->q.head;
    const int64_t k = row * a->k.row + head / a->share * a->k.head;
    double sum = 0;
    for (int64_t i = 0; i < a->size; i++)
        sum += fabs(a->dy[y + i] * a->y[y + i]);
    const double least = 0x1p-24 * 2 * sum / sqrt((double)a->size); /* both terms, scaled */
    deviate(&a->q, q, a->k.exact + k, least, a->size);
    if (!others_see)
        deviate(&a->k, k, a->q.exact + q, least, a->size);
}

void sbp_lone_keys_deviate(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const struct attended a = attended_of(both, instr);
    const bool all = a.sequence == 1 || a.window == 1;
    for (int64_t row = 0; row < a.batch * a.sequence; row++)
        for (int64_t h = 0; h < a.heads && (all || (a.causal && row % a.sequence == 0)); h++)
            note_query(&a, row, h, !all);
}

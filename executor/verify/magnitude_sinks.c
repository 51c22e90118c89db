#include "executor/verify/magnitude_sinks_priv.h"

#include <math.h>

#include "executor/verify/magnitude_values_priv.h"

/* Operands of all heads of a micro-batch, in either precision. */
struct exact {
    const double *sinks, *dy, *y, *log_sums;
};
struct shadow {
    const float *sinks, *dy, *y, *log_sums;
};
struct attended {
    struct exact exact;
    struct shadow shadow;
    int64_t batch, sequence, heads, size;
};

static struct attended attended_of(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    static const int places[] = {SBP_AT_W, SBP_AT_DY, SBP_AT_SAVED2, SBP_AT_SAVED};
    const struct sbp_graph *graph = both->exact->program->graph;
    const int64_t *size = graph->tensor[graph->op[instr->op].output].shape.size;
    const void *exact[4], *shadow[4];
    for (int i = 0; i < 4; i++) {
        exact[i] = sbp_rank_buffer(both->exact, instr->buffer[places[i]]);
        shadow[i] = sbp_rank_buffer(both->shadow, instr->buffer[places[i]]);
    }
    return (struct attended){.exact = {exact[0], exact[1], exact[2], exact[3]},
                             .shadow = {shadow[0], shadow[1], shadow[2], shadow[3]},
                             .batch = sbp_rank_tokens(both->exact, instr, SBP_AT_IN) /
                                      size[SBP_DIM_SEQUENCE],
                             .sequence = size[SBP_DIM_SEQUENCE],
                             .heads = size[SBP_DIM_FEATURE],
                             .size = size[SBP_DIM_INNER]};
}

/* A query's terms: their sum, that of their absolute values, and what the shadow's sum is. */
struct terms {
    double sum, absolute, shadow;
};

/* Row `row` (batch and sequence) of a head. */
static struct terms terms_of(const struct attended *a, int64_t row, int64_t head)
{
    const int64_t first = (row * a->heads + head) * a->size;
    const int64_t saved = (row / a->sequence * a->heads + head) * a->sequence + row % a->sequence;
    const double share = exp(a->exact.sinks[head] - a->exact.log_sums[saved]);
    const double other = exp((double)a->shadow.sinks[head] - (double)a->shadow.log_sums[saved]);
    struct terms terms = {0};
    for (int64_t i = first; i < first + a->size; i++) {
        const double term = share * a->exact.dy[i] * a->exact.y[i];
        terms.sum += term;
        terms.absolute += fabs(term);
        terms.shadow += other * (double)a->shadow.dy[i] * (double)a->shadow.y[i];
    }
    return terms;
}

/* Queries whose errors are alike do not cancel: the larger of their sum and of what is apart. One
 * sample of a query says little: none is off by less than the unit roundoff of its terms. */
static void note_head(const struct sbp_lockstep *both, const struct attended *a, int64_t head,
                      struct sbp_magnitude *sinks)
{
    double apart = 0, together = 0;
    for (int64_t row = 0; row < a->batch * a->sequence; row++) {
        const struct terms terms = terms_of(a, row, head);
        const double own = (terms.shadow - terms.sum) * both->scale;
        const double deviation =
            fmax(isfinite(own) ? fabs(own) : 0, 0x1p-24 * terms.absolute * both->scale);
        apart += deviation * deviation;
        together += isfinite(own) ? own : 0;
        sinks->sum[head] += terms.absolute;
        sinks->live[head] = sinks->live[head] || terms.absolute > 0 || terms.shadow != 0;
        if (sinks->gradient != NULL)
            sinks->gradient[head] -= terms.sum;
    }
    sinks->column[head] += fmax(apart, together * together);
}

void sbp_magnitude_note_sinks(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const int tensor = both->exact->program->graph->op[instr->op].weight[0];
    const struct attended a = attended_of(both, instr);
    sbp_magnitude_begin(both, tensor);
    for (int64_t head = 0; head < a.heads; head++)
        note_head(both, &a, head, both->magnitude[tensor]);
}

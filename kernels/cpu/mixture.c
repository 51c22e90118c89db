/* Mixtures of experts: the choice of experts, and copies of tokens on their way there and back.
 *
 * A token's copies weigh what a softmax over the scores of its experts says, and with one expert
 * what a softmax over all of them does (Fedus et al., Switch Transformers, 2021, equation 2): a
 * weight of 1 would not train the router.
 */
#include "kernels/cpu/rows_priv.h"

/* A copy's entry in the table: its expert and its slot. */
static int32_t expert_of(const int32_t *copy)
{
    return copy[0];
}

static int32_t slot_of(const int32_t *copy)
{
    return copy[1];
}

/* What is no number is chosen last. */
static real score_of(stored score)
{
    const real value = load(score);
    return value == value ? value : -(real)INFINITY;
}

/* The best expert behind the one that was chosen last, of equal ones the first; `last` < 0: there
 * is none yet. */
static int64_t next_best(const stored *scores, int64_t experts, int64_t last)
{
    int64_t best = -1;
    for (int64_t e = 0; e < experts; e++) {
        const real score = score_of(scores[e]);
        const bool is_left = last < 0 || score < score_of(scores[last]) ||
                             (score == score_of(scores[last]) && e > last);
        if (is_left && (best < 0 || score > score_of(scores[best])))
            best = e;
    }
    return best;
}

void CPU(moe_route)(int32_t *table, int32_t *taken, const void *scores,
                    const struct sbp_routing *mixture)
{
    const int64_t experts = mixture->experts, top_k = mixture->top_k;
    for (int64_t t = 0; t < mixture->tokens; t++)
        for (int64_t k = 0, last = -1; k < top_k; k++) {
            last = next_best((const stored *)scores + t * experts, experts, last);
            table[2 * (t * top_k + k)] = (int32_t)last;
        }
    for (int64_t e = 0; e < experts; e++)
        taken[e] = 0;
    for (int64_t k = 0; k < top_k; k++)
        for (int64_t t = 0; t < mixture->tokens; t++) {
            int32_t *const copy = table + 2 * (t * top_k + k);
            int32_t *const count = &taken[expert_of(copy)];
            copy[1] = *count < mixture->capacity ? (*count)++ : -1;
        }
}

void CPU(moe_dispatch)(void *slots, const void *x, const int32_t *table,
                       const struct sbp_routing *mixture)
{
    const int64_t in = mixture->in;
    CPU(zero)(slots, mixture->experts * mixture->capacity * in);
    for (int64_t copy = 0; copy < mixture->tokens * mixture->top_k; copy++) {
        const int64_t slot = slot_of(table + 2 * copy);
        const stored *const from = (const stored *)x + copy / mixture->top_k * in;
        stored *const to = (stored *)slots + slot * in;
        for (int64_t i = 0; slot >= 0 && i < in; i++)
            to[i] = from[i];
    }
}

SBP_SIMD_WIDE
static void add_row(stored *to, const stored *from, real factor, int64_t n)
{
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = store(load(to[i]) + factor * load(from[i]));
}

void CPU(moe_dispatch_backward)(void *dx, const void *dslots, const int32_t *table,
                                const struct sbp_routing *mixture)
{
    for (int64_t copy = 0; copy < mixture->tokens * mixture->top_k; copy++) {
        const int64_t slot = slot_of(table + 2 * copy);
        if (slot >= 0)
            add_row((stored *)dx + copy / mixture->top_k * mixture->in,
                    (const stored *)dslots + slot * mixture->in, 1, mixture->in);
    }
}

/* Of a token: the softmax that its copies' weights are of. */
struct weights {
    const stored *scores;
    const int32_t *copies;
    double largest, sum;
};

static double exponential(const struct weights *w, int64_t expert)
{
    return exp((double)score_of(w->scores[expert]) - w->largest);
}

static int64_t members(const struct sbp_routing *mixture)
{
    return mixture->top_k > 1 ? mixture->top_k : mixture->experts;
}

static int64_t member(const struct weights *w, const struct sbp_routing *mixture, int64_t i)
{
    return mixture->top_k > 1 ? expert_of(w->copies + 2 * i) : i;
}

static struct weights weights_of(const struct sbp_routing *mixture, const void *scores,
                                 const int32_t *table, int64_t token)
{
    struct weights w = {.scores = (const stored *)scores + token * mixture->experts,
                        .copies = table + 2 * token * mixture->top_k,
                        .largest = -INFINITY};
    for (int64_t i = 0; i < members(mixture); i++)
        w.largest = fmax(w.largest, (double)score_of(w.scores[member(&w, mixture, i)]));
    for (int64_t i = 0; i < members(mixture); i++)
        w.sum += exponential(&w, member(&w, mixture, i));
    return w;
}

void CPU(moe_combine)(void *y, const void *slots, const void *scores, const int32_t *table,
                      const struct sbp_routing *mixture)
{
    CPU(zero)(y, mixture->tokens * mixture->in);
    for (int64_t t = 0; t < mixture->tokens; t++) {
        const struct weights w = weights_of(mixture, scores, table, t);
        for (int64_t k = 0; k < mixture->top_k; k++) {
            const int64_t slot = slot_of(w.copies + 2 * k);
            const double weight = exponential(&w, expert_of(w.copies + 2 * k)) / w.sum;
            if (slot >= 0)
                add_row((stored *)y + t * mixture->in, (const stored *)slots + slot * mixture->in,
                        (real)weight, mixture->in);
        }
    }
}

/* The gradient of a copy's weight; a copy that was dropped has none. */
static double weight_gradient(const struct sbp_routing *mixture, const stored *dy,
                              const stored *slots, int64_t slot)
{
    return slot < 0 ? 0 : CPU(row_dot)(dy, slots + slot * mixture->in, mixture->in);
}

/* Gradients of a softmax's scores s from those of its weights w: w (dw - sum w dw). They take the
 * scores' place; `mean` is the sum. */
static void score_gradients(stored *row, const struct sbp_routing *mixture, const struct weights *w,
                            const stored *dy, const stored *slots, double mean)
{
    for (int64_t e = 0; e < mixture->experts; e++) {
        const double share = exponential(w, e) / w->sum;
        double gradient = mixture->top_k > 1 ? 0 : -share * mean;
        for (int64_t k = 0; k < mixture->top_k; k++) {
            const int32_t *const copy = w->copies + 2 * k;
            const double own = mixture->top_k > 1 ? mean : 0;
            if (expert_of(copy) == e)
                gradient += share * (weight_gradient(mixture, dy, slots, slot_of(copy)) - own);
        }
        row[e] = store((real)gradient);
    }
}

void CPU(moe_combine_backward)(void *dslots, void *scores, const void *dy, const void *slots,
                               const int32_t *table, const struct sbp_routing *mixture)
{
    const int64_t in = mixture->in;
    CPU(zero)(dslots, mixture->experts * mixture->capacity * in);
    for (int64_t t = 0; t < mixture->tokens; t++) {
        const struct weights w = weights_of(mixture, scores, table, t);
        const stored *const row = (const stored *)dy + t * in;
        double mean = 0;
        for (int64_t k = 0; k < mixture->top_k; k++) {
            const int64_t slot = slot_of(w.copies + 2 * k);
            const double weight = exponential(&w, expert_of(w.copies + 2 * k)) / w.sum;
            mean += weight * weight_gradient(mixture, row, slots, slot);
            if (slot >= 0)
                add_row((stored *)dslots + slot * in, row, (real)weight, in);
        }
        score_gradients((stored *)scores + t * mixture->experts, mixture, &w, row, slots, mean);
    }
}

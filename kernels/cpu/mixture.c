/* Mixtures of experts: the choice of experts, and copies of tokens on their way there and back.
 *
 * A token's copies weigh what a softmax over the scores of its experts says, and with one expert
 * what a softmax over all of them does (Fedus et al., Switch Transformers, 2021, equation 2): a
 * weight of 1 would not train the router. Sigmoids are divided by their sum over the token's
 * experts, and one alone is taken as it is (DeepSeek-V3, 2024, equations 13 to 16); a bias takes
 * part in the choice alone.
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

/* What is no number weighs nothing. */
static real score_of(stored score)
{
    const real value = load(score);
    return value == value ? value : -(real)INFINITY;
}

/* A token's choice: its scores, and which groups are open. */
struct choice {
    const stored *scores, *bias; /* bias NULL: none */
    const int32_t *open;         /* (groups), or NULL: all are */
    int64_t in_group;            /* experts */
    bool sigmoid;
};

static double sigmoid(double score)
{
    return 1 / (1 + exp(-score));
}

/* What experts are ranked by; what is no number comes last. */
static double rank_of(const struct choice *choice, int64_t expert)
{
    const double score = (double)load(choice->scores[expert]);
    const double bias = choice->bias == NULL ? 0 : (double)load(choice->bias[expert]);
    const double rank = choice->sigmoid ? sigmoid(score) + bias : score;
    return rank == rank ? rank : -INFINITY;
}

/* The best expert of `first` to `end` behind the one that was chosen last, of equal ones the first;
 * `last` < 0: there is none yet. */
static int64_t next_best(const struct choice *choice, int64_t first, int64_t end, int64_t last)
{
    const double before = last < 0 ? 0 : rank_of(choice, last);
    double most = 0;
    int64_t best = -1;
    for (int64_t e = first; e < end; e++) {
        if (choice->open != NULL && choice->open[e / choice->in_group] == 0)
            continue;
        const double rank = rank_of(choice, e);
        const bool is_left = last < 0 || rank < before || (rank == before && e > last);
        if (is_left && (best < 0 || rank > most)) {
            best = e;
            most = rank;
        }
    }
    return best;
}

/* The sum of a group's best experts. */
static double group_rank(const struct choice *choice, const struct sbp_routing *mixture,
                         int64_t group)
{
    const int64_t first = group * choice->in_group;
    const int64_t share = (mixture->top_k + mixture->most_groups - 1) / mixture->most_groups;
    double sum = 0;
    for (int64_t k = 0, last = -1; k < share && k < choice->in_group; k++) {
        last = next_best(choice, first, first + choice->in_group, last);
        sum += rank_of(choice, last);
    }
    return sum;
}

/* Opens the best groups, of equal ones the first. */
static void open_groups(const struct choice *choice, const struct sbp_routing *mixture,
                        int32_t *open)
{
    for (int64_t g = 0; g < mixture->groups; g++)
        open[g] = 0;
    for (int64_t k = 0; k < mixture->most_groups; k++) {
        int64_t best = -1;
        double most = 0;
        for (int64_t g = 0; g < mixture->groups; g++) {
            const double rank = open[g] != 0 ? 0 : group_rank(choice, mixture, g);
            if (open[g] == 0 && (best < 0 || rank > most)) {
                best = g;
                most = rank;
            }
        }
        open[best] = 1;
    }
}

static void choose(int32_t *copies, int32_t *open, const struct choice *of,
                   const struct sbp_routing *mixture)
{
    struct choice choice = *of;
    if (mixture->groups > 0) {
        choice.in_group = mixture->experts / mixture->groups;
        open_groups(&choice, mixture, open);
        choice.open = open;
    }
    for (int64_t k = 0, last = -1; k < mixture->top_k; k++) {
        last = next_best(&choice, 0, mixture->experts, last);
        copies[2 * k] = (int32_t)last;
    }
}

/* The number of an expert's first slot: slots of the first member's experts come first. */
static int32_t first_slot(const struct sbp_digits *held, int64_t expert,
                          const struct sbp_routing *mixture)
{
    int64_t local = 0;
    const int64_t member = held == NULL ? 0 : sbp_digits_owner(held, expert, &local);
    const int64_t before = held == NULL ? 0 : member * sbp_digits_local_size(held);
    return (int32_t)((before + local) * mixture->capacity);
}

void CPU(moe_route)(int32_t *table, int32_t *taken, const void *scores, const void *bias,
                    const struct sbp_digits *held, const struct sbp_routing *mixture)
{
    const int64_t experts = mixture->experts, top_k = mixture->top_k;
    for (int64_t t = 0; t < mixture->tokens; t++) {
        const struct choice choice = {.scores = (const stored *)scores + t * experts,
                                      .bias = bias,
                                      .sigmoid = mixture->sigmoid};
        choose(table + 2 * t * top_k, taken, &choice, mixture);
    }
    for (int64_t e = 0; e < experts; e++)
        taken[e] = 0;
    for (int64_t k = 0; k < top_k; k++)
        for (int64_t t = 0; t < mixture->tokens; t++) {
            int32_t *const copy = table + 2 * (t * top_k + k);
            int32_t *const count = &taken[expert_of(copy)];
            copy[1] = *count < mixture->capacity
                          ? first_slot(held, expert_of(copy), mixture) + (*count)++
                          : -1;
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

/* Of a token: what its copies' weights are shares of. */
struct weights {
    const struct sbp_routing *mixture;
    const stored *scores;
    const int32_t *copies;
    double largest, sum;
};

/* An expert's part of the sum. */
static double part_of(const struct weights *w, int64_t expert)
{
    const double score = (double)score_of(w->scores[expert]);
    return w->mixture->sigmoid ? sigmoid(score) : exp(score - w->largest);
}

/* Experts whose parts are summed. */
static int64_t members(const struct sbp_routing *mixture)
{
    return mixture->top_k > 1 ? mixture->top_k : mixture->sigmoid ? 0 : mixture->experts;
}

static int64_t member(const struct weights *w, int64_t i)
{
    return w->mixture->top_k > 1 ? expert_of(w->copies + 2 * i) : i;
}

static struct weights weights_of(const struct sbp_routing *mixture, const void *scores,
                                 const int32_t *table, int64_t token)
{
    struct weights w = {.mixture = mixture,
                        .scores = (const stored *)scores + token * mixture->experts,
                        .copies = table + 2 * token * mixture->top_k,
                        .largest = -INFINITY,
                        .sum = members(mixture) > 0 ? 0 : 1};
    for (int64_t i = 0; i < members(mixture); i++)
        w.largest = fmax(w.largest, (double)score_of(w.scores[member(&w, i)]));
    for (int64_t i = 0; i < members(mixture); i++)
        w.sum += part_of(&w, member(&w, i));
    return w;
}

static double weight_of(const struct weights *w, int64_t k)
{
    return part_of(w, expert_of(w->copies + 2 * k)) / w->sum;
}

void CPU(moe_combine)(void *y, const void *slots, const void *scores, const int32_t *table,
                      const struct sbp_routing *mixture)
{
    CPU(zero)(y, mixture->tokens * mixture->in);
    for (int64_t t = 0; t < mixture->tokens; t++) {
        const struct weights w = weights_of(mixture, scores, table, t);
        for (int64_t k = 0; k < mixture->top_k; k++) {
            const int64_t slot = slot_of(w.copies + 2 * k);
            const double weight = weight_of(&w, k);
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

/* Gradients of scores s from those of weights w, which take the scores' place; `mean` is sum w dw.
 * A softmax has w (dw - mean), a sigmoid that times 1 minus itself, and without the mean where it
 * is no share of a sum. */
static void score_gradients(stored *row, const struct weights *w, const stored *dy,
                            const stored *slots, double mean)
{
    const struct sbp_routing *mixture = w->mixture;
    const bool shares = mixture->top_k > 1, softmax = !mixture->sigmoid;
    for (int64_t e = 0; e < mixture->experts; e++) {
        const double part = part_of(w, e), share = part / w->sum;
        double gradient = shares || !softmax ? 0 : -share * mean;
        for (int64_t k = 0; k < mixture->top_k; k++) {
            const int32_t *const copy = w->copies + 2 * k;
            const double own = shares ? mean : 0;
            if (expert_of(copy) == e)
                gradient += share * (softmax ? 1 : 1 - part) *
                            (weight_gradient(mixture, dy, slots, slot_of(copy)) - own);
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
            const double weight = weight_of(&w, k);
            mean += weight * weight_gradient(mixture, row, slots, slot);
            if (slot >= 0)
                add_row((stored *)dslots + slot * in, row, (real)weight, in);
        }
        score_gradients((stored *)scores + t * mixture->experts, &w, row, slots, mean);
    }
}

/* Kernels of mixtures of experts against their definition, and by central differences. */
#include <math.h>
#include <string.h>

#include "tests/kernels/check.h"

struct problem {
    struct check *check;
    struct sbp_routing m;
    int64_t copies, slots;                        /* elements of a table are twice the copies */
    double *x, *scores, *bias, *slot_values, *dy; /* bias: NULL for none */
    int32_t *table;
    struct check_split split; /* of the experts over members, where slots are those of all */
    bool is_split;
};

static int32_t *make_table(const struct problem *p)
{
    int32_t *table = check_ids(p->check, 2 * p->copies, 1);
    memset(table, 0, (size_t)p->copies * 2 * sizeof *table);
    return table;
}

/* How many of `n` are better, of equal ones those before it. */
static int64_t better(const double *values, int64_t n, int64_t at)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += values[i] > values[at] || (values[i] == values[at] && i < at);
    return count;
}

/* Takes experts out of groups that are not among the best. */
static void close_groups(const struct sbp_routing *m, double *ranks)
{
    const int64_t size = m->experts / m->groups;
    const int64_t share = (m->top_k + m->most_groups - 1) / m->most_groups;
    double sum[16] = {0};
    for (int64_t e = 0; e < m->experts; e++)
        if (better(ranks + e / size * size, size, e % size) < share)
            sum[e / size] += ranks[e];
    for (int64_t e = 0; e < m->experts; e++)
        if (better(sum, m->groups, e / size) >= m->most_groups)
            ranks[e] = -INFINITY;
}

/* What a token ranks experts by. */
static void find_ranks(const struct problem *p, int64_t token, double *ranks)
{
    for (int64_t e = 0; e < p->m.experts; e++) {
        const double score = p->scores[token * p->m.experts + e];
        ranks[e] = !p->m.sigmoid ? score : 1 / (1 + exp(-score));
        ranks[e] += p->bias == NULL ? 0 : p->bias[e];
        if (isnan(ranks[e])) /* before what no group has */
            ranks[e] = -1e300;
    }
    if (p->m.groups > 0)
        close_groups(&p->m, ranks);
}

static void naive_route(const struct problem *p)
{
    const struct sbp_routing *m = &p->m;
    double ranks[16];
    for (int64_t t = 0; t < m->tokens; t++)
        for (int64_t e = 0; e < m->experts; e++) {
            find_ranks(p, t, ranks);
            const int64_t place = better(ranks, m->experts, e);
            if (place < m->top_k)
                p->table[2 * (t * m->top_k + place)] = (int32_t)e;
        }
    for (int64_t k = 0; k < m->top_k; k++)
        for (int64_t t = 0; t < m->tokens; t++) {
            int32_t *copy = p->table + 2 * (t * m->top_k + k), before = 0;
            for (int64_t i = 0; i < m->tokens * m->top_k; i++) { /* in the order of slots */
                const int64_t other_k = i / m->tokens, other_t = i % m->tokens;
                const bool comes_first = other_k < k || (other_k == k && other_t < t);
                before += comes_first && p->table[2 * (other_t * m->top_k + other_k)] == copy[0];
            }
            copy[1] = before < m->capacity ? before : -1;
        }
}

/* From slots of an expert to slots of all. */
static void number_slots(int32_t *table, const struct problem *p)
{
    for (int64_t i = 0; i < p->copies; i++)
        if (table[2 * i + 1] >= 0)
            table[2 * i + 1] += table[2 * i] * (int32_t)p->m.capacity;
}

/* Sigmoids in half of the problems, groups in a third; one bias may be no number. */
static void draw_router(struct check *check, struct problem *p)
{
    const bool groups = check_integer(check, 0, 2) == 0;
    p->m.sigmoid = check_integer(check, 0, 1) == 0;
    p->m.experts = check_integer(check, 1, 6);
    p->m.top_k = check_integer(check, 1, p->m.experts);
    p->split = check_split(check, 2);
    p->is_split = !groups && p->split.global <= 12 && check_integer(check, 0, 1) == 1;
    if (p->is_split) {
        p->m.experts = p->split.global;
        p->m.top_k = check_integer(check, 1, p->m.experts);
    }
    if (groups) {
        const int64_t size = check_integer(check, 1, 3);
        p->m.groups = check_integer(check, 1, 5);
        p->m.most_groups = check_integer(check, 1, p->m.groups);
        p->m.experts = p->m.groups * size;
        p->m.top_k = check_integer(check, p->m.most_groups, p->m.most_groups * size);
    }
    if (p->m.sigmoid && check_integer(check, 0, 1))
        p->bias = check_uniform(check, p->m.experts);
    if (p->bias != NULL && check_integer(check, 0, 2) == 0)
        p->bias[check_integer(check, 0, p->m.experts - 1)] = NAN;
}

static struct problem draw(struct check *check)
{
    struct problem p = {.check = check};
    p.m.tokens = check_size(check, 9);
    draw_router(check, &p);
    p.m.in = check_size(check, 9);
    p.m.capacity = check_integer(check, 1, p.m.tokens);
    p.copies = p.m.tokens * p.m.top_k;
    p.slots = p.m.experts * p.m.capacity;
    p.x = check_uniform(check, p.m.tokens * p.m.in);
    p.dy = check_uniform(check, p.m.tokens * p.m.in);
    p.scores = check_uniform(check, p.m.tokens * p.m.experts);
    p.slot_values = check_uniform(check, p.slots * p.m.in);
    p.table = make_table(&p);
    return p;
}

/* The first slot of an expert: members count in mesh order, each one's experts in theirs. */
static int32_t first_slot(const struct problem *p, int64_t expert)
{
    for (int64_t rank = 0; p->is_split && rank < p->split.ranks; rank++) {
        const struct sbp_digits digits = check_rank_digits(&p->split, rank);
        const int64_t local = sbp_digits_local(&digits, expert);
        int64_t member = 0;
        for (int i = 0; i < digits.count; i++)
            member = digits.fixed[i] < 0 ? member : member * digits.size[i] + digits.fixed[i];
        if (local >= 0)
            return (int32_t)((member * p->split.local + local) * p->m.capacity);
    }
    return 0;
}

static double weight_of(const struct problem *p, int64_t token, int64_t k)
{
    const double *scores = p->scores + token * p->m.experts;
    const int32_t *copies = p->table + 2 * token * p->m.top_k;
    double sum = 0;
    for (int64_t e = 0; e < p->m.experts; e++) {
        bool counts = p->m.top_k == 1;
        for (int64_t i = 0; i < p->m.top_k; i++)
            counts = counts || copies[2 * i] == e;
        const double part = p->m.sigmoid ? 1 / (1 + exp(-scores[e])) : exp(scores[e]);
        sum += counts ? part : 0;
    }
    if (p->m.sigmoid)
        return 1 / (1 + exp(-scores[copies[2 * k]])) / (p->m.top_k == 1 ? 1 : sum);
    return exp(scores[copies[2 * k]]) / sum;
}

static double *naive_combine(const struct problem *p)
{
    double *y = check_zeros(p->check, p->m.tokens * p->m.in);
    for (int64_t copy = 0; copy < p->copies; copy++) {
        const int64_t t = copy / p->m.top_k, slot = p->table[2 * copy + 1];
        for (int64_t i = 0; slot >= 0 && i < p->m.in; i++)
            y[t * p->m.in + i] +=
                weight_of(p, t, copy % p->m.top_k) * p->slot_values[slot * p->m.in + i];
    }
    return y;
}

/* The loss sum y dy, without an array for y. */
static double evaluate(void *context)
{
    const struct problem *p = context;
    double loss = 0;
    for (int64_t copy = 0; copy < p->copies; copy++) {
        const int64_t t = copy / p->m.top_k, slot = p->table[2 * copy + 1];
        if (slot >= 0)
            loss += weight_of(p, t, copy % p->m.top_k) *
                    check_dot(p->slot_values + slot * p->m.in, p->dy + t * p->m.in, p->m.in);
    }
    return loss;
}

static void check_route(const struct problem *p)
{
    const struct sbp_kernels *k = p->check->kernels;
    int32_t *table = make_table(p), *taken = check_ids(p->check, p->m.experts, 1);
    const struct sbp_digits held =
        check_rank_digits(&p->split, check_integer(p->check, 0, p->split.ranks - 1));
    k->moe_route(table, taken, check_reals(p->check, p->scores, p->m.tokens * p->m.experts),
                 p->bias == NULL ? NULL : check_reals(p->check, p->bias, p->m.experts),
                 p->is_split ? &held : NULL, &p->m);
    for (int64_t i = 0; i < 2 * p->copies; i++) {
        const bool has_slot = i % 2 == 1 && p->table[i] >= 0;
        const int32_t want = p->table[i] + (has_slot ? first_slot(p, p->table[i - 1]) : 0);
        if (table[i] != want)
            fail_msg("seed %llu: entry %lld of the table is %d, expected %d",
                     (unsigned long long)p->check->seed, (long long)i, table[i], want);
    }
}

static void check_dispatch(const struct problem *p)
{
    struct check *check = p->check;
    const struct sbp_kernels *k = check->kernels;
    const int64_t in = p->m.in;
    double *slots = check_zeros(check, p->slots * in);
    double *dx = check_zeros(check, p->m.tokens * in);
    for (int64_t i = 0; i < p->m.tokens * in; i++)
        dx[i] = p->dy[i];
    for (int64_t copy = 0; copy < p->copies; copy++)
        for (int64_t i = 0, slot = p->table[2 * copy + 1]; slot >= 0 && i < in; i++) {
            slots[slot * in + i] = p->x[copy / p->m.top_k * in + i];
            dx[copy / p->m.top_k * in + i] += p->slot_values[slot * in + i];
        }
    void *got = check_blank(check, p->slots * in);
    void *sum = check_reals(check, p->dy, p->m.tokens * in);
    k->moe_dispatch(got, check_reals(check, p->x, p->m.tokens * in), p->table, &p->m);
    check_equal(check, "slots", got, slots, p->slots * in);
    k->moe_dispatch_backward(sum, check_reals(check, p->slot_values, p->slots * in), p->table,
                             &p->m);
    check_near(check, "dx", sum, dx, p->m.tokens * in, check_roundings(check, 1e-6, 1e-15, 8));
}

static void check_combine(const struct problem *p)
{
    struct check *check = p->check;
    const struct sbp_kernels *k = check->kernels;
    const int64_t in = p->m.in, scores = p->m.tokens * p->m.experts;
    const void *slots = check_reals(check, p->slot_values, p->slots * in);
    void *y = check_blank(check, p->m.tokens * in), *dslots = check_blank(check, p->slots * in);
    void *dscores = check_reals(check, p->scores, scores);
    double *by_slot = check_zeros(check, p->slots * in);
    for (int64_t copy = 0; copy < p->copies; copy++)
        for (int64_t i = 0, slot = p->table[2 * copy + 1]; slot >= 0 && i < in; i++)
            by_slot[slot * in + i] = weight_of(p, copy / p->m.top_k, copy % p->m.top_k) *
                                     p->dy[copy / p->m.top_k * in + i];
    k->moe_combine(y, slots, dscores, p->table, &p->m);
    check_near(check, "y", y, naive_combine(p), p->m.tokens * in,
               check_roundings(check, 1e-6, 1e-14, 8));
    k->moe_combine_backward(dslots, dscores, check_reals(check, p->dy, p->m.tokens * in), slots,
                            p->table, &p->m);
    check_near(check, "dslots", dslots, by_slot, p->slots * in,
               check_roundings(check, 1e-6, 1e-14, 2));
    const double *gradient =
        check_gradient(check, evaluate, (void *)(uintptr_t)p, p->scores, scores);
    check_near(check, "dscores", dscores, gradient, scores, check_roundings(check, 1e-5, 1e-8, 2));
}

static void a_mixture(struct check *check)
{
    const struct problem p = draw(check);
    naive_route(&p);
    check_route(&p);
    number_slots(p.table, &p);
    check_dispatch(&p);
    check_combine(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECK_TABLES(a_mixture, 120)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

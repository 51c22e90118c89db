/* Softmax cross-entropy against its definition and by central differences, with the vocabulary
 * split over simulated ranks and padded. */
#include <math.h>

#include "tests/kernels/check.h"

struct problem {
    struct check_split split;
    int64_t tokens, valid;
    int32_t *labels;
    double *logits;
};

/* A quarter of the tokens, more or less, is ignored. */
static int32_t *draw_labels(struct check *check, int64_t tokens, int64_t valid)
{
    int32_t *labels = check_ids(check, tokens, valid);
    for (int64_t t = 0; t < tokens; t++)
        if (check_integer(check, 0, 3) == 0)
            labels[t] = -(int32_t)check_integer(check, 1, 100);
    return labels;
}

static struct problem draw(struct check *check)
{
    struct problem p = {.split = check_split(check, 12)};
    p.tokens = check_size(check, 6);
    p.valid = check_integer(check, 1, p.split.global);
    p.labels = draw_labels(check, p.tokens, p.valid);
    p.logits = check_uniform(check, p.tokens * p.split.global);
    for (int64_t i = 0; i < p.tokens * p.split.global; i++)
        p.logits[i] *= 8;
    return p;
}

/* The definition, without the shift by the maximum: logits are small enough for that. */
static double naive_loss(void *context)
{
    const struct problem *p = context;
    long double loss = 0;
    for (int64_t t = 0; t < p->tokens; t++) {
        const double *row = p->logits + t * p->split.global;
        long double sum = 0;
        if (p->labels[t] < 0)
            continue;
        for (int64_t i = 0; i < p->valid; i++)
            sum += expl((long double)row[i]);
        loss += logl(sum) - (long double)row[p->labels[t]];
    }
    return (double)loss;
}

struct ranks {
    int64_t count;
    struct sbp_digits digits[27];
    void *logits[27], *sums[27];
    void *maxima, *total; /* reduced */
};

/* The greatest of every rank's maxima, so -infinity where a rank holds padding alone. */
static void reduce_maxima(struct check *check, const struct problem *p, struct ranks *ranks)
{
    double *largest = check_zeros(check, p->tokens);
    for (int64_t t = 0; t < p->tokens; t++)
        largest[t] = -(double)INFINITY;
    for (int64_t r = 0; r < ranks->count; r++) {
        void *maxima = check_wide_blank(check, p->tokens);
        check->kernels->cross_entropy_maxima(maxima, ranks->logits[r], p->tokens, p->split.local,
                                             &ranks->digits[r], p->valid);
        for (int64_t t = 0; t < p->tokens; t++)
            largest[t] = fmax(largest[t], check_wide_at(check, maxima, t));
    }
    ranks->maxima = check_wide_reals(check, largest, p->tokens);
}

static void forward(struct check *check, const struct problem *p, struct ranks *ranks)
{
    ranks->count = p->split.ranks;
    for (int64_t r = 0; r < ranks->count; r++) {
        ranks->digits[r] = check_rank_digits(&p->split, r);
        ranks->logits[r] =
            check_reals(check, check_columns(check, p->logits, p->tokens, &ranks->digits[r]),
                        p->tokens * p->split.local);
    }
    reduce_maxima(check, p, ranks);
    ranks->total = check_wide_reals(check, check_zeros(check, 2 * p->tokens), 2 * p->tokens);
    for (int64_t r = 0; r < ranks->count; r++) {
        void *sums = check_wide_blank(check, 2 * p->tokens);
        check->kernels->cross_entropy_sums(sums, ranks->logits[r], p->labels, ranks->maxima,
                                           p->tokens, p->split.local, &ranks->digits[r], p->valid);
        sbp_kernels_cpu(sbp_real_wide(check->kernels->real))
            ->add(ranks->total, ranks->total, sums, 2 * p->tokens);
    }
}

static void split_vocabulary(struct check *check)
{
    struct problem p = draw(check);
    struct ranks ranks;
    const int64_t n = p.tokens * p.split.local;
    forward(check, &p, &ranks);
    void *loss = check_wide_blank(check, 1);
    check->kernels->cross_entropy_loss(loss, ranks.total, p.tokens);
    const double want = naive_loss(&p);
    check_wide_near(check, "loss", loss, &want, 1, check_wide_tolerance(check, 2e-6, 1e-14));
    double *gradient = check_gradient(check, naive_loss, &p, p.logits, p.tokens * p.split.global);
    for (int64_t i = 0; i < p.tokens * p.split.global; i++)
        gradient[i] *= 0.125;
    for (int64_t r = 0; r < ranks.count; r++) {
        void *dlogits = check_blank(check, n);
        check->kernels->cross_entropy_backward(dlogits, ranks.logits[r], p.labels, ranks.maxima,
                                               ranks.total, p.tokens, p.split.local,
                                               &ranks.digits[r], p.valid, 0.125, NULL);
        check_near(check, "dlogits", dlogits,
                   check_columns(check, gradient, p.tokens, &ranks.digits[r]), n,
                   check_tolerance(check, 1e-6, 1e-9));
    }
}

/* A vocabulary of some thousands on one rank, by the definition. */
static void long_row(struct check *check)
{
    const int64_t n = check_integer(check, 1000, 5000);
    struct problem p = {.split = {.whole = {.rest = n}, .ranks = 1, .global = n, .local = n}};
    struct ranks ranks;
    p.tokens = 2;
    p.valid = n - check_integer(check, 0, 50);
    p.labels = draw_labels(check, p.tokens, p.valid);
    p.logits = check_uniform(check, p.tokens * n);
    forward(check, &p, &ranks);
    void *loss = check_wide_blank(check, 1), *dlogits = check_blank(check, p.tokens * n);
    check->kernels->cross_entropy_loss(loss, ranks.total, p.tokens);
    const double want = naive_loss(&p);
    check_wide_near(check, "loss", loss, &want, 1, check_wide_tolerance(check, 2e-6, 1e-14));
    double *gradient = check_zeros(check, p.tokens * n);
    for (int64_t t = 0; t < p.tokens; t++) {
        long double sum = 0;
        if (p.labels[t] < 0)
            continue;
        for (int64_t i = 0; i < p.valid; i++)
            sum += expl((long double)p.logits[t * n + i]);
        for (int64_t i = 0; i < p.valid; i++)
            gradient[t * n + i] = (double)(expl((long double)p.logits[t * n + i]) / sum);
        gradient[t * n + p.labels[t]] -= 1;
    }
    check->kernels->cross_entropy_backward(dlogits, ranks.logits[0], p.labels, ranks.maxima,
                                           ranks.total, p.tokens, n, &ranks.digits[0], p.valid, 1,
                                           NULL);
    check_near(check, "dlogits", dlogits, gradient, p.tokens * n,
               check_tolerance(check, 1e-7, 1e-15));
}

/* Logits far beyond exp's range: the shift by the maximum keeps everything finite. */
static void large_logits(struct check *check)
{
    const double logits[] = {5000, 5000, -5000, 9000};
    const double gradient[] = {-0.5, 0.5, 0, 0}, want = log(2);
    const int32_t label = 0;
    const struct sbp_digits digits = {.rest = 4};
    const void *z = check_reals(check, logits, 4);
    void *maxima = check_wide_blank(check, 1), *sums = check_wide_blank(check, 2);
    void *loss = check_wide_blank(check, 1), *dlogits = check_blank(check, 4);
    check->kernels->cross_entropy_maxima(maxima, z, 1, 4, &digits, 3);
    check->kernels->cross_entropy_sums(sums, z, &label, maxima, 1, 4, &digits, 3);
    check->kernels->cross_entropy_loss(loss, sums, 1);
    check->kernels->cross_entropy_backward(dlogits, z, &label, maxima, sums, 1, 4, &digits, 3, 1,
                                           NULL);
    check_wide_near(check, "loss", loss, &want, 1, check_wide_tolerance(check, 1e-7, 1e-15));
    check_equal(check, "dlogits", dlogits, gradient, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(split_vocabulary, 60),
        CHECK_TABLES(long_row, 5),
        CHECK_TABLES(large_logits, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

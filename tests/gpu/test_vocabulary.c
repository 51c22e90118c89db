/* Embedding and cross-entropy on the GPU beside their CPU twins in double, with a rank's part of a
 * vocabulary. */
#include <math.h>

#include "tests/gpu/device.h"

/* A rank's rows of a vocabulary; sometimes a large one that is whole. */
static struct sbp_digits draw_vocabulary(struct check *check, int64_t largest)
{
    const struct check_split split = check_split(check, 12);
    if (check_integer(check, 0, 2) == 0)
        return (struct sbp_digits){.rest = device_columns(check, largest)};
    return check_rank_digits(&split, check_integer(check, 0, split.ranks - 1));
}

/* ---- embedding ------------------------------------------------------------------------------ */

static void embedding(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct sbp_digits vocabulary = draw_vocabulary(check, 40);
    const int64_t rows = sbp_digits_local_size(&vocabulary), in = device_columns(check, 400);
    const int64_t tokens = check_size(check, 90), places = check_integer(check, 1, 6);
    const bool is_placed = check_integer(check, 0, 1) == 1;
    const int64_t n = tokens * in;
    const int32_t *ids = check_ids(check, tokens, sbp_digits_global_size(&vocabulary));
    const int32_t *position_of = is_placed ? check_ids(check, tokens, places) : NULL;
    const double *table = check_uniform(check, rows * in), *dy = check_uniform(check, n);
    const double *positions = is_placed ? check_uniform(check, places * in) : NULL;
    double *y = check_zeros(check, n);
    void *got = device_reals(&d, NULL, n);
    d.twin->embedding_forward(y, ids, position_of, table, positions, tokens, in, &vocabulary);
    d.kernels.embedding_forward(&d.cuda, got, ids, position_of, device_reals(&d, table, rows * in),
                                is_placed ? device_reals(&d, positions, places * in) : NULL, tokens,
                                in, &vocabulary);
    check_near(check, "y", got, y, n, check_tolerance(check, 1e-6, 0));

    const unsigned adds = (unsigned)check_integer(check, 0, 3);
    double *dtable = check_uniform(check, rows * in);
    double *dpositions = is_placed ? check_uniform(check, places * in) : NULL;
    void *to = device_reals(&d, adds & SBP_ADDS_FIRST ? dtable : NULL, rows * in);
    void *to_places =
        is_placed ? device_reals(&d, adds & SBP_ADDS_REST ? dpositions : NULL, places * in) : NULL;
    d.twin->embedding_backward(dtable, dpositions, ids, position_of, dy, tokens, in, places,
                               &vocabulary, adds);
    d.kernels.embedding_backward(&d.cuda, to, to_places, ids, position_of, device_reals(&d, dy, n),
                                 tokens, in, places, &vocabulary, adds);
    check_near(check, "dtable", to, dtable, rows * in, check_tolerance(check, 1e-5, 0));
    if (is_placed)
        check_near(check, "dpositions", to_places, dpositions, places * in,
                   check_tolerance(check, 1e-5, 0));
}

/* ---- cross-entropy -------------------------------------------------------------------------- */

struct problem {
    struct sbp_digits vocabulary;
    int64_t tokens, local, valid, n;
    const int32_t *labels;
    double *logits, *maxima, *sums, *dlogits;
    double loss, factor;
};

/* A quarter of the tokens, more or less, is ignored. */
static const int32_t *draw_labels(struct check *check, int64_t tokens, int64_t valid)
{
    int32_t *labels = check_ids(check, tokens, valid);
    for (int64_t t = 0; t < tokens; t++)
        if (check_integer(check, 0, 3) == 0)
            labels[t] = -1;
    return labels;
}

/* The twin's results; where all ranks' sums would meet, this rank's stand for them, beside a logit
 * of 0 on another rank. */
static struct problem draw(const struct device *d, struct check *check)
{
    struct problem p = {.vocabulary = draw_vocabulary(check, 3000),
                        .tokens = check_size(check, 7),
                        .factor = 0.125};
    const int64_t global = sbp_digits_global_size(&p.vocabulary);
    p.local = sbp_digits_local_size(&p.vocabulary);
    p.n = p.tokens * p.local;
    p.valid = check_integer(check, global > 20 ? global - 20 : 1, global);
    p.labels = draw_labels(check, p.tokens, p.valid);
    p.logits = check_uniform(check, p.n);
    for (int64_t i = 0; i < p.n; i++)
        p.logits[i] *= 8;
    p.maxima = check_zeros(check, p.tokens);
    p.sums = check_zeros(check, 2 * p.tokens);
    p.dlogits = check_zeros(check, p.n);
    d->twin->cross_entropy_maxima(p.maxima, p.logits, p.tokens, p.local, &p.vocabulary, p.valid);
    return p;
}

static void finish(const struct device *d, struct problem *p)
{
    const struct sbp_kernels *k = d->twin;
    k->cross_entropy_sums(p->sums, p->logits, p->labels, p->maxima, p->tokens, p->local,
                          &p->vocabulary, p->valid);
    for (int64_t t = 0; t < p->tokens; t++)
        p->sums[2 * t] += p->labels[t] >= 0 && p->sums[2 * t] == 0;
    k->cross_entropy_loss(&p->loss, p->sums, p->tokens);
    k->cross_entropy_backward(p->dlogits, p->logits, p->labels, p->maxima, p->sums, p->tokens,
                              p->local, &p->vocabulary, p->valid, p->factor, NULL);
}

/* A maximum over no valid entry is -infinity, which near() compares as equal; others bring 0. */
static void phases(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct sbp_cuda_kernels *k = &d.kernels;
    struct problem p = draw(&d, check);
    const void *logits = device_reals(&d, p.logits, p.n);
    void *maxima = device_wide(&d, NULL, p.tokens), *sums = device_wide(&d, NULL, 2 * p.tokens);
    void *loss = device_wide(&d, NULL, 1), *dlogits = device_reals(&d, NULL, p.n);
    k->cross_entropy_maxima(&d.cuda, maxima, logits, p.tokens, p.local, &p.vocabulary, p.valid);
    check_wide_near(check, "maxima", maxima, p.maxima, p.tokens, 0);
    for (int64_t t = 0; t < p.tokens; t++)
        p.maxima[t] = fmax(p.maxima[t], 0);
    maxima = device_wide(&d, p.maxima, p.tokens);
    k->cross_entropy_sums(&d.cuda, sums, logits, p.labels, maxima, p.tokens, p.local, &p.vocabulary,
                          p.valid);
    finish(&d, &p);
    for (int64_t t = 0; t < p.tokens; t++)
        ((float *)sums)[2 * t] += (float)(p.labels[t] >= 0 && ((float *)sums)[2 * t] == 0);
    check_wide_near(check, "sums", sums, p.sums, 2 * p.tokens, 4e-6);
    k->cross_entropy_loss(&d.cuda, loss, sums, p.tokens);
    check_wide_near(check, "loss", loss, &p.loss, 1, 4e-6);
    k->cross_entropy_backward(&d.cuda, dlogits, logits, p.labels, maxima, sums, p.tokens, p.local,
                              &p.vocabulary, p.valid, p.factor, NULL);
    check_near(check, "dlogits", dlogits, p.dlogits, p.n, check_tolerance(check, 2e-6, 0));
}

/* Backward with a loss scale on the device, in place. */
static void whole(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct sbp_cuda_kernels *k = &d.kernels;
    struct sbp_step_state *const step = (void *)check_bytes(check, sizeof *step);
    struct problem p = draw(&d, check);
    step->loss_scale = 4;
    p.vocabulary = (struct sbp_digits){.rest = p.local};
    p.valid = check_integer(check, 1, p.local);
    p.labels = draw_labels(check, p.tokens, p.valid);
    d.twin->cross_entropy_maxima(p.maxima, p.logits, p.tokens, p.local, &p.vocabulary, p.valid);
    finish(&d, &p);
    for (int64_t i = 0; i < p.n; i++)
        p.dlogits[i] *= 4;
    void *logits = device_reals(&d, p.logits, p.n), *maxima = device_wide(&d, NULL, p.tokens);
    void *sums = device_wide(&d, NULL, 2 * p.tokens);
    k->cross_entropy_whole_sums(&d.cuda, maxima, sums, logits, p.labels, p.tokens, p.local,
                                p.valid);
    check_wide_near(check, "maxima", maxima, p.maxima, p.tokens, 0);
    check_wide_near(check, "sums", sums, p.sums, 2 * p.tokens, 4e-6);
    k->cross_entropy_backward(&d.cuda, logits, logits, p.labels, maxima, sums, p.tokens, p.local,
                              &p.vocabulary, p.valid, p.factor, step);
    check_near(check, "dlogits", logits, p.dlogits, p.n, check_tolerance(check, 4e-6, 0));
}

/* More tokens than a block has threads. */
static void many_losses(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t tokens = check_integer(check, 257, 2000);
    double *sums = check_whole(check, 2 * tokens), want;
    for (int64_t i = 0; i < 2 * tokens; i += 2)
        sums[i] += 5;
    void *loss = device_wide(&d, NULL, 1);
    d.twin->cross_entropy_loss(&want, sums, tokens);
    d.kernels.cross_entropy_loss(&d.cuda, loss, device_wide(&d, sums, 2 * tokens), tokens);
    check_wide_near(check, "loss", loss, &want, 1, 2e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(embedding, 25),
        CHECK_TABLES(phases, 25),
        CHECK_TABLES(whole, 10),
        CHECK_TABLES(many_losses, 2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

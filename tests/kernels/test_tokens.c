/* First tokens, types of tokens and patches of images against their definition. Whole numbers make
 * sums exact. */
#include "tests/kernels/check.h"

static void first_token(struct check *check)
{
    const int64_t batch = check_size(check, 5), sequence = check_size(check, 7);
    const int64_t in = check_size(check, 17), all = batch * sequence * in;
    const double *x = check_whole(check, all), *dy = check_whole(check, batch * in);
    double *y = check_zeros(check, batch * in), *dx = check_zeros(check, all);
    for (int64_t i = 0; i < batch * in; i++) {
        y[i] = x[i / in * sequence * in + i % in];
        dx[i / in * sequence * in + i % in] = dy[i];
    }
    void *got = check_blank(check, batch * in), *back = check_blank(check, all);
    check->kernels->first_token_forward(got, check_reals(check, x, all), batch, sequence, in);
    check->kernels->first_token_backward(back, check_reals(check, dy, batch * in), batch, sequence,
                                         in);
    check_equal(check, "y", got, y, batch * in);
    check_equal(check, "dx", back, dx, all);
}

static void types(struct check *check)
{
    const int64_t sequence = check_size(check, 9), rows = check_integer(check, 1, 3);
    const int64_t tokens = check_size(check, 20), in = check_integer(check, 1, 300);
    const int32_t *position_of = check_ids(check, tokens, sequence);
    const double *x = check_whole(check, tokens * in), *table = check_whole(check, rows * in);
    const double *dy = check_whole(check, tokens * in);
    double *y = check_zeros(check, tokens * in), *dtable = check_zeros(check, rows * in);
    for (int64_t i = 0; i < tokens * in; i++) {
        int64_t type = 0;
        while ((type + 1) * sequence <= position_of[i / in] * rows)
            type++;
        y[i] = x[i] + table[type * in + i % in];
        dtable[type * in + i % in] += dy[i];
    }
    void *got = check_reals(check, x, tokens * in), *back = check_blank(check, rows * in);
    check->kernels->token_types_forward(got, position_of, check_reals(check, table, rows * in),
                                        tokens, in, rows, sequence);
    check_equal(check, "y", got, y, tokens * in);
    const void *gradients = check_reals(check, dy, tokens * in);
    for (int micro_batch = 1; micro_batch <= 2; micro_batch++) {
        check->kernels->token_types_backward(back, position_of, gradients, tokens, in, rows,
                                             sequence, micro_batch > 1);
        for (int64_t i = 0; i < rows * in && micro_batch > 1; i++)
            dtable[i] *= 2;
        check_equal(check, "dtypes", back, dtable, rows * in);
    }
}

/* ---- patches -------------------------------------------------------------------------------- */

/* All rows of a sequence, some of which a simulated rank has. */
struct problem {
    struct check_split split;
    int64_t batch, pixels, features, sequence, first;
    double *x, *w, *bias, *class_token, *positions, *dy, *y;
};

static struct problem draw(struct check *check)
{
    struct problem p = {.split = check_split(check, 5)};
    p.batch = check_size(check, 3);
    p.pixels = check_integer(check, 1, 300);
    p.features = check_integer(check, 1, 150);
    p.sequence = p.split.global;
    p.first = check_integer(check, 0, 1);
    p.x = check_whole(check, p.batch * p.sequence * p.pixels);
    p.w = check_whole(check, p.pixels * p.features);
    p.bias = check_whole(check, p.features);
    p.class_token = check_whole(check, p.features);
    p.positions = check_whole(check, p.sequence * p.features);
    p.dy = check_whole(check, p.batch * p.sequence * p.features);
    p.y = check_zeros(check, p.batch * p.sequence * p.features);
    for (int64_t i = 0; i < p.batch * p.sequence * p.features; i++) {
        const int64_t token = i / p.features, row = token % p.sequence, f = i % p.features;
        p.y[i] = p.positions[row * p.features + f];
        p.y[i] += row < p.first ? p.class_token[f] : p.bias[f];
        for (int64_t k = 0; k < p.pixels && row >= p.first; k++)
            p.y[i] += p.x[token * p.pixels + k] * p.w[k * p.features + f];
    }
    return p;
}

/* A rank's rows of an operand that has `width` elements a token; `patches`: the class token's row
 * is left out. */
static double *take(struct check *check, const struct problem *p, const struct sbp_digits *digits,
                    const double *whole, int64_t width, bool patches, int64_t *count)
{
    const int64_t local = sbp_digits_local_size(digits);
    double *part = check_zeros(check, p->batch * local * width + 1);
    *count = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t l = 0; l < local; l++) {
            const int64_t row = sbp_digits_global(digits, l);
            for (int64_t k = 0; k < width && !(patches && row < p->first); k++)
                part[(*count)++] = whole[(b * p->sequence + row) * width + k];
        }
    return part;
}

static void *real_part(struct check *check, const struct problem *p,
                       const struct sbp_digits *digits, const double *whole, int64_t width,
                       bool patches)
{
    int64_t count;
    const double *part = take(check, p, digits, whole, width, patches, &count);
    return check_reals(check, part, count + 1);
}

/* Gradients of a rank's tokens. */
struct gradients {
    double *w, *bias, *class_token, *positions;
};

static struct gradients want_of(struct check *check, const struct problem *p,
                                const struct sbp_digits *digits)
{
    struct gradients g = {check_zeros(check, p->pixels * p->features),
                          check_zeros(check, p->features), check_zeros(check, p->features),
                          check_zeros(check, p->sequence * p->features)};
    for (int64_t i = 0; i < p->batch * p->sequence * p->features; i++) {
        const int64_t token = i / p->features, row = token % p->sequence, f = i % p->features;
        if (sbp_digits_local(digits, row) < 0)
            continue;
        g.positions[row * p->features + f] += p->dy[i];
        (row < p->first ? g.class_token : g.bias)[f] += p->dy[i];
        for (int64_t k = 0; k < p->pixels && row >= p->first; k++)
            g.w[k * p->features + f] += p->x[token * p->pixels + k] * p->dy[i];
    }
    return g;
}

static void run_rank(struct check *check, const struct problem *p, int64_t rank)
{
    const struct sbp_kernels *k = check->kernels;
    const struct sbp_digits digits = check_rank_digits(&p->split, rank);
    const int64_t local = sbp_digits_local_size(&digits);
    const struct sbp_patches patches = {.rows = &digits,
                                        .batch = p->batch,
                                        .pixels = p->pixels,
                                        .features = p->features,
                                        .class_token = p->first > 0};
    const void *x = real_part(check, p, &digits, p->x, p->pixels, true);
    const void *dy = real_part(check, p, &digits, p->dy, p->features, false);
    int64_t n;
    const double *y = take(check, p, &digits, p->y, p->features, false, &n);
    void *got = check_blank(check, p->batch * local * p->features);
    k->patches_forward(got, x, check_reals(check, p->w, p->pixels * p->features),
                       check_reals(check, p->bias, p->features),
                       check_reals(check, p->class_token, p->features),
                       check_reals(check, p->positions, p->sequence * p->features), &patches);
    check_equal(check, "y", got, y, n);
    const struct gradients want = want_of(check, p, &digits);
    void *dw = check_blank(check, p->pixels * p->features),
         *dbias = check_blank(check, p->features), *dclass = check_blank(check, p->features),
         *dpositions = check_blank(check, p->sequence * p->features);
    k->patches_backward(dw, dbias, p->first > 0 ? dclass : NULL, dpositions, x, dy, &patches, 0);
    check_equal(check, "dw", dw, want.w, p->pixels * p->features);
    check_equal(check, "dbias", dbias, want.bias, p->features);
    if (p->first > 0)
        check_equal(check, "dclass", dclass, want.class_token, p->features);
    check_equal(check, "dpositions", dpositions, want.positions, p->sequence * p->features);
    for (int64_t i = 0; i < p->features; i++)
        want.bias[i] *= 2;
    k->patches_backward(dw, dbias, NULL, NULL, x, dy, &patches, SBP_ADDS_REST);
    check_equal(check, "dw beside it", dw, want.w, p->pixels * p->features);
    check_equal(check, "dbias of two", dbias, want.bias, p->features);
}

static void patches(struct check *check)
{
    const struct problem p = draw(check);
    for (int64_t rank = 0; rank < p.split.ranks; rank++)
        run_rank(check, &p, rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(first_token, 10),
        CHECK_TABLES(types, 20),
        CHECK_TABLES(patches, 10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

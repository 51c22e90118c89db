/* Rows of tokens on the GPU beside their CPU twins in double: those of types, the first of each
 * sequence, and what patches have beside their products. */
#include <math.h>

#include "tests/gpu/device.h"

static void types(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t in = device_columns(check, 300), rows = check_integer(check, 1, 3);
    const int64_t tokens = check_size(check, 200), sequence = rows * check_size(check, 20);
    const int32_t *places = check_ids(check, tokens, sequence);
    const double *of = check_uniform(check, rows * in), *dy = check_uniform(check, tokens * in);
    double *y = check_uniform(check, tokens * in), *dof = check_uniform(check, rows * in);
    const bool adds = check_integer(check, 0, 1) == 1;
    void *to = device_reals(&d, y, tokens * in);
    void *back = device_reals(&d, adds ? dof : NULL, rows * in);
    d.twin->token_types_forward(y, places, of, tokens, in, rows, sequence);
    d.twin->token_types_backward(dof, places, dy, tokens, in, rows, sequence, adds);
    d.kernels.token_types_forward(&d.cuda, to, places, device_reals(&d, of, rows * in), tokens, in,
                                  rows, sequence);
    d.kernels.token_types_backward(&d.cuda, back, places, device_reals(&d, dy, tokens * in), tokens,
                                   in, rows, sequence, adds);
    check_near(check, "y", to, y, tokens * in, check_tolerance(check, 1e-6, 0));
    check_near(check, "dtypes", back, dof, rows * in, check_tolerance(check, 2e-5, 0));
}

static void first(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t in = device_columns(check, 300), batch = check_size(check, 5);
    const int64_t sequence = check_size(check, 9), n = batch * sequence * in;
    const double *x = check_uniform(check, n), *dy = check_uniform(check, batch * in);
    double *y = check_zeros(check, batch * in), *dx = check_zeros(check, n);
    void *to = device_reals(&d, NULL, batch * in), *back = device_reals(&d, NULL, n);
    d.twin->first_token_forward(y, x, batch, sequence, in);
    d.twin->first_token_backward(dx, dy, batch, sequence, in);
    d.kernels.first_token_forward(&d.cuda, to, device_reals(&d, x, n), batch, sequence, in);
    d.kernels.first_token_backward(&d.cuda, back, device_reals(&d, dy, batch * in), batch, sequence,
                                   in);
    check_equal(check, "y", to, y, batch * in);
    check_equal(check, "dx", back, dx, n);
}

/* Some rows of all tokens; one product's pixel a patch, so that the twin's product is known. */
struct problem {
    struct sbp_patches p;
    struct sbp_digits rows;
    int64_t here, all, count; /* rows here and of all; patches here of all images */
};

static struct problem draw(struct check *check)
{
    const struct check_split split = check_split(check, 6);
    struct problem p = {.rows = check_rank_digits(&split, check_integer(check, 0, split.ranks - 1)),
                        .here = split.local,
                        .all = split.global};
    p.p = (struct sbp_patches){.batch = check_size(check, 4),
                               .pixels = 1,
                               .features = device_columns(check, 200),
                               .class_token = check_integer(check, 0, 1) == 1};
    const bool first = p.p.class_token && sbp_digits_local(&p.rows, 0) == 0;
    p.count = p.p.batch * (p.here - (first ? 1 : 0));
    return p;
}

static void patches(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check);
    p.p.rows = &p.rows;
    const int64_t f = p.p.features, n = p.p.batch * p.here * f, parts = p.count / 2;
    const double *x = check_uniform(check, p.count), *w = check_uniform(check, f);
    const bool bare = check_integer(check, 0, 2) == 0;
    const double *bias = bare ? NULL : check_uniform(check, f);
    const double *positions = bare ? NULL : check_uniform(check, p.all * f);
    const double *class_token = check_uniform(check, f);
    double *product = check_zeros(check, p.count * f), *y = check_zeros(check, n);
    for (int64_t i = 0; i < p.count * f; i++)
        product[i] = x[i / f] * w[i % f];
    d.twin->patches_forward(y, x, w, bias, class_token, positions, &p.p);
    void *to = device_reals(&d, NULL, n);
    const float *from = device_wide(&d, product, p.count * f);
    const void *added = bare ? NULL : device_reals(&d, bias, f);
    const void *places = bare ? NULL : device_reals(&d, positions, p.all * f);
    d.kernels.patches_put_class(&d.cuda, to, device_reals(&d, class_token, f), places, &p.p);
    d.kernels.patches_put(&d.cuda, to, from, added, places, &p.p, 0, parts);
    d.kernels.patches_put(&d.cuda, to, from + parts * f, added, places, &p.p, parts,
                          p.count - parts);
    check_near(check, "y", to, y, n, check_tolerance(check, 2e-6, 0));
}

static void patches_back(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check);
    p.p.rows = &p.rows;
    const int64_t f = p.p.features, n = p.p.batch * p.here * f, parts = p.count / 2;
    const int64_t bytes = check->kernels->real_bytes;
    const bool adds = check_integer(check, 0, 1) == 1, wanted = check_integer(check, 0, 2) > 0;
    const double *dy = check_uniform(check, n);
    double *dbias = check_uniform(check, f), *dclass = check_uniform(check, f);
    double *dpositions = check_uniform(check, p.all * f), *rows = check_zeros(check, p.count * f);
    const void *from = device_reals(&d, dy, n);
    void *bias_to = device_reals(&d, adds ? dbias : NULL, f);
    void *class_to = device_reals(&d, adds ? dclass : NULL, f);
    void *places_to = device_reals(&d, adds ? dpositions : NULL, p.all * f);
    char *taken = device_reals(&d, NULL, p.count * f);
    d.twin->patches_backward(NULL, dbias, wanted ? dclass : NULL, wanted ? dpositions : NULL, NULL,
                             dy, &p.p, adds ? SBP_ADDS_REST : 0);
    d.kernels.patches_sums(&d.cuda, bias_to, wanted ? class_to : NULL, wanted ? places_to : NULL,
                           from, &p.p, adds);
    d.kernels.patches_take(&d.cuda, taken, from, &p.p, 0, parts);
    d.kernels.patches_take(&d.cuda, taken + parts * f * bytes, from, &p.p, parts, p.count - parts);
    check_near(check, "dbias", bias_to, dbias, f, check_tolerance(check, 5e-6, 0));
    if (wanted) {
        check_near(check, "dclass", class_to, dclass, f, check_tolerance(check, 2e-6, 0));
        check_near(check, "dpositions", places_to, dpositions, p.all * f,
                   check_tolerance(check, 2e-6, 0));
    }
    /* A row that is no class token, image by image. */
    for (int64_t row = 0, to = 0; row < p.p.batch * p.here; row++) {
        if (p.p.class_token && sbp_digits_global(&p.rows, row % p.here) == 0)
            continue;
        for (int64_t i = 0; i < f; i++)
            rows[to * f + i] = dy[row * f + i];
        to++;
    }
    check_equal(check, "rows of patches", taken, rows, p.count * f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(types, 6),
        CHECK_TABLES(first, 6),
        CHECK_TABLES(patches, 10),
        CHECK_TABLES(patches_back, 10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

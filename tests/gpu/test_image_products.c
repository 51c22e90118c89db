/* Convolutions and patches on the stand-in (executor/gpu/images_cuda.c), of which scratch holds a
 * few places at a time, or few rows of a weight's gradient: beside their CPU twins in double.
 *
 * usage: PROGRAM [SEED]
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/math/half.h"
#include "base/math/random.h"
#include "executor/device/device.h"
#include "executor/gpu/rank_cuda_priv.h"

enum { CASES = 8, MOST_BUFFERS = 24 };

static uint64_t seed = 1;

/* A device under test, with what was allocated on it and beside. */
struct bench {
    const struct sbp_device_ops *device;
    const struct sbp_kernels *k, *twin; /* in double */
    struct sbp_random random;
    void *memory[MOST_BUFFERS], *host[MOST_BUFFERS];
    int memories, hosts;
};

static struct bench bench_open(enum sbp_real real, uint64_t stream)
{
    struct sbp_diag diag = {0};
    struct bench b = {.device = sbp_device("cuda", &diag), .twin = sbp_kernels_cpu(SBP_F64)};
    assert_non_null(b.device);
    assert_int_equal(b.device->open(0, &diag), SBP_OK);
    b.k = b.device->kernels(real);
    sbp_random_seed(&b.random, seed + stream);
    return b;
}

static void bench_close(struct bench *b)
{
    struct sbp_diag diag = {0};
    if (b->device->finish(&diag) != SBP_OK)
        fail_msg("%s", diag.text);
    while (b->memories > 0)
        b->device->memory->release(b->memory[--b->memories]);
    while (b->hosts > 0)
        free(b->host[--b->hosts]);
    b->device->close();
}

static int64_t draw(struct bench *b, int64_t low, int64_t high)
{
    return low + (int64_t)sbp_random_below(&b->random, (uint64_t)(high - low + 1));
}

/* Multiples of 1/64 in [-2, 2), which all types have. */
static double *values(struct bench *b, int64_t n)
{
    double *of = calloc((size_t)n + 1, sizeof *of);
    assert_non_null(of);
    assert_in_range(b->hosts, 0, MOST_BUFFERS - 1);
    b->host[b->hosts++] = of;
    for (int64_t i = 0; i < n; i++)
        of[i] = (double)draw(b, -128, 127) / 64;
    return of;
}

/* On the device; NULL: not-a-numbers. */
static void *put(struct bench *b, const double *of, int64_t n)
{
    const int64_t bytes = (n + 1) * b->k->real_bytes;
    void *memory = b->device->memory->allocate(bytes), *cells = calloc(1, (size_t)bytes);
    assert_true(memory != NULL && cells != NULL);
    assert_in_range(b->memories, 0, MOST_BUFFERS - 1);
    b->memory[b->memories++] = memory;
    for (int64_t i = 0; i < n; i++)
        sbp_half_put(b->k->real, cells, i, of != NULL ? of[i] : (double)NAN);
    assert_int_equal(b->device->memory->from_host(memory, cells, bytes), SBP_OK);
    free(cells);
    return memory;
}

/* Of sums of `terms` products, up to 4 each, that are rounded once. */
static void expect(struct bench *b, const char *what, const void *got, const double *want,
                   int64_t n, int64_t terms)
{
    const int64_t bytes = (n + 1) * b->k->real_bytes;
    const double unit = sbp_real_roundoff(b->k->real);
    void *cells = calloc(1, (size_t)bytes);
    assert_non_null(cells);
    assert_int_equal(b->device->memory->to_host(cells, got, bytes), SBP_OK);
    for (int64_t i = 0; i < n; i++) {
        const double is = sbp_half_get(b->k->real, cells, i);
        const double most = unit * fabs(want[i]) + 0x1p-22 * 4 * (double)(terms + 1);
        if (!(fabs(is - want[i]) <= most))
            fail_msg("seed %llu, %s: %s[%lld] is %g, not %g, more than %g off",
                     (unsigned long long)seed, b->k->name, what, (long long)i, is, want[i], most);
    }
    free(cells);
}

/* What an operator is left of the scratch. */
static void leave(int64_t bytes)
{
    sbp_gpu_rank_here()->cuda.scratch_bytes = bytes;
}

/* A window of one place, over as many channels. */
static struct sbp_windows one_place(int64_t channels)
{
    return (struct sbp_windows){.batch = 1,
                                .channels = channels,
                                .height = 1,
                                .width = 1,
                                .out_height = 1,
                                .out_width = 1,
                                .kernel = {1, 1},
                                .stride = {1, 1}};
}

static struct sbp_windows draw_windows(struct bench *b)
{
    struct sbp_windows at = {.batch = draw(b, 1, 2), .channels = draw(b, 1, 6)};
    int64_t *const size[] = {&at.height, &at.width}, *const out[] = {&at.out_height, &at.out_width};
    for (int side = 0; side < 2; side++) {
        at.kernel[side] = draw(b, 1, 3);
        at.stride[side] = draw(b, 1, 2);
        at.padding[side] = draw(b, 0, at.kernel[side] - 1);
        *size[side] = draw(b, 3, 8);
        *out[side] = (*size[side] + 2 * at.padding[side] - at.kernel[side]) / at.stride[side] + 1;
    }
    return at;
}

static void convolve(struct bench *b)
{
    struct sbp_windows at = draw_windows(b);
    const int64_t out = draw(b, 1, 20), terms = at.channels * at.kernel[0] * at.kernel[1];
    const int64_t in_n = at.batch * at.height * at.channels * at.width;
    const int64_t places = at.batch * at.out_height * at.out_width, out_n = places * out;
    const unsigned adds = (unsigned)draw(b, 0, 3);
    at.above = draw(b, 0, 2);
    at.below = draw(b, 0, 2);
    const int64_t around_n = (at.above + at.below) * at.batch * at.channels * at.width;
    struct sbp_windows here = at;
    at.around = values(b, around_n);
    here.around = put(b, at.around, around_n);
    double *x = values(b, in_n), *w = values(b, terms * out), *dy = values(b, out_n);
    double *bias = values(b, out), *y = values(b, out_n), *dx = values(b, in_n);
    double *dw = values(b, terms * out), *dbias = values(b, out);
    void *y_to = put(b, NULL, out_n), *dx_to = put(b, NULL, in_n);
    void *dw_to = put(b, (adds & SBP_ADDS_FIRST) != 0 ? dw : NULL, terms * out);
    void *dbias_to = put(b, (adds & SBP_ADDS_REST) != 0 ? dbias : NULL, out);
    const void *x_at = put(b, x, in_n), *w_at = put(b, w, terms * out), *dy_at = put(b, dy, out_n);
    const bool biased = draw(b, 0, 1) == 1;
    const void *bias_at = biased ? put(b, bias, out) : NULL;
    b->twin->conv2d_forward(y, x, w, biased ? bias : NULL, &at, out);
    b->twin->conv2d_backward_input(dx, dy, w, &at, out);
    b->twin->conv2d_backward_weight(dw, dbias, x, dy, &at, out, adds);
    leave(256 + draw(b, 1, 30) * (terms + out) * 4);
    b->k->conv2d_forward(y_to, x_at, w_at, bias_at, &here, out);
    leave(256 + draw(b, 1, 30) * (terms * out + at.channels) * 4);
    b->k->conv2d_backward_input(dx_to, dy_at, w_at, &here, out);
    leave(512 + 8 * (terms + out + draw(b, 0, terms * out / 2)));
    b->k->conv2d_backward_weight(dw_to, dbias_to, x_at, dy_at, &here, out, adds);
    expect(b, "y", y_to, y, out_n, terms);
    expect(b, "dx", dx_to, dx, in_n, out * at.kernel[0] * at.kernel[1]);
    expect(b, "dw", dw_to, dw, terms * out, places);
    expect(b, "dbias", dbias_to, dbias, out, places);
}

static void cut_patches(struct bench *b)
{
    const struct sbp_digits rows = {
        .count = 1, .size = {2}, .fixed = {draw(b, -1, 1)}, .rest = draw(b, 2, 6)};
    const struct sbp_patches p = {.rows = &rows,
                                  .batch = draw(b, 1, 3),
                                  .pixels = draw(b, 1, 40),
                                  .features = draw(b, 1, 30),
                                  .class_token = draw(b, 0, 1) == 1};
    const int64_t here = sbp_digits_local_size(&rows), all = sbp_digits_global_size(&rows);
    const int64_t first = p.class_token && sbp_digits_local(&rows, 0) == 0 ? 1 : 0;
    const int64_t f = p.features, n = p.batch * here * f, x_n = p.batch * (here - first) * p.pixels;
    const unsigned adds = (unsigned)draw(b, 0, 3);
    double *x = values(b, x_n), *w = values(b, p.pixels * f), *bias = values(b, f);
    double *of_class = values(b, f), *places = values(b, all * f), *dy = values(b, n);
    double *y = values(b, n), *dw = values(b, p.pixels * f), *dbias = values(b, f);
    void *y_to = put(b, NULL, n);
    void *dw_to = put(b, (adds & SBP_ADDS_FIRST) != 0 ? dw : NULL, p.pixels * f);
    void *dbias_to = put(b, (adds & SBP_ADDS_REST) != 0 ? dbias : NULL, f);
    const void *x_at = put(b, x, x_n);
    b->twin->patches_forward(y, x, w, bias, of_class, places, &p);
    b->twin->patches_backward(dw, dbias, NULL, NULL, x, dy, &p, adds);
    leave(256 + draw(b, 1, 10) * f * 4);
    b->k->patches_forward(y_to, x_at, put(b, w, p.pixels * f), put(b, bias, f), put(b, of_class, f),
                          put(b, places, all * f), &p);
    leave(512 + 8 * (f + draw(b, 0, p.pixels * f / 2)));
    b->k->patches_backward(dw_to, dbias_to, NULL, NULL, x_at, put(b, dy, n), &p, adds);
    expect(b, "y", y_to, y, n, p.pixels);
    expect(b, "dw", dw_to, dw, p.pixels * f, p.batch * here);
    expect(b, "dbias", dbias_to, dbias, f, p.batch * here);
}

static const enum sbp_real reals[] = {SBP_F32, SBP_REAL_BF16, SBP_REAL_FP16};

static void few_places_at_a_time(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < CASES * sizeof reals / sizeof *reals; i++) {
        struct bench b = bench_open(reals[i % 3], i);
        if (i % 2 == 0)
            convolve(&b);
        else
            cut_patches(&b);
        bench_close(&b);
    }
}

/* Columns as large as those that a table takes for the whole scratch, of one place: here in one of
 * 16 KiB, with as many numbers less as half of what is missing has. */
static void largest_columns(void **state)
{
    static const int64_t sides[][2] = {{0, 1}, {1, 0}}; /* of channels, and of outputs */
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        struct bench b = bench_open(SBP_F32, i);
        const int64_t bytes = 16 << 10, missing = SBP_CUDA_SCRATCH_BYTES - bytes;
        const int64_t most = b.k->largest_column - missing / 2 / (int64_t)sizeof(float) - 1;
        const int64_t out = sides[i][0] * most + sides[i][1], in = most + 1 - out;
        const struct sbp_windows at = one_place(in);
        const double *x = values(&b, in), *w = values(&b, in * out), *dy = values(&b, out);
        double *y = values(&b, out), *dx = values(&b, in), *dw = values(&b, in * out);
        void *y_to = put(&b, NULL, out), *dx_to = put(&b, NULL, in),
             *dw_to = put(&b, NULL, in * out);
        const void *x_at = put(&b, x, in), *w_at = put(&b, w, in * out), *dy_at = put(&b, dy, out);
        b.twin->conv2d_forward(y, x, w, NULL, &at, out);
        b.twin->conv2d_backward_input(dx, dy, w, &at, out);
        b.twin->conv2d_backward_weight(dw, NULL, x, dy, &at, out, 0);
        leave(bytes);
        b.k->conv2d_forward(y_to, x_at, w_at, NULL, &at, out);
        b.k->conv2d_backward_input(dx_to, dy_at, w_at, &at, out);
        b.k->conv2d_backward_weight(dw_to, NULL, x_at, dy_at, &at, out, 0);
        expect(&b, "y", y_to, y, out, in);
        expect(&b, "dx", dx_to, dx, in, out);
        expect(&b, "dw", dw_to, dw, in * out, 1);
        bench_close(&b);
    }
}

/* A product over nothing is 0: the bias is left. */
static void no_terms(void **state)
{
    const struct sbp_windows at = one_place(0);
    (void)state;
    struct bench b = bench_open(SBP_REAL_BF16, 0);
    const double *bias = values(&b, 4);
    void *const y = put(&b, NULL, 4);
    b.k->conv2d_forward(y, NULL, NULL, put(&b, bias, 4), &at, 4);
    expect(&b, "y", y, bias, 4, 1);
    bench_close(&b);
}

/* A side whose low 32 bits are a small number is refused, not taken for it. */
static void more_than_int(void **state)
{
    struct sbp_diag diag = {0};
    (void)state;
    struct bench b = bench_open(SBP_F32, 0);
    void *const at = put(&b, NULL, 16);
    b.k->linear_forward(at, at, at, NULL, 1, 1, (INT64_C(1) << 32) + 1);
    assert_int_not_equal(b.device->finish(&diag), SBP_OK);
    assert_non_null(strstr(diag.text, "cublasGemmEx"));
    while (b.memories > 0)
        b.device->memory->release(b.memory[--b.memories]);
    b.device->close();
}

/* Not even one: the device fails, as when it is out of memory. */
static void no_room(void **state)
{
    const struct sbp_windows at = one_place(64);
    struct sbp_diag diag = {0};
    (void)state;
    struct bench b = bench_open(SBP_F32, 0);
    void *const y = put(&b, NULL, 64), *const w = put(&b, NULL, 64 * 64);
    leave(512);
    b.k->conv2d_forward(y, y, w, NULL, &at, 64);
    assert_int_not_equal(b.device->finish(&diag), SBP_OK);
    assert_non_null(strstr(diag.text, "the scratch of products"));
    while (b.memories > 0)
        b.device->memory->release(b.memory[--b.memories]);
    b.device->close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_places_at_a_time), cmocka_unit_test(largest_columns),
        cmocka_unit_test(no_terms), cmocka_unit_test(more_than_int), cmocka_unit_test(no_room)};
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

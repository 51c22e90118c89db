#include "tests/kernels/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/math/half.h"

static void *from_heap(size_t bytes)
{
    return calloc(1, bytes);
}

struct check_memory check_memory = {.allocate = from_heap, .release = free};

static void await_kernels(void)
{
    if (check_memory.wait != NULL)
        check_memory.wait();
}

static uint64_t first_seed(void)
{
    const char *text = getenv("SBP_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

static void run_rounds(void (*body)(struct check *check), int rounds, enum sbp_real real)
{
    for (int round = 0; round < rounds; round++) {
        struct check check = {.kernels = sbp_kernels_cpu(real), .round = round};
        check.seed = first_seed() + (uint64_t)round;
        sbp_random_seed(&check.random, check.seed);
        body(&check);
        for (int i = 0; i < check.buffers; i++)
            check_memory.release(check.buffer[i]);
    }
}

void check_tables(void **state)
{
    const struct check_rounds *test = *state;
    for (int real = 0; real < SBP_REALS; real++)
        run_rounds(test->body, test->rounds, (enum sbp_real)real);
}

int64_t check_integer(struct check *check, int64_t low, int64_t high)
{
    return low + (int64_t)sbp_random_below(&check->random, (uint64_t)(high - low + 1));
}

int64_t check_size(struct check *check, int64_t high)
{
    switch (check_integer(check, 0, 3)) {
    case 0:
        return 1;
    case 1:
        return check_integer(check, 0, (high - 1) / 2) * 2 + 1;
    default:
        return check_integer(check, 1, high);
    }
}

static void *allocate(struct check *check, int64_t n, size_t size)
{
    assert_true(check->buffers < CHECK_MAX_BUFFERS);
    void *buffer = check_memory.allocate((n > 0 ? (size_t)n : 1) * size);
    assert_non_null(buffer);
    check->buffer[check->buffers++] = buffer;
    return buffer;
}

double *check_zeros(struct check *check, int64_t n)
{
    return allocate(check, n, sizeof(double));
}

double *check_whole(struct check *check, int64_t n)
{
    double *values = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)check_integer(check, -4, 4);
    return values;
}

double *check_uniform(struct check *check, int64_t n)
{
    double *values = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)check_integer(check, -128, 127) / 64;
    return values;
}

int32_t *check_ids(struct check *check, int64_t n, int64_t below)
{
    int32_t *ids = allocate(check, n, sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)check_integer(check, 0, below - 1);
    return ids;
}

uint8_t *check_bytes(struct check *check, int64_t n)
{
    return allocate(check, n, 1);
}

/* NULL for `values`: not-a-numbers. */
static void *make(struct check *check, enum sbp_real real, const double *values, int64_t n)
{
    void *reals = allocate(check, n, (size_t)sbp_real_bytes(real));
    for (int64_t i = 0; i < n; i++)
        sbp_half_put(real, reals, i, values == NULL ? (double)NAN : values[i]);
    return reals;
}

static enum sbp_real real_of(const struct check *check)
{
    return check->kernels->real;
}

void *check_blank(struct check *check, int64_t n)
{
    return make(check, real_of(check), NULL, n);
}

void *check_reals(struct check *check, const double *values, int64_t n)
{
    return make(check, real_of(check), values, n);
}

void *check_wide_blank(struct check *check, int64_t n)
{
    return make(check, sbp_real_wide(real_of(check)), NULL, n);
}

void *check_wide_reals(struct check *check, const double *values, int64_t n)
{
    return make(check, sbp_real_wide(real_of(check)), values, n);
}

double check_at(const struct check *check, const void *reals, int64_t i)
{
    await_kernels();
    return sbp_half_get(real_of(check), reals, i);
}

double check_wide_at(const struct check *check, const void *reals, int64_t i)
{
    await_kernels();
    return sbp_half_get(sbp_real_wide(real_of(check)), reals, i);
}

double *check_doubles(struct check *check, const void *reals, int64_t n)
{
    double *values = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = check_at(check, reals, i);
    return values;
}

/* What is to be exact is rounded once where the type has fewer bits. */
static void expect(const struct check *check, enum sbp_real real, const char *what, const void *got,
                   const double *want, int64_t n, double tolerance)
{
    await_kernels();
    for (int64_t i = 0; i < n; i++) {
        const double value = sbp_half_get(real, got, i);
        double rounded; /* room for any real */
        sbp_half_put(real, &rounded, 0, want[i]);
        const double expected = tolerance == 0 ? sbp_half_get(real, &rounded, 0) : want[i];
        if (value == expected || fabs(value - expected) <= tolerance * (1 + fabs(expected)))
            continue;
        fail_msg("%s %s[%" PRId64 "] of %" PRId64 ": got %.17g, want %.17g, tolerance %g "
                 "(SBP_TEST_SEED=%" PRIu64 ")",
                 check->kernels->name, what, i, n, value, expected, tolerance, check->seed);
    }
}

void check_near(const struct check *check, const char *what, const void *got, const double *want,
                int64_t n, double tolerance)
{
    expect(check, real_of(check), what, got, want, n, tolerance);
}

void check_wide_near(const struct check *check, const char *what, const void *got,
                     const double *want, int64_t n, double tolerance)
{
    expect(check, sbp_real_wide(real_of(check)), what, got, want, n, tolerance);
}

void check_equal(const struct check *check, const char *what, const void *got, const double *want,
                 int64_t n)
{
    check_near(check, what, got, want, n, 0);
}

double check_roundings(const struct check *check, double f32, double f64, double roundings)
{
    const bool half = check->kernels->real_bytes == 2;
    const double stored = half ? roundings * sbp_real_roundoff(real_of(check)) : 0;
    return stored + (real_of(check) == SBP_F64 ? f64 : f32);
}

double check_tolerance(const struct check *check, double f32, double f64)
{
    return check_roundings(check, f32, f64, 1);
}

double check_wide_tolerance(const struct check *check, double f32, double f64)
{
    return check_roundings(check, f32, f64, 0);
}

double *check_gradient(struct check *check, double (*evaluate)(void *context), void *context,
                       double *x, int64_t n)
{
    const double step = 0x1p-17; /* balances truncation (step^2) and roundoff (2^-53 / step) */
    double *gradient = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++) {
        const double kept = x[i];
        x[i] = kept + step;
        const double above = evaluate(context);
        x[i] = kept - step;
        const double below = evaluate(context);
        x[i] = kept;
        gradient[i] = (above - below) / (2 * step);
    }
    return gradient;
}

double check_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

struct check_split check_split(struct check *check, int64_t highest_rest)
{
    struct check_split split = {.ranks = 1};
    split.whole.count = (int)check_integer(check, 0, 3);
    split.whole.rest = check_integer(check, 1, highest_rest);
    for (int i = 0; i < split.whole.count; i++) {
        split.whole.size[i] = check_integer(check, 1, 3);
        split.whole.fixed[i] = -1;
        split.split[i] = check_integer(check, 0, 1) == 1;
        if (split.split[i])
            split.ranks *= split.whole.size[i];
    }
    split.global = sbp_digits_global_size(&split.whole);
    split.local = split.global / split.ranks;
    return split;
}

struct sbp_digits check_rank_digits(const struct check_split *split, int64_t rank)
{
    struct sbp_digits digits = split->whole;
    for (int i = 0; i < digits.count; i++) {
        if (!split->split[i])
            continue;
        digits.fixed[i] = rank % digits.size[i];
        rank /= digits.size[i];
    }
    return digits;
}

double *check_columns(struct check *check, const double *whole, int64_t rows,
                      const struct sbp_digits *digits)
{
    const int64_t local = sbp_digits_local_size(digits), global = sbp_digits_global_size(digits);
    double *part = check_zeros(check, rows * local);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < local; i++)
            part[t * local + i] = whole[t * global + sbp_digits_global(digits, i)];
    return part;
}

void check_put_columns(double *whole, const double *part, int64_t rows,
                       const struct sbp_digits *digits)
{
    const int64_t local = sbp_digits_local_size(digits), global = sbp_digits_global_size(digits);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < local; i++)
            whole[t * global + sbp_digits_global(digits, i)] = part[t * local + i];
}

struct check_chance check_chance(struct check *check)
{
    static const double chances[] = {0, 0, 0, 0.1, 0.25, 0.5};
    return (struct check_chance){.p = chances[check_integer(check, 0, 5)],
                                 .seed = sbp_random_next(&check->random),
                                 .stream = sbp_random_next(&check->random),
                                 .first_sample = check_integer(check, 0, 5)};
}

const struct sbp_attention_dropout *check_dropping(struct check *check,
                                                   const struct check_chance *chance,
                                                   int64_t mask_bytes, struct check_dropping *at)
{
    if (chance->p <= 0)
        return NULL;
    at->region.first = chance->first_sample;
    at->dropout = (struct sbp_attention_dropout){
        .p = chance->p,
        .seed = chance->seed,
        .stream = chance->stream,
        .region = &at->region,
        .mask = mask_bytes > 0 ? check_bytes(check, mask_bytes) : NULL};
    return &at->dropout;
}

double check_left(const struct check_chance *chance, int64_t sample, int64_t heads, int64_t head,
                  int64_t keys, int64_t query, int64_t key)
{
    const int64_t row = ((chance->first_sample + sample) * heads + head) * keys + query;
    const double unit =
        sbp_random_unit_at(chance->seed, chance->stream, (uint64_t)(row * keys + key));
    return chance->p <= 0 ? 1 : unit >= chance->p ? 1 / (1 - chance->p) : 0;
}

/* Helpers of the kernel tests: seeded inputs, buffers of a table's type, comparisons that print
 * seed, place and both values, numeric gradients, and simulated splits of a dimension.
 *
 * Inputs and oracles are double; every input is exact in bfloat16 and half precision, too, so that
 * all tables see the same.
 */
#ifndef SBP_TESTS_KERNELS_CHECK_H
#define SBP_TESTS_KERNELS_CHECK_H

#include "base/math/random.h"
#include "kernels/kernels.h"
#include "tests/support/unit.h"

enum { CHECK_MAX_BUFFERS = 1024 };

/* Where buffers lie: the host's heap, unless a program sets this before its tests. Who reads what
 * kernels wrote waits for them first. */
struct check_memory {
    void *(*allocate)(size_t bytes); /* zeroed; NULL when it is out */
    void (*release)(void *memory);
    void (*wait)(void); /* NULL: kernels are done when they return */
};
extern struct check_memory check_memory;

/* One round of one test on one table. */
struct check {
    const struct sbp_kernels *kernels;
    struct sbp_random random;
    uint64_t seed;
    int round;
    int buffers;
    void *buffer[CHECK_MAX_BUFFERS]; /* freed after the round */
};

/* A test that runs body `rounds` times on each table, with a seed of its own each round; the first
 * seed is SBP_TEST_SEED from the environment, or 1. */
struct check_rounds {
    void (*body)(struct check *check);
    int rounds;
};
void check_tables(void **state);
#define CHECK_TABLES(body, count)                                                                  \
    ((struct CMUnitTest){#body, check_tables, NULL, NULL, &(struct check_rounds){body, count}})

/* Uniform whole number in [low, high]. */
int64_t check_integer(struct check *check, int64_t low, int64_t high);
/* A size that is often 1 or odd, at most `high`. */
int64_t check_size(struct check *check, int64_t high);

/* n doubles: whole numbers in [-4, 4]; multiples of 1/64 in [-2, 2); zeros. */
double *check_whole(struct check *check, int64_t n);
double *check_uniform(struct check *check, int64_t n);
double *check_zeros(struct check *check, int64_t n);
int32_t *check_ids(struct check *check, int64_t n, int64_t below);
uint8_t *check_bytes(struct check *check, int64_t n);

/* n reals of the table's type: copied, or not-a-number so that what is not written shows. */
void *check_reals(struct check *check, const double *values, int64_t n);
void *check_blank(struct check *check, int64_t n);
double check_at(const struct check *check, const void *reals, int64_t i);
double *check_doubles(struct check *check, const void *reals, int64_t n);

/* The same of the table's wide type: statistics and optimizer states. */
void *check_wide_reals(struct check *check, const double *values, int64_t n);
void *check_wide_blank(struct check *check, int64_t n);
double check_wide_at(const struct check *check, const void *reals, int64_t i);

/* |got - want| <= tolerance (1 + |want|) for all n; `got` holds reals, `want` doubles. With a
 * tolerance of 0 `want` is rounded to the table's type. */
void check_near(const struct check *check, const char *what, const void *got, const double *want,
                int64_t n, double tolerance);
void check_equal(const struct check *check, const char *what, const void *got, const double *want,
                 int64_t n);
void check_wide_near(const struct check *check, const char *what, const void *got,
                     const double *want, int64_t n, double tolerance);
/* f64 for the double table, f32 for the others, which in 16 bits have one rounding more, or so
 * many.
 */
double check_tolerance(const struct check *check, double f32, double f64);
double check_roundings(const struct check *check, double f32, double f64, double roundings);
/* Of values in the wide type. */
double check_wide_tolerance(const struct check *check, double f32, double f64);

/* Central differences of evaluate(context) by each of the n elements of x. */
double *check_gradient(struct check *check, double (*evaluate)(void *context), void *context,
                       double *x, int64_t n);
/* sum a b */
double check_dot(const double *a, const double *b, int64_t n);

/* Dropout of attention's probabilities, of a micro-batch that begins somewhere; p is 0 in half of
 * the rounds. */
struct check_chance {
    double p;
    uint64_t seed, stream;
    int64_t first_sample;
};
struct check_chance check_chance(struct check *check);
/* The same for a kernel, with a mask of so many bytes (0: none); NULL where p is 0. The region's
 * digits say which samples, queries and heads are here; *at is not to be copied. */
struct check_dropping {
    struct sbp_region region;
    struct sbp_attention_dropout dropout;
};
const struct sbp_attention_dropout *check_dropping(struct check *check,
                                                   const struct check_chance *chance,
                                                   int64_t mask_bytes, struct check_dropping *at);
/* What is left of a probability of 1, by definition, of so many heads and keys of all. */
double check_left(const struct check_chance *chance, int64_t sample, int64_t heads, int64_t head,
                  int64_t keys, int64_t query, int64_t key);

/* A dimension of random digits whose split ones await their rank; ranks counts the combinations of
 * their coordinates. */
struct check_split {
    struct sbp_digits whole;
    bool split[SBP_MAX_AXES];
    int64_t ranks, global, local;
};
struct check_split check_split(struct check *check, int64_t highest_rest);
struct sbp_digits check_rank_digits(const struct check_split *split, int64_t rank);
/* The columns (a dimension of `rows` rows) that a rank owns, out of and back into the whole. */
double *check_columns(struct check *check, const double *whole, int64_t rows,
                      const struct sbp_digits *digits);
void check_put_columns(double *whole, const double *part, int64_t rows,
                       const struct sbp_digits *digits);

#endif

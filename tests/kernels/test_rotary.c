/* Rotary embedding against its definition in long double, back, and with the sequence split over
 * simulated ranks. */
#include <math.h>

#include "tests/kernels/check.h"

struct problem {
    int64_t batch, sequence, heads, width, size, elements;
    double *x, *want;
};

static void turn(const struct problem *p, int64_t row, int64_t place, long double direction)
{
    const int64_t half = p->size / 2;
    const double *x = p->x + row * p->width;
    double *to = p->want + row * p->width;
    for (int64_t i = 0; i < p->width; i++)
        to[i] = x[i];
    for (int64_t i = 0; i < half; i++) {
        const long double angle = direction * (long double)place *
                                  powl(10000, -2 * (long double)i / (long double)p->size);
        const long double a = (long double)x[i], b = (long double)x[i + half];
        to[i] = (double)(a * cosl(angle) - b * sinl(angle));
        to[i + half] = (double)(b * cosl(angle) + a * sinl(angle));
    }
}

static struct problem draw(struct check *check, int64_t sequence)
{
    struct problem p = {.batch = check_size(check, 3),
                        .sequence = sequence,
                        .heads = check_size(check, 3),
                        .size = 2 * check_size(check, 20)};
    if (check->round == 0)
        p.size = 600; /* more pairs than are worked on at a time */
    p.width = check_integer(check, 1, 2) * p.size;
    p.elements = p.batch * p.sequence * p.heads * p.width;
    p.x = check_uniform(check, p.elements);
    p.want = check_zeros(check, p.elements);
    return p;
}

static void expect_turned(struct check *check, const struct problem *p, bool back)
{
    const struct sbp_digits rows = {.rest = p->sequence};
    for (int64_t row = 0; row < p->batch * p->sequence * p->heads; row++)
        turn(p, row, row / p->heads % p->sequence, back ? -1 : 1);
    void *x = check_reals(check, p->x, p->elements);
    check->kernels->rotary(x, &rows, p->batch, p->heads, p->width, p->size, back);
    check_near(check, back ? "back" : "turned", x, p->want, p->elements,
               check_tolerance(check, 1e-6, 1e-13));
}

static void definition(struct check *check)
{
    const struct problem p = draw(check, check_size(check, 50));
    expect_turned(check, &p, false);
    expect_turned(check, &p, true);
}

/* A gradient turned back: the inner product with what is turned forward is that of the inputs. */
static void gradient(struct check *check)
{
    const struct problem p = draw(check, check_size(check, 20));
    const struct sbp_digits rows = {.rest = p.sequence};
    double *dy = check_uniform(check, p.elements);
    void *x = check_reals(check, p.x, p.elements), *dx = check_reals(check, dy, p.elements);
    check->kernels->rotary(x, &rows, p.batch, p.heads, p.width, p.size, false);
    check->kernels->rotary(dx, &rows, p.batch, p.heads, p.width, p.size, true);
    const double forward = check_dot(check_doubles(check, x, p.elements), dy, p.elements);
    const double back = check_dot(p.x, check_doubles(check, dx, p.elements), p.elements);
    const double terms = sqrt((double)p.elements);
    assert_true(fabs(forward - back) <= check_roundings(check, 1e-5, 1e-12, 8) * terms);
}

/* A rank's rows are turned by their places in the whole sequence, to the bit. */
static void split_rows(struct check *check)
{
    const struct check_split split = check_split(check, 7);
    struct problem p = draw(check, split.global);
    const struct sbp_digits all = {.rest = p.sequence};
    const int64_t row = p.heads * p.width;
    p.batch = 1;
    void *whole = check_reals(check, p.x, p.sequence * row);
    check->kernels->rotary(whole, &all, 1, p.heads, p.width, p.size, false);
    for (int64_t rank = 0; rank < split.ranks; rank++) {
        const struct sbp_digits rows = check_rank_digits(&split, rank);
        double *own = check_zeros(check, split.local * row);
        double *want = check_zeros(check, split.local * row);
        for (int64_t i = 0; i < split.local * row; i++) {
            const int64_t at = sbp_digits_global(&rows, i / row) * row + i % row;
            own[i] = p.x[at];
            want[i] = check_at(check, whole, at);
        }
        void *x = check_reals(check, own, split.local * row);
        check->kernels->rotary(x, &rows, 1, p.heads, p.width, p.size, false);
        check_equal(check, "split", x, want, split.local * row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(definition, 20),
        CHECK_TABLES(gradient, 20),
        CHECK_TABLES(split_rows, 20),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

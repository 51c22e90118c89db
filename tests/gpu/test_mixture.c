/* Mixtures of experts on the GPU beside their CPU twins in double: the choice, copies there and
 * back, and their weights' gradients. */
#include <math.h>
#include <string.h>

#include "tests/gpu/device.h"

struct problem {
    struct sbp_routing m;
    struct check_split split; /* of the experts over members */
    bool is_split;
    int64_t copies, slots;
    double *scores, *bias; /* bias NULL: none */
};

/* Groups in a third of the problems, else experts split over members in half of them. */
static void draw_router(struct check *check, struct problem *p, int64_t most)
{
    const int kind = (int)check_integer(check, 0, 2);
    p->split = check_split(check, 4);
    p->is_split = kind == 1 && p->split.global <= most;
    p->m.experts = p->is_split ? p->split.global : check_integer(check, 1, most);
    p->m.top_k = check_integer(check, 1, p->m.experts < 9 ? p->m.experts : 9);
    if (kind == 0) {
        const int64_t size = check_integer(check, 1, 12);
        p->m.groups = check_integer(check, 1, 7);
        p->m.most_groups = check_integer(check, 1, p->m.groups);
        p->m.experts = p->m.groups * size;
        p->m.top_k = check_integer(check, p->m.most_groups, p->m.most_groups * size);
    }
}

/* Scores repeat, so that equal ones are chosen between; some are no numbers. */
static struct problem draw(struct check *check, int64_t tokens, int64_t most, int64_t in)
{
    struct problem p = {.m = {.tokens = tokens, .in = in, .sigmoid = check_integer(check, 0, 1)}};
    draw_router(check, &p, most);
    p.m.capacity = check_integer(check, 1, 2 * tokens * p.m.top_k / p.m.experts + 1);
    p.copies = tokens * p.m.top_k;
    p.slots = p.m.experts * p.m.capacity;
    p.scores = check_uniform(check, tokens * p.m.experts);
    if (p.m.sigmoid && check_integer(check, 0, 1) == 1)
        p.bias = check_uniform(check, p.m.experts);
    if (p.bias != NULL && check_integer(check, 0, 2) == 0)
        p.bias[check_integer(check, 0, p.m.experts - 1)] = (double)NAN;
    return p;
}

/* The twin's table. */
static const int32_t *choose(struct device *d, const struct problem *p)
{
    struct check *check = d->check;
    const struct sbp_digits some =
        check_rank_digits(&p->split, check_integer(check, 0, p->split.ranks - 1));
    const struct sbp_digits *held = p->is_split ? &some : NULL;
    int32_t *want = check_ids(check, 2 * p->copies, 9), *got = check_ids(check, 2 * p->copies, 9);
    int32_t *taken = check_ids(check, p->m.experts, 1);
    const void *scores = device_reals(d, p->scores, p->m.tokens * p->m.experts);
    const void *bias = p->bias == NULL ? NULL : device_reals(d, p->bias, p->m.experts);
    d->twin->moe_route(want, taken, p->scores, p->bias, held, &p->m);
    d->kernels.moe_route(&d->cuda, got, scores, bias, held, &p->m);
    device_same(d, "table", got, want, 2 * p->copies * (int64_t)sizeof *want);
    for (int64_t i = 0; held == NULL && i < p->copies; i++)
        want[2 * i + 1] += want[2 * i + 1] < 0 ? 0 : want[2 * i] * (int32_t)p->m.capacity;
    return want;
}

static void dispatch(struct device *d, const struct problem *p, const int32_t *table)
{
    struct check *check = d->check;
    const int64_t rows = p->m.tokens * p->m.in, n = p->slots * p->m.in;
    const double *x = check_uniform(check, rows), *dslots = check_uniform(check, n);
    double *slots = check_zeros(check, n), *dx = check_uniform(check, rows);
    void *to = device_reals(d, NULL, n), *back = device_reals(d, dx, rows);
    d->twin->moe_dispatch(slots, x, table, &p->m);
    d->twin->moe_dispatch_backward(dx, dslots, table, &p->m);
    d->kernels.moe_dispatch(&d->cuda, to, device_reals(d, x, rows), table, &p->m);
    d->kernels.moe_dispatch_backward(&d->cuda, back, device_reals(d, dslots, n), table, &p->m);
    check_equal(check, "slots", to, slots, n);
    check_near(check, "dx", back, dx, rows, check_tolerance(check, 2e-6, 0));
}

static void combine(struct device *d, const struct problem *p, const int32_t *table)
{
    struct check *check = d->check;
    const int64_t rows = p->m.tokens * p->m.in, n = p->slots * p->m.in;
    const int64_t scores = p->m.tokens * p->m.experts;
    const double *slots = check_uniform(check, n), *dy = check_uniform(check, rows);
    double *y = check_zeros(check, rows), *dslots = check_zeros(check, n);
    const void *from = device_reals(d, slots, n);
    void *to = device_reals(d, NULL, rows), *back = device_reals(d, NULL, n);
    void *dscores = device_reals(d, p->scores, scores);
    d->twin->moe_combine(y, slots, p->scores, table, &p->m);
    d->kernels.moe_combine(&d->cuda, to, from, dscores, table, &p->m);
    d->twin->moe_combine_backward(dslots, p->scores, dy, slots, table, &p->m);
    d->kernels.moe_combine_backward(&d->cuda, back, dscores, device_reals(d, dy, rows), from, table,
                                    &p->m);
    check_near(check, "y", to, y, rows, check_tolerance(check, 3e-6, 0));
    check_near(check, "dslots", back, dslots, n, check_tolerance(check, 2e-6, 0));
    check_near(check, "dscores", dscores, p->scores, scores, check_tolerance(check, 2e-5, 0));
}

static void run(struct check *check, struct device *d, const struct problem *p)
{
    const int32_t *const table = choose(d, p);
    (void)check;
    dispatch(d, p, table);
    combine(d, p, table);
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t tokens = check_size(check, 40), in = device_columns(check, 40);
    const struct problem p = draw(check, tokens, 40, in);
    run(check, &d, &p);
}

/* Rows longer than a block takes in one turn, and copies more than a block counts in one. */
static void large(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct problem rows = draw(check, 1, 3, 2100), copies = draw(check, 141, 3, 1);
    run(check, &d, &rows);
    run(check, &d, &copies);
}

/* The most experts, each a group of its own, so that a warp takes most of shared memory; and one
 * more, which is refused as a launch is. */
static void most(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t experts = SBP_CUDA_MOST_EXPERTS;
    struct problem p = {
        .m = {.tokens = 3, .experts = experts, .top_k = 4, .groups = experts, .most_groups = 4}};
    p.split = check_split(check, 4); /* is not used */
    p.m.capacity = 1;
    p.copies = p.m.tokens * p.m.top_k;
    p.scores = check_uniform(check, p.m.tokens * experts);
    (void)choose(&d, &p);
    assert_int_equal(d.cuda.error, 0);
    p.m.experts++;
    d.kernels.moe_route(&d.cuda, check_ids(check, 2 * p.copies, 1), NULL, NULL, NULL, &p.m);
    assert_int_equal(d.cuda.error, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 14),
        CHECK_TABLES(large, 1),
        CHECK_TABLES(most, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Attention against the definition in long double, by central differences, and materialised
 * against flash; sequences reach over several tiles. */
#include <math.h>

#include "tests/kernels/check.h"

struct problem {
    struct sbp_attention_shape shape;
    int64_t outputs; /* elements of y; qkv has three times as many */
    double *qkv, *dy, *y;
};

static void resize(struct check *check, struct problem *p, struct sbp_attention_shape shape)
{
    p->shape = shape;
    p->outputs = shape.batch * shape.sequence * shape.heads * shape.head_size;
    p->qkv = check_uniform(check, 3 * p->outputs);
    p->dy = check_uniform(check, p->outputs);
    p->y = check_zeros(check, p->outputs);
}

static struct problem draw(struct check *check, int64_t longest)
{
    struct problem p = {.shape = {.batch = check_size(check, 3),
                                  .sequence = check_size(check, longest),
                                  .heads = check_size(check, 3),
                                  .head_size = check_size(check, 9),
                                  .causal = check_integer(check, 0, 1) == 1}};
    resize(check, &p, p.shape);
    return p;
}

/* qkv(B,S,H,3,D): where q (part 0), k (1) or v (2) of one token and head begins. */
static const double *part(const struct problem *p, int64_t b, int64_t s, int64_t h, int64_t which)
{
    const struct sbp_attention_shape *shape = &p->shape;
    return p->qkv + (((b * shape->sequence + s) * shape->heads + h) * 3 + which) * shape->head_size;
}

static void naive_row(const struct problem *p, int64_t b, int64_t s, int64_t h, double *y)
{
    const struct sbp_attention_shape *shape = &p->shape;
    const int64_t keys = shape->causal ? s + 1 : shape->sequence;
    long double total = 0, sum[512] = {0};
    for (int64_t j = 0; j < keys; j++) {
        const double score = check_dot(part(p, b, s, h, 0), part(p, b, j, h, 1), shape->head_size);
        const long double weight = expl((long double)score / sqrtl((long double)shape->head_size));
        total += weight;
        for (int64_t d = 0; d < shape->head_size; d++)
            sum[d] += weight * (long double)part(p, b, j, h, 2)[d];
    }
    for (int64_t d = 0; d < shape->head_size; d++)
        y[d] = (double)(sum[d] / total);
}

static double *naive_forward(const struct problem *p)
{
    const struct sbp_attention_shape *shape = &p->shape;
    for (int64_t i = 0; i < p->outputs / shape->head_size; i++)
        naive_row(p, i / shape->heads / shape->sequence, i / shape->heads % shape->sequence,
                  i % shape->heads, p->y + i * shape->head_size);
    return p->y;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    return check_dot(naive_forward(p), p->dy, p->outputs);
}

/* Probabilities, or a log-sum-exp a row, which is wide. */
static int64_t saved_elements(const struct sbp_attention_shape *shape)
{
    const int64_t rows = shape->batch * shape->heads * shape->sequence;
    return shape->kind == SBP_ATTENTION_FLASH ? rows : rows * shape->sequence;
}

struct result {
    void *y, *dqkv;
};

static struct result run(struct check *check, const struct problem *p, enum sbp_attention_kind kind)
{
    struct sbp_attention_shape shape = p->shape;
    shape.kind = kind;
    void *saved = kind == SBP_ATTENTION_FLASH ? check_wide_blank(check, saved_elements(&shape))
                                              : check_blank(check, saved_elements(&shape));
    void *scratch = check_blank(check, sbp_attention_scratch_elements(&shape));
    const void *qkv = check_reals(check, p->qkv, 3 * p->outputs);
    struct result result = {check_blank(check, p->outputs), check_blank(check, 3 * p->outputs)};
    check->kernels->attention_forward(result.y, saved, scratch, qkv, &shape);
    scratch = check_blank(check, sbp_attention_scratch_elements(&shape));
    check->kernels->attention_backward(result.dqkv, scratch, check_reals(check, p->dy, p->outputs),
                                       qkv, result.y, saved, &shape);
    return result;
}

static void definition(struct check *check)
{
    struct problem p = draw(check, 9);
    const double *gradient = check_gradient(check, evaluate, &p, p.qkv, 3 * p.outputs);
    const double *y = naive_forward(&p);
    for (int kind = 0; kind < 2; kind++) {
        const struct result got =
            run(check, &p, kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED);
        check_near(check, "y", got.y, y, p.outputs, check_tolerance(check, 2e-6, 1e-14));
        check_near(check, "dqkv", got.dqkv, gradient, 3 * p.outputs,
                   check_roundings(check, 1e-5, 1e-8, 8));
    }
}

/* Several tiles, of which the last is cut. */
static void long_sequences(struct check *check)
{
    struct problem p = draw(check, 200);
    if (check->round == 0) /* more features than kernels of 16 bits take at a time */
        resize(check, &p, (struct sbp_attention_shape){1, 70, 2, 300, true, p.shape.kind});
    const double *y = naive_forward(&p);
    const struct result flash = run(check, &p, SBP_ATTENTION_FLASH);
    const struct result kept = run(check, &p, SBP_ATTENTION_MATERIALISED);
    check_near(check, "flash y", flash.y, y, p.outputs, check_tolerance(check, 5e-6, 1e-13));
    check_near(check, "materialised y", kept.y, y, p.outputs, check_tolerance(check, 5e-6, 1e-13));
    check_near(check, "flash dqkv", flash.dqkv, check_doubles(check, kept.dqkv, 3 * p.outputs),
               3 * p.outputs, check_roundings(check, 3e-5, 1e-13, 8));
}

/* Scores far beyond exp's range, whose maximum moves from tile to tile. */
static void large_scores(struct check *check)
{
    struct problem p = {.shape = {.batch = 1, .sequence = 150, .heads = 1, .head_size = 1},
                        .outputs = 150};
    p.qkv = check_zeros(check, 450);
    p.dy = check_zeros(check, 150);
    double *want = check_zeros(check, 150);
    for (int64_t s = 0; s < 150; s++) {
        p.qkv[3 * s] = 1; /* the last key wins by far */
        p.qkv[3 * s + 1] = (double)(200 * s);
        p.qkv[3 * s + 2] = (double)s;
        want[s] = 149;
    }
    check_equal(check, "flash", run(check, &p, SBP_ATTENTION_FLASH).y, want, 150);
    check_equal(check, "materialised", run(check, &p, SBP_ATTENTION_MATERIALISED).y, want, 150);
}

/* Materialised attention saves the probabilities: rows sum to 1 and no query looks ahead. */
static void saved_probabilities(struct check *check)
{
    struct problem p = draw(check, 150);
    struct sbp_attention_shape shape = p.shape;
    shape.kind = SBP_ATTENTION_MATERIALISED;
    const int64_t n = saved_elements(&shape), sequence = shape.sequence;
    void *saved = check_blank(check, n), *y = check_blank(check, p.outputs);
    check->kernels->attention_forward(y, saved,
                                      check_blank(check, sbp_attention_scratch_elements(&shape)),
                                      check_reals(check, p.qkv, 3 * p.outputs), &shape);
    double *sums = check_zeros(check, n / sequence), *ones = check_zeros(check, n / sequence);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / sequence;
        const double value = check_at(check, saved, i);
        assert_true(value >= 0 && (!shape.causal || i % sequence <= row % sequence || value == 0));
        sums[row] += value;
        ones[row] = 1;
    }
    check_near(check, "sums", check_reals(check, sums, n / sequence), ones, n / sequence,
               check_roundings(check, 1e-6, 1e-14, 2));
}

int main(void)
{
    sbp_kernels_cpu_setup();
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(definition, 30),
        CHECK_TABLES(long_sequences, 12),
        CHECK_TABLES(large_scores, 1),
        CHECK_TABLES(saved_probabilities, 10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

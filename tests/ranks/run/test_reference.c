/* Oracles of the verification's own: central differences, and single-precision updates. */
#include <malloc.h>
#include <math.h>
#include <string.h>

#include "base/math/half.h"
#include "executor/verify/reference_priv.h"
#include "executor/verify/textbook_priv.h"
#include "run_checks.h"

/* ---- the reference ------------------------------------------------------------------------- */

static double loss_with(struct sbp_reference *reference, double *weight, double value)
{
    struct sbp_diag diag = {0};
    const double kept = *weight;
    *weight = value;
    expect_ok(sbp_reference_run(reference, 1, &diag), &diag);
    *weight = kept;
    return reference->loss;
}

/* An element of a parameter and its gradient, before anything is moved. */
struct pick {
    int tensor;
    int64_t at;
    double gradient;
};

/* The loss moves by a gradient's element as its weight moves: central differences, of two widths so
 * that places where a relu bends in between tell themselves. */
static void check_pick(struct sbp_reference *reference, const char *model, const struct pick *pick,
                       int *checked)
{
    static const double H = 0x1p-14;
    double *weight = &sbp_reference_weight(reference, pick->tensor)[pick->at];
    const double value = *weight;
    const double near =
        (loss_with(reference, weight, value + H) - loss_with(reference, weight, value - H)) /
        (2 * H);
    const double far = (loss_with(reference, weight, value + 2 * H) -
                        loss_with(reference, weight, value - 2 * H)) /
                       (4 * H);
    if (fabs(near - far) > 1e-6 * (fabs(near) + 1e-3))
        return;
    ++*checked;
    if (!(fabs(pick->gradient - near) <= 2e-6 * (fabs(near) + 1e-3)))
        fail_msg("seed %llu, %s of %s, element %lld: gradient %.12g, central difference %.12g",
                 (unsigned long long)seed, reference->graph.tensor[pick->tensor].name, model,
                 (long long)pick->at, pick->gradient, near);
}

/* One element of every parameter. */
static void check_gradients(struct sbp_reference *reference, struct sbp_random *random,
                            const char *model, int *checked)
{
    enum { MOST = 64 };
    struct pick picks[MOST];
    int count = 0;
    for (int t = 0; t < reference->graph.tensor_count; t++) {
        const int buffer = reference->program->weight_buffer[t];
        if (buffer < 0)
            continue;
        const int64_t elements = reference->program->buffer[buffer].elements;
        const int64_t at = (int64_t)sbp_random_below(random, (uint64_t)elements);
        assert_true(count < MOST);
        picks[count++] = (struct pick){t, at, sbp_reference_gradient(reference, t)[at]};
    }
    for (int i = 0; i < count; i++)
        check_pick(reference, model, &picks[i], checked);
}

/* The verification trusts the reference's gradients, and takes the run's weights as they are: the
 * ones are held to its loss, the others (made block by block) to the loss of the run's first step.
 */
static void check_reference(const struct plan *plan, const char *model, struct sbp_random *random,
                            int *checked)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_reference reference;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    options.verify = false;
    run_plan(plan, &options, model, &result);
    const struct sbp_reference_of of = {
        .graph = &plan->graph, .cluster = &plan->cluster, .seed = options.seed, .real = SBP_F64};
    expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
    assert_int_equal(sbp_rank_fill_weights(&reference.rank), SBP_OK);
    assert_int_equal(sbp_rank_fill_weights(&reference.shadow), SBP_OK);
    expect_ok(sbp_reference_run(&reference, 1, &diag), &diag);
    if (!(fabs(reference.loss - result.step[0].loss) <= 1e-12 * fabs(reference.loss)))
        fail_msg("seed %llu, %s: loss %.17g, of one device %.17g", (unsigned long long)seed, model,
                 result.step[0].loss, reference.loss);
    check_gradients(&reference, random, model, checked);
    sbp_reference_close(&reference);
    sbp_run_free(&result);
}

static void references_hold(void **state)
{
    enum { MODELS = 9 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, models = 0;
    (void)state;
    sbp_random_seed(&random, seed + 500);
    for (int tries = 0; models < MODELS && tries < MOST_TRIES; tries++) {
        struct plan plan;
        open_random(&random, models % 3, true, false, SBP_BOXING_FULL, SBP_F64, model, &plan);
        if (plan.program->loss_buffer >= 0) {
            check_reference(&plan, model, &random, &checked);
            models++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d models, %d gradients are central differences\n",
                  (unsigned long long)seed, models, checked);
    assert_int_equal(models, MODELS);
    assert_true(checked > 5 * MODELS);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
/* Bytes that the C library has handed out; sanitizers hand out their own. */
static double allocated(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

static void check_counted(bool is_sampled, double operands)
{
    static const char model[] =
        "{\"name\": \"large\", \"precision\": \"fp32\", \"global_batch\": 256, \"sequence\": 1, "
        "\"input\": \"free\", \"layers\": [{\"op\": \"linear\", \"name\": \"fc1\", "
        "\"in\": 2048, \"out\": 1024}, {\"op\": \"gelu\"}, {\"op\": \"linear\", "
        "\"name\": \"fc2\", \"out\": 512}, {\"op\": \"cross_entropy\"}]}";
    struct sbp_reference reference;
    struct sbp_diag diag = {0};
    struct plan plan;
    double counted;
    plan_open(&plan, model, (const int[]){2, 0});
    const double before = allocated();
    const struct sbp_reference_of of = {.graph = &plan.graph,
                                        .cluster = &plan.cluster,
                                        .seed = 1,
                                        .real = SBP_F32,
                                        .is_sampled = is_sampled};
    expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
    const double taken = allocated() - before;
    expect_ok(sbp_reference_bytes(&of, &counted, &diag), &diag);
    if (before > 0 && !(fabs(taken + operands - counted) <= 0.01 * counted))
        fail_msg("sampled %d: opening takes %.0f bytes, counted are %.0f with %.0f of operands",
                 is_sampled, taken, counted, operands);
    sbp_reference_close(&reference);
    plan_close(&plan);
}

/* Counted from compiled programs: what opening allocates, and the operands of one product, of which
 * a sample has 32 features. */
static void counted_bytes_are_allocated(void **state)
{
    (void)state;
    check_counted(false, 256 * (2048 + 1024) * 8);
    check_counted(true, 256 * (2048 * 8 + 32 * 20));
}
#else
static void counted_bytes_are_allocated(void **state)
{
    (void)state;
    skip();
}
#endif

/* ---- updates ------------------------------------------------------------------------------- */

static struct sbp_update random_update(struct sbp_random *random)
{
    return (struct sbp_update){.optimizer = (enum sbp_optimizer)sbp_random_below(random, 3),
                               .learning_rate = 0.1 * sbp_random_unit(random),
                               .momentum = sbp_random_below(random, 2) ? 0.9 : 0,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .weight_decay = sbp_random_below(random, 2) ? 0.1 : 0,
                               .gradient_scale = sbp_random_below(random, 2) ? 1 : 0.3,
                               .loss_scale = 1,
                               .step = 1 + (int64_t)sbp_random_below(random, 5)};
}

/* A value of any size, so that gradients cancel against decay and moments, and vanish. */
static float random_value(struct sbp_random *random)
{
    const double power = 24 * sbp_random_unit(random) - 20;
    const double value = sbp_random_below(random, 16) == 0 ? 0 : pow(10, power);
    return (float)(sbp_random_below(random, 2) ? value : -value);
}

static bool off_bound(double run, double reference, double bound)
{
    return !(fabs(run - reference) <= bound);
}

/* The single-precision kernel stays within the textbook's bound; a rate off by 1 % does not. */
static void updates_follow_the_textbook(void **state)
{
    enum { ROUNDS = 20000 };
    const struct sbp_kernels *kernels = sbp_kernels_cpu(SBP_F32);
    struct sbp_random random;
    int found = 0, moved = 0;
    (void)state;
    sbp_random_seed(&random, seed + 7);
    for (int i = 0; i < ROUNDS; i++) {
        struct sbp_update update = random_update(&random);
        const struct sbp_textbook textbook = sbp_textbook_make(&update, 0x1p-24);
        const float gradient = random_value(&random);
        float weight = random_value(&random), first = random_value(&random);
        float second = fabsf(random_value(&random));
        const struct sbp_parameter before = {(double)weight, (double)first, (double)second};
        float wrong[3] = {weight, first, second};
        struct sbp_parameter after, bound;
        sbp_textbook_update(&textbook, (double)gradient, &before, &after, &bound);
        kernels->update(&weight, NULL, &gradient, NULL, &first, &second, 1, &update);
        if (off_bound((double)weight, after.weight, bound.weight) ||
            off_bound((double)first, after.first, bound.first) ||
            off_bound((double)second, after.second, bound.second))
            fail_msg("seed %llu, optimizer %d, step %lld, w %g m %g v %g g %g: kernel (%.9g, %.9g, "
                     "%.9g), textbook (%.9g, %.9g, %.9g), bounds (%.3g, %.3g, %.3g)",
                     (unsigned long long)seed, (int)update.optimizer, (long long)update.step,
                     before.weight, before.first, before.second, (double)gradient, (double)weight,
                     (double)first, (double)second, after.weight, after.first, after.second,
                     bound.weight, bound.first, bound.second);
        update.learning_rate *= 1.01;
        kernels->update(&wrong[0], NULL, &gradient, NULL, &wrong[1], &wrong[2], 1, &update);
        if (fabs(after.weight - before.weight) > 1e-3 * fabs(before.weight)) {
            moved++;
            found += off_bound((double)wrong[0], after.weight, bound.weight);
        }
    }
    assert_true(moved > ROUNDS / 20);
    assert_true(found > moved * 9 / 10);
}

/* Updates of 16-bit weights are those of their master copies, whose rounded values they become. */
static void updates_of_16_bits_are_their_masters(void **state)
{
    enum { ROUNDS = 2000 };
    static const enum sbp_real reals[] = {SBP_REAL_BF16, SBP_REAL_FP16};
    const struct sbp_kernels *wide = sbp_kernels_cpu(SBP_F32);
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 8);
    for (int i = 0; i < ROUNDS; i++) {
        const struct sbp_kernels *kernels = sbp_kernels_cpu(reals[i % 2]);
        const struct sbp_update update = random_update(&random);
        const float drawn = random_value(&random), weight = random_value(&random);
        const float first = random_value(&random), second = fabsf(random_value(&random));
        double gradient16, weight16, rounded; /* room for any real */
        float converted, own[3] = {weight, first, second}, master[3] = {weight, first, second};
        kernels->from_wide(&gradient16, &drawn, 1);
        const float gradient = (float)sbp_half_get(reals[i % 2], &gradient16, 0);
        wide->update(&own[0], NULL, &gradient, NULL, &own[1], &own[2], 1, &update);
        kernels->update(&weight16, &master[0], &gradient16, &converted, &master[1], &master[2], 1,
                        &update);
        kernels->from_wide(&rounded, &own[0], 1);
        if (memcmp(own, master, sizeof own) != 0 ||
            memcmp(&weight16, &rounded, sizeof(uint16_t)) != 0)
            fail_msg("seed %llu, optimizer %d: masters (%g, %g, %g), in 32 bits (%g, %g, %g)",
                     (unsigned long long)seed, (int)update.optimizer, (double)master[0],
                     (double)master[1], (double)master[2], (double)own[0], (double)own[1],
                     (double)own[2]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_hold),
        cmocka_unit_test(counted_bytes_are_allocated),
        cmocka_unit_test(updates_follow_the_textbook),
        cmocka_unit_test(updates_of_16_bits_are_their_masters),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

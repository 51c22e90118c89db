/* Runs whose tensors have 16 bits: against one device in double, with planted faults, and with
 * gradients that overflow. */
#include <math.h>
#include <string.h>

#include "executor/verify/loss_scale.h"
#include "run_checks.h"

/* Several steps: where a gradient is large, the first ones overflow in half precision. */
static struct sbp_run_options half_options(enum sbp_real real, struct sbp_random *random)
{
    struct sbp_run_options options = options_for(real, random);
    options.steps = real == SBP_REAL_FP16 ? 8 : 2;
    return options;
}

static void check_half(int kind, int most, bool cut, enum sbp_real real)
{
    const int count = draws(most);
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + 1100 + (uint64_t)(10 * kind) + (uint64_t)real);
    for (int i = 0; i < count; i++) {
        struct plan plan;
        open_random(&random, kind, i % 2 == 0, cut, SBP_BOXING_FULL, real, model, &plan);
        const struct sbp_run_options options = half_options(real, &random);
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu, %s: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, sbp_real_name(real), count, worst);
}

static void bfloat16_equals_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++) {
        check_half(kind, 15, false, SBP_REAL_BF16);
        check_half(kind, 10, true, SBP_REAL_BF16);
    }
    check_half(GATED, 6, false, SBP_REAL_BF16);
    check_half(LLAMA, 4, true, SBP_REAL_BF16);
}

static void half_precision_equals_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++) {
        check_half(kind, 8, false, SBP_REAL_FP16);
        check_half(kind, 6, true, SBP_REAL_FP16);
    }
    check_half(GATED, 4, false, SBP_REAL_FP16);
    check_half(LLAMA, 1, true, SBP_REAL_FP16);
}

static void pipelines_equal_one_device(void **state)
{
    const int plans = draws(48);
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    struct tally tally = {0};
    (void)state;
    sbp_random_seed(&random, seed + 1150);
    for (int tries = 0; tally.plans < plans && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        const enum sbp_real real = tally.plans % 2 == 0 ? SBP_REAL_BF16 : SBP_REAL_FP16;
        random_model(&random, tally.plans % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if ((tries % 3 == 2 ? plan_cut_cyclic : plan_cut_stages)(&plan, &random)) {
            plan_draw_owner(&plan, random);
            plan_randomise(&plan, &random, tally.plans % 4 < 2, SBP_BOXING_FULL, real);
            if (has_alike_ties(&plan)) {
                const struct sbp_run_options options = half_options(real, &random);
                check_run(&plan, &options, model, &worst);
                count_plan(&tally, &plan);
            }
        }
        plan_close(&plan);
    }
    print_message("largest difference / bound %.3f\n", worst);
    expect_all(&tally, plans);
}

/* ---- overflows ------------------------------------------------------------------------------ */

/* A random model, also in stages, in half precision. */
static bool open_scaled(struct sbp_random *random, int tries, char *model, struct plan *plan)
{
    const bool staged = tries % 2 == 0;
    random_model(random, tries % 3, model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    if (staged && !plan_cut_stages(plan, random))
        return false;
    if (!staged)
        plan_cut_step(plan, random);
    plan_randomise(plan, random, false, SBP_BOXING_FULL, SBP_REAL_FP16);
    return has_alike_ties(plan);
}

/* A GPT in stages without a flush, whose gradients do not overflow by themselves in every step. */
static bool open_cyclic(struct sbp_random *random, int tries, char *model, struct plan *plan)
{
    (void)tries;
    random_model(random, GPT, model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    if (!plan_cut_cyclic(plan, random) || plan->parallel.pipeline == 1)
        return false;
    plan_randomise(plan, random, false, SBP_BOXING_FULL, SBP_REAL_FP16);
    return has_alike_ties(plan);
}

/* A random instruction of a piece that forms nothing but gradients of weights, or else one that
 * sums the norm, as the first chunk's do for all; -1: there is none. */
static int find_planted(const struct sbp_program *program, struct sbp_random *random, bool norm)
{
    int found = -1, seen = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const bool sums_norm =
            (instr->kind == SBP_INSTR_REDUCE || instr->kind == SBP_INSTR_INNER) && instr->op < 0;
        const bool forms = instr->kind == SBP_INSTR_BACKWARD && instr->buffer[SBP_AT_OUT] < 0 &&
                           instr->buffer[SBP_AT_DW] >= 0;
        if ((norm ? sums_norm : forms) && sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    }
    return found;
}

/* Runs plans with a planted fault; check says what must have come of it. */
static void plant(uint64_t stream, enum sbp_fault fault, bool norm,
                  bool (*open)(struct sbp_random *random, int tries, char *model,
                               struct plan *plan),
                  void (*check)(const struct plan *plan, const struct sbp_run_options *options,
                                const struct sbp_run_result *result))
{
    enum { PLANS = 12 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0, staged = 0;
    sbp_random_seed(&random, seed + stream);
    for (int tries = 0; planted < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        if (open(&random, tries, model, &plan)) {
            struct sbp_run_options options = options_for(SBP_REAL_FP16, &random);
            struct sbp_run_result result;
            options.steps = 3;
            options.fault = fault;
            const int pieces = norm ? plan.step.stages : plan.step.pieces;
            options.fault_piece = (int)sbp_random_below(&random, (uint64_t)pieces);
            options.fault_instr =
                find_planted(&plan.step.program[options.fault_piece], &random, norm);
            if (options.fault_instr >= 0) {
                run_plan(&plan, &options, model, &result);
                check(&plan, &options, &result);
                sbp_run_free(&result);
                planted++;
                staged += plan.step.stages > 1;
            }
        }
        plan_close(&plan);
    }
    assert_int_equal(planted, PLANS);
    assert_true(staged > PLANS / 6);
}

/* Verification has compared the states of every rank before and after, bit for bit. */
static void expect_left_out(const struct plan *plan, const struct sbp_run_options *options,
                            const struct sbp_run_result *result)
{
    char text[512];
    (void)plan;
    (void)options;
    if (result->finding.found)
        fail_msg("%s", sbp_verify_finding_text(&result->finding, text, (int)sizeof text));
    assert_true(result->step[1].left_out);
    assert_true(result->step[0].loss_scale == 0x1p16);
    assert_true(result->step[2].loss_scale == result->step[1].loss_scale / 2);
}

static void an_infinity_on_one_rank_stops_all(void **state)
{
    (void)state;
    plant(1200, SBP_FAULT_INFINITY, false, open_scaled, expect_left_out);
}

static int versions_checked;

static void expect_newest(const struct plan *plan, const struct sbp_run_options *options,
                          const struct sbp_run_result *result)
{
    expect_left_out(plan, options, result);
    versions_checked += !result->step[0].left_out && !result->step[2].left_out;
}

/* The step behind one that is left out reads the newest weights, as verification has it: the two
 * versions of a weight differ by then. */
static void a_step_without_update_keeps_versions(void **state)
{
    (void)state;
    versions_checked = 0;
    plant(1500, SBP_FAULT_INFINITY, false, open_cyclic, expect_newest);
    assert_true(versions_checked >= 6);
}

static void expect_finding(const struct plan *plan, const struct sbp_run_options *options,
                           const struct sbp_run_result *result, const char *what, int step)
{
    assert_true(result->finding.found);
    assert_string_equal(result->finding.what, what);
    assert_int_equal(result->finding.step, step);
    assert_int_equal(result->finding.rank,
                     (options->fault_piece % plan->step.stages + 1) * plan->step.mesh.devices - 1);
}

static int overflows_checked;

/* Where rank 0 leaves the step out as well, gradients of the model overflow anyway. */
static void expect_overflow(const struct plan *plan, const struct sbp_run_options *options,
                            const struct sbp_run_result *result)
{
    if (result->step[1].left_out)
        return;
    expect_finding(plan, options, result, "overflow", 2);
    overflows_checked++;
}

/* One rank sees a norm that the others do not. */
static void an_overflow_of_one_rank_is_found(void **state)
{
    (void)state;
    overflows_checked = 0;
    plant(1300, SBP_FAULT_INFINITY, true, open_scaled, expect_overflow);
    assert_true(overflows_checked >= 4);
}

static void expect_scale(const struct plan *plan, const struct sbp_run_options *options,
                         const struct sbp_run_result *result)
{
    expect_finding(plan, options, result, "loss scale", 1);
}

static void another_loss_scale_on_one_rank_is_found(void **state)
{
    (void)state;
    plant(1400, SBP_FAULT_LOSS_SCALE, false, open_scaled, expect_scale);
}

/* Grown after 2000 good steps, halved by each overflow, never below 1. */
static void loss_scales_follow_overflows(void **state)
{
    struct sbp_loss_scaler scaler = sbp_loss_scaler(true), off = sbp_loss_scaler(false);
    (void)state;
    sbp_loss_scaler_begin_step(&scaler);
    for (int step = 1; step <= 2000; step++) {
        assert_true(scaler.scale == 0x1p16);
        sbp_loss_scaler_begin_step(&scaler);
    }
    assert_true(scaler.scale == 0x1p17);
    for (int step = 1; step <= 1999; step++)
        sbp_loss_scaler_begin_step(&scaler);
    scaler.overflowed = true;
    sbp_loss_scaler_begin_step(&scaler);
    assert_true(scaler.scale == 0x1p16 && !scaler.overflowed && scaler.good_steps == 0);
    for (int step = 0; step < 40; step++) {
        scaler.overflowed = true;
        sbp_loss_scaler_begin_step(&scaler);
    }
    assert_true(scaler.scale == 1 && scaler.left_out == 41);
    off.overflowed = true;
    sbp_loss_scaler_begin_step(&off);
    assert_true(off.scale == 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bfloat16_equals_one_device),
        cmocka_unit_test(half_precision_equals_one_device),
        cmocka_unit_test(pipelines_equal_one_device),
        cmocka_unit_test(an_infinity_on_one_rank_stops_all),
        cmocka_unit_test(a_step_without_update_keeps_versions),
        cmocka_unit_test(an_overflow_of_one_rank_is_found),
        cmocka_unit_test(another_loss_scale_on_one_rank_is_found),
        cmocka_unit_test(loss_scales_follow_overflows),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

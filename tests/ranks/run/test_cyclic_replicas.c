/* Cyclic data parallelism on replicas: a stage has the whole model and one micro-batch, and sums of
 * gradients go from one to the next. Held to the literal recurrence in double on one device, and to
 * the same bits as all micro-batches on one stage. */
#include <math.h>
#include <string.h>

#include "cyclic_plans.h"

enum { STEPS = 4 };

static void replicas_follow_the_recurrence(void **state)
{
    (void)state;
    worst_of_recurrence = 0;
    for_placed(plan_cut_replicas, 900, SBP_F64, 60, check_recurrence);
    for_placed(plan_cut_replicas, 1000, SBP_F32, 20, check_recurrence);
    print_message("largest difference / bound %.3f\n", worst_of_recurrence);
}

static void replicas_run_on(void **state)
{
    (void)state;
    for_placed(plan_cut_replicas, 1100, SBP_F64, 20, check_running_on);
}

static void replicas_train_the_same_bits(void **state)
{
    (void)state;
    compared_bits = 0;
    for_placed(plan_cut_replicas, 1200, SBP_F32, 30, check_bits);
    assert_true(compared_bits > 40);
}

/* A replica has one version of its weights, a second sum of gradients, and one micro-batch of each
 * chunk; runs check that arenas have room for just these. */
static void check_memory(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int chunks = plan->step.pieces;
    struct plan together;
    int64_t held = 0, work = 0;
    (void)random;
    (void)model;
    place_together(plan, SBP_F64, &together);
    for (int chunk = 0; chunk < chunks; chunk++) {
        const struct sbp_program *program = sbp_step_chunk(&plan->step, 0, chunk);
        const int64_t besides =
            program->arena_bytes - program->persistent_bytes - program->kept_bytes;
        held += program->persistent_bytes + program->kept_bytes;
        work = besides > work ? besides : work;
    }
    for (int stage = 0; stage < plan->step.stages; stage++) {
        const struct sbp_stage_memory *own = &plan->step.memory[stage];
        const struct sbp_stage_memory *all = &together.step.memory[0];
        const bool older = plan->parallel.schedule == SBP_CDP_V1;
        assert_int_equal(own->device_bytes, held + work);
        assert_int_equal(own->gradient_bytes, 2 * all->gradient_bytes);
        assert_int_equal(own->moment_bytes, all->moment_bytes);
        if (older)
            assert_int_equal(2 * own->weight_bytes, all->weight_bytes);
        else
            assert_true(own->weight_bytes <= all->weight_bytes);
        assert_int_equal(own->in_flight, chunks);
    }
    sbp_step_free(&together.step);
}

static void replicas_hold_one_version(void **state)
{
    (void)state;
    for_placed(plan_cut_replicas, 1300, SBP_F64, 30, check_memory);
}

static void tasks_take_as_long_as_the_timeline(void **state)
{
    (void)state;
    alike_steps = 0;
    for_placed(plan_cut_replicas, 1400, SBP_F64, 20, check_prediction);
    print_message("%d of 20 as long as the timeline\n", alike_steps);
    assert_true(alike_steps > 6);
}

/* ---- faults -------------------------------------------------------------------------------- */

static int planted, found;

/* Plants a fault in the first such instruction of a chunk with weights, on a stage. */
static void check_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                        enum sbp_fault fault, enum sbp_instr_kind kind, enum sbp_section section,
                        int stage, const char *what)
{
    const int chunk = (int)sbp_random_below(random, (uint64_t)plan->step.pieces);
    const struct sbp_program *program = sbp_step_chunk(&plan->step, stage, chunk);
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    int instr = 0;
    while (instr < program->instr_count &&
           (program->instr[instr].kind != kind || program->instr[instr].section != section))
        instr++;
    if (instr == program->instr_count)
        return;
    options.steps = STEPS;
    plant_fault(&options, fault, chunk * plan->step.stages + stage, instr);
    run_plan(plan, &options, model, &result);
    planted++;
    if (result.finding.found) {
        char text[512];
        found++;
        (void)sbp_verify_finding_text(&result.finding, text, (int)sizeof text);
        if (strstr(text, what) == NULL) {
            describe_plan(plan, model);
            fail_msg("planted in %s, found as: %s", what, text);
        }
    }
    sbp_run_free(&result);
}

/* The stage of the last micro-batch adds its gradient to nothing. */
static void check_dropped(const struct plan *plan, struct sbp_random *random, const char *model)
{
    check_fault(plan, random, model, SBP_FAULT_SKIP, SBP_INSTR_TAKE, SBP_SECTION_BACKWARD, 0,
                "gradient");
}

/* The stage of the first micro-batch gets zeros for the finished sum. */
static void check_unfinished(const struct plan *plan, struct sbp_random *random, const char *model)
{
    check_fault(plan, random, model, SBP_FAULT_SKIP, SBP_INSTR_TAKE, SBP_SECTION_STEP,
                plan->step.stages - 1, "gradient");
}

/* A stage goes back to the weights of the first step, whatever it updates. */
static void check_stale(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int stage = (int)sbp_random_below(random, (uint64_t)plan->step.stages);
    check_fault(plan, random, model, SBP_FAULT_STALE, SBP_INSTR_UPDATE, SBP_SECTION_STEP, stage,
                "weight");
}

static void expect_found(const char *fault)
{
    print_message("%s: %d planted, %d found\n", fault, planted, found);
    assert_true(planted > 6 && 10 * found >= 8 * planted); /* a gradient may be zeros */
    planted = found = 0;
}

static void faults_are_found(void **state)
{
    (void)state;
    for_placed(plan_cut_replicas, 1500, SBP_F64, 15, check_dropped);
    expect_found("dropped");
    for_placed(plan_cut_replicas, 1600, SBP_F64, 15, check_unfinished);
    expect_found("unfinished");
    for_placed(plan_cut_replicas, 1700, SBP_F64, 15, check_stale);
    expect_found("stale");
}

static int odd;

/* NaN in one replica's gradient ends the run on all of them, and is found again. */
static void check_odd(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int stages = plan->step.stages, chunk = (int)sbp_random_below(random, (uint64_t)stages);
    const struct sbp_program *program = sbp_step_program(&plan->step, chunk);
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    int instr = program->instr_count - 1;
    while (instr >= 0 && (program->instr[instr].kind != SBP_INSTR_FORWARD ||
                          program->instr[instr].section != SBP_SECTION_FORWARD ||
                          plan->graph.op[program->instr[instr].op].kind != SBP_OP_LINEAR))
        instr--;
    if (instr < 0)
        return;
    options.steps = 1 + (int)sbp_random_below(random, STEPS);
    options.verify = sbp_random_below(random, 2) == 0;
    options.trace = sbp_random_below(random, 2) == 0;
    plant_fault(&options, SBP_FAULT_ODD,
                chunk * stages + (int)sbp_random_below(random, (uint64_t)stages), instr);
    run_plan(plan, &options, model, &result);
    if (result.odd.step > 0) { /* where the element is not one that the rank's own roles drop */
        assert_int_equal(result.odd.step, 1);
        assert_int_equal(result.steps, 1);
        assert_true(result.odd.layer.found);
        assert_string_equal(result.odd.layer.layer, plan->graph.op[program->instr[instr].op].name);
        odd++;
    }
    sbp_run_free(&result);
}

static void odd_steps_end_the_run(void **state)
{
    (void)state;
    odd = 0;
    for_placed(plan_cut_replicas, 1800, SBP_F64, 30, check_odd);
    print_message("%d odd\n", odd);
    assert_true(odd > 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_follow_the_recurrence),
        cmocka_unit_test(replicas_run_on),
        cmocka_unit_test(replicas_train_the_same_bits),
        cmocka_unit_test(replicas_hold_one_version),
        cmocka_unit_test(tasks_take_as_long_as_the_timeline),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(odd_steps_end_the_run),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

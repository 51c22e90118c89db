/* Cyclic data parallelism: steps that run into each other, held to the literal recurrence in double
 * on one device, with the versions of weights that memory has for it. */
#include "cyclic_plans.h"

enum { STEPS = 4 };

static void for_cyclic(uint64_t offset, enum sbp_real real, int plans, check_function *check)
{
    for_placed(plan_cut_cyclic, offset, real, plans, check);
}

static void cyclic_steps_follow_the_recurrence(void **state)
{
    (void)state;
    worst_of_recurrence = 0;
    for_cyclic(0, SBP_F64, 100, check_recurrence);
    print_message("largest difference / bound %.3f\n", worst_of_recurrence);
}

static void check_narrow(const struct plan *plan, struct sbp_random *random, const char *model)
{
    struct sbp_run_options options = options_for(SBP_F32, random);
    options.steps = STEPS;
    check_run(plan, &options, model, &worst_of_recurrence);
}

static void cyclic_steps_in_single_precision_do(void **state)
{
    (void)state;
    worst_of_recurrence = 0;
    for_cyclic(100, SBP_F32, 40, check_narrow);
    print_message("largest difference / bound %.3f\n", worst_of_recurrence);
}

static void steps_that_run_into_each_other_train_the_same(void **state)
{
    (void)state;
    for_cyclic(200, SBP_F64, 40, check_running_on);
}

/* Bytes that a stage has of what the 1F1B schedule has as well, and of the second weights. */
static void check_memory(const struct plan *plan, struct sbp_random *random, const char *model)
{
    struct sbp_parallel parallel = plan->parallel;
    struct sbp_step flushed;
    (void)random;
    (void)model;
    parallel.schedule = SBP_ONE_F_ONE_B;
    plan_step(plan, &parallel, NULL, SBP_F64, &flushed);
    for (int stage = 0; stage < plan->step.stages; stage++) {
        const struct sbp_stage_memory *one = &flushed.memory[stage];
        const struct sbp_stage_memory *two = &plan->step.memory[stage];
        const bool is_double =
            plan->parallel.schedule == SBP_CDP_V1 || stage + 1 < plan->step.stages;
        assert_int_equal(two->weight_bytes, (is_double ? 2 : 1) * one->weight_bytes);
        assert_int_equal(two->device_bytes,
                         one->device_bytes + (is_double ? one->weight_bytes : 0));
        assert_int_equal(two->in_flight, one->in_flight);
    }
    sbp_step_free(&flushed);
}

static void second_weights_are_counted(void **state)
{
    (void)state;
    for_cyclic(300, SBP_F64, 60, check_memory);
}

static int odd;

/* NaN in logits ends the run: the step behind, which other stages have begun, is not reported, and
 * later ones do not begin. */
static void check_odd(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const struct sbp_program *last = sbp_step_program(&plan->step, plan->step.stages - 1);
    struct sbp_run_options options = options_for(SBP_F64, random);
    if (last->loss_buffer < 0 || /* the loss may be alone in its stage */
        !draw_odd(plan, last, STEPS, random, &options))
        return;
    options.fault_piece = plan->step.stages - 1;
    odd += ends_where_odd(plan, last, 1, &options, model);
}

static void odd_steps_end_the_run(void **state)
{
    (void)state;
    odd = 0;
    for_cyclic(400, SBP_F64, 40, check_odd);
    assert_true(odd > 6);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cyclic_steps_follow_the_recurrence),
        cmocka_unit_test(cyclic_steps_in_single_precision_do),
        cmocka_unit_test(steps_that_run_into_each_other_train_the_same),
        cmocka_unit_test(second_weights_are_counted),
        cmocka_unit_test(odd_steps_end_the_run),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

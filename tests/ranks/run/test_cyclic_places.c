/* Cyclic data parallelism where all stages of the model are on each device: held to the literal
 * recurrence in double. */
#include "cyclic_plans.h"

static void stages_of_one_device_follow_the_recurrence(void **state)
{
    (void)state;
    hold_to_recurrence(plan_cut_on_device, 500, 20, 10);
}

static void stages_of_one_device_run_on(void **state)
{
    (void)state;
    for_placed(plan_cut_on_device, 700, SBP_F64, 10, check_running_on);
}

/* Stage j of N keeps N - j + 1 micro-batches, so that (N + 1) / 2 are kept where stages are alike
 * (Fournier and Oyallon, section 4.1); runs check that arenas have room for just these. */
static void check_kept(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const struct sbp_step *step = &plan->step;
    const int stages = step->pieces;
    int64_t held = 0, work = 0;
    (void)random;
    (void)model;
    for (int j = 1; j <= stages; j++) {
        const struct sbp_program *program = sbp_step_chunk(step, 0, j - 1);
        const int64_t besides =
            program->arena_bytes - program->persistent_bytes - program->kept_bytes;
        held += program->persistent_bytes + (stages - j + 1) * program->kept_bytes;
        work = besides > work ? besides : work;
    }
    assert_int_equal(step->memory[0].in_flight, stages * (stages + 1) / 2);
    assert_int_equal(step->totals.device_bytes, held + work);
}

static void stages_of_one_device_keep_half(void **state)
{
    (void)state;
    for_placed(plan_cut_on_device, 800, SBP_F64, 20, check_kept);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_of_one_device_follow_the_recurrence),
        cmocka_unit_test(stages_of_one_device_run_on),
        cmocka_unit_test(stages_of_one_device_keep_half),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

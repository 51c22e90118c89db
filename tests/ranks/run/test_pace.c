/* Ranks of virtual devices take as long for what they compute as the device would. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "executor/run/pace.h"
#include "run_checks.h"

/* A rest shorter than this is left for the next task. */
#define SHORTEST_S 1e-4

static void rests_add_up(void **state)
{
    struct sbp_random random;
    struct sbp_pace pace = {.slowdown = 5};
    double owed_s = 0;
    (void)state;
    sbp_random_seed(&random, seed);
    for (int i = 0; i < 200; i++) {
        const double compute_s = 2e-4 * sbp_random_unit(&random);
        const double spent_s = compute_s * (1 + 6 * sbp_random_unit(&random)); /* late turns */
        const double start_s = sbp_clock_s();
        const double rested_s = sbp_pace_rest(&pace, compute_s, spent_s);
        assert_true(rested_s <= sbp_clock_s() - start_s);
        owed_s += 5 * compute_s - spent_s - rested_s;
        assert_true(owed_s < SHORTEST_S);
        assert_true(fabs(owed_s - pace.ahead_s) < 1e-9);
    }
}

static void other_devices_do_not_rest(void **state)
{
    struct sbp_pace pace = {.slowdown = 1}, none = {.slowdown = 0};
    (void)state;
    assert_true(sbp_pace_rest(&pace, 1000, 1000) == 0);
    assert_true(sbp_pace_rest(&none, 1000, 0) == 0);
}

/* The wall time of a step holds the slowest rank's rests. */
static void steps_take_as_long_as_the_device(void **state)
{
    enum { PLANS = 3 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 1);
    for (int i = 0; i < PLANS; i++) {
        struct plan plan;
        struct sbp_run_result result;
        open_random(&random, kind_of(i), true, true, SBP_BOXING_FULL, SBP_F32, model, &plan);
        plan.step.cluster.slowdown = 200;
        struct sbp_run_options options = options_for(SBP_F32, &random);
        options.verify = false;
        run_plan(&plan, &options, model, &result);
        for (int step = 0; step < result.steps; step++) {
            const struct sbp_run_step *took = &result.step[step];
            if (took->wall_s < took->compute_s - 2 * SHORTEST_S)
                fail_msg("seed %llu, %s: step %d took %g s, its computing %g s",
                         (unsigned long long)seed, model, step, took->wall_s, took->compute_s);
        }
        sbp_run_free(&result);
        plan_close(&plan);
    }
}

static void slow_devices_have_cores(void **state)
{
    struct sbp_run_result result = {.ranks_here = 8, .cores = 2, .slowdown = 1};
    (void)state;
    assert_false(sbp_run_has_cores(&result));
    result.slowdown = 3.9;
    assert_false(sbp_run_has_cores(&result));
    result.slowdown = 4;
    assert_true(sbp_run_has_cores(&result));
    result = (struct sbp_run_result){.ranks_here = 2, .cores = 2, .slowdown = 1};
    assert_true(sbp_run_has_cores(&result));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rests_add_up),
        cmocka_unit_test(other_devices_do_not_rest),
        cmocka_unit_test(steps_take_as_long_as_the_device),
        cmocka_unit_test(slow_devices_have_cores),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

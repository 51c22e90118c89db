/* Runs of random pipelines: against one device, and against the timeline. */
#include <math.h>

#include "executor/run_times.h"
#include "run_checks.h"

/* Whether whole gradients are summed within the only backward work, which the timeline counts at
 * the step's end. */
static bool sums_within(const struct plan *plan)
{
    bool sums = false;
    for (int piece = 0; piece < plan->step.pieces && plan->step.micro_batches == 1; piece++)
        for (int t = 0; t < plan->graph.tensor_count; t++)
            sums |= plan->step.program[piece].shard[t].level >= 2;
    return sums;
}

static void check_played(const struct plan *plan)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {0};
    struct sbp_run_prediction prediction;
    struct sbp_tasks tasks[16];
    for (int stage = 0; stage < plan->step.stages; stage++)
        if (sbp_tasks_make(&plan->step, stage, &arena, &tasks[stage], &diag) != SBP_OK)
            fail_msg("%s", diag.text);
    if (sbp_run_predict(&plan->step, tasks, &arena, &prediction, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const double step_s = plan->step.totals.step_s;
    if (!(fabs(prediction.step_s - step_s) <= 1e-12 * step_s))
        fail_msg("seed %llu, %s, %d stages: tasks take %.17g, the timeline %.17g",
                 (unsigned long long)seed, sbp_timeline_schedule_name(plan->parallel.schedule),
                 plan->step.stages, prediction.step_s, step_s);
    sbp_arena_free(&arena);
}

/* Stages in a pipeline, whose micro-batches overtake each other. */
static void pipelines_equal_one_device(void **state)
{
    enum { PLANS = 120 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    struct tally tally = {0};
    int ties = 0;
    (void)state;
    sbp_random_seed(&random, seed + 700);
    for (int tries = 0; tally.plans < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, tally.plans % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, tally.plans % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (has_alike_ties(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                count_plan(&tally, &plan);
                ties += count_ties(&plan, false) > 0;
            }
        }
        plan_close(&plan);
    }
    print_message("%d with tied weights, largest difference / bound %.3f\n", ties, worst);
    expect_all(&tally, PLANS);
    assert_true(tally.several > PLANS / 3 && ties > 0);
}

/* The head in another chunk of the stage that has the table: their sum does not leave a rank. */
static void ties_of_chunks_equal_one_device(void **state)
{
    enum { PLANS = 8 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int runs = 0;
    (void)state;
    sbp_random_seed(&random, seed + 1100);
    for (int tries = 0; runs < PLANS && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan_cut_stages(&plan, &random) && plan.parallel.schedule == SBP_INTERLEAVED &&
            plan.parallel.pipeline == 2) {
            plan_randomise(&plan, &random, runs % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (count_ties(&plan, true) > 0 && has_alike_ties(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                runs++;
            }
        }
        plan_close(&plan);
    }
    assert_int_equal(runs, PLANS);
}

/* Played with their prices, the tasks take as long as the timeline says where nothing hides; sums
 * over stages, which the timeline does not wait for, aside. */
static void tasks_take_as_long_as_the_timeline(void **state)
{
    enum { PLANS = 60 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct tally tally = {0};
    (void)state;
    sbp_random_seed(&random, seed + 800);
    for (int tries = 0; tally.plans < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        plan.graph.training.clip_norm = 0;
        if (plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, tries % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (count_ties(&plan, false) == 0 && !sums_within(&plan)) {
                check_played(&plan);
                count_plan(&tally, &plan);
            }
        }
        plan_close(&plan);
    }
    expect_all(&tally, PLANS);
}

/* Both users of a table in one stage, whose gradients wait: the table's own work must come last. */
static void ties_that_wait_equal_one_device(void **state)
{
    enum { PLANS = 6 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int runs = 0;
    (void)state;
    sbp_random_seed(&random, seed + 1300);
    for (int tries = 0; runs < PLANS && tries < MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        plan_cut_step(&plan, &random);
        plan.parallel.schedule = SBP_ZERO_BUBBLE;
        plan.parallel.pipeline_limit = 1 + (int64_t)sbp_random_below(&random, 3);
        if (sbp_graph_is_tied(&plan.graph) && plan.parallel.micro_batch < plan.graph.global_batch) {
            plan_randomise(&plan, &random, runs % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            const struct sbp_run_options options = options_for(SBP_F64, &random);
            check_run(&plan, &options, model, &worst);
            runs++;
        }
        plan_close(&plan);
    }
    assert_int_equal(runs, PLANS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_equal_one_device),
        cmocka_unit_test(ties_of_chunks_equal_one_device),
        cmocka_unit_test(ties_that_wait_equal_one_device),
        cmocka_unit_test(tasks_take_as_long_as_the_timeline),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

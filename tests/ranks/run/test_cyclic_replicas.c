/* Cyclic data parallelism on replicas: a stage has the whole model and one micro-batch, and sums of
 * gradients go from one to the next. Held to the literal recurrence in double on one device, and to
 * the same bits as all micro-batches on one stage. */
#include "cyclic_plans.h"

enum { STEPS = 4 };

static void replicas_follow_the_recurrence(void **state)
{
    (void)state;
    hold_to_recurrence(plan_cut_replicas, 900, 60, 20);
}

static void replicas_run_on(void **state)
{
    (void)state;
    for_placed(plan_cut_replicas, 1100, SBP_F64, 20, check_running_on);
}

static void replicas_train_the_same_bits(void **state)
{
    (void)state;
    hold_to_bits(plan_cut_replicas, 1200, 30, 40);
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
    hold_to_prediction(plan_cut_replicas, 1400, 20, 6);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* Plants a fault in a random chunk of a stage. */
static void check_stage(const struct plan *plan, struct sbp_random *random, const char *model,
                        enum cyclic_fault fault, int stage)
{
    const int chunk = (int)sbp_random_below(random, (uint64_t)plan->step.pieces);
    check_fault(plan, random, model, fault, STEPS, stage, chunk);
}

/* The stage of the last micro-batch adds its gradient to nothing. */
static void check_dropped(const struct plan *plan, struct sbp_random *random, const char *model)
{
    check_stage(plan, random, model, DROPPED, 0);
}

/* The stage of the first micro-batch gets zeros for the finished sum. */
static void check_unfinished(const struct plan *plan, struct sbp_random *random, const char *model)
{
    check_stage(plan, random, model, UNFINISHED, plan->step.stages - 1);
}

/* A stage goes back to the weights of the first step, whatever it updates. */
static void check_stale(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int stage = (int)sbp_random_below(random, (uint64_t)plan->step.stages);
    check_stage(plan, random, model, STALE, stage);
}

static void faults_are_found(void **state)
{
    (void)state;
    hold_to_finding(plan_cut_replicas, 1500, 15, DROPPED, check_dropped, 6);
    hold_to_finding(plan_cut_replicas, 1600, 15, UNFINISHED, check_unfinished, 6);
    hold_to_finding(plan_cut_replicas, 1700, 15, STALE, check_stale, 6);
}

static int odd;

/* NaN in one replica's gradient ends the run on all of them, and is found again. */
static void check_odd(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int stages = plan->step.stages, chunk = (int)sbp_random_below(random, (uint64_t)stages);
    const struct sbp_program *program = sbp_step_program(&plan->step, chunk);
    struct sbp_run_options options = options_for(SBP_F64, random);
    if (!draw_odd(plan, program, STEPS, random, &options))
        return;
    options.fault_piece = chunk * stages + (int)sbp_random_below(random, (uint64_t)stages);
    odd += ends_where_odd(plan, program, 1, &options, model);
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

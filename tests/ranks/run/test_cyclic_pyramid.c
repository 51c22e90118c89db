/* Cyclic data parallelism on a pyramid: N (N + 1) / 2 groups of devices for N stages, which take
 * turns at micro-batches. Held to the literal recurrence in double on one device, and to the same
 * bits as all micro-batches on one stage. */
#include "cyclic_plans.h"

enum { STEPS = 5 };

static void pyramids_follow_the_recurrence(void **state)
{
    (void)state;
    hold_to_recurrence(plan_cut_pyramid, 2900, 30, 10);
}

static void pyramids_run_on(void **state)
{
    (void)state;
    for_placed(plan_cut_pyramid, 3100, SBP_F64, 10, check_running_on);
}

static void pyramids_train_the_same_bits(void **state)
{
    (void)state;
    hold_to_bits(plan_cut_pyramid, 3200, 12, 20);
}

/* A group has one piece of the model with one version of its weights, a second sum of gradients,
 * and one micro-batch; runs check that arenas have room for just these. */
static void check_memory(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int n = (int)plan->parallel.pipeline;
    int group = 0;
    (void)random;
    (void)model;
    assert_int_equal(plan->step.stages, n * (n + 1) / 2);
    assert_int_equal(plan->step.timeline.devices, plan->step.stages);
    for (int piece = 0; piece < n; piece++)
        for (int k = 0; k < n - piece; k++, group++) {
            const struct sbp_program *program = sbp_step_program(&plan->step, piece);
            const struct sbp_stage_memory *own = &plan->step.memory[group];
            int64_t weights = 0, gradients = 0;
            for (int b = 0; b < program->buffer_count; b++) {
                weights += program->buffer[b].use == SBP_USE_WEIGHT
                               ? sbp_program_slot_bytes(program, b)
                               : 0;
                gradients += program->buffer[b].use == SBP_USE_GRADIENT
                                 ? sbp_program_slot_bytes(program, b)
                                 : 0;
            }
            assert_int_equal(own->device_bytes, program->arena_bytes);
            assert_int_equal(own->weight_bytes, weights);
            assert_int_equal(own->gradient_bytes, 2 * weights);
            assert_int_equal(own->gradient_bytes, gradients);
            assert_int_equal(own->in_flight, 1);
        }
    assert_int_equal(group, plan->step.stages);
}

static void groups_hold_one_micro_batch(void **state)
{
    (void)state;
    for_placed(plan_cut_pyramid, 3300, SBP_F64, 20, check_memory);
}

static void tasks_take_as_long_as_the_timeline(void **state)
{
    (void)state;
    hold_to_prediction(plan_cut_pyramid, 3400, 15, 5);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* A group of a stage that has several; but the first one of all takes no sums so far, since it has
 * the first micro-batch of every step. */
static int several_of(const struct plan *plan, struct sbp_random *random)
{
    return 1 + (int)sbp_random_below(random, (uint64_t)plan->step.stages - 2);
}

/* A group adds its gradients to nothing. */
static void check_dropped(const struct plan *plan, struct sbp_random *random, const char *model)
{
    check_fault(plan, random, model, DROPPED, STEPS, several_of(plan, random), 0);
}

/* The first group of a stage of several, which finishes the sum of no or of some steps alone, gets
 * zeros for the finished one. */
static void check_unfinished(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int n = (int)plan->parallel.pipeline;
    const int stage = (int)sbp_random_below(random, (uint64_t)n - 1);
    check_fault(plan, random, model, UNFINISHED, STEPS, sbp_pyramid_first(n, stage), 0);
}

/* A group goes back to the weights of the first step, whatever it updates. */
static void check_stale(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int group = (int)sbp_random_below(random, (uint64_t)plan->step.stages);
    check_fault(plan, random, model, STALE, STEPS, group, 0);
}

/* A group of the second stage gets zeros for the activations of its micro-batches. */
static void check_lost(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int n = (int)plan->parallel.pipeline;
    const int group = n + (int)sbp_random_below(random, (uint64_t)n - 1);
    check_fault(plan, random, model, LOST, STEPS, group, 0);
}

static void faults_are_found(void **state)
{
    (void)state;
    hold_to_finding(plan_cut_pyramid, 3500, 10, DROPPED, check_dropped, 4);
    hold_to_finding(plan_cut_pyramid, 3600, 10, UNFINISHED, check_unfinished, 4);
    hold_to_finding(plan_cut_pyramid, 3700, 10, STALE, check_stale, 4);
    hold_to_finding(plan_cut_pyramid, 3800, 10, LOST, check_lost, 4);
}

static int odd;

/* NaN in one group's work ends the run on all of them, and is found again. */
static void check_odd(const struct plan *plan, struct sbp_random *random, const char *model)
{
    const int group = (int)sbp_random_below(random, (uint64_t)plan->step.stages);
    const struct sbp_program *program = sbp_step_chunk(&plan->step, group, 0);
    struct sbp_run_options options = options_for(SBP_F64, random);
    if (!draw_odd(plan, program, STEPS, random, &options))
        return;
    options.fault_piece = group;
    odd += ends_where_odd(plan, program, STEPS, &options, model);
}

static void odd_steps_end_the_run(void **state)
{
    (void)state;
    odd = 0;
    for_placed(plan_cut_pyramid, 3900, SBP_F64, 12, check_odd);
    print_message("%d odd\n", odd);
    assert_true(odd > 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pyramids_follow_the_recurrence),
        cmocka_unit_test(pyramids_run_on),
        cmocka_unit_test(pyramids_train_the_same_bits),
        cmocka_unit_test(groups_hold_one_micro_batch),
        cmocka_unit_test(tasks_take_as_long_as_the_timeline),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(odd_steps_end_the_run),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

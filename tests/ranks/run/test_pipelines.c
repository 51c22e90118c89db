/* Runs of random pipelines: against one device, and against the timeline. */
#include <math.h>

#include "executor/run/run_times.h"
#include "run_checks.h"

/* A stage has a frame for each micro-batch that the timeline has in flight, and more where arrivals
 * decide. */
static void expect_frames(const struct plan *plan, int stage, const struct sbp_timeline *timeline)
{
    const int in_flight = timeline->device[stage].in_flight;
    const int frames = plan->step.memory[stage].in_flight;
    if (sbp_timeline_is_driven(plan->parallel.schedule, plan->step.stages, stage))
        assert_in_range(in_flight, 1, frames);
    else
        assert_int_equal(in_flight, frames);
}

static void check_played(const struct plan *plan, struct sbp_random *random)
{
    (void)random;
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
    assert_true(fabs(prediction.exposed_s - plan->step.totals.exposed_s) <= 1e-9 * step_s);
    assert_true(fabs(prediction.bubble_s - plan->step.totals.bubble_s) <= 1e-9 * step_s);
    for (int stage = 0; stage < plan->step.stages; stage++)
        expect_frames(plan, stage, &plan->step.timeline);
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
    int ties = 0, owned = 0;
    (void)state;
    sbp_random_seed(&random, seed + 700);
    for (int tries = 0; tally.plans < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, kind_of(tally.plans), model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if ((tries % 3 == 2 ? plan_cut_cyclic : plan_cut_stages)(&plan, &random)) {
            plan_draw_owner(&plan, random);
            plan_randomise(&plan, &random, tally.plans % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (has_alike_ties(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                count_plan(&tally, &plan);
                owned += plan.parallel.owner != SBP_OWNER_NONE;
                ties += count_ties(&plan, false) > 0;
            }
        }
        plan_close(&plan);
    }
    print_message("%d with tied weights, %d with owners, largest difference / bound %.3f\n", ties,
                  owned, worst);
    expect_all(&tally, PLANS);
    assert_true(tally.several > PLANS / 3 && ties > 0 && owned > PLANS / 20);
}

static bool begins_with_rotary(const struct plan *plan)
{
    bool begins = false;
    for (int piece = 1; piece < plan->step.pieces; piece++)
        begins |= plan->graph.op[plan->step.program[piece].scope.first_op].kind == SBP_OP_ROTARY;
    return begins;
}

/* The forward pass overwrites what a stage receives: recomputation must not turn it again.
 */
static void rotary_of_what_came_equals_one_device(void **state)
{
    enum { PLANS = 4 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int runs = 0;
    (void)state;
    sbp_random_seed(&random, seed + 1500);
    for (int tries = 0; runs < PLANS && tries < 10 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, GATED, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan_cut_stages(&plan, &random) && plan.parallel.recompute == SBP_RECOMPUTE_FULL) {
            plan_randomise(&plan, &random, runs % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (begins_with_rotary(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                runs++;
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, runs, worst);
    assert_int_equal(runs, PLANS);
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
            plan_draw_owner(&plan, random);
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

/* Checks random pipelines whose stages sum nothing together, which the timeline does not wait for.
 */
static void for_pipelines(uint64_t offset,
                          void (*check)(const struct plan *plan, struct sbp_random *random))
{
    enum { PLANS = 120 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct tally tally = {0};
    sbp_random_seed(&random, seed + offset);
    for (int tries = 0; tally.plans < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, kind_of(tries), model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        plan.graph.training.clip_norm = 0;
        if ((tries % 2 == 1 ? plan_cut_cyclic : plan_cut_stages)(&plan, &random)) {
            plan_draw_owner(&plan, random);
            plan_randomise(&plan, &random, tries % 4 < 2, SBP_BOXING_FULL, SBP_F64);
            if (count_ties(&plan, false) == 0 && !sums_within(&plan)) {
                check(&plan, &random);
                count_plan(&tally, &plan);
            }
        }
        plan_close(&plan);
    }
    expect_all(&tally, PLANS);
}

/* Played with their prices, the tasks take as long as the timeline says where nothing hides. */
static void tasks_take_as_long_as_the_timeline(void **state)
{
    (void)state;
    for_pipelines(800, check_played);
}

/* ---- replays ------------------------------------------------------------------------------- */

/* A step whose arithmetic takes other times than its prices, and the simulator's stages of it,
 * summed here by section. */
struct replayed {
    struct sbp_arena arena;
    struct sbp_tasks tasks[16];
    double *compute_s[16];
    struct sbp_stage_cost cost[16];
    struct sbp_stage_end end[16];
    double within_s; /* collectives of all passes and stages, which nothing hides */
    double beside_s; /* messages and sums of gradients */
};

static void add_cost(struct replayed *r, const struct sbp_instr *instr, double compute_s, int stage,
                     double micro_batches)
{
    struct sbp_stage_cost *const cost = &r->cost[stage];
    const bool forward = instr->section == SBP_SECTION_FORWARD;
    const double all_s = compute_s + instr->communication_s;
    if (instr->kind == SBP_INSTR_SEND)
        *(forward ? &cost->send_forward_s : &cost->send_backward_s) += all_s;
    else if (instr->section != SBP_SECTION_STEP)
        *(forward ? &cost->forward_s : &cost->backward_input_s) += all_s;
    else if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT)
        r->end[stage].sync_s += all_s;
    else
        r->end[stage].optimizer_s += all_s;
    const bool once = instr->section == SBP_SECTION_STEP;
    const bool beside =
        instr->kind == SBP_INSTR_SEND || (once && instr->cause == SBP_CAUSE_WEIGHT_GRADIENT);
    *(beside ? &r->beside_s : &r->within_s) += instr->communication_s * (once ? 1 : micro_batches);
}

/* Each stage is slower or faster than its prices by a factor of its own, 1/2 to 3/2. */
static void open_replayed(struct replayed *r, const struct plan *plan, struct sbp_random *random)
{
    struct sbp_diag diag = {0};
    *r = (struct replayed){0};
    for (int stage = 0; stage < plan->step.stages; stage++) {
        const struct sbp_program *program = sbp_step_program(&plan->step, stage);
        const double factor = 0.5 + sbp_random_unit(random);
        expect_ok(sbp_tasks_make(&plan->step, stage, &r->arena, &r->tasks[stage], &diag), &diag);
        r->compute_s[stage] = SBP_NEW(&r->arena, double, r->tasks[stage].count);
        assert_non_null(r->compute_s[stage]);
        for (int64_t i = 0; i < r->tasks[stage].count; i++)
            r->compute_s[stage][i] =
                factor * program->instr[r->tasks[stage].task[i].instr].compute_s;
        for (int i = 0; i < program->instr_count; i++)
            add_cost(r, &program->instr[i], factor * program->instr[i].compute_s, stage,
                     (double)plan->step.micro_batches);
    }
}

static void check_replayed(const struct plan *plan, struct sbp_random *random)
{
    if (plan->step.pieces > plan->step.stages || plan->parallel.schedule == SBP_ZERO_BUBBLE)
        return; /* their costs are summed otherwise */
    struct sbp_diag diag = {0};
    struct sbp_timeline timeline;
    struct sbp_run_prediction replay;
    struct replayed r;
    open_replayed(&r, plan, random);
    const struct sbp_timeline_request request = {.schedule = plan->parallel.schedule,
                                                 .stages = plan->step.stages,
                                                 .micro_batches = (int)plan->step.micro_batches,
                                                 .pipeline_limit =
                                                     (int)plan->parallel.pipeline_limit,
                                                 .stage = r.cost,
                                                 .end = r.end};
    expect_ok(sbp_timeline_simulate(&request, &r.arena, &timeline, &diag), &diag);
    expect_ok(sbp_run_replay(&plan->step, r.tasks, r.compute_s, &r.arena, &replay, &diag), &diag);
    const double step_s = timeline.makespan_s, stages = plan->step.stages;
    const double exposed_s = (r.within_s + fmin(stages * timeline.exposed_s, r.beside_s)) / stages;
    double compute_s = 0;
    for (int stage = 0; stage < plan->step.stages; stage++) {
        for (int64_t i = 0; i < r.tasks[stage].count; i++)
            compute_s += r.compute_s[stage][i] / stages;
        expect_frames(plan, stage, &timeline);
    }
    if (!(fabs(replay.step_s - step_s) <= 1e-12 * step_s))
        fail_msg("seed %llu, %s, %d stages: the replay takes %.17g, the timeline %.17g",
                 (unsigned long long)seed, sbp_timeline_schedule_name(plan->parallel.schedule),
                 plan->step.stages, replay.step_s, step_s);
    assert_true(fabs(replay.exposed_s - exposed_s) <= 1e-9 * step_s);
    assert_true(fabs(replay.bubble_s - fmax(0, step_s - compute_s - exposed_s)) <= 1e-9 * step_s);
    sbp_arena_free(&r.arena);
}

/* Step, exposed communication, bubble and micro-batches in flight of a replay are the simulator's,
 * whatever the arithmetic took. */
static void replays_are_the_simulators(void **state)
{
    (void)state;
    for_pipelines(900, check_replayed);
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

/* ---- layers on devices of their own ---------------------------------------------------------- */

static const struct {
    const char *role;
    struct sbp_state weight, output;
} own[] = {
    {"column", SBP_STATE_S(SBP_DIM_OUT), SBP_STATE_S(SBP_DIM_FEATURE)},
    {"row", SBP_STATE_S(SBP_DIM_IN), SBP_STATE_S(SBP_DIM_FEATURE)}, /* its sum is scattered */
    {"batch", SBP_STATE_B, SBP_STATE_S(SBP_DIM_BATCH)},
    {"column", SBP_STATE_S(SBP_DIM_OUT), SBP_STATE_S(SBP_DIM_FEATURE)},
};

/* Splits the layers of each stage in the stage's own way. */
static void split_by_stage(struct plan *plan)
{
    struct sbp_diag diag = {0};
    int first[5], stage = 0;
    expect_ok(sbp_stages_cut_as(&plan->graph, (int)plan->parallel.pipeline, &plan->parallel, first,
                                &diag),
              &diag);
    expect_ok(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag);
    plan->strategy.rest[plan->graph.input] = sbp_dist_all(SBP_STATE_B);
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->graph.op[op];
        stage += op == first[stage + 1];
        for (int axis = 0; axis < plan->mesh.axis_count && !node->entry->follows; axis++)
            plan->strategy.op[op].role[axis] = (uint8_t)sbp_op_role(node->entry, own[stage].role);
        plan->strategy.rest[node->output] = node->entry->follows
                                                ? plan->strategy.rest[node->input[0]]
                                                : sbp_dist_all(own[stage].output);
    }
    expect_ok(sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, SBP_F64, &plan->step);
}

/* Fails unless every weight is on the ranks of one stage alone, split in that one's way. */
static void expect_apart(const struct plan *plan)
{
    int weights = 0;
    assert_int_equal(plan->step.micro_batches, 1);
    assert_int_equal(plan->step.stages * plan->step.mesh.devices,
                     sbp_cluster_devices(&plan->cluster));
    for (int t = 0; t < plan->graph.tensor_count; t++)
        for (int stage = 0; stage < plan->step.stages; stage++) {
            const struct sbp_program *program = &plan->step.program[stage];
            const int buffer = program->weight_buffer[t];
            if (buffer < 0)
                continue;
            weights++;
            assert_int_equal(plan->step.holders[t], 1);
            for (int axis = 0; axis < plan->step.mesh.axis_count; axis++)
                assert_true(
                    sbp_state_equal(program->buffer[buffer].dist.axis[axis], own[stage].weight));
        }
    assert_int_equal(weights, 4);
}

/* Stages with one micro-batch are lists of devices, each with layers, and splits, of its own. */
static void layers_on_devices_of_their_own_equal_one_device(void **state)
{
    static const char model[] =
        "{\"name\": \"apart\", \"global_batch\": 24, \"optimizer\": \"adam\", \"layers\": ["
        "{\"op\": \"linear\", \"name\": \"a\", \"in\": 48, \"out\": 48, \"bias\": false}, "
        "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"name\": \"b\", \"out\": 48, \"bias\": false}, "
        "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"name\": \"c\", \"out\": 48, \"bias\": false}, "
        "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"name\": \"d\", \"out\": 48, \"bias\": false}]}";
    static const struct {
        int levels[3], stages;
    } cases[] = {{{4, 0}, 2}, {{2, 2, 0}, 2}, {{8, 0}, 2}, {{8, 0}, 4}};
    struct sbp_random random;
    double worst = 0;
    (void)state;
    sbp_random_seed(&random, seed + 1400);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        plan_open(&plan, model, cases[i].levels);
        plan.parallel.pipeline = cases[i].stages;
        plan.parallel.schedule = SBP_GPIPE;
        assert_true(plan_place_stages(&plan));
        split_by_stage(&plan);
        expect_apart(&plan);
        const struct sbp_run_options options = options_for(SBP_F64, &random);
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: largest difference / bound %.3f\n", (unsigned long long)seed, worst);
    assert_true(worst > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_equal_one_device),
        cmocka_unit_test(rotary_of_what_came_equals_one_device),
        cmocka_unit_test(ties_of_chunks_equal_one_device),
        cmocka_unit_test(ties_that_wait_equal_one_device),
        cmocka_unit_test(layers_on_devices_of_their_own_equal_one_device),
        cmocka_unit_test(tasks_take_as_long_as_the_timeline),
        cmocka_unit_test(replays_are_the_simulators),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

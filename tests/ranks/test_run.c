/* Runs of random strategies against one device, and planted faults that must be found.
 *
 * usage: test_run [SEED] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/verify/reference_priv.h"
#include "executor/run.h"
#include "executor/verify/textbook_priv.h"
#include "run_plans.h"
#include "tests/support/unit.h"

enum { PERCEPTRON, RESIDUAL, GPT };
enum { MODEL_BYTES = 4096, MOST_TRIES = 400 };

static uint64_t seed = 20241;

static void expect_ok(enum sbp_status status, const struct sbp_diag *diag)
{
    if (status != SBP_OK)
        fail_msg("%s: %s", sbp_status_name(status), diag->text);
}

static void describe(const struct plan *plan, const char *model)
{
    char text[128];
    print_message("seed %llu, %lld ranks: %s\n", (unsigned long long)seed,
                  (long long)plan->mesh.devices, model);
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->graph.op[op];
        print_message("  %s:", node->name);
        for (int axis = 0; axis < plan->mesh.axis_count; axis++)
            print_message(" %s", node->entry->follows
                                     ? "-"
                                     : node->entry->role[plan->strategy.op[op].role[axis]].name);
        if (node->output >= 0)
            print_message(", rests %s",
                          sbp_dist_text(&plan->mesh, &plan->strategy.rest[node->output], text,
                                        (int)sizeof text));
        print_message("\n");
    }
}

static struct sbp_run_options options_for(enum sbp_real real, struct sbp_random *random)
{
    return (struct sbp_run_options){.steps = 2,
                                    .verify = true,
                                    .real = real,
                                    .seed = sbp_random_next(random),
                                    .backend = "threads",
                                    .device = "cpu"};
}

static void open_random(struct sbp_random *random, int kind, bool wide, bool cut,
                        enum sbp_boxing_mode boxing, enum sbp_real real, char *model,
                        struct plan *plan)
{
    random_model(random, kind, model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    if (cut)
        plan_cut_step(plan, random);
    plan_randomise(plan, random, wide, boxing, real);
}

static void run_plan(const struct plan *plan, const struct sbp_run_options *options,
                     const char *model, struct sbp_run_result *result)
{
    struct sbp_diag diag = {0};
    const enum sbp_status status = sbp_run(&plan->step, &plan->cluster, options, result, &diag);
    if (status == SBP_OK)
        return;
    describe(plan, model);
    fail_msg("%s: %s", sbp_status_name(status), diag.text);
}

/* The run itself fails on a log or a high-water mark that differs from the plan. */
static void check_run(const struct plan *plan, const struct sbp_run_options *options,
                      const char *model, double *worst)
{
    char text[512];
    struct sbp_run_result result;
    run_plan(plan, options, model, &result);
    assert_true(result.filled);
    assert_int_equal(result.high_water_bytes, plan->step.totals.device_bytes);
    if (result.finding.found) {
        describe(plan, model);
        fail_msg("%s", sbp_verify_finding_text(&result.finding, text, (int)sizeof text));
    }
    if (result.worst_ratio > *worst)
        *worst = result.worst_ratio;
    sbp_run_free(&result);
}

static void check_random(int kind, int count, bool cut, enum sbp_real real)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + (uint64_t)(2 * kind) + (real == SBP_F32));
    for (int i = 0; i < count; i++) {
        struct plan plan;
        open_random(&random, kind, i % 2 == 0, cut, SBP_BOXING_FULL, real, model, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, count, worst);
}

static void perceptrons_equal_one_device(void **state)
{
    (void)state;
    check_random(PERCEPTRON, 70, false, SBP_F64);
}

static void residual_perceptrons_equal_one_device(void **state)
{
    (void)state;
    check_random(RESIDUAL, 70, false, SBP_F64);
}

static void gpts_equal_one_device(void **state)
{
    (void)state;
    check_random(GPT, 70, false, SBP_F64);
}

/* Micro-batches one after the other, states in shards, and work done once more. */
static void cut_steps_equal_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++)
        check_random(kind, 60, true, SBP_F64);
}

static int count_ties(const struct plan *plan)
{
    int ties = 0;
    for (int t = 0; t < plan->graph.tensor_count; t++)
        ties += plan->step.holders[t] > 1;
    return ties;
}

/* Whether whole gradients are summed within the only backward work, which the timeline counts at
 * the step's end. */
static bool sums_within(const struct plan *plan)
{
    bool sums = false;
    for (int s = 0; s < plan->step.stages && plan->step.micro_batches == 1; s++)
        for (int t = 0; t < plan->graph.tensor_count; t++)
            sums |= plan->step.program[s].shard[t].level >= 2;
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

/* Whether stages that share a weight shard it alike; it is split alike by its roles. */
static bool has_alike_ties(const struct plan *plan)
{
    for (int t = 0; t < plan->graph.tensor_count; t++) {
        const struct sbp_weight_shard *first = NULL;
        for (int s = 0; s < plan->step.stages && plan->step.holders[t] > 1; s++) {
            const struct sbp_program *program = &plan->step.program[s];
            if (program->weight_buffer[t] < 0)
                continue;
            first = first == NULL ? &program->shard[t] : first;
            if (first->level != program->shard[t].level)
                return false;
        }
    }
    return true;
}

/* Stages in a pipeline, whose micro-batches overtake each other. */
static void pipelines_equal_one_device(void **state)
{
    enum { PLANS = 120 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int runs = 0, ties = 0, several = 0;
    (void)state;
    sbp_random_seed(&random, seed + 700);
    for (int tries = 0; runs < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, runs % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, runs % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (has_alike_ties(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                runs++;
                several += plan.step.micro_batches > 1;
                ties += count_ties(&plan) > 0;
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d pipelines, %d of several micro-batches, %d with tied weights, "
                  "largest difference / bound %.3f\n",
                  (unsigned long long)seed, runs, several, ties, worst);
    assert_int_equal(runs, PLANS);
    assert_true(several > PLANS / 3 && ties > 0);
}

/* Played with their prices, the tasks take as long as the timeline says where nothing hides; sums
 * over stages, which the timeline does not wait for, aside. */
static void tasks_take_as_long_as_the_timeline(void **state)
{
    enum { PLANS = 60 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0;
    (void)state;
    sbp_random_seed(&random, seed + 800);
    for (int tries = 0; checked < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        plan.graph.training.clip_norm = 0;
        if (plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, tries % 2 == 0, SBP_BOXING_FULL, SBP_F64);
            if (count_ties(&plan) == 0 && !sums_within(&plan)) {
                check_played(&plan);
                checked++;
            }
        }
        plan_close(&plan);
    }
    assert_int_equal(checked, PLANS);
}

static double loss_of_last_step(const struct plan *plan, const struct sbp_run_options *options,
                                const char *model)
{
    struct sbp_run_result result;
    run_plan(plan, options, model, &result);
    const double loss = result.step[result.steps - 1].loss;
    sbp_run_free(&result);
    return loss;
}

/* The same split of the same micro-batches in one stage: only where work is done differs. */
static void check_bits(const struct plan *plan, const char *model, const int *levels,
                       struct sbp_random *random)
{
    struct plan alone;
    struct sbp_run_options options = options_for(SBP_F32, random);
    struct sbp_diag diag = {0};
    options.verify = false;
    options.steps = 4;
    plan_open(&alone, model, levels);
    alone.graph.training.clip_norm = 0;
    alone.parallel = plan->parallel;
    alone.parallel.pipeline = 1;
    expect_ok(sbp_graph_set_micro_batch(&alone.graph, plan->parallel.micro_batch, &diag), &diag);
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    const struct sbp_step_request request = {.graph = &alone.graph,
                                             .cluster = &alone.cluster,
                                             .parallel = &alone.parallel,
                                             .strategy = &plan->strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    expect_ok(sbp_step_make(&request, &alone.step, &diag), &diag);
    alone.program = alone.step.program;
    alone.strategy = plan->strategy;
    const double one = loss_of_last_step(&alone, &options, model);
    const double several = loss_of_last_step(plan, &options, model);
    if (!(one == several)) {
        describe(plan, model);
        fail_msg("%lld stages, %s: loss %.17g, in one stage %.17g",
                 (long long)plan->parallel.pipeline,
                 sbp_timeline_schedule_name(plan->parallel.schedule), several, one);
    }
    plan_close(&alone);
}

/* Pipelines train the same bits as one stage that works on one micro-batch after the other. */
static void pipelines_equal_one_stage(void **state)
{
    enum { PLANS = 30 };
    static const int levels[][4] = {{2, 2, 0}, {2, 3, 0}, {3, 2, 0}, {2, 2, 2, 0}};
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, several = 0;
    (void)state;
    sbp_random_seed(&random, seed + 900);
    for (int tries = 0; checked < PLANS && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        const int *const all = levels[sbp_random_below(&random, 4)];
        random_model(&random, tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, all);
        plan.graph.training.clip_norm = 0;
        if (plan_cut_stages(&plan, &random) && plan.parallel.pipeline == all[0]) {
            plan_randomise(&plan, &random, tries % 2 == 0, SBP_BOXING_FULL, SBP_F32);
            if (count_ties(&plan) == 0 &&
                plan.step.program[plan.step.stages - 1].loss_buffer >= 0) {
                check_bits(&plan, model, all + 1, &random);
                checked++;
                several += plan.step.micro_batches > 1;
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d pipelines, %d of several micro-batches\n",
                  (unsigned long long)seed, checked, several);
    assert_int_equal(checked, PLANS);
    assert_true(several > PLANS / 4);
}

static void single_precision_equals_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++)
        check_random(kind, 15, kind == GPT, SBP_F32);
}

/* Calls of a kind that follow one of the same kind on the same tensor: what the normal form would
 * have done at once. */
static int count_cuts(const struct sbp_program *program)
{
    int cuts = 0;
    for (int i = 1; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i], *before = instr - 1;
        cuts += instr->kind == SBP_INSTR_BOX && before->kind == SBP_INSTR_BOX &&
                instr->tensor == before->tensor && instr->box.kind == before->box.kind &&
                instr->box.kind != SBP_LOCAL;
    }
    return cuts;
}

/* Lists of paths, of activations and of weight gradients, for runs in either precision. */
static void paths_equal_one_device(void **state)
{
    enum { PLANS = 60 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int cuts = 0;
    (void)state;
    sbp_random_seed(&random, seed + 300);
    for (int i = 0; i < PLANS; i++) {
        struct plan plan;
        const enum sbp_real real = i % 5 == 0 ? SBP_F32 : SBP_F64;
        open_random(&random, i % 3, i % 2 == 0, i % 3 == 2, SBP_BOXING_PATH, real, model, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        cuts += count_cuts(plan.program);
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d cuts, largest difference / bound %.3f\n",
                  (unsigned long long)seed, PLANS, cuts, worst);
    assert_true(cuts > 2 * PLANS);
}

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
        const int buffer = reference->program.weight_buffer[t];
        if (buffer < 0)
            continue;
        const int64_t elements = reference->program.buffer[buffer].elements;
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
    expect_ok(
        sbp_reference_open(&reference, &plan->graph, &plan->cluster, options.seed, 0x1p-53, &diag),
        &diag);
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

/* ---- faults -------------------------------------------------------------------------------- */

/* An instruction with a kind of collective, or -1. */
static int find_instr(const struct plan *plan, struct sbp_random *random,
                      enum sbp_instr_kind instr_kind, enum sbp_collective kind)
{
    const struct sbp_program *program = plan->program;
    int found = -1, seen = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind != instr_kind || instr->box.kind != kind)
            continue;
        if (instr_kind == SBP_INSTR_GATHER &&
            instr->tensor != program->graph->op[instr->op].weight[0])
            continue; /* a bias that is gathered for the backward pass is not read there */
        seen++;
        if (sbp_random_below(random, (uint64_t)seen) == 0)
            found = i;
    }
    return found;
}

static void check_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                        enum sbp_fault fault, int stage, int instr)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    options.fault = fault;
    options.fault_stage = stage;
    options.fault_instr = instr;
    run_plan(plan, &options, model, &result);
    if (!result.finding.found) {
        const struct sbp_instr *at = &plan->step.program[stage].instr[instr];
        describe(plan, model);
        fail_msg("%s instruction %d (%s of %s, %s) went unnoticed",
                 fault == SBP_FAULT_SKIP ? "skipping" : "scaling", instr,
                 sbp_collective_name(at->box.kind),
                 at->tensor >= 0 ? plan->graph.tensor[at->tensor].name : "a scalar",
                 sbp_program_cause_name(at->cause));
    }
    assert_true(result.worst_ratio > 1 || result.finding.bound == 0);
    sbp_run_free(&result);
}

/* Plants `count` faults, each in another random plan that has such an instruction. */
static void check_faults(enum sbp_fault fault, enum sbp_instr_kind instr_kind,
                         enum sbp_collective kind, int count)
{
    const bool cut = instr_kind == SBP_INSTR_GATHER || instr_kind == SBP_INSTR_SCATTER;
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    sbp_random_seed(&random, seed + 100 + (uint64_t)kind + 50 * (uint64_t)instr_kind +
                                 (fault == SBP_FAULT_SKIP ? 25 : 0));
    for (int tries = 0; planted < count && tries < MOST_TRIES; tries++) {
        struct plan plan;
        open_random(&random, tries % 3, false, cut, SBP_BOXING_FULL, SBP_F64, model, &plan);
        const int instr = find_instr(&plan, &random, instr_kind, kind);
        if (instr >= 0) {
            check_fault(&plan, &random, model, fault, 0, instr);
            planted++;
        }
        plan_close(&plan);
    }
    assert_int_equal(planted, count);
}

static void skipped_communication_is_found(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_faults(SBP_FAULT_SKIP, SBP_INSTR_BOX, kinds[i], 9);
    check_faults(SBP_FAULT_SKIP, SBP_INSTR_REDUCE, SBP_ALL_REDUCE, 15);
    check_faults(SBP_FAULT_SKIP, SBP_INSTR_GATHER, SBP_ALL_GATHER, 12);
    check_faults(SBP_FAULT_SKIP, SBP_INSTR_SCATTER, SBP_REDUCE_SCATTER, 12);
}

static void scaled_results_are_found(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_faults(SBP_FAULT_SCALE, SBP_INSTR_BOX, kinds[i], 6);
    check_faults(SBP_FAULT_SCALE, SBP_INSTR_GATHER, SBP_ALL_GATHER, 8);
    check_faults(SBP_FAULT_SCALE, SBP_INSTR_SCATTER, SBP_REDUCE_SCATTER, 8);
}

/* A message, or a sum over stages, of a random stage; -1: it has none. */
static int find_between(const struct plan *plan, struct sbp_random *random, bool message,
                        int *stage)
{
    const enum sbp_instr_kind kind = message ? SBP_INSTR_RECEIVE : SBP_INSTR_INNER;
    int found = -1, seen = 0;
    *stage = (int)sbp_random_below(random, (uint64_t)plan->step.stages);
    const struct sbp_program *program = &plan->step.program[*stage];
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].kind == kind && sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    return found;
}

/* Messages that arrive as zeros or spoiled, and spoiled sums over stages. */
static void faults_between_stages_are_found(void **state)
{
    enum { FAULTS = 36 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted[3] = {0};
    (void)state;
    sbp_random_seed(&random, seed + 1000);
    for (int tries = 0; tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        const int sort = tries % 3; /* a message skipped, spoiled; a sum spoiled */
        if (planted[sort] == FAULTS / 3)
            continue;
        random_model(&random, GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F64);
            int stage;
            const int instr = find_between(&plan, &random, sort < 2, &stage);
            if (instr >= 0 && has_alike_ties(&plan)) {
                check_fault(&plan, &random, model, sort == 0 ? SBP_FAULT_SKIP : SBP_FAULT_SCALE,
                            stage, instr);
                planted[sort]++;
            }
        }
        plan_close(&plan);
    }
    for (int sort = 0; sort < 3; sort++)
        assert_int_equal(planted[sort], FAULTS / 3);
}

/* Refused before any rank touches memory. */
static void too_large_a_run_is_refused(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct plan plan;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    (void)state;
    sbp_random_seed(&random, seed + 600);
    open_random(&random, PERCEPTRON, false, false, SBP_BOXING_FULL, SBP_F32, model, &plan);
    const struct sbp_run_options options = options_for(SBP_F32, &random);
    plan.program->arena_bytes = (int64_t)1 << 50;
    assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag), SBP_E_MEMORY);
    assert_non_null(strstr(diag.text, "together, this machine has"));
    plan_close(&plan);
}

static void too_large_a_matrix_is_refused(void **state)
{
    static const char model[] =
        "{\"name\": \"long\", \"precision\": \"fp32\", \"global_batch\": 2, \"sequence\": 1, "
        "\"input\": \"free\", \"layers\": [{\"op\": \"linear\", \"name\": \"wide\", "
        "\"in\": 8589934592, \"out\": 2, \"bias\": false}]}";
    struct sbp_diag diag = {0};
    struct sbp_random random;
    struct sbp_rank rank;
    struct plan plan;
    (void)state;
    sbp_random_seed(&random, seed);
    plan_open(&plan, model, (const int[]){2, 0});
    plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
    const enum sbp_status status =
        sbp_rank_open(&rank, plan.program, 1, sbp_device("cpu", &diag), SBP_F32, 1, 0, NULL, &diag);
    if (status != SBP_E_UNSUPPORTED || strstr(diag.text, "operator wide") == NULL)
        fail_msg("%s: %s", sbp_status_name(status), diag.text);
    plan_close(&plan);
}

static void no_bound_no_agreement(void **state)
{
    struct sbp_verify_outcome outcome = {0};
    (void)state;
    assert_true(sbp_verify_is_near(&outcome, 1, 2, 1));
    assert_false(sbp_verify_is_near(&outcome, 1, 2.5, 1));
    assert_false(sbp_verify_is_near(&outcome, (double)NAN, 1, 1));
    assert_false(sbp_verify_is_near(&outcome, 1, (double)NAN, 1));
    assert_false(sbp_verify_is_near(&outcome, 1, 1, (double)NAN));
    assert_false(sbp_verify_is_near(&outcome, 1, 1, (double)INFINITY));
}

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
        kernels->update(&weight, &gradient, &first, &second, 1, &update);
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
        kernels->update(&wrong[0], &gradient, &wrong[1], &wrong[2], 1, &update);
        if (fabs(after.weight - before.weight) > 1e-3 * fabs(before.weight)) {
            moved++;
            found += off_bound((double)wrong[0], after.weight, bound.weight);
        }
    }
    assert_true(moved > ROUNDS / 20);
    assert_true(found > moved * 9 / 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perceptrons_equal_one_device),
        cmocka_unit_test(residual_perceptrons_equal_one_device),
        cmocka_unit_test(gpts_equal_one_device),
        cmocka_unit_test(cut_steps_equal_one_device),
        cmocka_unit_test(pipelines_equal_one_device),
        cmocka_unit_test(pipelines_equal_one_stage),
        cmocka_unit_test(tasks_take_as_long_as_the_timeline),
        cmocka_unit_test(single_precision_equals_one_device),
        cmocka_unit_test(paths_equal_one_device),
        cmocka_unit_test(references_hold),
        cmocka_unit_test(too_large_a_run_is_refused),
        cmocka_unit_test(too_large_a_matrix_is_refused),
        cmocka_unit_test(no_bound_no_agreement),
        cmocka_unit_test(skipped_communication_is_found),
        cmocka_unit_test(scaled_results_are_found),
        cmocka_unit_test(faults_between_stages_are_found),
        cmocka_unit_test(updates_follow_the_textbook),
    };
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    sbp_kernels_cpu_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

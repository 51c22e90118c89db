#include "run_checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fewer.h"

uint64_t seed = 20241;

int kind_of(int number)
{
    static const int transformers[] = {GPT, LLAMA, GPT, GATED};
    return number % 3 < GPT ? number % 3 : transformers[number / 3 % 4];
}

void expect_ok(enum sbp_status status, const struct sbp_diag *diag)
{
    if (status != SBP_OK)
        fail_msg("%s: %s", sbp_status_name(status), diag->text);
}

void describe_plan(const struct plan *plan, const char *model)
{
    char text[128];
    print_message("seed %llu, %lld ranks of %lld stages, %lld chunks, %s, %lld micro-batches: %s\n",
                  (unsigned long long)seed, (long long)plan->mesh.devices,
                  (long long)plan->parallel.pipeline, (long long)plan->parallel.chunks,
                  sbp_timeline_schedule_name(plan->parallel.schedule),
                  (long long)sbp_parallel_micro_batches(&plan->parallel, &plan->graph), model);
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

struct sbp_run_options options_for(enum sbp_real real, struct sbp_random *random)
{
    const uint64_t drawn = sbp_random_next(random);
    return (struct sbp_run_options){.steps = 2,
                                    .verify = true,
                                    .compares = drawn % 2 == 1,
                                    .remeasures = drawn / 2 % 4 == 1,
                                    .real = real,
                                    .seed = drawn,
                                    .backend = "threads",
                                    .device = "cpu"};
}

bool is_measured(enum sbp_real real, const char *model)
{
    return sbp_real_bytes(real) > 2 || strstr(model, "\"head_dim\": 2,") == NULL;
}

void open_random(struct sbp_random *random, int kind, bool wide, bool cut,
                 enum sbp_boxing_mode boxing, enum sbp_real real, char *model, struct plan *plan)
{
    do
        random_model(random, kind, model, MODEL_BYTES);
    while (!is_measured(real, model));
    plan_open(plan, model, random_levels(random));
    if (cut) {
        plan_cut_step(plan, random);
        plan_draw_owner(plan, *random);
    }
    plan_randomise(plan, random, wide, boxing, real);
}

void run_plan(const struct plan *plan, const struct sbp_run_options *options, const char *model,
              struct sbp_run_result *result)
{
    struct sbp_diag diag = {0};
    const enum sbp_status status = sbp_run(&plan->step, &plan->cluster, options, result, &diag);
    if (status == SBP_OK)
        return;
    describe_plan(plan, model);
    fail_msg("%s: %s", sbp_status_name(status), diag.text);
}

void check_run(const struct plan *plan, const struct sbp_run_options *options, const char *model,
               double *worst)
{
    char text[512];
    struct sbp_run_result result;
    run_plan(plan, options, model, &result);
    assert_true(result.filled);
    assert_int_equal(result.high_water_bytes, plan->step.totals.device_bytes);
    if (result.finding.found) {
        describe_plan(plan, model);
        fail_msg("%s", sbp_verify_finding_text(&result.finding, text, (int)sizeof text));
    }
    if (result.worst_ratio > *worst)
        *worst = result.worst_ratio;
    sbp_run_free(&result);
}

int count_ties(const struct plan *plan, bool chunks)
{
    int ties = 0;
    for (int t = 0; t < plan->graph.tensor_count; t++) {
        int pieces = 0;
        for (int piece = 0; piece < plan->step.pieces; piece++)
            pieces += plan->step.program[piece].weight_buffer[t] >= 0;
        ties += chunks ? pieces > plan->step.holders[t] : pieces > 1;
    }
    return ties;
}

bool sums_within(const struct plan *plan)
{
    bool sums = false;
    for (int piece = 0; piece < plan->step.pieces && plan->step.micro_batches == 1; piece++)
        for (int t = 0; t < plan->graph.tensor_count; t++)
            sums |= plan->step.program[piece].shard[t].level >= 2;
    return sums;
}

bool has_alike_ties(const struct plan *plan)
{
    for (int t = 0; t < plan->graph.tensor_count; t++) {
        const struct sbp_weight_shard *first = NULL;
        for (int piece = 0; piece < plan->step.pieces; piece++) {
            const struct sbp_program *program = &plan->step.program[piece];
            if (program->weight_buffer[t] < 0)
                continue;
            first = first == NULL ? &program->shard[t] : first;
            if (first->level != program->shard[t].level)
                return false;
        }
    }
    return true;
}

void count_plan(struct tally *tally, const struct plan *plan)
{
    tally->plans++;
    tally->several += plan->step.micro_batches > 1;
    tally->of[plan->parallel.schedule]++;
}

static void print_tally(const struct tally *tally)
{
    print_message("seed %llu: %d pipelines, %d of several micro-batches;", (unsigned long long)seed,
                  tally->plans, tally->several);
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++)
        if (tally->of[schedule] > 0)
            print_message(" %s %d", sbp_timeline_schedule_name((enum sbp_schedule)schedule),
                          tally->of[schedule]);
    print_message("\n");
}

void expect_all(const struct tally *tally, int plans)
{
    print_tally(tally);
    assert_int_equal(tally->plans, plans);
    if (plans < PLANS_OF_ALL)
        return;
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++)
        assert_true(tally->of[schedule] > plans / 60);
}

/* Whether the last rank's part of a gradient may be zeros, so that a fault there changes nothing:
 * a rank's positions are a part of all where the sequence is split, and the last rows of a table
 * may only fill up its vocabulary. */
bool may_be_zeros(const struct plan *plan, const struct sbp_instr *instr)
{
    const struct sbp_graph *graph = &plan->graph;
    const int64_t devices = plan->mesh.devices;
    if (instr->tensor < 0 || graph->op[0].kind != SBP_OP_EMBEDDING)
        return false;
    const int table = graph->op[0].weight[0];
    const int64_t rows = graph->tensor[table].shape.size[SBP_DIM_IN];
    const int64_t valid = graph->op[graph->op_count - 1].valid_vocabulary;
    return instr->tensor == graph->op[0].weight[1] ||
           (instr->tensor == table && valid * devices <= rows * (devices - 1));
}

void plant_fault(struct sbp_run_options *options, enum sbp_fault fault, int piece, int instr)
{
    options->fault = fault;
    options->fault_piece = piece;
    options->fault_instr = instr;
}

/* A run without a loss has NaN for it, of any bits. */
static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void expect_same_steps(const struct plan *plan, const struct sbp_run_result *a,
                       const struct sbp_run_result *b, const char *model)
{
    assert_int_equal(a->steps, b->steps);
    for (int i = 0; i < a->steps; i++)
        if (!same(a->step[i].loss, b->step[i].loss) ||
            !same(a->step[i].grad_norm, b->step[i].grad_norm)) {
            describe_plan(plan, model);
            fail_msg("step %d: losses %.17g and %.17g, norms %.17g and %.17g", i + 1,
                     a->step[i].loss, b->step[i].loss, a->step[i].grad_norm, b->step[i].grad_norm);
        }
}

void expect_same_training(const struct plan *plan, const struct sbp_step *plain, int steps,
                          enum sbp_real real, struct sbp_random *random, const char *model)
{
    struct sbp_run_options options = options_for(real, random);
    struct sbp_run_result with, without;
    struct sbp_diag diag = {0};
    options.verify = false;
    options.steps = steps;
    run_plan(plan, &options, model, &with);
    expect_ok(sbp_run(plain, &plan->cluster, &options, &without, &diag), &diag);
    expect_same_steps(plan, &with, &without, model);
    sbp_run_free(&with);
    sbp_run_free(&without);
}

int draws(int count)
{
    const int drawn = count / one_in();
    return drawn >= 4 ? drawn : count < 4 ? count : 4;
}

int run_all(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

/* ---- rings ----------------------------------------------------------------------------------- */

int64_t ways(const struct plan *plan, int op, const char *name, int *axes)
{
    const int role = sbp_op_role(plan->graph.op[op].entry, name);
    int64_t members = 1;
    *axes = 0;
    for (int axis = 0; axis < plan->mesh.axis_count && role >= 0; axis++)
        if (sbp_strategy_role(&plan->graph, &plan->strategy, op, axis) == role) {
            members *= plan->mesh.axis[axis].size;
            ++*axes;
        }
    return members;
}

bool is_ring(const struct plan *plan, int op)
{
    int axes;
    return plan->graph.op[op].attention.ring && ways(plan, op, "context", &axes) > 1;
}

bool has_ring(const struct plan *plan)
{
    bool has = false;
    for (int op = 0; op < plan->graph.op_count; op++)
        has |= is_ring(plan, op);
    return has;
}

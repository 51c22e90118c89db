/* Planted faults, each of which verification, the second look at an odd step, or the watch over the
 * ranks must find. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/task_name.h"
#include "run_checks.h"

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
        describe_plan(plan, model);
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

/* ---- odd values ---------------------------------------------------------------------------- */

/* An instruction that computes a tensor of a layer, or -1. */
static int find_layer(const struct plan *plan, struct sbp_random *random, int stage)
{
    const struct sbp_program *program = &plan->step.program[stage];
    int found = -1, seen = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int out = instr->buffer[SBP_AT_OUT];
        if ((instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) && out >= 0 &&
            instr->section != SBP_SECTION_RECOMPUTE && program->buffer[out].tensor >= 0 &&
            sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    }
    return found;
}

/* Runs a plan with an odd value planted in every step; returns whether the run saw it. What a relu
 * or a dropout throws away goes unseen, in a step or in all of them. */
static bool check_odd(const struct plan *plan, struct sbp_random *random, const char *model,
                      bool verify, int stage, int at)
{
    struct sbp_run_options options = options_for(SBP_F32, random);
    struct sbp_run_result result;
    options.verify = verify;
    options.steps = 3;
    options.fault = SBP_FAULT_ODD;
    options.fault_stage = stage;
    options.fault_instr = at;
    run_plan(plan, &options, model, &result);
    const struct sbp_program *program = &plan->step.program[stage];
    const struct sbp_instr *instr = &program->instr[at];
    const bool is_seen = result.odd.step > 0;
    const struct sbp_odd_layer *layer = &result.odd.layer;
    const char *what = instr->kind == SBP_INSTR_FORWARD ? "output" : "input gradient";
    const int rank = (stage + 1) * (int)plan->step.mesh.devices - 1;
    if (is_seen && (result.odd.step != result.steps || !layer->found ||
                    strcmp(layer->layer, plan->graph.op[instr->op].name) != 0 ||
                    strcmp(layer->what, what) != 0 || layer->rank != rank)) {
        describe_plan(plan, model);
        fail_msg("planted in the %s of %s on rank %d, found in the %s of %s on rank %d, step %d",
                 what, plan->graph.op[instr->op].name, rank, layer->what, layer->layer, layer->rank,
                 result.odd.step);
    }
    sbp_run_free(&result);
    return is_seen;
}

static void odd_layers_are_named(void **state)
{
    enum { TRIES = 72, LEAST = 48 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int seen = 0, planted = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2000);
    for (int tries = 0; planted < TRIES && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        const bool cut = tries % 2 == 0;
        if (!cut || plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
            const int stage = (int)sbp_random_below(&random, (uint64_t)plan.step.stages);
            const int at = has_alike_ties(&plan) ? find_layer(&plan, &random, stage) : -1;
            if (at >= 0) {
                seen += check_odd(&plan, &random, model, tries % 5 == 0, stage, at);
                planted++;
            }
        }
        plan_close(&plan);
    }
    if (planted < TRIES || seen < LEAST)
        fail_msg("%d planted, %d seen", planted, seen);
}

/* ---- ranks that do not go on --------------------------------------------------------------- */

static int said_into; /* a pipe, in the child */

static void say_fault(int number, const char *fault)
{
    (void)number;
    _exit(fault != NULL && write(said_into, fault, strlen(fault)) > 0 ? 1 : 99);
}

/* The run never returns, so that a child runs it. */
static void run_stalled(const struct plan *plan, const struct sbp_run_options *options, int into)
{
    struct sbp_alarm alarm = {.end = say_fault};
    struct sbp_run_options watched = *options;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    said_into = into;
    watched.alarm = &alarm;
    watched.deadline_s = 0.5;
    (void)!sbp_run(&plan->step, &plan->cluster, &watched, &result, &diag);
    _exit(98);
}

static void check_stall(const struct plan *plan, const struct sbp_run_options *options)
{
    const int stage = options->fault_stage, rank = (stage + 1) * (int)plan->step.mesh.devices - 1;
    char said[1024] = "", culprit[64], name[160];
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_stalled(plan, options, ends[1]);
    (void)close(ends[1]);
    const ssize_t length = read(ends[0], said, sizeof said - 1);
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(length > 0);
    const struct sbp_task task = {.instr = options->fault_instr, .work = SBP_WORK_FORWARD};
    sbp_task_name(&plan->step.program[stage], &task, name, sizeof name);
    name[strcspn(name, "[")] = '\0'; /* schedules differ in the micro-batch that comes first */
    (void)snprintf(culprit, sizeof culprit, "rank %d (host ", rank);
    const char *const parts[] = {culprit,          ") does not go on at step 1, ", name, "; rank ",
                                 "waits for rank", "that is over --deadline 0.5"};
    const char *at = said;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (at == NULL)
            fail_msg("no \"%s\" in: %s", parts[i], said);
    }
    print_message("%s\n", said);
}

static void stalled_ranks_are_named(void **state)
{
    enum { STALLS = 4 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 3000);
    for (int stalls = 0; stalls < STALLS;) {
        struct plan plan;
        random_model(&random, GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (stalls % 2 == 0 || plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
            struct sbp_run_options options = options_for(SBP_F32, &random);
            options.verify = stalls % 3 == 0;
            options.fault = SBP_FAULT_STALL;
            options.fault_stage = (int)sbp_random_below(&random, (uint64_t)plan.step.stages);
            options.fault_instr = find_layer(&plan, &random, options.fault_stage);
            if (options.fault_instr >= 0 && has_alike_ties(&plan)) {
                check_stall(&plan, &options);
                stalls++;
            }
        }
        plan_close(&plan);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skipped_communication_is_found),
        cmocka_unit_test(scaled_results_are_found),
        cmocka_unit_test(faults_between_stages_are_found),
        cmocka_unit_test(odd_layers_are_named),
        cmocka_unit_test(stalled_ranks_are_named),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

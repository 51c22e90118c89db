/* Runs of random strategies against one device, and planted faults that must be found.
 *
 * usage: test_run [SEED] */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "executor/run.h"
#include "run_plans.h"

enum { PERCEPTRON, RESIDUAL, GPT };
enum { MODEL_BYTES = 4096, MOST_TRIES = 400 };

static uint64_t seed = 20241;

static void describe(const struct plan *plan, const char *model)
{
    char text[128];
    print_message("seed %llu, %lld ranks: %s\n", (unsigned long long)seed,
                  (long long)plan->mesh.devices, model);
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->graph.op[op];
        print_message("  %s:", node->name);
        for (int axis = 0; axis < plan->mesh.axis_count; axis++)
            print_message(" %s",
                          sbp_op(node->kind)->follows
                              ? "-"
                              : sbp_op(node->kind)->role[plan->strategy.op[op].role[axis]].name);
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

static void open_random(struct sbp_random *random, int kind, enum sbp_real real, char *model,
                        struct plan *plan)
{
    random_model(random, kind, model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    plan_randomise(plan, random, real);
}

static void run_plan(const struct plan *plan, const struct sbp_run_options *options,
                     const char *model, struct sbp_run_result *result)
{
    struct sbp_diag diag = {0};
    const enum sbp_status status = sbp_run(&plan->program, &plan->cluster, options, result, &diag);
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
    assert_int_equal(result.high_water_bytes, plan->program.arena_bytes);
    if (result.finding.found) {
        describe(plan, model);
        fail_msg("%s", sbp_finding_text(&result.finding, text, (int)sizeof text));
    }
    if (result.worst_ratio > *worst)
        *worst = result.worst_ratio;
    sbp_run_free(&result);
}

static void check_random(int kind, int count, enum sbp_real real)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + (uint64_t)(2 * kind) + (real == SBP_F32));
    for (int i = 0; i < count; i++) {
        struct plan plan;
        open_random(&random, kind, real, model, &plan);
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
    check_random(PERCEPTRON, 70, SBP_F64);
}

static void residual_perceptrons_equal_one_device(void **state)
{
    (void)state;
    check_random(RESIDUAL, 70, SBP_F64);
}

static void gpts_equal_one_device(void **state)
{
    (void)state;
    check_random(GPT, 70, SBP_F64);
}

static void single_precision_equals_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++)
        check_random(kind, 15, SBP_F32);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* An instruction of a kind of collective (of a REDUCE where `reduce`), or -1. */
static int find_instr(const struct plan *plan, struct sbp_random *random, bool reduce,
                      enum sbp_collective kind)
{
    const struct sbp_program *program = &plan->program;
    int found = -1, seen = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind != (reduce ? SBP_INSTR_REDUCE : SBP_INSTR_BOX) || instr->box.kind != kind)
            continue;
        seen++;
        if (sbp_random_below(random, (uint64_t)seen) == 0)
            found = i;
    }
    return found;
}

static void check_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                        enum sbp_fault fault, int instr)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    options.fault = fault;
    options.fault_instr = instr;
    run_plan(plan, &options, model, &result);
    if (!result.finding.found) {
        const struct sbp_instr *at = &plan->program.instr[instr];
        describe(plan, model);
        fail_msg("%s instruction %d (%s of %s, %s) went unnoticed",
                 fault == SBP_FAULT_SKIP ? "skipping" : "scaling", instr,
                 sbp_collective_name(at->box.kind),
                 at->tensor >= 0 ? plan->graph.tensor[at->tensor].name : "a scalar",
                 sbp_cause_name(at->cause));
    }
    assert_true(result.worst_ratio > 1 || result.finding.bound == 0);
    sbp_run_free(&result);
}

/* Plants `count` faults, each in another random plan that has such an instruction. */
static void check_faults(enum sbp_fault fault, bool reduce, enum sbp_collective kind, int count)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    sbp_random_seed(&random, seed + 100 + (uint64_t)kind + (reduce ? 50 : 0) +
                                 (fault == SBP_FAULT_SKIP ? 25 : 0));
    for (int tries = 0; planted < count && tries < MOST_TRIES; tries++) {
        struct plan plan;
        open_random(&random, tries % 3, SBP_F64, model, &plan);
        const int instr = find_instr(&plan, &random, reduce, kind);
        if (instr >= 0) {
            check_fault(&plan, &random, model, fault, instr);
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
        check_faults(SBP_FAULT_SKIP, false, kinds[i], 9);
    check_faults(SBP_FAULT_SKIP, true, SBP_ALL_REDUCE, 15);
}

static void scaled_results_are_found(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_faults(SBP_FAULT_SCALE, false, kinds[i], 6);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perceptrons_equal_one_device),
        cmocka_unit_test(residual_perceptrons_equal_one_device),
        cmocka_unit_test(gpts_equal_one_device),
        cmocka_unit_test(single_precision_equals_one_device),
        cmocka_unit_test(skipped_communication_is_found),
        cmocka_unit_test(scaled_results_are_found),
    };
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    sbp_kernels_cpu_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Planted faults, each of which verification must find. */
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
                        enum sbp_real real, enum sbp_fault fault, int stage, int instr)
{
    struct sbp_run_options options = options_for(real, random);
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
static void check_faults(enum sbp_real real, enum sbp_fault fault, enum sbp_instr_kind instr_kind,
                         enum sbp_collective kind, int count)
{
    const bool cut = instr_kind == SBP_INSTR_GATHER || instr_kind == SBP_INSTR_SCATTER;
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    sbp_random_seed(&random, seed + 100 + (uint64_t)kind + 50 * (uint64_t)instr_kind +
                                 (fault == SBP_FAULT_SKIP ? 25 : 0) + 2000 * (uint64_t)real);
    for (int tries = 0; planted < count && tries < MOST_TRIES; tries++) {
        struct plan plan;
        open_random(&random, tries % 3, false, cut, SBP_BOXING_FULL, real, model, &plan);
        const int instr = find_instr(&plan, &random, instr_kind, kind);
        if (instr >= 0) {
            check_fault(&plan, &random, model, real, fault, 0, instr);
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
        check_faults(SBP_F64, SBP_FAULT_SKIP, SBP_INSTR_BOX, kinds[i], 9);
    check_faults(SBP_F64, SBP_FAULT_SKIP, SBP_INSTR_REDUCE, SBP_ALL_REDUCE, 15);
    check_faults(SBP_F64, SBP_FAULT_SKIP, SBP_INSTR_GATHER, SBP_ALL_GATHER, 12);
    check_faults(SBP_F64, SBP_FAULT_SKIP, SBP_INSTR_SCATTER, SBP_REDUCE_SCATTER, 12);
}

static void scaled_results_are_found(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_faults(SBP_F64, SBP_FAULT_SCALE, SBP_INSTR_BOX, kinds[i], 6);
    check_faults(SBP_F64, SBP_FAULT_SCALE, SBP_INSTR_GATHER, SBP_ALL_GATHER, 8);
    check_faults(SBP_F64, SBP_FAULT_SCALE, SBP_INSTR_SCATTER, SBP_REDUCE_SCATTER, 8);
}

/* Bounds of bfloat16 are wide, yet what no exchange brings is far outside. */
static void skipped_communication_of_16_bits_is_found(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_faults(SBP_REAL_BF16, SBP_FAULT_SKIP, SBP_INSTR_BOX, kinds[i], 6);
    check_faults(SBP_REAL_BF16, SBP_FAULT_SKIP, SBP_INSTR_REDUCE, SBP_ALL_REDUCE, 6);
    check_faults(SBP_REAL_BF16, SBP_FAULT_SKIP, SBP_INSTR_GATHER, SBP_ALL_GATHER, 6);
    check_faults(SBP_REAL_BF16, SBP_FAULT_SKIP, SBP_INSTR_SCATTER, SBP_REDUCE_SCATTER, 6);
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
                check_fault(&plan, &random, model, SBP_F64,
                            sort == 0 ? SBP_FAULT_SKIP : SBP_FAULT_SCALE, stage, instr);
                planted[sort]++;
            }
        }
        plan_close(&plan);
    }
    for (int sort = 0; sort < 3; sort++)
        assert_int_equal(planted[sort], FAULTS / 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skipped_communication_is_found),
        cmocka_unit_test(skipped_communication_of_16_bits_is_found),
        cmocka_unit_test(scaled_results_are_found),
        cmocka_unit_test(faults_between_stages_are_found),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

/* Exchanges that are left out, and results that are spoiled: verification must find them. */
#include <string.h>

#include "run_checks.h"

/* Whether the last rank holds a weight, or a shard. */
static bool last_rank_has(const struct sbp_program *program, int tensor)
{
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const int64_t last = program->mesh.devices - 1;
    return shard->owner < 0 ||
           sbp_mesh_group_place(&program->mesh, shard->axes, last) == shard->owner;
}

/* An instruction with a kind of collective, or -1. */
static int find_instr(const struct plan *plan, struct sbp_random *random,
                      enum sbp_instr_kind instr_kind, enum sbp_collective kind)
{
    const struct sbp_program *program = plan->program;
    int found = -1, seen = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind != instr_kind || instr->box.kind != kind ||
            (instr->section != SBP_SECTION_FORWARD && may_be_zeros(plan, instr)))
            continue;
        if (instr_kind == SBP_INSTR_SCATTER && !last_rank_has(program, instr->tensor))
            continue; /* where a result is spoiled */
        const bool owned = instr->tensor >= 0 && program->shard[instr->tensor].owner >= 0;
        if ((instr_kind == SBP_INSTR_GATHER || owned) &&
            instr->tensor != program->graph->op[instr->op].weight[0])
            continue; /* a bias that is gathered for the backward pass is not read there */
        seen++;
        if (sbp_random_below(random, (uint64_t)seen) == 0)
            found = i;
    }
    return found;
}

static void check_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                        enum sbp_real real, enum sbp_fault fault, int piece, int instr)
{
    struct sbp_run_options options = options_for(real, random);
    struct sbp_run_result result;
    plant_fault(&options, fault, piece, instr);
    run_plan(plan, &options, model, &result);
    if (!result.finding.found) {
        const struct sbp_instr *at = &plan->step.program[piece].instr[instr];
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
        const int sort = real == SBP_F64 ? kind_of(tries) : tries % 3;
        open_random(&random, sort, false, cut, SBP_BOXING_FULL, real, model, &plan);
        const int instr = find_instr(&plan, &random, instr_kind, kind);
        if (instr >= 0) {
            check_fault(&plan, &random, model, real, fault, 0, instr);
            planted++;
        }
        plan_close(&plan);
    }
    assert_int_equal(planted, count);
}

/* So many in transfers of each kind, in sums of gradients, and in gathering and scattering weights
 * each. */
static void check_all_faults(enum sbp_real real, enum sbp_fault fault, int transfers, int sums,
                             int cuts)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_faults(real, fault, SBP_INSTR_BOX, kinds[i], transfers);
    check_faults(real, fault, SBP_INSTR_REDUCE, SBP_ALL_REDUCE, sums);
    check_faults(real, fault, SBP_INSTR_GATHER, SBP_ALL_GATHER, cuts);
    check_faults(real, fault, SBP_INSTR_SCATTER, SBP_REDUCE_SCATTER, cuts);
    for (int hand = 0; hand < 2 && real == SBP_F64; hand++) { /* from owners and to them */
        const enum sbp_collective kind = hand ? SBP_SEND_RECV : SBP_BROADCAST_COLL;
        check_faults(real, fault, SBP_INSTR_GATHER, kind, cuts / 2);
        check_faults(real, fault, SBP_INSTR_SCATTER, kind, cuts / 2);
    }
}

static void skipped_communication_is_found(void **state)
{
    (void)state;
    check_all_faults(SBP_F64, SBP_FAULT_SKIP, 9, 15, 12);
}

static void scaled_results_are_found(void **state)
{
    (void)state;
    check_all_faults(SBP_F64, SBP_FAULT_SCALE, 6, 0, 8);
}

/* Whether an instruction makes a gradient whole for a mirrored tensor, at rest or as it is left. */
static bool serves_mirror(const struct plan *plan, const struct sbp_instr *instr)
{
    if (instr->kind != SBP_INSTR_BOX || instr->cause != SBP_CAUSE_ACTIVATION_GRADIENT ||
        instr->tensor == plan->graph.input)
        return false;
    const int producer = plan->graph.tensor[instr->tensor].producer;
    const struct sbp_dist *rest = &plan->strategy.rest[instr->tensor];
    const struct sbp_dist left =
        sbp_strategy_output(&plan->graph, &plan->mesh, &plan->strategy, producer);
    return (instr->box.axes & (sbp_dist_of_kind(&plan->mesh, rest, SBP_MIRRORED) |
                               sbp_dist_of_kind(&plan->mesh, &left, SBP_MIRRORED))) != 0;
}

/* The gradient that mirrored work goes back through comes of readers that divide theirs. */
static void skipped_gradients_of_mirrored_work_are_found(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER};
    enum { FAULTS = 8 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted[2] = {0};
    (void)state;
    sbp_random_seed(&random, seed + 4000);
    for (int tries = 0; planted[0] + planted[1] < 2 * FAULTS && tries < MOST_TRIES; tries++) {
        const int sort = planted[0] > planted[1];
        struct plan plan;
        int found = -1;
        open_random(&random, tries % 3, true, false, SBP_BOXING_FULL, SBP_F64, model, &plan);
        for (int i = 0; i < plan.program->instr_count; i++)
            if (plan.program->instr[i].box.kind == kinds[sort] &&
                serves_mirror(&plan, &plan.program->instr[i]))
                found = i;
        if (found >= 0) {
            check_fault(&plan, &random, model, SBP_F64, SBP_FAULT_SKIP, 0, found);
            planted[sort]++;
        }
        plan_close(&plan);
    }
    assert_int_equal(planted[0], FAULTS);
    assert_int_equal(planted[1], FAULTS);
}

/* Bounds of bfloat16 are wide, yet what no exchange brings is far outside. */
static void skipped_communication_of_16_bits_is_found(void **state)
{
    (void)state;
    check_all_faults(SBP_REAL_BF16, SBP_FAULT_SKIP, 6, 6, 6);
}

/* The first chunk sums the norm for all, and the last one that holds a weight the weight. */
static bool runs(const struct plan *plan, int piece, const struct sbp_instr *instr)
{
    bool later = false;
    if (instr->tensor < 0)
        return piece < plan->step.stages;
    for (int other = piece + 1; other < plan->step.pieces; other++)
        later |= plan->step.program[other].weight_buffer[instr->tensor] >= 0;
    return instr->box.kind != SBP_LOCAL || !later;
}

/* A message, or a sum over stages or chunks, of a random piece; -1: it has none. */
static int find_between(const struct plan *plan, struct sbp_random *random, bool message,
                        int *piece)
{
    const enum sbp_instr_kind kind = message ? SBP_INSTR_RECEIVE : SBP_INSTR_INNER;
    int found = -1, seen = 0;
    *piece = (int)sbp_random_below(random, (uint64_t)plan->step.pieces);
    const struct sbp_program *program = &plan->step.program[*piece];
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].kind == kind && runs(plan, *piece, &program->instr[i]) &&
            !may_be_zeros(plan, &program->instr[i]) &&
            sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    return found;
}

/* Messages that arrive as zeros or spoiled, and spoiled sums: between stages, and between chunks
 * under the interleaved schedule. */
static void check_faults_between(enum sbp_schedule schedule, uint64_t stream)
{
    enum { FAULTS = 10 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted[3] = {0};
    sbp_random_seed(&random, seed + stream);
    for (int tries = 0; tries < 120 * MOST_TRIES; tries++) {
        struct plan plan;
        const int sort = tries % 3; /* a message skipped, spoiled; a sum spoiled */
        if (planted[sort] == FAULTS)
            continue;
        random_model(&random, GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan_cut_stages(&plan, &random) && plan.parallel.schedule == schedule) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F64);
            int piece;
            const int instr = find_between(&plan, &random, sort < 2, &piece);
            if (instr >= 0 && has_alike_ties(&plan)) {
                check_fault(&plan, &random, model, SBP_F64,
                            sort == 0 ? SBP_FAULT_SKIP : SBP_FAULT_SCALE, piece, instr);
                planted[sort]++;
            }
        }
        plan_close(&plan);
    }
    for (int sort = 0; sort < 3; sort++)
        assert_int_equal(planted[sort], FAULTS);
}

static void faults_between_stages_are_found(void **state)
{
    (void)state;
    check_faults_between(SBP_ONE_F_ONE_B, 1000);
}

static void faults_between_chunks_are_found(void **state)
{
    (void)state;
    check_faults_between(SBP_INTERLEAVED, 1200);
}

/* The collective of a rank that has one element less is named before it is called. */
static void other_counts_are_named(void **state)
{
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL};
    enum { COUNTS = 5 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int named[4] = {0};
    (void)state;
    sbp_random_seed(&random, seed + 3000);
    for (int tries = 0; tries < 4 * MOST_TRIES; tries++) {
        struct plan plan;
        struct sbp_diag diag = {0};
        struct sbp_run_result result;
        open_random(&random, kind_of(tries), false, false, SBP_BOXING_FULL, SBP_F32, model, &plan);
        const int instr = find_instr(&plan, &random, SBP_INSTR_BOX, kinds[tries % 4]);
        if (instr >= 0 && named[tries % 4] < COUNTS) {
            struct sbp_run_options options = options_for(SBP_F32, &random);
            options.verify = false;
            options.compares = true;
            plant_fault(&options, SBP_FAULT_COUNT, 0, instr);
            assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag),
                             SBP_E_INTERNAL);
            assert_non_null(strstr(diag.text, " come to collectives of another count: rank "));
            assert_non_null(strstr(diag.text, sbp_collective_name(kinds[tries % 4])));
            assert_non_null(strstr(diag.text, " of step 1, rank "));
            named[tries % 4]++;
        }
        plan_close(&plan);
    }
    for (int kind = 0; kind < 4; kind++)
        assert_int_equal(named[kind], COUNTS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_counts_are_named),
        cmocka_unit_test(skipped_communication_is_found),
        cmocka_unit_test(skipped_gradients_of_mirrored_work_are_found),
        cmocka_unit_test(skipped_communication_of_16_bits_is_found),
        cmocka_unit_test(scaled_results_are_found),
        cmocka_unit_test(faults_between_stages_are_found),
        cmocka_unit_test(faults_between_chunks_are_found),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}

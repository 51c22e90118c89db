/* The second opinion on plans that no compiler would make: with an instruction too few, or by rules
 * that only the whole of a plan can break.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "tests/support/check_bench.h"
#include "tests/support/unit.h"

/* A compiler that forgets an instruction lays its buffers out for what is left, and prices that: so
 * it is what flows that must miss it, not the lives of buffers or the sums of prices. */
static void expect_missed(const struct bench *b, const struct sbp_instr *dropped)
{
    static const char *const LATER[] = {"lives from", "arena", "price", "is work", "takes"};
    struct sbp_diag diag;
    if (check(b, &diag) != SBP_E_INTERNAL)
        fail_msg("%s seed %llu: %s in section %s is not missed", b->plan.cut.graph.name,
                 (unsigned long long)b->seed, sbp_program_instr_name(dropped->kind),
                 sbp_program_section_name(dropped->section));
    for (size_t i = 0; i < sizeof LATER / sizeof *LATER; i++)
        if (strstr(diag.text, LATER[i]) != NULL)
            fail_msg("%s seed %llu: %s in section %s is missed too late: %s",
                     b->plan.cut.graph.name, (unsigned long long)b->seed,
                     sbp_program_instr_name(dropped->kind),
                     sbp_program_section_name(dropped->section), diag.text);
}

/* Leaves one instruction after the other out of a program. */
static int drop_each(struct bench *b, struct sbp_program *program)
{
    const int count = program->instr_count;
    for (int i = 0; i < count; i++) {
        const struct sbp_instr dropped = program->instr[i];
        struct sbp_instr *place = &program->instr[i];
        const size_t bytes = (size_t)(count - i - 1) * sizeof dropped;
        memmove(place, place + 1, bytes);
        program->instr_count--;
        expect_missed(b, &dropped);
        memmove(place + 1, place, bytes);
        *place = dropped;
        program->instr_count++;
    }
    return count;
}

static void test_every_instruction_is_needed(void **state)
{
    int dropped = 0;
    (void)state;
    for (int setting = 0; setting < setting_count(); setting++) {
        struct bench b;
        uint64_t seed = SEED;
        while (seed < SEED + 240 && !bench_open(&b, setting, seed))
            seed++;
        if (seed == SEED + 240)
            fail_msg("setting %d has no plan from seed %llu on", setting, (unsigned long long)SEED);
        for (int i = 0; i < b.step.program_count; i++)
            dropped += drop_each(&b, &b.step.program[i]);
        bench_close(&b);
    }
    print_message("%d instructions left out, seed %llu\n", dropped, (unsigned long long)SEED);
}

static int op_named(const struct sbp_graph *graph, const char *name)
{
    for (int op = 0; op < graph->op_count; op++)
        if (strcmp(graph->op[op].name, name) == 0)
            return op;
    fail_msg("no operator %s", name);
    return -1;
}

static void begin(struct bench *b, const char *model, const char *cluster)
{
    struct sbp_diag diag = {0};
    *b = (struct bench){0};
    if (sbp_plan_begin(parsed(model), "model", parsed(cluster), "cluster", &b->plan, &diag) !=
            SBP_OK ||
        sbp_strategy_alloc(&b->plan.cut.graph, &b->plan.arena, &b->plan.strategy) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* Compiles a strategy that the planner itself refuses, and expects the same of the check. */
static void expect_refusal(struct bench *b, const char *word)
{
    struct sbp_diag diag = {0};
    assert_int_equal(
        sbp_strategy_close(&b->plan.cut.graph, &b->plan.cut.mesh, &b->plan.strategy, &diag),
        SBP_E_INPUT);
    diag = (struct sbp_diag){0};
    if (sbp_cut_step(&b->plan.cut, &b->plan.strategy, false, &b->step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_claim claim = {.plan = &b->plan, .step = &b->step};
    assert_int_equal(sbp_verify_plan(&claim, &diag), SBP_E_INTERNAL);
    if (strstr(diag.text, word) == NULL)
        fail_msg("\"%s\" where \"%s\" is expected", diag.text, word);
    sbp_step_free(&b->step);
    sbp_plan_free(&b->plan);
}

/* Every layer's parts divide a batch of 2, and all axes that split it anywhere do not. */
static void test_digits_of_the_whole_plan(void **state)
{
    static const char *const MODEL =
        "{\"name\": \"m\", \"global_batch\": 2, \"layers\": ["
        "{\"op\": \"linear\", \"name\": \"a\", \"in\": 16, \"out\": 16},"
        "{\"op\": \"linear\", \"name\": \"b\", \"in\": 16, \"out\": 16}]}";
    struct bench b;
    (void)state;
    begin(&b, MODEL, FLAT);
    const int batch = sbp_op_role(sbp_op(SBP_OP_LINEAR), "batch");
    const int column = sbp_op_role(sbp_op(SBP_OP_LINEAR), "column");
    for (int layer = 0; layer < 2; layer++) {
        const int op = op_named(&b.plan.cut.graph, layer == 0 ? "a" : "b");
        for (int axis = 0; axis < 2; axis++) {
            const bool by_batch = axis == layer;
            b.plan.strategy.op[op].role[axis] = (uint8_t)(by_batch ? batch : column);
            if (layer == 1) /* what the first one leaves rests whole: no transfer meets both */
                b.plan.strategy.rest[b.plan.cut.graph.op[op].output].axis[axis] =
                    SBP_STATE_S((uint8_t)(by_batch ? SBP_DIM_BATCH : SBP_DIM_FEATURE));
        }
    }
    expect_refusal(&b, "make 4 parts of 2");
}

/* 12 heads read 6 pairs of keys and values: on an axis that splits heads alone, outside of one that
 * splits both, a device's heads lie with another device's keys. */
static void test_heads_lie_with_keys(void **state)
{
    struct bench b;
    (void)state;
    begin(&b, LLAMA, FLAT);
    const struct sbp_graph *graph = &b.plan.cut.graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_entry *entry = graph->op[op].entry;
        const int whole = sbp_op_role(entry, "replicate");
        for (int axis = 0; axis < 2; axis++) {
            b.plan.strategy.op[op].role[axis] = (uint8_t)whole;
            if (graph->op[op].kind == SBP_OP_GROUPED_ATTENTION)
                b.plan.strategy.op[op].role[axis] =
                    (uint8_t)sbp_op_role(entry, axis == 0 ? "query" : "head");
        }
    }
    expect_refusal(&b, "lies with another device");
}

/* Rows of images split inside of an axis that splits them elsewhere in the plan. */
static void test_rows_lie_in_runs(void **state)
{
    struct bench b;
    bool first = true;
    (void)state;
    begin(&b, IMAGES, FLAT);
    const struct sbp_graph *graph = &b.plan.cut.graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_entry *entry = graph->op[op].entry;
        for (int axis = 0; axis < 2; axis++)
            b.plan.strategy.op[op].role[axis] = (uint8_t)sbp_op_role(entry, "replicate");
        if (graph->op[op].kind != SBP_OP_CONV2D)
            continue;
        b.plan.strategy.op[op].role[first ? 0 : 1] = (uint8_t)sbp_op_role(entry, "height");
        first = false;
    }
    expect_refusal(&b, "lies before a row");
}

/* ---- fixes that repeats have of their own --------------------------------------------------- */

/* The plan with another ZeRO level of one operator, and what is then claimed of it. */
static void set_level(struct bench *b, int op, int level)
{
    struct sbp_diag diag = {{0}};
    b->plan.strategy.zero[op] = (uint8_t)level;
    sbp_step_free(&b->step);
    if (sbp_cut_step(&b->plan.cut, &b->plan.strategy, false, &b->step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    b->outcome.status = SBP_PLAN_FEASIBLE;
    b->outcome.objective_s = b->step.totals.step_s;
    b->outcome.lower_bound_s = -INFINITY;
}

/* A repeat of a follower keeps to its own fix, not to its site's. */
static bool check_own_fix(int setting, uint64_t seed)
{
    struct bench b;
    struct sbp_diag diag;
    if (!bench_open(&b, setting, seed))
        return false;
    const int op = bench_repeat_of_follower(&b);
    const bool tries = op >= 0 && b.plan.cut.parallel.owner == SBP_OWNER_NONE;
    if (tries) {
        struct sbp_fix fix[2];
        fix[0] = fix[1] = *bench_ask_for(&b, op);
        fix[0].zero = bench_zero_level(&b, b.plan.cut.graph.op[op].site);
        fix[1].zero = (fix[0].zero + 1) % 4;
        (void)snprintf(fix[1].layer, sizeof fix[1].layer, "%s", b.plan.cut.graph.op[op].name);
        b.request.fix = fix;
        b.request.fix_count = 2;
        set_level(&b, op, fix[1].zero);
        if (check(&b, &diag) != SBP_OK)
            fail_msg("setting %d seed %llu: %s", setting, (unsigned long long)seed, diag.text);
        set_level(&b, op, fix[0].zero);
        assert_int_equal(check(&b, &diag), SBP_E_INTERNAL);
    }
    bench_close(&b);
    return tries;
}

static void test_own_fixes_of_repeats(void **state)
{
    int tried = 0;
    (void)state;
    for (int setting = 0; setting < setting_count(); setting++)
        for (uint64_t seed = SEED; seed < SEED + 4; seed++)
            tried += check_own_fix(setting, seed);
    print_message("%d plans\n", tried);
    assert_true(tried > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_instruction_is_needed),
        cmocka_unit_test(test_digits_of_the_whole_plan),
        cmocka_unit_test(test_heads_lie_with_keys),
        cmocka_unit_test(test_rows_lie_in_runs),
        cmocka_unit_test(test_own_fixes_of_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

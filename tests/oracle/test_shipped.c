/* Searches of shipped models on shipped clusters: the numbers of AutoDDL's perceptron and attention
 * layer; limits, bounds, fixes and seeds of a request. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "oracle_plan.h"
#include "planner/inner/cut_solve.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

/* --- the perceptron of AutoDDL, figure 8 --- */

static void set_number(cJSON *object, const char *key, double value)
{
    cJSON_DeleteItemFromObject(object, key);
    assert_non_null(cJSON_AddNumberToObject(object, key, value));
}

static void open_perceptron(const char *cluster, double batch, struct sbp_plan *plan)
{
    cJSON *const model = shipped("models", "autoddl-mlp");
    set_number(model, "global_batch", batch);
    begin_plan(model, shipped("clusters", cluster), plan);
}

static struct sbp_request paper_request(const char *solver, uint64_t seed)
{
    struct sbp_request request = {.space = SBP_SPACE_AUTODDL,
                                  .objective = SBP_COMMUNICATION,
                                  .solver = sbp_solver_find(solver)};
    request.solver_options.seed = seed;
    return request;
}

static struct sbp_outcome search(struct sbp_plan *plan, const struct sbp_request *request)
{
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    if (solve_plan(plan, request, &outcome, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return outcome;
}

static void assert_ms(double objective_s, double expected_ms)
{
    if (!is_close(objective_s, expected_ms * 1e-3))
        fail_msg("%.12g ms, expected %.12g ms", objective_s * 1e3, expected_ms);
}

static void test_perceptron_128(void **state)
{
    (void)state;
    static const struct {
        double batch;
        enum sbp_boxing_mode boxing;
        double expected_ms;
    } cases[] = {
        {1024, SBP_BOXING_FULL, 2.4968192},
        {32768, SBP_BOXING_FULL, 20.0008128},
        {32768, SBP_BOXING_PAPER, 20.2808128},
    };
    static const char *const solvers[] = {"exact", "exhaustive", "coordinate-descent"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_plan plan;
        open_perceptron("flat-128", cases[i].batch, &plan);
        for (int s = 0; s < 3; s++) {
            struct sbp_request request = paper_request(solvers[s], 1);
            request.boxing = cases[i].boxing;
            const struct sbp_outcome outcome = search(&plan, &request);
            assert_ms(outcome.objective_s, cases[i].expected_ms);
            assert_ms(compiled_totals(&plan).communication_s, cases[i].expected_ms);
            if (s < 2)
                assert_string_equal(sbp_solver_status_name(outcome.status), "optimal");
        }
        sbp_plan_free(&plan);
    }
}

static void test_perceptron_4096(void **state)
{
    (void)state;
    struct sbp_plan plan;
    open_perceptron("flat-4096", 1024, &plan);
    struct sbp_request request = paper_request("exact", 0);
    const double exact = search(&plan, &request).objective_s;
    request = paper_request("exhaustive", 0);
    const struct sbp_outcome all = search(&plan, &request);
    if (!is_close(all.objective_s, exact))
        fail_msg("exhaustive %.17g, exact %.17g", all.objective_s, exact);
    for (uint64_t seed = 0; seed < 5; seed++) {
        request = paper_request("coordinate-descent", seed);
        const double descent = search(&plan, &request).objective_s;
        if (!is_close(descent, exact))
            fail_msg("seed %" PRIu64 ": coordinate descent %.17g, exact %.17g", seed, descent,
                     exact);
        request = paper_request("metropolis-hastings", seed);
        const double metropolis = search(&plan, &request).objective_s;
        if (metropolis > 1.01 * exact || metropolis < exact * (1 - CLOSE))
            fail_msg("seed %" PRIu64 ": metropolis-hastings %.17g, exact %.17g", seed, metropolis,
                     exact);
    }
    print_message("4096 devices: %.10g ms, %" PRId64 " strategies priced by exhaustive search\n",
                  exact * 1e3, all.evaluations);
    sbp_plan_free(&plan);
}

/* Two searches with one seed leave the same bytes behind. */
static void assert_same_strategy(const struct sbp_plan *a, const struct sbp_plan *b)
{
    assert_int_equal(a->strategy.boxing, b->strategy.boxing);
    for (int op = 0; op < a->cut.graph.op_count; op++)
        assert_memory_equal(&a->strategy.op[op], &b->strategy.op[op], sizeof a->strategy.op[op]);
    for (int t = 0; t < a->cut.graph.tensor_count; t++)
        assert_memory_equal(&a->strategy.rest[t], &b->strategy.rest[t], sizeof a->strategy.rest[t]);
    for (int c = 0; c < a->cut.graph.class_count; c++)
        assert_int_equal(a->strategy.split[c], b->strategy.split[c]);
}

static void test_same_seed(void **state)
{
    (void)state;
    static const char *const solvers[] = {"exact", "coordinate-descent", "metropolis-hastings",
                                          "random"};
    static const char *const models[] = {"autoddl-mlp", "tiny-gpt"};
    for (int s = 0; s < 4; s++)
        for (int m = 0; m < 2; m++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                struct sbp_plan plan[2];
                struct sbp_outcome outcome[2];
                for (int i = 0; i < 2; i++) {
                    begin_plan(shipped("models", models[m]),
                               shipped("clusters", m == 0 ? "flat-128" : "laptop-4"), &plan[i]);
                    struct sbp_request request = paper_request(solvers[s], seed);
                    request.space = m == 0 ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL;
                    outcome[i] = search(&plan[i], &request);
                    assert_true(outcome[i].objective_s < INFINITY);
                }
                assert_true(outcome[0].objective_s == outcome[1].objective_s);
                assert_true(outcome[0].lower_bound_s == outcome[1].lower_bound_s);
                assert_int_equal(outcome[0].evaluations, outcome[1].evaluations);
                assert_same_strategy(&plan[0], &plan[1]);
                sbp_plan_free(&plan[0]);
                sbp_plan_free(&plan[1]);
            }
}

/* --- the attention layer of AutoDDL, figure 3 --- */

static int role_named(enum sbp_op_kind kind, const char *name)
{
    for (int role = 0; role < sbp_op(kind)->role_count; role++)
        if (strcmp(sbp_op(kind)->role[role].name, name) == 0)
            return role;
    fail_msg("no role %s", name);
    return -1;
}

static void fix_linear(struct sbp_fix *fix, const char *layer, int64_t batch, int64_t column,
                       int64_t row)
{
    memset(fix, 0, sizeof *fix);
    snprintf(fix->layer, sizeof fix->layer, "%s", layer);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->factor[role][level] = SBP_ANY;
    fix->factor[role_named(SBP_OP_LINEAR, "batch")][0] = batch;
    fix->factor[role_named(SBP_OP_LINEAR, "column")][0] = column;
    fix->factor[role_named(SBP_OP_LINEAR, "row")][0] = row;
}

static int64_t factor_of(const struct sbp_plan *plan, const char *layer, const char *role)
{
    for (int op = 0; op < plan->cut.graph.op_count; op++)
        if (strcmp(plan->cut.graph.op[op].name, layer) == 0) {
            int64_t factor = 1;
            for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
                if (plan->strategy.op[op].role[axis] ==
                    role_named(plan->cut.graph.op[op].kind, role))
                    factor *= plan->cut.mesh.axis[axis].size;
            return factor;
        }
    fail_msg("no layer %s", layer);
    return 0;
}

static void check_linear(const struct sbp_plan *plan, const char *layer, int64_t batch,
                         int64_t column, int64_t row)
{
    const int64_t b = factor_of(plan, layer, "batch"), c = factor_of(plan, layer, "column"),
                  r = factor_of(plan, layer, "row");
    if (b != batch || c != column || r != row)
        fail_msg("%s: (%" PRId64 ", %" PRId64 ", %" PRId64 "), expected (%" PRId64 ", %" PRId64
                 ", %" PRId64 ")",
                 layer, b, c, r, batch, column, row);
}

static void check_elements(const struct sbp_plan *plan, double expected)
{
    const double elements = compiled_totals(plan).forward_activation_elements / 1073741824.0;
    if (!is_close(elements, expected))
        fail_msg("%.12g x 2^30 elements, expected %.12g", elements, expected);
}

static void test_figure_3(void **state)
{
    (void)state;
    struct sbp_plan plan;
    begin_plan(shipped("models", "autoddl-attention"), shipped("clusters", "flat-64"), &plan);
    struct sbp_request request = paper_request("exact", 0);
    request.max_batch_split = 4;
    request.memory_limit_bytes = INT64_C(1) << 50;
    struct sbp_fix fix[2];
    fix_linear(&fix[0], "qkv", 4, 16, 1);
    fix_linear(&fix[1], "projection", 4, 1, 16);
    request.fix = fix;
    request.fix_count = 2;
    const struct sbp_outcome megatron = search(&plan, &request);
    check_linear(&plan, "qkv", 4, 16, 1);
    check_linear(&plan, "projection", 4, 1, 16);
    check_elements(&plan, 3.75);
    request.fix_count = 0;
    const struct sbp_outcome best = search(&plan, &request);
    check_linear(&plan, "qkv", 4, 8, 2);
    check_linear(&plan, "projection", 4, 4, 4);
    check_elements(&plan, 2.0);
    assert_true(best.objective_s < megatron.objective_s);
    assert_string_equal(sbp_solver_status_name(best.status), "optimal");
    request.space = SBP_SPACE_MEGATRON;
    const struct sbp_outcome restricted = search(&plan, &request);
    if (!is_close(restricted.objective_s, megatron.objective_s))
        fail_msg("space megatron %.17g, its strategy fixed by hand %.17g", restricted.objective_s,
                 megatron.objective_s);
    check_elements(&plan, 3.75);
    sbp_plan_free(&plan);
}

/* --- requests: limits, bounds and fixes on shipped models --- */

static void test_memory_limit(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"tiny-gpt", "laptop-4"}, {"autoddl-mlp", "flat-64"}, {"gpt2-small", "laptop-4"}};
    for (int i = 0; i < 3; i++) {
        struct sbp_plan plan;
        begin_plan(shipped("models", pairs[i][0]), shipped("clusters", pairs[i][1]), &plan);
        struct sbp_request request = {
            .space = SBP_SPACE_FULL, .quick = true, .memory_limit_bytes = INT64_C(1) << 50};
        const double free_s = search(&plan, &request).objective_s;
        const int64_t most = compiled_totals(&plan).device_bytes;
        double last_s = free_s;
        for (int percent = 99; percent >= 40; percent -= 8) {
            request.memory_limit_bytes = most / 100 * percent;
            const struct sbp_outcome outcome = search(&plan, &request);
            if (isinf(outcome.objective_s))
                break;
            const int64_t bytes = compiled_totals(&plan).device_bytes;
            if (bytes > request.memory_limit_bytes)
                fail_msg("%s: %" PRId64 " bytes over the limit %" PRId64, pairs[i][0], bytes,
                         request.memory_limit_bytes);
            if (outcome.objective_s < free_s * (1 - CLOSE) ||
                (outcome.status == SBP_PLAN_OPTIMAL && outcome.objective_s < last_s * (1 - CLOSE)))
                fail_msg("%s: cheaper with less memory: %.17g, %.17g before", pairs[i][0],
                         outcome.objective_s, last_s);
            print_message("%s at %d %% of %" PRId64 " bytes: %s, %.4g x, bound %.4g x\n",
                          pairs[i][0], percent, most, sbp_solver_status_name(outcome.status),
                          outcome.objective_s / free_s, outcome.lower_bound_s / free_s);
            if (outcome.status == SBP_PLAN_OPTIMAL)
                last_s = outcome.objective_s;
        }
        request.memory_limit_bytes = most / 1000;
        const struct sbp_outcome none = search(&plan, &request);
        assert_string_equal(sbp_solver_status_name(none.status), "infeasible");
        assert_true(none.needed_bytes > request.memory_limit_bytes);
        request.memory_limit_bytes = none.needed_bytes;
        const struct sbp_outcome again = search(&plan, &request);
        print_message("%s: infeasible, %" PRId64 " bytes needed; with them: %s\n", pairs[i][0],
                      none.needed_bytes, sbp_solver_status_name(again.status));
        assert_true(again.objective_s < INFINITY);
        sbp_plan_free(&plan);
    }
}

static void test_batch_bound(void **state)
{
    (void)state;
    static const char *const layers[] = {"fc1", "fc2", "fc3", "fc4"};
    double last_s = INFINITY;
    for (int64_t most = 1; most <= 128; most *= 2) {
        struct sbp_plan plan;
        open_perceptron("flat-128", 32768, &plan);
        struct sbp_request request = paper_request("exact", 0);
        request.max_batch_split = most;
        const struct sbp_outcome outcome = search(&plan, &request);
        for (int i = 0; i < 4; i++)
            if (factor_of(&plan, layers[i], "batch") > most)
                fail_msg("%s splits the batch %" PRId64 " ways, most %" PRId64, layers[i],
                         factor_of(&plan, layers[i], "batch"), most);
        if (outcome.objective_s > last_s * (1 + CLOSE))
            fail_msg("batch split %" PRId64 ": %.17g, %.17g with less freedom", most,
                     outcome.objective_s, last_s);
        last_s = outcome.objective_s;
        sbp_plan_free(&plan);
    }
    assert_ms(last_s, 20.0008128);
}

static void expect_refusal(const struct sbp_request *request, const char *names)
{
    struct sbp_plan plan;
    open_perceptron("flat-128", 1024, &plan);
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    const enum sbp_status status = solve_plan(&plan, request, &outcome, &diag);
    if (status != SBP_E_INPUT || strstr(diag.text, names) == NULL)
        fail_msg("%s, expected E_INPUT that names %s: %s", sbp_status_name(status), names,
                 diag.text);
    sbp_plan_free(&plan);
}

static void test_fixes(void **state)
{
    (void)state;
    struct sbp_fix fix;
    struct sbp_request request = paper_request("exact", 0);
    request.fix = &fix;
    request.fix_count = 1;
    struct sbp_plan plan;
    open_perceptron("flat-128", 1024, &plan);
    fix_linear(&fix, "fc2", 2, 32, 2);
    const struct sbp_outcome fixed = search(&plan, &request);
    check_linear(&plan, "fc2", 2, 32, 2);
    assert_true(fixed.objective_s > 2.4968192e-3 * (1 - CLOSE));
    fix_linear(&fix, "fc3", SBP_ANY, SBP_ANY, 16);
    search(&plan, &request);
    assert_int_equal(factor_of(&plan, "fc3", "row"), 16);
    sbp_plan_free(&plan);

    fix_linear(&fix, "fc9", 128, 1, 1);
    expect_refusal(&request, "fc9");
    fix_linear(&fix, "relu1", 128, 1, 1);
    expect_refusal(&request, "relu1");
    fix_linear(&fix, "fc2", 3, SBP_ANY, SBP_ANY);
    expect_refusal(&request, "fc2");
    fix_linear(&fix, "fc2", 64, 64, 1);
    expect_refusal(&request, "fc2");
    fix_linear(&fix, "fc4", 1, 1024, 1);
    expect_refusal(&request, "fc4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perceptron_128), cmocka_unit_test(test_perceptron_4096),
        cmocka_unit_test(test_same_seed),      cmocka_unit_test(test_figure_3),
        cmocka_unit_test(test_memory_limit),   cmocka_unit_test(test_batch_bound),
        cmocka_unit_test(test_fixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

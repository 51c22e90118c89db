/* Plans: what is written reads back as the same strategy, and every instruction has an owner that
 * has to do with it. Strategies come from a seeded random search, so that they are no special
 * ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "planner/inner/cut_solve.h"
#include "planner/report/report.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

#define SEED 20260101u

static const char *const MODELS[] = {
    "{\"name\": \"mlp\", \"global_batch\": 24, \"clip_norm\": 1, \"layers\": ["
    "{\"op\": \"linear\", \"in\": 24, \"out\": 48, \"bias\": true}, {\"op\": \"gelu\"},"
    "{\"op\": \"linear\", \"in\": 48, \"out\": 24}, {\"op\": \"relu\"},"
    "{\"op\": \"linear\", \"in\": 24, \"out\": 24}, {\"op\": \"cross_entropy\"}]}",
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 24, \"heads\": 12,"
    "\"sequence\": 12, \"vocab\": 48, \"global_batch\": 24, \"dropout\": 0.1}",
    "{\"name\": \"block\", \"global_batch\": 24, \"sequence\": 12, \"input\": \"split\","
    "\"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"in\": 24, \"out\": 24},"
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 24, \"out\": 24},"
    "{\"op\": \"add\", \"inputs\": [\"a\", \"b\"]}]}",
};
static const char *const CLUSTERS[] = {
    "{\"name\": \"flat\", \"levels\": [{\"name\": \"rank\", \"size\": 4, \"alpha_s\": 1e-6,"
    "\"beta_s_per_byte\": 1e-9}], \"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": 1e12},"
    "\"memory_bytes_per_s\": 1e11}}",
    "{\"name\": \"two\", \"levels\": [{\"name\": \"node\", \"size\": 2, \"alpha_s\": 1e-5,"
    "\"beta_s_per_byte\": 1e-9}, {\"name\": \"rank\", \"size\": 6, \"alpha_s\": 1e-6,"
    "\"beta_s_per_byte\": 1e-10}], \"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": "
    "1e12},"
    "\"memory_bytes_per_s\": 1e11}}",
};

static bool make_plan(int model, int cluster, uint64_t seed, struct sbp_plan *plan)
{
    struct sbp_diag diag = {0};
    struct sbp_outcome outcome;
    struct cJSON *model_json = cJSON_Parse(MODELS[model]);
    struct cJSON *cluster_json = cJSON_Parse(CLUSTERS[cluster]);
    assert_non_null(model_json);
    assert_non_null(cluster_json);
    if (sbp_plan_begin(model_json, "model", cluster_json, "cluster", plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                        .solver = sbp_solver_find("random"),
                                        .solver_options = {.seed = seed, .max_evaluations = 1}};
    if (solve_plan(plan, &request, &outcome, &diag) != SBP_OK)
        fail_msg("model %d cluster %d seed %llu: %s", model, cluster, (unsigned long long)seed,
                 diag.text);
    return outcome.status == SBP_PLAN_FEASIBLE || outcome.status == SBP_PLAN_OPTIMAL;
}

/* --- round trip --- */

static char *text_of(const struct sbp_plan *plan)
{
    struct sbp_diag diag = {0};
    struct sbp_step step;
    struct cJSON *json = NULL;
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK ||
        sbp_plan_json(plan, &step, &json, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_step_free(&step);
    char *text = sbp_json_text(json);
    cJSON_Delete(json);
    assert_non_null(text);
    return text;
}

static void round_trip(const struct sbp_plan *plan, const char *path)
{
    struct sbp_diag diag = {0};
    struct sbp_plan again;
    char *text = text_of(plan);
    assert_int_equal(sbp_file_write(path, text, strlen(text), &diag), SBP_OK);
    if (sbp_plan_read(path, &again, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(again.strategy.boxing, plan->strategy.boxing);
    for (int op = 0; op < plan->cut.graph.op_count; op++)
        if (!plan->cut.graph.op[op].entry->follows)
            for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
                assert_int_equal(again.strategy.op[op].role[axis],
                                 plan->strategy.op[op].role[axis]);
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        const int tensor = plan->cut.graph.op[op].output;
        assert_true(tensor < 0 || sbp_dist_equal(&plan->cut.mesh, &again.strategy.rest[tensor],
                                                 &plan->strategy.rest[tensor]));
    }
    char *second = text_of(&again);
    assert_string_equal(text, second);
    free(second);
    free(text);
    sbp_plan_free(&again);
}

/* --- owners --- */

static bool uses(const struct sbp_op_node *node, int tensor)
{
    for (int i = 0; i < node->input_count; i++)
        if (node->input[i] == tensor)
            return true;
    for (int w = 0; w < node->weight_count; w++)
        if (node->weight[w] == tensor)
            return true;
    return node->output == tensor;
}

/* Seconds that a transfer of one operator's own operands costs, from its distributions alone: the
 * sum over the graph must be what the owners got, operator by operator. */
static double boxing_s(const struct sbp_report *report, int tensor, const struct sbp_dist *from,
                       const struct sbp_dist *to)
{
    const struct sbp_plan *plan = report->plan;
    const struct sbp_layout layout = {.mesh = &plan->cut.mesh,
                                      .class_count = plan->cut.graph.class_count,
                                      .split = plan->strategy.split};
    const struct sbp_dist a = sbp_dist_held(&plan->cut.mesh, from);
    const struct sbp_dist b = sbp_dist_held(&plan->cut.mesh, to);
    struct sbp_boxing boxing;
    double seconds = 0;
    assert_int_equal(
        sbp_boxing_make(&layout, &plan->cut.graph.tensor[tensor].shape, &a, &b, &boxing, NULL),
        SBP_OK);
    for (int i = 0; i < boxing.count; i++)
        seconds += sbp_collective_s(
            &plan->workload.cluster, &plan->cut.mesh, boxing.step[i].kind, boxing.step[i].axes,
            (double)boxing.step[i].elements * (double)report->step.program[0].bytes.activation);
    return seconds;
}

static double activation_s(const struct sbp_report *report, int op)
{
    const struct sbp_plan *plan = report->plan;
    const struct sbp_graph *graph = &plan->cut.graph;
    const struct sbp_op_node *node = &graph->op[op];
    double seconds = 0;
    for (int i = 0; i < node->input_count; i++) {
        const int tensor = node->input[i];
        if (tensor == graph->input && !graph->input_split)
            continue;
        const struct sbp_dist *rest = &plan->strategy.rest[tensor];
        const struct sbp_dist want =
            sbp_strategy_input(graph, &plan->cut.mesh, &plan->strategy, op, i);
        const struct sbp_dist dual = sbp_dist_dual(&plan->cut.mesh, &want);
        const struct sbp_dist back = sbp_dist_dual(&plan->cut.mesh, rest);
        seconds += boxing_s(report, tensor, rest, &want) + boxing_s(report, tensor, &dual, &back);
    }
    if (node->output < 0)
        return seconds;
    const struct sbp_dist *rest = &plan->strategy.rest[node->output];
    const struct sbp_dist made = sbp_strategy_output(graph, &plan->cut.mesh, &plan->strategy, op);
    const struct sbp_dist dual = sbp_dist_dual(&plan->cut.mesh, &made);
    const struct sbp_dist back = sbp_dist_dual(&plan->cut.mesh, rest);
    return seconds + boxing_s(report, node->output, &made, rest) +
           boxing_s(report, node->output, &back, &dual);
}

static void check_owners(const struct sbp_plan *plan, uint64_t seed)
{
    struct sbp_diag diag = {0};
    struct sbp_report report;
    if (sbp_report_make(plan, &report, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    double compute_s = report.whole.compute_s, communication_s = report.whole.communication_s;
    double *owned_s = calloc((size_t)plan->cut.graph.op_count, sizeof *owned_s);
    assert_non_null(owned_s);
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        compute_s += report.site[op].compute_s;
        communication_s += report.site[op].communication_s;
    }
    double parameters = 0;
    for (int op = 0; op < plan->cut.graph.op_count; op++)
        parameters += report.site[op].parameters;
    assert_true(parameters == (double)plan->cut.graph.parameters);
    for (int i = 0; i < report.step.program[0].instr_count; i++) {
        const struct sbp_instr *instr = &report.step.program[0].instr[i];
        const int op = instr->op;
        if (instr->kind != SBP_INSTR_BOX)
            continue;
        assert_true(op >= 0);
        assert_true(uses(&plan->cut.graph.op[op], instr->tensor));
        if (instr->cause != SBP_CAUSE_WEIGHT_GRADIENT)
            owned_s[op] += instr->communication_s;
    }
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        const double expected_s = activation_s(&report, op);
        if (fabs(owned_s[op] - expected_s) > 1e-12 * expected_s + 1e-18)
            fail_msg("seed %llu, %s: owns %.17g s of boxing, its operands make %.17g s",
                     (unsigned long long)seed, plan->cut.graph.op[op].name, owned_s[op],
                     expected_s);
    }
    const struct sbp_step_totals *totals = &report.summary.totals;
    const double work_s = sbp_summary_work_s(&report.summary);
    if (fabs(compute_s - work_s) > 1e-9 * work_s ||
        fabs(communication_s - totals->communication_s) > 1e-9 * totals->communication_s)
        fail_msg("layers: %.17g s and %.17g s, totals: %.17g s and %.17g s", compute_s,
                 communication_s, work_s, totals->communication_s);
    free(owned_s);
    sbp_report_free(&report);
}

static void test_random_plans(void **state)
{
    (void)state;
    char path[64];
    int plans = 0;
    (void)snprintf(path, sizeof path, "/tmp/sbplan-test-plan-%ld.json", (long)getpid());
    for (uint64_t seed = SEED; seed < SEED + 40; seed++)
        for (int model = 0; model < 3; model++)
            for (int cluster = 0; cluster < 2; cluster++) {
                struct sbp_plan plan;
                if (make_plan(model, cluster, seed, &plan)) {
                    round_trip(&plan, path);
                    check_owners(&plan, seed);
                    plans++;
                }
                sbp_plan_free(&plan);
            }
    (void)unlink(path);
    print_message("%d plans from seed %u\n", plans, SEED);
    assert_true(plans >= 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

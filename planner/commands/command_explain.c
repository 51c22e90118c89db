#include <stddef.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/cli/inputs.h"
#include "planner/commands/commands.h"
#include "planner/plan/roles.h"
#include "planner/report/operands.h"
#include "planner/report/plan_trace.h"
#include "planner/report/price_interval.h"
#include "planner/report/report.h"

#define DIST_BYTES 96

/* --- how the plan was found --- */

static enum sbp_status print_origin(const struct sbp_plan *plan)
{
    static const char *const KEYS[] = {"command", "status"};
    for (int i = 0; i < 2; i++) {
        const struct cJSON *member =
            plan->search == NULL ? NULL : cJSON_GetObjectItemCaseSensitive(plan->search, KEYS[i]);
        if (cJSON_IsString(member))
            SBP_PRINT_LINE("%-10s %s\n", i == 0 ? "made by" : "status", member->valuestring);
    }
    return SBP_OK;
}

/* --- tensors of a layer --- */

static enum sbp_status print_operands(const struct sbp_plan *plan, int op)
{
    static const char *const TITLES[] = {"use", "tensor", "shape", "distribution"};
    struct sbp_operand operand[SBP_MOST_OPERANDS];
    const int count = sbp_operands_of(plan, op, operand);
    struct sbp_table table;
    sbp_table_init(&table, 4, TITLES);
    for (int i = 0; i < count; i++) {
        const struct sbp_tensor *tensor = &plan->cut.graph.tensor[operand[i].tensor];
        char shape[SBP_SHAPE_BYTES], dist[DIST_BYTES];
        sbp_table_cell(&table, "%s", operand[i].use);
        sbp_table_cell(&table, "%s", tensor->name);
        sbp_table_cell(&table, "%s", sbp_operands_shape_text(&tensor->shape, shape));
        sbp_table_cell(&table, "%s",
                       sbp_dist_text(&plan->cut.mesh, &operand[i].dist, dist, (int)sizeof dist));
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 2);
    sbp_table_free(&table);
    return status;
}

/* --- collectives of a layer --- */

static const char *moved_name(const struct sbp_report *report, const struct sbp_instr *instr)
{
    return instr->tensor < 0 ? "-" : report->plan->cut.graph.tensor[instr->tensor].name;
}

/* The axes of a collective, "3, 4", counted from 0: paths cut collectives by axes. */
static const char *axes_text(sbp_axes axes, char text[SBP_GROUP_BYTES])
{
    int used = 0;
    text[0] = '\0';
    for (int axis = 0; axis < SBP_MAX_AXES && used < SBP_GROUP_BYTES; axis++)
        if (axes >> axis & 1)
            used += snprintf(text + used, (size_t)(SBP_GROUP_BYTES - used), "%s%d",
                             used > 0 ? ", " : "", axis);
    return text;
}

/* Whether a step makes the call: stages that one group has hand no sums on, and those that two have
 * pass the finished one on no further. */
static bool is_made(const struct sbp_report *report, int program, const struct sbp_instr *instr)
{
    return sbp_program_is_call(instr) && sbp_report_program_times(report, program, instr) > 0;
}

static void collective_row(struct sbp_table *table, const struct sbp_report *report, int number,
                           const struct sbp_instr *instr)
{
    const struct sbp_program *program = &report->step.program[number];
    char bytes[32], seconds[32], group[SBP_GROUP_BYTES];
    const double times = (double)instr->times;
    sbp_table_cell(table, "%s", sbp_collective_name(instr->box.kind));
    sbp_table_cell(table, "%s", sbp_operands_group_text(report->plan, instr, group));
    if (report->plan->strategy.boxing == SBP_BOXING_PATH)
        sbp_table_cell(table, "%s", axes_text(instr->box.axes, group));
    sbp_table_cell(table, "%s", sbp_format_bytes(sbp_price_call_bytes(program, instr), bytes));
    sbp_table_cell(table, "%s", sbp_format_seconds(instr->communication_s / times, seconds));
    sbp_table_cell(table, "%lld",
                   (long long)(instr->times * sbp_report_program_times(report, number, instr)));
    sbp_table_cell(table, "%s", sbp_program_cause_name(instr->cause));
    sbp_table_cell(table, "%s", moved_name(report, instr));
}

static enum sbp_status print_collectives(const struct sbp_report *report, int op)
{
    static const char *const REST[] = {"bytes", "time", "a step", "cause", "tensor"};
    const char *titles[8] = {"collective", "group", "axes"};
    const int first = report->plan->strategy.boxing == SBP_BOXING_PATH ? 3 : 2;
    struct sbp_table table;
    memcpy(titles + first, REST, sizeof REST);
    sbp_table_init(&table, first + 5, titles);
    for (int p = 0; p < report->step.program_count; p++) {
        const struct sbp_program *program = &report->step.program[p];
        for (int i = 0; i < program->instr_count; i++)
            if (program->instr[i].op == op && is_made(report, p, &program->instr[i]))
                collective_row(&table, report, p, &program->instr[i]);
    }
    enum sbp_status status = SBP_OK;
    if (table.rows > 1)
        status = sbp_table_print(&table, stdout, 2);
    sbp_table_free(&table);
    return status;
}

enum { FLOPS_BYTES = 40 };

/* "768 FLOP", "8.192 kFLOP" */
static const char *flops_text(double flops, char text[FLOPS_BYTES])
{
    char count[32];
    (void)sbp_format_count(flops, count);
    (void)snprintf(text, FLOPS_BYTES, "%s%sFLOP", count, strchr(count, ' ') == NULL ? " " : "");
    return text;
}

/* Prints what each repeat of a layer keeps for backward; repeats may lie on several stages. */
static enum sbp_status print_kept(const struct sbp_report *report, int op)
{
    const int repeats = report->plan->cut.graph.op[op].repeats;
    const double bytes = report->site[op].kept_bytes / repeats;
    char kept[32];
    if (bytes > 0)
        SBP_PRINT("  %skeeps %s a device%s for backward\n", repeats > 1 ? "each repeat " : "",
                  sbp_format_bytes(bytes, kept),
                  report->summary.micro_batches > 1 ? " and micro-batch" : "");
    return SBP_OK;
}

static enum sbp_status print_layer(const struct sbp_report *report, int op)
{
    const struct sbp_plan *plan = report->plan;
    const struct sbp_op_node *node = &plan->cut.graph.op[op];
    const struct sbp_site_cost *cost = &report->site[op];
    const char *all = node->repeats > 1 ? " (all repeats)" : "";
    const char *mean = report->summary.stages == 1 ? all
                       : node->repeats > 1         ? " (all repeats, mean of stages)"
                                                   : " (mean of stages)";
    char roles[SBP_ROLES_BYTES], compute[32], communication[32];
    char forward[FLOPS_BYTES], backward[FLOPS_BYTES], parameters[32];
    SBP_PRINT("\n%s (%s): %s", node->name, node->entry->name, sbp_roles_text(plan, op, roles));
    if (node->repeats > 1)
        SBP_PRINT("; x%d, the first is shown", node->repeats);
    SBP_PRINT(
        "\n  compute %s, communication %s%s\n",
        sbp_format_seconds(sbp_report_of_device_s(report, cost->compute_s), compute),
        sbp_format_seconds(sbp_report_of_device_s(report, cost->communication_s), communication),
        mean);
    SBP_PRINT("  %s forward, %s backward, %s parameters%s\n",
              flops_text(cost->forward_flops, forward), flops_text(cost->backward_flops, backward),
              sbp_format_count(cost->parameters, parameters), all);
    SBP_TRY(print_kept(report, op));
    SBP_TRY(print_operands(plan, op));
    return print_collectives(report, op);
}

static enum sbp_status print_tables(const struct sbp_report *report)
{
    const struct sbp_summary *summary = &report->summary;
    char bytes[32];
    SBP_PRINT("traffic    %s a device and step\n",
              sbp_format_bytes(summary->totals.communication_bytes, bytes));
    if (summary->forward_activation_elements > 0)
        SBP_PRINT("           %.4g x 2^30 elements of activations forward\n",
                  summary->forward_activation_elements / 0x1p30);
    SBP_PRINT("\n");
    SBP_TRY(sbp_report_print_time(report, stdout));
    if (summary->stages == 1 && summary->micro_batches == 1)
        return SBP_OK;
    SBP_PRINT("\n");
    return sbp_report_print_stages(report, stdout);
}

/* Options of the report: a plan that was searched under a limit of its own is held to that. */
static struct sbp_report_options options_of(const struct sbp_plan *plan)
{
    const struct cJSON *limit =
        cJSON_GetObjectItemCaseSensitive(plan->search, "memory_limit_bytes");
    const bool legal = cJSON_IsNumber(limit) && limit->valuedouble >= 1 &&
                       limit->valuedouble <= (double)((int64_t)1 << 53);
    return (struct sbp_report_options){.memory_limit_bytes =
                                           legal ? (int64_t)limit->valuedouble : 0};
}

static enum sbp_status print_text(const struct sbp_report *report,
                                  const struct sbp_price_interval *trust)
{
    const struct sbp_report_options options = options_of(report->plan);
    SBP_TRY(print_origin(report->plan));
    SBP_TRY(sbp_report_print_model(report->plan, stdout));
    SBP_TRY(sbp_report_print_cost(report, &options, stdout));
    SBP_TRY(sbp_price_interval_print(trust, report->summary.totals.step_s, stdout));
    SBP_TRY(print_tables(report));
    SBP_PRINT(
        "\nDistributions: S0 splits the batch, S1 the sequence, S2 the features; of weights S0 "
        "the inputs, S2 the outputs; B: whole on each, P: partial sums; with the number of "
        "parts.\n");
    for (int op = 0; op < report->plan->cut.graph.op_count; op++)
        if (report->plan->cut.graph.op[op].site == op)
            SBP_TRY(print_layer(report, op));
    if (report->whole.communication_s > 0 || report->whole.compute_s > 0) {
        char compute[32], communication[32];
        SBP_PRINT(
            "\nthe step as a whole\n  compute %s, communication %s%s\n",
            sbp_format_seconds(sbp_report_of_device_s(report, report->whole.compute_s), compute),
            sbp_format_seconds(sbp_report_of_device_s(report, report->whole.communication_s),
                               communication),
            report->summary.stages > 1 ? " (mean of stages)" : "");
        SBP_TRY(print_collectives(report, -1));
    }
    return SBP_OK;
}

/* --- JSON --- */

static void put_tensors(struct cJSON *layer, const struct sbp_plan *plan, int op, bool *failed)
{
    struct sbp_operand operand[SBP_MOST_OPERANDS];
    const int count = sbp_operands_of(plan, op, operand);
    struct cJSON *tensors = sbp_json_put_array(layer, "tensors", failed);
    for (int i = 0; i < count && !*failed; i++) {
        const struct sbp_tensor *tensor = &plan->cut.graph.tensor[operand[i].tensor];
        char dist[DIST_BYTES];
        struct cJSON *item = sbp_json_push_object(tensors, failed);
        sbp_json_put_text(item, "use", operand[i].use, failed);
        sbp_json_put_text(item, "name", tensor->name, failed);
        struct cJSON *shape = sbp_json_put_array(item, "shape", failed);
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
            sbp_json_push_number(shape, (double)tensor->shape.size[dim], failed);
        sbp_json_put_text(item, "distribution",
                          sbp_dist_text(&plan->cut.mesh, &operand[i].dist, dist, (int)sizeof dist),
                          failed);
    }
}

static void put_sites(struct cJSON *json, const struct sbp_plan *plan, bool *failed)
{
    struct cJSON *sites = sbp_json_put_array(json, "tensors", failed);
    for (int op = 0; op < plan->cut.graph.op_count && !*failed; op++) {
        if (plan->cut.graph.op[op].site != op)
            continue;
        struct cJSON *site = sbp_json_push_object(sites, failed);
        sbp_json_put_text(site, "layer", plan->cut.graph.op[op].name, failed);
        put_tensors(site, plan, op, failed);
    }
}

static void put_collective(struct cJSON *list, const struct sbp_report *report, int program,
                           const struct sbp_instr *instr, bool *failed)
{
    struct cJSON *item = sbp_json_push_object(list, failed);
    sbp_json_put_text(item, "kind", sbp_collective_name(instr->box.kind), failed);
    sbp_json_put_number(
        item, "members",
        (double)(sbp_mesh_group_size(&report->plan->cut.mesh, instr->box.axes) * instr->stages),
        failed);
    char group[SBP_GROUP_BYTES];
    sbp_json_put_text(item, "group", sbp_operands_group_text(report->plan, instr, group), failed);
    struct cJSON *axes = sbp_json_put_array(item, "axes", failed);
    for (int axis = 0; axis < report->plan->cut.mesh.axis_count; axis++)
        if (instr->box.axes >> axis & 1)
            sbp_json_push_number(axes, axis, failed);
    sbp_json_put_number(item, "bytes", sbp_price_call_bytes(&report->step.program[program], instr),
                        failed);
    sbp_json_put_number(item, "communication_s", instr->communication_s / instr->times, failed);
    sbp_json_put_number(item, "times",
                        (double)(instr->times * sbp_report_program_times(report, program, instr)),
                        failed);
    sbp_json_put_text(item, "cause", sbp_program_cause_name(instr->cause), failed);
    if (report->step.pieces > 1)
        sbp_json_put_number(item, "program", program, failed);
    if (instr->op >= 0)
        sbp_json_put_text(item, "layer", report->plan->cut.graph.op[instr->op].name, failed);
    if (instr->tensor >= 0)
        sbp_json_put_text(item, "tensor", moved_name(report, instr), failed);
}

static void put_collectives(struct cJSON *json, const struct sbp_report *report, bool *failed)
{
    struct cJSON *list = sbp_json_put_array(json, "collectives", failed);
    for (int p = 0; p < report->step.program_count; p++) {
        const struct sbp_program *program = &report->step.program[p];
        for (int i = 0; i < program->instr_count && !*failed; i++)
            if (is_made(report, p, &program->instr[i]))
                put_collective(list, report, p, &program->instr[i], failed);
    }
}

static enum sbp_status print_json(const struct sbp_report *report,
                                  const struct sbp_price_interval *trust, struct sbp_diag *diag)
{
    const struct sbp_report_options options = options_of(report->plan);
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    if (report->plan->search != NULL)
        sbp_json_put(json, "search", cJSON_Duplicate(report->plan->search, true), &failed);
    sbp_report_put(json, report, &options, &failed);
    sbp_price_interval_put(json, trust, &failed);
    put_sites(json, report->plan, &failed);
    put_collectives(json, report, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* --- either --- */

static enum sbp_status check_trace(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const char *plan = arguments->operands.word[0], *trace = arguments->trace;
    if (trace == NULL)
        return SBP_OK;
    if (sbp_file_is_same(plan, trace))
        return sbp_fail(diag, SBP_E_USAGE, "sbplan explain: --trace %s would overwrite the plan",
                        trace);
    return sbp_file_check_writable(trace, diag);
}

static enum sbp_status print_trace(const char *path, const struct sbp_plan *plan,
                                   const struct sbp_plan_trace *drawn)
{
    const char *by = drawn->by_tasks ? "task" : "work";
    SBP_PRINT_LINE("\nwrote %s, %s by %s", path, by, by);
    const int64_t groups = sbp_parallel_groups(&plan->cut.parallel);
    if (drawn->stages < groups)
        SBP_PRINT(", %d of %lld %s", drawn->stages, (long long)groups,
                  plan->cut.parallel.pyramid ? "groups" : "stages");
    SBP_PRINT("\n");
    return SBP_OK;
}

static enum sbp_status explain(const struct sbp_arguments *arguments, const struct sbp_plan *plan,
                               struct sbp_diag *diag)
{
    struct sbp_report report;
    struct sbp_price_interval trust;
    struct sbp_plan_trace drawn;
    if (arguments->trace != NULL)
        SBP_TRY(sbp_plan_trace_write(plan, arguments->trace, &drawn, diag));
    SBP_TRY(sbp_report_make(plan, &report, diag));
    enum sbp_status status = sbp_price_interval_make(plan, &report.step, &trust, diag);
    if (status == SBP_OK)
        status = arguments->json ? print_json(&report, &trust, diag) : print_text(&report, &trust);
    sbp_report_free(&report);
    return status == SBP_OK && arguments->trace != NULL && !arguments->json
               ? print_trace(arguments->trace, plan, &drawn)
               : status;
}

enum sbp_status sbp_command_explain(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_plan plan;
    SBP_TRY(check_trace(arguments, diag));
    SBP_TRY(sbp_inputs_read_plan(arguments->operands.word[0], &plan, diag));
    const enum sbp_status status = explain(arguments, &plan, diag);
    sbp_plan_free(&plan);
    return status;
}

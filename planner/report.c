#include "planner/report.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "planner/json_out.h"
#include "planner/roles.h"

#define UNIT_BYTES 32

/* --- adding up --- */

static struct sbp_site_cost *site_of(struct sbp_report *report, int op)
{
    return &report->site[report->program.graph->op[op].site];
}

static void add_sites(struct sbp_report *report)
{
    const struct sbp_program *program = &report->program;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int op = instr->op;
        struct sbp_site_cost *cost = op < 0 ? &report->whole : site_of(report, op);
        cost->compute_s += instr->compute_s;
        cost->communication_s += instr->communication_s;
    }
}

/* What the operators are, whatever the plan: flops and parameters. */
static void add_operators(struct sbp_report *report)
{
    const struct sbp_graph *graph = report->program.graph;
    for (int op = 0; op < graph->op_count; op++) {
        site_of(report, op)->forward_flops += sbp_op_forward_flops(graph, op);
        site_of(report, op)->backward_flops += sbp_op_backward_flops(graph, op);
    }
    for (int i = 0; i < report->program.instr_count; i++) {
        const struct sbp_instr *instr = &report->program.instr[i];
        if (instr->kind == SBP_INSTR_UPDATE) /* one a weight, owned by its first user */
            site_of(report, instr->op)->parameters +=
                (double)sbp_tensor_parameters(&graph->tensor[instr->tensor]);
    }
}

/* Buffers that are older than backward and that it reads. */
static enum sbp_status add_kept(struct sbp_report *report)
{
    const struct sbp_program *program = &report->program;
    bool *counted = SBP_NEW(&report->arena, bool, program->buffer_count);
    int backward = 0;
    if (counted == NULL)
        return SBP_E_MEMORY;
    while (backward < program->instr_count && program->instr[backward].kind != SBP_INSTR_BACKWARD)
        backward++;
    for (int i = backward; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        for (int k = 0; instr->kind == SBP_INSTR_BACKWARD && k < SBP_INSTR_BUFFERS; k++) {
            const int b = instr->buffer[k];
            if (b < 0 || counted[b] || k == SBP_AT_DY || sbp_buffer_persists(&program->buffer[b]) ||
                program->buffer[b].first >= backward)
                continue;
            counted[b] = true;
            site_of(report, instr->op)->kept_bytes += (double)sbp_program_buffer_bytes(program, b);
        }
    }
    return SBP_OK;
}

enum sbp_status sbp_report_make(const struct sbp_plan *plan, struct sbp_report *report,
                                struct sbp_diag *diag)
{
    *report = (struct sbp_report){.plan = plan};
    SBP_TRY(sbp_plan_compile(plan, &report->program, diag));
    report->summary = sbp_summary_make(plan, &report->program);
    report->site = SBP_NEW(&report->arena, struct sbp_site_cost, plan->graph.op_count);
    if (report->site == NULL || add_kept(report) != SBP_OK) {
        sbp_report_free(report);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    }
    add_sites(report);
    add_operators(report);
    return SBP_OK;
}

void sbp_report_free(struct sbp_report *report)
{
    if (report == NULL)
        return;
    sbp_program_free(&report->program);
    sbp_arena_free(&report->arena);
    *report = (struct sbp_report){0};
}

/* --- text --- */

#define PRINT(...)                                                                                 \
    do {                                                                                           \
        if (fprintf(out, __VA_ARGS__) < 0)                                                         \
            return SBP_E_IO;                                                                       \
    } while (0)

const char *sbp_precise_seconds(double seconds, char *buffer)
{
    if (seconds >= 1 || seconds <= 0)
        (void)snprintf(buffer, UNIT_BYTES, "%.9g s", seconds);
    else if (seconds >= 1e-3)
        (void)snprintf(buffer, UNIT_BYTES, "%.9g ms", seconds * 1e3);
    else
        (void)snprintf(buffer, UNIT_BYTES, "%.9g us", seconds * 1e6);
    return buffer;
}

static const char *precision_text(const struct sbp_precision *precision, char *buffer, size_t size)
{
    const char *param = sbp_type_name(precision->param);
    if (precision->has_master)
        (void)snprintf(buffer, size, "%s with %s master copies", param,
                       sbp_type_name(precision->master));
    else
        (void)snprintf(buffer, size, "%s", param);
    return buffer;
}

enum sbp_status sbp_report_print_model(const struct sbp_plan *plan, FILE *out)
{
    const struct sbp_graph *graph = &plan->graph;
    const struct sbp_cluster *cluster = &plan->cluster;
    char count[UNIT_BYTES], precision[64], bytes[UNIT_BYTES];
    PRINT("model      %s: %s parameters, batch %lld x sequence %lld, %s\n", graph->name,
          sbp_format_count((double)graph->parameters, count), (long long)graph->global_batch,
          (long long)graph->sequence,
          precision_text(&graph->precision, precision, sizeof precision));
    PRINT("cluster    %s: %lld device%s", cluster->name, (long long)plan->mesh.devices,
          plan->mesh.devices == 1 ? "" : "s");
    if (cluster->level_count > 1)
        for (int i = 0; i < cluster->level_count; i++)
            PRINT("%s%s %lld", i == 0 ? " = " : " x ", cluster->level[i].name,
                  (long long)cluster->level[i].size);
    PRINT(", %s each\n", sbp_format_bytes((double)cluster->memory_bytes, bytes));
    return SBP_OK;
}

/* The parts of a device's memory, in the order in which they are told. */
enum { PARTS = 7 };
struct part {
    const char *name;
    int64_t bytes;
};

static void parts_of(const struct sbp_summary *summary, struct part part[PARTS])
{
    const struct sbp_totals *totals = &summary->totals;
    part[0] = (struct part){"parameters", totals->weight_bytes};
    part[1] = (struct part){"gradients", totals->gradient_bytes};
    part[2] = (struct part){"master copies", totals->master_bytes};
    part[3] = (struct part){"moments", totals->moment_bytes};
    part[4] = (struct part){"activations", totals->activation_bytes};
    part[5] = (struct part){"token ids", summary->index_bytes};
    part[6] = (struct part){"reserve", summary->reserve_bytes};
}

const char *sbp_report_memory_parts(const struct sbp_summary *summary, char *buffer)
{
    struct part part[PARTS];
    int used = 0;
    buffer[0] = '\0';
    parts_of(summary, part);
    for (int i = 0; i < PARTS && used < SBP_PARTS_BYTES; i++) {
        char bytes[UNIT_BYTES];
        if (part[i].bytes > 0)
            used += snprintf(buffer + used, (size_t)(SBP_PARTS_BYTES - used), "%s%s %s",
                             used > 0 ? ", " : "", part[i].name,
                             sbp_format_bytes((double)part[i].bytes, bytes));
    }
    return buffer;
}

const char *sbp_report_largest_part(const struct sbp_summary *summary)
{
    struct part part[PARTS];
    int largest = 0;
    parts_of(summary, part);
    for (int i = 1; i < PARTS; i++)
        if (part[i].bytes > part[largest].bytes)
            largest = i;
    return part[largest].name;
}

enum sbp_status sbp_report_print_cost(const struct sbp_report *report,
                                      const struct sbp_report_options *options, FILE *out)
{
    const struct sbp_summary *summary = &report->summary;
    const struct sbp_totals *totals = &summary->totals;
    const int64_t limit =
        options->memory_limit_bytes > 0 ? options->memory_limit_bytes : summary->memory_bytes;
    char step[UNIT_BYTES], compute[UNIT_BYTES], communication[UNIT_BYTES];
    char rate[UNIT_BYTES], used[UNIT_BYTES], most[UNIT_BYTES], parts[SBP_PARTS_BYTES];
    PRINT("step       %s = compute %s + communication %s\n",
          sbp_precise_seconds(totals->step_s, step),
          sbp_precise_seconds(totals->compute_s, compute),
          sbp_precise_seconds(totals->communication_s, communication));
    PRINT("           %s tokens/s, MFU %.1f %%, %.4g GPU-hours a thousand steps\n",
          sbp_format_count(summary->tokens_per_s, rate), 100 * summary->mfu,
          1000 * summary->gpu_hours_per_step);
    if (options->tokens > 0) {
        const struct sbp_training_cost cost = sbp_summary_training(summary, options->tokens);
        char tokens[UNIT_BYTES], steps[UNIT_BYTES], hours[UNIT_BYTES];
        PRINT("training   %s tokens: %s steps, %.4g days, %s GPU-hours\n",
              sbp_format_count(options->tokens, tokens), sbp_format_count(cost.steps, steps),
              cost.days, sbp_format_count(cost.gpu_hours, hours));
    }
    PRINT("memory     %s of %s a device%s: %s\n",
          sbp_format_bytes((double)totals->device_bytes, used),
          sbp_format_bytes((double)limit, most),
          totals->device_bytes > limit ? ", which is too much" : "",
          sbp_report_memory_parts(summary, parts));
    return SBP_OK;
}

/* Followers that move nothing say nothing. */
static bool is_shown(const struct sbp_report *report, int op)
{
    const struct sbp_op_node *node = &report->plan->graph.op[op];
    return node->site == op && (!node->entry->follows || report->site[op].communication_s > 0);
}

static void name_cell(struct sbp_table *table, const struct sbp_op_node *node)
{
    if (node->repeats > 1)
        sbp_table_cell(table, "%s x%d", node->name, node->repeats);
    else
        sbp_table_cell(table, "%s", node->name);
}

enum sbp_status sbp_report_print_layers(const struct sbp_report *report, FILE *out)
{
    static const char *const TITLES[] = {"layer", "op", "roles", "compute ms", "communication ms"};
    struct sbp_table table;
    sbp_table_init(&table, 5, TITLES);
    for (int op = 0; op < report->plan->graph.op_count; op++) {
        const struct sbp_op_node *node = &report->plan->graph.op[op];
        char roles[SBP_ROLES_BYTES];
        if (!is_shown(report, op))
            continue;
        name_cell(&table, node);
        sbp_table_cell(&table, "%s", node->entry->name);
        sbp_table_cell(&table, "%s", sbp_roles_text(report->plan, op, roles));
        sbp_table_cell(&table, "%.6g", 1e3 * report->site[op].compute_s);
        sbp_table_cell(&table, "%.6g", 1e3 * report->site[op].communication_s);
    }
    if (report->whole.communication_s > 0 || report->whole.compute_s > 0) {
        sbp_table_cell(&table, "(whole step)");
        sbp_table_cell(&table, "norm");
        sbp_table_cell(&table, "-");
        sbp_table_cell(&table, "%.6g", 1e3 * report->whole.compute_s);
        sbp_table_cell(&table, "%.6g", 1e3 * report->whole.communication_s);
    }
    const enum sbp_status status = sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    return status;
}

/* --- a plan in a line --- */

/* Layers that choose, as the search counts them: repeats share. */
static bool chooses(const struct sbp_graph *graph, int op)
{
    return graph->op[op].site == op && !graph->op[op].entry->follows;
}

/* How many sites have the same roles as `op`; 0 when an earlier one counts them. */
static int alike(const struct sbp_plan *plan, int op)
{
    char mine[SBP_ROLES_BYTES], other[SBP_ROLES_BYTES];
    int count = 0;
    (void)sbp_roles_text(plan, op, mine);
    for (int i = 0; i < plan->graph.op_count; i++) {
        if (!chooses(&plan->graph, i) || strcmp(sbp_roles_text(plan, i, other), mine) != 0)
            continue;
        if (i < op)
            return 0;
        count++;
    }
    return count;
}

/* The op that comes next: fewer sites alike than `limit`, or as many and a later place. */
static int next_group(const struct sbp_plan *plan, int limit, int after, int *count)
{
    int next = -1;
    *count = 0;
    for (int op = 0; op < plan->graph.op_count; op++) {
        if (!chooses(&plan->graph, op))
            continue;
        const int sites = alike(plan, op);
        const bool later = sites < limit || (sites == limit && op > after);
        if (sites > 0 && later && sites > *count) {
            next = op;
            *count = sites;
        }
    }
    return next;
}

const char *sbp_report_plan_line(const struct sbp_plan *plan, char *buffer)
{
    enum { SHOWN = 3 };
    int used = 0, count, sites = plan->graph.op_count + 1, op = -1;
    buffer[0] = '\0';
    for (int shown = 0; used < SBP_PLAN_LINE_BYTES; shown++) {
        char roles[SBP_ROLES_BYTES];
        op = next_group(plan, sites, op, &count);
        if (op < 0)
            break;
        sites = count;
        const size_t room = (size_t)(SBP_PLAN_LINE_BYTES - used);
        if (shown == SHOWN) {
            (void)snprintf(buffer + used, room, ", ...");
            break;
        }
        used += snprintf(buffer + used, room, "%s%s (%d)", shown > 0 ? ", " : "",
                         sbp_roles_text(plan, op, roles), count);
    }
    return buffer;
}

/* --- JSON --- */

static void put_layers(struct cJSON *json, const struct sbp_report *report, bool *failed)
{
    const struct sbp_graph *graph = &report->plan->graph;
    struct cJSON *layers = sbp_put_array(json, "layers", failed);
    for (int op = 0; op < graph->op_count && !*failed; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        if (node->site != op)
            continue;
        struct cJSON *layer = sbp_push_object(layers, failed);
        sbp_put_text(layer, "name", node->name, failed);
        sbp_put_text(layer, "op", node->entry->name, failed);
        sbp_put_number(layer, "repeats", node->repeats, failed);
        if (node->entry->follows)
            sbp_put_bool(layer, "follows", true, failed);
        sbp_put_item(layer, "roles", sbp_roles_json(report->plan, op), failed);
        sbp_put_number(layer, "compute_s", report->site[op].compute_s, failed);
        sbp_put_number(layer, "communication_s", report->site[op].communication_s, failed);
        sbp_put_number(layer, "forward_flops", report->site[op].forward_flops, failed);
        sbp_put_number(layer, "backward_flops", report->site[op].backward_flops, failed);
        sbp_put_number(layer, "parameters", report->site[op].parameters, failed);
        sbp_put_number(layer, "kept_bytes", report->site[op].kept_bytes, failed);
    }
}

void sbp_report_put(struct cJSON *json, const struct sbp_report *report,
                    const struct sbp_report_options *options, bool *failed)
{
    const struct sbp_summary *summary = &report->summary;
    const struct sbp_cluster *cluster = &report->plan->cluster;
    sbp_put_model(json, &report->plan->graph, failed);
    struct cJSON *member = sbp_put_object(json, "cluster", failed);
    sbp_put_text(member, "name", cluster->name, failed);
    sbp_put_number(member, "devices", (double)summary->devices, failed);
    sbp_put_cost(json, summary, failed);
    if (options->tokens > 0) {
        const struct sbp_training_cost cost = sbp_summary_training(summary, options->tokens);
        struct cJSON *training = sbp_put_object(json, "training", failed);
        sbp_put_number(training, "tokens", options->tokens, failed);
        sbp_put_number(training, "steps", cost.steps, failed);
        sbp_put_number(training, "days", cost.days, failed);
        sbp_put_number(training, "gpu_hours", cost.gpu_hours, failed);
    }
    sbp_put_memory(json, summary, failed);
    sbp_put_parallel(json, &report->plan->parallel, failed);
    put_layers(json, report, failed);
}

#include "planner/report/report.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/limits.h"
#include "planner/plan/roles.h"
#include "planner/report/plan_line.h"

#define UNIT_BYTES   32
#define DOUBTFUL_MFU 0.75 /* trainers of large models publish less */

/* --- adding up --- */

static struct sbp_site_cost *site_of(struct sbp_report *report, int op)
{
    return &report->site[report->plan->cut.graph.op[op].site];
}

int64_t sbp_report_times(const struct sbp_report *report, int piece, const struct sbp_instr *instr)
{
    return (int64_t)sbp_step_times(&report->step, piece, instr);
}

int64_t sbp_report_program_times(const struct sbp_report *report, int program,
                                 const struct sbp_instr *instr)
{
    int piece = 0;
    while (report->step.program_of[piece] != program)
        piece++;
    return sbp_report_times(report, piece, instr);
}

/* Adds the operators of all stages; a program counts once for each piece that shares it. */
static void add_sites(struct sbp_report *report, int piece)
{
    const struct sbp_program *program = sbp_step_program(&report->step, piece);
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const double times = (double)sbp_report_times(report, piece, instr);
        const int op = instr->op;
        struct sbp_site_cost *cost = op < 0 ? &report->whole : site_of(report, op);
        cost->compute_s += times * instr->compute_s;
        cost->communication_s += times * instr->communication_s;
    }
}

/* Whether an operator is the first user of a weight: a tied weight counts there. */
static bool is_first_user(const struct sbp_graph *graph, int op, int weight)
{
    for (int other = 0; other < op; other++)
        for (int w = 0; w < graph->op[other].weight_count; w++)
            if (graph->op[other].weight[w] == graph->op[op].weight[weight])
                return false;
    return true;
}

/* Adds flops and parameters of the operators, which no plan changes. */
static void add_operators(struct sbp_report *report)
{
    const struct sbp_graph *graph = &report->plan->cut.graph;
    const double batches = (double)report->summary.micro_batches;
    for (int op = 0; op < graph->op_count; op++) {
        site_of(report, op)->forward_flops += batches * sbp_op_forward_flops(graph, op);
        site_of(report, op)->backward_flops += batches * sbp_op_backward_flops(graph, op);
        for (int w = 0; w < graph->op[op].weight_count; w++)
            if (is_first_user(graph, op, w))
                site_of(report, op)->parameters +=
                    (double)sbp_graph_tensor_parameters(&graph->tensor[graph->op[op].weight[w]]);
    }
}

/* Adds the buffers that backward reads and forward made. Blocks that collectives inside the
 * operator bring in during backward are not among them. */
static enum sbp_status add_kept(struct sbp_report *report, const struct sbp_program *program)
{
    bool *counted = SBP_NEW(&report->arena, bool, program->buffer_count + 1);
    int backward = 0;
    if (counted == NULL)
        return SBP_E_MEMORY;
    while (backward < program->instr_count &&
           program->instr[backward].section == SBP_SECTION_FORWARD)
        backward++;
    for (int i = backward; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        for (int k = 0; instr->kind == SBP_INSTR_BACKWARD && k < SBP_INSTR_BUFFERS; k++) {
            const int b = instr->buffer[k];
            if (b < 0 || counted[b] || k == SBP_AT_DY ||
                sbp_program_buffer_persists(&program->buffer[b]) ||
                program->buffer[b].first >= backward)
                continue;
            counted[b] = true;
            site_of(report, instr->op)->kept_bytes += (double)sbp_program_buffer_bytes(program, b);
        }
    }
    return SBP_OK;
}

static enum sbp_status add_up(struct sbp_report *report)
{
    const struct sbp_step *step = &report->step;
    report->site = SBP_NEW(&report->arena, struct sbp_site_cost, report->plan->cut.graph.op_count);
    if (report->site == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < step->pieces; piece++) {
        add_sites(report, piece);
        SBP_TRY(add_kept(report, sbp_step_program(step, piece)));
    }
    add_operators(report);
    return SBP_OK;
}

enum sbp_status sbp_report_make(const struct sbp_plan *plan, struct sbp_report *report,
                                struct sbp_diag *diag)
{
    *report = (struct sbp_report){.plan = plan};
    SBP_TRY(sbp_cut_step(&plan->cut, &plan->strategy, false, &report->step, diag));
    report->summary = sbp_summary_make(plan, &report->step);
    if (add_up(report) == SBP_OK &&
        sbp_layout_line_make(plan, report->step.first, &report->arena, &report->layout) == SBP_OK)
        return SBP_OK;
    sbp_report_free(report);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

void sbp_report_free(struct sbp_report *report)
{
    if (report == NULL)
        return;
    sbp_step_free(&report->step);
    sbp_arena_free(&report->arena);
    *report = (struct sbp_report){0};
}

/* --- text --- */

#define PRINT(...)                                                                                 \
    do {                                                                                           \
        if (fprintf(out, __VA_ARGS__) < 0)                                                         \
            return SBP_E_IO;                                                                       \
    } while (0)

const char *sbp_report_seconds(double seconds, char *buffer)
{
    const double scale = seconds >= 1 || seconds <= 0 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6;
    char digits[UNIT_BYTES];
    (void)snprintf(buffer, UNIT_BYTES, "%.24s %s",
                   sbp_format_digits(seconds * scale, SBP_REPORT_DIGITS, digits),
                   scale > 1e3 ? "us"
                   : scale > 1 ? "ms"
                               : "s");
    return buffer;
}

/* Whether a time reads like another one that it differs from by more than rounding. */
static bool reads_alike(double a, double b, int digits)
{
    char left[UNIT_BYTES], right[UNIT_BYTES];
    return fabs(a - b) > SBP_REPORT_ROUND_OFF * fmax(fabs(a), fabs(b)) &&
           strcmp(sbp_format_digits(1e3 * a, digits, left),
                  sbp_format_digits(1e3 * b, digits, right)) == 0;
}

int sbp_report_digits(const double *seconds, int count)
{
    int digits = SBP_REPORT_DIGITS;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            while (digits < SBP_REPORT_MOST_DIGITS && reads_alike(seconds[i], seconds[k], digits))
                digits++;
    return digits;
}

void sbp_report_ms_cell(struct sbp_table *table, double seconds, int digits)
{
    char text[UNIT_BYTES];
    sbp_table_cell(table, "%s", sbp_format_digits(1e3 * seconds, digits, text));
}

static const char *precision_text(const struct sbp_precision *precision, char *buffer, size_t size)
{
    const char *param = sbp_cluster_type_name(precision->param);
    if (precision->has_master)
        (void)snprintf(buffer, size, "%s with %s master copies", param,
                       sbp_cluster_type_name(precision->master));
    else
        (void)snprintf(buffer, size, "%s", param);
    return buffer;
}

/* Prints what differs from a plain step in how the step is cut. */
static enum sbp_status print_parallel(const struct sbp_plan *plan, FILE *out)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    const int64_t batches = sbp_parallel_micro_batches(parallel, &plan->cut.graph);
    char zero[SBP_PLAN_LINE_ZERO_BYTES];
    (void)sbp_plan_line_zero(plan, zero);
    if (sbp_parallel_is_plain(parallel, &plan->cut.graph) && *zero == '\0')
        return SBP_OK;
    PRINT("parallel   %lld stage%s of %lld device%s, %lld micro-batch%s of %lld",
          (long long)parallel->pipeline, parallel->pipeline == 1 ? "" : "s",
          (long long)plan->cut.mesh.devices, plan->cut.mesh.devices == 1 ? "" : "s",
          (long long)batches, batches == 1 ? "" : "es", (long long)parallel->micro_batch);
    if (parallel->pipeline > 1 || batches > 1)
        PRINT(", %s", sbp_timeline_schedule_name(parallel->schedule));
    if (parallel->chunks > 1)
        PRINT(" in %lld chunks%s", (long long)parallel->chunks,
              sbp_parallel_replicates(parallel) ? ", all on each stage" : "");
    if (parallel->pyramid)
        PRINT(" on a pyramid of %lld groups", (long long)sbp_parallel_groups(parallel));
    if (*zero != '\0')
        PRINT(", %s", zero);
    if (parallel->recompute != SBP_RECOMPUTE_NONE)
        PRINT(", %s recompute", sbp_parallel_recompute_name(parallel->recompute));
    if (parallel->recompute == SBP_RECOMPUTE_FULL && parallel->recompute_every > 1)
        PRINT(" of every %lld blocks", (long long)parallel->recompute_every);
    if (parallel->owner != SBP_OWNER_NONE)
        PRINT(", states at one owner (%s)", sbp_parallel_owner_name(parallel->owner));
    if (parallel->offload)
        PRINT(", optimizer states in host memory");
    PRINT("\n");
    if (sbp_timeline_delays_gradients(parallel->schedule))
        PRINT("           gradients are delayed by one step\n");
    return SBP_OK;
}

/* Says which rate is taken where the devices have none of the type that products compute in. */
static enum sbp_status print_rate_type(const struct sbp_plan *plan, FILE *out)
{
    const struct sbp_cluster *cluster = &plan->workload.cluster;
    const enum sbp_type type = plan->cut.graph.precision.compute;
    const enum sbp_type taken = sbp_cluster_rate_type(cluster, type);
    if (taken == type)
        return SBP_OK;
    PRINT("           its devices have no rate of %s: that of %s is taken\n",
          sbp_cluster_type_name(type), sbp_cluster_type_name(taken));
    return SBP_OK;
}

enum sbp_status sbp_report_print_model(const struct sbp_plan *plan, FILE *out)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    const struct sbp_cluster *cluster = &plan->workload.cluster;
    char count[UNIT_BYTES], precision[64], bytes[UNIT_BYTES];
    PRINT("model      %s: %s parameters, batch %lld", graph->name,
          sbp_format_count((double)graph->parameters, count), (long long)graph->global_batch);
    if (graph->sequence > 1)
        PRINT(" x sequence %lld", (long long)graph->sequence);
    PRINT(", %s\n", precision_text(&graph->precision, precision, sizeof precision));
    const int64_t devices = sbp_cut_devices(&plan->cut);
    PRINT("cluster    %s: %lld device%s", cluster->name, (long long)devices,
          devices == 1 ? "" : "s");
    if (cluster->level_count > 1)
        for (int i = 0; i < cluster->level_count; i++)
            PRINT("%s%s %lld", i == 0 ? " = " : " x ", cluster->level[i].name,
                  (long long)cluster->level[i].size);
    PRINT(", %s each\n", sbp_format_bytes((double)cluster->memory_bytes, bytes));
    SBP_TRY(print_rate_type(plan, out));
    return print_parallel(plan, out);
}

/* The parts of a device's memory, in the order in which they are told. */
enum { PARTS = 9 };
struct part {
    const char *name;
    int64_t bytes;
};

static void parts_of(const struct sbp_summary *summary, struct part part[PARTS])
{
    const struct sbp_stage_memory *memory = &summary->memory;
    part[0] = (struct part){"parameters", memory->weight_bytes};
    part[1] = (struct part){"gradients", memory->gradient_bytes};
    part[2] = (struct part){"master copies", memory->master_bytes};
    part[3] = (struct part){"moments", memory->moment_bytes};
    part[4] = (struct part){"offload bucket", memory->bucket_bytes};
    part[5] = (struct part){"activations", summary->activation_bytes};
    part[6] = (struct part){"token ids", summary->index_bytes};
    part[7] = (struct part){"messages", memory->message_bytes};
    part[8] = (struct part){"reserve", summary->reserve_bytes};
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

static double samples_per_s(const struct sbp_report *report)
{
    return report->summary.tokens_per_s / (double)report->plan->cut.graph.sequence;
}

const char *sbp_report_rate(const struct sbp_report *report, char *buffer)
{
    char count[UNIT_BYTES];
    int64_t step;
    const char *unit = sbp_summary_unit(&report->plan->cut.graph, &step);
    const double rate =
        strcmp(unit, "tokens") == 0 ? report->summary.tokens_per_s : samples_per_s(report);
    (void)snprintf(buffer, SBP_RATE_BYTES, "%s %s/s", sbp_format_count(rate, count), unit);
    return buffer;
}

static enum sbp_status print_layout(const struct sbp_layout_line *layout, FILE *out)
{
    char text[SBP_LAYOUT_BYTES];
    PRINT("layout     %s\n", sbp_layout_line_text(layout, text));
    if (*sbp_layout_line_sizes(layout, text) != '\0')
        PRINT("           %s\n", text);
    return SBP_OK;
}

/* Prints the step as a sum where a device does one thing after the other, else its parts. */
static enum sbp_status print_step(const struct sbp_summary *summary, FILE *out)
{
    const struct sbp_step_totals *totals = &summary->totals;
    char step[UNIT_BYTES], work[UNIT_BYTES], communication[UNIT_BYTES], bubble[UNIT_BYTES];
    (void)sbp_report_seconds(totals->step_s, step);
    (void)sbp_report_seconds(sbp_summary_work_s(summary), work);
    const bool waits = totals->bubble_s > SBP_INNER_ROUND_OFF * totals->step_s;
    if (summary->stages == 1 && totals->hidden_s <= 0 && !waits) {
        PRINT("step       %s = compute %s + communication %s\n", step, work,
              sbp_report_seconds(totals->communication_s, communication));
        return SBP_OK;
    }
    PRINT("step       %s: compute %s, exposed communication %s", step, work,
          sbp_report_seconds(totals->exposed_s, communication));
    if (summary->stages > 1)
        PRINT(", bubble %s (mean of stages)", sbp_report_seconds(totals->bubble_s, bubble));
    else if (waits)
        PRINT(", waiting for hosts %s", sbp_report_seconds(totals->bubble_s, bubble));
    PRINT("\n");
    return SBP_OK;
}

enum sbp_status sbp_report_print_cost(const struct sbp_report *report,
                                      const struct sbp_report_options *options, FILE *out)
{
    const struct sbp_summary *summary = &report->summary;
    const struct sbp_step_totals *totals = &summary->totals;
    const int64_t limit =
        options->memory_limit_bytes > 0 ? options->memory_limit_bytes : summary->memory_bytes;
    char rate[SBP_RATE_BYTES], used[UNIT_BYTES], most[UNIT_BYTES], parts[SBP_PARTS_BYTES];
    SBP_TRY(print_layout(&report->layout, out));
    SBP_TRY(print_step(summary, out));
    PRINT("           %s, MFU %.1f %%, %s GPU-hours a thousand steps\n",
          sbp_report_rate(report, rate), 100 * summary->mfu,
          sbp_format_digits(1000 * summary->gpu_hours_per_step, SBP_REPORT_DIGITS, used));
    if (summary->mfu > DOUBTFUL_MFU)
        PRINT("           MFU this high is the cluster file's: products take the share of the peak "
              "that its \"gemm\"\n           gives, and all of it without\n");
    if (options->tokens > 0) {
        const struct sbp_training_cost cost = sbp_summary_training(summary, options->tokens);
        char tokens[UNIT_BYTES], steps[UNIT_BYTES], days[UNIT_BYTES], hours[UNIT_BYTES];
        PRINT("training   %s tokens: %s steps, %s days, %s GPU-hours\n",
              sbp_format_count(options->tokens, tokens), sbp_format_count(cost.steps, steps),
              sbp_format_digits(cost.days, SBP_REPORT_DIGITS, days),
              sbp_format_count(cost.gpu_hours, hours));
    }
    PRINT("memory     %s of %s a device%s%s: %s\n",
          sbp_format_bytes((double)totals->device_bytes, used),
          sbp_format_bytes((double)limit, most), summary->stages > 1 ? " of the fullest stage" : "",
          totals->device_bytes > limit ? ", which is too much" : "",
          sbp_report_memory_parts(summary, parts));
    if (totals->host_bytes > 0)
        PRINT("host       %s a device for optimizer states%s\n",
              sbp_format_bytes((double)totals->host_bytes, used),
              totals->fits_host ? "" : ", which is too much");
    return SBP_OK;
}

/* --- tables of a step --- */

static void time_row(struct sbp_table *table, const char *what, double seconds, double step_s)
{
    char text[UNIT_BYTES];
    sbp_table_cell(table, "%s", what);
    sbp_table_cell(table, "%s", sbp_format_seconds(seconds, text));
    sbp_table_cell(table, "%.1f %%", step_s > 0 ? 100 * seconds / step_s : 0);
}

/* Adds rows of communication that is exposed, or overlapped, and under it its causes. */
static void communication_rows(struct sbp_table *table, const char *what,
                               const struct sbp_step_totals *totals, bool hidden)
{
    time_row(table, what, hidden ? totals->hidden_s : totals->exposed_s, totals->step_s);
    for (int cause = SBP_CAUSE_ACTIVATION; cause < SBP_CAUSES; cause++) {
        char name[64];
        const double hidden_s = totals->hidden_by_cause_s[cause];
        const double seconds = hidden ? hidden_s : totals->by_cause_s[cause] - hidden_s;
        (void)snprintf(name, sizeof name, "  %s", sbp_program_cause_name((enum sbp_cause)cause));
        if (seconds > SBP_INNER_ROUND_OFF * totals->communication_s) /* less is rounding */
            time_row(table, name, seconds, totals->step_s);
    }
}

enum sbp_status sbp_report_print_time(const struct sbp_report *report, FILE *out)
{
    static const char *const TITLES[] = {"time of a device", "a step", "share"};
    const struct sbp_step_totals *totals = &report->summary.totals;
    const double step_s = totals->step_s;
    struct sbp_table table;
    sbp_table_init(&table, 3, TITLES);
    time_row(&table, "compute", totals->compute_s, step_s);
    if (totals->recompute_s > 0)
        time_row(&table, "recompute", totals->recompute_s, step_s);
    time_row(&table, "optimizer", totals->optimizer_s, step_s);
    communication_rows(&table, "exposed communication", totals, false);
    if (report->summary.stages > 1)
        time_row(&table, "bubble", totals->bubble_s, step_s);
    if (totals->hidden_s > 0)
        communication_rows(&table, "overlapped communication", totals, true);
    const enum sbp_status status = sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    return status;
}

static bool same_programs(const struct sbp_step *step, int a, int b)
{
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++)
        if (sbp_step_chunk(step, a, chunk) != sbp_step_chunk(step, b, chunk))
            return false;
    return true;
}

/* "12.0 GiB", or from the first stage's to the last one's: "12.0 GiB .. 4.00 GiB". */
static void bytes_cell(struct sbp_table *table, int64_t from, int64_t to)
{
    char a[UNIT_BYTES], b[UNIT_BYTES];
    if (from == to)
        sbp_table_cell(table, "%s", sbp_format_bytes((double)from, a));
    else
        sbp_table_cell(table, "%s .. %s", sbp_format_bytes((double)from, a),
                       sbp_format_bytes((double)to, b));
}

static bool parks(const struct sbp_step *step)
{
    return step->memory[0].parked_bytes > 0;
}

static void stage_row(struct sbp_table *table, const struct sbp_step *step, int from, int to)
{
    const struct sbp_stage_memory *a = &step->memory[from], *b = &step->memory[to];
    char count[UNIT_BYTES], seconds[UNIT_BYTES];
    if (from == to)
        sbp_table_cell(table, "%d", from);
    else
        sbp_table_cell(table, "%d-%d", from, to);
    sbp_table_cell(table, "%s", sbp_format_count((double)a->parameters, count));
    bytes_cell(table, a->weight_bytes, b->weight_bytes);
    bytes_cell(table, a->gradient_bytes, b->gradient_bytes);
    bytes_cell(table, a->moment_bytes + a->master_bytes + a->bucket_bytes,
               b->moment_bytes + b->master_bytes + b->bucket_bytes);
    bytes_cell(table, a->kept_bytes, b->kept_bytes);
    if (parks(step))
        bytes_cell(table, a->parked_bytes, b->parked_bytes);
    if (a->in_flight == b->in_flight)
        sbp_table_cell(table, "%d", a->in_flight);
    else
        sbp_table_cell(table, "%d .. %d", a->in_flight, b->in_flight);
    bytes_cell(table, a->transient_bytes, b->transient_bytes);
    bytes_cell(table, a->reserve_bytes, b->reserve_bytes);
    bytes_cell(table, a->device_bytes, b->device_bytes);
    bytes_cell(table, a->host_bytes, b->host_bytes);
    sbp_table_cell(table, "%s", sbp_format_seconds(step->timeline.device[from].compute_s, seconds));
    sbp_table_cell(table, "%s", sbp_format_seconds(step->timeline.device[to].bubble_s, seconds));
}

enum sbp_status sbp_report_print_stages(const struct sbp_report *report, FILE *out)
{
    enum { COLUMNS = 14, PARKED = 6 };
    static const char *const TITLES[COLUMNS] = {
        "stage",     "parameters", "weights", "gradients", "states", "kept", "parked",
        "in flight", "buffers",    "reserve", "device",    "host",   "work", "bubble"};
    const struct sbp_step *step = &report->step;
    const char *titles[COLUMNS];
    int count = 0;
    struct sbp_table table;
    for (int i = 0; i < COLUMNS; i++)
        if (i != PARKED || parks(step))
            titles[count++] = TITLES[i];
    sbp_table_init(&table, count, titles);
    for (int from = 0, to; from < step->stages; from = to + 1) {
        to = from;
        while (to + 1 < step->stages && same_programs(step, from, to + 1))
            to++;
        stage_row(&table, step, from, to);
    }
    const enum sbp_status status = sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    return status;
}

double sbp_report_of_device_s(const struct sbp_report *report, double seconds)
{
    return seconds / (double)report->summary.stages;
}

/* Whether a layer has a row: followers that move nothing have none. */
static bool is_shown(const struct sbp_report *report, int op)
{
    const struct sbp_op_node *node = &report->plan->cut.graph.op[op];
    return node->site == op && (!node->entry->follows || report->site[op].communication_s > 0);
}

static void name_cell(struct sbp_table *table, const struct sbp_op_node *node)
{
    if (node->repeats > 1)
        sbp_table_cell(table, "%s x%d", node->name, node->repeats);
    else
        sbp_table_cell(table, "%s", node->name);
}

static void ms_cell(struct sbp_table *table, const struct sbp_report *report, double seconds)
{
    sbp_report_ms_cell(table, sbp_report_of_device_s(report, seconds), SBP_REPORT_DIGITS);
}

enum sbp_status sbp_report_print_layers(const struct sbp_report *report, FILE *out)
{
    static const char *const TITLES[] = {"layer", "op", "roles", "compute ms", "communication ms"};
    struct sbp_table table;
    sbp_table_init(&table, 5, TITLES);
    for (int op = 0; op < report->plan->cut.graph.op_count; op++) {
        const struct sbp_op_node *node = &report->plan->cut.graph.op[op];
        char roles[SBP_ROLES_BYTES];
        if (!is_shown(report, op))
            continue;
        name_cell(&table, node);
        sbp_table_cell(&table, "%s", node->entry->name);
        sbp_table_cell(&table, "%s", sbp_roles_text(report->plan, op, roles));
        ms_cell(&table, report, report->site[op].compute_s);
        ms_cell(&table, report, report->site[op].communication_s);
    }
    if (report->whole.communication_s > 0 || report->whole.compute_s > 0) {
        sbp_table_cell(&table, "(whole step)");
        sbp_table_cell(&table, "%s", report->summary.stages > 1 ? "messages, norm" : "norm");
        sbp_table_cell(&table, "-");
        ms_cell(&table, report, report->whole.compute_s);
        ms_cell(&table, report, report->whole.communication_s);
    }
    const enum sbp_status status = sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    SBP_TRY(status);
    if (report->summary.stages > 1)
        PRINT("(times of a device and step, all repeats, mean of stages)\n");
    return SBP_OK;
}

/* --- JSON --- */

void sbp_report_put_layers(struct cJSON *json, const struct sbp_report *report, bool *failed)
{
    const struct sbp_graph *graph = &report->plan->cut.graph;
    struct cJSON *layers = sbp_json_put_array(json, "layers", failed);
    for (int op = 0; op < graph->op_count && !*failed; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        if (node->site != op)
            continue;
        struct cJSON *layer = sbp_json_push_object(layers, failed);
        sbp_json_put_text(layer, "name", node->name, failed);
        sbp_json_put_text(layer, "op", node->entry->name, failed);
        sbp_json_put_number(layer, "repeats", node->repeats, failed);
        if (node->entry->follows)
            sbp_json_put_bool(layer, "follows", true, failed);
        sbp_json_put(layer, "roles", sbp_roles_json(report->plan, op), failed);
        if (report->plan->strategy.zero[op] != SBP_ZERO_DEFAULT)
            sbp_json_put_number(layer, "zero", report->plan->strategy.zero[op], failed);
        sbp_json_put_number(layer, "compute_s", report->site[op].compute_s, failed);
        sbp_json_put_number(layer, "communication_s", report->site[op].communication_s, failed);
        sbp_json_put_number(layer, "forward_flops", report->site[op].forward_flops, failed);
        sbp_json_put_number(layer, "backward_flops", report->site[op].backward_flops, failed);
        sbp_json_put_number(layer, "parameters", report->site[op].parameters, failed);
        sbp_json_put_number(layer, "kept_bytes", report->site[op].kept_bytes, failed);
    }
}

void sbp_report_put(struct cJSON *json, const struct sbp_report *report,
                    const struct sbp_report_options *options, bool *failed)
{
    const struct sbp_summary *summary = &report->summary;
    const struct sbp_cluster *cluster = &report->plan->workload.cluster;
    sbp_summary_put_model(json, &report->plan->cut.graph, failed);
    struct cJSON *member = sbp_json_put_object(json, "cluster", failed);
    sbp_json_put_text(member, "name", cluster->name, failed);
    sbp_json_put_number(member, "devices", (double)summary->devices, failed);
    sbp_layout_line_put(json, &report->layout, failed);
    sbp_summary_put_cost(json, summary, failed);
    sbp_json_put_number(cJSON_GetObjectItemCaseSensitive(json, "cost"), "samples_per_s",
                        samples_per_s(report), failed);
    if (options->tokens > 0) {
        const struct sbp_training_cost cost = sbp_summary_training(summary, options->tokens);
        struct cJSON *training = sbp_json_put_object(json, "training", failed);
        sbp_json_put_number(training, "tokens", options->tokens, failed);
        sbp_json_put_number(training, "steps", cost.steps, failed);
        sbp_json_put_number(training, "days", cost.days, failed);
        sbp_json_put_number(training, "gpu_hours", cost.gpu_hours, failed);
    }
    sbp_summary_put_memory(json, summary, failed);
    sbp_summary_put_parallel(json, &report->plan->cut.parallel, failed);
    sbp_summary_put_stages(json, &report->step, failed);
    sbp_report_put_layers(json, report, failed);
}

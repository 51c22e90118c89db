#include "planner/report/plan_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "planner/plan/roles.h"
#include "planner/space/space_table.h"

/* A line in the making: words that do not fit end it with "...". */
struct line {
    char *bytes; /* (SBP_PLAN_LINE_BYTES) */
    size_t used;
    bool full;
};

/* Adds ", words"; room for ", ..." stays free. */
static void SBP_PRINTF(2, 3) add(struct line *line, const char *format, ...)
{
    char words[SBP_PLAN_LINE_BYTES];
    const char *comma = line->used > 0 ? ", " : "";
    va_list arguments;
    if (line->full)
        return;
    va_start(arguments, format);
    const int length = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    line->full = length < 0 || line->used + (size_t)length + strlen(", , ...") >= sizeof words;
    line->used += (size_t)snprintf(line->bytes + line->used, sizeof words - line->used, "%s%s",
                                   comma, line->full ? "..." : words);
}

/* ---- the step around the strategy ----------------------------------------------------------- */

static void add_stages(struct line *line, const struct sbp_parallel *parallel)
{
    const char *schedule = sbp_timeline_schedule_name(parallel->schedule);
    if (parallel->chunks > 1)
        add(line, "pipeline %lld x %lld %s", (long long)parallel->pipeline,
            (long long)parallel->chunks, schedule);
    else if (parallel->pipeline > 1)
        add(line, "pipeline %lld %s%s", (long long)parallel->pipeline, schedule,
            parallel->pyramid ? " pyramid" : "");
    if (parallel->pipeline > 1 && sbp_timeline_delays_gradients(parallel->schedule))
        add(line, "gradients late");
}

const char *sbp_plan_line_zero(const struct sbp_plan *plan, char *buffer)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    int least = 3, most = 0;
    for (int op = 0; op < graph->op_count; op++) {
        const int given = plan->strategy.zero == NULL ? SBP_ZERO_DEFAULT : plan->strategy.zero[op];
        const int level = given == SBP_ZERO_DEFAULT ? (int)plan->cut.parallel.zero : given;
        if (graph->op[op].weight_count == 0)
            continue;
        least = level < least ? level : least;
        most = level > most ? level : most;
    }
    buffer[0] = '\0';
    if (most > least)
        (void)snprintf(buffer, SBP_PLAN_LINE_ZERO_BYTES, "ZeRO %d-%d", least, most);
    else if (most > 0)
        (void)snprintf(buffer, SBP_PLAN_LINE_ZERO_BYTES, "ZeRO %d", most);
    return buffer;
}

static void add_zero(struct line *line, const struct sbp_plan *plan)
{
    char zero[SBP_PLAN_LINE_ZERO_BYTES];
    if (*sbp_plan_line_zero(plan, zero) != '\0')
        add(line, "%s", zero);
}

static void add_step(struct line *line, const struct sbp_plan *plan)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    add_stages(line, parallel);
    if (parallel->micro_batch < plan->cut.graph.global_batch)
        add(line, "micro-batch %lld", (long long)parallel->micro_batch);
    add_zero(line, plan);
    if (parallel->recompute == SBP_RECOMPUTE_FULL)
        add(line, "recompute");
    else if (parallel->recompute != SBP_RECOMPUTE_NONE)
        add(line, "recompute %s", sbp_parallel_recompute_name(parallel->recompute));
    if (parallel->regather)
        add(line, "regather");
    if (parallel->offload)
        add(line, "offload");
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Whether a layer has weights, chooses for itself and is the first of its repeats. */
static bool is_layer(const struct sbp_graph *graph, int op)
{
    const struct sbp_op_node *node = &graph->op[op];
    return node->site == op && !node->entry->follows && node->weight_count > 0;
}

/* Number of layers split like `op`, with repeats; 0 where an earlier layer counts them. */
static int alike(const struct sbp_plan *plan, int op)
{
    char mine[SBP_ROLES_BYTES], other[SBP_ROLES_BYTES];
    int count = 0;
    (void)sbp_role_totals_text(plan, op, mine);
    for (int i = 0; i < plan->cut.graph.op_count; i++) {
        if (!is_layer(&plan->cut.graph, i) ||
            strcmp(sbp_role_totals_text(plan, i, other), mine) != 0)
            continue;
        if (i < op)
            return 0;
        count += plan->cut.graph.op[i].repeats;
    }
    return count;
}

static void add_layers(struct line *line, const struct sbp_plan *plan)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    int limit = graph->op_count + 1, after = -1;
    while (!line->full) {
        int next = -1, most = 0;
        for (int op = 0; op < graph->op_count; op++) {
            const int count = is_layer(graph, op) ? alike(plan, op) : 0;
            const bool later = count < limit || (count == limit && op > after);
            if (later && count > most) {
                next = op;
                most = count;
            }
        }
        if (next < 0)
            return;
        char roles[SBP_ROLES_BYTES];
        add(line, "%s (%d)", sbp_role_totals_text(plan, next, roles), most);
        limit = most;
        after = next;
    }
}

/* Adds the mesh. Layers that tensor axes do not split have more parts of the batch than it says. */
static void add_mesh(struct line *line, const struct sbp_plan *plan)
{
    int64_t data = plan->cut.mesh.devices;
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        const int batch = sbp_op_role(plan->cut.graph.op[op].entry, "batch");
        if (is_layer(&plan->cut.graph, op) && batch >= 0 && sbp_role_total(plan, op, batch) < data)
            data = sbp_role_total(plan, op, batch);
    }
    add(line, "data %lld x tensor %lld", (long long)data,
        (long long)(plan->cut.mesh.devices / data));
}

const char *sbp_plan_line(const struct sbp_plan *plan, enum sbp_space_kind space, char *buffer)
{
    struct line line = {.bytes = buffer};
    buffer[0] = '\0';
    add_step(&line, plan);
    if (sbp_space_rule(space)->mesh == SBP_MESH_FREE)
        add_layers(&line, plan);
    else
        add_mesh(&line, plan);
    return buffer;
}

/* Losses of an export: a line for each difference between a plan and the plan as exported. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/export/export_priv.h"
#include "planner/plan/plan_diff.h"
#include "planner/plan/roles.h"

#define LOSS_BYTES  400
#define MOST_LAYERS 8 /* that are named */

enum sbp_status sbp_export_lose(struct sbp_export *export, const char *format, ...)
{
    char line[LOSS_BYTES];
    va_list arguments;
    if (export->loss_count == SBP_EXPORT_LOSSES)
        return SBP_OK;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    const char *copy = sbp_arena_strdup(&export->arena, export->loss_count == SBP_EXPORT_LOSSES - 1
                                                            ? "and more than there is room for"
                                                            : line);
    if (copy == NULL)
        return SBP_E_MEMORY;
    export->loss[export->loss_count++] = copy;
    return SBP_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

static const char *text_of(const struct cJSON *item, char *buffer, size_t size)
{
    if (item == NULL)
        (void)snprintf(buffer, size, "default");
    else if (cJSON_IsNumber(item))
        (void)snprintf(buffer, size, "%.6g", item->valuedouble);
    else if (cJSON_IsString(item))
        (void)snprintf(buffer, size, "%.40s", item->valuestring);
    else if (!cJSON_IsArray(item))
        (void)snprintf(buffer, size, "%s", cJSON_IsTrue(item) ? "true" : "false");
    else if (!cJSON_PrintPreallocated((struct cJSON *)item, buffer, (int)size, false))
        (void)snprintf(buffer, size, "%d pieces", cJSON_GetArraySize(item));
    return buffer;
}

static bool has_zero(const struct sbp_plan *plan)
{
    for (int op = 0; op < plan->cut.graph.op_count; op++)
        if (plan->cut.graph.op[op].weight_count > 0 && sbp_plan_zero(plan, op) > 0)
            return true;
    return false;
}

/* ZeRO levels are compared layer by layer; where stages begin, by their blocks. What is gathered
 * together means nothing where nothing is gathered. */
static bool is_compared(const struct sbp_export *export, const char *key)
{
    if (strcmp(key, "gather_blocks") == 0)
        return has_zero(export->given) && has_zero(&export->plan);
    return strcmp(key, "zero") != 0 && strcmp(key, "stage_cut") != 0;
}

static enum sbp_status compare_keys(struct sbp_export *export, const struct cJSON *from,
                                    const struct cJSON *to)
{
    char one[96], two[96];
    for (const char *const *key = sbp_parallel_keys(); *key != NULL; key++) {
        (void)text_of(cJSON_GetObjectItemCaseSensitive(from, *key), one, sizeof one);
        (void)text_of(cJSON_GetObjectItemCaseSensitive(to, *key), two, sizeof two);
        if (is_compared(export, *key) && strcmp(one, two) != 0)
            SBP_TRY(sbp_export_lose(export, "%s %s -> %s", *key, one, two));
    }
    return SBP_OK;
}

static enum sbp_status compare_step(struct sbp_export *export)
{
    struct cJSON *from = cJSON_CreateObject(), *to = cJSON_CreateObject();
    bool failed = from == NULL || to == NULL;
    if (!failed) {
        sbp_parallel_write(from, &export->given->cut.parallel, &failed);
        sbp_parallel_write(to, &export->plan.cut.parallel, &failed);
    }
    const enum sbp_status status = failed ? SBP_E_MEMORY : compare_keys(export, from, to);
    cJSON_Delete(from);
    cJSON_Delete(to);
    return status;
}

static const char *blocks_text(const int *blocks, int pieces, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int piece = 0; piece < pieces && used + 16 < size; piece++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%d", piece > 0 ? ", " : "",
                                 blocks[piece]);
    return buffer;
}

static enum sbp_status compare_blocks(struct sbp_export *export)
{
    char one[160], two[160];
    (void)blocks_text(export->given_blocks, export->given_pieces, one, sizeof one);
    (void)blocks_text(export->blocks, export->pieces, two, sizeof two);
    return strcmp(one, two) == 0 ? SBP_OK
                                 : sbp_export_lose(export, "blocks of stages %s -> %s", one, two);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Layers, with repeats, whose weights change from one level to another. */
static int count_zero(const struct sbp_export *export, int from, int to)
{
    const struct sbp_graph *graph = &export->given->cut.graph;
    int count = 0;
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].site == op && graph->op[op].weight_count > 0 &&
            sbp_plan_zero(export->given, op) == from && sbp_plan_zero(&export->plan, op) == to)
            count += graph->op[op].repeats;
    return count;
}

static enum sbp_status compare_zero(struct sbp_export *export)
{
    for (int from = 0; from <= 3; from++)
        for (int to = 0; to <= 3; to++) {
            const int count = from == to ? 0 : count_zero(export, from, to);
            if (count > 0)
                SBP_TRY(sbp_export_lose(export, "ZeRO %d of %d layer%s -> %d", from, count,
                                        count == 1 ? "" : "s", to));
        }
    return SBP_OK;
}

static bool is_split_otherwise(const struct sbp_export *export, int op, char *one, char *two)
{
    const struct sbp_op_node *node = &export->given->cut.graph.op[op];
    if (node->site != op || node->entry->follows)
        return false;
    return strcmp(sbp_roles_text(export->given, op, one), sbp_roles_text(&export->plan, op, two)) !=
           0;
}

static enum sbp_status compare_layers(struct sbp_export *export)
{
    const struct sbp_graph *graph = &export->given->cut.graph;
    char one[SBP_ROLES_BYTES], two[SBP_ROLES_BYTES], times[16];
    int count = 0;
    for (int op = 0; op < graph->op_count; op++) {
        if (!is_split_otherwise(export, op, one, two) || count++ >= MOST_LAYERS)
            continue;
        times[0] = '\0';
        if (graph->op[op].repeats > 1)
            (void)snprintf(times, sizeof times, " x %d", graph->op[op].repeats);
        SBP_TRY(sbp_export_lose(export, "%.60s%s, %s -> %s", graph->op[op].name, times, one, two));
    }
    return count > MOST_LAYERS
               ? sbp_export_lose(export, "%d layers more are split otherwise", count - MOST_LAYERS)
               : SBP_OK;
}

static bool rests_otherwise(const struct sbp_export *export, int op)
{
    return op >= 0 && !sbp_plan_rests_alike(export->given, op, &export->plan, op);
}

/* Whether it is this operator that an output's other rest comes of: it is split alike or, where it
 * follows, its input rests alike. */
static bool is_cause(const struct sbp_export *export, int op)
{
    const struct sbp_graph *graph = &export->given->cut.graph;
    char one[SBP_ROLES_BYTES], two[SBP_ROLES_BYTES];
    if (!graph->op[op].entry->follows)
        return !is_split_otherwise(export, op, one, two);
    return graph->op[op].input_count > 0 &&
           !rests_otherwise(export, graph->tensor[graph->op[op].input[0]].producer);
}

/* Outputs that lie otherwise until they are read, although what makes them is split alike. */
static enum sbp_status compare_rests(struct sbp_export *export)
{
    const struct sbp_graph *graph = &export->given->cut.graph;
    int count = 0;
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].site == op && rests_otherwise(export, op) && is_cause(export, op))
            count += graph->op[op].repeats;
    return count == 0 ? SBP_OK
                      : sbp_export_lose(export, "%d output%s otherwise until %s read", count,
                                        count == 1 ? " rests" : "s rest",
                                        count == 1 ? "it is" : "they are");
}

static enum sbp_status compare_precision(struct sbp_export *export)
{
    const struct cJSON *given =
        cJSON_GetObjectItemCaseSensitive(export->given->workload.model_json, "precision");
    const enum sbp_export_precision from = sbp_export_precision_of(export->given);
    const enum sbp_export_precision to = sbp_export_precision_of(&export->plan);
    const bool by_type = cJSON_IsObject(given);
    if ((export->target->can & SBP_EXPORT_BY_LAYER) != 0 || (from == to && !by_type))
        return SBP_OK;
    return sbp_export_lose(export, "precision %s -> %s",
                           by_type ? "type by type" : sbp_export_precision_name(from),
                           sbp_export_precision_name(to));
}

enum sbp_status sbp_export_compare(struct sbp_export *export)
{
    SBP_TRY(compare_precision(export));
    SBP_TRY(compare_step(export));
    SBP_TRY(compare_blocks(export));
    SBP_TRY(compare_zero(export));
    SBP_TRY(compare_layers(export));
    return compare_rests(export);
}

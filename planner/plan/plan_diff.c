#include "planner/plan/plan_diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/roles.h"

struct note {
    char *bytes; /* (SBP_PLAN_CHANGE_BYTES) */
    size_t used;
};

/* Appends ", words", or ", ..." where they no longer fit. */
static void SBP_PRINTF(2, 3) add(struct note *note, const char *format, ...)
{
    char words[SBP_PLAN_CHANGE_BYTES];
    const size_t room = SBP_PLAN_CHANGE_BYTES - note->used;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    const bool fits = length >= 0 && (size_t)length + strlen(", , ...") < room;
    if (room < sizeof ", ...")
        return;
    note->used += (size_t)snprintf(note->bytes + note->used, room, "%s%s",
                                   note->used > 0 ? ", " : "", fits ? words : "...");
}

/* ---- the step around the strategy ----------------------------------------------------------- */

static bool takes_whole_batch(const struct sbp_plan *plan)
{
    return plan->cut.parallel.micro_batch == plan->cut.graph.global_batch;
}

static const char *text_of(struct cJSON *item, char *buffer, size_t size)
{
    if (item == NULL)
        (void)snprintf(buffer, size, "default");
    else if (cJSON_IsNumber(item))
        (void)snprintf(buffer, size, "%.6g", item->valuedouble);
    else if (cJSON_IsString(item))
        (void)snprintf(buffer, size, "%.24s", item->valuestring);
    else if (!cJSON_IsArray(item))
        (void)snprintf(buffer, size, "%s", cJSON_IsTrue(item) ? "true" : "false");
    else if (!cJSON_PrintPreallocated(item, buffer, (int)size, false))
        (void)snprintf(buffer, size, "a list of %d", cJSON_GetArraySize(item));
    return buffer;
}

static void add_step(struct note *note, const struct sbp_plan *before, const struct sbp_plan *after)
{
    struct cJSON *one = cJSON_CreateObject(), *two = cJSON_CreateObject();
    bool failed = one == NULL || two == NULL;
    if (!failed) {
        sbp_parallel_write(one, &before->cut.parallel, &failed);
        sbp_parallel_write(two, &after->cut.parallel, &failed);
    }
    const bool whole = takes_whole_batch(before) && takes_whole_batch(after);
    for (const char *const *key = sbp_parallel_keys(); !failed && *key != NULL; key++) {
        struct cJSON *a = cJSON_GetObjectItemCaseSensitive(one, *key);
        struct cJSON *b = cJSON_GetObjectItemCaseSensitive(two, *key);
        char from[32], to[32];
        if (strcmp(text_of(a, from, sizeof from), text_of(b, to, sizeof to)) != 0 &&
            !(whole && strcmp(*key, "micro_batch") == 0))
            add(note, "%s %s -> %s", *key, from, to);
    }
    cJSON_Delete(one);
    cJSON_Delete(two);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* The roles of an operator, by level or over all levels. */
static const char *roles_of(const struct sbp_plan *plan, int op, bool by_level, char *buffer)
{
    return by_level ? sbp_roles_text(plan, op, buffer) : sbp_role_totals_text(plan, op, buffer);
}

static int find_layer(const struct sbp_graph *graph, const char *name)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].site == op && strcmp(graph->op[op].name, name) == 0)
            return op;
    return -1;
}

/* Ways that a state splits the operator's resting output at a level; 1 without an output. */
static int64_t resting(const struct sbp_plan *plan, int op, struct sbp_state state, int level)
{
    const int tensor = plan->cut.graph.op[op].output;
    int64_t ways = 1;
    for (int axis = 0; tensor >= 0 && axis < plan->cut.mesh.axis_count; axis++)
        if (plan->cut.mesh.axis[axis].level == level &&
            sbp_state_equal(plan->strategy.rest[tensor].axis[axis], state))
            ways *= plan->cut.mesh.axis[axis].size;
    return ways;
}

bool sbp_plan_rests_alike(const struct sbp_plan *a, int one, const struct sbp_plan *b, int two)
{
    static const struct sbp_state states[] = {{SBP_SPLIT, SBP_DIM_BATCH},
                                              {SBP_SPLIT, SBP_DIM_SEQUENCE},
                                              {SBP_SPLIT, SBP_DIM_FEATURE},
                                              {SBP_BROADCAST, 0},
                                              {SBP_PARTIAL, 0},
                                              {SBP_MIRRORED, 0}};
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        for (size_t i = 0; i < sizeof states / sizeof *states; i++)
            if (resting(a, one, states[i], level) != resting(b, two, states[i], level))
                return false;
    return true;
}

/* How the layers of two plans differ. */
struct layers {
    int split, rest, zero; /* layers that are split, rest, or shard their states differently */
    int largest, before;   /* the largest layer that is split differently: in after, in before */
    bool by_level;         /* that layer differs by level only, not over all levels together */
    double parameters;     /* of that layer */
};

static double parameters_of(const struct sbp_graph *graph, int op)
{
    double parameters = 0;
    for (int w = 0; w < graph->op[op].weight_count; w++)
        parameters += (double)sbp_graph_tensor_parameters(&graph->tensor[graph->op[op].weight[w]]);
    return parameters * graph->op[op].repeats;
}

static void compare_layer(const struct sbp_plan *before, int old, const struct sbp_plan *after,
                          int op, struct layers *layers)
{
    char from[SBP_ROLES_BYTES], to[SBP_ROLES_BYTES];
    const bool chooses = !after->cut.graph.op[op].entry->follows;
    const bool totals =
        strcmp(roles_of(before, old, false, from), roles_of(after, op, false, to)) != 0;
    const bool levels =
        strcmp(roles_of(before, old, true, from), roles_of(after, op, true, to)) != 0;
    layers->rest += !sbp_plan_rests_alike(before, old, after, op);
    layers->zero += after->cut.graph.op[op].weight_count > 0 &&
                    sbp_plan_zero(before, old) != sbp_plan_zero(after, op) &&
                    before->cut.parallel.zero == after->cut.parallel.zero;
    if (!chooses || !levels)
        return;
    layers->split++;
    const double parameters = parameters_of(&after->cut.graph, op);
    if (layers->largest >= 0 && parameters <= layers->parameters)
        return;
    layers->largest = op;
    layers->before = old;
    layers->by_level = !totals;
    layers->parameters = parameters;
}

static void add_layers(struct note *note, const struct sbp_plan *before,
                       const struct sbp_plan *after)
{
    struct layers layers = {.largest = -1};
    char from[SBP_ROLES_BYTES], to[SBP_ROLES_BYTES], more[32] = "";
    for (int op = 0; op < after->cut.graph.op_count; op++) {
        const int old = after->cut.graph.op[op].site != op
                            ? -1
                            : find_layer(&before->cut.graph, after->cut.graph.op[op].name);
        if (old >= 0 && before->cut.graph.op[old].kind == after->cut.graph.op[op].kind)
            compare_layer(before, old, after, op, &layers);
    }
    if (layers.split > 1)
        (void)snprintf(more, sizeof more, " (+%d layer%s)", layers.split - 1,
                       layers.split == 2 ? "" : "s");
    if (layers.split > 0)
        add(note, "%s %s -> %s%s", after->cut.graph.op[layers.largest].name,
            roles_of(before, layers.before, layers.by_level, from),
            roles_of(after, layers.largest, layers.by_level, to), more);
    if (layers.zero > 0)
        add(note, "ZeRO of %d layer%s", layers.zero, layers.zero == 1 ? "" : "s");
    if (layers.split == 0 && layers.rest > 0)
        add(note, "%d output%s otherwise", layers.rest, layers.rest == 1 ? " rests" : "s rest");
}

const char *sbp_plan_change(const struct sbp_plan *before, const struct sbp_plan *after,
                            char *buffer)
{
    struct note note = {.bytes = buffer};
    buffer[0] = '\0';
    add_step(&note, before, after);
    add_layers(&note, before, after);
    return buffer;
}

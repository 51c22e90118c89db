#include "every_strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/support/unit.h"

enum { MOST_CLASSES = 256, MOST_VARIABLES = 2048 };

static const struct sbp_op_node *node_of(const struct every *every, int op)
{
    return &every->cut->graph.op[op];
}

static int64_t features_of(const struct sbp_graph *graph, int tensor)
{
    const int64_t *const size = graph->tensor[tensor].shape.size;
    return size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
}

/* Whether an operator that follows chooses where its output rests: several linears read it, which
 * write as many features together. */
static bool rests_apart(const struct sbp_graph *graph, int op)
{
    int linears = 0;
    int64_t written = 0;
    for (int reader = 0; reader < graph->op_count; reader++) {
        if (graph->op[reader].kind != SBP_OP_LINEAR || graph->op[op].output < 0 ||
            graph->op[reader].input[0] != graph->op[op].output)
            continue;
        linears++;
        written += features_of(graph, graph->op[reader].output);
    }
    return linears > 1 && written >= features_of(graph, graph->op[op].output);
}

static bool chooses(const struct sbp_graph *graph, int op)
{
    return graph->op[op].site == op && (!graph->op[op].entry->follows || rests_apart(graph, op));
}

/* --- what an axis may do --- */

/* Notes a split of a tensor; false: nothing may split that dimension, or not into so many parts. */
static bool note(const struct every *every, int tensor, int axis, struct sbp_state state,
                 sbp_axes *split)
{
    const struct sbp_graph *const graph = &every->cut->graph;
    if (state.kind != SBP_SPLIT || tensor < 0)
        return true;
    const int dim_class = graph->tensor[tensor].shape.dim_class[state.dim];
    if (dim_class == SBP_NO_CLASS)
        return false;
    split[dim_class] |= (sbp_axes)1 << axis;
    return graph->dim_class[dim_class].size %
               sbp_mesh_group_size(&every->cut->mesh, split[dim_class]) ==
           0;
}

static bool note_op(const struct every *every, int op, int axis, struct every_choice choice,
                    sbp_axes *split)
{
    const struct sbp_op_node *const node = node_of(every, op);
    const struct sbp_role *const role = &node->entry->role[choice.role];
    bool legal = true;
    if (node->entry->follows)
        return note(every, node->output, axis, choice.rest, split);
    for (int i = 0; i < node->input_count; i++)
        legal = legal && note(every, node->input[i], axis, role->input[i], split);
    for (int w = 0; w < node->weight_count; w++) {
        struct sbp_state state = role->weight[w];
        if (node->transposed_weight && w == 0 && state.kind == SBP_SPLIT)
            state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
        legal = legal && note(every, node->weight[w], axis, state, split);
    }
    return legal && note(every, node->output, axis, role->output, split) &&
           note(every, node->output, axis, choice.rest, split);
}

static bool note_choice(const struct every *every, const struct every_variable *variable,
                        int choice, sbp_axes *split)
{
    const struct sbp_graph *const graph = &every->cut->graph;
    bool legal = true;
    if (variable->op < 0)
        return note(every, graph->input, variable->axis, variable->choice[choice].rest, split);
    for (int op = variable->op; op < graph->op_count && legal; op++)
        if (graph->op[op].site == variable->op)
            legal = note_op(every, op, variable->axis, variable->choice[choice], split);
    return legal;
}

static void add_choice(const struct every *every, struct every_variable *variable, int role,
                       struct sbp_state rest)
{
    sbp_axes *const split = calloc((size_t)every->cut->graph.class_count + 1, sizeof *split);
    assert_non_null(split);
    variable->choice[variable->count] = (struct every_choice){(uint8_t)role, rest};
    variable->count += note_choice(every, variable, variable->count, split);
    free(split);
}

/* A split output rests so or whole, a sum also partial, and whatever is not split in any split. */
static void add_rests(const struct every *every, struct every_variable *variable, int role,
                      struct sbp_state output)
{
    if (output.kind == SBP_SPLIT)
        add_choice(every, variable, role, output);
    else
        for (int dim = 0; dim < SBP_DIM_INNER; dim++)
            add_choice(every, variable, role, SBP_STATE_S((uint8_t)dim));
    add_choice(every, variable, role, SBP_STATE_B);
    add_choice(every, variable, role, SBP_STATE_M);
    if (output.kind == SBP_PARTIAL &&
        (every->leaves_sums ||
         sbp_graph_consumers(&every->cut->graph, node_of(every, variable->op)->output, NULL, 0) >
             0))
        add_choice(every, variable, role, SBP_STATE_P);
}

static void add_variable(struct every *every, int op, int axis)
{
    struct every_variable *const variable = &every->variable[every->variable_count++];
    variable->op = op;
    variable->axis = axis;
    variable->count = 0;
    if (op < 0) {
        for (int dim = 0; dim < SBP_DIM_INNER; dim++)
            add_choice(every, variable, 0, SBP_STATE_S((uint8_t)dim));
        if (every->cut->graph.input_split)
            return;
        add_choice(every, variable, 0, SBP_STATE_B);
        add_choice(every, variable, 0, SBP_STATE_M);
        return;
    }
    const struct sbp_op_node *const node = node_of(every, op);
    for (int dim = 0; dim < SBP_DIM_INNER && node->entry->follows; dim++)
        add_choice(every, variable, 0, SBP_STATE_S((uint8_t)dim));
    if (node->entry->follows) {
        add_choice(every, variable, 0, SBP_STATE_B);
        add_choice(every, variable, 0, SBP_STATE_M);
        return;
    }
    for (int role = 0; role < node->entry->role_count; role++)
        if (node->output < 0)
            add_choice(every, variable, role, SBP_STATE_B);
        else
            add_rests(every, variable, role, node->entry->role[role].output);
}

/* The model's input rests somewhere where it is split or an operator runs wherever it rests. */
static bool input_rests(const struct sbp_graph *graph)
{
    bool rests = graph->input >= 0 && graph->input_split;
    for (int op = 0; op < graph->op_count && graph->input >= 0; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            rests |= graph->op[op].input[i] == graph->input && graph->op[op].entry->follows;
    return rests;
}

void every_open(const struct sbp_cut *cut, enum sbp_objective objective, bool leaves_sums,
                struct every *every)
{
    const struct sbp_graph *const graph = &cut->graph;
    const int axes = cut->mesh.axis_count;
    *every = (struct every){
        .cut = cut, .objective = objective, .is_ordered = true, .leaves_sums = leaves_sums};
    sbp_arena_init(&every->arena);
    every->variable =
        SBP_NEW(&every->arena, struct every_variable, (graph->op_count + 1) * axes + 1);
    every->at = SBP_NEW(&every->arena, int, (graph->op_count + 1) * axes + 1);
    assert_true(every->variable != NULL && every->at != NULL);
    assert_int_equal(sbp_strategy_alloc(graph, &every->arena, &every->strategy), SBP_OK);
    for (int axis = 0; axis < axes && input_rests(graph); axis++)
        add_variable(every, -1, axis);
    for (int op = 0; op < graph->op_count; op++) {
        const enum sbp_op_kind kind = graph->op[op].kind;
        if (kind == SBP_OP_CONV2D || kind == SBP_OP_GROUPED_ATTENTION ||
            kind == SBP_OP_LATENT_ATTENTION)
            every->is_ordered = false;
        for (int axis = 0; axis < axes; axis++)
            if (chooses(graph, op))
                add_variable(every, op, axis);
    }
    memset(every->at, 0, (size_t)every->variable_count * sizeof *every->at);
}

void every_close(struct every *every)
{
    sbp_arena_free(&every->arena);
}

/* --- one strategy --- */

bool every_read(struct every *every, const struct sbp_strategy *strategy)
{
    for (int v = 0; v < every->variable_count; v++) {
        const struct every_variable *const variable = &every->variable[v];
        const int tensor =
            variable->op < 0 ? every->cut->graph.input : node_of(every, variable->op)->output;
        int found = -1;
        for (int c = 0; c < variable->count && found < 0; c++)
            if ((variable->op < 0 || node_of(every, variable->op)->entry->follows ||
                 variable->choice[c].role == strategy->op[variable->op].role[variable->axis]) &&
                (tensor < 0 || sbp_state_equal(variable->choice[c].rest,
                                               strategy->rest[tensor].axis[variable->axis])))
                found = c;
        if (found < 0)
            return false;
        every->at[v] = found;
    }
    return true;
}

/* Operators that follow run where their inputs rest, and leave their outputs so, but for those that
 * choose a rest. */
static bool follow(struct every *every)
{
    const struct sbp_graph *const graph = &every->cut->graph;
    for (int op = 0; op < graph->op_count; op++)
        for (int axis = 0; axis < every->cut->mesh.axis_count && graph->op[op].entry->follows;
             axis++) {
            const int role = sbp_strategy_role(graph, &every->strategy, op, axis);
            if (role < 0)
                return false;
            if (graph->op[op].output >= 0 && !rests_apart(graph, graph->op[op].site))
                every->strategy.rest[graph->op[op].output].axis[axis] =
                    graph->op[op].entry->role[role].output;
        }
    return true;
}

/* Two users of a weight play one role on an axis that leaves it whole, and both repeat work or
 * neither does: else `sbplan price` refuses them. */
static bool users_agree(const struct every *every, int op, int other)
{
    const struct sbp_op_entry *const a = node_of(every, op)->entry;
    const struct sbp_op_entry *const b = node_of(every, other)->entry;
    for (int axis = 0; axis < every->cut->mesh.axis_count; axis++) {
        const struct sbp_role *const left = &a->role[every->strategy.op[op].role[axis]];
        const struct sbp_role *const right = &b->role[every->strategy.op[other].role[axis]];
        if (left->spare != right->spare ||
            (left->weight[0].kind != SBP_SPLIT && strcmp(left->name, right->name) != 0))
            return false;
    }
    return true;
}

static bool weights_agree(const struct every *every)
{
    const struct sbp_graph *const graph = &every->cut->graph;
    for (int op = 0; op < graph->op_count; op++)
        for (int other = 0; other < op && graph->op[op].transposed_weight; other++)
            if (graph->op[other].weight_count > 0 &&
                graph->op[other].weight[0] == graph->op[op].weight[0] &&
                !users_agree(every, op, other))
                return false;
    return true;
}

static bool make_strategy(struct every *every)
{
    const struct sbp_graph *const graph = &every->cut->graph;
    for (int v = 0; v < every->variable_count; v++) {
        const struct every_variable *const variable = &every->variable[v];
        const struct every_choice choice = variable->choice[every->at[v]];
        if (variable->op < 0)
            every->strategy.rest[graph->input].axis[variable->axis] = choice.rest;
        for (int op = variable->op; op >= 0 && op < graph->op_count; op++) {
            if (graph->op[op].site != variable->op)
                continue;
            every->strategy.op[op].role[variable->axis] = choice.role;
            if (graph->op[op].output >= 0)
                every->strategy.rest[graph->op[op].output].axis[variable->axis] = choice.rest;
        }
    }
    return weights_agree(every) && follow(every);
}

double every_price(struct every *every)
{
    struct sbp_diag why = {{0}};
    struct sbp_step step;
    if (!make_strategy(every) ||
        sbp_strategy_close(&every->cut->graph, &every->cut->mesh, &every->strategy, &why) != SBP_OK)
        return INFINITY;
    if (sbp_cut_step(every->cut, &every->strategy, true, &step, &why) != SBP_OK)
        fail_msg("a closed strategy does not compile: %s", why.text);
    const double cost_s =
        every->objective == SBP_STEP_TIME ? step.totals.step_s : step.totals.communication_s;
    sbp_step_free(&step);
    every->priced++;
    return cost_s;
}

/* --- many --- */

struct every_walker {
    struct every *every;
    const int *variable;
    int count;
    int64_t left;
    every_visit *visit;
    void *context;
};

/* One order of exchangeable axes is enough: at the first operator their choices do not fall. */
static bool in_order(const struct every_walker *walker, int place)
{
    const struct every *const every = walker->every;
    const int v = walker->variable[place];
    const struct sbp_mesh *const mesh = &every->cut->mesh;
    if (!every->is_ordered || walker->count < every->variable_count || v == 0 ||
        v >= mesh->axis_count)
        return true;
    return mesh->axis[v].family != mesh->axis[v - 1].family || every->at[v - 1] <= every->at[v];
}

static bool walk(struct every_walker *walker, int place, const sbp_axes *split)
{
    struct every *const every = walker->every;
    const size_t classes = (size_t)every->cut->graph.class_count;
    sbp_axes own[MOST_CLASSES];
    if (place == walker->count) {
        if (walker->visit != NULL)
            walker->visit(every, walker->context);
        return --walker->left >= 0;
    }
    const int v = walker->variable[place];
    for (int choice = 0; choice < every->variable[v].count; choice++) {
        memcpy(own, split, classes * sizeof *own);
        every->at[v] = choice;
        if (in_order(walker, place) && note_choice(every, &every->variable[v], choice, own) &&
            !walk(walker, place + 1, own))
            return false;
    }
    return true;
}

bool every_walk(struct every *every, const int *variable, int count, int64_t most,
                every_visit *visit, void *context)
{
    struct every_walker walker = {every, variable, count, most, visit, context};
    sbp_axes split[MOST_CLASSES] = {0};
    int before[MOST_VARIABLES];
    assert_true(every->variable_count <= MOST_VARIABLES);
    assert_true(every->cut->graph.class_count <= MOST_CLASSES);
    memcpy(before, every->at, (size_t)every->variable_count * sizeof *before);
    for (int v = 0; v < every->variable_count; v++) {
        bool is_free = false;
        for (int i = 0; i < count; i++)
            is_free |= variable[i] == v;
        if (!is_free)
            (void)note_choice(every, &every->variable[v], every->at[v], split);
    }
    const bool all = walk(&walker, 0, split);
    memcpy(every->at, before, (size_t)every->variable_count * sizeof *before);
    return all;
}

/* --- in the words of a strategy file --- */

static int rest_index(struct sbp_state state)
{
    static const int index[] = {[SBP_BROADCAST] = 3, [SBP_PARTIAL] = 4, [SBP_MIRRORED] = 5};
    return state.kind == SBP_SPLIT ? state.dim : index[state.kind];
}

int every_fixes(const struct every *every, struct sbp_fix *fix)
{
    int count = 0;
    for (int v = 0; v < every->variable_count; v++) {
        const struct every_variable *const variable = &every->variable[v];
        if (variable->op < 0)
            continue;
        if (variable->axis == 0) {
            struct sbp_fix *const own = &fix[count++];
            *own = (struct sbp_fix){.layer = "", .zero = SBP_ANY};
            snprintf(own->layer, sizeof own->layer, "%s", node_of(every, variable->op)->name);
            const bool follows = node_of(every, variable->op)->entry->follows;
            own->rests = node_of(every, variable->op)->output >= 0;
            for (int level = 0; level < SBP_MAX_LEVELS; level++) {
                for (int role = 0; role < SBP_MAX_ROLES; role++)
                    own->factor[role][level] = follows ? SBP_ANY : 1;
                for (int state = 0; state < SBP_REST_STATES; state++)
                    own->rest[state][level] = 1;
            }
        }
        const struct every_choice choice = variable->choice[every->at[v]];
        const struct sbp_axis *const axis = &every->cut->mesh.axis[variable->axis];
        if (!node_of(every, variable->op)->entry->follows)
            fix[count - 1].factor[choice.role][axis->level] *= axis->size;
        fix[count - 1].rest[rest_index(choice.rest)][axis->level] *= axis->size;
    }
    return count;
}

/* {"batch": [2, 1]}: what divides anything at a level. */
static struct cJSON *factors_json(const char *const *names, int64_t factor[][SBP_MAX_LEVELS],
                                  int count, int levels)
{
    struct cJSON *const json = cJSON_CreateObject();
    for (int i = 0; i < count; i++) {
        int64_t parts = 1;
        for (int level = 0; level < levels; level++)
            parts *= factor[i][level];
        struct cJSON *const list = parts > 1 ? cJSON_AddArrayToObject(json, names[i]) : NULL;
        for (int level = 0; list != NULL && level < levels; level++)
            cJSON_AddItemToArray(list, cJSON_CreateNumber((double)factor[i][level]));
    }
    return json;
}

struct cJSON *every_json(const struct every *every)
{
    static const char *const states[] = {"S0", "S1", "S2", "B", "P", "M"};
    const struct sbp_graph *const graph = &every->cut->graph;
    struct sbp_fix *const fix = calloc((size_t)graph->op_count + 1, sizeof *fix);
    struct cJSON *const root = cJSON_CreateObject();
    struct cJSON *const layers = cJSON_AddArrayToObject(root, "layers");
    bool failed = fix == NULL;
    assert_false(failed);
    sbp_parallel_write(cJSON_AddObjectToObject(root, "parallel"), &every->cut->parallel, &failed);
    const int count = every_fixes(every, fix);
    for (int i = 0, op = 0; i < count; i++, op++) {
        const char *names[SBP_MAX_ROLES];
        while (graph->op[op].site != op || strcmp(graph->op[op].name, fix[i].layer) != 0)
            op++;
        for (int role = 0; role < graph->op[op].entry->role_count; role++)
            names[role] = graph->op[op].entry->role[role].name;
        struct cJSON *const layer = cJSON_CreateObject();
        cJSON_AddStringToObject(layer, "name", fix[i].layer);
        if (!graph->op[op].entry->follows)
            cJSON_AddItemToObject(layer, "roles",
                                  factors_json(names, fix[i].factor,
                                               graph->op[op].entry->role_count,
                                               every->cut->stage.level_count));
        if (fix[i].rests)
            cJSON_AddItemToObject(
                layer, "rest",
                factors_json(states, fix[i].rest, SBP_REST_STATES, every->cut->stage.level_count));
        cJSON_AddItemToArray(layers, layer);
    }
    free(fix);
    return root;
}

/* Variables and edges of a space: which operators decide for themselves, which follow another,
 * where tensors rest, and the ways of tensors between variables. */
#include <string.h>

#include "planner/space/domain_build.h"

/* ---- lists ---------------------------------------------------------------------------------- */

enum sbp_status sbp_space_list_init(struct sbp_list *list, int keys, int items,
                                    struct sbp_arena *arena)
{
    list->first = SBP_TAKE(arena, int, keys + 1);
    list->last = SBP_TAKE(arena, int, keys + 1);
    list->next = SBP_TAKE(arena, int, items + 1);
    if (list->first == NULL || list->last == NULL || list->next == NULL)
        return SBP_E_MEMORY;
    for (int key = 0; key <= keys; key++)
        list->first[key] = list->last[key] = -1;
    return SBP_OK;
}

void sbp_space_list_add(struct sbp_list *list, int key, int item)
{
    list->next[item] = -1;
    if (list->first[key] < 0)
        list->first[key] = item;
    else
        list->next[list->last[key]] = item;
    list->last[key] = item;
}

/* ---- variables ------------------------------------------------------------------------------ */

static int add_variable(struct sbp_space *space, int op, int tensor)
{
    struct sbp_space_variable *variable = &space->variable[space->variable_count];
    *variable = (struct sbp_space_variable){.op = op, .tensor = tensor};
    if (op >= 0) {
        const struct sbp_op_entry *entry = sbp_space_entry(space->graph, op);
        variable->role_count = entry->role_count;
        for (int r = 0; r < entry->role_count; r++)
            variable->state[r] = entry->role[r].output;
    } else {
        variable->role_count = SBP_SPLIT_RESTS;
        for (int dim = 0; dim <= SBP_DIM_FEATURE; dim++)
            variable->state[dim] = SBP_STATE_S((uint8_t)dim);
        variable->state[SBP_REST_WHOLE] = SBP_STATE_B;
        variable->state[SBP_REST_PARTIAL] = SBP_STATE_P;
        variable->state[SBP_REST_MIRRORED] = SBP_STATE_M;
    }
    return space->variable_count++;
}

/* The embedding whose weight a tied linear shares; -1: none. */
static int tied_to(const struct sbp_graph *graph, int op)
{
    if (!graph->op[op].transposed_weight)
        return -1;
    for (int other = 0; other < graph->op_count; other++)
        if (graph->op[other].kind == SBP_OP_EMBEDDING &&
            graph->op[other].weight[0] == graph->op[op].weight[0])
            return other;
    return -1;
}

/* A tied head plays the transposed roles: the embedding's column (hidden) is the head's row, its
 * vocabulary the head's column. */
static void tie_roles(struct sbp_space *space, int op, int embedding)
{
    const struct sbp_op_entry *linear = sbp_space_entry(space->graph, op);
    const struct sbp_op_entry *table = sbp_space_entry(space->graph, embedding);
    for (uint8_t r = 0; r < table->role_count; r++) {
        struct sbp_state want = table->role[r].weight[0];
        if (want.kind == SBP_SPLIT)
            want.dim = want.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
        for (uint8_t k = 0; k < linear->role_count; k++) {
            const bool same_weight = sbp_state_equal(linear->role[k].weight[0], want);
            const bool same_name = strcmp(linear->role[k].name, table->role[r].name) == 0;
            if (same_weight && (want.kind == SBP_SPLIT || same_name))
                space->op_role[op][r] = k;
        }
    }
}

static void assign_op(struct sbp_space *space, int op)
{
    const struct sbp_graph *graph = space->graph;
    const int site = graph->op[op].site, embedding = tied_to(graph, op);
    for (uint8_t r = 0; r < SBP_MAX_ROLES; r++)
        space->op_role[op][r] = r;
    if (site != op) {
        space->op_variable[op] = space->op_variable[site];
    } else if (embedding >= 0) {
        space->op_variable[op] = space->op_variable[embedding];
        tie_roles(space, op, embedding);
    } else {
        space->op_variable[op] = add_variable(space, op, -1);
    }
}

struct sbp_state sbp_space_output_state(const struct sbp_space *space, int op, int role)
{
    const struct sbp_op_entry *entry = sbp_space_entry(space->graph, op);
    if (!entry->follows)
        return entry->role[space->op_role[op][role]].output;
    const struct sbp_state at = space->variable[sbp_space_decider(space, op)].state[role];
    for (int r = 0; r < entry->role_count; r++)
        if (sbp_state_equal(entry->role[r].input[0], at))
            return entry->role[r].output;
    return at; /* it cannot run so, which its domain leaves out */
}

/* ---- rests and edges ------------------------------------------------------------------------ */

/* Whether a rest must be chosen: the operator can leave its output partial or may let it rest B or
 * P, or the request says where it rests. */
static bool chooses_rest(const struct sbp_space *space, int op)
{
    const struct sbp_op_entry *entry = sbp_space_entry(space->graph, op);
    const struct sbp_fix *fix = sbp_space_fix(space, space->graph->op[op].site);
    if (space->is_open || (fix != NULL && fix->rests) ||
        space->rests[space->graph->op[space->graph->op[op].site].output] != 0)
        return true;
    for (int r = 0; r < entry->role_count; r++)
        if (entry->role[r].output.kind == SBP_PARTIAL &&
            (!entry->role[r].spare || sbp_space_may_play(space, op, r)))
            return true;
    return false;
}

/* Gives an output a rest of its own, which repeats share; equal edges of repeats are one, which
 * op_groups.c counts. */
static void add_rest(struct sbp_space *space, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const int from = sbp_space_decider(space, op);
    int *const rest = &space->slot[node->output];
    *rest = node->site == op ? add_variable(space, -1, node->output)
                             : space->slot[space->graph->op[node->site].output];
    for (int k = space->output_edge_count - 1; k >= 0; k--)
        if (space->output_edge[k].rest_variable == *rest &&
            space->output_edge[k].op_variable == from)
            return;
    space->output_edge[space->output_edge_count++] =
        (struct sbp_output_edge){.op_variable = from, .rest_variable = *rest, .op = op};
}

static void assign_slot(struct sbp_space *space, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const bool follows = sbp_space_entry(space->graph, op)->follows;
    if (follows && space->slot[node->input[0]] < 0) /* the model's free input rests after all */
        space->slot[node->input[0]] = add_variable(space, -1, node->input[0]);
    if (node->output < 0)
        return;
    if (follows ? space->rests_apart[node->site] : chooses_rest(space, op))
        add_rest(space, op);
    else
        space->slot[node->output] = sbp_space_decider(space, op);
}

/* Adds an operator's input edge; equal edges of repeats are one, which op_groups.c counts. */
static void add_input_edge(struct sbp_space *space, int op, int input)
{
    struct sbp_space_links *links = &space->links;
    const int tensor = space->graph->op[op].input[input];
    if (tensor == space->graph->input && !space->graph->input_split)
        return;
    const int from = space->slot[tensor], to = space->op_variable[op];
    const int site = space->graph->op[op].site;
    for (int i = links->inputs.first[to]; i >= 0; i = links->inputs.next[i]) {
        const struct sbp_input_edge *known = &space->input_edge[i];
        if (known->from == from && known->input == input &&
            space->graph->op[known->op].site == site)
            return;
    }
    sbp_space_list_add(&links->readers, from, space->input_edge_count);
    sbp_space_list_add(&links->inputs, to, space->input_edge_count);
    space->input_edge[space->input_edge_count++] =
        (struct sbp_input_edge){.from = from, .to = to, .op = op, .input = input, .tensor = tensor};
}

/* Operators and tensors by variable. */
static enum sbp_status link_variables(struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    const int variables = space->variable_count, ops = graph->op_count;
    struct sbp_space_links *links = &space->links;
    SBP_TRY(sbp_space_list_init(&links->ops, variables, ops, &space->arena));
    SBP_TRY(sbp_space_list_init(&links->followers, variables, ops, &space->arena));
    SBP_TRY(sbp_space_list_init(&links->tensors, variables, graph->tensor_count, &space->arena));
    SBP_TRY(sbp_space_list_init(&links->output_edges, variables, ops, &space->arena));
    SBP_TRY(sbp_space_list_init(&links->readers, variables, SBP_MAX_INPUTS * ops, &space->arena));
    SBP_TRY(sbp_space_list_init(&links->inputs, variables, SBP_MAX_INPUTS * ops, &space->arena));
    for (int op = 0; op < ops; op++)
        if (sbp_space_entry(graph, op)->follows)
            sbp_space_list_add(&links->followers, space->slot[graph->op[op].input[0]], op);
        else
            sbp_space_list_add(&links->ops, space->op_variable[op], op);
    for (int t = 0; t < graph->tensor_count; t++)
        if (space->slot[t] >= 0)
            sbp_space_list_add(&links->tensors, space->slot[t], t);
    for (int k = 0; k < space->output_edge_count; k++)
        sbp_space_list_add(&links->output_edges, space->output_edge[k].rest_variable, k);
    return SBP_OK;
}

enum sbp_status sbp_space_connect(struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    for (int t = 0; t < graph->tensor_count; t++)
        space->slot[t] = -1;
    if (graph->input >= 0 && graph->input_split)
        space->slot[graph->input] = add_variable(space, -1, graph->input);
    for (int op = 0; op < graph->op_count; op++) {
        space->op_variable[op] = -1;
        if (!sbp_space_entry(graph, op)->follows)
            assign_op(space, op);
        assign_slot(space, op);
    }
    SBP_TRY(link_variables(space));
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; !sbp_space_entry(graph, op)->follows && i < graph->op[op].input_count; i++)
            add_input_edge(space, op, i);
    return SBP_OK;
}

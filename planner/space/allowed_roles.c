/* The roles that a variable may play: those of its space, those that go on with partial sums,
 * those that a request fixes, and last resorts where sizes leave nothing else. */
#include <string.h>

#include "planner/space/domain_build.h"
#include "planner/space/space_table.h"

/* ---- the request's fixes -------------------------------------------------------------------- */

const struct sbp_fix *sbp_space_fix(const struct sbp_space *space, int op)
{
    for (int i = 0; op >= 0 && i < space->request->asked.fix_count; i++)
        if (strcmp(space->request->asked.fix[i].layer, space->graph->op[op].name) == 0)
            return &space->request->asked.fix[i];
    return NULL;
}

const struct sbp_fix *sbp_space_rest_fix(const struct sbp_space *space, int variable)
{
    const struct sbp_list *outputs = &space->links.output_edges;
    for (int k = outputs->first[variable]; k >= 0; k = outputs->next[k]) {
        const struct sbp_fix *fix = sbp_space_fix(space, space->output_edge[k].op);
        if (fix != NULL && fix->rests)
            return fix;
    }
    return NULL;
}

/* The operator's own roles that a fix names; bit r for role r. */
static unsigned fixed_roles(const struct sbp_space *space, int op)
{
    const struct sbp_fix *fix = sbp_space_fix(space, space->graph->op[op].site);
    unsigned roles = 0;
    for (int r = 0; fix != NULL && r < sbp_space_entry(space->graph, op)->role_count; r++)
        for (int level = 0; level < space->mesh->level_count; level++)
            if (fix->factor[r][level] > 1)
                roles |= 1u << r;
    return roles;
}

/* Whether an operator may share a weight with one in another stage. A run sums its gradients over
 * stages, which all shard it alike. */
static bool ties_stages(const struct sbp_space *space, int op)
{
    const struct sbp_graph *graph = space->graph;
    if (!space->request->asked.runnable || space->parallel->pipeline == 1)
        return false;
    if (graph->op[op].kind != SBP_OP_EMBEDDING)
        return graph->op[op].transposed_weight;
    return sbp_graph_is_tied(graph);
}

int sbp_space_zero(const struct sbp_space *space, int op, int chosen)
{
    const struct sbp_fix *own = sbp_space_fix(space, op); /* repeats of followers may differ */
    const struct sbp_fix *fix = own != NULL ? own : sbp_space_fix(space, space->graph->op[op].site);
    if (fix != NULL && fix->zero != SBP_ANY)
        return fix->zero;
    const bool is_free = space->request->zero_is_free && !ties_stages(space, op) &&
                         !sbp_parallel_hands_on(space->parallel);
    return is_free ? chosen : (int)space->parallel->zero;
}

/* ---- roles ---------------------------------------------------------------------------------- */

static bool is_asked_for(const struct sbp_space *space, int op, int role)
{
    return space->request->asked.space == SBP_SPACE_FULL &&
           (fixed_roles(space, op) >> role & 1) != 0;
}

/* Whether an operator may go on with partial sums in a role. */
static bool goes_on(const struct sbp_space *space, int op, int role)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    return space->goes_on[node->site] && sbp_space_sum_role(node->entry, node->input_count) == role;
}

bool sbp_space_may_play(const struct sbp_space *space, int op, int role)
{
    return space->is_open ||
           sbp_space_rule(space->request->asked.space)
               ->plays(sbp_space_entry(space->graph, op), role) ||
           goes_on(space, op, role) || is_asked_for(space, op, role);
}

bool sbp_space_query_roles(const struct sbp_op_node *node, int *head, int *query)
{
    if (node->kind != SBP_OP_GROUPED_ATTENTION)
        return false;
    *head = sbp_op_role(node->entry, "head");
    *query = sbp_op_role(node->entry, "query");
    return true;
}

static bool plays(const struct sbp_space *space, int op, int role)
{
    return sbp_space_rule(space->request->asked.space)
        ->plays(sbp_space_entry(space->graph, op), role);
}

static bool divides(const struct sbp_space *space, int op, int role)
{
    return sbp_space_rule(space->request->asked.space)
        ->divides(sbp_space_entry(space->graph, op), role);
}

/* Roles of a variable that all its operators take. */
static unsigned common_roles(const struct sbp_space *space, int variable,
                             bool (*takes)(const struct sbp_space *space, int op, int role))
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_list *ops = &space->links.ops;
    unsigned roles = (1u << v->role_count) - 1;
    for (int op = ops->first[variable]; op >= 0; op = ops->next[op])
        for (int r = 0; r < v->role_count; r++)
            if (!takes(space, op, space->op_role[op][r]))
                roles &= ~(1u << r);
    return roles;
}

unsigned sbp_space_allowed_roles(const struct sbp_space *space, int variable)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    if (space->is_open)
        return (1u << v->role_count) - 1;
    unsigned allowed = common_roles(space, variable, plays);
    const struct sbp_list *ops = &space->links.ops;
    for (int op = ops->first[variable]; op >= 0; op = ops->next[op])
        for (int r = 0; r < v->role_count; r++)
            if (is_asked_for(space, op, space->op_role[op][r]) ||
                goes_on(space, op, space->op_role[op][r]))
                allowed |= 1u << r;
    return allowed;
}

unsigned sbp_space_dividing_roles(const struct sbp_space *space, int variable)
{
    return common_roles(space, variable, divides);
}

/* ---- rests ---------------------------------------------------------------------------------- */

/* Whether an operator can run where its input rests in a state. */
static bool follows_in(const struct sbp_op_entry *entry, struct sbp_state state)
{
    for (int r = 0; r < entry->role_count; r++)
        if (sbp_state_equal(entry->role[r].input[0], state))
            return true;
    return false;
}

/* Whether the operators before a slot may leave its tensor in a kind of state. */
static bool is_left_in(const struct sbp_space *space, int slot, enum sbp_kind kind)
{
    const struct sbp_list *outputs = &space->links.output_edges;
    for (int k = outputs->first[slot]; k >= 0; k = outputs->next[k]) {
        const struct sbp_output_edge *edge = &space->output_edge[k];
        const struct sbp_space_variable *v = &space->variable[edge->op_variable];
        /* A follower is decided by a rest, whose domain may be made later. */
        const unsigned allowed =
            v->op < 0 ? sbp_space_allowed_rests(space, edge->op_variable) : v->allowed;
        for (int r = 0; r < v->role_count; r++)
            if (allowed >> r & 1 && sbp_space_output_state(space, edge->op, r).kind == kind)
                return true;
    }
    return false;
}

/* Whether a reader of a slot may take partial sums, in a role of its space or of a fix. */
static bool is_read_partial(const struct sbp_space *space, int slot)
{
    const struct sbp_list *readers = &space->links.readers;
    for (int i = readers->first[slot]; i >= 0; i = readers->next[i]) {
        const struct sbp_input_edge *edge = &space->input_edge[i];
        const struct sbp_space_variable *v = &space->variable[edge->to];
        const struct sbp_op_entry *entry = sbp_space_entry(space->graph, edge->op);
        for (int r = 0; r < v->role_count; r++)
            if (v->allowed >> r & 1 &&
                entry->role[space->op_role[edge->op][r]].input[edge->input].kind == SBP_PARTIAL &&
                !goes_on(space, edge->op, space->op_role[edge->op][r]))
                return true;
    }
    return false;
}

/* States in which every operator that follows its input can run; bit r for a rest's state r. */
static unsigned followed_states(const struct sbp_space *space, int slot)
{
    const struct sbp_list *followers = &space->links.followers;
    unsigned states = ~0u;
    for (int op = followers->first[slot]; op >= 0; op = followers->next[op])
        for (int r = 0; r < SBP_REST_STATES; r++)
            if (!follows_in(sbp_space_entry(space->graph, op), space->variable[slot].state[r]))
                states &= ~(1u << r);
    return states;
}

/* B and P, where resting_layouts.c found that they can pay. */
static unsigned searched_rests(const struct sbp_space *space, int slot)
{
    const struct sbp_list *outputs = &space->links.output_edges;
    unsigned states = 0;
    for (int k = outputs->first[slot]; k >= 0; k = outputs->next[k])
        states |= space->rests[space->graph->op[space->output_edge[k].op].output];
    return states;
}

/* Whether a tensor that waits in a slot has no reader: its sum would never be formed. */
static bool ends_unread(const struct sbp_space *space, int slot)
{
    const struct sbp_list *tensors = &space->links.tensors;
    for (int t = tensors->first[slot]; t >= 0; t = tensors->next[t])
        if (!sbp_strategy_is_read(space->graph, t))
            return true;
    return false;
}

/* All states that a plan may state: the model's input arrives in no partial sums, and split where
 * it comes out of an earlier layer. */
static unsigned all_rests(const struct sbp_space *space, int slot)
{
    const struct sbp_graph *graph = space->graph;
    const bool is_input = space->variable[slot].tensor == graph->input;
    unsigned states = (1u << SBP_REST_STATES) - 1;
    if (is_input && graph->input_split)
        states = (1u << SBP_SPLIT_RESTS) - 1;
    if (is_input || ends_unread(space, slot))
        states &= ~(1u << SBP_REST_PARTIAL);
    return states;
}

unsigned sbp_space_allowed_rests(const struct sbp_space *space, int slot)
{
    if (space->is_open)
        return all_rests(space, slot) & followed_states(space, slot);
    unsigned allowed =
        sbp_space_rule(space->request->asked.space)->splits | searched_rests(space, slot);
    if (is_left_in(space, slot, SBP_BROADCAST))
        allowed |= 1u << SBP_REST_WHOLE;
    if (is_left_in(space, slot, SBP_MIRRORED))
        allowed |= 1u << SBP_REST_WHOLE | 1u << SBP_REST_MIRRORED;
    if (is_left_in(space, slot, SBP_PARTIAL) && is_read_partial(space, slot))
        allowed |= 1u << SBP_REST_PARTIAL;
    if (sbp_space_rest_fix(space, slot) != NULL)
        allowed = all_rests(space, slot);
    if (ends_unread(space, slot))
        allowed &= ~(1u << SBP_REST_PARTIAL);
    return allowed & followed_states(space, slot);
}

/* ---- last resorts --------------------------------------------------------------------------- */

unsigned sbp_space_last_resorts(const struct sbp_space *space, int variable)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_space_rule *rule = sbp_space_rule(space->request->asked.space);
    unsigned roles = 0;
    if (rule->resorts == NULL)
        return 0;
    if (v->op < 0)
        return sbp_space_rest_fix(space, variable) == NULL
                   ? 1u << SBP_REST_WHOLE & followed_states(space, variable)
                   : 0;
    for (int r = 0; r < v->role_count; r++)
        if (rule->resorts(sbp_space_entry(space->graph, v->op), r))
            roles |= 1u << r;
    return sbp_space_fix(space, v->op) == NULL ? roles : roles & fixed_roles(space, v->op);
}

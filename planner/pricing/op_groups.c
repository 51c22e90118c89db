/* Groups of operators that cost alike, and how often each part of their cost counts on the path. */
#include <string.h>

#include "costmodel/program/stages.h"
#include "planner/pricing/pricing.h"

/* One call of sbp_pricing_make_groups. */
struct maker {
    struct sbp_space *space;
    struct sbp_arena scratch;
    struct sbp_recomputed recomputed;
    int *holders;                          /* (tensor_count) stages that hold a weight */
    int *readers;                          /* (tensor_count) */
    int *gradient_readers, *input_readers; /* (op_count) */
    int *block;       /* (op_count) block whose weights are gathered together; -1: none */
    bool *block_back; /* (blocks) whether the backward pass gathers them */
    int *first_user;  /* (op_count, SBP_MAX_WEIGHTS) of the weight, in the operator's piece */
    bool *used_again; /* (op_count, SBP_MAX_WEIGHTS) whether the piece has a later user */
    struct sbp_op_group *group;  /* (op_count) in order of the operators */
    struct sbp_list by_variable; /* by variable */
    int count;
};

/* ---- groups --------------------------------------------------------------------------------- */

static bool rests_whole(const struct sbp_space *space, int tensor)
{
    return space->slot[tensor] >= 0 && space->variable[space->slot[tensor]].rests_whole;
}

/* The operator's role for its variable's. A follower plays the role that reads the variable's
 * state. */
static uint8_t role_of(const struct sbp_space *space, int variable, int op, int role)
{
    const struct sbp_op_entry *entry = space->graph->op[op].entry;
    if (!entry->follows)
        return space->op_role[op][role];
    for (uint8_t r = 0; r < entry->role_count; r++)
        if (sbp_state_equal(space->variable[variable].state[role], entry->role[r].input[0]))
            return r;
    return SBP_NO_ROLE;
}

/* The first user of a weight in its piece synchronises it, under its own ZeRO level. */
static void add_owner(const struct maker *m, int op, int weight, struct sbp_op_group *group)
{
    const int first_user = m->first_user[op * SBP_MAX_WEIGHTS + weight];
    bool has_levels = true;
    if (first_user == op) {
        group->owned |= 1u << weight;
        group->used_again |= m->used_again[op * SBP_MAX_WEIGHTS + weight] ? 1u << weight : 0;
        return;
    }
    for (int level = 0; level < SBP_ZERO_LEVELS; level++)
        has_levels &=
            sbp_space_zero(m->space, op, level) == sbp_space_zero(m->space, first_user, level);
    group->lent |= has_levels ? 1u << weight : 0;
}

static struct sbp_op_group group_of(const struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const int variable = sbp_space_decider(space, op);
    struct sbp_op_group group = {.op = op, .follows = node->entry->follows};
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        group.map[r] = r < space->variable[variable].role_count ? role_of(space, variable, op, r)
                                                                : SBP_NO_ROLE;
    for (int level = 0; level < SBP_ZERO_LEVELS; level++)
        group.level[level] = space->parallel->owner != SBP_OWNER_NONE
                                 ? 3
                                 : (uint8_t)sbp_space_zero(space, op, level);
    for (int i = 0; i < node->input_count && !group.follows; i++)
        if (!sbp_pricing_free_input(space, op, i) && !rests_whole(space, node->input[i]))
            group.boxed |= 1u << i;
    group.sharers = node->input_count > 0 && rests_whole(space, node->input[0])
                        ? m->readers[node->input[0]]
                        : 1;
    group.keeps_half = sbp_pricing_keeps_half(space, &m->recomputed, op);
    group.keeps_saved = sbp_pricing_keeps_saved(space, &m->recomputed, op);
    group.keeps_block = sbp_pricing_keeps_input(space, &m->recomputed, op, false);
    group.keeps_copy = sbp_pricing_keeps_input(space, &m->recomputed, op, true);
    group.gradient_readers = m->gradient_readers[op];
    group.input_readers = m->input_readers[op];
    group.boxed_output = !group.follows && node->output >= 0 && !rests_whole(space, node->output);
    for (int w = 0; w < node->weight_count; w++) {
        group.holders[w] = m->holders[node->weight[w]];
        add_owner(m, op, w, &group);
    }
    return group;
}

/* Whether two groups of a variable cost alike; repeats of followers may have ZeRO levels of their
 * own. */
static bool is_alike(const struct maker *m, const struct sbp_op_group *group,
                     const struct sbp_op_group *other)
{
    const struct sbp_graph *graph = m->space->graph;
    return sbp_op_works_alike(graph, group->op, other->op) && group->boxed == other->boxed &&
           group->owned == other->owned && group->lent == other->lent &&
           group->used_again == other->used_again && group->sharers == other->sharers &&
           group->keeps_half == other->keeps_half && group->keeps_saved == other->keeps_saved &&
           group->keeps_block == other->keeps_block && group->keeps_copy == other->keeps_copy &&
           group->gradient_readers == other->gradient_readers &&
           group->input_readers == other->input_readers &&
           memcmp(group->holders, other->holders, sizeof group->holders) == 0 &&
           memcmp(group->level, other->level, sizeof group->level) == 0;
}

static enum sbp_status find_group(struct maker *m, int op, struct sbp_op_group **found)
{
    const size_t stages = (size_t)m->space->weights->memory_stages;
    const int variable = sbp_space_decider(m->space, op);
    struct sbp_op_group group = group_of(m, op);
    for (int i = m->by_variable.first[variable]; i >= 0; i = m->by_variable.next[i])
        if (is_alike(m, &group, &m->group[i])) {
            *found = &m->group[i];
            return SBP_OK;
        }
    group.held = SBP_NEW(&m->space->arena, double, stages);
    group.kept = SBP_NEW(&m->space->arena, double, stages);
    group.parked = SBP_NEW(&m->space->arena, double, stages);
    if (group.held == NULL || group.kept == NULL || group.parked == NULL)
        return SBP_E_MEMORY;
    sbp_space_list_add(&m->by_variable, variable, m->count);
    m->group[m->count] = group;
    *found = &m->group[m->count++];
    return SBP_OK;
}

static void count_readers(const struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            m->readers[graph->op[op].input[i]]++;
}

/* ---- times ---------------------------------------------------------------------------------- */

/* Times that a backward pass copies an operator's weights. */
static double copies_back(const struct maker *m, int op)
{
    const int block = m->block[op];
    if (block >= 0)
        return m->block_back[block] ? 1 : 0;
    const bool recomputes = m->recomputed.in_segment[op] && m->recomputed.inner[op] > 0;
    return recomputes + sbp_op_forms_input_gradient(m->space->graph, op);
}

/* Counts an operator's passes, which are on the path so often. Some operators form gradients of
 * weights together with those of inputs. */
static void count_passes(const struct maker *m, int op, double forward, double backward,
                         double weight, struct sbp_op_counts *counts)
{
    const struct sbp_recomputed *recomputed = &m->recomputed;
    counts->forward += forward;
    counts->backward += backward;
    counts->weight += sbp_op_has_weight_phase(m->space->graph, op) ? weight : backward;
    counts->copied += forward + backward * copies_back(m, op);
    counts->recomputed_compute += backward * recomputed->compute[op];
    counts->recomputed_inner += backward * recomputed->inner[op];
    counts->recomputed_output += backward * recomputed->boxed_output[op];
    for (int i = 0; i < m->space->graph->op[op].input_count; i++)
        counts->recomputed_boxed[i] +=
            backward * ((recomputed->boxed[op] >> i & 1) + (recomputed->boxed_late[op] >> i & 1));
}

static void count(const struct maker *m, int op, struct sbp_op_group *group)
{
    const struct sbp_path_weights *weights = m->space->weights;
    count_passes(m, op, weights->forward[op], weights->backward[op], weights->weight[op],
                 &group->device);
    count_passes(m, op, weights->forward_links[op], weights->backward_links[op],
                 weights->weight_links[op], &group->links);
    group->end += weights->end[op];
    group->sync += weights->sync[op];
    if (weights->point[op] >= 0) {
        group->held[weights->point[op]] += 1;
        group->kept[weights->point[op]] += weights->kept[op];
        group->parked[weights->point[op]] += weights->parked[op];
    }
}

/* How often boxing of activations in an operator's backward pass counts on the path. */
static double boxing_back(const struct sbp_space *space, int op)
{
    return sbp_pricing_shown(space, SBP_CAUSE_ACTIVATION, space->graph->op[op].kind) *
               space->weights->backward[op] +
           space->weights->backward_links[op];
}

static void count_inputs(const struct maker *m, int op, double forward, double backward)
{
    struct sbp_space *space = m->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_recomputed *recomputed = &m->recomputed;
    const struct sbp_list *inputs = &space->links.inputs;
    for (int i = inputs->first[space->op_variable[op]]; i >= 0; i = inputs->next[i]) {
        struct sbp_input_edge *edge = &space->input_edge[i];
        const int input = edge->input;
        if (space->graph->op[edge->op].site != node->site ||
            edge->from != space->slot[node->input[input]])
            continue;
        edge->there += forward + backward * ((recomputed->boxed[op] >> input & 1) +
                                             (recomputed->boxed_late[op] >> input & 1));
        edge->back += backward;
    }
}

static void count_output(const struct maker *m, int op, double forward, double backward)
{
    struct sbp_space *space = m->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_recomputed *recomputed = &m->recomputed;
    const struct sbp_list *outputs = &space->links.output_edges;
    const int gatherer = recomputed->gatherer[op];
    for (int k = outputs->first[space->slot[node->output]]; k >= 0; k = outputs->next[k]) {
        struct sbp_output_edge *edge = &space->output_edge[k];
        if (space->graph->op[edge->op].site != node->site ||
            edge->op_variable != sbp_space_decider(space, op))
            continue;
        edge->there += forward + backward * recomputed->boxed_output[op];
        edge->back += backward;
        edge->again += gatherer < 0 ? 0 : boxing_back(space, gatherer);
    }
}

static void count_ways(const struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const double shown = sbp_pricing_shown(space, SBP_CAUSE_ACTIVATION, node->kind);
    const double forward = shown * space->weights->forward[op] + space->weights->forward_links[op];
    const double backward = boxing_back(space, op);
    if (!node->entry->follows)
        count_inputs(m, op, forward, backward);
    if (node->output >= 0 && space->slot[node->output] >= 0)
        count_output(m, op, forward, backward);
}

/* ---- constant costs ------------------------------------------------------------------------- */

static double kernel_s(const struct sbp_space *space, double bytes)
{
    return sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0, bytes);
}

/* Adds up the gradients that several readers give for a tensor; each reader but the first costs an
 * addition. */
static enum sbp_status count_additions(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_graph *graph = space->graph;
    bool *given = SBP_NEW(&m->scratch, bool, graph->tensor_count);
    if (given == NULL)
        return SBP_E_MEMORY;
    if (space->request->asked.objective != SBP_STEP_TIME)
        return SBP_OK;
    for (int op = graph->op_count - 1; op >= 0; op--)
        for (int i = 0; i < graph->op[op].input_count; i++) {
            const int tensor = graph->op[op].input[i], slot = space->slot[tensor];
            const double elements =
                sbp_pricing_elements(space, tensor) * space->weights->backward[op];
            if (sbp_pricing_free_input(space, op, i))
                continue;
            if (given[tensor] && space->variable[slot].rests_whole)
                space->groups->added_elements[slot] += elements;
            else if (given[tensor])
                space->groups->constant_s +=
                    kernel_s(space, 3 * elements / (double)space->mesh->devices *
                                        (double)space->pricing.bytes.activation);
            given[tensor] = true;
        }
    return SBP_OK;
}

/* Finds tensors that cross between pieces and may rest whole; messages of tensors that rest split
 * are a constant. */
static enum sbp_status find_crossings(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_path_weights *weights = space->weights;
    int *crossing = SBP_TAKE(&m->space->arena, int, weights->pieces);
    space->groups->crossing = crossing;
    space->groups->constant_s += weights->message_s;
    if (space->request->asked.objective == SBP_STEP_TIME)
        space->groups->constant_s += weights->launch_s;
    if (crossing == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < weights->pieces; piece++) {
        const int tensor = weights->crossed[piece] > 0
                               ? sbp_stages_crossing(space->graph, weights->first[piece])
                               : -1;
        crossing[piece] = tensor >= 0 && rests_whole(space, tensor) ? tensor : -1;
    }
    return SBP_OK;
}

/* The all-reduce of the gradients' squares over all devices. */
static void count_norm(struct maker *m)
{
    const struct sbp_space *space = m->space;
    struct sbp_group all = sbp_collective_group_one();
    if (!sbp_program_has_norm(&space->graph->training, &space->pricing.bytes))
        return;
    for (int level = 0; level < space->cluster->level_count; level++)
        all.members[level] = (double)space->cluster->level[level].size;
    all = sbp_price_stage_group(space->cut->cluster, space->cluster, space->parallel->pipeline,
                                (int)space->parallel->pipeline, all);
    space->groups->constant_s += sbp_collective_group_s(space->cut->cluster, SBP_ALL_REDUCE, &all,
                                                        (double)space->pricing.bytes.statistic);
}

double sbp_pricing_constant_s(const struct sbp_space *space)
{
    return space->groups->constant_s;
}

/* ---- preparation ---------------------------------------------------------------------------- */

/* Finds the first user of each weight in its piece: there the weight is synchronised and updated.
 */
static enum sbp_status find_owners(struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    const struct sbp_path_weights *weights = m->space->weights;
    int *const seen = SBP_NEW(&m->scratch, int, graph->tensor_count); /* piece + 1 */
    int *const first = SBP_NEW(&m->scratch, int, graph->tensor_count);
    if (seen == NULL || first == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < weights->pieces; piece++)
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++)
            for (int w = 0; w < graph->op[op].weight_count; w++) {
                const int tensor = graph->op[op].weight[w], use = op * SBP_MAX_WEIGHTS + w;
                if (seen[tensor] == piece + 1)
                    m->used_again[first[tensor]] = true;
                else
                    first[tensor] = use;
                seen[tensor] = piece + 1;
                m->first_user[use] = first[tensor] / SBP_MAX_WEIGHTS;
            }
    return sbp_stages_holders(graph, weights->pieces, (int)sbp_parallel_parts(m->space->parallel),
                              weights->first, m->holders);
}

static enum sbp_status find_blocks(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_graph *graph = space->graph;
    for (int op = 0; op < graph->op_count; op++)
        m->block[op] = -1;
    const int blocks = space->parallel->gather_blocks ? sbp_stages_blocks(graph, m->block) : 0;
    m->block_back = SBP_NEW(&m->scratch, bool, blocks);
    if (m->block_back == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        if (m->block[op] >= 0 && graph->op[op].weight_count > 0 &&
            (sbp_op_forms_input_gradient(graph, op) || m->recomputed.inner[op] > 0))
            m->block_back[m->block[op]] = true;
    return SBP_OK;
}

/* Finds operators whose backward pass does something. Nobody asks for gradients before the first
 * weights; sums and operators in place hand on what their operands are asked for. */
static void find_way_back(const struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    bool *const goes_back = space->groups->goes_back;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const bool hands_on = node->kind == SBP_OP_ADD || node->entry->in_place;
        goes_back[op] = !hands_on && sbp_pricing_works_back(graph, op);
        for (int i = 0; i < node->input_count && hands_on; i++) {
            const int from = graph->tensor[node->input[i]].producer;
            goes_back[op] |= from >= 0 && goes_back[from];
        }
    }
}

/* Repeats keep what their site keeps. */
static void find_kept_whole(const struct sbp_space *space)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    struct sbp_op_kept *const kept = space->groups->kept_whole;
    for (int op = 0; op < space->graph->op_count; op++)
        kept[op] = space->graph->op[op].site < op ? kept[space->graph->op[op].site]
                                                  : sbp_op_kept(space->graph, op, &whole);
}

static enum sbp_status prepare(struct maker *m)
{
    struct sbp_space *space = m->space;
    const size_t ops = (size_t)space->graph->op_count;
    space->groups = SBP_NEW(&space->arena, struct sbp_op_groups, 1);
    m->holders = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->readers = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->gradient_readers = SBP_NEW(&m->scratch, int, ops);
    m->input_readers = SBP_NEW(&m->scratch, int, ops);
    m->block = SBP_NEW(&m->scratch, int, ops);
    m->first_user = SBP_NEW(&m->scratch, int, ops *SBP_MAX_WEIGHTS);
    m->used_again = SBP_NEW(&m->scratch, bool, ops *SBP_MAX_WEIGHTS);
    m->group = SBP_NEW(&m->scratch, struct sbp_op_group, ops);
    if (space->groups == NULL || m->holders == NULL || m->readers == NULL ||
        m->gradient_readers == NULL || m->input_readers == NULL || m->block == NULL ||
        m->first_user == NULL || m->used_again == NULL || m->group == NULL)
        return SBP_E_MEMORY;
    space->groups->added_elements = SBP_NEW(&space->arena, double, space->variable_count);
    space->groups->constant_bytes = SBP_NEW(&space->arena, double, space->weights->memory_stages);
    space->groups->kept_bytes = SBP_NEW(&space->arena, double, ops);
    space->groups->of = SBP_NEW(&space->arena, int, ops);
    space->groups->kept_whole = SBP_TAKE(&space->arena, struct sbp_op_kept, ops);
    space->groups->goes_back = SBP_NEW(&space->arena, bool, ops);
    space->groups->kept_at_rest = SBP_NEW(&space->arena, bool, space->graph->tensor_count);
    space->groups->first = SBP_NEW(&space->arena, int, space->variable_count + 1);
    if (space->groups->added_elements == NULL || space->groups->constant_bytes == NULL ||
        space->groups->kept_bytes == NULL || space->groups->of == NULL ||
        space->groups->goes_back == NULL || space->groups->kept_whole == NULL ||
        space->groups->kept_at_rest == NULL || space->groups->first == NULL)
        return SBP_E_MEMORY;
    find_way_back(space);
    find_kept_whole(space);
    SBP_TRY(sbp_space_list_init(&m->by_variable, space->variable_count, space->graph->op_count,
                                &m->scratch));
    SBP_TRY(sbp_pricing_find_kept(space, &m->scratch, space->groups->kept_at_rest));
    SBP_TRY(sbp_pricing_find_recomputed(space, &m->scratch, &m->recomputed));
    SBP_TRY(sbp_pricing_count_late_readers(space->graph, &m->scratch, m->gradient_readers,
                                           m->input_readers));
    SBP_TRY(find_owners(m));
    return find_blocks(m);
}

/* Sorts groups so that those of a variable are adjacent. */
static enum sbp_status sort_groups(struct maker *m)
{
    struct sbp_space *space = m->space;
    struct sbp_op_groups *groups = space->groups;
    int next = 0;
    groups->group = SBP_NEW(&space->arena, struct sbp_op_group, m->count);
    int *const place = SBP_NEW(&m->scratch, int, m->count);
    if (groups->group == NULL || place == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < space->variable_count; v++) {
        groups->first[v] = next;
        for (int i = m->by_variable.first[v]; i >= 0; i = m->by_variable.next[i]) {
            place[i] = next;
            groups->group[next++] = m->group[i];
        }
    }
    groups->first[space->variable_count] = next;
    for (int op = 0; op < space->graph->op_count; op++)
        groups->of[op] = place[groups->of[op]];
    return SBP_OK;
}

static enum sbp_status make_groups(struct maker *m)
{
    SBP_TRY(prepare(m));
    count_readers(m);
    for (int op = 0; op < m->space->graph->op_count; op++) {
        struct sbp_op_group *group = NULL;
        SBP_TRY(find_group(m, op, &group));
        m->space->groups->of[op] = (int)(group - m->group);
        count(m, op, group);
        count_ways(m, op);
    }
    SBP_TRY(count_additions(m));
    SBP_TRY(find_crossings(m));
    count_norm(m);
    SBP_TRY(sbp_pricing_sum_constant_bytes(m->space, &m->recomputed, &m->scratch,
                                           m->space->groups->kept_bytes,
                                           m->space->groups->constant_bytes));
    return sort_groups(m);
}

enum sbp_status sbp_pricing_make_groups(struct sbp_space *space)
{
    struct maker m = {.space = space, .scratch.budget = space->arena.budget};
    const enum sbp_status status = make_groups(&m);
    sbp_arena_free(&m.scratch);
    return status;
}

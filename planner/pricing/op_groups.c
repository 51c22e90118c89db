/* Which operators a variable decides, and how often each of their parts counts on the path. */
#include <string.h>

#include "costmodel/program/stages.h"
#include "planner/pricing/pricing.h"

/* One call of sbp_space_make_works. */
struct maker {
    struct sbp_space *space;
    struct sbp_arena scratch;
    struct sbp_again again;
    int *holders;     /* (tensor_count) stages that hold a weight */
    int *readers;     /* (tensor_count) */
    int *block;       /* (op_count) whose weights are gathered together; -1 */
    bool *block_back; /* (blocks) whether the backward pass gathers them */
    int *first_user;  /* (op_count, SBP_MAX_WEIGHTS) of a weight, in the operator's piece */
    bool *used_again; /* (op_count, SBP_MAX_WEIGHTS) whether that is not the only one */
    struct sbp_space_work *work; /* (op_count) in order of the operators */
    struct sbp_list works;       /* by variable */
    int count;
};

/* ---- kinds of works ------------------------------------------------------------------------- */

static bool rests_whole(const struct sbp_space *space, int tensor)
{
    return space->slot[tensor] >= 0 && space->variable[space->slot[tensor]].rests_whole;
}

/* A variable's role as the operator has it. A follower plays the role that reads the state. */
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

/* Which user of a weight's synchronises it: the first one, whose ZeRO level counts, too. */
static void add_owner(const struct maker *m, int op, int weight, struct sbp_space_work *work)
{
    const int first_user = m->first_user[op * SBP_MAX_WEIGHTS + weight];
    bool has_levels = true;
    if (first_user == op) {
        work->owned |= 1u << weight;
        work->used_again |= m->used_again[op * SBP_MAX_WEIGHTS + weight] ? 1u << weight : 0;
        return;
    }
    for (int level = 0; level < SBP_ZERO_LEVELS; level++)
        has_levels &=
            sbp_space_zero(m->space, op, level) == sbp_space_zero(m->space, first_user, level);
    work->lent |= has_levels ? 1u << weight : 0;
}

static struct sbp_space_work work_of(const struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const int variable = sbp_space_decider(space, op);
    struct sbp_space_work work = {.op = op, .follows = node->entry->follows};
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        work.map[r] = r < space->variable[variable].role_count ? role_of(space, variable, op, r)
                                                               : SBP_NO_ROLE;
    for (int level = 0; level < SBP_ZERO_LEVELS; level++)
        work.level[level] = space->parallel->owner != SBP_OWNER_NONE
                                ? 3
                                : (uint8_t)sbp_space_zero(space, op, level);
    for (int i = 0; i < node->input_count && !work.follows; i++)
        if (!sbp_space_free_input(space, op, i) && !rests_whole(space, node->input[i]))
            work.boxed |= 1u << i;
    work.sharers = node->input_count > 0 && rests_whole(space, node->input[0])
                       ? m->readers[node->input[0]]
                       : 1;
    work.keeps_half = sbp_space_keeps_half(space, &m->again, op);
    work.keeps_saved = sbp_space_keeps_saved(space, &m->again, op);
    work.keeps_block = sbp_space_keeps_input(space, &m->again, op, false);
    work.keeps_copy = sbp_space_keeps_input(space, &m->again, op, true);
    work.boxed_output = !work.follows && node->output >= 0 && !rests_whole(space, node->output);
    for (int w = 0; w < node->weight_count; w++) {
        work.holders[w] = m->holders[node->weight[w]];
        add_owner(m, op, w, &work);
    }
    return work;
}

/* Works of the same variable; repeats of followers may be given ZeRO levels of their own. */
static bool is_alike(const struct maker *m, const struct sbp_space_work *work,
                     const struct sbp_space_work *other)
{
    const struct sbp_graph *graph = m->space->graph;
    return graph->op[work->op].site == graph->op[other->op].site && work->boxed == other->boxed &&
           work->owned == other->owned && work->lent == other->lent &&
           work->used_again == other->used_again && work->sharers == other->sharers &&
           work->keeps_half == other->keeps_half && work->keeps_saved == other->keeps_saved &&
           work->keeps_block == other->keeps_block && work->keeps_copy == other->keeps_copy &&
           memcmp(work->holders, other->holders, sizeof work->holders) == 0 &&
           memcmp(work->level, other->level, sizeof work->level) == 0 &&
           sbp_op_forms_input_gradient(graph, work->op) ==
               sbp_op_forms_input_gradient(graph, other->op);
}

static enum sbp_status find_work(struct maker *m, int op, struct sbp_space_work **found)
{
    const size_t points = (size_t)m->space->view->points;
    const int variable = sbp_space_decider(m->space, op);
    struct sbp_space_work work = work_of(m, op);
    for (int i = m->works.first[variable]; i >= 0; i = m->works.next[i])
        if (is_alike(m, &work, &m->work[i])) {
            *found = &m->work[i];
            return SBP_OK;
        }
    work.held = SBP_NEW(&m->space->arena, double, points);
    work.kept = SBP_NEW(&m->space->arena, double, points);
    if (work.held == NULL || work.kept == NULL)
        return SBP_E_MEMORY;
    sbp_list_add(&m->works, variable, m->count);
    m->work[m->count] = work;
    *found = &m->work[m->count++];
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
    const bool again = m->again.in_segment[op] && m->again.inner[op] > 0;
    return again + sbp_op_forms_input_gradient(m->space->graph, op);
}

/* Times that an operator's gradients of weights lie on the path: some form them with those of the
 * inputs. */
static double weight_times(const struct sbp_space *space, int op)
{
    return sbp_op_has_weight_phase(space->graph, op) ? space->view->weight[op]
                                                     : space->view->backward[op];
}

static void count(const struct maker *m, int op, struct sbp_space_work *work)
{
    const struct sbp_view *view = m->space->view;
    const struct sbp_again *again = &m->again;
    const double forward = view->forward[op], backward = view->backward[op];
    work->forward += forward;
    work->backward += backward;
    work->weight += weight_times(m->space, op);
    work->end += view->end[op];
    work->copied += forward + backward * copies_back(m, op);
    work->again_compute += backward * again->compute[op];
    work->again_inner += backward * again->inner[op];
    work->again_output += backward * again->boxed_output[op];
    for (int i = 0; i < m->space->graph->op[op].input_count; i++)
        work->again_boxed[i] +=
            backward * ((again->boxed[op] >> i & 1) + (again->boxed_late[op] >> i & 1));
    if (view->point[op] >= 0) {
        work->held[view->point[op]] += 1;
        work->kept[view->point[op]] += view->kept[op];
    }
}

static void count_ways(const struct maker *m, int op)
{
    struct sbp_space *space = m->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const double forward = space->view->forward[op], backward = space->view->backward[op];
    const struct sbp_again *again = &m->again;
    const struct sbp_list *inputs = &space->links.inputs, *keeps = &space->links.keeps;
    if (node->entry->follows)
        return;
    for (int i = inputs->first[space->op_variable[op]]; i >= 0; i = inputs->next[i]) {
        struct sbp_transfer *transfer = &space->transfer[i];
        const int input = transfer->input;
        if (space->graph->op[transfer->op].site != node->site ||
            transfer->from != space->slot[node->input[input]])
            continue;
        transfer->there += forward + backward * ((again->boxed[op] >> input & 1) +
                                                 (again->boxed_late[op] >> input & 1));
        transfer->back += backward;
    }
    const int slot = node->output < 0 ? -1 : space->slot[node->output];
    for (int k = slot < 0 ? -1 : keeps->first[slot]; k >= 0; k = keeps->next[k])
        if (space->keep[k].op == node->site) {
            space->keep[k].there += forward + backward * again->boxed_output[op];
            space->keep[k].back += backward;
        }
}

/* ---- what no variable decides --------------------------------------------------------------- */

static double kernel_s(const struct sbp_space *space, double bytes)
{
    return sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0, bytes);
}

/* Adding up the gradients that several readers give for a tensor: each but the first does. */
static enum sbp_status count_additions(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_graph *graph = space->graph;
    bool *given = SBP_NEW(&m->scratch, bool, graph->tensor_count);
    if (given == NULL)
        return SBP_E_MEMORY;
    if (space->request->objective != SBP_STEP_TIME)
        return SBP_OK;
    for (int op = graph->op_count - 1; op >= 0; op--)
        for (int i = 0; i < graph->op[op].input_count; i++) {
            const int tensor = graph->op[op].input[i], slot = space->slot[tensor];
            const double elements = sbp_space_elements(space, tensor) * space->view->backward[op];
            if (sbp_space_free_input(space, op, i))
                continue;
            if (given[tensor] && space->variable[slot].rests_whole)
                space->works->added_elements[slot] += elements;
            else if (given[tensor])
                space->works->constant_s +=
                    kernel_s(space, 3 * elements / (double)space->mesh->devices *
                                        (double)space->pricing.bytes.activation);
            given[tensor] = true;
        }
    return SBP_OK;
}

/* Messages of what rests split are a constant. */
static enum sbp_status find_crossings(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_view *view = space->view;
    int *crossing = SBP_TAKE(&m->space->arena, int, view->pieces);
    space->works->crossing = crossing;
    space->works->constant_s += view->message_s;
    if (crossing == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < view->pieces; piece++) {
        const int tensor =
            view->crossed[piece] > 0 ? sbp_stages_crossing(space->graph, view->first[piece]) : -1;
        crossing[piece] = tensor >= 0 && rests_whole(space, tensor) ? tensor : -1;
    }
    return SBP_OK;
}

/* The sum of all gradients' squares over all devices. */
static void count_norm(struct maker *m)
{
    const struct sbp_space *space = m->space;
    struct sbp_group all = sbp_collective_group_one();
    if (!(space->graph->training.clip_norm > 0))
        return;
    for (int level = 0; level < space->cluster->level_count; level++)
        all.members[level] = (double)space->cluster->level[level].size;
    all = sbp_price_stage_group(&space->plan->cluster, space->cluster, space->parallel->pipeline,
                                (int)space->parallel->pipeline, all);
    space->works->constant_s += sbp_collective_group_s(&space->plan->cluster, SBP_ALL_REDUCE, &all,
                                                       (double)space->pricing.bytes.activation);
}

double sbp_space_constant_s(const struct sbp_space *space)
{
    return space->works->constant_s;
}

/* ---- preparation ---------------------------------------------------------------------------- */

/* Where each weight is used first in its piece: there it is synchronised and updated. */
static enum sbp_status find_owners(struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    const struct sbp_view *view = m->space->view;
    int *const seen = SBP_NEW(&m->scratch, int, graph->tensor_count); /* piece + 1 */
    int *const first = SBP_NEW(&m->scratch, int, graph->tensor_count);
    if (seen == NULL || first == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < view->pieces; piece++)
        for (int op = view->first[piece]; op < view->first[piece + 1]; op++)
            for (int w = 0; w < graph->op[op].weight_count; w++) {
                const int tensor = graph->op[op].weight[w], use = op * SBP_MAX_WEIGHTS + w;
                if (seen[tensor] == piece + 1)
                    m->used_again[first[tensor]] = true;
                else
                    first[tensor] = use;
                seen[tensor] = piece + 1;
                m->first_user[use] = first[tensor] / SBP_MAX_WEIGHTS;
            }
    return sbp_stages_holders(graph, view->pieces, (int)m->space->parallel->pipeline, view->first,
                              m->holders);
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
            (sbp_op_forms_input_gradient(graph, op) || m->again.inner[op] > 0))
            m->block_back[m->block[op]] = true;
    return SBP_OK;
}

/* Before the first weights nobody asks for gradients; sums and what works in place hand on what
 * their operands are asked for. */
static void find_way_back(const struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    bool *const goes_back = space->works->goes_back;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const bool hands_on = node->kind == SBP_OP_ADD || node->entry->in_place;
        goes_back[op] = !hands_on && sbp_space_works_back(graph, op);
        for (int i = 0; i < node->input_count && hands_on; i++) {
            const int from = graph->tensor[node->input[i]].producer;
            goes_back[op] |= from >= 0 && goes_back[from];
        }
    }
}

static enum sbp_status prepare(struct maker *m)
{
    struct sbp_space *space = m->space;
    const size_t ops = (size_t)space->graph->op_count;
    space->works = SBP_NEW(&space->arena, struct sbp_space_works, 1);
    m->holders = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->readers = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->block = SBP_NEW(&m->scratch, int, ops);
    m->first_user = SBP_NEW(&m->scratch, int, ops *SBP_MAX_WEIGHTS);
    m->used_again = SBP_NEW(&m->scratch, bool, ops *SBP_MAX_WEIGHTS);
    m->work = SBP_NEW(&m->scratch, struct sbp_space_work, ops);
    if (space->works == NULL || m->holders == NULL || m->readers == NULL || m->block == NULL ||
        m->first_user == NULL || m->used_again == NULL || m->work == NULL)
        return SBP_E_MEMORY;
    space->works->added_elements = SBP_NEW(&space->arena, double, space->variable_count);
    space->works->constant_bytes = SBP_NEW(&space->arena, double, space->view->points);
    space->works->kept_bytes = SBP_NEW(&space->arena, double, ops);
    space->works->of = SBP_NEW(&space->arena, int, ops);
    space->works->goes_back = SBP_NEW(&space->arena, bool, ops);
    space->works->kept_at_rest = SBP_NEW(&space->arena, bool, space->graph->tensor_count);
    space->works->first = SBP_NEW(&space->arena, int, space->variable_count + 1);
    if (space->works->added_elements == NULL || space->works->constant_bytes == NULL ||
        space->works->kept_bytes == NULL || space->works->of == NULL ||
        space->works->goes_back == NULL || space->works->kept_at_rest == NULL ||
        space->works->first == NULL)
        return SBP_E_MEMORY;
    find_way_back(space);
    SBP_TRY(sbp_list_init(&m->works, space->variable_count, space->graph->op_count, &m->scratch));
    SBP_TRY(sbp_space_find_kept(space, &m->scratch, space->works->kept_at_rest));
    SBP_TRY(sbp_space_find_again(space, &m->scratch, &m->again));
    SBP_TRY(find_owners(m));
    return find_blocks(m);
}

/* Works of a variable next to each other. */
static enum sbp_status sort_works(struct maker *m)
{
    struct sbp_space *space = m->space;
    struct sbp_space_works *works = space->works;
    int next = 0;
    works->work = SBP_NEW(&space->arena, struct sbp_space_work, m->count);
    int *const place = SBP_NEW(&m->scratch, int, m->count);
    if (works->work == NULL || place == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < space->variable_count; v++) {
        works->first[v] = next;
        for (int i = m->works.first[v]; i >= 0; i = m->works.next[i]) {
            place[i] = next;
            works->work[next++] = m->work[i];
        }
    }
    works->first[space->variable_count] = next;
    for (int op = 0; op < space->graph->op_count; op++)
        works->of[op] = place[works->of[op]];
    return SBP_OK;
}

static enum sbp_status make_works(struct maker *m)
{
    SBP_TRY(prepare(m));
    count_readers(m);
    for (int op = 0; op < m->space->graph->op_count; op++) {
        struct sbp_space_work *work = NULL;
        SBP_TRY(find_work(m, op, &work));
        m->space->works->of[op] = (int)(work - m->work);
        count(m, op, work);
        count_ways(m, op);
    }
    SBP_TRY(count_additions(m));
    SBP_TRY(find_crossings(m));
    count_norm(m);
    SBP_TRY(sbp_space_sum_constant_bytes(m->space, &m->again, &m->scratch,
                                         m->space->works->kept_bytes,
                                         m->space->works->constant_bytes));
    return sort_works(m);
}

enum sbp_status sbp_space_make_works(struct sbp_space *space)
{
    struct maker m = {.space = space};
    const enum sbp_status status = make_works(&m);
    sbp_arena_free(&m.scratch);
    return status;
}

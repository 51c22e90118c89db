#include "planner/labels/label_score_priv.h"

#include <string.h>

#include "planner/space/group_prices.h"

/* ---- which classes a role splits ------------------------------------------------------------ */

/* Lists grow by powers of two; few roles split more than two classes. */
static enum sbp_status note_class(struct sbp_label_score *score, int variable, int role,
                                  int dim_class)
{
    const size_t at = (size_t)variable * SBP_MAX_ROLES + (size_t)role;
    const int count = score->class_count[at];
    for (int i = 0; i < count; i++)
        if (score->classes[at][i] == dim_class)
            return SBP_OK;
    if ((count & (count - 1)) == 0) {
        int *grown = SBP_TAKE(score->arena, int, count == 0 ? 1 : 2 * count);
        if (grown == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < count; i++)
            grown[i] = score->classes[at][i];
        score->classes[at] = grown;
    }
    score->classes[at][score->class_count[at]++] = dim_class;
    return SBP_OK;
}

static enum sbp_status note_operand(struct sbp_label_score *score, int variable, int role,
                                    struct sbp_state state, int tensor)
{
    if (state.kind != SBP_SPLIT || tensor < 0)
        return SBP_OK;
    const int dim_class = score->space->graph->tensor[tensor].shape.dim_class[state.dim];
    return dim_class == SBP_NO_CLASS ? SBP_OK : note_class(score, variable, role, dim_class);
}

static enum sbp_status note_op(struct sbp_label_score *score, int op)
{
    const struct sbp_space *space = score->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const int variable = space->op_variable[op];
    for (int r = 0; variable >= 0 && r < space->variable[variable].role_count; r++) {
        const struct sbp_role *role = &node->entry->role[space->op_role[op][r]];
        for (int i = 0; i < node->input_count; i++)
            SBP_TRY(note_operand(score, variable, r, role->input[i], node->input[i]));
        for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
            SBP_TRY(note_operand(score, variable, r, role->weight[w], node->weight[w]));
        SBP_TRY(note_operand(score, variable, r, role->output, node->output));
    }
    return SBP_OK;
}

static enum sbp_status note_slots(struct sbp_label_score *score)
{
    const struct sbp_space *space = score->space;
    for (int t = 0; t < space->graph->tensor_count; t++) {
        const int variable = space->slot[t];
        for (int r = 0; variable >= 0 && r < space->variable[variable].role_count; r++)
            SBP_TRY(note_operand(score, variable, r, space->variable[variable].state[r], t));
    }
    return SBP_OK;
}

/* ---- one edge ------------------------------------------------------------------------------- */

/* Axes of a labelled input edge that change the dimension they split. */
struct moves {
    sbp_axes conflict; /* wanted as a split of another dimension */
    sbp_axes batch, features;
};

static struct moves moves_of(const struct sbp_label_score *score, const uint8_t *role,
                             const struct sbp_input_edge *edge)
{
    const struct sbp_space *space = score->space;
    const struct sbp_space_variable *from = &space->variable[edge->from];
    const struct sbp_op_entry *entry = space->graph->op[edge->op].entry;
    const uint8_t *a = role + (size_t)edge->from * SBP_MAX_AXES;
    const uint8_t *b = role + (size_t)edge->to * SBP_MAX_AXES;
    struct moves moves = {0, 0, 0};
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const struct sbp_state have = from->state[a[axis]];
        const struct sbp_state want =
            entry->role[space->op_role[edge->op][b[axis]]].input[edge->input];
        const sbp_axes bit = (sbp_axes)1 << axis;
        const struct sbp_state batch = SBP_STATE_S(SBP_DIM_BATCH);
        const struct sbp_state features = SBP_STATE_S(SBP_DIM_FEATURE);
        if (want.kind == SBP_SPLIT && !sbp_state_equal(have, want))
            moves.conflict |= bit;
        if (sbp_state_equal(have, batch) != sbp_state_equal(want, batch))
            moves.batch |= bit;
        if (sbp_state_equal(have, features) != sbp_state_equal(want, features))
            moves.features |= bit;
    }
    return moves;
}

/* Axes of an input edge's all-to-all. */
static sbp_axes moving_axes(const struct sbp_label_score *score, const uint8_t *role,
                            const struct sbp_input_edge *edge)
{
    const struct moves moves = moves_of(score, role, edge);
    if (score->space->request->asked.boxing != SBP_BOXING_PAPER)
        return moves.conflict;
    const struct sbp_space_variable *from = &score->space->variable[edge->from];
    const int tag = from->tag[from->tuple[score->choice[edge->from]]];
    const bool is_free = (moves.batch == 0 && tag != SBP_REST_BATCH) ||
                         (moves.features == 0 && tag != SBP_REST_FEATURE);
    return is_free ? 0 : moves.batch;
}

static struct sbp_dist dist_of(const struct sbp_label_score *score, const uint8_t *role,
                               int variable)
{
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < score->space->mesh->axis_count; axis++)
        dist.axis[axis] = score->space->variable[variable]
                              .state[role[(size_t)variable * SBP_MAX_AXES + (size_t)axis]];
    return dist;
}

/* All boxing of an input edge whose tensor may rest whole. */
static double whole_input_edge_s(const struct sbp_label_score *score, const uint8_t *role,
                                 const struct sbp_input_edge *edge)
{
    const struct sbp_space *space = score->space;
    const struct sbp_op_entry *entry = space->graph->op[edge->op].entry;
    const struct sbp_dist from = dist_of(score, role, edge->from);
    struct sbp_dist to = from;
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const uint8_t own = role[(size_t)edge->to * SBP_MAX_AXES + (size_t)axis];
        to.axis[axis] = entry->role[space->op_role[edge->op][own]].input[edge->input];
    }
    const struct sbp_way way = sbp_pricing_way(space, &from, &to);
    return sbp_pricing_way_s(space, edge->tensor, &way, edge->there, edge->back);
}

static int count_axes(sbp_axes axes)
{
    int count = 0;
    for (; axes != 0; axes &= axes - 1)
        count++;
    return count;
}

static struct sbp_label_item score_input_edge(const struct sbp_label_score *score,
                                              const uint8_t *role,
                                              const struct sbp_input_edge *edge)
{
    const struct sbp_space *space = score->space;
    const struct sbp_space_variable *from = &space->variable[edge->from];
    struct sbp_label_item item = {0, 0};
    /* Partial sums that became the batch's split (p1 = p2') leave the reader's features as they
     * were. */
    if (from->tag[from->tuple[score->choice[edge->from]]] == SBP_REST_BATCH)
        item.broken = count_axes(moves_of(score, role, edge).features);
    if (from->rests_whole) {
        item.seconds = whole_input_edge_s(score, role, edge);
    } else {
        const sbp_axes moving = moving_axes(score, role, edge);
        item.seconds = sbp_pricing_moves_s(space, edge,
                                           sbp_group_shape_of(space->shapes, space->mesh, moving));
    }
    return item;
}

/* Axes on which an output cannot rest where its variable says. */
static int broken_axes(const struct sbp_label_score *score, const uint8_t *role,
                       const struct sbp_output_edge *edge)
{
    const struct sbp_space *space = score->space;
    const uint8_t *a = role + (size_t)edge->op_variable * SBP_MAX_AXES;
    const uint8_t *b = role + (size_t)edge->rest_variable * SBP_MAX_AXES;
    int broken = 0;
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const struct sbp_state left = sbp_space_output_state(space, edge->op, a[axis]);
        const struct sbp_state rest = space->variable[edge->rest_variable].state[b[axis]];
        broken += (left.kind == SBP_SPLIT && rest.kind != SBP_BROADCAST &&
                   rest.kind != SBP_MIRRORED && !sbp_state_equal(left, rest)) ||
                  (left.kind != SBP_PARTIAL && rest.kind == SBP_PARTIAL);
    }
    return broken;
}

/* The boxing of an output counts on its way into a rest that may be whole. */
static struct sbp_label_item score_output_edge(const struct sbp_label_score *score,
                                               const uint8_t *role,
                                               const struct sbp_output_edge *edge)
{
    const struct sbp_space *space = score->space;
    struct sbp_label_item item = {0, broken_axes(score, role, edge)};
    if (!space->variable[edge->rest_variable].rests_whole)
        return item;
    const struct sbp_dist to = dist_of(score, role, edge->rest_variable);
    struct sbp_dist from = to;
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        from.axis[axis] = sbp_space_output_state(
            space, edge->op, role[(size_t)edge->op_variable * SBP_MAX_AXES + (size_t)axis]);
    const struct sbp_way way = sbp_pricing_way(space, &from, &to);
    item.seconds =
        sbp_pricing_way_s(space, space->graph->op[edge->op].output, &way, edge->there, edge->back) +
        sbp_pricing_gather_again_s(space, space->graph->op[edge->op].output, &way, edge->again);
    return item;
}

static struct sbp_label_item score_item(struct sbp_label_score *score, const uint8_t *role,
                                        int item)
{
    const struct sbp_space *space = score->space;
    const int transfers = space->input_edge_count;
    score->work++;
    return item < transfers ? score_input_edge(score, role, &space->input_edge[item])
                            : score_output_edge(score, role, &space->output_edge[item - transfers]);
}

/* ---- classes -------------------------------------------------------------------------------- */

/* Adds one variable's split by an axis to its classes (times 1) or takes it away (times -1);
 * returns whether the axes that split any class change. */
static bool use_classes(struct sbp_label_score *score, int variable, uint8_t role, int axis,
                        int times)
{
    const struct sbp_space *space = score->space;
    const size_t at = (size_t)variable * SBP_MAX_ROLES + role;
    const sbp_axes bit = (sbp_axes)1 << axis;
    bool changes = false;
    for (int i = 0; i < score->class_count[at]; i++) {
        const int c = score->classes[at][i];
        int *const uses = &score->uses[(size_t)c * SBP_MAX_AXES + (size_t)axis];
        const bool before = *uses > 0;
        *uses += times;
        if (before == (*uses > 0))
            continue;
        changes = true;
        score->split[c] ^= bit;
        score->broken[c] =
            space->graph->dim_class[c].size % sbp_mesh_group_size(space->mesh, score->split[c]) !=
            0;
    }
    return changes;
}

static int count_broken(const struct sbp_label_score *score)
{
    int broken = 0;
    for (int c = 0; c < score->space->graph->class_count; c++)
        broken += score->broken[c];
    return broken;
}

/* Axes that part keys from their queries or an image's rows from the next, anywhere in the plan. */
static int count_misplaced(const struct sbp_label_score *score, const uint8_t *role)
{
    const struct sbp_space *space = score->space;
    int misplaced = 0;
    for (int i = 0; i < score->placed_count; i++) {
        const int op = score->placed[i];
        const uint8_t *own = role + (size_t)space->op_variable[op] * SBP_MAX_AXES;
        misplaced += sbp_strategy_misplaced(space->graph, space->mesh, op, own, score->split);
    }
    return misplaced;
}

int sbp_label_score_broken_class(const struct sbp_label_score *score)
{
    int c = score->space->graph->class_count - 1;
    while (c >= 0 && !score->broken[c])
        c--;
    return c;
}

static bool splits_class(const struct sbp_label_score *score, int variable, uint8_t role,
                         int dim_class)
{
    const size_t at = (size_t)variable * SBP_MAX_ROLES + role;
    for (int i = 0; i < score->class_count[at]; i++)
        if (score->classes[at][i] == dim_class)
            return true;
    return false;
}

struct sbp_class_limit sbp_label_score_used(const struct sbp_label_score *score,
                                            const uint8_t *role, int dim_class)
{
    const struct sbp_mesh *mesh = score->space->mesh;
    struct sbp_class_limit used = {.parts = 1};
    for (int v = 0; v < score->space->variable_count; v++) {
        uint8_t axes[SBP_MAX_AXES] = {0};
        int64_t parts = 1;
        for (int axis = 0; axis < mesh->axis_count; axis++)
            if (splits_class(score, v, role[(size_t)v * SBP_MAX_AXES + (size_t)axis], dim_class)) {
                axes[mesh->axis[axis].family]++;
                parts *= mesh->axis[axis].size;
            }
        used.parts = parts > used.parts ? parts : used.parts;
        for (int f = 0; f < mesh->family_count; f++)
            used.axes[f] = axes[f] > used.axes[f] ? axes[f] : used.axes[f];
    }
    return used;
}

/* ---- a whole labelling ---------------------------------------------------------------------- */

static void sum_items(struct sbp_label_score *score)
{
    score->value.transfer_s = 0;
    for (int i = 0; i < score->item_count; i++)
        score->value.transfer_s += score->item[i].seconds;
}

void sbp_label_score_all(struct sbp_label_score *score, const uint8_t *role)
{
    const struct sbp_graph *graph = score->space->graph;
    memset(score->uses, 0, (size_t)graph->class_count * SBP_MAX_AXES * sizeof *score->uses);
    memset(score->split, 0, (size_t)graph->class_count * sizeof *score->split);
    memset(score->broken, 0, (size_t)graph->class_count * sizeof *score->broken);
    for (int v = 0; v < score->space->variable_count; v++)
        for (int axis = 0; axis < score->space->mesh->axis_count; axis++)
            (void)use_classes(score, v, role[(size_t)v * SBP_MAX_AXES + (size_t)axis], axis, 1);
    score->misplaced = count_misplaced(score, role);
    score->value = (struct sbp_label_value){.broken_rests = score->misplaced,
                                            .broken_classes = count_broken(score)};
    for (int i = 0; i < score->item_count; i++) {
        score->item[i] = score_item(score, role, i);
        score->value.broken_rests += score->item[i].broken;
    }
    sum_items(score);
}

/* ---- changes -------------------------------------------------------------------------------- */

static void touch(struct sbp_label_score *score, int item)
{
    if (score->stamp[item] == score->now)
        return;
    score->stamp[item] = score->now;
    score->changed[score->changed_count++] = item;
}

static void touch_variable(struct sbp_label_score *score, int variable)
{
    const struct sbp_space_links *links = &score->space->links;
    const int transfers = score->space->input_edge_count;
    for (int i = links->readers.first[variable]; i >= 0; i = links->readers.next[i])
        touch(score, i);
    for (int i = links->inputs.first[variable]; i >= 0; i = links->inputs.next[i])
        touch(score, i);
    for (int k = links->output_edges.first[variable]; k >= 0; k = links->output_edges.next[k])
        touch(score, transfers + k);
    for (int k = score->output_edges.first[variable]; k >= 0; k = score->output_edges.next[k])
        touch(score, transfers + k);
}

/* Moves the splits of exchanged axes between classes; role holds the exchange already. */
static bool exchange_classes(struct sbp_label_score *score, const uint8_t *role,
                             const int *variable, int count, int i, int j)
{
    bool changes = false;
    for (int k = 0; k < count; k++) {
        const uint8_t *own = role + (size_t)variable[k] * SBP_MAX_AXES;
        if (own[i] == own[j])
            continue;
        changes |= use_classes(score, variable[k], own[j], i, -1);
        changes |= use_classes(score, variable[k], own[i], j, -1);
        changes |= use_classes(score, variable[k], own[i], i, 1);
        changes |= use_classes(score, variable[k], own[j], j, 1);
    }
    return changes;
}

struct sbp_label_value sbp_label_score_change(struct sbp_label_score *score, const uint8_t *role,
                                              const int *variable, int count, int i, int j)
{
    struct sbp_label_value value = score->value;
    score->now++;
    score->changed_count = 0;
    for (int k = 0; k < count; k++)
        touch_variable(score, variable[k]);
    for (int k = 0; k < score->changed_count; k++) {
        const struct sbp_label_item *before = &score->item[score->changed[k]];
        score->trial[k] = score_item(score, role, score->changed[k]);
        value.transfer_s += score->trial[k].seconds - before->seconds;
        value.broken_rests += score->trial[k].broken - before->broken;
    }
    if (exchange_classes(score, role, variable, count, i, j))
        value.broken_classes = count_broken(score);
    score->trial_misplaced = count_misplaced(score, role);
    value.broken_rests += score->trial_misplaced - score->misplaced;
    return value;
}

void sbp_label_score_keep(struct sbp_label_score *score, const struct sbp_label_value *value)
{
    score->value = *value;
    score->misplaced = score->trial_misplaced;
    for (int k = 0; k < score->changed_count; k++)
        score->item[score->changed[k]] = score->trial[k];
    sum_items(score); /* adding differences would add up their round-off */
}

void sbp_label_score_take_back(struct sbp_label_score *score, const uint8_t *role,
                               const int *variable, int count, int i, int j)
{
    (void)exchange_classes(score, role, variable, count, i, j);
}

/* ---- preparation ---------------------------------------------------------------------------- */

static enum sbp_status allocate(struct sbp_label_score *score)
{
    const struct sbp_space *space = score->space;
    struct sbp_arena *const arena = score->arena;
    const int cells = space->variable_count * SBP_MAX_ROLES;
    const int classes = space->graph->class_count, items = score->item_count;
    score->class_count = SBP_NEW(arena, int, cells);
    score->classes = SBP_NEW(arena, int *, cells);
    score->uses = SBP_NEW(arena, int, classes *SBP_MAX_AXES);
    score->split = SBP_NEW(arena, sbp_axes, classes);
    score->broken = SBP_NEW(arena, bool, classes);
    score->item = SBP_NEW(arena, struct sbp_label_item, items);
    score->trial = SBP_NEW(arena, struct sbp_label_item, items);
    score->changed = SBP_NEW(arena, int, items);
    score->stamp = SBP_NEW(arena, int, items);
    score->placed = SBP_NEW(arena, int, space->graph->op_count);
    if (score->class_count == NULL || score->classes == NULL || score->uses == NULL ||
        score->split == NULL || score->broken == NULL || score->item == NULL ||
        score->trial == NULL || score->changed == NULL || score->stamp == NULL ||
        score->placed == NULL)
        return SBP_E_MEMORY;
    return sbp_space_list_init(&score->output_edges, space->variable_count,
                               space->output_edge_count, arena);
}

enum sbp_status sbp_label_score_init(struct sbp_label_score *score, const struct sbp_space *space,
                                     const int *choice, struct sbp_arena *arena)
{
    const struct sbp_graph *graph = space->graph;
    *score =
        (struct sbp_label_score){.space = space,
                                 .choice = choice,
                                 .arena = arena,
                                 .item_count = space->input_edge_count + space->output_edge_count};
    SBP_TRY(allocate(score));
    for (int op = 0; op < graph->op_count; op++) {
        const enum sbp_op_kind kind = graph->op[op].kind;
        SBP_TRY(note_op(score, op));
        if (graph->op[op].site == op && !graph->op[op].entry->follows &&
            (kind == SBP_OP_GROUPED_ATTENTION || kind == SBP_OP_LATENT_ATTENTION ||
             kind == SBP_OP_CONV2D))
            score->placed[score->placed_count++] = op;
    }
    for (int k = 0; k < space->output_edge_count; k++)
        sbp_space_list_add(&score->output_edges, space->output_edge[k].op_variable, k);
    return note_slots(score);
}

#include "planner/labels/label_score_priv.h"

#include <string.h>

#include "planner/space/group_prices.h"

/* ---- which classes a role splits ------------------------------------------------------------ */

/* Lists hold as many as the next power of two; few roles split more than two classes. */
static enum sbp_status note_class(struct sbp_label_score *judge, int variable, int role,
                                  int dim_class)
{
    const size_t at = (size_t)variable * SBP_MAX_ROLES + (size_t)role;
    const int count = judge->class_count[at];
    for (int i = 0; i < count; i++)
        if (judge->classes[at][i] == dim_class)
            return SBP_OK;
    if ((count & (count - 1)) == 0) {
        int *grown = SBP_TAKE(judge->arena, int, count == 0 ? 1 : 2 * count);
        if (grown == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < count; i++)
            grown[i] = judge->classes[at][i];
        judge->classes[at] = grown;
    }
    judge->classes[at][judge->class_count[at]++] = dim_class;
    return SBP_OK;
}

static enum sbp_status note_operand(struct sbp_label_score *judge, int variable, int role,
                                    struct sbp_state state, int tensor)
{
    if (state.kind != SBP_SPLIT || tensor < 0)
        return SBP_OK;
    const int dim_class = judge->space->graph->tensor[tensor].shape.dim_class[state.dim];
    return dim_class == SBP_NO_CLASS ? SBP_OK : note_class(judge, variable, role, dim_class);
}

static enum sbp_status note_op(struct sbp_label_score *judge, int op)
{
    const struct sbp_space *space = judge->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const int variable = space->op_variable[op];
    for (int r = 0; variable >= 0 && r < space->variable[variable].role_count; r++) {
        const struct sbp_role *role = &node->entry->role[space->op_role[op][r]];
        for (int i = 0; i < node->input_count; i++)
            SBP_TRY(note_operand(judge, variable, r, role->input[i], node->input[i]));
        for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
            SBP_TRY(note_operand(judge, variable, r, role->weight[w], node->weight[w]));
        SBP_TRY(note_operand(judge, variable, r, role->output, node->output));
    }
    return SBP_OK;
}

static enum sbp_status note_slots(struct sbp_label_score *judge)
{
    const struct sbp_space *space = judge->space;
    for (int t = 0; t < space->graph->tensor_count; t++) {
        const int variable = space->slot[t];
        for (int r = 0; variable >= 0 && r < space->variable[variable].role_count; r++)
            SBP_TRY(note_operand(judge, variable, r, space->variable[variable].state[r], t));
    }
    return SBP_OK;
}

/* ---- one transfer, one keep ----------------------------------------------------------------- */

/* Axes of a labelled transfer that change what they split. */
struct moves {
    sbp_axes conflict; /* a split that is wanted in another dimension */
    sbp_axes batch, features;
};

static struct moves moves_of(const struct sbp_label_score *judge, const uint8_t *role,
                             const struct sbp_transfer *transfer)
{
    const struct sbp_space *space = judge->space;
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    const struct sbp_op_entry *entry = space->graph->op[transfer->op].entry;
    const uint8_t *a = role + (size_t)transfer->from * SBP_MAX_AXES;
    const uint8_t *b = role + (size_t)transfer->to * SBP_MAX_AXES;
    struct moves moves = {0, 0, 0};
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const struct sbp_state have = from->state[a[axis]];
        const struct sbp_state want =
            entry->role[space->op_role[transfer->op][b[axis]]].input[transfer->input];
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

/* Axes of a transfer's all-to-all. */
static sbp_axes moving_axes(const struct sbp_label_score *judge, const uint8_t *role,
                            const struct sbp_transfer *transfer)
{
    const struct moves moves = moves_of(judge, role, transfer);
    if (judge->space->request->asked.boxing != SBP_BOXING_PAPER)
        return moves.conflict;
    const struct sbp_space_variable *from = &judge->space->variable[transfer->from];
    const int tag = from->tag[from->tuple[judge->choice[transfer->from]]];
    const bool is_free = (moves.batch == 0 && tag != SBP_REST_BATCH) ||
                         (moves.features == 0 && tag != SBP_REST_FEATURE);
    return is_free ? 0 : moves.batch;
}

static struct sbp_dist dist_of(const struct sbp_label_score *judge, const uint8_t *role,
                               int variable)
{
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < judge->space->mesh->axis_count; axis++)
        dist.axis[axis] = judge->space->variable[variable]
                              .state[role[(size_t)variable * SBP_MAX_AXES + (size_t)axis]];
    return dist;
}

/* All boxing of a transfer whose tensor may rest whole. */
static double whole_transfer_s(const struct sbp_label_score *judge, const uint8_t *role,
                               const struct sbp_transfer *transfer)
{
    const struct sbp_space *space = judge->space;
    const struct sbp_op_entry *entry = space->graph->op[transfer->op].entry;
    const struct sbp_dist from = dist_of(judge, role, transfer->from);
    struct sbp_dist to = from;
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const uint8_t own = role[(size_t)transfer->to * SBP_MAX_AXES + (size_t)axis];
        to.axis[axis] = entry->role[space->op_role[transfer->op][own]].input[transfer->input];
    }
    const struct sbp_way way = sbp_pricing_way(space, &from, &to);
    return sbp_pricing_way_s(space, transfer->tensor, &way, transfer->there, transfer->back);
}

static int count_axes(sbp_axes axes)
{
    int count = 0;
    for (; axes != 0; axes &= axes - 1)
        count++;
    return count;
}

static struct sbp_label_item judge_transfer(const struct sbp_label_score *judge,
                                            const uint8_t *role,
                                            const struct sbp_transfer *transfer)
{
    const struct sbp_space *space = judge->space;
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    struct sbp_label_item item = {0, 0};
    /* Partial sums that joined the batch (p1 = p2') leave the reader's features where they were. */
    if (from->tag[from->tuple[judge->choice[transfer->from]]] == SBP_REST_BATCH)
        item.broken = count_axes(moves_of(judge, role, transfer).features);
    if (from->rests_whole) {
        item.seconds = whole_transfer_s(judge, role, transfer);
    } else {
        const sbp_axes moving = moving_axes(judge, role, transfer);
        item.seconds = sbp_pricing_moves_s(space, transfer,
                                           sbp_group_shape_of(space->shapes, space->mesh, moving));
    }
    return item;
}

/* Axes on which an output cannot rest where its variable says. */
static int broken_axes(const struct sbp_label_score *judge, const uint8_t *role,
                       const struct sbp_keep *keep)
{
    const struct sbp_space *space = judge->space;
    const uint8_t *a = role + (size_t)keep->op_variable * SBP_MAX_AXES;
    const uint8_t *b = role + (size_t)keep->rest_variable * SBP_MAX_AXES;
    int broken = 0;
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const struct sbp_state left = sbp_space_output_state(space, keep->op, a[axis]);
        const struct sbp_state rest = space->variable[keep->rest_variable].state[b[axis]];
        broken += (left.kind == SBP_SPLIT && rest.kind != SBP_BROADCAST &&
                   !sbp_state_equal(left, rest)) ||
                  (left.kind != SBP_PARTIAL && rest.kind == SBP_PARTIAL);
    }
    return broken;
}

/* Boxing of outputs counts on their way to where they may rest whole. */
static struct sbp_label_item judge_keep(const struct sbp_label_score *judge, const uint8_t *role,
                                        const struct sbp_keep *keep)
{
    const struct sbp_space *space = judge->space;
    struct sbp_label_item item = {0, broken_axes(judge, role, keep)};
    if (!space->variable[keep->rest_variable].rests_whole)
        return item;
    const struct sbp_dist to = dist_of(judge, role, keep->rest_variable);
    struct sbp_dist from = to;
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        from.axis[axis] = sbp_space_output_state(
            space, keep->op, role[(size_t)keep->op_variable * SBP_MAX_AXES + (size_t)axis]);
    const struct sbp_way way = sbp_pricing_way(space, &from, &to);
    item.seconds =
        sbp_pricing_way_s(space, space->graph->op[keep->op].output, &way, keep->there, keep->back);
    return item;
}

static struct sbp_label_item judge_item(struct sbp_label_score *judge, const uint8_t *role,
                                        int item)
{
    const struct sbp_space *space = judge->space;
    const int transfers = space->transfer_count;
    judge->work++;
    return item < transfers ? judge_transfer(judge, role, &space->transfer[item])
                            : judge_keep(judge, role, &space->keep[item - transfers]);
}

/* ---- classes -------------------------------------------------------------------------------- */

/* Adds one variable's split by an axis to its classes, or takes it away; whether any class is split
 * by other axes then. */
static bool use_classes(struct sbp_label_score *judge, int variable, uint8_t role, int axis,
                        int times)
{
    const struct sbp_space *space = judge->space;
    const size_t at = (size_t)variable * SBP_MAX_ROLES + role;
    const sbp_axes bit = (sbp_axes)1 << axis;
    bool changes = false;
    for (int i = 0; i < judge->class_count[at]; i++) {
        const int c = judge->classes[at][i];
        int *const uses = &judge->uses[(size_t)c * SBP_MAX_AXES + (size_t)axis];
        const bool before = *uses > 0;
        *uses += times;
        if (before == (*uses > 0))
            continue;
        changes = true;
        judge->split[c] ^= bit;
        judge->broken[c] =
            space->graph->dim_class[c].size % sbp_mesh_group_size(space->mesh, judge->split[c]) !=
            0;
    }
    return changes;
}

static int count_broken(const struct sbp_label_score *judge)
{
    int broken = 0;
    for (int c = 0; c < judge->space->graph->class_count; c++)
        broken += judge->broken[c];
    return broken;
}

/* Axes that part keys from their queries or an image's rows from the next, anywhere in the plan. */
static int count_misplaced(const struct sbp_label_score *judge, const uint8_t *role)
{
    const struct sbp_space *space = judge->space;
    int misplaced = 0;
    for (int i = 0; i < judge->placed_count; i++) {
        const int op = judge->placed[i];
        const uint8_t *own = role + (size_t)space->op_variable[op] * SBP_MAX_AXES;
        misplaced += sbp_strategy_misplaced(space->graph, space->mesh, op, own, judge->split);
    }
    return misplaced;
}

int sbp_label_score_broken_class(const struct sbp_label_score *judge)
{
    int c = judge->space->graph->class_count - 1;
    while (c >= 0 && !judge->broken[c])
        c--;
    return c;
}

static bool splits_class(const struct sbp_label_score *judge, int variable, uint8_t role,
                         int dim_class)
{
    const size_t at = (size_t)variable * SBP_MAX_ROLES + role;
    for (int i = 0; i < judge->class_count[at]; i++)
        if (judge->classes[at][i] == dim_class)
            return true;
    return false;
}

struct sbp_class_limit sbp_label_score_used(const struct sbp_label_score *judge,
                                            const uint8_t *role, int dim_class)
{
    const struct sbp_mesh *mesh = judge->space->mesh;
    struct sbp_class_limit used = {.parts = 1};
    for (int v = 0; v < judge->space->variable_count; v++) {
        uint8_t axes[SBP_MAX_AXES] = {0};
        int64_t parts = 1;
        for (int axis = 0; axis < mesh->axis_count; axis++)
            if (splits_class(judge, v, role[(size_t)v * SBP_MAX_AXES + (size_t)axis], dim_class)) {
                axes[mesh->axis[axis].family]++;
                parts *= mesh->axis[axis].size;
            }
        used.parts = parts > used.parts ? parts : used.parts;
        for (int f = 0; f < mesh->family_count; f++)
            used.axes[f] = axes[f] > used.axes[f] ? axes[f] : used.axes[f];
    }
    return used;
}

/* ---- a whole labelling ----------------------------------------------------------------------- */

static void sum_items(struct sbp_label_score *judge)
{
    judge->score.transfer_s = 0;
    for (int i = 0; i < judge->item_count; i++)
        judge->score.transfer_s += judge->item[i].seconds;
}

void sbp_label_score_all(struct sbp_label_score *judge, const uint8_t *role)
{
    const struct sbp_graph *graph = judge->space->graph;
    memset(judge->uses, 0, (size_t)graph->class_count * SBP_MAX_AXES * sizeof *judge->uses);
    memset(judge->split, 0, (size_t)graph->class_count * sizeof *judge->split);
    memset(judge->broken, 0, (size_t)graph->class_count * sizeof *judge->broken);
    for (int v = 0; v < judge->space->variable_count; v++)
        for (int axis = 0; axis < judge->space->mesh->axis_count; axis++)
            (void)use_classes(judge, v, role[(size_t)v * SBP_MAX_AXES + (size_t)axis], axis, 1);
    judge->misplaced = count_misplaced(judge, role);
    judge->score = (struct sbp_label_value){.broken_rests = judge->misplaced,
                                            .broken_classes = count_broken(judge)};
    for (int i = 0; i < judge->item_count; i++) {
        judge->item[i] = judge_item(judge, role, i);
        judge->score.broken_rests += judge->item[i].broken;
    }
    sum_items(judge);
}

/* ---- changes -------------------------------------------------------------------------------- */

static void touch(struct sbp_label_score *judge, int item)
{
    if (judge->stamp[item] == judge->now)
        return;
    judge->stamp[item] = judge->now;
    judge->changed[judge->changed_count++] = item;
}

static void touch_variable(struct sbp_label_score *judge, int variable)
{
    const struct sbp_space_links *links = &judge->space->links;
    const int transfers = judge->space->transfer_count;
    for (int i = links->readers.first[variable]; i >= 0; i = links->readers.next[i])
        touch(judge, i);
    for (int i = links->inputs.first[variable]; i >= 0; i = links->inputs.next[i])
        touch(judge, i);
    for (int k = links->keeps.first[variable]; k >= 0; k = links->keeps.next[k])
        touch(judge, transfers + k);
    for (int k = judge->keeps.first[variable]; k >= 0; k = judge->keeps.next[k])
        touch(judge, transfers + k);
}

/* Moves the splits of exchanged axes between classes; role has them exchanged already. */
static bool exchange_classes(struct sbp_label_score *judge, const uint8_t *role,
                             const int *variable, int count, int i, int j)
{
    bool changes = false;
    for (int k = 0; k < count; k++) {
        const uint8_t *own = role + (size_t)variable[k] * SBP_MAX_AXES;
        if (own[i] == own[j])
            continue;
        changes |= use_classes(judge, variable[k], own[j], i, -1);
        changes |= use_classes(judge, variable[k], own[i], j, -1);
        changes |= use_classes(judge, variable[k], own[i], i, 1);
        changes |= use_classes(judge, variable[k], own[j], j, 1);
    }
    return changes;
}

struct sbp_label_value sbp_label_score_change(struct sbp_label_score *judge, const uint8_t *role,
                                              const int *variable, int count, int i, int j)
{
    struct sbp_label_value score = judge->score;
    judge->now++;
    judge->changed_count = 0;
    for (int k = 0; k < count; k++)
        touch_variable(judge, variable[k]);
    for (int k = 0; k < judge->changed_count; k++) {
        const struct sbp_label_item *before = &judge->item[judge->changed[k]];
        judge->trial[k] = judge_item(judge, role, judge->changed[k]);
        score.transfer_s += judge->trial[k].seconds - before->seconds;
        score.broken_rests += judge->trial[k].broken - before->broken;
    }
    if (exchange_classes(judge, role, variable, count, i, j))
        score.broken_classes = count_broken(judge);
    judge->trial_misplaced = count_misplaced(judge, role);
    score.broken_rests += judge->trial_misplaced - judge->misplaced;
    return score;
}

void sbp_label_score_keep(struct sbp_label_score *judge, const struct sbp_label_value *score)
{
    judge->score = *score;
    judge->misplaced = judge->trial_misplaced;
    for (int k = 0; k < judge->changed_count; k++)
        judge->item[judge->changed[k]] = judge->trial[k];
    sum_items(judge); /* differences would add up their round-off */
}

void sbp_label_score_take_back(struct sbp_label_score *judge, const uint8_t *role,
                               const int *variable, int count, int i, int j)
{
    (void)exchange_classes(judge, role, variable, count, i, j);
}

/* ---- preparation ---------------------------------------------------------------------------- */

static enum sbp_status allocate(struct sbp_label_score *judge)
{
    const struct sbp_space *space = judge->space;
    struct sbp_arena *const arena = judge->arena;
    const int cells = space->variable_count * SBP_MAX_ROLES;
    const int classes = space->graph->class_count, items = judge->item_count;
    judge->class_count = SBP_NEW(arena, int, cells);
    judge->classes = SBP_NEW(arena, int *, cells);
    judge->uses = SBP_NEW(arena, int, classes *SBP_MAX_AXES);
    judge->split = SBP_NEW(arena, sbp_axes, classes);
    judge->broken = SBP_NEW(arena, bool, classes);
    judge->item = SBP_NEW(arena, struct sbp_label_item, items);
    judge->trial = SBP_NEW(arena, struct sbp_label_item, items);
    judge->changed = SBP_NEW(arena, int, items);
    judge->stamp = SBP_NEW(arena, int, items);
    judge->placed = SBP_NEW(arena, int, space->graph->op_count);
    if (judge->class_count == NULL || judge->classes == NULL || judge->uses == NULL ||
        judge->split == NULL || judge->broken == NULL || judge->item == NULL ||
        judge->trial == NULL || judge->changed == NULL || judge->stamp == NULL ||
        judge->placed == NULL)
        return SBP_E_MEMORY;
    return sbp_list_init(&judge->keeps, space->variable_count, space->keep_count, arena);
}

enum sbp_status sbp_label_score_init(struct sbp_label_score *judge, const struct sbp_space *space,
                                     const int *choice, struct sbp_arena *arena)
{
    const struct sbp_graph *graph = space->graph;
    *judge = (struct sbp_label_score){.space = space,
                                      .choice = choice,
                                      .arena = arena,
                                      .item_count = space->transfer_count + space->keep_count};
    SBP_TRY(allocate(judge));
    for (int op = 0; op < graph->op_count; op++) {
        const enum sbp_op_kind kind = graph->op[op].kind;
        SBP_TRY(note_op(judge, op));
        if (graph->op[op].site == op && !graph->op[op].entry->follows &&
            (kind == SBP_OP_GROUPED_ATTENTION || kind == SBP_OP_LATENT_ATTENTION ||
             kind == SBP_OP_CONV2D))
            judge->placed[judge->placed_count++] = op;
    }
    for (int k = 0; k < space->keep_count; k++)
        sbp_list_add(&judge->keeps, space->keep[k].op_variable, k);
    return note_slots(judge);
}

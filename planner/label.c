#include "planner/label.h"

#include <math.h>
#include <string.h>

#include "base/random.h"

enum { RESTARTS = 40 };

/* One role per (variable, axis), and what is needed to judge them. */
struct labeller {
    const struct sbp_space *space;
    const int *choice;
    struct sbp_arena arena;
    uint8_t *role; /* (variable, axis) being worked on */
    uint8_t *best_role;
    int *class_count; /* (variable, role) how many classes the role splits */
    int **classes;    /* (variable, role) which */
    sbp_axes *split;  /* (class_count) scratch */
    double bound_s;   /* the unlabelled price of all transfers and keeps */
};

struct score {
    double transfer_s;
    int broken_rests; /* with misplaced axes of operators */
    int broken_classes, broken_class;
};

/* The best labelling's role of a variable on an axis. */
static uint8_t best_role(const struct labeller *l, int variable, int axis)
{
    return l->best_role[(size_t)variable * SBP_MAX_AXES + (size_t)axis];
}

/* ---- which classes a role splits ------------------------------------------------------------ */

static void note_class(struct labeller *l, int variable, int role, int dim_class)
{
    const size_t at = (size_t)variable * SBP_MAX_ROLES + (size_t)role;
    for (int i = 0; i < l->class_count[at]; i++)
        if (l->classes[at][i] == dim_class)
            return;
    l->classes[at][l->class_count[at]++] = dim_class;
}

static void note_operand(struct labeller *l, int variable, int role, struct sbp_state state,
                         int tensor)
{
    if (state.kind != SBP_SPLIT || tensor < 0)
        return;
    const int dim_class = l->space->graph->tensor[tensor].shape.dim_class[state.dim];
    if (dim_class != SBP_NO_CLASS)
        note_class(l, variable, role, dim_class);
}

static void note_op(struct labeller *l, int op)
{
    const struct sbp_space *space = l->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    const int variable = space->op_variable[op];
    for (int r = 0; variable >= 0 && r < space->variable[variable].role_count; r++) {
        const struct sbp_role *role = &node->entry->role[space->op_role[op][r]];
        for (int i = 0; i < node->input_count; i++)
            note_operand(l, variable, r, role->input[i], node->input[i]);
        for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
            note_operand(l, variable, r, role->weight[w], node->weight[w]);
        note_operand(l, variable, r, role->output, node->output);
    }
}

static void note_slots(struct labeller *l)
{
    const struct sbp_space *space = l->space;
    for (int t = 0; t < space->graph->tensor_count; t++) {
        const int variable = space->slot[t];
        for (int r = 0; variable >= 0 && r < space->variable[variable].role_count; r++)
            note_operand(l, variable, r, space->variable[variable].state[r], t);
    }
}

static enum sbp_status prepare(struct labeller *l)
{
    const struct sbp_space *space = l->space;
    const int cells = space->variable_count * SBP_MAX_ROLES;
    l->role = SBP_NEW(&l->arena, uint8_t, space->variable_count * SBP_MAX_AXES);
    l->best_role = SBP_NEW(&l->arena, uint8_t, space->variable_count * SBP_MAX_AXES);
    l->class_count = SBP_NEW(&l->arena, int, cells);
    l->classes = SBP_NEW(&l->arena, int *, cells);
    l->split = SBP_NEW(&l->arena, sbp_axes, space->graph->class_count);
    if (l->role == NULL || l->best_role == NULL || l->class_count == NULL || l->classes == NULL ||
        l->split == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < cells; i++) {
        l->classes[i] = SBP_NEW(&l->arena, int, space->graph->class_count);
        if (l->classes[i] == NULL)
            return SBP_E_MEMORY;
    }
    for (int op = 0; op < space->graph->op_count; op++)
        note_op(l, op);
    note_slots(l);
    for (int i = 0; i < space->transfer_count; i++)
        l->bound_s +=
            sbp_space_transfer_s(space, &space->transfer[i], l->choice[space->transfer[i].from],
                                 l->choice[space->transfer[i].to]);
    for (int i = 0; i < space->keep_count; i++)
        l->bound_s +=
            sbp_space_keep_s(space, &space->keep[i], l->choice[space->keep[i].op_variable],
                             l->choice[space->keep[i].rest_variable]);
    return SBP_OK;
}

/* ---- judging a labelling -------------------------------------------------------------------- */

/* Axes of a labelled transfer that change what they split. */
struct moves {
    sbp_axes conflict; /* a split that is wanted in another dimension */
    sbp_axes batch, features;
};

static struct moves moves_of(const struct labeller *l, const uint8_t *role,
                             const struct sbp_transfer *transfer)
{
    const struct sbp_space *space = l->space;
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
static sbp_axes moving_axes(const struct labeller *l, const uint8_t *role,
                            const struct sbp_transfer *transfer)
{
    const struct moves moves = moves_of(l, role, transfer);
    if (l->space->request->boxing != SBP_BOXING_PAPER)
        return moves.conflict;
    const struct sbp_space_variable *from = &l->space->variable[transfer->from];
    const int tag = from->tag[from->tuple[l->choice[transfer->from]]];
    const bool is_free = (moves.batch == 0 && tag != SBP_REST_BATCH) ||
                         (moves.features == 0 && tag != SBP_REST_FEATURE);
    return is_free ? 0 : moves.batch;
}

static struct sbp_dist dist_of(const struct labeller *l, const uint8_t *role, int variable)
{
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < l->space->mesh->axis_count; axis++)
        dist.axis[axis] = l->space->variable[variable]
                              .state[role[(size_t)variable * SBP_MAX_AXES + (size_t)axis]];
    return dist;
}

/* All boxing of a transfer whose tensor may rest whole. */
static double whole_transfer_s(const struct labeller *l, const uint8_t *role,
                               const struct sbp_transfer *transfer)
{
    const struct sbp_space *space = l->space;
    const struct sbp_op_entry *entry = space->graph->op[transfer->op].entry;
    const struct sbp_dist from = dist_of(l, role, transfer->from);
    struct sbp_dist to = from;
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const uint8_t own = role[(size_t)transfer->to * SBP_MAX_AXES + (size_t)axis];
        to.axis[axis] = entry->role[space->op_role[transfer->op][own]].input[transfer->input];
    }
    const struct sbp_way way = sbp_space_way(space->mesh, &from, &to);
    return sbp_space_way_s(space, transfer->tensor, &way, transfer->there, transfer->back);
}

/* All boxing of outputs on their way to where they may rest whole. */
static double whole_keeps_s(const struct labeller *l, const uint8_t *role)
{
    const struct sbp_space *space = l->space;
    double seconds = 0;
    for (int i = 0; i < space->keep_count; i++) {
        const struct sbp_keep *keep = &space->keep[i];
        if (!space->variable[keep->rest_variable].rests_whole)
            continue;
        const struct sbp_op_node *node = &space->graph->op[keep->op];
        const struct sbp_dist to = dist_of(l, role, keep->rest_variable);
        struct sbp_dist from = to;
        for (int axis = 0; axis < space->mesh->axis_count; axis++)
            from.axis[axis] = sbp_space_output_state(
                space, keep->op, role[(size_t)keep->op_variable * SBP_MAX_AXES + (size_t)axis]);
        const struct sbp_way way = sbp_space_way(space->mesh, &from, &to);
        seconds += sbp_space_way_s(space, node->output, &way, keep->there, keep->back);
    }
    return seconds;
}

static double transfers_s(const struct labeller *l, const uint8_t *role)
{
    const struct sbp_space *space = l->space;
    double seconds = whole_keeps_s(l, role);
    for (int i = 0; i < space->transfer_count; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        if (space->variable[transfer->from].rests_whole) {
            seconds += whole_transfer_s(l, role, transfer);
            continue;
        }
        const struct sbp_group group = sbp_group_of(space->mesh, moving_axes(l, role, transfer));
        seconds += sbp_space_moves_s(space, transfer, &group);
    }
    return seconds;
}

static int count_axes(sbp_axes axes)
{
    int count = 0;
    for (; axes != 0; axes &= axes - 1)
        count++;
    return count;
}

/* Partial sums that joined the batch (p1 = p2') leave the reader's features where they were. */
static int count_broken_ways(const struct labeller *l, const uint8_t *role)
{
    const struct sbp_space *space = l->space;
    int broken = 0;
    for (int i = 0; i < space->transfer_count; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        const struct sbp_space_variable *from = &space->variable[transfer->from];
        if (from->tag[from->tuple[l->choice[transfer->from]]] == SBP_REST_BATCH)
            broken += count_axes(moves_of(l, role, transfer).features);
    }
    return broken;
}

static int count_broken_rests(const struct labeller *l, const uint8_t *role)
{
    const struct sbp_space *space = l->space;
    int broken = 0;
    for (int i = 0; i < space->keep_count; i++) {
        const struct sbp_keep *keep = &space->keep[i];
        const uint8_t *a = role + (size_t)keep->op_variable * SBP_MAX_AXES;
        const uint8_t *b = role + (size_t)keep->rest_variable * SBP_MAX_AXES;
        for (int axis = 0; axis < space->mesh->axis_count; axis++) {
            const struct sbp_state left = sbp_space_output_state(space, keep->op, a[axis]);
            const struct sbp_state rest = space->variable[keep->rest_variable].state[b[axis]];
            broken += (left.kind == SBP_SPLIT && rest.kind != SBP_BROADCAST &&
                       !sbp_state_equal(left, rest)) ||
                      (left.kind != SBP_PARTIAL && rest.kind == SBP_PARTIAL);
        }
    }
    return broken + count_broken_ways(l, role);
}

/* Axes that part keys from their queries or an image's rows from the next, anywhere in the plan. */
static int count_misplaced(const struct labeller *l, const uint8_t *role)
{
    const struct sbp_space *space = l->space;
    int misplaced = 0;
    for (int op = 0; op < space->graph->op_count; op++) {
        const struct sbp_op_node *node = &space->graph->op[op];
        const uint8_t *own = role + (size_t)space->op_variable[op] * SBP_MAX_AXES;
        if (node->site == op && !node->entry->follows)
            misplaced += sbp_strategy_misplaced(space->graph, space->mesh, op, own, l->split);
    }
    return misplaced;
}

static struct score judge(const struct labeller *l, const uint8_t *role)
{
    const struct sbp_space *space = l->space;
    struct score score = {.transfer_s = transfers_s(l, role),
                          .broken_rests = count_broken_rests(l, role),
                          .broken_class = -1};
    memset(l->split, 0, (size_t)space->graph->class_count * sizeof *l->split);
    for (int v = 0; v < space->variable_count; v++)
        for (int axis = 0; axis < space->mesh->axis_count; axis++) {
            const size_t at =
                (size_t)v * SBP_MAX_ROLES + role[(size_t)v * SBP_MAX_AXES + (size_t)axis];
            for (int i = 0; i < l->class_count[at]; i++)
                l->split[l->classes[at][i]] |= (sbp_axes)1 << axis;
        }
    for (int c = 0; c < space->graph->class_count; c++)
        if (space->graph->dim_class[c].size % sbp_mesh_group_size(space->mesh, l->split[c]) != 0) {
            score.broken_classes++;
            score.broken_class = c;
        }
    score.broken_rests += count_misplaced(l, role);
    return score;
}

/* Legality first, then cost; differences in roundoff are none. */
static bool is_better(const struct score *a, const struct score *b)
{
    const int broken_a = a->broken_rests + a->broken_classes;
    const int broken_b = b->broken_rests + b->broken_classes;
    if (broken_a != broken_b)
        return broken_a < broken_b;
    return a->transfer_s < b->transfer_s * (1 - 1e-12);
}

static bool is_perfect(const struct labeller *l, const struct score *score)
{
    return score->broken_rests + score->broken_classes == 0 &&
           score->transfer_s <= l->bound_s * (1 + 1e-12);
}

/* ---- a first labelling ---------------------------------------------------------------------- */

/* Roles in catalogue order along each family: batch outermost. */
static void label_in_order(const struct labeller *l, int variable)
{
    const struct sbp_space *space = l->space;
    uint8_t *role = l->role + (size_t)variable * SBP_MAX_AXES;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_space_count(space, variable, l->choice[variable], f);
        int axis = space->mesh->family[f].first;
        for (uint8_t r = 0; r < space->variable[variable].role_count; r++)
            for (int k = 0; k < count[r]; k++)
                role[axis++] = r;
    }
}

/* Gives each axis of a variable the role that suits it best: first those where what the axis held
 * stays, then the rest in order. `fits` (axis, role) says what stays; left counts what is to give.
 */
static void label_by_fit(const struct labeller *l, int variable, const bool (*fits)[SBP_MAX_ROLES])
{
    const struct sbp_space *space = l->space;
    const int roles = space->variable[variable].role_count;
    uint8_t *role = l->role + (size_t)variable * SBP_MAX_AXES;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const struct sbp_family *family = &space->mesh->family[f];
        uint8_t left[SBP_MAX_ROLES];
        bool given[SBP_MAX_AXES] = {false};
        memcpy(left, sbp_space_count(space, variable, l->choice[variable], f), SBP_MAX_ROLES);
        for (int pass = 0; pass < 2; pass++)
            for (int axis = family->first; axis < family->first + family->count; axis++)
                for (uint8_t r = 0; r < roles && !given[axis]; r++)
                    if (left[r] > 0 && (pass == 1 || fits[axis][r])) {
                        role[axis] = r;
                        left[r]--;
                        given[axis] = true;
                    }
    }
}

/* Lines an operator up with the rest state that its first input comes from. */
static void label_op(const struct labeller *l, int variable, const struct sbp_transfer *transfer)
{
    const struct sbp_space *space = l->space;
    const struct sbp_op_entry *entry = space->graph->op[transfer->op].entry;
    const uint8_t *have = l->role + (size_t)transfer->from * SBP_MAX_AXES;
    bool fits[SBP_MAX_AXES][SBP_MAX_ROLES] = {{false}};
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        for (int r = 0; r < space->variable[variable].role_count; r++)
            fits[axis][r] = sbp_state_equal(
                space->variable[transfer->from].state[have[axis]],
                entry->role[space->op_role[transfer->op][r]].input[transfer->input]);
    label_by_fit(l, variable, fits);
}

/* Keeps a rest state where its producer left it. */
static void label_rest(const struct labeller *l, const struct sbp_keep *keep)
{
    const struct sbp_space *space = l->space;
    const uint8_t *have = l->role + (size_t)keep->op_variable * SBP_MAX_AXES;
    bool fits[SBP_MAX_AXES][SBP_MAX_ROLES] = {{false}};
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        for (int r = 0; r < space->variable[keep->rest_variable].role_count; r++)
            fits[axis][r] = sbp_state_equal(sbp_space_output_state(space, keep->op, have[axis]),
                                            space->variable[keep->rest_variable].state[r]);
    label_by_fit(l, keep->rest_variable, fits);
}

/* Along the graph: operators by their inputs, rest states by their producers. */
static void label_greedily(struct labeller *l)
{
    const struct sbp_space *space = l->space;
    for (int v = 0; v < space->variable_count; v++)
        label_in_order(l, v);
    for (int op = 0; op < space->graph->op_count; op++) {
        const int variable = space->op_variable[op];
        if (variable < 0 || space->graph->op[op].site != op)
            continue;
        for (int i = space->transfer_count - 1; i >= 0; i--)
            if (space->transfer[i].op == op && space->transfer[i].input == 0 &&
                space->transfer[i].from != variable && space->variable[variable].op == op)
                label_op(l, variable, &space->transfer[i]);
        for (int i = 0; i < space->keep_count; i++)
            if (space->keep[i].op == op)
                label_rest(l, &space->keep[i]);
    }
}

/* ---- improvement ---------------------------------------------------------------------------- */

static void exchange(const struct labeller *l, int variable, int i, int j)
{
    uint8_t *role = l->role + (size_t)variable * SBP_MAX_AXES;
    const uint8_t kept = role[i];
    role[i] = role[j];
    role[j] = kept;
}

/* Exchanges axes i and j in a variable, and with `along` in the rest states it produces too. */
static void exchange_all(const struct labeller *l, int variable, bool along, int i, int j)
{
    exchange(l, variable, i, j);
    for (int k = 0; along && k < l->space->keep_count; k++)
        if (l->space->keep[k].op_variable == variable)
            exchange(l, l->space->keep[k].rest_variable, i, j);
}

static bool try_exchange(const struct labeller *l, int variable, bool along, int i, int j,
                         struct score *score)
{
    exchange_all(l, variable, along, i, j);
    const struct score moved = judge(l, l->role);
    if (is_better(&moved, score)) {
        *score = moved;
        return true;
    }
    exchange_all(l, variable, along, i, j);
    return false;
}

static bool improve_once(const struct labeller *l, struct score *score)
{
    const struct sbp_mesh *mesh = l->space->mesh;
    bool improved = false;
    for (int v = 0; v < l->space->variable_count; v++)
        for (int f = 0; f < mesh->family_count; f++) {
            const int first = mesh->family[f].first, end = first + mesh->family[f].count;
            for (int i = first; i < end; i++)
                for (int j = i + 1; j < end; j++)
                    for (int along = 0; along < 2; along++)
                        if (!is_perfect(l, score))
                            improved |= try_exchange(l, v, along == 1, i, j, score);
        }
    return improved;
}

/* Random exchanges within families: the next start. */
static void shake(const struct labeller *l, struct sbp_random *random)
{
    const struct sbp_space *space = l->space;
    for (int v = 0; v < space->variable_count; v++)
        for (int f = 0; f < space->mesh->family_count; f++) {
            const struct sbp_family *family = &space->mesh->family[f];
            for (int i = family->count - 1; i > 0; i--) {
                const int j = (int)sbp_random_below(random, (uint64_t)i + 1);
                if (sbp_random_below(random, 3) == 0)
                    exchange(l, v, family->first + i, family->first + j);
            }
        }
}

static struct score search_labels(struct labeller *l, uint64_t seed)
{
    const size_t bytes = (size_t)l->space->variable_count * SBP_MAX_AXES;
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    struct score best = {.transfer_s = INFINITY, .broken_rests = 1 << 20};
    for (int start = 0; start < RESTARTS && !is_perfect(l, &best); start++) {
        if (start == 0)
            label_greedily(l);
        else if (start == 1)
            for (int v = 0; v < l->space->variable_count; v++)
                label_in_order(l, v);
        else
            memcpy(l->role, l->best_role, bytes);
        if (start > 1)
            shake(l, &random);
        struct score score = judge(l, l->role);
        while (!is_perfect(l, &score) && improve_once(l, &score))
            continue;
        if (start == 0 || is_better(&score, &best)) {
            best = score;
            memcpy(l->best_role, l->role, bytes);
        }
    }
    return best;
}

/* ---- result --------------------------------------------------------------------------------- */

static void write_strategy(const struct labeller *l, struct sbp_strategy *strategy)
{
    const struct sbp_space *space = l->space;
    strategy->boxing = space->request->boxing;
    for (int op = 0; op < space->graph->op_count; op++) {
        const int variable = space->op_variable[op];
        const int chosen = variable < 0 ? 0 : space->variable[variable].zero[l->choice[variable]];
        const int zero = sbp_space_zero(space, op, chosen);
        strategy->zero[op] = zero == space->parallel->zero ? SBP_ZERO_DEFAULT : (uint8_t)zero;
        for (int axis = 0; variable >= 0 && axis < space->mesh->axis_count; axis++)
            strategy->op[op].role[axis] = space->op_role[op][best_role(l, variable, axis)];
    }
    for (int t = 0; t < space->graph->tensor_count; t++) {
        const int variable = space->slot[t];
        for (int axis = 0; variable >= 0 && axis < space->mesh->axis_count; axis++)
            strategy->rest[t].axis[axis] =
                space->variable[variable].state[best_role(l, variable, axis)];
    }
}

enum sbp_status sbp_label(const struct sbp_space *space, const int *choice, uint64_t seed,
                          struct sbp_strategy *strategy, struct sbp_labelling *labelling)
{
    struct labeller l = {.space = space, .choice = choice};
    enum sbp_status status = prepare(&l);
    if (status == SBP_OK) {
        const struct score score = search_labels(&l, seed);
        *labelling = (struct sbp_labelling){.transfer_s = score.transfer_s,
                                            .broken_rests = score.broken_rests,
                                            .broken_class = score.broken_class};
        write_strategy(&l, strategy);
    }
    sbp_arena_free(&l.arena);
    return status;
}

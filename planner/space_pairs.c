/* What two choices cost together: boxing of a tensor on its way between them, at best over all ways
 * to line their axes up.
 */
#include <math.h>

#include "planner/space_price.h"

/* ---- states of a family's axes -------------------------------------------------------------- */

/* Axes of a family by the dimension that they split, those in B and those in P. */
struct family_state {
    int split[SBP_MAX_DIMS], broadcast, partial;
};

static struct family_state family_state(const uint8_t *count, int roles,
                                        const struct sbp_state *states)
{
    struct family_state state = {{0}, 0, 0};
    for (int r = 0; r < roles; r++) {
        if (states[r].kind == SBP_SPLIT)
            state.split[states[r].dim] += count[r];
        else if (states[r].kind == SBP_PARTIAL)
            state.partial += count[r];
        else
            state.broadcast += count[r];
    }
    return state;
}

static void input_states(const struct sbp_space *space, const struct sbp_transfer *transfer,
                         struct sbp_state *states)
{
    const struct sbp_op_entry *entry = space->graph->op[transfer->op].entry;
    for (int r = 0; r < space->variable[transfer->to].role_count; r++)
        states[r] = entry->role[space->op_role[transfer->op][r]].input[transfer->input];
}

static int excess(int a, int b)
{
    return a > b ? a - b : 0;
}

/* Axes that must change the dimension they split, at best: what neither stays nor becomes B or P.
 */
static int least_moves(const struct family_state *from, const struct family_state *to)
{
    int left_over = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        left_over += excess(from->split[dim], to->split[dim]);
    return excess(left_over,
                  excess(to->broadcast, from->broadcast) + excess(to->partial, from->partial));
}

static void join_axes(const struct sbp_space *space, struct sbp_group *group, int family, int axes)
{
    for (int k = 0; k < axes; k++)
        group->members[space->mesh->family[family].level] *=
            (double)space->mesh->family[family].prime;
}

/* ---- ways ----------------------------------------------------------------------------------- */

struct sbp_way sbp_space_way(const struct sbp_mesh *mesh, const struct sbp_dist *from,
                             const struct sbp_dist *to)
{
    sbp_axes from_split = 0, to_split = 0, leave = 0, move = 0, gather = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const sbp_axes bit = (sbp_axes)1 << axis;
        const struct sbp_state a = from->axis[axis], b = to->axis[axis];
        from_split |= a.kind == SBP_SPLIT ? bit : 0;
        to_split |= b.kind == SBP_SPLIT ? bit : 0;
        if (sbp_state_equal(a, b))
            continue;
        leave |= a.kind == SBP_PARTIAL ? bit : 0;
        move |= a.kind == SBP_SPLIT && b.kind == SBP_SPLIT ? bit : 0;
        gather |= b.kind == SBP_BROADCAST ? bit : 0;
    }
    return (struct sbp_way){
        .leave = sbp_group_of(mesh, leave),
        .move = sbp_group_of(mesh, move),
        .gather = sbp_group_of(mesh, gather),
        .all_reduced = leave != 0 && leave == gather && move == 0,
        .from_parts = (double)sbp_mesh_group_size(mesh, from_split),
        .to_parts = (double)sbp_mesh_group_size(mesh, to_split),
    };
}

/* Forward P leaves, splits move, B is gathered; backward, by duality, what was gathered leaves P
 * and what left P is gathered. */
double sbp_space_way_s(const struct sbp_space *space, int tensor, const struct sbp_way *way)
{
    const double bytes =
        sbp_space_elements(space, tensor) * (double)space->pricing.bytes.activation;
    const double leave = sbp_group_size(&way->leave), gather = sbp_group_size(&way->gather);
    const double from = bytes / way->from_parts, to = bytes / way->to_parts;
    double there_s, back_s;
    if (way->all_reduced) {
        there_s = sbp_space_collective_s(space, SBP_ALL_REDUCE, &way->leave, from);
        back_s = sbp_space_collective_s(space, SBP_ALL_REDUCE, &way->leave, to);
    } else {
        there_s =
            sbp_space_collective_s(space, SBP_REDUCE_SCATTER, &way->leave, from) +
            sbp_space_collective_s(space, SBP_ALL_TO_ALL, &way->move, from / leave) +
            sbp_space_collective_s(space, SBP_ALL_GATHER, &way->gather, from / leave * gather);
        back_s = sbp_space_collective_s(space, SBP_REDUCE_SCATTER, &way->gather, to) +
                 sbp_space_collective_s(space, SBP_ALL_TO_ALL, &way->move, to / gather) +
                 sbp_space_collective_s(space, SBP_ALL_GATHER, &way->leave, to / gather * leave);
    }
    return space->micro_weight * (sbp_space_forward_passes(space) * there_s + back_s);
}

double sbp_space_moves_s(const struct sbp_space *space, int tensor, const struct sbp_group *group)
{
    const double n = sbp_space_elements(space, tensor) / (double)space->mesh->devices *
                     (double)space->pricing.bytes.activation;
    return space->micro_weight * (sbp_space_forward_passes(space) + 1) *
           sbp_space_collective_s(space, SBP_ALL_TO_ALL, group, n);
}

/* The least that each collective on the way can move, whichever axes are lined up; exact where a
 * family is one axis. */
static double least_way_s(const struct sbp_space *space, int tensor, const struct family_state *a,
                          const struct family_state *b)
{
    struct sbp_way way = {sbp_group_one(), sbp_group_one(), sbp_group_one(), true, 1, 1};
    struct sbp_group from = sbp_group_one(), to = sbp_group_one();
    bool changes = false;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const int leave = excess(a[f].partial, b[f].partial), moves = least_moves(&a[f], &b[f]);
        const int gather = excess(b[f].broadcast, a[f].broadcast);
        int new_splits = 0;
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
            join_axes(space, &from, f, a[f].split[dim]);
            join_axes(space, &to, f, b[f].split[dim]);
            new_splits += excess(b[f].split[dim], a[f].split[dim]);
        }
        join_axes(space, &way.leave, f, leave);
        join_axes(space, &way.move, f, moves);
        join_axes(space, &way.gather, f, gather);
        changes |= leave > 0 || moves > 0 || gather > 0;
        way.all_reduced &= moves == 0 && leave == gather && (leave == 0 || new_splits == 0);
    }
    way.all_reduced &= changes;
    way.from_parts = sbp_group_size(&from);
    way.to_parts = sbp_group_size(&to);
    return sbp_space_way_s(space, tensor, &way);
}

/* AutoDDL, section 4.3: no all-to-all when the batch split stays (p0 = p0') or the features' does
 * (p1 = p2'), else groups of lcm(p0, p0') / gcd(p0, p0'). -1: not this rest state's path. */
static bool paper_moves(const struct sbp_space *space, int tag, const struct family_state *from,
                        const struct family_state *to, int *moves)
{
    bool batch_stays = true, features_stay = true;
    for (int f = 0; f < space->mesh->family_count; f++) {
        batch_stays &= from[f].split[SBP_DIM_BATCH] == to[f].split[SBP_DIM_BATCH];
        features_stay &= from[f].split[SBP_DIM_FEATURE] == to[f].split[SBP_DIM_FEATURE];
    }
    const bool free_by_batch = batch_stays && tag != SBP_REST_BATCH;
    const bool free_by_features = features_stay && tag != SBP_REST_FEATURE;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const int gap = from[f].split[SBP_DIM_BATCH] - to[f].split[SBP_DIM_BATCH];
        moves[f] = free_by_batch || free_by_features ? 0 : gap < 0 ? -gap : gap;
    }
    return free_by_batch || free_by_features || tag != SBP_REST_BATCH;
}

/* ---- from a rest to a reader ---------------------------------------------------------------- */

/* Prices of all-to-alls by how many axes of each family move: few, and asked for in every cell of a
 * table. */
struct move_prices {
    int stride[SBP_MAX_AXES]; /* of a family's number of axes */
    double *seconds;          /* negative: not yet known */
};

static double moves_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                      const int *moves, const struct move_prices *prices)
{
    int at = 0;
    for (int f = 0; prices != NULL && f < space->mesh->family_count; f++)
        at += moves[f] * prices->stride[f];
    if (prices != NULL && prices->seconds[at] >= 0)
        return prices->seconds[at];
    struct sbp_group group = sbp_group_one();
    for (int f = 0; f < space->mesh->family_count; f++)
        join_axes(space, &group, f, moves[f]);
    const double seconds = transfer->repeats * sbp_space_moves_s(space, transfer->tensor, &group);
    if (prices != NULL)
        prices->seconds[at] = seconds;
    return seconds;
}

static void states_from(const struct sbp_space *space, const struct sbp_transfer *transfer,
                        int choice, struct family_state *states)
{
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] = family_state(sbp_space_count(space, transfer->from, choice, f),
                                 from->role_count, from->state);
}

static void states_to(const struct sbp_space *space, const struct sbp_transfer *transfer,
                      int choice, struct family_state *states)
{
    struct sbp_state want[SBP_MAX_ROLES];
    input_states(space, transfer, want);
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] = family_state(sbp_space_count(space, transfer->to, choice, f),
                                 space->variable[transfer->to].role_count, want);
}

static double between_s(const struct sbp_space *space, const struct sbp_transfer *transfer, int tag,
                        const struct family_state *a, const struct family_state *b,
                        const struct move_prices *prices)
{
    int moves[SBP_MAX_AXES];
    for (int f = 0; f < space->mesh->family_count; f++)
        moves[f] = least_moves(&a[f], &b[f]);
    if (space->request->boxing == SBP_BOXING_PAPER && !paper_moves(space, tag, a, b, moves))
        return SBP_FORBIDDEN;
    if (space->variable[transfer->from].rests_whole)
        return transfer->repeats * least_way_s(space, transfer->tensor, a, b);
    return moves_s(space, transfer, moves, prices);
}

double sbp_space_transfer_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                            int from_choice, int to_choice)
{
    struct family_state a[SBP_MAX_AXES], b[SBP_MAX_AXES];
    states_from(space, transfer, from_choice, a);
    states_to(space, transfer, to_choice, b);
    return between_s(space, transfer, space->variable[transfer->from].tag[from_choice], a, b, NULL);
}

/* ---- from an operator to a rest ------------------------------------------------------------- */

/* States in which an operator leaves its output, and in which the output rests. */
static void states_left(const struct sbp_space *space, const struct sbp_keep *keep, int choice,
                        struct family_state *states)
{
    const int roles = space->variable[keep->op_variable].role_count;
    struct sbp_state output[SBP_MAX_ROLES];
    for (int r = 0; r < roles; r++)
        output[r] = sbp_space_output_state(space, keep->op, r);
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] =
            family_state(sbp_space_count(space, keep->op_variable, choice, f), roles, output);
}

static void states_resting(const struct sbp_space *space, const struct sbp_keep *keep, int choice,
                           struct family_state *states)
{
    const struct sbp_space_variable *rest = &space->variable[keep->rest_variable];
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] = family_state(sbp_space_count(space, keep->rest_variable, choice, f),
                                 rest->role_count, rest->state);
}

static bool can_rest(const struct family_state *left, const struct family_state *resting, int tag)
{
    int gathered = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const bool fixed = (tag == SBP_REST_FEATURE && dim == SBP_DIM_BATCH) ||
                           (tag == SBP_REST_BATCH && dim == SBP_DIM_FEATURE);
        if (fixed && left->split[dim] != resting->split[dim])
            return false;
        gathered += excess(left->split[dim], resting->split[dim]);
    }
    return gathered <= resting->broadcast && resting->partial <= left->partial;
}

static double resting_s(const struct sbp_space *space, const struct sbp_keep *keep, int tag,
                        const struct family_state *left, const struct family_state *resting)
{
    const struct sbp_op_node *node = &space->graph->op[keep->op];
    for (int f = 0; f < space->mesh->family_count; f++)
        if (!can_rest(&left[f], &resting[f], tag))
            return SBP_FORBIDDEN;
    return space->variable[keep->rest_variable].rests_whole
               ? node->repeats * least_way_s(space, node->output, left, resting)
               : 0;
}

double sbp_space_keep_s(const struct sbp_space *space, const struct sbp_keep *keep, int op_choice,
                        int rest_choice)
{
    struct family_state left[SBP_MAX_AXES], resting[SBP_MAX_AXES];
    states_left(space, keep, op_choice, left);
    states_resting(space, keep, rest_choice, resting);
    return resting_s(space, keep, space->variable[keep->rest_variable].tag[rest_choice], left,
                     resting);
}

bool sbp_space_can_rest(const struct sbp_space *space, const struct sbp_keep *keep, int op_choice,
                        int rest_choice)
{
    return sbp_space_keep_s(space, keep, op_choice, rest_choice) < SBP_FORBIDDEN;
}

/* ---- whole tables --------------------------------------------------------------------------- */

static void add_to(double *cell, double cost)
{
    *cell = *cell >= SBP_FORBIDDEN || cost >= SBP_FORBIDDEN ? SBP_FORBIDDEN : *cell + cost;
}

static double *cell_of(double *table, bool transposed, int rows, int columns, int r, int c)
{
    return &table[transposed ? (size_t)c * (size_t)rows + (size_t)r
                             : (size_t)r * (size_t)columns + (size_t)c];
}

/* NULL where there is no room for so many, or too many to be worth it. */
static struct move_prices *make_prices(const struct sbp_space *space, struct sbp_arena *arena)
{
    enum { MOST = 1 << 16 };
    struct move_prices *prices = SBP_NEW(arena, struct move_prices, 1);
    int size = 1;
    for (int f = 0; prices != NULL && f < space->mesh->family_count && size <= MOST; f++) {
        prices->stride[f] = size;
        size *= space->mesh->family[f].count + 1;
    }
    if (prices == NULL || size > MOST)
        return NULL;
    prices->seconds = SBP_NEW(arena, double, size);
    for (int i = 0; prices->seconds != NULL && i < size; i++)
        prices->seconds[i] = -1;
    return prices->seconds == NULL ? NULL : prices;
}

enum sbp_status sbp_space_fill_transfer(const struct sbp_space *space,
                                        const struct sbp_transfer *transfer, double *table,
                                        bool transposed, struct sbp_arena *arena)
{
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    const int rows = from->choice_count, columns = space->variable[transfer->to].choice_count;
    const int families = space->mesh->family_count;
    struct family_state a[SBP_MAX_AXES];
    const struct move_prices *prices = make_prices(space, arena);
    struct family_state *to = SBP_NEW(arena, struct family_state, columns * families + 1);
    if (to == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < columns; c++)
        states_to(space, transfer, c, to + (size_t)c * (size_t)families);
    for (int r = 0; r < rows && !sbp_space_interrupted(space); r++) {
        states_from(space, transfer, r, a);
        for (int c = 0; c < columns; c++)
            add_to(cell_of(table, transposed, rows, columns, r, c),
                   between_s(space, transfer, from->tag[r], a, to + (size_t)c * (size_t)families,
                             prices));
    }
    return SBP_OK;
}

enum sbp_status sbp_space_fill_keep(const struct sbp_space *space, const struct sbp_keep *keep,
                                    double *table, bool transposed, struct sbp_arena *arena)
{
    const struct sbp_space_variable *rest = &space->variable[keep->rest_variable];
    const int rows = space->variable[keep->op_variable].choice_count;
    const int columns = rest->choice_count, families = space->mesh->family_count;
    struct family_state left[SBP_MAX_AXES];
    struct family_state *resting = SBP_NEW(arena, struct family_state, columns * families + 1);
    if (resting == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < columns; c++)
        states_resting(space, keep, c, resting + (size_t)c * (size_t)families);
    for (int r = 0; r < rows && !sbp_space_interrupted(space); r++) {
        states_left(space, keep, r, left);
        for (int c = 0; c < columns; c++)
            add_to(
                cell_of(table, transposed, rows, columns, r, c),
                resting_s(space, keep, rest->tag[c], left, resting + (size_t)c * (size_t)families));
    }
    return SBP_OK;
}

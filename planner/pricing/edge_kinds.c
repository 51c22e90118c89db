/* The price of an edge between two choices: boxing of the tensor, at best over all ways to line
 * the axes of both ends up.
 *
 * Axes of a family are interchangeable. So a family counts by a few numbers, the kind of its two
 * patterns, and the price is a function of the families' kinds.
 */
#include <math.h>

#include "planner/limits.h"
#include "planner/space/domain_build.h"
#include "planner/pricing/edge_kinds.h"

#define ANY_TAG 7

/* ---- states of a family's axes -------------------------------------------------------------- */

/* Numbers of a family's axes that split each dimension, that split any, that are B, P and M. */
struct family_state {
    int split[SBP_MAX_DIMS], splits, broadcast, partial, mirrored;
};

static struct family_state family_state(const uint8_t *count, const struct sbp_edge_end *end)
{
    struct family_state state = {{0}, 0, 0, 0, 0};
    for (int r = 0; r < end->role_count; r++) {
        if (end->state[r].kind == SBP_SPLIT)
            state.split[end->state[r].dim] += count[r];
        else if (end->state[r].kind == SBP_PARTIAL)
            state.partial += count[r];
        else if (end->state[r].kind == SBP_MIRRORED)
            state.mirrored += count[r];
        else
            state.broadcast += count[r];
        state.splits += end->state[r].kind == SBP_SPLIT ? count[r] : 0;
    }
    return state;
}

static int excess(int a, int b)
{
    return a > b ? a - b : 0;
}

/* The splits that the first has beyond the second, dimension by dimension. */
static int excess_splits(const struct family_state *a, const struct family_state *b)
{
    int left_over = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        left_over += excess(a->split[dim], b->split[dim]);
    return left_over;
}

/* Axes that can split the same dimension at both ends, at the most. */
static int most_stays(const struct family_state *a, const struct family_state *b)
{
    return a->splits - excess_splits(a, b);
}

/* Axes that must change the dimension they split, at the least: all that can neither stay nor
 * become B, P or M. */
static int least_moves(const struct family_state *from, const struct family_state *to)
{
    return excess(excess_splits(from, to), excess(to->broadcast, from->broadcast) +
                                               excess(to->partial, from->partial) + to->mirrored);
}

static int axes_of(const struct family_state *state)
{
    return state->splits + state->broadcast + state->partial + state->mirrored;
}

/* Some axes have a state at one end, some at the other: the difference between the most and the
 * fewest axes that can have it at both. */
static int most_trades(int before, int after, int axes)
{
    return (before < after ? before : after) - excess(before + after, axes);
}

/* Axes that can change the dimension they split, at the most: those of a dimension can only go to,
 * or come from, others. */
static int most_moves(const struct family_state *from, const struct family_state *to)
{
    int most = from->splits < to->splits ? from->splits : to->splits;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const int others = from->splits - from->split[dim] + to->splits - to->split[dim];
        most = others < most ? others : most;
    }
    return most;
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* Whether readers take a partial rest as a sum. With labels alone it is unknown which axes trade.
 */
static bool goes_on(const struct sbp_space *space, int rest_variable)
{
    return sbp_space_rest_fix(space, rest_variable) == NULL && !space->request->labelled &&
           !space->is_open;
}

struct sbp_edge_ends sbp_edge_of_input(const struct sbp_space *space,
                                       const struct sbp_input_edge *edge)
{
    const struct sbp_space_variable *from = &space->variable[edge->from];
    const struct sbp_space_variable *to = &space->variable[edge->to];
    const struct sbp_op_entry *entry = space->graph->op[edge->op].entry;
    struct sbp_edge_ends ends = {.space = space,
                                 .from = {.variable = edge->from, .role_count = from->role_count},
                                 .to = {.variable = edge->to, .role_count = to->role_count},
                                 .tensor = edge->tensor,
                                 .there = edge->there,
                                 .back = edge->back,
                                 .is_whole = from->rests_whole,
                                 .goes_on = goes_on(space, edge->from)};
    for (int r = 0; r < from->role_count; r++)
        ends.from.state[r] = from->state[r];
    for (int r = 0; r < to->role_count; r++)
        ends.to.state[r] = entry->role[space->op_role[edge->op][r]].input[edge->input];
    return ends;
}

struct sbp_edge_ends sbp_edge_of_output(const struct sbp_space *space,
                                        const struct sbp_output_edge *edge)
{
    const struct sbp_space_variable *op = &space->variable[edge->op_variable];
    const struct sbp_space_variable *rest = &space->variable[edge->rest_variable];
    struct sbp_edge_ends ends = {
        .space = space,
        .from = {.variable = edge->op_variable, .role_count = op->role_count},
        .to = {.variable = edge->rest_variable, .role_count = rest->role_count},
        .tensor = space->graph->op[edge->op].output,
        .there = edge->there,
        .back = edge->back,
        .again = edge->again,
        .is_output = true,
        .is_whole = rest->rests_whole};
    for (int r = 0; r < op->role_count; r++)
        ends.from.state[r] = sbp_space_output_state(space, edge->op, r);
    for (int r = 0; r < rest->role_count; r++)
        ends.to.state[r] = rest->state[r];
    return ends;
}

/* ---- kinds ---------------------------------------------------------------------------------- */

/* Bit t: an output that is left in one state can rest in the other under tag t. */
static uint8_t tags_that_rest(const struct family_state *left, const struct family_state *resting)
{
    uint8_t tags = 0;
    if (excess_splits(left, resting) > resting->broadcast + resting->mirrored ||
        resting->partial > left->partial)
        return 0;
    for (int tag = SBP_REST_ANY; tag <= SBP_REST_BATCH; tag++) {
        const int fixed = tag == SBP_REST_FEATURE ? SBP_DIM_BATCH : SBP_DIM_FEATURE;
        if (tag == SBP_REST_ANY || left->split[fixed] == resting->split[fixed])
            tags |= (uint8_t)(1u << tag);
    }
    return tags;
}

/* Sets the fields that decide whether a family may go from P to B in one all-reduce, and whether
 * in two steps, where as many axes can leave P as can become B. */
static void note_all_reduce(const struct family_state *from, const struct family_state *to,
                            struct sbp_edge_kind *kind)
{
    const int most_leave = kind->leave + kind->sum_trades;
    const int most_gather = kind->gather + kind->trades;
    const int lost = excess(excess_splits(from, to), excess(to->partial, from->partial));
    if (kind->leave <= most_gather && kind->gather <= most_leave)
        kind->lost = (int8_t)(lost <= kind->sum_trades ? lost : kind->sum_trades + 1);
    kind->parts = most_leave > 0 && most_gather > 0 && most_stays(from, to) > 0;
}

/* Sets the fields of a family that is mirrored at one end or both. All of its axes are, so that
 * they line up in one way. */
static void note_mirrored(const struct family_state *from, const struct family_state *to,
                          struct sbp_edge_kind *kind)
{
    if (to->mirrored == 0) {
        kind->back_leave = (int8_t)to->broadcast;
        kind->back_gather = (int8_t)(to->broadcast + to->splits);
    } else {
        kind->leave = (int8_t)from->partial;
        kind->gather = (int8_t)(from->partial + from->splits);
    }
}

/* Sets the fields of a family that is mirrored at neither end. By duality, what is gathered there
 * leaves P on the way back, and what leaves P is gathered. */
static void note_ways(const struct family_state *from, const struct family_state *to,
                      bool is_output, struct sbp_edge_kind *kind)
{
    const int sums = is_output ? to->partial : 0; /* an axis that rests P was P */
    kind->moves = (int8_t)least_moves(from, to);
    kind->leave = kind->back_gather = (int8_t)excess(from->partial, to->partial);
    kind->gather = kind->back_leave = (int8_t)excess(to->broadcast, from->broadcast);
    kind->trades = (int8_t)most_trades(from->broadcast, to->broadcast, axes_of(from) - sums);
    kind->sum_trades =
        (int8_t)(is_output ? 0 : most_trades(from->partial, to->partial, axes_of(from)));
    note_all_reduce(from, to, kind);
}

struct sbp_edge_kind sbp_edge_kind(const struct sbp_edge_ends *ends, const uint8_t *from_count,
                                   const uint8_t *to_count)
{
    const struct family_state a = family_state(from_count, &ends->from);
    const struct family_state b = family_state(to_count, &ends->to);
    struct sbp_edge_kind kind = {0};
    /* A sum with which the reader would not go on is reduced where it is left. */
    kind.tags = ends->is_output                          ? tags_that_rest(&a, &b)
                : ends->goes_on && a.partial > b.partial ? 0
                                                         : ANY_TAG;
    if (ends->space->request->asked.boxing == SBP_BOXING_PAPER && !ends->is_output &&
        !ends->is_whole) {
        const int gap = a.split[SBP_DIM_BATCH] - b.split[SBP_DIM_BATCH];
        kind.moves = (int8_t)(gap < 0 ? -gap : gap);
        kind.changes = a.split[SBP_DIM_FEATURE] != b.split[SBP_DIM_FEATURE];
    } else if (ends->is_whole) {
        kind.from_splits = (int8_t)a.splits;
        kind.to_splits = (int8_t)b.splits;
        kind.leaves_sums = a.partial > 0;
        if (a.mirrored + b.mirrored > 0)
            note_mirrored(&a, &b, &kind);
        else
            note_ways(&a, &b, ends->is_output, &kind);
    } else if (!ends->is_output) {
        kind.moves = (int8_t)least_moves(&a, &b);
    }
    if (!ends->space->moves_grow && !ends->is_output &&
        ends->space->request->asked.boxing != SBP_BOXING_PAPER)
        kind.most_moves = (int8_t)most_moves(&a, &b);
    return kind;
}

/* ---- ways ----------------------------------------------------------------------------------- */

static struct sbp_leg leg_of(const struct sbp_space *space, const struct sbp_dist *from,
                             const struct sbp_dist *to)
{
    const struct sbp_mesh *mesh = space->mesh;
    sbp_axes split = 0, leave = 0, move = 0, gather = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const sbp_axes bit = (sbp_axes)1 << axis;
        const struct sbp_state a = from->axis[axis], b = to->axis[axis];
        split |= a.kind == SBP_SPLIT ? bit : 0;
        if (sbp_state_equal(a, b))
            continue;
        leave |= a.kind == SBP_PARTIAL ? bit : 0;
        move |= a.kind == SBP_SPLIT && b.kind == SBP_SPLIT ? bit : 0;
        gather |= b.kind == SBP_BROADCAST ? bit : 0;
    }
    return (struct sbp_leg){
        .leave = sbp_group_shape_of(space->shapes, mesh, leave),
        .move = sbp_group_shape_of(space->shapes, mesh, move),
        .gather = sbp_group_shape_of(space->shapes, mesh, gather),
        .all_reduced = leave != 0 && leave == gather && move == 0,
        .parts = (double)sbp_mesh_group_size(mesh, split),
    };
}

struct sbp_way sbp_pricing_way(const struct sbp_space *space, const struct sbp_dist *from,
                               const struct sbp_dist *to)
{
    const struct sbp_dist held_from = sbp_dist_held(space->mesh, from);
    const struct sbp_dist held_to = sbp_dist_held(space->mesh, to);
    const struct sbp_dist dual_from = sbp_dist_dual(space->mesh, from);
    const struct sbp_dist dual_to = sbp_dist_dual(space->mesh, to);
    return (struct sbp_way){.there = leg_of(space, &held_from, &held_to),
                            .back = leg_of(space, &dual_to, &dual_from),
                            .leaves_sums = sbp_dist_of_kind(space->mesh, from, SBP_PARTIAL) != 0};
}

/* Reduce-scatter, all-to-all, all-gather; bytes: of the whole tensor. */
static double leg_s(const struct sbp_space *space, const struct sbp_leg *leg, double bytes)
{
    struct sbp_group_prices *shapes = space->shapes;
    const double own = bytes / leg->parts;
    const double left = shapes->size[leg->leave], gathered = shapes->size[leg->gather];
    if (leg->all_reduced)
        return sbp_group_collective_s(shapes, SBP_ALL_REDUCE, leg->leave, own);
    return sbp_group_collective_s(shapes, SBP_REDUCE_SCATTER, leg->leave, own) +
           sbp_group_collective_s(shapes, SBP_ALL_TO_ALL, leg->move, own / left) +
           sbp_group_collective_s(shapes, SBP_ALL_GATHER, leg->gather, own / left * gathered);
}

double sbp_pricing_way_s(const struct sbp_space *space, int tensor, const struct sbp_way *way,
                         double there, double back)
{
    const double bytes =
        sbp_pricing_elements(space, tensor) * (double)space->pricing.bytes.activation;
    return there * leg_s(space, &way->there, bytes) + back * leg_s(space, &way->back, bytes);
}

double sbp_pricing_gather_again_s(const struct sbp_space *space, int tensor,
                                  const struct sbp_way *way, double again)
{
    const double bytes =
        sbp_pricing_elements(space, tensor) * (double)space->pricing.bytes.activation;
    if (again == 0 || way->leaves_sums)
        return 0;
    return again * sbp_group_collective_s(space->shapes, SBP_ALL_GATHER, way->there.gather,
                                          bytes / way->back.parts);
}

static double all_to_all_s(const struct sbp_space *space, int tensor, double times, int shape)
{
    const double n = sbp_pricing_elements(space, tensor) / (double)space->mesh->devices *
                     (double)space->pricing.bytes.activation;
    return times * sbp_group_collective_s(space->shapes, SBP_ALL_TO_ALL, shape, n);
}

double sbp_pricing_moves_s(const struct sbp_space *space, const struct sbp_input_edge *edge,
                           int shape)
{
    return all_to_all_s(space, edge->tensor, edge->there + edge->back, shape);
}

static double way_s(const struct sbp_edge_ends *ends, const struct sbp_way *way)
{
    return sbp_pricing_way_s(ends->space, ends->tensor, way, ends->there, ends->back) +
           sbp_pricing_gather_again_s(ends->space, ends->tensor, way, ends->again);
}

/* Axes of each family that change places with others though they could stay B, or P, and axes that
 * change the dimension they split without need. */
struct trades {
    int whole[SBP_MAX_AXES], sums[SBP_MAX_AXES], moves[SBP_MAX_AXES];
};

/* Axes of a family that move; trades take the place of moves. */
static int moves_of(const struct sbp_edge_kind *kind, const struct trades *trades, int family)
{
    return excess(kind[family].moves, trades->whole[family] + trades->sums[family]) +
           trades->moves[family];
}

/* Adds a family's axes to a leg: so many leave P and become B. */
static void add_axes(struct sbp_leg *leg, int stride, int leave, int gather, int moves)
{
    leg->leave += leave * stride;
    leg->gather += gather * stride;
    leg->move += moves * stride;
    leg->all_reduced &= leave == gather && moves == 0;
}

/* The cost of a way with these trades and otherwise the fewest axes in each collective. */
static double traded_s(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind,
                       const struct trades *trades)
{
    const struct sbp_group_prices *shapes = ends->space->shapes;
    struct sbp_way way = {.there.all_reduced = true, .back.all_reduced = true};
    int from = 0, to = 0;
    bool parts = false;
    for (int f = 0; f < ends->space->mesh->family_count; f++) {
        const int whole = trades->whole[f], sums = trades->sums[f], stride = shapes->stride[f];
        const int leave = kind[f].leave + sums, gather = kind[f].gather + whole;
        const int moves = moves_of(kind, trades, f);
        const bool stays = kind[f].lost <= sums;
        from += kind[f].from_splits * stride;
        to += kind[f].to_splits * stride;
        add_axes(&way.there, stride, leave, gather, moves);
        add_axes(&way.back, stride, kind[f].back_leave + whole, kind[f].back_gather + sums, moves);
        way.leaves_sums |= kind[f].leaves_sums;
        way.there.all_reduced &= stays;
        way.back.all_reduced &= stays;
        parts |= leave > 0 && gather > 0 && (kind[f].parts || whole + sums > 0);
    }
    way.there.all_reduced &= way.there.leave > 0;
    way.back.all_reduced &= way.back.leave > 0;
    way.there.parts = shapes->size[from];
    way.back.parts = shapes->size[to];
    const double seconds = way_s(ends, &way);
    if (!(way.there.all_reduced || way.back.all_reduced) || !parts)
        return seconds;
    /* Measured all-reduces may take longer than a scatter and a gather. */
    way.there.all_reduced = way.back.all_reduced = false;
    const double parted_s = way_s(ends, &way);
    return parted_s < seconds * (1 - SBP_PRICING_ROUND_OFF) ? parted_s : seconds;
}

/* Goes on to the next combination of trades; false after the last. */
static bool next_trades(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind,
                        struct trades *trades)
{
    for (int f = 0; f < ends->space->mesh->family_count; f++) {
        if (moves_of(kind, trades, f) < kind[f].most_moves) {
            trades->moves[f]++;
            return true;
        }
        trades->moves[f] = 0;
        if (++trades->whole[f] <= kind[f].trades)
            return true;
        trades->whole[f] = 0;
        if (++trades->sums[f] <= kind[f].sum_trades)
            return true;
        trades->sums[f] = 0;
    }
    return false;
}

/* The least price over all ways to line axes up. An axis that could stay as it is may change
 * places with another of its family and join a collective, which can be cheaper: over several
 * levels the collective uses more ports or other phases, measured times may fall, and a sum that
 * is scattered before other axes are gathered sends less forwards than it sends backwards. */
static double least_s(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind,
                      double (*price)(const struct sbp_edge_ends *ends,
                                      const struct sbp_edge_kind *kind,
                                      const struct trades *trades))
{
    struct trades trades = {{0}, {0}, {0}};
    double least = price(ends, kind, &trades);
    while (least > 0 && next_trades(ends, kind, &trades)) {
        const double seconds = price(ends, kind, &trades);
        if (seconds < least * (1 - SBP_PRICING_ROUND_OFF))
            least = seconds;
    }
    return least;
}

/* All-to-alls of the axes that move, there and back. */
static double moves_s(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind,
                      const struct trades *trades)
{
    int shape = 0;
    for (int f = 0; f < ends->space->mesh->family_count; f++)
        shape += moves_of(kind, trades, f) * ends->space->shapes->stride[f];
    return all_to_all_s(ends->space, ends->tensor, ends->there + ends->back, shape);
}

/* AutoDDL, section 4.3: no all-to-all when the batch split stays (p0 = p0') or the features' does
 * (p1 = p2'), else groups of lcm(p0, p0') / gcd(p0, p0'). */
static double paper_s(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind, int tag)
{
    bool batch_stays = true, features_stay = true;
    for (int f = 0; f < ends->space->mesh->family_count; f++) {
        batch_stays &= kind[f].moves == 0;
        features_stay &= !kind[f].changes;
    }
    if ((batch_stays && tag != SBP_REST_BATCH) || (features_stay && tag != SBP_REST_FEATURE))
        return 0;
    return tag == SBP_REST_BATCH ? SBP_FORBIDDEN : least_s(ends, kind, moves_s);
}

double sbp_edge_kind_price_s(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind,
                             int tag)
{
    for (int f = 0; f < ends->space->mesh->family_count; f++)
        if ((kind[f].tags >> tag & 1) == 0)
            return SBP_FORBIDDEN;
    if (ends->is_whole)
        return least_s(ends, kind, traded_s);
    if (ends->is_output)
        return 0;
    return ends->space->request->asked.boxing == SBP_BOXING_PAPER ? paper_s(ends, kind, tag)
                                                                  : least_s(ends, kind, moves_s);
}

/* ---- single pairs of choices ---------------------------------------------------------------- */

static double choices_s(const struct sbp_edge_ends *ends, int from_choice, int to_choice)
{
    const struct sbp_space *space = ends->space;
    const int rest = ends->is_output ? ends->to.variable : ends->from.variable;
    const int tuple = space->variable[rest].tuple[ends->is_output ? to_choice : from_choice];
    struct sbp_edge_kind kind[SBP_MAX_AXES];
    for (int f = 0; f < space->mesh->family_count; f++)
        kind[f] = sbp_edge_kind(ends, sbp_space_count(space, ends->from.variable, from_choice, f),
                                sbp_space_count(space, ends->to.variable, to_choice, f));
    return sbp_edge_kind_price_s(ends, kind, space->variable[rest].tag[tuple]);
}

double sbp_pricing_input_edge_s(const struct sbp_space *space, const struct sbp_input_edge *edge,
                                int from_choice, int to_choice)
{
    const struct sbp_edge_ends ends = sbp_edge_of_input(space, edge);
    return choices_s(&ends, from_choice, to_choice);
}

double sbp_pricing_output_edge_s(const struct sbp_space *space, const struct sbp_output_edge *edge,
                                 int op_choice, int rest_choice)
{
    const struct sbp_edge_ends ends = sbp_edge_of_output(space, edge);
    return choices_s(&ends, op_choice, rest_choice);
}

bool sbp_pricing_can_rest(const struct sbp_space *space, const struct sbp_output_edge *edge,
                          int op_choice, int rest_choice)
{
    return sbp_pricing_output_edge_s(space, edge, op_choice, rest_choice) < SBP_FORBIDDEN;
}

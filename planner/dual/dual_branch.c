/* Branch and bound over the bounds. A part of the problem bars some values; it is bounded by prices
 * of its own, which also bar values that no better choice has. What is left is divided at a
 * variable whose values the iterations could not agree on: into those that use little, at the
 * prices, and those that use much. That is where a bound by prices is off most: it mixes choices
 * that are over the capacity with choices that leave room.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

/* --- parts --- */

static size_t node_bytes(const struct sbp_dual *dual)
{
    return (size_t)(dual->values / 8 + 1) + (size_t)dual->point_count * sizeof(double);
}

static void free_node(struct sbp_dual *dual, struct sbp_dual_node *node)
{
    if (node->price != NULL)
        sbp_arena_budget_return(dual->problem->arena.budget, node_bytes(dual));
    free(node->price);
}

/* Makes room in the heap. False: memory is out, or what parts may take of it. */
static bool reserve(struct sbp_dual_branch *branch)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    if (branch->count < branch->room)
        return true;
    const int room = branch->room == 0 ? 64 : 2 * branch->room;
    if ((size_t)room * node_bytes(dual) / 2 > SBP_PROBLEM_BRANCH_BYTES)
        return false;
    struct sbp_dual_node *node = SBP_TAKE(&dual->arena, struct sbp_dual_node, room);
    if (node == NULL)
        return false;
    if (branch->count > 0)
        memcpy(node, branch->node, (size_t)branch->count * sizeof *node);
    branch->node = node;
    branch->room = room;
    return true;
}

/* Enters a part in the heap, with the values that are barred now. False: memory is out. */
static bool push(struct sbp_dual_branch *branch, double bound, const double *price)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const size_t points = (size_t)dual->point_count;
    if (!reserve(branch) || !sbp_arena_budget_take(dual->problem->arena.budget, node_bytes(dual)))
        return false;
    struct sbp_dual_node node = {bound, NULL, malloc(node_bytes(dual) + 1)};
    if (node.price == NULL)
        return false;
    node.barred = (unsigned char *)(node.price + points);
    if (points > 0)
        memcpy(node.price, price, points * sizeof *price);
    memset(node.barred, 0, (size_t)(dual->values / 8 + 1));
    int64_t bit = 0;
    for (int v = 0; v < dual->variable_count; v++)
        for (int k = 0; k < dual->domain[v]; k++, bit++)
            if (dual->barred[v][k])
                node.barred[bit / 8] |= (unsigned char)(1 << bit % 8);
    int at = branch->count++;
    for (; at > 0 && node.bound < branch->node[(at - 1) / 2].bound; at = (at - 1) / 2)
        branch->node[at] = branch->node[(at - 1) / 2];
    branch->node[at] = node;
    return true;
}

/* Takes the part with the least bound out of the heap. */
static struct sbp_dual_node pop(struct sbp_dual_branch *branch)
{
    const struct sbp_dual_node least = branch->node[0], last = branch->node[--branch->count];
    int at = 0;
    for (int child = 1; child < branch->count; child = 2 * at + 1) {
        if (child + 1 < branch->count && branch->node[child + 1].bound < branch->node[child].bound)
            child++;
        if (last.bound <= branch->node[child].bound)
            break;
        branch->node[at] = branch->node[child];
        at = child;
    }
    branch->node[at] = last;
    return least;
}

static void load(struct sbp_dual *dual, const struct sbp_dual_node *node)
{
    int64_t bit = 0;
    for (int v = 0; v < dual->variable_count; v++)
        for (int k = 0; k < dual->domain[v]; k++, bit++)
            dual->barred[v][k] = (node->barred[bit / 8] >> bit % 8 & 1) != 0;
}

static void bar_nothing(struct sbp_dual *dual)
{
    for (int v = 0; v < dual->variable_count; v++)
        memset(dual->barred[v], 0, (size_t)dual->domain[v] * sizeof **dual->barred);
}

/* --- values that are ruled out --- */

static int count_left(const struct sbp_dual *dual, int variable)
{
    int left = 0;
    for (int k = 0; k < dual->domain[variable]; k++)
        left += !dual->barred[variable][k];
    return left;
}

static double least_usage(const struct sbp_dual *dual, int variable, const double *usage)
{
    double least = INFINITY;
    for (int k = 0; k < dual->domain[variable]; k++)
        if (!dual->barred[variable][k] && usage[k] < least)
            least = usage[k];
    return least;
}

/* base: what every choice of the part uses at each point. */
static void sum_base(struct sbp_dual_branch *branch)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    memset(branch->base, 0, ((size_t)dual->point_count + 1) * sizeof *branch->base);
    for (int v = 0; v < dual->variable_count; v++)
        for (int s = dual->live.begin[v]; s < dual->live.begin[v + 1]; s++) {
            const struct sbp_span *span = &dual->live.span[s];
            const double least = least_usage(dual, v, span->usage);
            for (int p = span->first; p < span->last; p++)
                branch->base[p] += least;
        }
}

/* Bars the variable's values that do not fit beside the least that others use. */
static void bar_unfitting(struct sbp_dual_branch *branch, int variable)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    for (int s = dual->live.begin[variable]; s < dual->live.begin[variable + 1]; s++) {
        const struct sbp_span *span = &dual->live.span[s];
        const double least = least_usage(dual, variable, span->usage);
        double most = -INFINITY;
        for (int p = span->first; p < span->last; p++)
            most = fmax(most, branch->base[p]);
        for (int k = 0; k < dual->domain[variable]; k++)
            dual->barred[variable][k] |= most - least + span->usage[k] > dual->limit;
    }
}

/* Bars what does not fit. False: nothing is left of some variable. */
static bool fit_values(struct sbp_dual_branch *branch)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    sum_base(branch);
    for (int v = 0; v < dual->variable_count; v++) {
        bar_unfitting(branch, v);
        if (count_left(dual, v) == 0)
            return false;
    }
    return true;
}

/* Bars what no better choice has, by the bound under these prices, which *bound is raised to.
 * False: nothing is left of some variable. */
static bool filter_values(struct sbp_dual_branch *branch, const double *price, double *bound,
                          double *least)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    sbp_dual_set_prices(dual, price);
    *least = sbp_dual_slacks(dual, branch->slack);
    *bound = fmax(*bound, *least);
    for (int v = 0; v < dual->variable_count; v++) {
        for (int k = 0; k < dual->domain[v]; k++)
            dual->barred[v][k] |= sbp_dual_is_met(dual, *least + branch->slack[v][k]);
        if (count_left(dual, v) == 0)
            return false;
    }
    return true;
}

/* --- bounding a part --- */

/* Notes which values the iteration chose. */
static void note_shares(struct sbp_dual_branch *branch)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    for (int v = 0; v < dual->variable_count; v++)
        branch->share[v][branch->ascent->choice[v]] += 1.0 / SBP_PROBLEM_BRANCH_ITERATIONS;
}

/* A step of Polyak's length from the trial prices. False: there is none. */
static bool step(struct sbp_dual_branch *branch, double bound, double scale)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const double best = fmin(dual->run->solution->cost, dual->run->upper_bound);
    double square = 0;
    for (int p = 0; p < dual->point_count; p++) {
        branch->direction[p] = SBP_PROBLEM_BRANCH_SMOOTHING * branch->direction[p] +
                               (1 - SBP_PROBLEM_BRANCH_SMOOTHING) * branch->ascent->usage[p];
        if (branch->direction[p] > 0 || dual->price[p] > 0)
            square += branch->direction[p] * branch->direction[p];
    }
    if (!(square > 0) || !(best < INFINITY))
        return false;
    const double length = scale * fmax(best - bound, 0) / square;
    for (int p = 0; p < dual->point_count; p++)
        dual->price[p] = fmax(0, dual->price[p] + length * branch->direction[p]);
    return true;
}

/* Raises the part's bound; its best prices end in best_price. False: no better choice is in it, or
 * the search must stop. */
static bool bound_part(struct sbp_dual_branch *branch, double *bound)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const size_t points = (size_t)dual->point_count;
    double scale = SBP_PROBLEM_BRANCH_SCALE, highest = -INFINITY;
    memset(branch->direction, 0, (points + 1) * sizeof(double));
    for (int v = 0; v < dual->variable_count; v++)
        memset(branch->share[v], 0, (size_t)dual->domain[v] * sizeof(double));
    for (int i = 0; i < SBP_PROBLEM_BRANCH_ITERATIONS; i++) {
        sbp_dual_set_prices(dual, dual->price);
        const double now = sbp_dual_pass(dual, SBP_PROBLEM_DUAL_PASSES);
        if (dual->run->solution->stopped)
            return false;
        if (now > highest) {
            highest = now;
            memcpy(branch->best_price, dual->price, points * sizeof(double));
        } else {
            scale *= SBP_PROBLEM_BRANCH_DECAY;
        }
        *bound = fmax(*bound, now);
        if (sbp_dual_is_met(dual, *bound))
            return false;
        sbp_dual_read(dual, branch->ascent->choice);
        note_shares(branch);
        if (sbp_dual_ascent_excess(branch->ascent) <= 0 && !sbp_dual_ascent_try(branch->ascent))
            return false;
        if (!step(branch, now, scale))
            break;
    }
    return true;
}

/* --- division --- */

/* weight (domain): what a value's usage costs at the prices. */
static void weigh(const struct sbp_dual *dual, int variable, double *weight)
{
    for (int k = 0; k < dual->domain[variable]; k++)
        weight[k] = 0;
    for (int s = dual->live.begin[variable]; s < dual->live.begin[variable + 1]; s++) {
        const struct sbp_span *span = &dual->live.span[s];
        const double unit = dual->prefix[span->last] - dual->prefix[span->first];
        for (int k = 0; k < dual->domain[variable]; k++)
            weight[k] += unit * span->usage[k];
    }
}

/* How far the iterations disagree on what the variable's usage is to cost; *mean: on average. */
static double disagreement(const struct sbp_dual_branch *branch, int variable, const double *weight,
                           double *mean)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    double sum = 0, square = 0, all = 0;
    for (int k = 0; k < dual->domain[variable]; k++) {
        const double share = dual->barred[variable][k] ? 0 : branch->share[variable][k];
        all += share;
        sum += share * weight[k];
        square += share * weight[k] * weight[k];
    }
    *mean = all > 0 ? sum / all : 0;
    return all > 0 ? square / all - *mean * *mean : 0;
}

/* Which values of a variable go to the first half. */
struct division {
    int variable;
    bool by_weight; /* those of at most this weight; else those up to this one */
    double mean;
    int value;
};

/* conflict (variables): what the choice costs beyond the bound, at the variable and its edges. */
static void find_conflicts(struct sbp_dual_branch *branch)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const int *choice = branch->ascent->choice;
    sbp_dual_read(dual, branch->ascent->choice);
    for (int v = 0; v < dual->variable_count; v++)
        branch->conflict[v] = branch->slack[v][choice[v]];
    for (int v = 0; v < dual->variable_count; v++)
        for (int i = dual->first[v]; i < dual->first[v + 1]; i++) {
            const struct sbp_dual_link *link = &dual->link[i];
            if (link->other < v)
                branch->conflict[link->other] +=
                    fmax(0, link->to[(size_t)choice[v] * (size_t)dual->domain[link->other] +
                                     (size_t)choice[link->other]] -
                                link->in[choice[v]] - link->out[choice[link->other]]);
        }
}

/* Where no usage is disputed: the variable whose value costs most beyond the bound; its values that
 * raise the bound least are shared out evenly. */
static void divide_by_value(struct sbp_dual_branch *branch, struct division *division)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    double most = -INFINITY;
    find_conflicts(branch);
    for (int v = 0; v < dual->variable_count; v++)
        if (count_left(dual, v) > 1 && branch->conflict[v] > most) {
            most = branch->conflict[v];
            division->variable = v;
        }
    if (division->variable < 0)
        return;
    const int v = division->variable;
    double mean = 0;
    int left = 0, below = 0, last = -1;
    division->value = -1; /* the first of the values that are left, at the least */
    for (int k = 0; k < dual->domain[v]; k++)
        if (!dual->barred[v][k]) {
            division->value = division->value < 0 ? k : division->value;
            mean += branch->slack[v][k];
            left++;
            last = k;
        }
    int candidates = 0;
    for (int k = 0; k < dual->domain[v]; k++)
        candidates += !dual->barred[v][k] && branch->slack[v][k] <= mean / left;
    for (int k = 0; k < last && 2 * below < candidates; k++)
        if (!dual->barred[v][k]) {
            below += branch->slack[v][k] <= mean / left;
            division->value = k;
        }
}

/* Whether weights lie on both sides of their mean: where all are equal it may be rounded off them.
 */
static bool parts_values(const struct sbp_dual *dual, int v, double mean)
{
    int first = 0;
    for (int k = 0; k < dual->domain[v]; k++)
        first += !dual->barred[v][k] && dual->other_row[k] <= mean;
    return first > 0 && first < count_left(dual, v);
}

/* False: one choice is left. */
static bool find_division(struct sbp_dual_branch *branch, struct division *division)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    double most = 0;
    *division = (struct division){.variable = -1};
    for (int v = 0; v < dual->variable_count; v++) {
        double mean;
        if (count_left(dual, v) < 2)
            continue;
        weigh(dual, v, dual->other_row);
        const double apart = disagreement(branch, v, dual->other_row, &mean);
        if (apart > most && parts_values(dual, v, mean)) {
            most = apart;
            *division = (struct division){.variable = v, .by_weight = true, .mean = mean};
        }
    }
    if (division->variable < 0)
        divide_by_value(branch, division);
    return division->variable >= 0;
}

/* Bars the half of the variable's values that is not asked for. Returns by how much the least of
 * the others raises the bound; INFINITY: there is none. */
static double keep_half(struct sbp_dual_branch *branch, const struct division *division, bool first)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const int v = division->variable;
    double rise = INFINITY;
    for (int k = 0; k < dual->domain[v]; k++) {
        const bool is_first =
            division->by_weight ? dual->other_row[k] <= division->mean : k <= division->value;
        dual->barred[v][k] |= is_first != first;
        if (!dual->barred[v][k])
            rise = fmin(rise, branch->slack[v][k]);
    }
    return rise;
}

/* Enters both halves of a part. False: memory is out. */
static bool divide(struct sbp_dual_branch *branch, const struct division *division, double bound,
                   double least)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const int v = division->variable;
    const size_t bytes = (size_t)dual->domain[v] * sizeof **dual->barred;
    bool entered = true;
    weigh(dual, v, dual->other_row);
    memcpy(branch->was_barred, dual->barred[v], bytes);
    for (int half = 0; half < 2 && entered; half++) {
        const double rise = keep_half(branch, division, half == 0);
        if (rise < INFINITY)
            entered = push(branch, fmax(bound, least + rise), branch->best_price);
        memcpy(dual->barred[v], branch->was_barred, bytes);
    }
    return entered;
}

/* Prices the one choice that is left of a part. */
static void offer_single(struct sbp_dual_branch *branch)
{
    const struct sbp_dual *dual = branch->ascent->state->dual;
    for (int v = 0; v < dual->variable_count; v++)
        for (int k = 0; k < dual->domain[v]; k++)
            if (!dual->barred[v][k])
                branch->ascent->choice[v] = k;
    sbp_dual_state_load(branch->ascent->state, branch->ascent->choice);
    sbp_dual_state_offer(branch->ascent->state);
}

/* Bounds a part and divides it. False when the search must stop, or memory is out. */
static bool explore(struct sbp_dual_branch *branch, const struct sbp_dual_node *node)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    struct division division;
    double bound = node->bound, least;
    load(dual, node);
    memcpy(dual->price, node->price, (size_t)dual->point_count * sizeof *dual->price);
    if (!fit_values(branch))
        return true;
    if (!bound_part(branch, &bound))
        return !dual->run->solution->stopped;
    if (!filter_values(branch, branch->best_price, &bound, &least) || sbp_dual_is_met(dual, bound))
        return true;
    if (!find_division(branch, &division)) {
        offer_single(branch);
        return true;
    }
    branch->is_closed = !divide(branch, &division, bound, least);
    return !branch->is_closed;
}

/* --- all --- */

enum sbp_status sbp_dual_branch_init(struct sbp_dual_branch *branch, struct sbp_dual_ascent *ascent)
{
    struct sbp_dual *dual = ascent->state->dual;
    const size_t points = (size_t)dual->point_count + 1, variables = (size_t)dual->variable_count;
    *branch =
        (struct sbp_dual_branch){.ascent = ascent,
                                 .is_closed = (double)dual->values > SBP_PROBLEM_BRANCH_VALUES ||
                                              dual->entries > SBP_PROBLEM_BRANCH_ENTRIES};
    if (branch->is_closed)
        return SBP_OK;
    branch->slack = SBP_NEW(&dual->arena, double *, variables);
    branch->share = SBP_NEW(&dual->arena, double *, variables);
    branch->direction = SBP_NEW(&dual->arena, double, points);
    branch->best_price = SBP_NEW(&dual->arena, double, points);
    branch->base = SBP_NEW(&dual->arena, double, points);
    branch->conflict = SBP_NEW(&dual->arena, double, variables);
    branch->was_barred = SBP_NEW(&dual->arena, bool, dual->largest_domain);
    if (branch->slack == NULL || branch->share == NULL || branch->direction == NULL ||
        branch->best_price == NULL || branch->base == NULL || branch->conflict == NULL ||
        branch->was_barred == NULL)
        return SBP_E_MEMORY;
    for (size_t v = 0; v < variables; v++) {
        branch->slack[v] = SBP_NEW(&dual->arena, double, dual->domain[v]);
        branch->share[v] = SBP_NEW(&dual->arena, double, dual->domain[v]);
        if (branch->slack[v] == NULL || branch->share[v] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

void sbp_dual_branch_free(struct sbp_dual_branch *branch)
{
    for (int i = 0; i < branch->count; i++)
        free_node(branch->ascent->state->dual, &branch->node[i]);
    branch->count = 0;
}

bool sbp_dual_branch_run(struct sbp_dual_branch *branch, double work)
{
    struct sbp_dual *dual = branch->ascent->state->dual;
    const double end = dual->work + work;
    bool goes_on = true;
    if (!branch->has_begun)
        branch->is_closed = !push(branch, dual->bound, dual->best_price);
    branch->has_begun = true;
    while (goes_on && dual->work < end && branch->count > 0 && !branch->is_closed) {
        struct sbp_dual_node node = pop(branch);
        dual->bound = fmax(dual->bound, node.bound);
        goes_on = explore(branch, &node);
        if (!goes_on && !branch->is_closed) { /* stopped on the way */
            load(dual, &node);
            branch->is_closed = !push(branch, node.bound, node.price);
        }
        free_node(dual, &node);
    }
    branch->is_done = goes_on && branch->count == 0 && !branch->is_closed;
    bar_nothing(dual);
    return !dual->run->solution->stopped;
}

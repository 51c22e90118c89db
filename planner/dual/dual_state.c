#include <math.h>
#include <string.h>

#include "planner/dual/dual_priv.h"

/* --- a tree over points: adds to ranges, most of ranges ---
 *
 * Leaves 0 and leaves - 1 stand outside all points, so that a range lies between two leaves; point
 * p is leaf p + 1. `most` of a node includes what was added to it, not what was added above. */

static void refresh(struct sbp_dual_state *state, int node)
{
    const double left = state->most[2 * node], right = state->most[2 * node + 1];
    state->most[node] = (left > right ? left : right) + state->added[node];
}

static void raise_node(struct sbp_dual_state *state, int node, double usage)
{
    state->most[node] += usage;
    state->added[node] += usage;
}

static void raise_range(struct sbp_dual_state *state, int first, int last, double usage)
{
    int left = state->leaves + first, right = state->leaves + last + 1;
    for (; (left ^ right) != 1; left /= 2, right /= 2) {
        if (left % 2 == 0)
            raise_node(state, left + 1, usage);
        if (right % 2 == 1)
            raise_node(state, right - 1, usage);
        refresh(state, left / 2);
        refresh(state, right / 2);
    }
    for (left /= 2; left > 0; left /= 2)
        refresh(state, left);
}

double sbp_dual_state_most(const struct sbp_dual_state *state, int first, int last)
{
    int left = state->leaves + first, right = state->leaves + last + 1;
    double most_left = -INFINITY, most_right = -INFINITY;
    while ((left ^ right) != 1) {
        if (left % 2 == 0 && state->most[left + 1] > most_left)
            most_left = state->most[left + 1];
        if (right % 2 == 1 && state->most[right - 1] > most_right)
            most_right = state->most[right - 1];
        left /= 2;
        right /= 2;
        most_left += state->added[left];
        most_right += state->added[right];
    }
    double most = most_left > most_right ? most_left : most_right;
    for (left /= 2; left > 0; left /= 2)
        most += state->added[left];
    return most;
}

int sbp_dual_state_fullest(const struct sbp_dual_state *state)
{
    int node = 1;
    while (node < state->leaves)
        node = 2 * node + (state->most[2 * node + 1] > state->most[2 * node]);
    return node - state->leaves - 1;
}

static void plant(struct sbp_dual_state *state)
{
    const struct sbp_dual *dual = state->dual;
    for (int i = 0; i < 2 * state->leaves; i++) {
        state->most[i] = -INFINITY;
        state->added[i] = 0;
    }
    for (int p = 0; p < dual->point_count; p++)
        state->most[state->leaves + 1 + p] = state->base[p];
    for (int node = state->leaves - 1; node > 0; node--)
        refresh(state, node);
}

/* --- the state --- */

enum sbp_status sbp_dual_state_init(struct sbp_dual_state *state, struct sbp_dual *dual)
{
    *state = (struct sbp_dual_state){.dual = dual, .leaves = 4};
    while (state->leaves < dual->point_count + 2)
        state->leaves *= 2;
    state->trail_room = 4 * dual->variable_count + 1024;
    state->choice = SBP_NEW(&dual->arena, int, dual->variable_count);
    state->most = SBP_NEW(&dual->arena, double, 2 * (size_t)state->leaves);
    state->added = SBP_NEW(&dual->arena, double, 2 * (size_t)state->leaves);
    state->base = SBP_NEW(&dual->arena, double, (size_t)dual->point_count + 1);
    state->trail_variable = SBP_NEW(&dual->arena, int, state->trail_room);
    state->trail_value = SBP_NEW(&dual->arena, int, state->trail_room);
    return state->choice == NULL || state->most == NULL || state->added == NULL ||
                   state->base == NULL || state->trail_variable == NULL ||
                   state->trail_value == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

static double sum_cost(const struct sbp_dual_state *state)
{
    const struct sbp_dual *dual = state->dual;
    double sum = 0;
    for (int v = 0; v < dual->variable_count; v++) {
        sum += dual->cost[v][state->choice[v]];
        for (int i = dual->first[v]; i < dual->first[v + 1]; i++) {
            const struct sbp_dual_link *link = &dual->link[i];
            if (link->other > v)
                sum += link->to[(size_t)state->choice[v] * (size_t)dual->domain[link->other] +
                                (size_t)state->choice[link->other]];
        }
    }
    return sum;
}

/* base: usage at each point. */
static void sum_usage(struct sbp_dual_state *state)
{
    const struct sbp_dual *dual = state->dual;
    memset(state->base, 0, ((size_t)dual->point_count + 1) * sizeof *state->base);
    for (int v = 0; v < dual->variable_count; v++)
        for (int s = dual->live.begin[v]; s < dual->live.begin[v + 1]; s++) {
            const struct sbp_span *span = &dual->live.span[s];
            state->base[span->first] += span->usage[state->choice[v]];
            state->base[span->last] -= span->usage[state->choice[v]];
        }
    double sum = 0;
    for (int p = 0; p < dual->point_count; p++) {
        sum += state->base[p];
        state->base[p] = sum;
    }
}

void sbp_dual_state_load(struct sbp_dual_state *state, const int *choice)
{
    if (choice != state->choice)
        memcpy(state->choice, choice, (size_t)state->dual->variable_count * sizeof *choice);
    state->cost = sum_cost(state);
    state->trail_count = 0;
    sum_usage(state);
    plant(state);
}

bool sbp_dual_state_admits(const struct sbp_dual_state *state, int variable, int value)
{
    const struct sbp_live *live = &state->dual->live;
    const int old = state->choice[variable];
    for (int s = live->begin[variable]; s < live->begin[variable + 1]; s++) {
        const struct sbp_span *span = &live->span[s];
        const double more = span->usage[value] - span->usage[old];
        if (more > 0 && state->most[1] + more > state->dual->limit &&
            sbp_dual_state_most(state, span->first, span->last) + more > state->dual->limit)
            return false;
    }
    return true;
}

static void set_value(struct sbp_dual_state *state, int variable, int value)
{
    const struct sbp_live *live = &state->dual->live;
    const int old = state->choice[variable];
    for (int s = live->begin[variable]; s < live->begin[variable + 1]; s++) {
        const struct sbp_span *span = &live->span[s];
        const double more = span->usage[value] - span->usage[old];
        if (more > 0 || more < 0)
            raise_range(state, span->first, span->last, more);
    }
    state->choice[variable] = value;
}

void sbp_dual_state_move(struct sbp_dual_state *state, int variable, int value, double rise)
{
    if (state->trail_count < state->trail_room) {
        state->trail_variable[state->trail_count] = variable;
        state->trail_value[state->trail_count++] = state->choice[variable];
    }
    set_value(state, variable, value);
    state->cost += rise;
}

void sbp_dual_state_keep(struct sbp_dual_state *state)
{
    state->trail_count = 0;
}

void sbp_dual_state_undo(struct sbp_dual_state *state, double cost)
{
    while (state->trail_count > 0) {
        state->trail_count--;
        set_value(state, state->trail_variable[state->trail_count],
                  state->trail_value[state->trail_count]);
    }
    state->cost = cost;
}

void sbp_dual_state_offer(struct sbp_dual_state *state)
{
    struct sbp_solver_run *run = state->dual->run;
    if (!sbp_dual_state_fits(state) || !(state->cost < run->solution->cost))
        return;
    sum_usage(state);
    double most = 0;
    for (int p = 0; p < state->dual->point_count; p++)
        most = state->base[p] > most ? state->base[p] : most;
    const double cost = sbp_problem_cost(state->dual->problem, state->choice);
    if (most <= state->dual->limit && cost < SBP_FORBIDDEN)
        sbp_solver_run_offer(run, state->choice, cost);
}

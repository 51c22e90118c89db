#include "planner/solvers/assignment_priv.h"

#include <math.h>
#include <string.h>

#include "planner/limits.h"

static bool link_neighbours(struct sbp_assignment *state)
{
    const struct sbp_problem *problem = state->problem;
    const size_t count = (size_t)problem->variable_count;
    state->first = SBP_NEW(&state->arena, int, count + 1);
    state->neighbour =
        SBP_NEW(&state->arena, struct sbp_neighbour, 2 * (size_t)problem->edge_count);
    int *next = SBP_NEW(&state->arena, int, count + 1);
    if (state->first == NULL || state->neighbour == NULL || next == NULL)
        return false;
    for (int e = 0; e < problem->edge_count; e++) {
        state->first[problem->edge[e].a + 1]++;
        state->first[problem->edge[e].b + 1]++;
    }
    for (size_t v = 0; v < count; v++)
        state->first[v + 1] += state->first[v];
    memcpy(next, state->first, count * sizeof *next);
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        const size_t columns = (size_t)problem->variable[edge->b].domain;
        state->neighbour[next[edge->a]++] = (struct sbp_neighbour){
            .variable = edge->b, .table = edge->cost, .own_stride = columns, .other_stride = 1};
        state->neighbour[next[edge->b]++] = (struct sbp_neighbour){
            .variable = edge->a, .table = edge->cost, .own_stride = 1, .other_stride = columns};
    }
    return true;
}

static double spread(const double *values, size_t count)
{
    double least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (values[i] >= SBP_FORBIDDEN)
            continue;
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
    }
    return most > least ? most - least : 0;
}

/* Finds the units in which penalties are stated, so that those do not depend on the problem's. */
static void find_units(struct sbp_assignment *state)
{
    const struct sbp_problem *problem = state->problem;
    double cost = 0, usage = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        const size_t domain = (size_t)problem->variable[v].domain;
        cost += spread(problem->variable[v].cost, domain);
        for (int s = state->live.begin[v]; s < state->live.begin[v + 1]; s++)
            usage += spread(state->live.span[s].usage, domain);
    }
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        cost += spread(edge->cost, sbp_problem_entries(problem, edge));
    }
    const double count = fmax(1, problem->variable_count);
    state->cost_spread = cost > 0 ? cost : 1;
    state->cost_unit = cost > 0 ? cost / count : 1;
    state->excess_unit = usage > 0 ? usage / count : 1;
}

enum sbp_status sbp_assignment_init(struct sbp_assignment *state, const struct sbp_problem *problem)
{
    *state = (struct sbp_assignment){.problem = problem, .arena.budget = problem->arena.budget};
    SBP_TRY(sbp_live_build(problem, &state->arena, &state->live));
    state->choice = SBP_NEW(&state->arena, int, problem->variable_count);
    state->free_variable = SBP_NEW(&state->arena, int, problem->variable_count);
    state->usage = SBP_NEW(&state->arena, double, state->live.point_count);
    if (state->choice == NULL || state->free_variable == NULL || state->usage == NULL ||
        !link_neighbours(state))
        return SBP_E_MEMORY;
    for (int v = 0; v < problem->variable_count; v++)
        if (problem->variable[v].domain > 1)
            state->free_variable[state->free_count++] = v;
    state->limit = problem->capacity < INFINITY
                       ? problem->capacity + SBP_CAPACITY_ROUND_OFF * fabs(problem->capacity)
                       : INFINITY;
    find_units(state);
    sbp_assignment_reset(state);
    return SBP_OK;
}

void sbp_assignment_free(struct sbp_assignment *state)
{
    sbp_arena_free(&state->arena);
    *state = (struct sbp_assignment){0};
}

static void add_cost(struct sbp_energy *energy, double cost)
{
    if (cost >= SBP_FORBIDDEN)
        energy->forbidden++;
    else
        energy->cost += cost;
}

static double sum_excess(const struct sbp_assignment *state)
{
    double excess = 0;
    for (int p = 0; p < state->live.point_count; p++)
        excess += fmax(0, state->usage[p] - state->limit);
    return excess;
}

void sbp_assignment_reset(struct sbp_assignment *state)
{
    const struct sbp_problem *problem = state->problem;
    struct sbp_energy energy = {0};
    memset(state->usage, 0, (size_t)state->live.point_count * sizeof *state->usage);
    for (int v = 0; v < problem->variable_count; v++) {
        add_cost(&energy, problem->variable[v].cost[state->choice[v]]);
        sbp_live_add(&state->live, v, state->choice[v], 1, state->usage);
    }
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        add_cost(
            &energy,
            edge->cost[(size_t)state->choice[edge->a] * (size_t)problem->variable[edge->b].domain +
                       (size_t)state->choice[edge->b]]);
    }
    energy.excess = sum_excess(state);
    state->energy = energy;
}

void sbp_assignment_randomise(struct sbp_assignment *state, struct sbp_random *random)
{
    for (int v = 0; v < state->problem->variable_count; v++) {
        const struct sbp_variable *variable = &state->problem->variable[v];
        for (int draw = 0; draw < SBP_PROBLEM_START_DRAWS; draw++) {
            state->choice[v] = (int)sbp_random_below(random, (uint64_t)variable->domain);
            if (variable->cost[state->choice[v]] < SBP_FORBIDDEN)
                break;
        }
    }
    sbp_assignment_reset(state);
}

static double excess_change(const struct sbp_assignment *state, int variable, int value)
{
    double change = 0;
    for (int s = state->live.begin[variable]; s < state->live.begin[variable + 1]; s++) {
        const struct sbp_span *span = &state->live.span[s];
        const double more = span->usage[value] - span->usage[state->choice[variable]];
        if (more == 0)
            continue;
        for (int p = span->first; p < span->last; p++) {
            const double before = state->usage[p] - state->limit, after = before + more;
            change += (after > 0 ? after : 0) - (before > 0 ? before : 0);
        }
    }
    return change;
}

struct sbp_energy sbp_assignment_move_change(const struct sbp_assignment *state, int variable,
                                             int value)
{
    const struct sbp_variable *source = &state->problem->variable[variable];
    const int old = state->choice[variable];
    struct sbp_energy before = {0}, after = {0};
    add_cost(&before, source->cost[old]);
    add_cost(&after, source->cost[value]);
    for (int n = state->first[variable]; n < state->first[variable + 1]; n++) {
        const struct sbp_neighbour *neighbour = &state->neighbour[n];
        const double *row =
            neighbour->table + (size_t)state->choice[neighbour->variable] * neighbour->other_stride;
        add_cost(&before, row[(size_t)old * neighbour->own_stride]);
        add_cost(&after, row[(size_t)value * neighbour->own_stride]);
    }
    return (struct sbp_energy){
        .cost = after.cost - before.cost,
        .forbidden = after.forbidden - before.forbidden,
        .excess = state->live.point_count > 0 ? excess_change(state, variable, value) : 0,
    };
}

void sbp_assignment_move(struct sbp_assignment *state, int variable, int value,
                         struct sbp_energy change)
{
    sbp_live_add(&state->live, variable, state->choice[variable], -1, state->usage);
    sbp_live_add(&state->live, variable, value, 1, state->usage);
    state->choice[variable] = value;
    state->energy.cost += change.cost;
    state->energy.forbidden += change.forbidden;
    state->energy.excess += change.excess;
    /* Round-off of an excess that is really 0 would pass for infeasible. */
    if (state->energy.excess != 0 &&
        state->energy.excess < SBP_PROBLEM_EXCESS_ROUND_OFF * state->limit)
        state->energy.excess = sum_excess(state);
}

static double penalised(double cost, double forbidden)
{
    return cost >= SBP_FORBIDDEN ? forbidden : cost;
}

void sbp_assignment_row(const struct sbp_assignment *state, int variable,
                        struct sbp_penalty penalty, double *row)
{
    const struct sbp_variable *source = &state->problem->variable[variable];
    const size_t domain = (size_t)source->domain;
    for (size_t k = 0; k < domain; k++)
        row[k] = penalised(source->cost[k], penalty.forbidden);
    for (int n = state->first[variable]; n < state->first[variable + 1]; n++) {
        const struct sbp_neighbour *neighbour = &state->neighbour[n];
        const double *table =
            neighbour->table + (size_t)state->choice[neighbour->variable] * neighbour->other_stride;
        for (size_t k = 0; k < domain; k++)
            row[k] += penalised(table[k * neighbour->own_stride], penalty.forbidden);
    }
    for (int s = state->live.begin[variable]; s < state->live.begin[variable + 1]; s++) {
        const struct sbp_span *span = &state->live.span[s];
        for (int p = span->first; p < span->last; p++) {
            const double others =
                state->usage[p] - span->usage[state->choice[variable]] - state->limit;
            for (size_t k = 0; k < domain; k++)
                row[k] += penalty.excess * fmax(0, others + span->usage[k]);
        }
    }
}

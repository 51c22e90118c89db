#include "planner/solvers/ilp_bound_priv.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "planner/limits.h"

enum sbp_status sbp_ilp_bound_init(struct sbp_ilp_bound *bound, const struct sbp_problem *problem,
                                   struct sbp_arena *arena)
{
    *bound = (struct sbp_ilp_bound){.problem = problem};
    SBP_TRY(sbp_live_build(problem, arena, &bound->live));
    bound->first = SBP_NEW(arena, int, problem->variable_count + 1);
    bound->first_tie = SBP_NEW(arena, int, problem->edge_count + 1);
    if (bound->first == NULL || bound->first_tie == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < problem->variable_count; v++)
        bound->first[v + 1] = bound->first[v] + problem->variable[v].domain;
    for (int e = 0; e < problem->edge_count; e++)
        bound->first_tie[e + 1] = bound->first_tie[e] +
                                  problem->variable[problem->edge[e].a].domain +
                                  problem->variable[problem->edge[e].b].domain;
    const int values = bound->first[problem->variable_count];
    bound->out = SBP_NEW(arena, bool, values);
    bound->sum = SBP_NEW(arena, double, values);
    bound->size = SBP_NEW(arena, double, values);
    bound->least = SBP_NEW(arena, double, problem->variable_count + problem->edge_count);
    bound->tie = SBP_NEW(arena, double, bound->first_tie[problem->edge_count]);
    bound->price = SBP_NEW(arena, double, bound->live.point_count);
    bound->usage = SBP_NEW(arena, double, bound->live.point_count);
    return bound->out == NULL || bound->sum == NULL || bound->size == NULL ||
                   bound->least == NULL || bound->tie == NULL || bound->price == NULL ||
                   bound->usage == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

/* Share of the absolute terms that any of the sums here may be off by. */
static double round_off(const struct sbp_ilp_bound *bound)
{
    const struct sbp_problem *problem = bound->problem;
    return DBL_EPSILON *
           (8.0 + problem->variable_count + problem->edge_count + bound->live.point_count);
}

/* --- values that need not be looked at --- */

static double true_entry(const struct sbp_ilp_bound *bound, double cost)
{
    return cost >= SBP_FORBIDDEN ? INFINITY : bound->of_peak ? 0 : cost;
}

/* least[i] (rows): the least entry of edge e in row i of end a (or of b), of values that are in. */
static void least_of_rows(const struct sbp_ilp_bound *bound, const struct sbp_edge *edge, bool of_a,
                          double *least)
{
    const int rows = bound->problem->variable[edge->a].domain;
    const int columns = bound->problem->variable[edge->b].domain;
    const bool *out_a = bound->out + bound->first[edge->a];
    const bool *out_b = bound->out + bound->first[edge->b];
    for (int i = 0; i < (of_a ? rows : columns); i++)
        least[i] = INFINITY;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            if (!out_a[i] && !out_b[j]) {
                double *at = &least[of_a ? i : j];
                *at = fmin(*at, true_entry(bound, edge->cost[i * columns + j]));
            }
}

static double least_of(const double *entry, int count)
{
    double least = INFINITY;
    for (int i = 0; i < count; i++)
        least = fmin(least, entry[i]);
    return least;
}

/* Sums what each value costs above the least of its tables: its own and its least pairs'. Sets
 * least and floor; false when a table has no entry left. row: scratch of the longest domain. */
static bool sum_excess(struct sbp_ilp_bound *bound)
{
    const struct sbp_problem *problem = bound->problem;
    double *row = bound->size, total = 0, size = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        double *sum = bound->sum + bound->first[v];
        for (int k = 0; k < problem->variable[v].domain; k++)
            sum[k] = bound->out[bound->first[v] + k]
                         ? INFINITY
                         : true_entry(bound, problem->variable[v].cost[k]);
        const double least = bound->least[v] = least_of(sum, problem->variable[v].domain);
        for (int k = 0; least < INFINITY && k < problem->variable[v].domain; k++)
            sum[k] -= least;
        total += least;
        size += fabs(least);
    }
    for (int e = 0; e < problem->edge_count && total < INFINITY; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        for (int end = 0; end < 2; end++) {
            const int v = end == 0 ? edge->a : edge->b, domain = problem->variable[v].domain;
            least_of_rows(bound, edge, end == 0, row);
            const double least = bound->least[problem->variable_count + e] = least_of(row, domain);
            for (int k = 0; least < INFINITY && k < domain; k++)
                bound->sum[bound->first[v] + k] += row[k] - least;
        }
        total += bound->least[problem->variable_count + e];
        size += fabs(bound->least[problem->variable_count + e]);
    }
    if (total < INFINITY && !bound->of_peak)
        bound->floor = total - round_off(bound) * size;
    return total < INFINITY;
}

double sbp_ilp_bound_of_least(struct sbp_ilp_bound *bound)
{
    return sum_excess(bound) ? bound->floor : INFINITY;
}

static double least_usage(const struct sbp_ilp_bound *bound, int variable,
                          const struct sbp_span *span)
{
    double least = INFINITY;
    for (int k = 0; k < bound->problem->variable[variable].domain; k++)
        if (!bound->out[bound->first[variable] + k])
            least = fmin(least, span->usage[k]);
    return least;
}

/* usage: the least sum at every point. */
static void sum_least_usages(struct sbp_ilp_bound *bound)
{
    const struct sbp_live *live = &bound->live;
    memset(bound->usage, 0, (size_t)live->point_count * sizeof *bound->usage);
    for (int v = 0; v < bound->problem->variable_count; v++)
        for (int s = live->begin[v]; s < live->begin[v + 1]; s++) {
            const double least = least_usage(bound, v, &live->span[s]);
            for (int p = live->span[s].first; p < live->span[s].last; p++)
                bound->usage[p] += least;
        }
}

/* The most of the other variables' least usages that a span of this one meets. */
static double usage_of_others(const struct sbp_ilp_bound *bound, int variable,
                              const struct sbp_span *span)
{
    double most = 0;
    for (int p = span->first; p < span->last; p++)
        most = fmax(most, bound->usage[p]);
    return most - least_usage(bound, variable, span);
}

/* Puts values out whose usage passes `room` beside the least of all others. */
static bool drop_by_usage(struct sbp_ilp_bound *bound, double room)
{
    const struct sbp_live *live = &bound->live;
    const double most = room + SBP_PROBLEM_ILP_TOLERANCE * fabs(room);
    bool dropped = false;
    sum_least_usages(bound);
    for (int v = 0; v < bound->problem->variable_count; v++)
        for (int s = live->begin[v]; s < live->begin[v + 1]; s++) {
            const double others = usage_of_others(bound, v, &live->span[s]);
            for (int k = 0; k < bound->problem->variable[v].domain; k++)
                if (!bound->out[bound->first[v] + k] && others + live->span[s].usage[k] > most)
                    dropped = bound->out[bound->first[v] + k] = true;
        }
    return dropped;
}

bool sbp_ilp_bound_drop(struct sbp_ilp_bound *bound)
{
    const int values = bound->first[bound->problem->variable_count];
    bool dropped = true;
    while (dropped) {
        if (!sum_excess(bound) || bound->floor >= bound->limit)
            return false;
        const double most = (bound->limit - bound->floor) * (1 + SBP_PROBLEM_ILP_TOLERANCE);
        dropped = false;
        for (int i = 0; i < values; i++)
            if (!bound->out[i] && bound->sum[i] > most)
                dropped = bound->out[i] = true;
        dropped |= drop_by_usage(bound, bound->of_peak ? bound->limit : bound->problem->capacity);
    }
    return true;
}

/* --- bounds --- */

double sbp_ilp_bound_entry(const struct sbp_ilp_bound *bound, int table, double cost)
{
    return fmin(true_entry(bound, cost),
                bound->least[table] + SBP_PROBLEM_ILP_CAP * (bound->limit - bound->floor));
}

static void add(double *sum, double *size, double term)
{
    *sum += term;
    *size += fabs(term);
}

static void add_prices(struct sbp_ilp_bound *bound, int variable)
{
    const struct sbp_live *live = &bound->live;
    for (int s = live->begin[variable]; s < live->begin[variable + 1]; s++)
        for (int p = live->span[s].first; p < live->span[s].last; p++)
            for (int k = 0; k < bound->problem->variable[variable].domain; k++)
                if (bound->price[p] > 0)
                    add(&bound->sum[bound->first[variable] + k],
                        &bound->size[bound->first[variable] + k],
                        bound->price[p] * live->span[s].usage[k]);
}

/* The least entry of an edge after its ends' multipliers, which are added to the ends. */
static double priced_edge(struct sbp_ilp_bound *bound, int e)
{
    const struct sbp_edge *edge = &bound->problem->edge[e];
    const int rows = bound->problem->variable[edge->a].domain;
    const int columns = bound->problem->variable[edge->b].domain;
    const int a = bound->first[edge->a], b = bound->first[edge->b];
    const double *of_a = bound->tie + bound->first_tie[e], *of_b = of_a + rows;
    double least = INFINITY;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns && !bound->out[a + i]; j++) {
            const double cost = sbp_ilp_bound_entry(bound, bound->problem->variable_count + e,
                                                    edge->cost[i * columns + j]);
            const double off = 4 * DBL_EPSILON * (fabs(cost) + fabs(of_a[i]) + fabs(of_b[j]));
            if (!bound->out[b + j])
                least = fmin(least, cost - of_a[i] - of_b[j] - off);
        }
    for (int i = 0; i < rows; i++)
        add(&bound->sum[a + i], &bound->size[a + i], of_a[i]);
    for (int j = 0; j < columns; j++)
        add(&bound->sum[b + j], &bound->size[b + j], of_b[j]);
    return least;
}

/* Takes what all points have room for off, or scales prices of a peak to sum to no more than 1. */
static void price_room(struct sbp_ilp_bound *bound, double *total, double *size)
{
    const double capacity = bound->problem->capacity;
    double sum = 0;
    for (int p = 0; p < bound->live.point_count; p++)
        sum += bound->price[p];
    for (int p = 0; p < bound->live.point_count; p++)
        if (bound->of_peak && sum > 1 - round_off(bound))
            bound->price[p] /= sum * (1 + 2 * round_off(bound));
        else if (!bound->of_peak)
            add(total, size,
                -bound->price[p] * (capacity + SBP_CAPACITY_ROUND_OFF * fabs(capacity)));
}

double sbp_ilp_bound_of(struct sbp_ilp_bound *bound)
{
    const struct sbp_problem *problem = bound->problem;
    double total = 0, size = 0;
    price_room(bound, &total, &size);
    for (int v = 0; v < problem->variable_count; v++) {
        for (int k = 0; k < problem->variable[v].domain; k++) {
            double *sum = &bound->sum[bound->first[v] + k];
            *sum = sbp_ilp_bound_entry(bound, v, problem->variable[v].cost[k]);
            bound->size[bound->first[v] + k] = fabs(*sum);
        }
        add_prices(bound, v);
    }
    for (int e = 0; e < problem->edge_count; e++)
        add(&total, &size, priced_edge(bound, e));
    for (int v = 0; v < problem->variable_count; v++) {
        double least = INFINITY;
        for (int i = bound->first[v]; i < bound->first[v + 1]; i++)
            if (!bound->out[i])
                least = fmin(least, bound->sum[i] - round_off(bound) * bound->size[i]);
        add(&total, &size, least);
    }
    return total - round_off(bound) * size;
}

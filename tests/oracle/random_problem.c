#include "random_problem.h"
#include "tests/support/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

double draw_cost(struct sbp_random *random, const struct recipe *recipe)
{
    if (sbp_random_unit(random) < recipe->forbidden)
        return SBP_FORBIDDEN * (1 + (double)sbp_random_below(random, 2));
    if (recipe->whole)
        return (double)sbp_random_below(random, 7);
    return sbp_random_unit(random) * 3 - 0.5;
}

double draw_usage(struct sbp_random *random, const struct recipe *recipe)
{
    if (sbp_random_below(random, 5) == 0)
        return 0;
    return recipe->whole ? (double)sbp_random_below(random, 10) : sbp_random_unit(random) * 10;
}

/* Up to two intervals, some empty, some overlapping. */
static int draw_intervals(struct sbp_random *random, enum capacity capacity,
                          struct sbp_interval *intervals)
{
    if (capacity == EVERYWHERE_LIVE) {
        intervals[0] = (struct sbp_interval){0, 1};
        return 1;
    }
    const int count = (int)sbp_random_below(random, 3);
    int64_t from = 0;
    for (int i = 0; i < count; i++) {
        from += (int64_t)sbp_random_below(random, LAST_TIME / 3);
        intervals[i].from = from;
        from += (int64_t)sbp_random_below(random, LAST_TIME / 3);
        intervals[i].to = from;
        if (sbp_random_below(random, 4) == 0)
            from = 0;
    }
    return count;
}

static void add_variable(struct sbp_problem *problem, struct sbp_random *random,
                         const struct recipe *recipe)
{
    struct sbp_interval intervals[2];
    const int domain = 1 + (int)sbp_random_below(random, 4);
    const int count =
        recipe->capacity == UNLIMITED ? 0 : draw_intervals(random, recipe->capacity, intervals);
    const int v = sbp_problem_add_variable(problem, "v", domain, count, intervals);
    assert_true(v >= 0);
    for (int k = 0; k < domain; k++)
        problem->variable[v].cost[k] = draw_cost(random, recipe);
    for (int i = 0; i < count * domain; i++)
        problem->variable[v].usage[i] = draw_usage(random, recipe);
}

void add_edge(struct sbp_problem *problem, struct sbp_random *random, const struct recipe *recipe,
              int a, int b)
{
    bool transposed;
    double *table = sbp_problem_edge_table(problem, a, b, &transposed);
    assert_non_null(table);
    const int entries = problem->variable[a].domain * problem->variable[b].domain;
    for (int i = 0; i < entries; i++)
        table[i] = draw_cost(random, recipe);
}

static void add_edges(struct sbp_problem *problem, struct sbp_random *random,
                      const struct recipe *recipe)
{
    const int count = problem->variable_count;
    for (int v = 1; v < count; v++) {
        if (recipe->shape == CHAIN || recipe->shape == CHAIN_WITH_RESIDUALS ||
            recipe->shape == CYCLE)
            add_edge(problem, random, recipe, v - 1, v);
        if (recipe->shape == CYCLE && v >= 2 && v == count - 1)
            add_edge(problem, random, recipe, v, 0);
        if (recipe->shape == GRID && v % 2 == 1)
            add_edge(problem, random, recipe, v - 1, v);
        if (recipe->shape == GRID && v >= 2)
            add_edge(problem, random, recipe, v, v - 2);
        if (recipe->shape == CHAIN_WITH_RESIDUALS && v >= 3 && sbp_random_below(random, 2) == 0)
            add_edge(problem, random, recipe, v, v - 3);
        if (recipe->shape == TREE && sbp_random_below(random, 6) > 0)
            add_edge(problem, random, recipe, (int)sbp_random_below(random, (uint64_t)v), v);
        for (int u = 0; recipe->shape == RANDOM_GRAPH && u < v; u++)
            if (sbp_random_below(random, 5) < 2)
                add_edge(problem, random, recipe, u, v);
    }
}

struct recipe draw_recipe(uint64_t seed)
{
    static const double shares[] = {0, 0, 0.1, 0.3, 0.8};
    struct sbp_random random;
    sbp_random_seed(&random, seed ^ UINT64_C(0x5eed));
    return (struct recipe){
        .seed = seed,
        .shape = (enum shape)(seed % SHAPE_COUNT),
        .capacity = (enum capacity)(seed / SHAPE_COUNT % CAPACITY_COUNT),
        .whole = sbp_random_below(&random, 2) == 0,
        .forbidden = shares[sbp_random_below(&random, 5)],
        .tightness = sbp_random_unit(&random) * 0.7 - 0.1,
    };
}

static double usage_sum(const struct sbp_problem *problem, bool largest)
{
    double sum = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        const struct sbp_variable *variable = &problem->variable[v];
        double extreme = largest || variable->interval_count == 0 ? 0 : INFINITY;
        for (int i = 0; i < variable->interval_count * variable->domain; i++)
            extreme =
                largest ? fmax(extreme, variable->usage[i]) : fmin(extreme, variable->usage[i]);
        sum += extreme;
    }
    return sum;
}

void build(const struct recipe *recipe, struct sbp_problem *problem)
{
    struct sbp_random random;
    sbp_random_seed(&random, recipe->seed);
    assert_int_equal(sbp_problem_init(problem, 0, 0), SBP_OK);
    const int count = 1 + (int)sbp_random_below(&random, MOST_VARIABLES);
    for (int v = 0; v < count; v++)
        add_variable(problem, &random, recipe);
    add_edges(problem, &random, recipe);
    if (recipe->capacity == UNLIMITED)
        return;
    const double least = usage_sum(problem, false), most = usage_sum(problem, true);
    problem->capacity = fmax(0, least + recipe->tightness * (most - least));
    if (recipe->whole)
        problem->capacity = floor(problem->capacity);
}

/* --- the enumerator --- */

double plain_cost(const struct sbp_problem *problem, const int *choice)
{
    double sum = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        if (problem->variable[v].cost[choice[v]] >= SBP_FORBIDDEN)
            return INFINITY;
        sum += problem->variable[v].cost[choice[v]];
    }
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        const double cost =
            edge->cost[choice[edge->a] * problem->variable[edge->b].domain + choice[edge->b]];
        if (cost >= SBP_FORBIDDEN)
            return INFINITY;
        sum += cost;
    }
    return sum;
}

double plain_peak(const struct sbp_problem *problem, const int *choice)
{
    double peak = 0;
    for (int64_t time = 0; time <= 2 * LAST_TIME; time++) {
        double sum = 0;
        for (int v = 0; v < problem->variable_count; v++) {
            const struct sbp_variable *variable = &problem->variable[v];
            for (int i = 0; i < variable->interval_count; i++)
                if (variable->interval[i].from <= time && time < variable->interval[i].to)
                    sum += variable->usage[i * variable->domain + choice[v]];
        }
        peak = fmax(peak, sum);
    }
    return peak;
}

static void enumerate(struct truth *truth, int v)
{
    if (v < truth->problem->variable_count) {
        for (int k = 0; k < truth->problem->variable[v].domain; k++) {
            truth->choice[v] = k;
            enumerate(truth, v + 1);
        }
        return;
    }
    const double cost = plain_cost(truth->problem, truth->choice);
    const double peak = plain_peak(truth->problem, truth->choice);
    truth->assignments++;
    if (!(cost < INFINITY))
        return;
    truth->least_peak = fmin(truth->least_peak, peak);
    if (!(peak <= truth->problem->capacity * (1 + 1e-12)))
        return;
    truth->cost = fmin(truth->cost, cost);
    truth->costs[truth->cost_count++] = cost;
}

struct truth find_truth(const struct sbp_problem *problem)
{
    struct truth truth = {.problem = problem, .cost = INFINITY, .least_peak = INFINITY};
    size_t assignments = 1;
    for (int v = 0; v < problem->variable_count; v++)
        assignments *= (size_t)problem->variable[v].domain;
    truth.costs = calloc(assignments, sizeof *truth.costs);
    assert_non_null(truth.costs);
    enumerate(&truth, 0);
    return truth;
}

void truth_free(struct truth *truth)
{
    free(truth->costs);
    truth->costs = NULL;
}

void print_problem(const struct recipe *recipe, const struct sbp_problem *problem,
                   const char *solver)
{
    fprintf(stderr,
            "%s on seed %" PRIu64 ": shape %d, capacity %d (%.17g), %d variables, %d edges\n",
            solver, recipe->seed, recipe->shape, recipe->capacity, problem->capacity,
            problem->variable_count, problem->edge_count);
}

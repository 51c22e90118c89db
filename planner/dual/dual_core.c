#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

/* --- tables --- */

/* Tables that were turned, to share them as the edges do: open addressing by address and shape. */
struct turned {
    const double **source;
    size_t *columns;
    const double **straight, **turned;
    size_t slots;
};

static size_t table_slot(const struct turned *tables, const double *source, size_t columns)
{
    size_t at = (size_t)(sbp_hash_bytes(&source, sizeof source) & (tables->slots - 1));
    while (tables->source[at] != NULL &&
           (tables->source[at] != source || tables->columns[at] != columns))
        at = (at + 1) & (tables->slots - 1);
    return at;
}

static bool init_tables(struct turned *tables, int edges, struct sbp_arena *arena)
{
    tables->slots = 16;
    while (tables->slots < 2 * (size_t)edges)
        tables->slots *= 2;
    tables->source = SBP_NEW(arena, const double *, tables->slots);
    tables->columns = SBP_NEW(arena, size_t, tables->slots);
    tables->straight = SBP_NEW(arena, const double *, tables->slots);
    tables->turned = SBP_NEW(arena, const double *, tables->slots);
    return tables->source != NULL && tables->columns != NULL && tables->straight != NULL &&
           tables->turned != NULL;
}

/* An upper bound of how much two allowed choices differ: what a forbidden pair costs. */
static double forbidden_cost(const struct sbp_problem *problem)
{
    double sum = 1;
    for (int v = 0; v < problem->variable_count; v++) {
        double least = INFINITY, most = -INFINITY;
        for (int k = 0; k < problem->variable[v].domain; k++)
            if (problem->variable[v].cost[k] < SBP_FORBIDDEN) {
                least = fmin(least, problem->variable[v].cost[k]);
                most = fmax(most, problem->variable[v].cost[k]);
            }
        sum += most > least ? most - least : 0;
    }
    for (int e = 0; e < problem->edge_count; e++) {
        double least = INFINITY, most = -INFINITY;
        const size_t entries = sbp_problem_entries(problem, &problem->edge[e]);
        for (size_t i = 0; i < entries; i++)
            if (problem->edge[e].cost[i] < SBP_FORBIDDEN) {
                least = fmin(least, problem->edge[e].cost[i]);
                most = fmax(most, problem->edge[e].cost[i]);
            }
        sum += most > least ? most - least : 0;
    }
    return sum;
}

/* Copies a table with a finite cost for what is forbidden; the table itself where nothing is. */
static const double *allow(struct sbp_dual *dual, const double *cost, size_t entries,
                           double forbidden)
{
    size_t i = 0;
    double least = INFINITY;
    for (size_t j = 0; j < entries; j++)
        least = fmin(least, cost[j]);
    while (i < entries && cost[i] < SBP_FORBIDDEN)
        i++;
    if (i == entries)
        return cost;
    double *copy = SBP_TAKE(&dual->arena, double, entries);
    for (size_t j = 0; copy != NULL && j < entries; j++)
        copy[j] =
            cost[j] < SBP_FORBIDDEN ? cost[j] : (least < SBP_FORBIDDEN ? least : 0) + forbidden;
    return copy;
}

static bool turn_table(struct sbp_dual *dual, struct turned *tables, const struct sbp_edge *edge,
                       double forbidden, size_t *slot)
{
    const size_t rows = (size_t)dual->domain[edge->a], columns = (size_t)dual->domain[edge->b];
    *slot = table_slot(tables, edge->cost, columns);
    if (tables->source[*slot] != NULL)
        return true;
    const double *straight = allow(dual, edge->cost, rows * columns, forbidden);
    double *turned = SBP_TAKE(&dual->arena, double, rows *columns);
    if (straight == NULL || turned == NULL)
        return false;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            turned[j * rows + i] = straight[i * columns + j];
    tables->source[*slot] = edge->cost;
    tables->columns[*slot] = columns;
    tables->straight[*slot] = straight;
    tables->turned[*slot] = turned;
    return true;
}

/* --- links --- */

static void count_links(struct sbp_dual *dual, int *next)
{
    const struct sbp_problem *problem = dual->problem;
    for (int e = 0; e < problem->edge_count; e++) {
        dual->first[problem->edge[e].a + 1]++;
        dual->first[problem->edge[e].b + 1]++;
    }
    for (int v = 0; v < dual->variable_count; v++) {
        dual->first[v + 1] += dual->first[v];
        next[v] = dual->first[v];
    }
}

static enum sbp_status link_edges(struct sbp_dual *dual, double forbidden)
{
    const struct sbp_problem *problem = dual->problem;
    struct turned tables;
    int *next = SBP_NEW(&dual->arena, int, (size_t)dual->variable_count + 1);
    dual->first = SBP_NEW(&dual->arena, int, (size_t)dual->variable_count + 1);
    dual->link = SBP_NEW(&dual->arena, struct sbp_dual_link, 2 * (size_t)problem->edge_count);
    if (next == NULL || dual->first == NULL || dual->link == NULL ||
        !init_tables(&tables, problem->edge_count, &dual->arena))
        return SBP_E_MEMORY;
    count_links(dual, next);
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        double *forward = SBP_NEW(&dual->arena, double, dual->domain[edge->b]);
        double *back = SBP_NEW(&dual->arena, double, dual->domain[edge->a]);
        size_t slot;
        dual->entries += (double)sbp_problem_entries(problem, edge);
        if (forward == NULL || back == NULL || !turn_table(dual, &tables, edge, forbidden, &slot))
            return SBP_E_MEMORY;
        const double *straight = tables.straight[slot], *turned = tables.turned[slot];
        dual->link[next[edge->a]++] =
            (struct sbp_dual_link){edge->b, straight, turned, back, forward};
        dual->link[next[edge->b]++] =
            (struct sbp_dual_link){edge->a, turned, straight, forward, back};
    }
    return SBP_OK;
}

/* A variable's cost is shared by the chains through it, of which it has as many as it has edges to
 * one side at most. */
static void set_weights(struct sbp_dual *dual)
{
    for (int v = 0; v < dual->variable_count; v++) {
        int later = 0, earlier = 0;
        for (int i = dual->first[v]; i < dual->first[v + 1]; i++)
            *(dual->link[i].other > v ? &later : &earlier) += 1;
        const int most = later > earlier ? later : earlier;
        dual->weight[v] = 1.0 / (most > 1 ? most : 1);
    }
}

/* --- all --- */

/* Whether all costs are whole numbers that sums hold exactly. */
static bool is_whole(const struct sbp_problem *problem)
{
    double size = 0;
    for (int v = 0; v < problem->variable_count; v++)
        for (int k = 0; k < problem->variable[v].domain; k++) {
            const double cost = problem->variable[v].cost[k];
            if (cost < SBP_FORBIDDEN && cost != floor(cost))
                return false;
            size += cost < SBP_FORBIDDEN ? fabs(cost) : 0;
        }
    for (int e = 0; e < problem->edge_count; e++) {
        const size_t entries = sbp_problem_entries(problem, &problem->edge[e]);
        double most = 0;
        for (size_t i = 0; i < entries; i++) {
            const double cost = problem->edge[e].cost[i];
            if (cost < SBP_FORBIDDEN && cost != floor(cost))
                return false;
            most = fmax(most, cost < SBP_FORBIDDEN ? fabs(cost) : 0);
        }
        size += most;
    }
    return size < 1e15; /* below 2^53 */
}

static enum sbp_status copy_costs(struct sbp_dual *dual, double forbidden)
{
    const struct sbp_problem *problem = dual->problem;
    for (int v = 0; v < dual->variable_count; v++) {
        const int domain = problem->variable[v].domain;
        dual->domain[v] = domain;
        dual->values += domain;
        if (domain > dual->largest_domain)
            dual->largest_domain = domain;
        if (domain > 1)
            dual->open[dual->open_count++] = v;
        dual->cost[v] = SBP_TAKE(&dual->arena, double, domain);
        dual->priced[v] = SBP_TAKE(&dual->arena, double, domain);
        dual->barred[v] = SBP_NEW(&dual->arena, bool, domain);
        if (dual->cost[v] == NULL || dual->priced[v] == NULL || dual->barred[v] == NULL)
            return SBP_E_MEMORY;
        const double *allowed = allow(dual, problem->variable[v].cost, (size_t)domain, forbidden);
        if (allowed == NULL)
            return SBP_E_MEMORY;
        memcpy(dual->cost[v], allowed, (size_t)domain * sizeof *allowed);
    }
    return SBP_OK;
}

static bool allocate(struct sbp_dual *dual)
{
    const size_t variables = (size_t)dual->variable_count, points = (size_t)dual->point_count;
    dual->domain = SBP_NEW(&dual->arena, int, variables);
    dual->cost = SBP_NEW(&dual->arena, double *, variables);
    dual->priced = SBP_NEW(&dual->arena, double *, variables);
    dual->barred = SBP_NEW(&dual->arena, bool *, variables);
    dual->weight = SBP_NEW(&dual->arena, double, variables);
    dual->open = SBP_NEW(&dual->arena, int, variables);
    dual->room = SBP_NEW(&dual->arena, double, points);
    dual->price = SBP_NEW(&dual->arena, double, points);
    dual->prefix = SBP_NEW(&dual->arena, double, points + 1);
    dual->best_price = SBP_NEW(&dual->arena, double, points);
    return dual->domain != NULL && dual->cost != NULL && dual->priced != NULL &&
           dual->barred != NULL && dual->weight != NULL && dual->open != NULL &&
           dual->room != NULL && dual->price != NULL && dual->prefix != NULL &&
           dual->best_price != NULL;
}

enum sbp_status sbp_dual_init(struct sbp_dual *dual, const struct sbp_problem *problem,
                              struct sbp_solver_run *run)
{
    *dual = (struct sbp_dual){.problem = problem,
                              .run = run,
                              .arena.budget = problem->arena.budget,
                              .variable_count = problem->variable_count,
                              .largest_domain = 1,
                              .bound = -INFINITY};
    const double forbidden = forbidden_cost(problem);
    sbp_random_seed(&dual->random, run->options->seed);
    SBP_TRY(sbp_live_build(problem, &dual->arena, &dual->live));
    dual->point_count = dual->live.point_count;
    if (!allocate(dual))
        return SBP_E_MEMORY;
    SBP_TRY(copy_costs(dual, forbidden));
    SBP_TRY(link_edges(dual, forbidden));
    set_weights(dual);
    dual->share = SBP_NEW(&dual->arena, double, dual->largest_domain);
    dual->row = SBP_NEW(&dual->arena, double, dual->largest_domain);
    dual->other_row = SBP_NEW(&dual->arena, double, dual->largest_domain);
    dual->third_row = SBP_NEW(&dual->arena, double, dual->largest_domain);
    dual->is_whole = is_whole(problem);
    if (dual->share == NULL || dual->row == NULL || dual->other_row == NULL ||
        dual->third_row == NULL)
        return SBP_E_MEMORY;
    dual->limit = problem->capacity + SBP_CAPACITY_ROUND_OFF * fabs(problem->capacity);
    for (int p = 0; p < dual->point_count; p++)
        dual->room[p] = dual->limit;
    for (int v = 0; v < dual->variable_count; v++)
        if (dual->domain[v] == 1)
            sbp_live_add(&dual->live, v, 0, -1, dual->room);
        else
            dual->span_entries +=
                (double)dual->domain[v] * (dual->live.begin[v + 1] - dual->live.begin[v]);
    return SBP_OK;
}

void sbp_dual_free(struct sbp_dual *dual)
{
    sbp_arena_free(&dual->arena);
}

#include "planner/problem/problem.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROOM = 8 };

static uint64_t pair_hash(int a, int b)
{
    const uint64_t low = (uint64_t)(a < b ? a : b), high = (uint64_t)(a < b ? b : a);
    uint64_t hash = (low << 32 | high) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* The slot of the pair's edge, or the free slot where it would go. */
static int find_slot(const struct sbp_problem *problem, int a, int b)
{
    const uint64_t mask = (uint64_t)problem->slot_count - 1;
    uint64_t at = pair_hash(a, b) & mask;
    for (; problem->slot[at] != 0; at = (at + 1) & mask) {
        const struct sbp_edge *edge = &problem->edge[problem->slot[at] - 1];
        if ((edge->a == a && edge->b == b) || (edge->a == b && edge->b == a))
            break;
    }
    return (int)at;
}

static void index_edges(struct sbp_problem *problem)
{
    memset(problem->slot, 0, (size_t)problem->slot_count * sizeof *problem->slot);
    for (int e = 0; e < problem->edge_count; e++)
        problem->slot[find_slot(problem, problem->edge[e].a, problem->edge[e].b)] = e + 1;
}

/* Makes room for so many edges; slots stay at most half full, so that probing is short. */
static bool reserve_edges(struct sbp_problem *problem, int room)
{
    if (room > INT_MAX / 4)
        return false;
    int slots = 2 * LEAST_ROOM;
    while (slots < 2 * room)
        slots *= 2;
    struct sbp_edge *edges = SBP_NEW(&problem->arena, struct sbp_edge, room);
    int *slot = SBP_NEW(&problem->arena, int, slots);
    if (edges == NULL || slot == NULL)
        return false;
    if (problem->edge_count > 0)
        memcpy(edges, problem->edge, (size_t)problem->edge_count * sizeof *edges);
    problem->edge = edges;
    problem->edge_room = room;
    problem->slot = slot;
    problem->slot_count = slots;
    index_edges(problem);
    return true;
}

static bool reserve_variables(struct sbp_problem *problem, int room)
{
    struct sbp_variable *variables = SBP_NEW(&problem->arena, struct sbp_variable, room);
    if (variables == NULL)
        return false;
    if (problem->variable_count > 0)
        memcpy(variables, problem->variable, (size_t)problem->variable_count * sizeof *variables);
    problem->variable = variables;
    problem->variable_room = room;
    return true;
}

enum sbp_status sbp_problem_init_within(struct sbp_problem *problem, int variables, int edges,
                                        struct sbp_arena_budget *budget)
{
    *problem = (struct sbp_problem){.arena.budget = budget, .capacity = INFINITY};
    if (!reserve_variables(problem, variables < LEAST_ROOM ? LEAST_ROOM : variables) ||
        !reserve_edges(problem, edges < LEAST_ROOM ? LEAST_ROOM : edges))
        return SBP_E_MEMORY;
    return SBP_OK;
}

enum sbp_status sbp_problem_init(struct sbp_problem *problem, int variables, int edges)
{
    return sbp_problem_init_within(problem, variables, edges, NULL);
}

void sbp_problem_free(struct sbp_problem *problem)
{
    if (problem == NULL)
        return;
    sbp_arena_free(&problem->arena);
    *problem = (struct sbp_problem){.capacity = INFINITY};
}

int sbp_problem_add_variable(struct sbp_problem *problem, const char *name, int domain,
                             int interval_count, const struct sbp_interval *intervals)
{
    assert(domain >= 1 && interval_count >= 0);
    if (problem->variable_count == problem->variable_room &&
        (problem->variable_room > INT_MAX / 2 ||
         !reserve_variables(problem, 2 * problem->variable_room)))
        return -1;
    struct sbp_variable variable = {.domain = domain, .interval_count = interval_count};
    const size_t length =
        strlen(name) < sizeof variable.name ? strlen(name) : sizeof variable.name - 1;
    memcpy(variable.name, name, length);
    variable.cost = SBP_NEW(&problem->arena, double, domain);
    if (variable.cost == NULL)
        return -1;
    if (interval_count > 0) {
        const size_t count = (size_t)interval_count;
        struct sbp_interval *copy = SBP_NEW(&problem->arena, struct sbp_interval, count);
        variable.usage = sbp_arena_alloc(&problem->arena, count, (size_t)domain * sizeof(double));
        if (copy == NULL || variable.usage == NULL)
            return -1;
        memcpy(copy, intervals, count * sizeof *copy);
        variable.interval = copy;
    }
    problem->variable[problem->variable_count] = variable;
    return problem->variable_count++;
}

bool sbp_problem_share_table(struct sbp_problem *problem, int a, int b, double *table)
{
    if (problem->edge_count == problem->edge_room &&
        !reserve_edges(problem, 2 * problem->edge_room))
        return false;
    problem->slot[find_slot(problem, a, b)] = problem->edge_count + 1;
    problem->edge[problem->edge_count++] = (struct sbp_edge){.a = a, .b = b, .cost = table};
    return true;
}

double *sbp_problem_edge_table(struct sbp_problem *problem, int a, int b, bool *transposed)
{
    assert(a != b && a >= 0 && b >= 0 && a < problem->variable_count &&
           b < problem->variable_count);
    const int known = problem->slot[find_slot(problem, a, b)];
    if (known != 0) {
        *transposed = problem->edge[known - 1].a != a;
        return problem->edge[known - 1].cost;
    }
    double *cost = sbp_arena_alloc(&problem->arena, (size_t)problem->variable[a].domain,
                                   (size_t)problem->variable[b].domain * sizeof *cost);
    *transposed = false;
    return cost != NULL && sbp_problem_share_table(problem, a, b, cost) ? cost : NULL;
}

static double edge_cost(const struct sbp_problem *problem, const struct sbp_edge *edge,
                        const int *choice)
{
    const size_t columns = (size_t)problem->variable[edge->b].domain;
    return edge->cost[(size_t)choice[edge->a] * columns + (size_t)choice[edge->b]];
}

double sbp_problem_cost(const struct sbp_problem *problem, const int *choice)
{
    double sum = 0;
    bool forbidden = false;
    for (int v = 0; v < problem->variable_count; v++) {
        const double cost = problem->variable[v].cost[choice[v]];
        forbidden |= cost >= SBP_FORBIDDEN;
        sum += cost;
    }
    for (int e = 0; e < problem->edge_count; e++) {
        const double cost = edge_cost(problem, &problem->edge[e], choice);
        forbidden |= cost >= SBP_FORBIDDEN;
        sum += cost;
    }
    return forbidden ? SBP_FORBIDDEN : sum;
}

struct usage_event {
    int64_t time;
    double change;
};

/* Ends (negative changes) come before starts: intervals are half-open. */
static int compare_events(const void *left, const void *right)
{
    const struct usage_event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return (a->change > b->change) - (a->change < b->change);
}

static size_t collect_events(const struct sbp_problem *problem, const int *choice,
                             struct usage_event *events)
{
    size_t count = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        const struct sbp_variable *variable = &problem->variable[v];
        for (int i = 0; i < variable->interval_count; i++) {
            const struct sbp_interval interval = variable->interval[i];
            const double usage =
                variable->usage[(size_t)i * (size_t)variable->domain + (size_t)choice[v]];
            if (interval.from >= interval.to || usage == 0)
                continue;
            events[count++] = (struct usage_event){interval.from, usage};
            events[count++] = (struct usage_event){interval.to, -usage};
        }
    }
    return count;
}

double sbp_problem_peak_usage(const struct sbp_problem *problem, const int *choice)
{
    size_t room = 0;
    for (int v = 0; v < problem->variable_count; v++)
        room += 2 * (size_t)problem->variable[v].interval_count;
    if (room == 0)
        return 0;
    struct usage_event *events = calloc(room, sizeof *events);
    if (events == NULL)
        return INFINITY;
    const size_t count = collect_events(problem, choice, events);
    qsort(events, count, sizeof *events, compare_events);
    double usage = 0, peak = 0;
    for (size_t i = 0; i < count; i++) {
        usage += events[i].change;
        peak = usage > peak ? usage : peak;
    }
    free(events);
    return peak;
}

bool sbp_problem_fits(const struct sbp_problem *problem, double usage)
{
    return usage <= problem->capacity + SBP_CAPACITY_ROUND_OFF * fabs(problem->capacity);
}

/* A copy of the edge's table: entry (i, j) is the cost of from = i and the other end = j. */
static double *rows_of(const struct sbp_problem *problem, const struct sbp_edge *edge, int from,
                       struct sbp_arena *scratch)
{
    const size_t rows = (size_t)problem->variable[edge->a].domain;
    const size_t columns = (size_t)problem->variable[edge->b].domain;
    double *copy = sbp_arena_alloc(scratch, rows, columns * sizeof *copy);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            copy[edge->a == from ? i * columns + j : j * rows + i] = edge->cost[i * columns + j];
    return copy;
}

/* least[j] = min over k of own[k] + to_right[k][j]; best[j]: that k. Skips forbidden terms. */
static void minimise_row(const double *own, const double *to_right, size_t domain, size_t columns,
                         double *least, int *best)
{
    for (size_t j = 0; j < columns; j++) {
        least[j] = SBP_FORBIDDEN;
        best[j] = 0;
    }
    for (size_t k = 0; k < domain; k++) {
        if (own[k] >= SBP_FORBIDDEN)
            continue;
        for (size_t j = 0; j < columns; j++) {
            const double part = to_right == NULL ? 0 : to_right[k * columns + j];
            const double cost = part >= SBP_FORBIDDEN ? SBP_FORBIDDEN : own[k] + part;
            best[j] = cost < least[j] ? (int)k : best[j];
            least[j] = cost < least[j] ? cost : least[j];
        }
    }
}

/* own[k]: the variable's cost plus its edge to the left neighbour at value i. to_left: rows are the
 * left neighbour's values; NULL when there is none. */
static void own_costs(const struct sbp_variable *variable, const double *to_left, size_t i,
                      double *own)
{
    const size_t domain = (size_t)variable->domain;
    for (size_t k = 0; k < domain; k++)
        own[k] =
            sbp_problem_add_costs(variable->cost[k], to_left == NULL ? 0 : to_left[i * domain + k]);
}

/* Finds the variable's edges: at most two, else false. */
static bool find_edges(const struct sbp_problem *problem, int variable, int *found, int *count)
{
    *count = 0;
    for (int e = 0; e < problem->edge_count; e++) {
        if (problem->edge[e].a != variable && problem->edge[e].b != variable)
            continue;
        if (*count == 2)
            return false;
        found[(*count)++] = e;
    }
    return true;
}

static bool uses_nothing(const struct sbp_variable *variable)
{
    for (int i = 0; i < variable->interval_count; i++)
        for (int k = 0; k < variable->domain; k++)
            if (variable->usage[(size_t)i * (size_t)variable->domain + (size_t)k] > 0 &&
                variable->interval[i].from < variable->interval[i].to)
                return false;
    return true;
}

static int other_end(const struct sbp_edge *edge, int variable)
{
    return edge->a == variable ? edge->b : edge->a;
}

/* Table that takes the minimised cost: the neighbours' edge, the only neighbour's costs, or its
 * own. */
struct elimination_target {
    double *cost;
    size_t row_stride, column_stride;
};

static bool find_target(struct sbp_problem *problem, const struct sbp_elimination *step,
                        struct elimination_target *target)
{
    *target = (struct elimination_target){.row_stride = 1, .column_stride = 1};
    if (step->right >= 0) {
        bool transposed = false;
        target->cost = sbp_problem_edge_table(problem, step->left, step->right, &transposed);
        if (transposed)
            target->column_stride = (size_t)problem->variable[step->left].domain;
        else
            target->row_stride = (size_t)problem->variable[step->right].domain;
    } else if (step->left >= 0) {
        target->cost = problem->variable[step->left].cost;
    } else {
        target->cost = problem->variable[step->variable].cost;
    }
    return target->cost != NULL;
}

static void detach(struct sbp_problem *problem, int variable)
{
    int kept = 0;
    for (int e = 0; e < problem->edge_count; e++)
        if (problem->edge[e].a != variable && problem->edge[e].b != variable)
            problem->edge[kept++] = problem->edge[e];
    problem->edge_count = kept;
    index_edges(problem);
    problem->variable[variable].domain = 1;
    problem->variable[variable].interval_count = 0;
}

/* Minimises the variable into target, with its edges' tables and two rows in scratch. */
static enum sbp_status minimise_out(struct sbp_problem *problem, struct sbp_elimination *step,
                                    const int *edges, struct sbp_arena *scratch)
{
    const struct sbp_variable *variable = &problem->variable[step->variable];
    const size_t domain = (size_t)variable->domain, columns = (size_t)step->right_domain;
    const size_t rows = step->left < 0 ? 1 : (size_t)problem->variable[step->left].domain;
    const double *to_left = NULL, *to_right = NULL;
    if (step->left >= 0)
        to_left = rows_of(problem, &problem->edge[edges[0]], step->left, scratch);
    if (step->right >= 0)
        to_right = rows_of(problem, &problem->edge[edges[1]], step->variable, scratch);
    double *own = SBP_NEW(scratch, double, domain);
    double *least = SBP_NEW(scratch, double, columns);
    struct elimination_target target;
    step->best = sbp_arena_alloc(&problem->arena, rows, columns * sizeof *step->best);
    if (own == NULL || least == NULL || step->best == NULL ||
        (step->left >= 0 && to_left == NULL) || (step->right >= 0 && to_right == NULL) ||
        !find_target(problem, step, &target))
        return SBP_E_MEMORY;
    for (size_t i = 0; i < rows; i++) {
        own_costs(variable, to_left, i, own);
        minimise_row(own, to_right, domain, columns, least, step->best + i * columns);
        for (size_t j = 0; j < columns; j++) {
            double *cost = &target.cost[i * target.row_stride + j * target.column_stride];
            *cost = step->left < 0 ? least[j] : sbp_problem_add_costs(*cost, least[j]);
        }
    }
    return SBP_OK;
}

enum sbp_status sbp_problem_eliminate(struct sbp_problem *problem, int variable,
                                      struct sbp_elimination *step)
{
    int edges[2] = {0, 0}, degree;
    if (!uses_nothing(&problem->variable[variable]) ||
        !find_edges(problem, variable, edges, &degree))
        return SBP_E_UNSUPPORTED;
    *step =
        (struct sbp_elimination){.variable = variable, .left = -1, .right = -1, .right_domain = 1};
    if (degree >= 1)
        step->left = other_end(&problem->edge[edges[0]], variable);
    if (degree == 2) {
        step->right = other_end(&problem->edge[edges[1]], variable);
        step->right_domain = problem->variable[step->right].domain;
    }
    struct sbp_arena scratch = {.budget = problem->arena.budget};
    const enum sbp_status status = minimise_out(problem, step, edges, &scratch);
    sbp_arena_free(&scratch);
    if (status != SBP_OK)
        return status;
    if (degree > 0)
        problem->variable[variable].cost[0] = 0;
    detach(problem, variable);
    return SBP_OK;
}

void sbp_problem_recover(const struct sbp_problem *problem, const struct sbp_elimination *step,
                         int *choice)
{
    (void)problem; /* the step holds the domains it needs */
    size_t at = 0;
    if (step->left >= 0)
        at = (size_t)choice[step->left];
    if (step->right >= 0)
        at = at * (size_t)step->right_domain + (size_t)choice[step->right];
    choice[step->variable] = step->best[at];
}

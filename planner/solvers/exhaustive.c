#include <math.h>
#include <string.h>

#include "base/math/simd.h"
#include "planner/limits.h"
#include "planner/problem/live_ranges.h"
#include "planner/solvers/solver_run.h"

/* log2 of SBP_PROBLEM_LIMITED_SIZE, rounded up, as every level has at least two values. */
enum { MOST_LEVELS = 60 };

/* An edge from a level to an outer one: table[outer choice][own choice]. */
struct back_edge {
    int outer;
    const double *table;
};

struct level {
    int variable, domain;
    double *own;            /* (domain) costs of the variable alone; INFINITY: forbidden */
    int back_count;         /* edges to outer levels; none at the innermost level */
    struct back_edge *back; /* (back_count) tables (outer domain, domain) */
    const double *to_inner; /* (domain, inner domain) edge to the innermost level, or NULL */
    double *sums;           /* (inner domain) costs of the innermost level, down to here */
    double *usage;          /* (points) of the choices down to here */
};

struct exhaustive {
    struct sbp_solver_run search;
    struct sbp_arena arena;
    struct sbp_live live;
    double limit; /* capacity plus round-off */
    int level_count;
    struct level level[MOST_LEVELS];
    size_t row_length; /* domain of the innermost level */
    double constant;   /* cost of variables with one value */
    double *zeros, *row, *row_peak;
    double *fixed_usage; /* (points) of variables with one value */
    int inner_count;     /* points at which the innermost level is live */
    int *inner_point;    /* (inner_count) */
    double *inner_usage; /* (inner_count, inner domain) */
    double least_peak;   /* of assignments that are not forbidden, until one is feasible */
    int *choice;         /* (variable_count) */
    int at[MOST_LEVELS]; /* values of the levels */
};

/* least[i] = min(least[i], a[i] + b[i] + outer), the innermost loop of the search. It keeps a
 * minimum per entry because compilers vectorise a reduction only under -ffast-math, which breaks
 * infinities. */
SBP_SIMD
static void lower_row(double *restrict least, const double *restrict a, const double *restrict b,
                      double outer, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double sum = a[i] + b[i] + outer;
        least[i] = sum < least[i] ? sum : least[i];
    }
}

/* --- tables --- */

static int level_of(const struct exhaustive *exhaustive, int variable)
{
    for (int l = 0; l < exhaustive->level_count; l++)
        if (exhaustive->level[l].variable == variable)
            return l;
    return -1;
}

/* Takes levels in the order of variables, but the largest domain innermost: long rows run fastest.
 */
static void choose_levels(struct exhaustive *exhaustive)
{
    const struct sbp_problem *problem = exhaustive->search.problem;
    int inner = -1;
    for (int v = 0; v < problem->variable_count; v++)
        if (problem->variable[v].domain > 1 &&
            (inner < 0 || problem->variable[v].domain >= problem->variable[inner].domain))
            inner = v;
    if (inner < 0)
        return;
    for (int v = 0; v < problem->variable_count; v++)
        if (problem->variable[v].domain > 1 && v != inner)
            exhaustive->level[exhaustive->level_count++].variable = v;
    exhaustive->level[exhaustive->level_count++].variable = inner;
    exhaustive->row_length = (size_t)problem->variable[inner].domain;
}

static bool init_level(struct exhaustive *exhaustive, int l)
{
    struct level *level = &exhaustive->level[l];
    const struct sbp_variable *variable = &exhaustive->search.problem->variable[level->variable];
    level->own = SBP_NEW(&exhaustive->arena, double, variable->domain);
    level->domain = variable->domain;
    level->back = SBP_NEW(&exhaustive->arena, struct back_edge, l);
    level->sums = SBP_NEW(&exhaustive->arena, double, exhaustive->row_length);
    level->usage = SBP_NEW(&exhaustive->arena, double, exhaustive->live.point_count);
    if (level->own == NULL || level->back == NULL || level->sums == NULL || level->usage == NULL)
        return false;
    for (int k = 0; k < variable->domain; k++)
        level->own[k] = sbp_problem_usable(variable->cost[k]);
    return true;
}

/* A copy of the edge's table whose rows are the outer variable's values. */
static double *copy_rows(struct exhaustive *exhaustive, const struct sbp_edge *edge, int outer)
{
    const struct sbp_problem *problem = exhaustive->search.problem;
    const size_t rows = (size_t)problem->variable[edge->a].domain;
    const size_t columns = (size_t)problem->variable[edge->b].domain;
    const bool straight = edge->a == outer;
    double *copy = SBP_NEW(&exhaustive->arena, double, (rows * columns));
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            copy[straight ? i * columns + j : j * rows + i] =
                sbp_problem_usable(edge->cost[i * columns + j]);
    return copy;
}

/* Adds an edge with an end of one value to the other end's own costs, or to the constant. */
static void fold_edge(struct exhaustive *exhaustive, const struct sbp_edge *edge, int a, int b)
{
    const int kept = a >= 0 ? a : b;
    if (kept < 0) {
        exhaustive->constant += sbp_problem_usable(edge->cost[0]);
        return;
    }
    struct level *level = &exhaustive->level[kept];
    for (int k = 0; k < level->domain; k++)
        level->own[k] += sbp_problem_usable(edge->cost[k]);
}

static bool add_edge(struct exhaustive *exhaustive, const struct sbp_edge *edge)
{
    const int a = level_of(exhaustive, edge->a), b = level_of(exhaustive, edge->b);
    if (a < 0 || b < 0) {
        fold_edge(exhaustive, edge, a, b);
        return true;
    }
    const int outer = a < b ? a : b, inner = a < b ? b : a;
    const bool innermost = inner == exhaustive->level_count - 1;
    struct level *reader = &exhaustive->level[inner];
    const double *table = copy_rows(exhaustive, edge, exhaustive->level[outer].variable);
    if (table == NULL)
        return false;
    if (innermost)
        exhaustive->level[outer].to_inner = table;
    else
        reader->back[reader->back_count++] = (struct back_edge){outer, table};
    return true;
}

/* Lists the usages of the innermost level, a row for each point of time at which it is live. */
static bool list_inner_points(struct exhaustive *exhaustive)
{
    if (exhaustive->level_count == 0)
        return true;
    const struct sbp_live *live = &exhaustive->live;
    const int inner = exhaustive->level[exhaustive->level_count - 1].variable;
    const size_t domain = exhaustive->row_length, points = (size_t)live->point_count;
    exhaustive->inner_point = SBP_NEW(&exhaustive->arena, int, points);
    exhaustive->inner_usage = sbp_arena_alloc(&exhaustive->arena, points, domain * sizeof(double));
    if (exhaustive->inner_point == NULL || exhaustive->inner_usage == NULL)
        return false;
    for (int p = 0; p < live->point_count; p++) {
        double *row = exhaustive->inner_usage + (size_t)exhaustive->inner_count * domain;
        bool is_live = false;
        for (int s = live->begin[inner]; s < live->begin[inner + 1]; s++) {
            if (live->span[s].first > p || p >= live->span[s].last)
                continue;
            is_live = true;
            for (size_t k = 0; k < domain; k++)
                row[k] += live->span[s].usage[k];
        }
        if (is_live)
            exhaustive->inner_point[exhaustive->inner_count++] = p;
    }
    return true;
}

static bool build(struct exhaustive *exhaustive)
{
    const struct sbp_problem *problem = exhaustive->search.problem;
    if (sbp_live_build(problem, &exhaustive->arena, &exhaustive->live) != SBP_OK)
        return false;
    choose_levels(exhaustive);
    exhaustive->zeros = SBP_NEW(&exhaustive->arena, double, exhaustive->row_length);
    exhaustive->row = SBP_NEW(&exhaustive->arena, double, exhaustive->row_length);
    exhaustive->row_peak = SBP_NEW(&exhaustive->arena, double, exhaustive->row_length);
    exhaustive->fixed_usage = SBP_NEW(&exhaustive->arena, double, exhaustive->live.point_count);
    exhaustive->choice = SBP_NEW(&exhaustive->arena, int, problem->variable_count);
    if (exhaustive->zeros == NULL || exhaustive->row == NULL || exhaustive->row_peak == NULL ||
        exhaustive->fixed_usage == NULL || exhaustive->choice == NULL)
        return false;
    for (int l = 0; l < exhaustive->level_count; l++)
        if (!init_level(exhaustive, l))
            return false;
    if (!list_inner_points(exhaustive))
        return false;
    for (int v = 0; v < problem->variable_count; v++) {
        if (problem->variable[v].domain > 1)
            continue;
        exhaustive->constant += sbp_problem_usable(problem->variable[v].cost[0]);
        sbp_live_add(&exhaustive->live, v, 0, 1, exhaustive->fixed_usage);
    }
    for (int e = 0; e < problem->edge_count; e++)
        if (!add_edge(exhaustive, &problem->edge[e]))
            return false;
    return true;
}

/* --- the search --- */

static void take(struct exhaustive *exhaustive, double cost)
{
    for (int l = 0; l < exhaustive->level_count; l++)
        exhaustive->choice[exhaustive->level[l].variable] = exhaustive->at[l];
    sbp_solver_run_offer(&exhaustive->search, exhaustive->choice, cost);
}

/* Rules out the entries of exhaustive->row whose usage passes the limit, and notes the least peak.
 * usage: (points) of the outer levels. */
static void limit_row(struct exhaustive *exhaustive, const double *usage)
{
    const struct level *inner = &exhaustive->level[exhaustive->level_count - 1];
    const struct sbp_live *live = &exhaustive->live;
    const size_t count = (size_t)inner->domain;
    double *row = exhaustive->row, *peak = exhaustive->row_peak;
    double outer_peak = 0;
    for (int p = 0; p < live->point_count; p++)
        outer_peak = usage[p] > outer_peak ? usage[p] : outer_peak;
    for (size_t k = 0; k < count; k++)
        peak[k] = outer_peak;
    for (int i = 0; i < exhaustive->inner_count; i++) {
        const double *own = exhaustive->inner_usage + (size_t)i * count;
        const double outer = usage[exhaustive->inner_point[i]];
        for (size_t k = 0; k < count; k++)
            peak[k] = outer + own[k] > peak[k] ? outer + own[k] : peak[k];
    }
    for (size_t k = 0; k < count; k++) {
        if (row[k] < INFINITY && peak[k] < exhaustive->least_peak)
            exhaustive->least_peak = peak[k];
        row[k] = peak[k] > exhaustive->limit ? INFINITY : row[k];
    }
}

/* Prices a row under a capacity: all values i of the innermost level, a[i] + b[i] + outer. */
static void price_limited_row(struct exhaustive *exhaustive, double outer, const double *usage,
                              const double *a, const double *b)
{
    double *row = exhaustive->row;
    for (size_t i = 0; i < exhaustive->row_length; i++)
        row[i] = a[i] + b[i] + outer;
    limit_row(exhaustive, usage);
    size_t best = 0;
    for (size_t i = 1; i < exhaustive->row_length; i++)
        best = row[i] < row[best] ? i : best;
    if (!(row[best] < exhaustive->search.solution->cost))
        return;
    exhaustive->at[exhaustive->level_count - 1] = (int)best;
    take(exhaustive, row[best]);
}

static double level_cost(const struct exhaustive *exhaustive, const struct level *level, int value)
{
    double cost = level->own[value];
    for (int i = 0; i < level->back_count; i++)
        cost += level->back[i]
                    .table[(size_t)exhaustive->at[level->back[i].outer] * (size_t)level->domain +
                           (size_t)value];
    return cost;
}

static const double *inner_row(const struct exhaustive *exhaustive, const struct level *level,
                               int value)
{
    return level->to_inner == NULL ? exhaustive->zeros
                                   : level->to_inner + (size_t)value * exhaustive->row_length;
}

/* Takes the sheet's least entry when it is the best so far. Sums it anew row by row to find its
 * row. */
static void take_sheet(struct exhaustive *exhaustive, double outer, const double *sums, int rows)
{
    const int l = exhaustive->level_count - 2;
    const struct level *level = &exhaustive->level[l];
    const double *least = exhaustive->row;
    size_t best = 0;
    for (size_t i = 1; i < exhaustive->row_length; i++)
        best = least[i] < least[best] ? i : best;
    if (!(least[best] < exhaustive->search.solution->cost))
        return;
    for (int k = 0; k < rows; k++) {
        const double cost = outer + level_cost(exhaustive, level, k);
        if (sums[best] + inner_row(exhaustive, level, k)[best] + cost > least[best])
            continue;
        exhaustive->at[l] = k;
        exhaustive->at[l + 1] = (int)best;
        take(exhaustive, least[best]);
        return;
    }
}

/* Prices a sheet: all values of the two innermost levels, without a capacity. */
static bool price_sheet(struct exhaustive *exhaustive, double outer, const double *sums)
{
    const struct level *level = &exhaustive->level[exhaustive->level_count - 2];
    for (size_t i = 0; i < exhaustive->row_length; i++)
        exhaustive->row[i] = INFINITY;
    int k = 0;
    bool over = false;
    for (; k < level->domain && !over; k++) {
        const double cost = outer + level_cost(exhaustive, level, k);
        lower_row(exhaustive->row, sums, inner_row(exhaustive, level, k), cost,
                  exhaustive->row_length);
        exhaustive->search.solution->evaluations += (int64_t)exhaustive->row_length;
        over = sbp_solver_run_over(&exhaustive->search);
    }
    take_sheet(exhaustive, outer, sums, k);
    return !over;
}

/* Enumerates level l and all further in. sums, usage: of the levels outside l. False when the
 * search must stop. */
static bool descend(struct exhaustive *exhaustive, int l, double outer, const double *sums,
                    const double *usage)
{
    struct level *level = &exhaustive->level[l];
    const size_t points = (size_t)exhaustive->live.point_count;
    const bool is_next_to_innermost = l == exhaustive->level_count - 2;
    if (is_next_to_innermost && points == 0)
        return price_sheet(exhaustive, outer, sums);
    for (int k = 0; k < level->domain; k++) {
        exhaustive->at[l] = k;
        const double cost = outer + level_cost(exhaustive, level, k);
        const double *row = inner_row(exhaustive, level, k);
        if (points > 0) {
            memcpy(level->usage, usage, points * sizeof *usage);
            sbp_live_add(&exhaustive->live, level->variable, k, 1, level->usage);
        }
        if (is_next_to_innermost) {
            price_limited_row(exhaustive, cost, level->usage, sums, row);
            exhaustive->search.solution->evaluations += (int64_t)exhaustive->row_length;
            if (sbp_solver_run_over(&exhaustive->search))
                return false;
            continue;
        }
        for (size_t i = 0; i < exhaustive->row_length; i++)
            level->sums[i] = sums[i] + row[i];
        if (!descend(exhaustive, l + 1, cost, level->sums, level->usage))
            return false;
    }
    return true;
}

/* Whether every assignment was seen. */
static bool enumerate(struct exhaustive *exhaustive)
{
    const int count = exhaustive->level_count;
    if (count >= 2)
        return descend(exhaustive, 0, exhaustive->constant, exhaustive->level[count - 1].own,
                       exhaustive->fixed_usage);
    if (count == 1) {
        price_limited_row(exhaustive, exhaustive->constant, exhaustive->fixed_usage,
                          exhaustive->level[0].own, exhaustive->zeros);
        exhaustive->search.solution->evaluations += (int64_t)exhaustive->row_length;
        return true;
    }
    exhaustive->search.solution->evaluations++;
    double peak = 0;
    for (int p = 0; p < exhaustive->live.point_count; p++)
        peak = fmax(peak, exhaustive->fixed_usage[p]);
    if (exhaustive->constant < INFINITY && peak <= exhaustive->limit)
        take(exhaustive, exhaustive->constant);
    else if (exhaustive->constant < INFINITY)
        exhaustive->least_peak = peak;
    return true;
}

static double space_size(const struct sbp_problem *problem)
{
    double size = 1;
    for (int v = 0; v < problem->variable_count; v++)
        size *= problem->variable[v].domain;
    return size;
}

static enum sbp_status check_size(const struct sbp_problem *problem,
                                  const struct sbp_solver_options *options, struct sbp_diag *diag)
{
    const double size = space_size(problem);
    const bool limited = options->time_limit_s > 0 || options->max_evaluations > 0;
    if (size <= (limited ? SBP_PROBLEM_LIMITED_SIZE : SBP_PROBLEM_UNLIMITED_SIZE))
        return SBP_OK;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "exhaustive: the problem has %.3g assignments; at most %.0e are enumerated, or "
                    "%.0e under a time or evaluation limit",
                    size, SBP_PROBLEM_UNLIMITED_SIZE, SBP_PROBLEM_LIMITED_SIZE);
}

enum sbp_status sbp_exhaustive_solve(const struct sbp_problem *problem,
                                     const struct sbp_solver_options *options,
                                     struct sbp_solution *solution, struct sbp_diag *diag)
{
    SBP_TRY(check_size(problem, options, diag));
    struct exhaustive exhaustive = {.limit = problem->capacity, .least_peak = INFINITY};
    if (problem->capacity < INFINITY)
        exhaustive.limit += SBP_CAPACITY_ROUND_OFF * fabs(problem->capacity);
    sbp_arena_init(&exhaustive.arena);
    enum sbp_status status = sbp_solver_run_begin(&exhaustive.search, problem, options, solution);
    if (status == SBP_OK && !build(&exhaustive))
        status = SBP_E_MEMORY;
    if (status == SBP_OK) {
        solution->lower_bound = sbp_solver_run_trivial_bound(problem);
        const bool proved = !sbp_solver_run_over(&exhaustive.search) && enumerate(&exhaustive);
        sbp_solver_run_end(&exhaustive.search, proved);
        if (solution->status == SBP_PLAN_INFEASIBLE && exhaustive.least_peak < INFINITY)
            solution->shortfall = exhaustive.least_peak - problem->capacity;
    }
    sbp_arena_free(&exhaustive.arena);
    return sbp_solver_run_result(status, "exhaustive", solution, diag);
}

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "planner/limits.h"
#include "planner/solvers/bucket_elimination_priv.h"
#include "planner/solvers/pareto_labels_priv.h"
#include "planner/solvers/solver_run.h"

struct exact {
    const struct sbp_problem *problem;
    struct sbp_solver_run search;
    struct sbp_elimination_tree tree;
    struct sbp_live live;
    struct sbp_arena arena;
    double *rows;       /* scratch of passes over the tables */
    int *choice;        /* (variable_count) scratch */
    double *price;      /* (points) prices of the best bound so far */
    double *trial;      /* (points) prices of this round */
    double *usage;      /* (points) usage of this round's choice */
    double *room;       /* (points) capacity less the usage of variables with one value */
    bool peak_is_asked; /* an infeasible answer needs its shortfall */
};

static enum sbp_status prepare(struct exact *exact, struct sbp_diag *diag)
{
    const struct sbp_problem *problem = exact->problem;
    SBP_TRY(sbp_live_build(problem, &exact->arena, &exact->live));
    const size_t points = (size_t)exact->live.point_count;
    const double most_bytes =
        fmin(SBP_PROBLEM_EXACT_BYTES, (double)sbp_arena_budget_left(problem->arena.budget));
    /* Under a capacity every message has an outside table of the same size. */
    SBP_TRY(sbp_elimination_build(problem, points > 0 ? most_bytes / 2 : most_bytes, &exact->tree,
                                  diag));
    exact->rows = sbp_arena_alloc(&exact->arena, SBP_ELIMINATION_MOST_WIDTH + 1,
                                  exact->tree.largest_domain * sizeof *exact->rows);
    exact->choice = SBP_NEW(&exact->arena, int, problem->variable_count);
    exact->price = SBP_NEW(&exact->arena, double, points);
    exact->trial = SBP_NEW(&exact->arena, double, points);
    exact->usage = SBP_NEW(&exact->arena, double, points);
    exact->room = SBP_NEW(&exact->arena, double, points);
    if (exact->rows == NULL || exact->choice == NULL || exact->price == NULL ||
        exact->trial == NULL || exact->usage == NULL || exact->room == NULL)
        return SBP_E_MEMORY;
    for (size_t p = 0; p < points; p++)
        exact->room[p] = problem->capacity;
    for (int v = 0; v < problem->variable_count; v++)
        if (exact->tree.bucket_of[v] < 0)
            sbp_live_add(&exact->live, v, 0, -1, exact->room);
    return SBP_OK;
}

/* The search wants only choices that cost less than this. */
static double cutoff(const struct exact *exact)
{
    return fmin(exact->search.solution->cost, exact->search.upper_bound);
}

/* Options for a solver inside the search: the same seed and flag, and the time left. */
static struct sbp_solver_options inner_options(const struct sbp_solver_run *search)
{
    struct sbp_solver_options options = {.seed = search->options->seed,
                                         .stop = search->options->stop};
    if (search->options->time_limit_s > 0)
        options.time_limit_s =
            fmax(1e-6, search->options->time_limit_s - (sbp_clock_s() - search->start_s));
    return options;
}

/* Offers the result of a short coordinate descent: a first upper bound or, when the search was
 * stopped before it had a choice, some choice to return. */
static enum sbp_status offer_descent(struct exact *exact, struct sbp_diag *diag)
{
    const bool stopped = exact->search.solution->stopped;
    struct sbp_solver_options options = {.seed = exact->search.options->seed};
    if (!stopped)
        options = inner_options(&exact->search);
    options.restarts = stopped ? 1 : SBP_PROBLEM_DESCENT_RESTARTS;
    options.max_evaluations =
        stopped ? SBP_PROBLEM_STOPPED_EVALUATIONS : SBP_PROBLEM_DESCENT_EVALUATIONS;
    struct sbp_solution found;
    SBP_TRY(sbp_coordinate_descent_solve(exact->problem, &options, &found, diag));
    exact->search.solution->evaluations += found.evaluations;
    if (found.choice != NULL)
        sbp_solver_run_offer(&exact->search, found.choice, found.cost);
    sbp_solver_solution_free(&found);
    return SBP_OK;
}

/* One pass under the trial prices. *bound: least priced cost less price * capacity. Offers the
 * choice that attains it when it fits; leaves its usages in exact->usage. False when the search
 * must stop. */
static bool price_round(struct exact *exact, double *bound)
{
    sbp_elimination_price(&exact->tree, &exact->live, exact->trial);
    if (!sbp_elimination_up(&exact->tree, &exact->search, exact->rows, bound))
        return false;
    for (int p = 0; p < exact->live.point_count; p++)
        *bound -= exact->trial[p] * exact->room[p];
    if (!(*bound < INFINITY))
        return true;
    sbp_elimination_recover(&exact->tree, exact->rows, exact->choice);
    memset(exact->usage, 0, (size_t)exact->live.point_count * sizeof *exact->usage);
    bool feasible = true;
    for (int v = 0; v < exact->problem->variable_count; v++)
        sbp_live_add(&exact->live, v, exact->choice[v], 1, exact->usage);
    for (int p = 0; p < exact->live.point_count; p++)
        feasible &= sbp_problem_fits(exact->problem, exact->usage[p]);
    if (feasible)
        sbp_solver_run_offer(&exact->search, exact->choice,
                             sbp_problem_cost(exact->problem, exact->choice));
    return true;
}

/* Polyak's step: raises prices of points over the capacity, lowers those of points under it. False
 * when no step is left. */
static bool step_prices(struct exact *exact, double bound, double scale)
{
    const double best = cutoff(exact);
    const double target =
        best < INFINITY ? best : bound + SBP_PROBLEM_TARGET_RISE * fabs(bound) + 1e-300;
    const double capacity = exact->problem->capacity;
    double square = 0;
    for (int p = 0; p < exact->live.point_count; p++) {
        const double over = exact->usage[p] - capacity;
        if (over > 0 || exact->trial[p] > 0)
            square += over * over;
    }
    if (!(square > 0) || !(target > bound))
        return false;
    const double step = scale * (target - bound) / square;
    for (int p = 0; p < exact->live.point_count; p++)
        exact->trial[p] = fmax(0, exact->trial[p] + step * (exact->usage[p] - capacity));
    return true;
}

/* Raises the lower bound by pricing the capacity (Lagrangian relaxation, subgradient ascent) and
 * offers the feasible choices met on the way. False when the search must stop. */
static bool raise_bound(struct exact *exact)
{
    struct sbp_solution *solution = exact->search.solution;
    const size_t bytes = (size_t)exact->live.point_count * sizeof *exact->price;
    double scale = 1;
    memset(exact->trial, 0, bytes);
    for (int round = 0; round < SBP_PROBLEM_PRICE_ROUNDS; round++) {
        double bound;
        if (!price_round(exact, &bound))
            return false;
        if (bound > solution->lower_bound) {
            solution->lower_bound = bound;
            memcpy(exact->price, exact->trial, bytes);
        } else {
            scale *= SBP_PROBLEM_PRICE_DECAY;
        }
        if (cutoff(exact) <= solution->lower_bound || !step_prices(exact, bound, scale))
            break;
    }
    return true;
}

/* Whether variables with one value fit by themselves, which labels take for granted. */
static bool fixed_part_fits(const struct exact *exact)
{
    const double capacity = exact->problem->capacity;
    for (int p = 0; p < exact->live.point_count; p++)
        if (exact->room[p] < -SBP_CAPACITY_ROUND_OFF * fabs(capacity))
            return false;
    return true;
}

/* Lets labels decide what bounds left open. *proved is false when the search must stop. */
static enum sbp_status run_labels(struct exact *exact, bool *proved, struct sbp_diag *diag)
{
    struct sbp_pareto_result result;
    bool done;
    double bound;
    *proved = exact->tree.count == 0 || !fixed_part_fits(exact);
    if (*proved)
        return SBP_OK;
    sbp_elimination_price(&exact->tree, &exact->live, exact->price);
    if (!sbp_elimination_up(&exact->tree, &exact->search, exact->rows, &bound))
        return SBP_OK;
    if (sbp_elimination_down(&exact->tree, &exact->search, exact->rows, &done) != SBP_OK)
        return SBP_E_MEMORY;
    if (!done)
        return SBP_OK;
    SBP_TRY(sbp_pareto_solve(&exact->tree, &exact->live, exact->price, cutoff(exact),
                             &exact->search, exact->choice, &result, diag));
    if (result.found)
        sbp_solver_run_offer(&exact->search, exact->choice,
                             sbp_problem_cost(exact->problem, exact->choice));
    *proved = result.done;
    return SBP_OK;
}

/* A copy of the problem whose costs are usages: a value costs what `weigh` gives, a pair nothing;
 * forbidden ones stay so. The copy has usages and capacity only when `with_usages`. */
struct usage_problem {
    const struct sbp_problem *source;
    const struct sbp_live *live;
    int point; /* count the usage at this point of time; -1: at all points */
    bool with_usages;
};

static double weigh(const struct usage_problem *usages, int variable, int value)
{
    double sum = 0;
    for (int s = usages->live->begin[variable]; s < usages->live->begin[variable + 1]; s++) {
        const struct sbp_span *span = &usages->live->span[s];
        if (usages->point < 0)
            sum += span->usage[value] * (span->last - span->first);
        else if (span->first <= usages->point && usages->point < span->last)
            sum += span->usage[value];
    }
    return sum;
}

static enum sbp_status copy_usages(const struct usage_problem *usages, struct sbp_problem *copy)
{
    const struct sbp_problem *source = usages->source;
    SBP_TRY(sbp_problem_init_within(copy, source->variable_count, source->edge_count,
                                    source->arena.budget));
    for (int v = 0; v < source->variable_count; v++) {
        const struct sbp_variable *from = &source->variable[v];
        const int intervals = usages->with_usages ? from->interval_count : 0;
        if (sbp_problem_add_variable(copy, from->name, from->domain, intervals, from->interval) < 0)
            return SBP_E_MEMORY;
        for (int k = 0; k < from->domain; k++)
            copy->variable[v].cost[k] =
                from->cost[k] >= SBP_FORBIDDEN ? SBP_FORBIDDEN : weigh(usages, v, k);
        const size_t entries = (size_t)intervals * (size_t)from->domain;
        if (entries > 0)
            memcpy(copy->variable[v].usage, from->usage, entries * sizeof *from->usage);
    }
    for (int e = 0; e < source->edge_count; e++) {
        const struct sbp_edge *from = &source->edge[e];
        bool transposed; /* never: each pair has one edge */
        double *table = sbp_problem_edge_table(copy, from->a, from->b, &transposed);
        if (table == NULL)
            return SBP_E_MEMORY;
        const size_t entries = sbp_problem_entries(source, from);
        for (size_t i = 0; i < entries; i++)
            table[i] = from->cost[i] >= SBP_FORBIDDEN ? SBP_FORBIDDEN : 0;
    }
    copy->capacity = usages->with_usages ? source->capacity : INFINITY;
    return SBP_OK;
}

static enum sbp_status solve(const struct sbp_problem *problem,
                             const struct sbp_solver_options *options, bool peak_is_asked,
                             struct sbp_solution *solution, struct sbp_diag *diag);

/* The least usage that any choice has at one point of time, whatever the other points need. */
static enum sbp_status least_at_point(const struct exact *exact, int point, double *least,
                                      bool *solved, struct sbp_diag *diag)
{
    const struct usage_problem usages = {
        .source = exact->problem, .live = &exact->live, .point = point};
    const struct sbp_solver_options options = inner_options(&exact->search);
    struct sbp_problem copy;
    struct sbp_solution found = {0};
    enum sbp_status status = copy_usages(&usages, &copy);
    if (status == SBP_OK)
        status = solve(&copy, &options, false, &found, diag);
    *solved = status == SBP_OK && found.status == SBP_PLAN_OPTIMAL;
    *least = *solved ? found.cost : 0;
    sbp_solver_solution_free(&found);
    sbp_problem_free(&copy);
    return status;
}

/* Narrows [*low, *high] around the least peak of any choice by solving for feasibility under one
 * capacity after the other. Ends when a solve cannot decide; *low stays proved. */
static enum sbp_status bisect_peak(const struct exact *exact, double *low, double *high)
{
    const struct usage_problem usages = {
        .source = exact->problem, .live = &exact->live, .point = -1, .with_usages = true};
    struct sbp_problem copy;
    enum sbp_status status = copy_usages(&usages, &copy);
    copy.capacity = *low; /* often attained, as points rarely hinder each other */
    while (status == SBP_OK && *high - *low > SBP_PROBLEM_PEAK_PRECISION * *high) {
        const struct sbp_solver_options options = inner_options(&exact->search);
        struct sbp_solution found = {0};
        status = solve(&copy, &options, false, &found, NULL);
        if (status != SBP_OK)
            break;
        const bool decided = found.choice != NULL || found.status == SBP_PLAN_INFEASIBLE;
        if (found.choice != NULL)
            *high = fmin(copy.capacity, sbp_problem_peak_usage(&copy, found.choice));
        else if (decided)
            *low = copy.capacity;
        sbp_solver_solution_free(&found);
        if (!decided)
            break;
        copy.capacity = *low + (*high - *low) / 2;
    }
    sbp_problem_free(&copy);
    return status == SBP_E_UNSUPPORTED ? SBP_OK : status;
}

/* Sets the shortfall, or a lower bound of it. allowed_peak: peak of a choice that is not forbidden.
 */
static enum sbp_status find_shortfall(struct exact *exact, double allowed_peak,
                                      struct sbp_diag *diag)
{
    const double capacity = exact->problem->capacity;
    double low = capacity, high = allowed_peak;
    bool solved = true;
    for (int p = 0; p < exact->live.point_count && solved; p++) {
        double least;
        SBP_TRY(least_at_point(exact, p, &least, &solved, diag));
        low = fmax(low, least);
    }
    if (solved && exact->live.point_count == 1)
        high = low;
    if (solved) /* else out of time: the points solved so far give a lower bound */
        SBP_TRY(bisect_peak(exact, &low, &high));
    const bool narrow = high - low <= SBP_PROBLEM_PEAK_PRECISION * high;
    exact->search.solution->shortfall = (narrow ? high : low) - capacity;
    return SBP_OK;
}

/* Whether one of the first points alone needs more than the capacity: a quick proof that nothing
 * fits. */
static enum sbp_status find_overfull_point(const struct exact *exact, bool *overfull,
                                           struct sbp_diag *diag)
{
    bool solved = true;
    *overfull = false;
    for (int p = 0; p < exact->live.point_count && p < SBP_PROBLEM_POINTS_ALONE && !*overfull;
         p++) {
        double least;
        SBP_TRY(least_at_point(exact, p, &least, &solved, diag));
        *overfull = solved && !sbp_problem_fits(exact->problem, least);
    }
    return SBP_OK;
}

static enum sbp_status solve_capacity(struct exact *exact, bool *proved, struct sbp_diag *diag)
{
    struct sbp_solution *solution = exact->search.solution;
    const double allowed_peak = sbp_problem_peak_usage(exact->problem, exact->choice);
    const bool has_goal = exact->search.upper_bound < INFINITY;
    if (has_goal && !raise_bound(exact))
        return SBP_OK;
    *proved = cutoff(exact) <= solution->lower_bound;
    if (*proved)
        return SBP_OK;
    SBP_TRY(offer_descent(exact, diag));
    bool overfull = false;
    if (!(solution->cost < INFINITY))
        SBP_TRY(find_overfull_point(exact, &overfull, diag));
    if (overfull) {
        *proved = true;
        return exact->peak_is_asked ? find_shortfall(exact, allowed_peak, diag) : SBP_OK;
    }
    if (!has_goal && !raise_bound(exact))
        return SBP_OK;
    *proved = cutoff(exact) <= solution->lower_bound;
    if (*proved)
        return SBP_OK;
    SBP_TRY(run_labels(exact, proved, diag));
    if (*proved && !(solution->cost < INFINITY) && exact->peak_is_asked)
        SBP_TRY(find_shortfall(exact, allowed_peak, diag));
    return SBP_OK;
}

static enum sbp_status solve_prepared(struct exact *exact, struct sbp_diag *diag)
{
    struct sbp_solution *solution = exact->search.solution;
    bool proved = false;
    double bound;
    solution->evaluations += exact->tree.count == 0; /* no table, but one assignment */
    sbp_elimination_price(&exact->tree, &exact->live, NULL);
    if (!sbp_elimination_up(&exact->tree, &exact->search, exact->rows, &bound)) {
        SBP_TRY(offer_descent(exact, diag));
    } else if (!(bound < INFINITY)) {
        proved = true; /* every choice is forbidden */
    } else {
        solution->lower_bound = bound;
        sbp_elimination_recover(&exact->tree, exact->rows, exact->choice);
        const double peak = sbp_problem_peak_usage(exact->problem, exact->choice);
        if (exact->live.point_count == 0 || sbp_problem_fits(exact->problem, peak)) {
            sbp_solver_run_offer(&exact->search, exact->choice, bound);
            proved = true;
        } else {
            SBP_TRY(solve_capacity(exact, &proved, diag));
        }
    }
    sbp_solver_run_end(&exact->search, proved);
    return SBP_OK;
}

static enum sbp_status solve(const struct sbp_problem *problem,
                             const struct sbp_solver_options *options, bool peak_is_asked,
                             struct sbp_solution *solution, struct sbp_diag *diag)
{
    struct exact exact = {
        .problem = problem, .peak_is_asked = peak_is_asked, .arena.budget = problem->arena.budget};
    enum sbp_status status = sbp_solver_run_begin(&exact.search, problem, options, solution);
    if (status == SBP_OK)
        status = prepare(&exact, diag);
    if (status == SBP_OK)
        status = solve_prepared(&exact, diag);
    sbp_elimination_free(&exact.tree);
    sbp_arena_free(&exact.arena);
    return sbp_solver_run_result(status, "exact", solution, diag);
}

enum sbp_status sbp_exact_solve(const struct sbp_problem *problem,
                                const struct sbp_solver_options *options,
                                struct sbp_solution *solution, struct sbp_diag *diag)
{
    return solve(problem, options, true, solution, diag);
}

#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/solvers/ilp_bound_priv.h"
#include "planner/solvers/solver_run.h"

/* A branch and bound over linear programs in GLPK's hands. Their answers only propose choices and
 * multipliers: what is proved is proved by sbp_ilp_bound_of, so that tolerances prove nothing. */
struct ilp {
    const struct sbp_problem *problem;
    struct sbp_solver_run search;
    struct sbp_arena arena;
    struct sbp_ilp_bound bound;
    glp_prob *program;
    int *choice;   /* (variable_count) the program's answer, rounded */
    int *index;    /* row under construction, from 1 */
    double *value; /* the same */
    int *trail;    /* (values) put out by branching, in order */
    int trail_count;
    /* The way to the present node: at each depth the value that was taken, where the trail began,
     * and the bound before. */
    int depth, *taken, *mark; /* (variable_count) */
    double *bound_before;     /* (variable_count) */
    double node_bound;        /* of the present node */
    double scale;             /* coefficients = scale * entries */
    double unit;              /* of usages in rows */
    double built_gap;         /* limit less floor when the program was built */
    double size;              /* absolute terms of the best choice's cost */
    bool allowed_is_known;    /* the limit of a peak is some allowed choice's */
    jmp_buf failed;           /* target of GLPK's errors, which abort by default */
};

/* A node or a search ends in one of these. CLOSED: nothing better is in it. OPEN: has to be
 * branched. AGAIN: so much is known by now that another program is better. FOUND: a choice that
 * fits, where any was sought.
 */
enum outcome { CLOSED, OPEN, AGAIN, FOUND, STOPPED, FAILED };

static void leave(void *info)
{
    struct ilp *ilp = info;
    longjmp(ilp->failed, 1);
}

static double count_columns(const struct sbp_problem *problem)
{
    double columns = 0;
    for (int v = 0; v < problem->variable_count; v++)
        columns += problem->variable[v].domain;
    for (int e = 0; e < problem->edge_count; e++)
        columns += (double)sbp_problem_entries(problem, &problem->edge[e]);
    return columns;
}

static enum sbp_status prepare(struct ilp *ilp)
{
    const int variables = ilp->problem->variable_count;
    SBP_TRY(sbp_ilp_bound_init(&ilp->bound, ilp->problem, &ilp->arena));
    const int values = ilp->bound.first[variables];
    ilp->choice = SBP_NEW(&ilp->arena, int, variables);
    ilp->index = SBP_NEW(&ilp->arena, int, values + 2);
    ilp->value = SBP_NEW(&ilp->arena, double, values + 2);
    ilp->trail = SBP_NEW(&ilp->arena, int, values);
    ilp->taken = SBP_NEW(&ilp->arena, int, variables);
    ilp->mark = SBP_NEW(&ilp->arena, int, variables);
    ilp->bound_before = SBP_NEW(&ilp->arena, double, variables);
    return ilp->choice == NULL || ilp->index == NULL || ilp->value == NULL || ilp->trail == NULL ||
                   ilp->taken == NULL || ilp->mark == NULL || ilp->bound_before == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

/* --- the program: columns are values, then pairs, then what passes the room at any point --- */

static void add_row(struct ilp *ilp, int type, double limit, int length)
{
    const int row = glp_add_rows(ilp->program, 1);
    glp_set_row_bnds(ilp->program, row, type, limit, limit);
    glp_set_mat_row(ilp->program, row, length, ilp->index, ilp->value);
}

static void set_entry(struct ilp *ilp, int at, int column, double value)
{
    ilp->index[at] = column;
    ilp->value[at] = value;
}

static void set_cost(struct ilp *ilp, int column, int table, double cost)
{
    const double above = sbp_ilp_bound_entry(&ilp->bound, table, cost) - ilp->bound.least[table];
    glp_set_obj_coef(ilp->program, column, ilp->scale * fmax(0, above));
}

static void allow(struct ilp *ilp, int value, bool is_in)
{
    ilp->bound.out[value] = !is_in;
    glp_set_col_bnds(ilp->program, value + 1, is_in ? GLP_LO : GLP_FX, 0, 0);
}

/* Adds a column per value; those of a variable sum to 1. */
static void add_choices(struct ilp *ilp)
{
    for (int v = 0; v < ilp->problem->variable_count; v++) {
        const struct sbp_variable *variable = &ilp->problem->variable[v];
        const int first = glp_add_cols(ilp->program, variable->domain);
        for (int k = 0; k < variable->domain; k++) {
            allow(ilp, first + k - 1, !ilp->bound.out[first + k - 1]);
            set_cost(ilp, first + k, v, variable->cost[k]);
            set_entry(ilp, 1 + k, first + k, 1);
        }
        add_row(ilp, GLP_FX, 1, variable->domain);
    }
}

/* Ties the columns of all pairs with one end's value: they sum to that value's column. */
static void tie_pairs(struct ilp *ilp, const struct sbp_edge *edge, int first, bool end_is_a,
                      int choice)
{
    const int rows = ilp->problem->variable[edge->a].domain;
    const int columns = ilp->problem->variable[edge->b].domain;
    const int length = end_is_a ? columns : rows;
    for (int other = 0; other < length; other++) {
        const int pair = end_is_a ? choice * columns + other : other * columns + choice;
        set_entry(ilp, 1 + other, first + pair, 1);
    }
    set_entry(ilp, 1 + length, 1 + ilp->bound.first[end_is_a ? edge->a : edge->b] + choice, -1);
    add_row(ilp, GLP_FX, 0, length + 1);
}

/* Adds a column per pair of values, for their product. It is continuous, since integral ends make
 * it integral. This is the tightest linear form of one edge (Koster, van Hoesel and Kolen, 1998).
 */
static void add_pairs(struct ilp *ilp, int e)
{
    const struct sbp_edge *edge = &ilp->problem->edge[e];
    const int rows = ilp->problem->variable[edge->a].domain;
    const int columns = ilp->problem->variable[edge->b].domain;
    const int first = glp_add_cols(ilp->program, rows * columns);
    for (int pair = 0; pair < rows * columns; pair++) {
        glp_set_col_bnds(ilp->program, first + pair, GLP_LO, 0, 0);
        set_cost(ilp, first + pair, ilp->problem->variable_count + e, edge->cost[pair]);
    }
    for (int i = 0; i < rows; i++)
        tie_pairs(ilp, edge, first, true, i);
    for (int j = 0; j < columns; j++)
        tie_pairs(ilp, edge, first, false, j);
}

/* Adds a row that keeps the usage at a point of time within the capacity, or a peak's within 0,
 * but for what the last column gives. GLPK may fail on usages far below the others. */
static void add_point(struct ilp *ilp, int point, int last)
{
    const struct sbp_live *live = &ilp->bound.live;
    int length = 0;
    for (int v = 0; v < ilp->problem->variable_count; v++)
        for (int s = live->begin[v]; s < live->begin[v + 1]; s++)
            for (int k = 0; k < ilp->problem->variable[v].domain; k++)
                if (live->span[s].first <= point && point < live->span[s].last &&
                    live->span[s].usage[k] > SBP_PROBLEM_ILP_LEAST * ilp->unit &&
                    !ilp->bound.out[ilp->bound.first[v] + k])
                    set_entry(ilp, ++length, 1 + ilp->bound.first[v] + k,
                              live->span[s].usage[k] / ilp->unit);
    set_entry(ilp, ++length, last, -1);
    add_row(ilp, GLP_UP, ilp->bound.of_peak ? 0 : ilp->problem->capacity / ilp->unit, length);
}

static void build_program(struct ilp *ilp)
{
    const struct sbp_ilp_bound *bound = &ilp->bound;
    ilp->built_gap = bound->limit - bound->floor;
    ilp->scale = SBP_PROBLEM_ILP_SCALE / ilp->built_gap;
    ilp->unit = bound->of_peak               ? bound->limit
                : ilp->problem->capacity > 0 ? ilp->problem->capacity
                                             : 1;
    ilp->program = glp_create_prob();
    glp_set_obj_dir(ilp->program, GLP_MIN);
    add_choices(ilp);
    for (int e = 0; e < ilp->problem->edge_count; e++)
        add_pairs(ilp, e);
    if (bound->live.point_count == 0)
        return;
    const int last = glp_add_cols(ilp->program, 1);
    glp_set_col_bnds(ilp->program, last, GLP_LO, 0, 0);
    glp_set_obj_coef(ilp->program, last,
                     bound->of_peak ? ilp->scale * ilp->unit : SBP_PROBLEM_ILP_EXCESS);
    for (int p = 0; p < bound->live.point_count; p++)
        add_point(ilp, p, last);
}

static void drop_program(struct ilp *ilp)
{
    if (ilp->program != NULL)
        glp_delete_prob(ilp->program);
    ilp->program = NULL;
}

/* --- one node --- */

/* Solves the relaxation from the last basis, in slices of time, so that flag and clock are seen. */
static enum outcome relax(struct ilp *ilp)
{
    glp_smcp parameters;
    glp_init_smcp(&parameters);
    parameters.msg_lev = GLP_MSG_OFF;
    parameters.meth = GLP_DUALP;
    parameters.tm_lim = SBP_PROBLEM_ILP_SLICE_MS;
    int result = GLP_ETMLIM;
    for (int attempt = 0; attempt < 2 && result != 0; attempt++) {
        if (attempt > 0)
            glp_std_basis(ilp->program);
        do {
            if (sbp_solver_run_check(&ilp->search))
                return STOPPED;
            result = glp_simplex(ilp->program, &parameters);
        } while (result == GLP_ETMLIM);
    }
    return result == 0 ? OPEN : FAILED;
}

static double finite_or_0(double value)
{
    return isfinite(value) ? value : 0;
}

/* The bound by the program's dual values. */
static double bound_by_program(struct ilp *ilp)
{
    struct sbp_ilp_bound *bound = &ilp->bound;
    const int ties = bound->first_tie[ilp->problem->edge_count];
    int row = ilp->problem->variable_count;
    for (int i = 0; i < ties; i++)
        bound->tie[i] = finite_or_0(glp_get_row_dual(ilp->program, ++row) / ilp->scale);
    for (int p = 0; p < bound->live.point_count; p++) {
        const double dual = glp_get_row_dual(ilp->program, ++row);
        bound->price[p] = fmax(0, finite_or_0(-dual / ilp->scale / ilp->unit));
    }
    return sbp_ilp_bound_of(bound);
}

/* Rounds the program's answer, or takes the only values left. *branch: the value to try first, of
 * the variable that the answer is least sure of; -1: no variable has two values. False: some
 * variable has none. */
static bool round_choice(struct ilp *ilp, bool is_relaxed, int *branch)
{
    const struct sbp_ilp_bound *bound = &ilp->bound;
    double least_sure = INFINITY;
    *branch = -1;
    for (int v = 0; v < ilp->problem->variable_count; v++) {
        int left = 0, best = -1;
        double most = -INFINITY;
        for (int i = bound->first[v]; i < bound->first[v + 1]; i++) {
            const double share = is_relaxed ? glp_get_col_prim(ilp->program, i + 1) : 0;
            if (bound->out[i])
                continue;
            left++;
            if (best < 0 || share > most) {
                best = i;
                most = share;
            }
        }
        if (left == 0)
            return false;
        ilp->choice[v] = best - bound->first[v];
        if (left > 1 && most < least_sure) {
            least_sure = most;
            *branch = best;
        }
    }
    return true;
}

static double absolute_terms(const struct sbp_problem *problem, const int *choice)
{
    double size = 0;
    for (int v = 0; v < problem->variable_count; v++)
        size += fabs(problem->variable[v].cost[choice[v]]);
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        size +=
            fabs(edge->cost[choice[edge->a] * problem->variable[edge->b].domain + choice[edge->b]]);
    }
    return size;
}

/* Takes over the cost below which choices are wanted. */
static void set_cost_limit(struct ilp *ilp)
{
    const struct sbp_solution *solution = ilp->search.solution;
    ilp->bound.limit = fmin(solution->cost, ilp->search.upper_bound);
    ilp->size = solution->cost < INFINITY ? absolute_terms(ilp->problem, solution->choice) : 0;
}

/* Offers the rounded choice and lowers the limit by it. FOUND: a peak within the capacity. */
static enum outcome offer_choice(struct ilp *ilp)
{
    const double cost = sbp_problem_cost(ilp->problem, ilp->choice);
    if (cost >= SBP_FORBIDDEN)
        return OPEN;
    const double peak = sbp_problem_peak_usage(ilp->problem, ilp->choice);
    const bool fits = sbp_problem_fits(ilp->problem, peak);
    if (fits)
        sbp_solver_run_offer(&ilp->search, ilp->choice, cost);
    if (!ilp->bound.of_peak) {
        set_cost_limit(ilp);
        return OPEN;
    }
    ilp->allowed_is_known = true;
    ilp->bound.limit = fmin(ilp->bound.limit, peak);
    return fits ? FOUND : OPEN;
}

/* Whether a bound says that nothing below the limit is left, within the precision of a proof; of a
 * peak also that nothing fits. */
static bool is_closed(const struct ilp *ilp, double bound)
{
    const double limit = ilp->bound.limit;
    const double precision =
        SBP_PROBLEM_ILP_TOLERANCE * fabs(limit) + SBP_PROBLEM_ROUND_OFF * ilp->size;
    return bound >= limit - precision &&
           (!ilp->bound.of_peak || !sbp_problem_fits(ilp->problem, bound));
}

/* Looks at the choices of the values that are in. OPEN: *branch is the value to try first. */
static enum outcome look(struct ilp *ilp, int *branch)
{
    if (!round_choice(ilp, false, branch))
        return CLOSED;
    const bool is_leaf = *branch < 0;
    if (!is_leaf) {
        const enum outcome outcome = relax(ilp);
        if (outcome != OPEN)
            return outcome;
        (void)round_choice(ilp, true, branch); /* has a value for all, as before */
    }
    if (offer_choice(ilp) == FOUND)
        return FOUND;
    if (is_leaf)
        return CLOSED;
    ilp->node_bound = fmax(ilp->node_bound, bound_by_program(ilp));
    if (is_closed(ilp, ilp->node_bound))
        return CLOSED;
    const double gap = ilp->bound.limit - ilp->bound.floor;
    return gap < ilp->built_gap / SBP_PROBLEM_ILP_REBUILD ? AGAIN : OPEN;
}

/* --- the search --- */

static void put_out(struct ilp *ilp, int value)
{
    if (ilp->bound.out[value])
        return;
    allow(ilp, value, false);
    ilp->trail[ilp->trail_count++] = value;
}

/* Tries a value: the others of its variable are put out. */
static void descend(struct ilp *ilp, int value)
{
    int v = 0;
    while (ilp->bound.first[v + 1] <= value)
        v++;
    ilp->taken[ilp->depth] = value;
    ilp->mark[ilp->depth] = ilp->trail_count;
    ilp->bound_before[ilp->depth++] = ilp->node_bound;
    for (int i = ilp->bound.first[v]; i < ilp->bound.first[v + 1]; i++)
        if (i != value)
            put_out(ilp, i);
}

/* Leaves a node for the one above. */
static void ascend(struct ilp *ilp)
{
    ilp->depth--;
    ilp->node_bound = ilp->bound_before[ilp->depth];
    while (ilp->trail_count > ilp->mark[ilp->depth])
        allow(ilp, ilp->trail[--ilp->trail_count], true);
}

/* Goes through all nodes, depth first. */
static enum outcome explore(struct ilp *ilp)
{
    ilp->depth = ilp->trail_count = 0;
    ilp->node_bound = ilp->bound.floor;
    for (;;) {
        int branch;
        if (sbp_solver_run_check(&ilp->search))
            return STOPPED;
        ilp->search.solution->evaluations++;
        const enum outcome outcome = look(ilp, &branch);
        if (outcome == OPEN) {
            descend(ilp, branch);
        } else if (outcome != CLOSED || ilp->depth == 0) {
            return outcome;
        } else {
            ascend(ilp);
            put_out(ilp, ilp->taken[ilp->depth]);
        }
    }
}

static void raise_lower_bound(struct ilp *ilp, double bound)
{
    struct sbp_solution *solution = ilp->search.solution;
    if (!ilp->bound.of_peak)
        solution->lower_bound = fmax(solution->lower_bound, fmin(bound, ilp->bound.limit));
}

/* Leaves all nodes but the first, whose values stay out, and keeps its bound, the least of all that
 * is still open. */
static void leave_nodes(struct ilp *ilp)
{
    while (ilp->depth > 0)
        ascend(ilp);
    raise_lower_bound(ilp, ilp->node_bound);
}

/* Builds a program and searches. A fatal error of GLPK returns FAILED and frees its environment,
 * with everything that it allocated. */
static enum outcome search_program(struct ilp *ilp)
{
    glp_term_out(GLP_OFF);
    glp_error_hook(leave, ilp);
    if (setjmp(ilp->failed) != 0) {
        glp_free_env();
        ilp->program = NULL;
        return FAILED;
    }
    build_program(ilp);
    const enum outcome outcome = explore(ilp);
    leave_nodes(ilp);
    drop_program(ilp);
    glp_error_hook(NULL, NULL);
    return outcome;
}

/* Searches by one program after the other, each of the values that can matter by then. */
static enum outcome search_below_limit(struct ilp *ilp)
{
    enum outcome outcome = AGAIN;
    while (outcome == AGAIN) {
        if (!sbp_ilp_bound_drop(&ilp->bound))
            return CLOSED;
        raise_lower_bound(ilp, ilp->bound.floor);
        outcome = search_program(ilp);
    }
    return outcome;
}

/* Looks for any choice that fits, by the least peak. CLOSED: there is none; sets the shortfall. */
static enum outcome find_fitting(struct ilp *ilp)
{
    struct sbp_ilp_bound *bound = &ilp->bound;
    const struct sbp_problem *problem = ilp->problem;
    double most = 0; /* no choice has as much */
    for (int v = 0; v < problem->variable_count; v++)
        for (int s = bound->live.begin[v]; s < bound->live.begin[v + 1]; s++)
            for (int k = 0; k < problem->variable[v].domain; k++)
                most += bound->live.span[s].usage[k];
    bound->of_peak = true;
    bound->limit = most > 0 ? 2 * most : 1;
    bound->floor = 0;
    const enum outcome outcome = search_below_limit(ilp);
    bound->of_peak = false;
    memset(bound->out, 0, (size_t)bound->first[problem->variable_count] * sizeof *bound->out);
    if (outcome == CLOSED && ilp->allowed_is_known)
        ilp->search.solution->shortfall = fmax(0, bound->limit - problem->capacity);
    return outcome;
}

/* A first choice, since only values that can beat one matter. */
static enum sbp_status offer_descent(struct ilp *ilp, struct sbp_diag *diag)
{
    struct sbp_solver_options options = *ilp->search.options;
    options.restarts = SBP_PROBLEM_DESCENT_RESTARTS;
    options.max_evaluations = SBP_PROBLEM_DESCENT_EVALUATIONS;
    options.progress = NULL;
    struct sbp_solution found;
    SBP_TRY(sbp_coordinate_descent_solve(ilp->problem, &options, &found, diag));
    if (found.choice != NULL)
        sbp_solver_run_offer(&ilp->search, found.choice, found.cost);
    sbp_solver_solution_free(&found);
    return SBP_OK;
}

static enum sbp_status solve_prepared(struct ilp *ilp, struct sbp_diag *diag)
{
    struct sbp_solution *solution = ilp->search.solution;
    enum outcome outcome = STOPPED;
    solution->lower_bound = sbp_ilp_bound_of_least(&ilp->bound);
    if (!sbp_solver_run_over(&ilp->search)) {
        SBP_TRY(offer_descent(ilp, diag));
        set_cost_limit(ilp);
        outcome = ilp->bound.limit < INFINITY ? FOUND : find_fitting(ilp);
    }
    if (outcome == FOUND) {
        set_cost_limit(ilp);
        outcome = search_below_limit(ilp);
    }
    if (outcome == FAILED && !(solution->cost < INFINITY))
        return sbp_fail(diag, SBP_E_BACKEND, "ilp: GLPK failed on this problem; use exact");
    sbp_solver_run_end(&ilp->search, outcome == CLOSED);
    return SBP_OK;
}

enum sbp_status sbp_ilp_solve(const struct sbp_problem *problem,
                              const struct sbp_solver_options *options,
                              struct sbp_solution *solution, struct sbp_diag *diag)
{
    const double columns = count_columns(problem);
    if (columns > SBP_PROBLEM_ILP_COLUMNS)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "ilp: the problem needs %.0f columns (choices and pairs of choices), above "
                        "the limit of %d; use exact or coordinate-descent",
                        columns, SBP_PROBLEM_ILP_COLUMNS);
    struct ilp *ilp = calloc(1, sizeof *ilp); /* on the heap, because longjmp may spoil locals */
    if (ilp == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "ilp: out of memory");
    ilp->problem = problem;
    sbp_arena_init(&ilp->arena);
    enum sbp_status status = sbp_solver_run_begin(&ilp->search, problem, options, solution);
    if (status == SBP_OK)
        status = prepare(ilp);
    if (status == SBP_OK)
        status = solve_prepared(ilp, diag);
    sbp_arena_free(&ilp->arena);
    free(ilp);
    return sbp_solver_run_result(status, "ilp", solution, diag);
}

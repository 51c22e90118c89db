#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#include "planner/limits.h"
#include "planner/problem/live_ranges_priv.h"
#include "planner/problem/solver_priv.h"

/* A linear program under construction and in GLPK's hands. */
struct ilp {
    const struct sbp_problem *problem;
    struct sbp_solver_run search;
    struct sbp_arena arena;
    struct sbp_live live;
    glp_prob *program;
    int *first_column; /* (variable_count) column of choice 0; columns count from 1 */
    int *choice;       /* (variable_count) */
    int *index;        /* row under construction, from 1 */
    double *value;
    double constant;       /* sum of the least entries of all tables */
    double scale;          /* objective = scale * (cost - constant) */
    double capacity_share; /* the usage rows' limit, as a share of the capacity */
    int peak_column;       /* column of the peak, when that is minimised; else 0 */
    double bound;          /* proved lower bound of the objective */
    jmp_buf failed;        /* target of GLPK's errors, which abort by default */
};

/* Result of solving a program; NONE: infeasible. */
enum outcome { SOLVED, NONE, STOPPED, FAILED };

static void leave(void *info)
{
    struct ilp *ilp = info;
    longjmp(ilp->failed, 1);
}

/* --- sizes --- */

static double least_of(const double *cost, size_t count)
{
    double least = SBP_FORBIDDEN;
    for (size_t i = 0; i < count; i++)
        least = cost[i] < least ? cost[i] : least;
    return least;
}

/* The largest entry that is not forbidden, less the least one. */
static double spread_of(const double *cost, size_t count)
{
    const double least = least_of(cost, count);
    double most = least;
    for (size_t i = 0; i < count; i++)
        if (cost[i] < SBP_FORBIDDEN && cost[i] > most)
            most = cost[i];
    return most - least;
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

static bool prepare(struct ilp *ilp)
{
    const struct sbp_problem *problem = ilp->problem;
    double most = 0;
    size_t longest = 2;
    for (int v = 0; v < problem->variable_count; v++) {
        const size_t domain = (size_t)problem->variable[v].domain;
        ilp->constant += least_of(problem->variable[v].cost, domain);
        most = fmax(most, spread_of(problem->variable[v].cost, domain));
        longest += domain;
    }
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        ilp->constant += least_of(edge->cost, sbp_problem_entries(problem, edge));
        most = fmax(most, spread_of(edge->cost, sbp_problem_entries(problem, edge)));
    }
    ilp->scale = most > 0 ? SBP_PROBLEM_ILP_SCALE / most : 1;
    ilp->capacity_share = 1;
    ilp->first_column = SBP_NEW(&ilp->arena, int, problem->variable_count);
    ilp->choice = SBP_NEW(&ilp->arena, int, problem->variable_count);
    ilp->index = SBP_NEW(&ilp->arena, int, longest + 1);
    ilp->value = SBP_NEW(&ilp->arena, double, longest + 1);
    return ilp->first_column != NULL && ilp->choice != NULL && ilp->index != NULL &&
           ilp->value != NULL && sbp_live_build(problem, &ilp->arena, &ilp->live) == SBP_OK;
}

/* --- the program --- */

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

/* Adds a 0/1 column per value; exactly one per variable is 1, and forbidden ones are fixed at 0. */
static void add_choices(struct ilp *ilp)
{
    for (int v = 0; v < ilp->problem->variable_count; v++) {
        const struct sbp_variable *variable = &ilp->problem->variable[v];
        const double least = least_of(variable->cost, (size_t)variable->domain);
        const int first = glp_add_cols(ilp->program, variable->domain);
        ilp->first_column[v] = first;
        for (int k = 0; k < variable->domain; k++) {
            glp_set_col_kind(ilp->program, first + k, GLP_BV);
            if (variable->cost[k] >= SBP_FORBIDDEN)
                glp_set_col_bnds(ilp->program, first + k, GLP_FX, 0, 0);
            else if (ilp->peak_column == 0)
                glp_set_obj_coef(ilp->program, first + k, ilp->scale * (variable->cost[k] - least));
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
    set_entry(ilp, 1 + length, ilp->first_column[end_is_a ? edge->a : edge->b] + choice, -1);
    add_row(ilp, GLP_FX, 0, length + 1);
}

/* Adds a column per pair of values, for their product. It is continuous, since integral ends make
 * it integral. This is the tightest linear form of one edge (Koster, van Hoesel and Kolen, 1998).
 */
static void add_pairs(struct ilp *ilp, const struct sbp_edge *edge)
{
    const int rows = ilp->problem->variable[edge->a].domain;
    const int columns = ilp->problem->variable[edge->b].domain;
    const double least = least_of(edge->cost, sbp_problem_entries(ilp->problem, edge));
    const int first = glp_add_cols(ilp->program, rows * columns);
    for (int pair = 0; pair < rows * columns; pair++) {
        const bool is_forbidden = edge->cost[pair] >= SBP_FORBIDDEN;
        glp_set_col_bnds(ilp->program, first + pair, is_forbidden ? GLP_FX : GLP_LO, 0, 0);
        if (!is_forbidden && ilp->peak_column == 0)
            glp_set_obj_coef(ilp->program, first + pair, ilp->scale * (edge->cost[pair] - least));
    }
    for (int i = 0; i < rows; i++)
        tie_pairs(ilp, edge, first, true, i);
    for (int j = 0; j < columns; j++)
        tie_pairs(ilp, edge, first, false, j);
}

/* Usage of a value at a point of time, over all intervals of its variable. */
static double usage_at(const struct ilp *ilp, int variable, int choice, int point)
{
    double sum = 0;
    for (int s = ilp->live.begin[variable]; s < ilp->live.begin[variable + 1]; s++)
        if (ilp->live.span[s].first <= point && point < ilp->live.span[s].last)
            sum += ilp->live.span[s].usage[choice];
    return sum;
}

/* Adds a row that keeps the usage at a point of time within the capacity or, when the peak is
 * minimised, within the peak. Scales it by its largest number. */
static void add_point(struct ilp *ilp, int point)
{
    double unit = fabs(ilp->problem->capacity);
    int length = 0;
    for (int v = 0; v < ilp->problem->variable_count; v++)
        for (int k = 0; k < ilp->problem->variable[v].domain; k++) {
            const double usage = usage_at(ilp, v, k, point);
            if (!(usage > 0))
                continue;
            set_entry(ilp, ++length, ilp->first_column[v] + k, usage);
            unit = fmax(unit, usage);
        }
    if (ilp->peak_column > 0) /* all rows in one unit, the capacity */
        unit = fmax(1, ilp->problem->capacity);
    for (int i = 1; i <= length; i++)
        ilp->value[i] /= unit;
    if (ilp->peak_column > 0)
        set_entry(ilp, ++length, ilp->peak_column, -1);
    const double limit = ilp->peak_column > 0 ? 0 : ilp->problem->capacity / unit;
    add_row(ilp, GLP_UP, limit * ilp->capacity_share, length);
}

static void build_program(struct ilp *ilp, bool peak_is_asked)
{
    ilp->program = glp_create_prob();
    glp_set_obj_dir(ilp->program, GLP_MIN);
    ilp->peak_column = 0;
    if (peak_is_asked) {
        ilp->peak_column = glp_add_cols(ilp->program, 1);
        glp_set_col_bnds(ilp->program, ilp->peak_column, GLP_LO, 0, 0);
        glp_set_obj_coef(ilp->program, ilp->peak_column, 1);
    }
    add_choices(ilp);
    for (int e = 0; e < ilp->problem->edge_count; e++)
        add_pairs(ilp, &ilp->problem->edge[e]);
    for (int p = 0; p < ilp->live.point_count; p++)
        add_point(ilp, p);
}

/* --- solving --- */

static double objective_to_cost(const struct ilp *ilp, double objective)
{
    return ilp->constant + objective / ilp->scale;
}

/* Offers the incumbent if it has one value per variable and fits; false when it does not. */
static bool take_incumbent(struct ilp *ilp)
{
    const struct sbp_problem *problem = ilp->problem;
    for (int v = 0; v < problem->variable_count; v++) {
        int chosen = 0;
        for (int k = 0; k < problem->variable[v].domain; k++)
            if (glp_mip_col_val(ilp->program, ilp->first_column[v] + k) > 0.5) {
                ilp->choice[v] = k;
                chosen++;
            }
        if (chosen != 1)
            return false;
    }
    const double cost = sbp_problem_cost(problem, ilp->choice);
    if (cost >= SBP_FORBIDDEN ||
        !sbp_problem_fits(problem, sbp_problem_peak_usage(problem, ilp->choice)))
        return false;
    sbp_solver_run_offer(&ilp->search, ilp->choice, cost);
    return true;
}

/* Callback of branch and bound: counts nodes, keeps the bound, offers incumbents, and stops. */
static void watch(glp_tree *tree, void *info)
{
    struct ilp *ilp = info;
    const int reason = glp_ios_reason(tree);
    if (reason == GLP_ISELECT) {
        ilp->search.solution->evaluations++;
        const int best = glp_ios_best_node(tree);
        if (best != 0)
            ilp->bound = glp_ios_node_bound(tree, best);
    } else if (reason == GLP_IBINGO && ilp->peak_column == 0) {
        (void)take_incumbent(ilp); /* drops one that is not exact */
    }
    if (sbp_solver_run_check(&ilp->search))
        glp_ios_terminate(tree);
}

/* Solves the relaxation in slices of time, so that flag and clock are seen. */
static enum outcome relax(struct ilp *ilp)
{
    glp_smcp parameters;
    glp_init_smcp(&parameters);
    parameters.msg_lev = GLP_MSG_OFF;
    parameters.tm_lim = SBP_PROBLEM_ILP_SLICE_MS;
    int result = GLP_ETMLIM;
    while (result == GLP_ETMLIM) {
        if (sbp_solver_run_check(&ilp->search))
            return STOPPED;
        result = glp_simplex(ilp->program, &parameters);
    }
    if (result != 0)
        return FAILED;
    const int status = glp_get_status(ilp->program);
    if (status == GLP_NOFEAS || status == GLP_INFEAS)
        return NONE;
    ilp->bound = glp_get_obj_val(ilp->program);
    return status == GLP_OPT ? SOLVED : FAILED;
}

static enum outcome branch(struct ilp *ilp)
{
    glp_iocp parameters;
    glp_init_iocp(&parameters);
    parameters.msg_lev = GLP_MSG_OFF;
    parameters.cb_func = watch;
    parameters.cb_info = ilp;
    const int result = glp_intopt(ilp->program, &parameters);
    if (result == GLP_ESTOP || result == GLP_ETMLIM)
        return STOPPED;
    if (result != 0)
        return FAILED;
    const int status = glp_mip_status(ilp->program);
    if (status == GLP_NOFEAS)
        return NONE;
    return status == GLP_OPT ? SOLVED : FAILED;
}

/* Builds and solves a program. A fatal error of GLPK returns FAILED and frees its environment, with
 * everything that it allocated. */
static enum outcome solve_program(struct ilp *ilp, bool peak_is_asked)
{
    glp_term_out(GLP_OFF);
    glp_error_hook(leave, ilp);
    if (setjmp(ilp->failed) != 0) {
        glp_free_env();
        ilp->program = NULL;
        return FAILED;
    }
    build_program(ilp, peak_is_asked);
    enum outcome outcome = relax(ilp);
    if (outcome == SOLVED)
        outcome = branch(ilp);
    glp_error_hook(NULL, NULL);
    return outcome;
}

static void drop_program(struct ilp *ilp)
{
    if (ilp->program != NULL)
        glp_delete_prob(ilp->program);
    ilp->program = NULL;
}

/* Finds the shortfall: the least possible peak less the capacity. */
static enum outcome find_shortfall(struct ilp *ilp)
{
    drop_program(ilp);
    const enum outcome outcome = solve_program(ilp, true);
    if (outcome != SOLVED)
        return outcome;
    for (int v = 0; v < ilp->problem->variable_count; v++)
        for (int k = 0; k < ilp->problem->variable[v].domain; k++)
            if (glp_mip_col_val(ilp->program, ilp->first_column[v] + k) > 0.5)
                ilp->choice[v] = k;
    ilp->search.solution->shortfall =
        fmax(0, sbp_problem_peak_usage(ilp->problem, ilp->choice) - ilp->problem->capacity);
    return SOLVED;
}

/* Solves the program. If the answer passes the capacity within GLPK's tolerance, solves it again
 * under a slightly lower capacity: that answer fits but is not proved to be best. */
static enum outcome run(struct ilp *ilp, bool *proved)
{
    struct sbp_solution *solution = ilp->search.solution;
    enum outcome outcome = solve_program(ilp, false);
    *proved = outcome == SOLVED || outcome == NONE;
    if (outcome == NONE && ilp->live.point_count > 0) {
        const enum outcome peak = find_shortfall(ilp);
        return peak == FAILED ? FAILED : NONE;
    }
    if (outcome == FAILED || outcome == NONE)
        return outcome;
    solution->lower_bound = fmax(solution->lower_bound, objective_to_cost(ilp, ilp->bound));
    if (outcome == SOLVED && !take_incumbent(ilp)) {
        *proved = false;
        drop_program(ilp);
        ilp->capacity_share = 1 - SBP_PROBLEM_ILP_MARGIN;
        outcome = solve_program(ilp, false);
        if (outcome == SOLVED)
            (void)take_incumbent(ilp);
    }
    return outcome;
}

static enum sbp_status solve_prepared(struct ilp *ilp, struct sbp_diag *diag)
{
    struct sbp_solution *solution = ilp->search.solution;
    bool proved = false;
    enum outcome outcome = STOPPED;
    solution->lower_bound = sbp_solver_run_trivial_bound(ilp->problem);
    if (ilp->problem->variable_count == 0) {
        sbp_solver_run_offer(&ilp->search, ilp->choice, 0);
        outcome = SOLVED;
    } else if (solution->lower_bound >= SBP_FORBIDDEN / 2) {
        proved = true; /* some table is all forbidden, and has no spread to scale by */
    } else if (!sbp_solver_run_over(&ilp->search)) {
        outcome = run(ilp, &proved);
    }
    drop_program(ilp);
    if (outcome == FAILED)
        return sbp_fail(diag, SBP_E_BACKEND, "ilp: GLPK failed on this problem; use exact");
    sbp_solver_run_end(&ilp->search, proved);
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
    if (status == SBP_OK && !prepare(ilp))
        status = SBP_E_MEMORY;
    if (status == SBP_OK)
        status = solve_prepared(ilp, diag);
    sbp_arena_free(&ilp->arena);
    free(ilp);
    return sbp_solver_run_result(status, "ilp", solution, diag);
}

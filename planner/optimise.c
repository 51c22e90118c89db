#include "planner/optimise.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "planner/label.h"
#include "planner/space.h"

enum { MOST_TIGHTENINGS = 16, MOST_FOLDED_CELLS = 1 << 22 };

static const char *const space_names[] = {
#define SBP_SPACE_TEXT(name, text, summary) text,
    SBP_SPACE_MAP(SBP_SPACE_TEXT)
#undef SBP_SPACE_TEXT
        NULL,
};

static const char *const space_summaries[] = {
#define SBP_SPACE_SUMMARY(name, text, summary) summary,
    SBP_SPACE_MAP(SBP_SPACE_SUMMARY)
#undef SBP_SPACE_SUMMARY
};

const char *sbp_space_name(enum sbp_space_kind kind)
{
    return space_names[kind];
}

const char *sbp_space_summary(enum sbp_space_kind kind)
{
    return space_summaries[kind];
}

const char *const *sbp_space_names(void)
{
    return space_names;
}

/* A labelled strategy and what it costs. */
struct candidate {
    struct sbp_strategy strategy;
    double objective_s;
    int64_t device_bytes;
};

/* One call of sbp_optimise. */
struct job {
    struct sbp_plan *plan;
    const struct sbp_request *request;
    struct sbp_outcome *outcome;
    struct sbp_diag *diag;
    const struct sbp_megatron_mesh *megatron; /* NULL outside that space */
    struct sbp_arena scratch;
    struct candidate trial, best; /* best.objective_s is INFINITY before the first */
    int64_t limit_bytes;
    int64_t *class_limit;
    double least_bytes; /* least memory that was seen or proved to be needed */
    double bound_s;     /* over the spaces searched so far: the least of their bounds */
};

/* ---- from a space to a choice --------------------------------------------------------------- */

static int degree_of(const struct sbp_problem *problem, int variable, double *cells)
{
    int degree = 0;
    *cells = 1;
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        if (edge->a != variable && edge->b != variable)
            continue;
        const int other = edge->a == variable ? edge->b : edge->a;
        *cells *= problem->variable[other].domain;
        degree++;
    }
    return degree;
}

/* Folds rest states away where that leaves small tables: solvers then see operators alone. */
static enum sbp_status fold_rests(const struct sbp_space *space, struct sbp_problem *problem,
                                  struct sbp_elimination *steps, int *count)
{
    *count = 0;
    for (int v = 0; v < space->variable_count; v++) {
        double cells = 0;
        if (space->variable[v].op >= 0 || degree_of(problem, v, &cells) > 2 ||
            cells > MOST_FOLDED_CELLS)
            continue;
        SBP_TRY(sbp_problem_eliminate(problem, v, &steps[*count]));
        ++*count;
    }
    return SBP_OK;
}

static void unfold_rests(const struct sbp_problem *problem, const struct sbp_elimination *steps,
                         int count, int *choice)
{
    while (count-- > 0)
        sbp_problem_recover(problem, &steps[count], choice);
}

static enum sbp_status run_solver(const struct job *job, const struct sbp_problem *problem,
                                  struct sbp_solution *solution, const char **name)
{
    const struct sbp_solver *solver = job->request->solver;
    const bool choose = solver == NULL;
    struct sbp_diag refusal = {{0}};
    if (choose)
        solver = sbp_solver_find("exact");
    enum sbp_status status =
        solver->solve(problem, &job->request->solver_options, solution, &refusal);
    if (status == SBP_E_UNSUPPORTED && choose) {
        solver = sbp_solver_find("coordinate-descent");
        status = solver->solve(problem, &job->request->solver_options, solution, &refusal);
    }
    *name = solver->name;
    return status == SBP_OK ? SBP_OK : sbp_fail(job->diag, status, "%s", refusal.text);
}

static void note_solution(struct job *job, const struct sbp_solution *solution, const char *name)
{
    struct sbp_outcome *outcome = job->outcome;
    outcome->evaluations += solution->evaluations;
    outcome->algorithm = name;
    outcome->stopped |= solution->stopped;
    if (solution->curve_count > 0 && outcome->curve_count == 0) {
        outcome->curve_count = solution->curve_count;
        memcpy(outcome->curve, solution->curve, sizeof outcome->curve);
    }
}

/* Solves the space under a capacity. *choice (arena) stays NULL without a choice; *bound_s is what
 * no strategy of the space can beat, -INFINITY when the solver proves nothing. */
static enum sbp_status solve_space(struct job *job, const struct sbp_space *space,
                                   double capacity_bytes, int **choice, double *bound_s,
                                   double *shortfall)
{
    struct sbp_problem problem;
    struct sbp_solution solution = {0};
    const char *name = "";
    int folded = 0;
    *choice = NULL;
    struct sbp_elimination *steps =
        SBP_NEW(&job->scratch, struct sbp_elimination, space->variable_count + 1);
    int *copy = SBP_NEW(&job->scratch, int, space->variable_count + 1);
    if (steps == NULL || copy == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_space_problem(space, capacity_bytes, &problem, job->diag));
    enum sbp_status status = fold_rests(space, &problem, steps, &folded);
    if (status == SBP_OK)
        status = run_solver(job, &problem, &solution, &name);
    if (status == SBP_OK) {
        note_solution(job, &solution, name);
        *bound_s = solution.status == SBP_PLAN_INFEASIBLE ? INFINITY : solution.lower_bound;
        *shortfall = solution.shortfall;
        if (solution.status == SBP_PLAN_TIME_LIMIT)
            *bound_s = -INFINITY;
        if (solution.choice != NULL) {
            memcpy(copy, solution.choice, (size_t)space->variable_count * sizeof *copy);
            unfold_rests(&problem, steps, folded, copy);
            *choice = copy;
        }
    }
    sbp_solution_free(&solution);
    sbp_problem_free(&problem);
    return status;
}

/* ---- from a choice to a priced strategy ----------------------------------------------------- */

static enum sbp_status price_trial(struct job *job)
{
    struct sbp_plan *plan = job->plan;
    struct sbp_program program;
    const struct sbp_element_bytes bytes = sbp_element_bytes_of(&plan->graph.precision);
    SBP_TRY(sbp_strategy_close(&plan->graph, &plan->mesh, &job->trial.strategy, job->diag));
    SBP_TRY(sbp_program_make(&plan->graph, &plan->cluster, &plan->mesh, &job->trial.strategy,
                             &bytes, &program, job->diag));
    const struct sbp_totals totals = sbp_program_totals(&program, &plan->cluster);
    job->trial.objective_s =
        job->request->objective == SBP_COMMUNICATION ? totals.communication_s : totals.step_s;
    job->trial.device_bytes = totals.device_bytes;
    sbp_program_free(&program);
    return SBP_OK;
}

static void copy_strategy(const struct sbp_graph *graph, const struct sbp_strategy *from,
                          struct sbp_strategy *to)
{
    to->boxing = from->boxing;
    memcpy(to->op, from->op, (size_t)graph->op_count * sizeof *to->op);
    memcpy(to->rest, from->rest, (size_t)graph->tensor_count * sizeof *to->rest);
    memcpy(to->split, from->split, (size_t)graph->class_count * sizeof *to->split);
}

static void keep_better(struct job *job)
{
    if (job->trial.device_bytes > job->limit_bytes ||
        job->trial.objective_s >= job->best.objective_s)
        return;
    copy_strategy(&job->plan->graph, &job->trial.strategy, &job->best.strategy);
    job->best.objective_s = job->trial.objective_s;
    job->best.device_bytes = job->trial.device_bytes;
}

/* Fewer parts for a class whose labels do not divide it: the next smaller limit that can bind. */
static bool tighten_class(struct job *job, int dim_class)
{
    int64_t *limit = &job->class_limit[dim_class];
    const int64_t devices = job->plan->mesh.devices;
    if (*limit > devices)
        *limit = devices;
    *limit /= 2;
    return *limit >= 1;
}

/* ---- one space ------------------------------------------------------------------------------ */

enum verdict { FITS, TOO_LARGE, NOT_LABELLED, NO_CHOICE };

/* One round: space, choice, labels, price. */
static enum sbp_status try_round(struct job *job, double capacity_bytes, double *bound_s,
                                 double *shortfall, enum verdict *verdict, int *broken_class)
{
    struct sbp_space space;
    struct sbp_labelling labelling = {0};
    int *choice = NULL;
    SBP_TRY(sbp_space_make(job->plan, job->request, job->class_limit, job->megatron, &space,
                           job->diag));
    double digits = 0;
    for (int v = 0; v < space.variable_count; v++)
        if (space.variable[v].op >= 0)
            digits += log10(space.variable[v].choice_count);
    job->outcome->space_size_log10 = digits;
    enum sbp_status status = solve_space(job, &space, capacity_bytes, &choice, bound_s, shortfall);
    *verdict = NO_CHOICE;
    if (status == SBP_OK && choice != NULL) {
        status = sbp_label(&space, choice, job->request->solver_options.seed, &job->trial.strategy,
                           &labelling);
        *verdict = NOT_LABELLED;
        *broken_class = labelling.broken_class;
    }
    sbp_space_free(&space);
    if (status != SBP_OK || choice == NULL || labelling.broken_class >= 0 ||
        labelling.broken_rests > 0)
        return status;
    SBP_TRY(price_trial(job));
    keep_better(job);
    *verdict = job->trial.device_bytes <= job->limit_bytes ? FITS : TOO_LARGE;
    if ((double)job->trial.device_bytes < job->least_bytes)
        job->least_bytes = (double)job->trial.device_bytes;
    return SBP_OK;
}

/* Searches one space: first without a capacity, which is quick and mostly enough; then with one, of
 * which the space's memory model is a lower bound, tightened by what the compiled program showed.
 * The bounds of the first two rounds hold for the space; later rounds only look for a plan. */
static enum sbp_status search_space(struct job *job)
{
    double capacity = INFINITY, space_bound = -INFINITY;
    const double room = (double)(job->limit_bytes - job->plan->cluster.reserve_bytes);
    bool bounding = true;
    for (int c = 0; c < job->plan->graph.class_count; c++)
        job->class_limit[c] = job->plan->graph.dim_class[c].size;
    for (int round = 0; round < MOST_TIGHTENINGS; round++) {
        double bound_s = -INFINITY, shortfall = 0;
        enum verdict verdict = NO_CHOICE;
        int broken_class = -1;
        SBP_TRY(try_round(job, capacity, &bound_s, &shortfall, &verdict, &broken_class));
        if (bounding && bound_s > space_bound)
            space_bound = bound_s;
        if (verdict == NO_CHOICE && bounding && isinf(bound_s) && bound_s > 0)
            job->least_bytes = fmin(job->least_bytes, (double)job->limit_bytes + shortfall);
        if (verdict == FITS || verdict == NO_CHOICE || job->outcome->stopped)
            break;
        if (verdict == NOT_LABELLED) {
            if (broken_class < 0 || !tighten_class(job, broken_class))
                break;
            bounding = false;
        } else if (isinf(capacity)) {
            capacity = room;
        } else {
            capacity -= (double)(job->trial.device_bytes - job->limit_bytes);
            bounding = false;
        }
    }
    job->bound_s = fmin(job->bound_s, space_bound);
    return SBP_OK;
}

/* Every tensor x data mesh, one after the other (AutoDDL, section 5: tuned by hand there). */
static enum sbp_status search_megatron(struct job *job)
{
    const struct sbp_mesh *mesh = &job->plan->mesh;
    struct sbp_megatron_mesh megatron = {{0}};
    struct sbp_diag first = {{0}};
    struct sbp_diag *const diag = job->diag;
    int searched = 0;
    for (bool more = true; more && !job->outcome->stopped;) {
        struct sbp_diag refusal = {{0}};
        job->megatron = &megatron;
        job->diag = &refusal;
        const enum sbp_status status = search_space(job);
        job->diag = diag;
        if (status == SBP_OK)
            searched++;
        else if (status != SBP_E_INPUT)
            return sbp_fail(diag, status, "%s", refusal.text);
        else if (first.text[0] == '\0')
            first = refusal;
        more = false;
        for (int f = 0; f < mesh->family_count && !more; f++) {
            more = ++megatron.batch[f] <= mesh->family[f].count;
            if (!more)
                megatron.batch[f] = 0;
        }
    }
    return searched > 0 ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", first.text);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void conclude(struct job *job)
{
    struct sbp_outcome *outcome = job->outcome;
    outcome->objective_s = job->best.objective_s;
    outcome->lower_bound_s = job->bound_s;
    if (isinf(job->best.objective_s)) {
        outcome->status = outcome->stopped ? SBP_PLAN_TIME_LIMIT : SBP_PLAN_INFEASIBLE;
        outcome->needed_bytes = job->least_bytes < 9e18 ? (int64_t)ceil(job->least_bytes) : 0;
        return;
    }
    /* Search and program add the same numbers in different order: equal up to roundoff. */
    const bool proved = job->best.objective_s <= job->bound_s * (1 + 1e-9);
    outcome->status = proved ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
    if (proved)
        outcome->lower_bound_s = job->best.objective_s;
}

static enum sbp_status optimise(struct job *job)
{
    const struct sbp_graph *graph = &job->plan->graph;
    SBP_TRY(sbp_strategy_alloc(graph, &job->plan->arena, &job->best.strategy));
    SBP_TRY(sbp_strategy_alloc(graph, &job->scratch, &job->trial.strategy));
    job->class_limit = SBP_NEW(&job->scratch, int64_t, graph->class_count + 1);
    if (job->class_limit == NULL)
        return SBP_E_MEMORY;
    if (job->request->space == SBP_SPACE_MEGATRON)
        SBP_TRY(search_megatron(job));
    else
        SBP_TRY(search_space(job));
    job->plan->strategy = job->best.strategy;
    conclude(job);
    return SBP_OK;
}

enum sbp_status sbp_optimise(struct sbp_plan *plan, const struct sbp_request *request,
                             struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    *outcome = (struct sbp_outcome){.objective_s = INFINITY, .lower_bound_s = -INFINITY};
    struct job job = {.plan = plan,
                      .request = request,
                      .outcome = outcome,
                      .diag = diag,
                      .best = {.objective_s = INFINITY},
                      .limit_bytes = request->memory_limit_bytes > 0 ? request->memory_limit_bytes
                                                                     : plan->cluster.memory_bytes,
                      .least_bytes = INFINITY,
                      .bound_s = INFINITY};
    const enum sbp_status status = optimise(&job);
    sbp_arena_free(&job.scratch);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while searching");
    outcome->wall_s = sbp_clock_s() - start_s;
    return status;
}

enum sbp_status sbp_optimise_problem(const struct sbp_plan *plan, const struct sbp_request *request,
                                     struct sbp_problem *problem, struct sbp_diag *diag)
{
    struct sbp_space space;
    struct sbp_arena scratch;
    int folded = 0;
    sbp_arena_init(&scratch);
    SBP_TRY(sbp_space_make(plan, request, NULL, NULL, &space, diag));
    enum sbp_status status = sbp_space_problem(&space, INFINITY, problem, diag);
    if (status == SBP_OK) {
        struct sbp_elimination *steps =
            SBP_NEW(&scratch, struct sbp_elimination, space.variable_count + 1);
        status = steps == NULL ? SBP_E_MEMORY : fold_rests(&space, problem, steps, &folded);
        if (status != SBP_OK)
            sbp_problem_free(problem);
    }
    sbp_arena_free(&scratch);
    sbp_space_free(&space);
    return status;
}

#include "planner/optimise.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "planner/label.h"
#include "planner/refine.h"
#include "planner/space.h"

enum { MOST_TIGHTENINGS = 16, MOST_STEPS = 12, MOST_HALVINGS = 4, MOST_FOLDED_CELLS = 1 << 22 };

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
    double start_s;
    double least_bytes; /* least memory that a compiled strategy was seen to need */
    double bound_s;     /* over the spaces searched so far: the least of their bounds */
};

/* Instead of a capacity: the choice that needs the least memory by the space's model. */
#define LEAST_BYTES (-1.0)

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

/* What the rounds before have left of the request's time and evaluations. */
static struct sbp_solver_options options_left(const struct job *job)
{
    struct sbp_solver_options options = job->request->solver_options;
    if (options.time_limit_s > 0)
        options.time_limit_s = fmax(1e-9, options.time_limit_s - (sbp_clock_s() - job->start_s));
    if (options.max_evaluations > 0)
        options.max_evaluations = options.max_evaluations > job->outcome->evaluations
                                      ? options.max_evaluations - job->outcome->evaluations
                                      : 1;
    return options;
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

/* Turns the problem into one of memory: the least modelled bytes of a choice that is not forbidden;
 * seconds, taken for bytes, decide between equal ones. */
static void count_bytes(struct sbp_problem *problem)
{
    for (int v = 0; v < problem->variable_count; v++) {
        struct sbp_variable *variable = &problem->variable[v];
        for (int c = 0; variable->interval_count > 0 && c < variable->domain; c++)
            if (variable->cost[c] < SBP_FORBIDDEN)
                variable->cost[c] += variable->usage[c];
        variable->interval_count = 0;
        variable->usage = NULL;
    }
    problem->capacity = INFINITY;
}

/* Solves the space under a capacity, or for LEAST_BYTES. *choice (arena) stays NULL without a
 * choice; *bound_s is what no strategy of the space can beat, -INFINITY when the solver proves
 * nothing. */
static enum sbp_status solve_space(struct job *job, const struct sbp_space *space,
                                   double capacity_bytes, int **choice, double *bound_s)
{
    struct sbp_problem problem;
    struct sbp_solution solution = {0};
    const struct sbp_solver *used = NULL;
    const struct sbp_solver_options options = options_left(job);
    int folded = 0;
    *choice = NULL;
    struct sbp_elimination *steps =
        SBP_NEW(&job->scratch, struct sbp_elimination, space->variable_count + 1);
    int *copy = SBP_NEW(&job->scratch, int, space->variable_count + 1);
    if (steps == NULL || copy == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_space_problem(space, capacity_bytes - sbp_space_constant_bytes(space), &problem,
                              job->diag));
    if (capacity_bytes == LEAST_BYTES)
        count_bytes(&problem);
    enum sbp_status status = fold_rests(space, &problem, steps, &folded);
    if (status == SBP_OK)
        status = sbp_solve(job->request->solver, &problem, &options, &solution, &used, job->diag);
    if (status == SBP_OK) {
        note_solution(job, &solution, used->name);
        *bound_s = solution.status == SBP_PLAN_INFEASIBLE ? INFINITY : solution.lower_bound;
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

/* E_INPUT, with no text: the strategy is not legal (a way between two rests splits a class further
 * than the space knows). */
static enum sbp_status price_trial(struct job *job)
{
    struct sbp_plan *plan = job->plan;
    struct sbp_step step;
    struct sbp_diag refusal = {{0}};
    SBP_TRY(sbp_strategy_close(&plan->graph, &plan->mesh, &job->trial.strategy, &refusal));
    SBP_TRY(sbp_plan_step(plan, &job->trial.strategy, &step, job->diag));
    const bool communication = job->request->objective == SBP_COMMUNICATION;
    job->trial.objective_s = communication ? step.totals.communication_s : step.totals.step_s;
    job->trial.device_bytes = step.totals.device_bytes;
    job->least_bytes = fmin(job->least_bytes, (double)step.totals.device_bytes);
    sbp_step_free(&step);
    return SBP_OK;
}

static void copy_strategy(const struct sbp_graph *graph, const struct sbp_strategy *from,
                          struct sbp_strategy *to)
{
    to->boxing = from->boxing;
    memcpy(to->op, from->op, (size_t)graph->op_count * sizeof *to->op);
    memcpy(to->rest, from->rest, (size_t)graph->tensor_count * sizeof *to->rest);
    memcpy(to->split, from->split, (size_t)graph->class_count * sizeof *to->split);
    memcpy(to->zero, from->zero, (size_t)graph->op_count * sizeof *to->zero);
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
struct round {
    double capacity_bytes; /* in: of the space's memory model, INFINITY, or LEAST_BYTES */
    double modelled_bytes; /* of the choice, by that model */
    double bound_s;        /* no strategy of the round's space beats it */
    enum verdict verdict;
    int broken_class; /* not labelled: a class whose splits do not divide it, -1: none */
};

static double log10_size(const struct sbp_space *space)
{
    double digits = 0;
    for (int v = 0; v < space->variable_count; v++)
        if (space->variable[v].op >= 0)
            digits += log10(space->variable[v].choice_count);
    return digits;
}

static double modelled_bytes(const struct sbp_space *space, const int *choice)
{
    double bytes = sbp_space_constant_bytes(space);
    for (int v = 0; v < space->variable_count; v++)
        if (space->variable[v].op >= 0)
            bytes += sbp_space_unary_bytes(space, v, choice[v]);
    return bytes;
}

/* An interrupt while a space is built is an answer like one while it is searched. */
static enum sbp_status note_interrupt(struct job *job, enum sbp_status status)
{
    job->outcome->stopped |= status == SBP_STOPPED;
    return status == SBP_STOPPED ? SBP_OK : status;
}

static enum sbp_status try_round(struct job *job, struct round *round)
{
    struct sbp_space space;
    struct sbp_labelling labelling = {0};
    int *choice = NULL;
    const struct sbp_arena_mark mark = sbp_arena_mark(&job->scratch);
    *round = (struct round){.capacity_bytes = round->capacity_bytes,
                            .bound_s = -INFINITY,
                            .verdict = NO_CHOICE,
                            .broken_class = -1};
    enum sbp_status status =
        sbp_space_make(job->plan, job->request, job->class_limit, job->megatron, &space, job->diag);
    if (status != SBP_OK)
        return note_interrupt(job, status);
    job->outcome->space_size_log10 = log10_size(&space);
    status = note_interrupt(
        job, solve_space(job, &space, round->capacity_bytes, &choice, &round->bound_s));
    if (status == SBP_OK && choice != NULL) {
        status = sbp_label(&space, choice, job->request->solver_options.seed, &job->trial.strategy,
                           &labelling);
        round->modelled_bytes = modelled_bytes(&space, choice);
        round->verdict = NOT_LABELLED;
        round->broken_class = labelling.broken_class;
    }
    sbp_space_free(&space);
    const bool found = choice != NULL;
    sbp_arena_release(&job->scratch, mark);
    if (status != SBP_OK || !found || labelling.broken_class >= 0 || labelling.broken_rests > 0)
        return status;
    status = price_trial(job);
    if (status == SBP_E_INPUT)
        return SBP_OK;
    SBP_TRY(status);
    keep_better(job);
    round->verdict = job->trial.device_bytes <= job->limit_bytes ? FITS : TOO_LARGE;
    return SBP_OK;
}

/* What the strategy really needs that needs least by the model. */
static enum sbp_status note_need(struct job *job)
{
    struct round round = {.capacity_bytes = LEAST_BYTES};
    SBP_TRY(try_round(job, &round));
    if (isinf(job->least_bytes))
        job->least_bytes = round.modelled_bytes + (double)job->plan->cluster.reserve_bytes;
    return SBP_OK;
}

/* The memory model is a lower bound, and its best choice within the room was too large for the
 * machine: looks for the largest capacity whose choice fits, in steps from the room down to the
 * least capacity that leaves a choice, then by halves. */
static enum sbp_status squeeze(struct job *job, double room_bytes)
{
    struct round round = {.capacity_bytes = LEAST_BYTES};
    SBP_TRY(try_round(job, &round));
    const double least = round.modelled_bytes * (1 + 1e-9);
    double too_large = room_bytes, fits = -1;
    for (int i = MOST_STEPS - 1; i >= 0 && fits < 0 && !job->outcome->stopped; i--) {
        round.capacity_bytes = least + (room_bytes - least) * i / MOST_STEPS;
        SBP_TRY(try_round(job, &round));
        *(round.verdict == FITS ? &fits : &too_large) = round.capacity_bytes;
    }
    for (int i = 0; i < MOST_HALVINGS && fits >= 0 && !job->outcome->stopped; i++) {
        round.capacity_bytes = (fits + too_large) / 2;
        SBP_TRY(try_round(job, &round));
        *(round.verdict == FITS ? &fits : &too_large) = round.capacity_bytes;
    }
    return SBP_OK;
}

/* The unlabelled search: first without a capacity, which is quick and mostly enough; then with one.
 * The bounds hold for the space until classes are tightened; later rounds only look for a plan. */
static enum sbp_status search_unlabelled(struct job *job, double *bound_s, bool *too_large)
{
    const double room = (double)(job->limit_bytes - job->plan->cluster.reserve_bytes);
    struct round round = {.capacity_bytes = INFINITY};
    bool tightened = false;
    for (int i = 0; i < MOST_TIGHTENINGS; i++) {
        struct sbp_diag refusal = {{0}}, *const diag = job->diag;
        job->diag = &refusal;
        const enum sbp_status status = try_round(job, &round);
        job->diag = diag;
        if (status == SBP_E_INPUT && tightened)
            return SBP_OK;
        if (status != SBP_OK)
            return sbp_fail(diag, status, "%s", refusal.text);
        if (!tightened)
            *bound_s = fmax(*bound_s, round.bound_s);
        if (round.verdict == FITS || job->outcome->stopped)
            return SBP_OK;
        if (round.verdict == NO_CHOICE)
            return tightened || isinf(round.capacity_bytes) ? SBP_OK : note_need(job);
        if (round.verdict == TOO_LARGE) {
            *too_large = true;
            if (!isinf(round.capacity_bytes))
                return squeeze(job, room);
            round.capacity_bytes = room;
        } else {
            if (round.broken_class < 0 || !tighten_class(job, round.broken_class))
                return SBP_OK;
            tightened = true;
        }
    }
    return SBP_OK;
}

static void reset_class_limits(struct job *job)
{
    for (int c = 0; c < job->plan->graph.class_count; c++)
        job->class_limit[c] = job->plan->graph.dim_class[c].size;
}

/* Looks for plans of a narrower space, which bound nothing and may not be there. */
static enum sbp_status search_part(struct job *job, const struct sbp_request *part)
{
    const struct sbp_request *const request = job->request;
    const double size_log10 = job->outcome->space_size_log10;
    struct sbp_diag refusal = {{0}}, *const diag = job->diag;
    double bound_s = -INFINITY;
    bool too_large = false;
    job->request = part;
    job->diag = &refusal;
    reset_class_limits(job);
    const enum sbp_status status = search_unlabelled(job, &bound_s, &too_large);
    job->request = request;
    job->diag = diag;
    job->outcome->space_size_log10 = size_log10;
    return status == SBP_OK || status == SBP_E_INPUT ? SBP_OK
                                                     : sbp_fail(diag, status, "%s", refusal.text);
}

/* The next way to give axes of each family to the batch; false after the last. */
static bool next_batch_axes(const struct sbp_mesh *mesh, int batch[SBP_MAX_AXES])
{
    for (int f = 0; f < mesh->family_count; f++) {
        if (++batch[f] <= mesh->family[f].count)
            return true;
        batch[f] = 0;
    }
    return false;
}

/* Where no choice of the full space could be labelled, which choices of the batch's axes that do
 * not line up from layer to layer are the cause of: a plan of the narrower space is better than
 * none, and so is one whose layers all split the batch alike. */
static enum sbp_status search_narrower(struct job *job)
{
    struct sbp_request narrower = *job->request, aligned = *job->request;
    int batch[SBP_MAX_AXES] = {0};
    narrower.space = SBP_SPACE_AUTODDL;
    aligned.batch_axes = batch;
    SBP_TRY(search_part(job, &narrower));
    if (isfinite(job->best.objective_s))
        return SBP_OK;
    do
        SBP_TRY(search_part(job, &aligned));
    while (next_batch_axes(&job->plan->mesh, batch) && !job->outcome->stopped);
    return SBP_OK;
}

static enum sbp_status price_refined(void *context, double *best_s, bool *fits)
{
    struct job *const job = context;
    SBP_TRY(price_trial(job));
    keep_better(job);
    *fits = job->trial.device_bytes <= job->limit_bytes;
    *best_s = job->best.objective_s;
    return SBP_OK;
}

/* Closes the gap between plan and bound where the labelled space is small. */
static enum sbp_status refine_space(struct job *job, bool too_large, double *bound_s)
{
    const double room = (double)(job->limit_bytes - job->plan->cluster.reserve_bytes);
    struct sbp_refinement refinement = {.plan = job->plan,
                                        .request = job->request,
                                        .capacity_bytes = too_large ? room : INFINITY,
                                        .trial = &job->trial.strategy,
                                        .price = price_refined,
                                        .context = job,
                                        .start_s = job->start_s,
                                        .best_s = job->best.objective_s};
    SBP_TRY(note_interrupt(job, sbp_refine(&refinement, job->diag)));
    job->outcome->evaluations += refinement.evaluations;
    job->outcome->stopped |= refinement.stopped;
    *bound_s = fmax(*bound_s, refinement.bound_s);
    return SBP_OK;
}

/* Whether the space's objective is never above the step's, and its memory never above a device's:
 * with one stage both are sums, what hides is taken to hide as much as it may, and each micro-batch
 * keeps its own. Several stages are taken for equal, and what is formed again or moved to the host
 * for as much as a mean operator's; steps of cyclic schedules, which update with older gradients,
 * overlap with each other: those plans are never called optimal. */
static bool bounds_step(const struct sbp_plan *plan)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    return parallel->pipeline == 1 && parallel->recompute == SBP_RECOMPUTE_NONE &&
           !parallel->offload && parallel->owner == SBP_OWNER_NONE && !parallel->gather_blocks &&
           !parallel->regather && !sbp_schedule_delays_gradients(parallel->schedule);
}

static bool is_proved(const struct job *job, double bound_s)
{
    return job->best.objective_s <= bound_s * (1 + 1e-9);
}

/* A search that has used up what it was given leaves it there. */
static bool may_refine(const struct job *job, double bound_s)
{
    return job->megatron == NULL && !job->outcome->stopped &&
           job->request->solver_options.max_evaluations == 0 && !is_proved(job, bound_s) &&
           bounds_step(job->plan);
}

/* Whether moving the fewest axes costs least, which the unlabelled price takes for granted. Labels
 * are free to move more of them only where axes are interchangeable. */
static bool fewest_moves_cost_least(const struct sbp_plan *plan)
{
    bool interchangeable = false;
    for (int f = 0; f < plan->mesh.family_count; f++)
        interchangeable |= plan->mesh.family[f].count > 1;
    return !interchangeable || sbp_collective_grows(&plan->stage);
}

/* How much hides depends on all of a step. The bound takes it for as much as may; where less does,
 * a plan that was chosen as if nothing hid may be the better one. */
static enum sbp_status search_as_if_nothing_hid(struct job *job)
{
    const struct sbp_request *const asked = job->request;
    const struct sbp_parallel *parallel = &job->plan->parallel;
    const double overlap = parallel->gradient_overlap >= 0 ? parallel->gradient_overlap
                                                           : job->plan->cluster.gradient_overlap;
    struct sbp_request cautious = *asked;
    double unused_s = -INFINITY;
    bool too_large = false;
    if (overlap <= 0 || asked->objective != SBP_STEP_TIME || job->outcome->stopped ||
        asked->solver_options.max_evaluations > 0)
        return SBP_OK;
    cautious.nothing_hides = true;
    job->request = &cautious;
    reset_class_limits(job);
    const enum sbp_status status = search_unlabelled(job, &unused_s, &too_large);
    job->request = asked;
    return status;
}

static enum sbp_status search_space(struct job *job)
{
    double bound_s = -INFINITY;
    bool too_large = false;
    reset_class_limits(job);
    SBP_TRY(search_unlabelled(job, &bound_s, &too_large));
    if (isinf(job->best.objective_s) && !too_large && !isinf(bound_s) && !job->outcome->stopped &&
        job->request->space == SBP_SPACE_FULL)
        SBP_TRY(search_narrower(job));
    if (!bounds_step(job->plan) || (isfinite(bound_s) && !fewest_moves_cost_least(job->plan)))
        bound_s = -INFINITY;
    SBP_TRY(search_as_if_nothing_hid(job));
    if (may_refine(job, bound_s))
        SBP_TRY(refine_space(job, too_large, &bound_s));
    job->bound_s = fmin(job->bound_s, bound_s);
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
        more = next_batch_axes(mesh, megatron.batch);
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
        /* Every megatron mesh was compiled; elsewhere steps of memory are looked at, not all. */
        const bool proved = job->bound_s > 0 && (isinf(job->bound_s) || job->megatron != NULL);
        outcome->status = proved && !outcome->stopped ? SBP_PLAN_INFEASIBLE : SBP_PLAN_TIME_LIMIT;
        outcome->needed_bytes = job->least_bytes < 9e18 ? (int64_t)ceil(job->least_bytes) : 0;
        return;
    }
    /* Search and program add the same numbers in different order: equal up to roundoff. */
    const bool proved = is_proved(job, job->bound_s);
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

static int64_t limit_of(const struct sbp_plan *plan, const struct sbp_request *request)
{
    return request->memory_limit_bytes > 0 ? request->memory_limit_bytes
                                           : plan->cluster.memory_bytes;
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
                      .start_s = start_s,
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
    if (request->space == SBP_SPACE_MEGATRON)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--problem: space megatron is a problem for each of its meshes; legal with "
                        "full, autoddl and data-parallel");
    SBP_TRY(sbp_space_make(plan, request, NULL, NULL, &space, diag));
    const double room = (double)(limit_of(plan, request) - plan->cluster.reserve_bytes) -
                        sbp_space_constant_bytes(&space);
    const enum sbp_status status = sbp_space_problem(&space, room, problem, diag);
    sbp_space_free(&space);
    return status;
}

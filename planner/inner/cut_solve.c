#include "planner/inner/cut_solve.h"

#include <math.h>

#include "base/clock.h"
#include "planner/inner/cut_solve_job.h"
#include "planner/inner/label_branching.h"
#include "planner/bounds/lagrangian.h"
#include "planner/space/space_table.h"
#include "planner/pricing/working_set.h"

/* Cells of tables over pairs of spaces that are solved many times over in no time. */
#define ALIGNED_CELLS 1e5

/* ---- bounds --------------------------------------------------------------------------------- */

/* Whether the space's objective is never above the step's, and its memory never above a device's:
 * what counts is on a path through the step, and what hides is taken to hide as much as it may.
 * Steps of cyclic schedules, which update with older gradients, overlap with each other: those
 * plans are never called optimal, nor are those whose weights have owners. */
static bool bounds_step(const struct sbp_plan *plan)
{
    return plan->parallel.owner == SBP_OWNER_NONE &&
           !sbp_timeline_delays_gradients(plan->parallel.schedule);
}

/* Whether the space's prices of boxing are never above the program's: they are the normal form's,
 * which paths undercut. */
static bool bounds_boxing(const struct sbp_request *request)
{
    return request->boxing != SBP_BOXING_PATH;
}

/* Of labelled prices. */
static bool labels_bound(const struct sbp_plan *plan, const struct sbp_request *request)
{
    return bounds_step(plan) && bounds_boxing(request);
}

bool sbp_optimise_bounds(const struct sbp_plan *plan, const struct sbp_request *request)
{
    const bool paper_bounds =
        request->boxing != SBP_BOXING_PAPER || sbp_collective_grows(&plan->stage, SBP_ALL_TO_ALL);
    return labels_bound(plan, request) && paper_bounds;
}

/* ---- parts of a space ----------------------------------------------------------------------- */

/* Looks for plans of a narrower space, which bound nothing and may not be there. */
static enum sbp_status search_part(struct sbp_job *job, const struct sbp_request *part)
{
    const struct sbp_request *const request = job->request;
    const double size_log10 = job->outcome->space_size_log10;
    struct sbp_diag refusal = {{0}}, *const diag = job->diag;
    double bound_s = -INFINITY;
    bool too_large = false;
    job->request = part;
    job->diag = &refusal;
    const enum sbp_status status = sbp_job_search(job, &bound_s, &too_large);
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

/* Plans whose layers all split the batch by the same axes, whichever those are. */
static enum sbp_status search_batches(struct sbp_job *job)
{
    struct sbp_request aligned = *job->request;
    int batch[SBP_MAX_AXES] = {0};
    aligned.batch_axes = batch;
    aligned.store = NULL;
    do
        SBP_TRY(search_part(job, &aligned));
    while (next_batch_axes(&job->plan->mesh, batch) && !job->outcome->stopped);
    return SBP_OK;
}

/* Where no choice of the full space could be labelled, or none near its bound, which choices of the
 * batch's axes that do not line up from layer to layer are the cause of: a plan of the narrower
 * space is better than none, and one whose layers all split the batch alike is mostly better than a
 * poor one. */
static enum sbp_status search_narrower(struct sbp_job *job, double bound_s)
{
    const bool is_worth_more = job->is_misled && job->cells <= ALIGNED_CELLS;
    struct sbp_request narrower = *job->request;
    narrower.space = SBP_SPACE_AUTODDL;
    narrower.store = NULL;
    if (isinf(job->best.objective_s))
        SBP_TRY(search_part(job, &narrower));
    const bool is_enough =
        isfinite(job->best.objective_s) && (!is_worth_more || sbp_job_is_near(job, bound_s));
    if (is_enough || job->outcome->stopped)
        return SBP_OK;
    return search_batches(job);
}

/* As many axes as divide a micro-batch, the outermost first. */
static void align_batch(const struct sbp_plan *plan, int batch[SBP_MAX_AXES])
{
    const struct sbp_mesh *mesh = &plan->mesh;
    int64_t left = plan->graph.micro_batch;
    for (int f = 0; f < mesh->family_count; f++)
        for (; batch[f] < mesh->family[f].count && left % mesh->family[f].prime == 0; batch[f]++)
            left /= mesh->family[f].prime;
}

static enum sbp_status search_aligned(struct sbp_job *job)
{
    struct sbp_request aligned = *job->request;
    int batch[SBP_MAX_AXES] = {0};
    align_batch(job->plan, batch);
    aligned.batch_axes = batch;
    aligned.store = NULL;
    job->sketches = true;
    job->bound_s = -INFINITY;
    return search_part(job, &aligned);
}

static enum sbp_status price_refined(void *context, double *best_s, bool *fits)
{
    struct sbp_job *const job = context;
    SBP_TRY(sbp_job_price_trial(job));
    sbp_job_keep_better(job);
    *fits = job->trial.device_bytes <= job->limit_bytes;
    *best_s = sbp_job_goal_s(job);
    return SBP_OK;
}

/* Closes the gap between plan and bound where the labelled space is small. */
static enum sbp_status refine_space(struct sbp_job *job, bool too_large, double *bound_s)
{
    struct sbp_refinement refinement = {.plan = job->plan,
                                        .request = job->request,
                                        .capacity_bytes =
                                            too_large ? sbp_job_room_bytes(job) : INFINITY,
                                        .trial = &job->trial.strategy,
                                        .price = price_refined,
                                        .context = job,
                                        .start_s = job->start_s,
                                        .best_s = sbp_job_goal_s(job)};
    SBP_TRY(sbp_job_note_interrupt(job, sbp_refine(&refinement, job->diag)));
    job->outcome->evaluations += refinement.evaluations;
    job->outcome->stopped |= refinement.stopped;
    *bound_s = fmax(*bound_s, refinement.bound_s);
    return SBP_OK;
}

static bool is_proved(const struct sbp_job *job, double bound_s)
{
    return job->best.objective_s <= bound_s * (1 + 1e-9);
}

/* A search that has used up what it was given leaves it there. What several stages take is more
 * than the sum along a path, whatever the labels: labels close that gap where memory binds, by
 * leaving no plan (elsewhere: planner/outer/path_enumeration.h). */
static bool may_refine(const struct sbp_job *job, bool too_large, double bound_s)
{
    const bool is_sum =
        job->plan->parallel.pipeline == 1 || job->request->objective == SBP_COMMUNICATION;
    return (is_sum || too_large) && job->megatron == NULL && !job->outcome->stopped &&
           job->request->solver_options.max_evaluations == 0 &&
           labels_bound(job->plan, job->request) && bound_s < sbp_job_goal_s(job) * (1 - 1e-9);
}

/* How much hides depends on all of a step. The bound takes it for as much as may; where less does,
 * a plan that was chosen as if nothing hid may be the better one. */
static enum sbp_status search_as_if_nothing_hid(struct sbp_job *job, double bound_s)
{
    const struct sbp_request *const asked = job->request;
    const struct sbp_parallel *parallel = &job->plan->parallel;
    const double overlap = parallel->gradient_overlap >= 0 ? parallel->gradient_overlap
                                                           : job->plan->cluster.gradient_overlap;
    struct sbp_request cautious = *asked;
    double unused_s = -INFINITY;
    bool too_large = false;
    if (overlap <= 0 || asked->objective != SBP_STEP_TIME || job->outcome->stopped ||
        sbp_job_is_hopeless(job, bound_s) || asked->solver_options.max_evaluations > 0)
        return SBP_OK;
    cautious.nothing_hides = true;
    job->request = &cautious;
    job->bounds = false;
    const enum sbp_status status = sbp_job_search(job, &unused_s, &too_large);
    job->request = asked;
    job->bounds = sbp_optimise_bounds(job->plan, asked);
    return status;
}

static enum sbp_status search_space(struct sbp_job *job)
{
    double bound_s = -INFINITY;
    bool too_large = false;
    SBP_TRY(sbp_job_search(job, &bound_s, &too_large));
    if (too_large && job->request->puts_memory_off) {
        job->bound_s = fmin(job->bound_s, job->bounds ? bound_s : -INFINITY);
        return SBP_OK;
    }
    if (job->request->space == SBP_SPACE_FULL && !too_large && bound_s < INFINITY &&
        !job->outcome->stopped && !sbp_job_is_hopeless(job, bound_s))
        SBP_TRY(search_narrower(job, bound_s));
    if (job->is_for_bytes) {
        job->bound_s = -INFINITY;
        return SBP_OK;
    }
    /* What has no legal choice or fits no memory has no plan, whatever prices say. */
    if (!job->bounds && isfinite(bound_s)) {
        bound_s = -INFINITY;
        if (!bounds_boxing(job->request))
            job->outcome->unbounded = "no bound under boxing=path";
    }
    SBP_TRY(search_as_if_nothing_hid(job, bound_s));
    if (may_refine(job, too_large, bound_s))
        SBP_TRY(refine_space(job, too_large, &bound_s));
    job->bound_s = fmin(job->bound_s, bound_s);
    return SBP_OK;
}

/* One mesh, where levels lie. */
static enum sbp_status search_node_mesh(struct sbp_job *job)
{
    struct sbp_megatron_mesh megatron;
    SBP_TRY(sbp_megatron_node_mesh(job->plan, &megatron, job->diag));
    job->megatron = &megatron;
    return search_space(job);
}

/* Every tensor x data mesh, one after the other (AutoDDL, section 5: tuned by hand there). */
static enum sbp_status search_best_mesh(struct sbp_job *job)
{
    const struct sbp_mesh *mesh = &job->plan->mesh;
    struct sbp_megatron_mesh megatron = {{0}};
    struct sbp_diag first = {{0}};
    struct sbp_diag *const diag = job->diag;
    int searched = 0;
    bool more = true;
    while (more && !job->outcome->stopped) {
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
    if (more)
        job->bound_s = -INFINITY; /* nothing is known of the meshes that are left */
    return searched > 0 ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", first.text);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Without a plan: there is none, none below the request's bound, or none was found. Every mesh of a
 * megatron space was compiled; elsewhere steps of memory are looked at, not all. */
static enum sbp_plan_status status_without_plan(const struct sbp_job *job)
{
    const bool meshes = job->megatron != NULL && job->bound_s > 0;
    if (job->outcome->stopped)
        return SBP_PLAN_TIME_LIMIT;
    if (job->bound_s == INFINITY)
        return SBP_PLAN_INFEASIBLE;
    if (job->bound_s >= sbp_job_goal_s(job) * (1 - 1e-9)) /* by labels alone, too */
        return SBP_PLAN_NONE_CHEAPER;
    return meshes && !(job->request->upper_bound_s > 0) ? SBP_PLAN_INFEASIBLE : SBP_PLAN_TIME_LIMIT;
}

static void conclude(struct sbp_job *job)
{
    struct sbp_outcome *outcome = job->outcome;
    const double upper_s = job->request->upper_bound_s;
    outcome->strategy_s = job->best.objective_s;
    outcome->is_too_large =
        isfinite(job->best.objective_s) && job->best.device_bytes > job->limit_bytes;
    if (outcome->is_too_large || (upper_s > 0 && job->best.objective_s >= upper_s))
        job->best.objective_s = INFINITY; /* not asked for */
    outcome->objective_s = job->best.objective_s;
    outcome->lower_bound_s = job->bound_s;
    if (isinf(job->best.objective_s)) {
        outcome->status = status_without_plan(job);
        outcome->needed_bytes = job->least_bytes < 9e18 ? (int64_t)ceil(job->least_bytes) : 0;
        return;
    }
    /* Search and program add the same numbers in different order: equal up to roundoff. */
    const bool proved = is_proved(job, job->bound_s);
    outcome->status = proved ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
    if (proved)
        outcome->lower_bound_s = job->best.objective_s;
}

static enum sbp_status search_meshes(struct sbp_job *job)
{
    switch (sbp_space_rule(job->request->space)->mesh) {
    case SBP_MESH_BEST:
        return search_best_mesh(job);
    case SBP_MESH_NODE:
        return search_node_mesh(job);
    default:
        return search_space(job);
    }
}

static enum sbp_status optimise(struct sbp_job *job, enum sbp_status (*look)(struct sbp_job *job))
{
    const struct sbp_graph *graph = &job->plan->graph;
    SBP_TRY(sbp_strategy_alloc(graph, &job->plan->arena, &job->best.strategy));
    SBP_TRY(sbp_strategy_alloc(graph, &job->scratch, &job->trial.strategy));
    job->class_limit = SBP_NEW(&job->scratch, struct sbp_class_limit, graph->class_count + 1);
    if (job->class_limit == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(look(job));
    job->plan->strategy = job->best.strategy;
    conclude(job);
    return SBP_OK;
}

static enum sbp_status begin(struct sbp_plan *plan, const struct sbp_request *request,
                             enum sbp_status (*look)(struct sbp_job *job),
                             struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    struct sbp_request timed = *request;
    if (timed.deadline_s == 0 && timed.solver_options.time_limit_s > 0)
        timed.deadline_s = start_s + timed.solver_options.time_limit_s;
    *outcome = (struct sbp_outcome){
        .objective_s = INFINITY, .strategy_s = INFINITY, .lower_bound_s = -INFINITY};
    struct sbp_job job = {.plan = plan,
                          .request = &timed,
                          .outcome = outcome,
                          .diag = diag,
                          .best = {.objective_s = INFINITY},
                          .limit_bytes = sbp_request_limit_bytes(request, &plan->cluster),
                          .start_s = start_s,
                          .least_bytes = INFINITY,
                          .bound_s = INFINITY,
                          .bounds = sbp_optimise_bounds(plan, request)};
    const enum sbp_status status = optimise(&job, look);
    sbp_arena_free(&job.scratch);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while searching");
    outcome->wall_s = sbp_clock_s() - start_s;
    return status;
}

enum sbp_status sbp_optimise(struct sbp_plan *plan, const struct sbp_request *request,
                             struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    return begin(plan, request, search_meshes, outcome, diag);
}

enum sbp_status sbp_optimise_aligned(struct sbp_plan *plan, const struct sbp_request *request,
                                     struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    return begin(plan, request, search_aligned, outcome, diag);
}

static enum sbp_status search_for_bytes(struct sbp_job *job)
{
    job->is_for_bytes = true;
    job->bounds = false;
    return search_meshes(job);
}

enum sbp_status sbp_optimise_least(struct sbp_plan *plan, const struct sbp_request *request,
                                   struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    return begin(plan, request, search_for_bytes, outcome, diag);
}

/* ---- bounds without a search ----------------------------------------------------------------- */

/* What no strategy needs less than, looked at as closely as can be. */
static enum sbp_status bound_bytes(struct sbp_space *space, double *bytes)
{
    struct sbp_working working;
    SBP_TRY(sbp_working_init(&working, space, &space->arena));
    *bytes = sbp_working_least(&working, NULL);
    return SBP_OK;
}

/* One call of sbp_optimise_bound, or of sbp_optimise_least_bytes: that looks closely. */
struct bounding {
    const struct sbp_plan *plan;
    const struct sbp_request *request;
    bool is_close;
    struct sbp_optimise_bound bound;
};

/* Of one space, or of one mesh of several. */
static enum sbp_status bound_space(struct bounding *b, const struct sbp_megatron_mesh *megatron,
                                   struct sbp_diag *diag)
{
    const double reserve = (double)b->plan->cluster.reserve_bytes;
    struct sbp_optimise_bound *const bound = &b->bound;
    struct sbp_space space;
    struct sbp_space_bound found;
    SBP_TRY(sbp_space_make(b->plan, b->request, NULL, megatron, &space, diag));
    bound->space_size_log10 = fmax(bound->space_size_log10, sbp_job_space_size_log10(&space));
    if (space.is_refuted) {
        bound->bound_s = fmin(bound->bound_s, space.least_s);
        bound->time_s = fmin(bound->time_s, space.least_s);
        bound->least_bytes = 0;
        sbp_space_free(&space);
        return SBP_OK;
    }
    const double room = (double)sbp_request_limit_bytes(b->request, &b->plan->cluster) - reserve;
    enum sbp_status status = sbp_space_bound(&space, room, &space.arena, &found);
    if (status == SBP_OK && b->is_close)
        status = bound_bytes(&space, &found.least_bytes);
    if (status == SBP_OK) {
        const bool holds = sbp_optimise_bounds(b->plan, b->request);
        bound->bound_s =
            fmin(bound->bound_s, holds || isinf(found.bound_s) ? found.bound_s : -INFINITY);
        bound->time_s = fmin(bound->time_s, holds ? found.time_s : -INFINITY);
        bound->least_bytes = fmin(bound->least_bytes, found.least_bytes + reserve);
    }
    sbp_space_free(&space);
    return status;
}

static enum sbp_status bound_meshes(struct bounding *b, struct sbp_diag *diag)
{
    struct sbp_megatron_mesh megatron = {{0}};
    struct sbp_diag first = {{0}};
    int legal = 0;
    do {
        struct sbp_diag refusal = {{0}};
        const enum sbp_status status = bound_space(b, &megatron, &refusal);
        legal += status == SBP_OK;
        if (status != SBP_OK && status != SBP_E_INPUT)
            return sbp_fail(diag, status, "%s", refusal.text);
        if (status == SBP_E_INPUT && first.text[0] == '\0')
            first = refusal;
    } while (next_batch_axes(&b->plan->mesh, megatron.batch));
    return legal > 0 ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", first.text);
}

static enum sbp_status bound_any(struct bounding *b, struct sbp_diag *diag)
{
    struct sbp_megatron_mesh megatron;
    b->bound = (struct sbp_optimise_bound){
        .bound_s = INFINITY, .time_s = INFINITY, .least_bytes = INFINITY};
    switch (sbp_space_rule(b->request->space)->mesh) {
    case SBP_MESH_BEST:
        return bound_meshes(b, diag);
    case SBP_MESH_NODE:
        SBP_TRY(sbp_megatron_node_mesh(b->plan, &megatron, diag));
        return bound_space(b, &megatron, diag);
    default:
        return bound_space(b, NULL, diag);
    }
}

enum sbp_status sbp_optimise_bound(const struct sbp_plan *plan, const struct sbp_request *request,
                                   struct sbp_optimise_bound *bound, struct sbp_diag *diag)
{
    struct bounding bounding = {.plan = plan, .request = request};
    const enum sbp_status status = bound_any(&bounding, diag);
    *bound = bounding.bound;
    return status;
}

enum sbp_status sbp_optimise_least_bytes(const struct sbp_plan *plan,
                                         const struct sbp_request *request, double *bytes,
                                         struct sbp_diag *diag)
{
    struct sbp_request all = *request;
    struct bounding bounding = {.plan = plan, .request = &all, .is_close = true};
    all.every_level = true; /* one that is left out may need less by a closer look */
    const enum sbp_status status = bound_any(&bounding, diag);
    *bytes = bounding.bound.least_bytes;
    return status;
}

enum sbp_status sbp_optimise_problem(const struct sbp_plan *plan, const struct sbp_request *request,
                                     struct sbp_problem *problem, struct sbp_diag *diag)
{
    struct sbp_space space;
    if (sbp_space_rule(request->space)->mesh != SBP_MESH_FREE)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--problem: space %s is a problem for each of its meshes; legal with "
                        "full, autoddl, data-parallel and others that split layer by layer",
                        sbp_space_name(request->space));
    SBP_TRY(sbp_space_make(plan, request, NULL, NULL, &space, diag));
    const double room =
        (double)(sbp_request_limit_bytes(request, &plan->cluster) - plan->cluster.reserve_bytes);
    const enum sbp_status status = sbp_space_problem(&space, room, problem, diag);
    sbp_space_free(&space);
    return status;
}

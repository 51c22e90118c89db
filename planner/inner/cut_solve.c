#include "planner/inner/cut_solve.h"

#include <math.h>

#include "base/clock.h"
#include "planner/bounds/lagrangian.h"
#include "planner/inner/cut_solve_priv.h"
#include "planner/inner/label_branching_priv.h"
#include "planner/limits.h"
#include "planner/pricing/working_set.h"
#include "planner/space/space_table.h"

/* ---- bounds --------------------------------------------------------------------------------- */

/* Whether the cost of a space is never above the step's, and its memory never above a device's. Its
 * cost counts what lies on a path through the step, and takes as hidden all that may hide. Steps of
 * cyclic schedules (CDP), which update with older gradients, overlap each other, so that their
 * plans are never called optimal; nor are plans whose weights have owners. */
static bool bounds_step(const struct sbp_cut *cut)
{
    return cut->parallel.owner == SBP_OWNER_NONE &&
           !sbp_timeline_delays_gradients(cut->parallel.schedule);
}

/* Whether the space's prices of transfers are never above the program's: they are the normal
 * form's, and paths cost less. */
static bool bounds_boxing(const struct sbp_solve_request *request)
{
    return request->asked.boxing != SBP_BOXING_PATH;
}

/* Whether labelled prices bound the step. */
static bool labels_bound(const struct sbp_cut *cut, const struct sbp_solve_request *request)
{
    return bounds_step(cut) && bounds_boxing(request);
}

bool sbp_inner_is_bounded(const struct sbp_cut *cut, const struct sbp_solve_request *request)
{
    const bool paper_bounds = request->asked.boxing != SBP_BOXING_PAPER ||
                              sbp_collective_grows(&cut->stage, SBP_ALL_TO_ALL);
    return labels_bound(cut, request) && paper_bounds;
}

/* ---- parts of a space ----------------------------------------------------------------------- */

/* Looks for plans of a narrower space. It bounds nothing and may hold no plan. */
static enum sbp_status search_part(struct sbp_inner_job *job, const struct sbp_solve_request *part)
{
    const struct sbp_solve_request *const request = job->request;
    const double size_log10 = job->outcome->space_size_log10;
    struct sbp_diag refusal = {{0}}, *const diag = job->diag;
    double bound_s = -INFINITY;
    bool too_large = false;
    job->request = part;
    job->diag = &refusal;
    const enum sbp_status status = sbp_inner_search_space(job, &bound_s, &too_large);
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

/* Searches the plans whose layers all split the batch by the same axes, for every set of axes. */
static enum sbp_status search_batches(struct sbp_inner_job *job)
{
    struct sbp_solve_request aligned = *job->request;
    int batch[SBP_MAX_AXES] = {0};
    aligned.batch_axes = batch;
    aligned.store = NULL;
    do
        SBP_TRY(search_part(job, &aligned));
    while (next_batch_axes(&job->cut->mesh, batch) && !job->outcome->stopped);
    return SBP_OK;
}

/* Searches the AutoDDL space where no choice of the full space could be labelled: a plan of a
 * narrower space is better than none. Where no labelled plan is close to the bound, batch axes that
 * do not line up from layer to layer are the cause: then plans whose layers all split the batch
 * alike are searched. */
static enum sbp_status search_narrower(struct sbp_inner_job *job, double bound_s)
{
    const bool is_worth_more = job->is_misled && job->cells <= SBP_INNER_ALIGNED_CELLS;
    struct sbp_solve_request narrower = *job->request;
    narrower.asked.space = SBP_SPACE_AUTODDL;
    narrower.store = NULL;
    if (isinf(job->best.objective_s))
        SBP_TRY(search_part(job, &narrower));
    const bool is_enough =
        isfinite(job->best.objective_s) && (!is_worth_more || sbp_inner_is_good(job, bound_s));
    if (is_enough || job->outcome->stopped)
        return SBP_OK;
    return search_batches(job);
}

/* Gives the batch as many axes as divide a micro-batch, the outermost first. */
static void align_batch(const struct sbp_cut *cut, int batch[SBP_MAX_AXES])
{
    const struct sbp_mesh *mesh = &cut->mesh;
    int64_t left = cut->graph.micro_batch;
    for (int f = 0; f < mesh->family_count; f++)
        for (; batch[f] < mesh->family[f].count && left % mesh->family[f].prime == 0; batch[f]++)
            left /= mesh->family[f].prime;
}

static enum sbp_status search_aligned(struct sbp_inner_job *job)
{
    struct sbp_solve_request aligned = *job->request;
    int batch[SBP_MAX_AXES] = {0};
    align_batch(job->cut, batch);
    aligned.batch_axes = batch;
    aligned.store = NULL;
    aligned.draws_few = true;
    job->sketches = true;
    job->bound_s = -INFINITY;
    return search_part(job, &aligned);
}

static enum sbp_status price_branch(void *context, double *best_s, bool *fits)
{
    struct sbp_inner_job *const job = context;
    SBP_TRY(sbp_inner_price_trial(job));
    sbp_inner_keep_better(job);
    *fits = job->trial.device_bytes <= job->limit_bytes;
    *best_s = sbp_inner_goal_s(job);
    return SBP_OK;
}

/* Closes the gap between plan and bound where the labelled space is small. */
static enum sbp_status branch_labels(struct sbp_inner_job *job, bool too_large, double *bound_s)
{
    struct sbp_label_branching branching = {.cut = job->cut,
                                            .request = job->request,
                                            .capacity_bytes =
                                                too_large ? sbp_inner_room_bytes(job) : INFINITY,
                                            .trial = &job->trial.strategy,
                                            .price = price_branch,
                                            .context = job,
                                            .start_s = job->start_s,
                                            .best_s = sbp_inner_goal_s(job)};
    SBP_TRY(sbp_inner_note_interrupt(job, sbp_label_branch(&branching, job->diag)));
    job->outcome->evaluations += branching.evaluations;
    job->outcome->stopped |= branching.stopped;
    *bound_s = fmax(*bound_s, branching.bound_s);
    return SBP_OK;
}

static bool is_proved(const struct sbp_inner_job *job, double bound_s)
{
    return job->best.objective_s <= bound_s * (1 + SBP_INNER_ROUND_OFF);
}

/* Whether label branching may close the gap between plan and bound. With several stages a step
 * takes longer than the sum along a path, whatever the labels, so that labels close the gap only
 * where memory binds, by leaving no plan (else planner/outer/path_enumeration.h does). A search
 * that has spent its budget ends there. */
static bool may_branch(const struct sbp_inner_job *job, bool too_large, double bound_s)
{
    const bool is_sum =
        job->cut->parallel.pipeline == 1 || job->request->asked.objective == SBP_COMMUNICATION;
    return (is_sum || too_large) && job->megatron == NULL && !job->outcome->stopped &&
           job->request->asked.solver_options.max_evaluations == 0 &&
           labels_bound(job->cut, job->request) &&
           bound_s < sbp_inner_goal_s(job) * (1 - SBP_INNER_ROUND_OFF);
}

/* Whether any communication may hide. */
static bool something_hides(const struct sbp_cut *cut)
{
    const struct sbp_runtime *runtime = &cut->cluster->runtime;
    bool hides = sbp_parallel_hidden_share(&cut->parallel, cut->cluster) > 0;
    for (int i = 0; i < SBP_HIDINGS; i++)
        hides |= runtime->hidden[i] > 0;
    return hides;
}

/* Searches again as if no communication hid. The bound hides as much as may be; where a step hides
 * less, this plan may be the better one. A plan close to the bound hides as much; and where no plan
 * fits, what hides makes none fit. */
static enum sbp_status search_as_if_nothing_hid(struct sbp_inner_job *job, double bound_s,
                                                bool memory_binds)
{
    const struct sbp_solve_request *const given = job->request;
    struct sbp_solve_request cautious = *given;
    double unused_s = -INFINITY;
    bool too_large = false;
    if (!something_hides(job->cut) || given->asked.objective != SBP_STEP_TIME ||
        job->outcome->stopped || sbp_inner_is_hopeless(job, bound_s) ||
        sbp_inner_is_good(job, bound_s) || (memory_binds && isinf(job->best.objective_s)) ||
        given->asked.solver_options.max_evaluations > 0)
        return SBP_OK;
    cautious.nothing_hides = true;
    job->request = &cautious;
    job->bounds = false;
    const enum sbp_status status = sbp_inner_search_space(job, &unused_s, &too_large);
    job->request = given;
    job->bounds = sbp_inner_is_bounded(job->cut, given);
    return status;
}

static enum sbp_status search_space(struct sbp_inner_job *job)
{
    double bound_s = -INFINITY;
    bool too_large = false;
    SBP_TRY(sbp_inner_search_space(job, &bound_s, &too_large));
    if (job->outcome->is_plain)
        bound_s = -INFINITY;
    if (too_large && job->request->puts_memory_off) {
        job->bound_s = fmin(job->bound_s, job->bounds ? bound_s : -INFINITY);
        return SBP_OK;
    }
    if (job->request->asked.space == SBP_SPACE_FULL && !too_large && bound_s < INFINITY &&
        !job->outcome->stopped && !sbp_inner_is_hopeless(job, bound_s))
        SBP_TRY(search_narrower(job, bound_s));
    if (job->is_for_bytes) {
        job->bound_s = -INFINITY;
        return SBP_OK;
    }
    /* A space without a legal choice, or without one that fits, has no plan even where prices are
     * no bounds. */
    if (!job->bounds && isfinite(bound_s)) {
        bound_s = -INFINITY;
        if (!bounds_boxing(job->request))
            job->outcome->unbounded = "no bound under boxing=path";
    }
    SBP_TRY(search_as_if_nothing_hid(job, bound_s, too_large));
    if (may_branch(job, too_large, bound_s))
        SBP_TRY(branch_labels(job, too_large, &bound_s));
    job->bound_s = fmin(job->bound_s, bound_s);
    return SBP_OK;
}

/* Searches the one Megatron mesh that follows the levels of the cluster. */
static enum sbp_status search_node_mesh(struct sbp_inner_job *job)
{
    struct sbp_megatron_mesh megatron;
    SBP_TRY(sbp_megatron_node_mesh(job->cut, &megatron, job->diag));
    job->megatron = &megatron;
    return search_space(job);
}

/* Searches every tensor x data mesh (AutoDDL, section 5, tunes it by hand). */
static enum sbp_status search_best_mesh(struct sbp_inner_job *job)
{
    const struct sbp_mesh *mesh = &job->cut->mesh;
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
        job->bound_s = -INFINITY; /* the meshes that are left have no bound */
    return searched > 0 ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", first.text);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The status without a plan: proved infeasible, no plan below the goal, or none found. Each mesh of
 * a Megatron space was searched; elsewhere only some capacities were tried. */
static enum sbp_plan_status status_without_plan(const struct sbp_inner_job *job)
{
    const bool meshes = job->megatron != NULL && job->bound_s > 0;
    if (job->outcome->stopped)
        return SBP_PLAN_TIME_LIMIT;
    if (job->bound_s == INFINITY)
        return SBP_PLAN_INFEASIBLE;
    if (job->bound_s >=
        sbp_inner_goal_s(job) *
            (1 - SBP_INNER_ROUND_OFF)) /* also where label branching raised the bound */
        return SBP_PLAN_NONE_CHEAPER;
    return meshes && !(job->request->upper_bound_s > 0) ? SBP_PLAN_INFEASIBLE : SBP_PLAN_TIME_LIMIT;
}

static void conclude(struct sbp_inner_job *job)
{
    struct sbp_outcome *outcome = job->outcome;
    const double upper_s = job->request->upper_bound_s;
    outcome->strategy_s = job->best.objective_s;
    outcome->is_too_large =
        isfinite(job->best.objective_s) && job->best.device_bytes > job->limit_bytes;
    if (outcome->is_too_large || (upper_s > 0 && job->best.objective_s >= upper_s))
        job->best.objective_s = INFINITY; /* the request asks for a better plan */
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

static enum sbp_status search_meshes(struct sbp_inner_job *job)
{
    switch (sbp_space_rule(job->request->asked.space)->mesh) {
    case SBP_MESH_BEST:
        return search_best_mesh(job);
    case SBP_MESH_NODE:
        return search_node_mesh(job);
    default:
        return search_space(job);
    }
}

static enum sbp_status run_job(struct sbp_inner_job *job,
                               enum sbp_status (*look)(struct sbp_inner_job *job))
{
    const struct sbp_graph *graph = &job->cut->graph;
    SBP_TRY(sbp_strategy_alloc(graph, job->arena, &job->best.strategy));
    SBP_TRY(sbp_strategy_alloc(graph, job->arena, &job->attained.strategy));
    SBP_TRY(sbp_strategy_alloc(graph, &job->scratch, &job->trial.strategy));
    job->class_limit = SBP_NEW(&job->scratch, struct sbp_class_limit, graph->class_count + 1);
    if (job->class_limit == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(look(job));
    job->outcome->strategy = job->best.strategy;
    job->outcome->attained = job->attained.strategy;
    job->outcome->attained_s =
        job->attained.objective_s == job->best.objective_s ? INFINITY : job->attained.objective_s;
    conclude(job);
    return SBP_OK;
}

static enum sbp_status begin(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                             enum sbp_status (*look)(struct sbp_inner_job *job),
                             struct sbp_arena *arena, struct sbp_outcome *outcome,
                             struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    struct sbp_solve_request timed = *request;
    if (timed.deadline_s == 0 && timed.asked.solver_options.time_limit_s > 0)
        timed.deadline_s = start_s + timed.asked.solver_options.time_limit_s;
    *outcome = (struct sbp_outcome){.objective_s = INFINITY,
                                    .strategy_s = INFINITY,
                                    .attained_s = INFINITY,
                                    .lower_bound_s = -INFINITY};
    struct sbp_inner_job job = {.cut = cut,
                                .arena = arena,
                                .request = &timed,
                                .outcome = outcome,
                                .diag = diag,
                                .scratch.budget = request->asked.search_memory,
                                .best = {.objective_s = INFINITY},
                                .attained = {.objective_s = INFINITY},
                                .limit_bytes =
                                    sbp_request_limit_bytes(&request->asked, cut->cluster),
                                .start_s = start_s,
                                .least_bytes = INFINITY,
                                .bound_s = INFINITY,
                                .bounds = sbp_inner_is_bounded(cut, request)};
    const enum sbp_status status = run_job(&job, look);
    sbp_arena_free(&job.scratch);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while searching");
    outcome->wall_s = sbp_clock_s() - start_s;
    return status;
}

enum sbp_status sbp_inner_solve(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                                struct sbp_arena *arena, struct sbp_outcome *outcome,
                                struct sbp_diag *diag)
{
    return begin(cut, request, search_meshes, arena, outcome, diag);
}

enum sbp_status sbp_inner_solve_aligned(const struct sbp_cut *cut,
                                        const struct sbp_solve_request *request,
                                        struct sbp_arena *arena, struct sbp_outcome *outcome,
                                        struct sbp_diag *diag)
{
    return begin(cut, request, search_aligned, arena, outcome, diag);
}

static enum sbp_status search_for_bytes(struct sbp_inner_job *job)
{
    job->is_for_bytes = true;
    job->bounds = false;
    return search_meshes(job);
}

enum sbp_status sbp_inner_solve_for_bytes(const struct sbp_cut *cut,
                                          const struct sbp_solve_request *request,
                                          struct sbp_arena *arena, struct sbp_outcome *outcome,
                                          struct sbp_diag *diag)
{
    return begin(cut, request, search_for_bytes, arena, outcome, diag);
}

/* ---- bounds without a search ----------------------------------------------------------------- */

/* Lower bound of memory with working sets. */
static enum sbp_status bound_bytes(struct sbp_space *space, double *bytes)
{
    struct sbp_working working;
    SBP_TRY(sbp_working_init(&working, space, &space->arena));
    *bytes = sbp_working_least(&working, NULL);
    return SBP_OK;
}

/* One call of sbp_inner_bound, or of sbp_inner_least_bytes (is_close). */
struct bounding {
    const struct sbp_cut *cut;
    const struct sbp_solve_request *request;
    bool is_close;
    struct sbp_inner_bound bound;
};

/* Bounds one space, or one mesh of several, and takes the least. */
static enum sbp_status bound_space(struct bounding *b, const struct sbp_megatron_mesh *megatron,
                                   struct sbp_diag *diag)
{
    const double reserve = (double)b->cut->cluster->reserve_bytes;
    struct sbp_inner_bound *const bound = &b->bound;
    struct sbp_space space;
    struct sbp_lagrangian_bound found;
    SBP_TRY(sbp_space_make(b->cut, b->request, NULL, megatron, &space, diag));
    bound->space_size_log10 = fmax(bound->space_size_log10, sbp_inner_space_size_log10(&space));
    if (space.is_refuted) {
        bound->bound_s = fmin(bound->bound_s, space.least_s);
        bound->time_s = fmin(bound->time_s, space.least_s);
        bound->least_bytes = 0;
        sbp_space_free(&space);
        return SBP_OK;
    }
    const double room =
        (double)sbp_request_limit_bytes(&b->request->asked, b->cut->cluster) - reserve;
    enum sbp_status status = sbp_lagrangian_bound(&space, room, &space.arena, &found);
    if (status == SBP_OK && b->is_close)
        status = bound_bytes(&space, &found.least_bytes);
    if (status == SBP_OK) {
        const bool holds = !space.is_plain && sbp_inner_is_bounded(b->cut, b->request);
        const bool excludes = isinf(found.bound_s) && !space.is_plain;
        bound->bound_s = fmin(bound->bound_s, holds || excludes ? found.bound_s : -INFINITY);
        bound->time_s = fmin(bound->time_s, holds ? found.time_s : -INFINITY);
        bound->least_bytes = fmin(bound->least_bytes, found.least_bytes + reserve);
        bound->is_plain |= space.is_plain;
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
    } while (next_batch_axes(&b->cut->mesh, megatron.batch));
    return legal > 0 ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", first.text);
}

static enum sbp_status bound_any(struct bounding *b, struct sbp_diag *diag)
{
    struct sbp_megatron_mesh megatron;
    b->bound =
        (struct sbp_inner_bound){.bound_s = INFINITY, .time_s = INFINITY, .least_bytes = INFINITY};
    switch (sbp_space_rule(b->request->asked.space)->mesh) {
    case SBP_MESH_BEST:
        return bound_meshes(b, diag);
    case SBP_MESH_NODE:
        SBP_TRY(sbp_megatron_node_mesh(b->cut, &megatron, diag));
        return bound_space(b, &megatron, diag);
    default:
        return bound_space(b, NULL, diag);
    }
}

enum sbp_status sbp_inner_bound(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                                struct sbp_inner_bound *bound, struct sbp_diag *diag)
{
    struct bounding bounding = {.cut = cut, .request = request};
    const enum sbp_status status = bound_any(&bounding, diag);
    *bound = bounding.bound;
    return status;
}

enum sbp_status sbp_inner_least_bytes(const struct sbp_cut *cut,
                                      const struct sbp_solve_request *request, double *bytes,
                                      struct sbp_diag *diag)
{
    struct sbp_solve_request all = *request;
    struct bounding bounding = {.cut = cut, .request = &all, .is_close = true};
    all.every_level = true; /* levels that the model leaves out may need less with working sets */
    const enum sbp_status status = bound_any(&bounding, diag);
    *bytes = bounding.bound.is_plain ? 0 : bounding.bound.least_bytes;
    return status;
}

enum sbp_status sbp_inner_problem(const struct sbp_cut *cut,
                                  const struct sbp_solve_request *request,
                                  struct sbp_problem *problem, struct sbp_diag *diag)
{
    struct sbp_space space;
    if (sbp_space_rule(request->asked.space)->mesh != SBP_MESH_FREE)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--problem: space %s is a problem for each of its meshes; legal with "
                        "full, autoddl, data-parallel and others that split layer by layer",
                        sbp_request_space_name(request->asked.space));
    SBP_TRY(sbp_space_make(cut, request, NULL, NULL, &space, diag));
    const double room = (double)(sbp_request_limit_bytes(&request->asked, cut->cluster) -
                                 cut->cluster->reserve_bytes);
    const enum sbp_status status =
        space.is_plain
            ? sbp_fail(diag, SBP_E_UNSUPPORTED,
                       "--problem: a layer has more than %d ways to be split over %lld devices; "
                       "legal are fewer devices or a narrower --space",
                       SBP_SPACE_MOST_TUPLES, (long long)cut->mesh.devices)
            : sbp_pricing_problem(&space, room, problem, diag);
    sbp_space_free(&space);
    return status;
}

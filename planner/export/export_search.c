/* The best plan that a target can express, where that is a list of layouts: each is searched in
 * what its degrees leave open, against the best of those before. */
#include <math.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "planner/export/export_priv.h"
#include "planner/limits.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/outer/step_cuts.h"

struct search {
    const struct sbp_export export; /* its target and `given` alone */
    const struct sbp_request *request;
    struct sbp_arena *arena; /* of the result */
    struct sbp_export_found *found;
    double start_s, open_s; /* open_s: least bound of what may still be better */
    double floor_s;         /* bound of every layout, by arithmetic alone */
    bool any_legal;
    struct sbp_diag first; /* why the first layout is not legal */
};

/* ---- limits ---------------------------------------------------------------------------------- */

static bool is_over(struct search *s)
{
    const struct sbp_solver_options *options = &s->request->solver_options;
    struct sbp_outcome *out = &s->found->outcome;
    out->stopped |= (options->stop != NULL && *options->stop != 0) ||
                    (options->time_limit_s > 0 &&
                     sbp_clock_s() - s->start_s >= SBP_OUTER_TIME_SHARE * options->time_limit_s) ||
                    (options->max_evaluations > 0 && out->evaluations >= options->max_evaluations);
    return out->stopped;
}

/* The progress of one layout is added to that of those before. */
static void show_progress(void *context, int64_t evaluations, double best, double elapsed_s)
{
    const struct search *s = context;
    const struct sbp_solver_options *options = &s->request->solver_options;
    const struct sbp_outcome *out = &s->found->outcome;
    options->progress(options->progress_context, out->evaluations + evaluations,
                      fmin(out->objective_s, best), elapsed_s);
}

/* ---- one layout ------------------------------------------------------------------------------ */

enum sbp_status sbp_export_lay_out(struct sbp_plan *plan, const struct sbp_export_target *target,
                                   const struct sbp_degrees *degrees, enum sbp_schedule schedule,
                                   struct sbp_arena *arena, struct sbp_degrees_plan *made,
                                   struct sbp_diag *diag)
{
    struct sbp_parallel parallel = sbp_parallel_default(&plan->workload.model);
    parallel.gather_blocks = (target->can & SBP_EXPORT_UNITS) != 0;
    /* Chunks under the default schedule become interleaved ones. */
    if (degrees->pipeline > 1 && schedule != SBP_INTERLEAVED)
        parallel.schedule = schedule;
    SBP_TRY(sbp_plan_cut(plan, &parallel, diag));
    return sbp_degrees_apply(degrees, plan, arena, made, diag);
}

/* The micro-batch, recompute and offload are open where the target has them. */
static struct sbp_request request_of(const struct search *s, const struct sbp_degrees_plan *made)
{
    const unsigned can = s->export.target->can;
    const bool offloads = (can & SBP_EXPORT_OFFLOAD) != 0 &&
                          !sbp_export_keeps_states_whole(&s->export) &&
                          ((can & SBP_EXPORT_OFFLOADS_SHARDS) == 0 || made->degrees.zero > 0);
    struct sbp_request request = *s->request;
    request.space = SBP_SPACE_FULL;
    request.given = ~sbp_request_bit("recompute");
    if (!sbp_request_gives(s->request, "micro_batch"))
        request.given &= ~sbp_request_bit("micro_batch");
    if (offloads)
        request.given &= ~sbp_request_bit("offload");
    request.recomputes = 0;
    for (int mode = 0; mode < SBP_RECOMPUTES; mode++)
        if (s->export.target->recompute[mode] == mode)
            request.recomputes |= 1u << mode;
    request.plan_alone = request.is_fixed = true;
    request.replicas = made->degrees.data;
    request.fix = made->fix;
    request.fix_count = made->fix_count;
    if (isfinite(s->found->outcome.objective_s))
        request.most_s = s->found->outcome.objective_s;
    request.solver_options = sbp_solver_options_left(
        request.solver_options, sbp_clock_s() - s->start_s, s->found->outcome.evaluations);
    if (request.solver_options.progress != NULL) {
        request.solver_options.progress = show_progress;
        request.solver_options.progress_context = (void *)s;
    }
    return request;
}

/* Keeps a plan that is better than those before. */
static enum sbp_status keep(struct search *s, const struct sbp_plan *plan,
                            const struct sbp_degrees_plan *made,
                            const struct sbp_export_layout *layout,
                            const struct sbp_pool_plan *best)
{
    struct sbp_outcome *out = &s->found->outcome;
    if (!(best->objective_s < out->objective_s))
        return SBP_OK;
    if (isinf(out->objective_s))
        SBP_TRY(sbp_strategy_alloc(&plan->workload.model, s->arena, &out->strategy));
    sbp_strategy_copy(&plan->workload.model, &best->strategy, &out->strategy);
    out->objective_s = out->strategy_s = best->objective_s;
    s->found->schedule = layout->schedule;
    s->found->parallel = best->parallel;
    s->found->degrees = made->degrees;
    s->found->degrees.micro_batch = best->parallel.micro_batch / made->degrees.data;
    s->found->degrees.recompute = (int)best->parallel.recompute;
    s->found->degrees.offload = best->parallel.offload;
    return SBP_OK;
}

/* The cost below which nothing of a layout is left to look for. Its degrees leave the names of axes
 * open, and where few tensors rest; its price is that of the strategy that its search takes among
 * these, as `price` does, and it has none where that strategy does not fit. So a bound below the
 * price says no more, unless layers have a choice or the search was not whole. */
static double left_s(const struct search *s, const struct sbp_outcome *one)
{
    const bool is_one = !one->stopped && !one->left_out && !one->is_plain && !one->is_narrow &&
                        one->space_size_log10 == 0;
    return is_one ? one->objective_s : fmax(one->lower_bound_s, s->floor_s);
}

/* Adds what the search of one layout says of the whole. */
static void note(struct search *s, const struct sbp_outcome *one)
{
    struct sbp_outcome *out = &s->found->outcome;
    out->evaluations += one->evaluations;
    out->stopped |= one->stopped;
    out->left_out |= one->left_out;
    out->is_plain |= one->is_plain;
    out->is_narrow |= one->is_narrow;
    if (one->algorithm != NULL)
        out->algorithm = one->algorithm;
    if (one->unbounded != NULL)
        out->unbounded = one->unbounded;
    s->open_s = fmin(s->open_s, left_s(s, one));
}

static enum sbp_status search_layout(struct search *s, struct sbp_plan *plan,
                                     const struct sbp_export_layout *layout, struct sbp_diag *why)
{
    struct sbp_degrees degrees = layout->degrees;
    struct sbp_degrees_plan made;
    struct sbp_pool pool = {0};
    struct sbp_outcome one;
    const int64_t given = s->export.given->cut.parallel.micro_batch;
    const int64_t replicas = sbp_cluster_devices(&plan->workload.cluster) /
                             (degrees.pipeline * degrees.tensor * degrees.context);
    if (sbp_request_gives(s->request, "micro_batch")) {
        if (given % replicas != 0)
            return sbp_fail(why, SBP_E_INPUT,
                            "parallel: micro_batch: %lld is not shared out over %lld replicas",
                            (long long)given, (long long)replicas);
        degrees.micro_batch = given / replicas;
    }
    SBP_TRY(sbp_export_lay_out(plan, s->export.target, &degrees, layout->schedule, &plan->arena,
                               &made, why));
    const struct sbp_request request = request_of(s, &made);
    SBP_TRY(sbp_outer_search(plan, &request, 1, &plan->arena, &pool, &one, why));
    s->any_legal = true;
    note(s, &one);
    return pool.count == 0 ? SBP_OK : keep(s, plan, &made, layout, &pool.plan[0]);
}

/* Searches a layout in a plan of its own. One that is not legal is none. */
static enum sbp_status search_alone(struct search *s, const struct sbp_export_layout *layout,
                                    struct sbp_diag *diag)
{
    struct cJSON *model = cJSON_Duplicate(s->export.given->workload.model_json, true);
    struct cJSON *cluster = cJSON_Duplicate(s->export.given->workload.cluster_json, true);
    struct sbp_plan plan;
    struct sbp_diag why = {{0}};
    if (model == NULL || cluster == NULL) {
        cJSON_Delete(model);
        cJSON_Delete(cluster);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    }
    SBP_TRY(sbp_plan_begin(model, "model", cluster, "cluster", &plan, diag));
    const enum sbp_status status = search_layout(s, &plan, layout, &why);
    sbp_plan_free(&plan);
    if (s->first.text[0] == '\0')
        s->first = why;
    return status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED || status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "%s", why.text);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The arithmetic at the peak, shared out evenly over all devices, is in every layout. */
static enum sbp_status find_floor(struct search *s, struct sbp_diag *diag)
{
    struct sbp_request request = *s->request;
    struct sbp_step_cuts cuts;
    struct sbp_cut cut = s->export.given->cut;
    request.space = SBP_SPACE_FULL;
    request.given = ~0u;
    cut.parallel = sbp_parallel_default(&cut.graph);
    SBP_TRY(sbp_step_cuts_list(&cut, &request, s->arena, &cuts, diag));
    s->floor_s = cuts.candidate[0].bound_s;
    return SBP_OK;
}

static void conclude(struct search *s)
{
    struct sbp_outcome *out = &s->found->outcome;
    const bool found = isfinite(out->objective_s);
    const bool proved = s->open_s >= out->objective_s * (1 - SBP_INNER_ROUND_OFF);
    out->wall_s = sbp_clock_s() - s->start_s;
    out->lower_bound_s = fmin(s->open_s, out->objective_s);
    if (found && proved)
        out->lower_bound_s = out->objective_s;
    if (found)
        out->status = proved ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
    else
        out->status = isinf(s->open_s) ? SBP_PLAN_INFEASIBLE : SBP_PLAN_TIME_LIMIT;
}

/* Whether trainers mostly run such a layout: searched first, these refute most of the others. */
static bool is_usual(const struct search *s, const struct sbp_export_layout *layout)
{
    const struct sbp_degrees *d = &layout->degrees;
    return d->zero == s->export.target->zero[1] && d->context == 1 && d->chunks == 1 &&
           d->expert_tensor <= 1 && (d->tensor == 1 || d->sequence_parallel);
}

static enum sbp_status search_all(struct search *s, const struct sbp_export_layouts *layouts,
                                  struct sbp_diag *diag)
{
    SBP_TRY(find_floor(s, diag));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < layouts->count && !is_over(s); i++)
            if (is_usual(s, &layouts->layout[i]) == (round == 0))
                SBP_TRY(search_alone(s, &layouts->layout[i], diag));
    if (s->found->outcome.stopped)
        s->open_s = fmin(s->open_s, s->floor_s);
    if (!s->any_legal && !s->found->outcome.stopped)
        return sbp_fail(diag, SBP_E_INPUT, "%s", s->first.text);
    conclude(s);
    return SBP_OK;
}

enum sbp_status sbp_export_find(const struct sbp_plan *plan, const struct sbp_export_target *target,
                                const struct sbp_request *request, struct sbp_arena *arena,
                                struct sbp_export_found *found, struct sbp_diag *diag)
{
    struct sbp_export_layouts layouts;
    struct search s = {.export = {.target = target, .given = plan},
                       .request = request,
                       .arena = arena,
                       .found = found,
                       .start_s = sbp_clock_s(),
                       .open_s = INFINITY};
    *found = (struct sbp_export_found){.outcome = {.objective_s = INFINITY,
                                                   .strategy_s = INFINITY,
                                                   .attained_s = INFINITY,
                                                   .lower_bound_s = -INFINITY}};
    SBP_TRY(sbp_export_list_layouts(&s.export, arena, &layouts, diag));
    found->layouts = layouts.count;
    return search_all(&s, &layouts, diag);
}

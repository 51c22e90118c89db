#include "planner/outer/branch_and_bound_priv.h"

#include "base/clock.h"
#include "planner/limits.h"
#include "planner/outer/path_enumeration.h"

/* ---- what a solver is given ------------------------------------------------------------------ */

static struct sbp_solver_options options_left(const struct sbp_branch_and_bound *e)
{
    struct sbp_solver_options options = e->request->solver_options;
    if (options.time_limit_s > 0)
        options.time_limit_s = sbp_outer_limit_s(e);
    return sbp_solver_options_left(options, sbp_clock_s() - e->start_s, e->out->evaluations);
}

static bool is_to_relax(const struct sbp_branch_and_bound *e, const struct sbp_node *node)
{
    return node->knowledge == SBP_BOUNDED && sbp_outer_proves(e) &&
           node->bound_s <= SBP_OUTER_RELAX_RATIO * node->time_s;
}

struct sbp_solve_request sbp_outer_request(struct sbp_branch_and_bound *e,
                                           const struct sbp_node *node)
{
    struct sbp_solve_request request = e->solve;
    sbp_price_cache_trim(&e->cache);
    request.part = node->part;
    request.deadline_s = isfinite(sbp_outer_limit_s(e)) ? e->start_s + sbp_outer_limit_s(e) : 0;
    request.store = &e->cache;
    request.puts_memory_off = is_to_relax(e, node);
    return request;
}

enum sbp_status sbp_outer_plain_weights(struct sbp_branch_and_bound *e,
                                        struct sbp_path_weights *weights, struct sbp_diag *diag)
{
    struct sbp_path path;
    if (e->request->objective == SBP_COMMUNICATION)
        return sbp_path_weights_mean(&e->cut, &e->arena, weights, diag);
    SBP_TRY(sbp_path_longest(&e->cut, &e->arena, &path));
    return sbp_path_weights_make(&e->cut, &path, &e->arena, weights, diag);
}

static void note_work(struct sbp_branch_and_bound *e, double share)
{
    if (e->has_passed)
        e->open_work += share * sbp_space_open_tuples(&e->cut);
}

/* ---- what it answers ------------------------------------------------------------------------- */

/* Notes a candidate without a legal strategy; the first one's reason is kept. */
static enum sbp_status note_refusal(struct sbp_branch_and_bound *e, const struct sbp_diag *refusal)
{
    if (e->refusal.text[0] == '\0')
        e->refusal = *refusal;
    return SBP_OK;
}

static void add_point(struct sbp_outcome *out, int64_t evaluations, double elapsed_s, double best)
{
    if (out->curve_count < SBP_CURVE_POINTS)
        out->curve[out->curve_count++] = (struct sbp_curve_point){evaluations, elapsed_s, best};
}

/* Adds the costs that the solver went through on the way to a better plan to the curve: those below
 * the best plan and above the new one. */
static void note_curve(struct sbp_branch_and_bound *e, const struct sbp_outcome *found)
{
    struct sbp_outcome *out = e->out;
    const int64_t before = out->evaluations - found->evaluations;
    const double now_s = sbp_clock_s() - e->start_s;
    double best = sbp_outer_best_s(e);
    for (int i = 0; i < found->curve_count; i++) {
        const struct sbp_curve_point *point = &found->curve[i];
        if (!(point->best < best) || !(point->best > found->objective_s))
            continue;
        best = point->best;
        if (out->curve_count + 1 < SBP_CURVE_POINTS)
            add_point(out, before + point->evaluations,
                      fmin(now_s, now_s - found->wall_s + point->elapsed_s), best);
    }
    add_point(out, out->evaluations, now_s, found->objective_s);
}

void sbp_outer_note_outcome(struct sbp_branch_and_bound *e, const struct sbp_outcome *found)
{
    struct sbp_outcome *out = e->out;
    out->evaluations += found->evaluations;
    e->open_work += e->has_passed ? SBP_OUTER_EVALUATION_WORK * (double)found->evaluations : 0;
    out->stopped |= found->stopped;
    out->is_plain |= found->is_plain;
    e->memory_binds |= found->memory_binds;
    e->is_too_large |= found->is_too_large;
    out->unbounded = found->unbounded != NULL ? found->unbounded : out->unbounded;
    out->algorithm = found->algorithm != NULL ? found->algorithm : out->algorithm;
    out->space_size_log10 = fmax(out->space_size_log10, found->space_size_log10);
    if (found->objective_s < sbp_outer_best_s(e))
        note_curve(e, found);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Notes a candidate of space full on a mesh that is too large for every role. Where the first pass
 * searched it and found a plan, its bound is known and there is no more to do; without a plan its
 * memory is asked for once more. */
static bool is_done_before(struct sbp_branch_and_bound *e, const struct sbp_solve_request *request)
{
    if (!sbp_space_rule(e->request->space)->plays_spare || request->is_first_pass ||
        sbp_space_opens(request, &e->cut))
        return false;
    e->out->is_narrow = true;
    if (!e->has_passed || e->pool->count == 0)
        return false;
    e->open_s = fmin(e->open_s, e->first_open_s);
    return true;
}

enum sbp_status sbp_outer_bound(struct sbp_branch_and_bound *e, struct sbp_node *node, bool *legal)
{
    struct sbp_diag refusal = {{0}};
    struct sbp_solve_request request = sbp_outer_request(e, node);
    struct sbp_inner_bound bound = {0};
    struct sbp_path_weights weights;
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->arena);
    enum sbp_status status = sbp_outer_cut(e, &node->parallel, &refusal);
    *legal = false;
    if (status == SBP_OK && is_done_before(e, &request))
        return SBP_OK;
    if (status == SBP_OK)
        status = sbp_outer_plain_weights(e, &weights, &refusal);
    request.weights = &weights;
    if (isfinite(sbp_outer_goal_s(e)) && sbp_inner_is_bounded(&e->cut, &request))
        request.refuted_s = sbp_outer_goal_s(e);
    note_work(e, SBP_OUTER_BOUND_WORK);
    if (status == SBP_OK)
        status = sbp_inner_bound(&e->cut, &request, &bound, &refusal);
    sbp_arena_release(&e->arena, mark);
    if (sbp_outer_leaves_out(e, status)) {
        e->open_s = fmin(e->open_s, node->bound_s);
        return SBP_OK;
    }
    *legal = status == SBP_OK || status == SBP_STOPPED;
    if (status == SBP_STOPPED) {
        e->out->stopped = true;
        return SBP_OK;
    }
    e->out->is_plain |= bound.is_plain || status == SBP_E_UNSUPPORTED;
    if (status == SBP_E_UNSUPPORTED) { /* no plain split is legal: nothing is known */
        e->open_s = fmin(e->open_s, node->bound_s);
        e->any_legal = true;
        *legal = false;
        return SBP_OK;
    }
    if (status == SBP_E_INPUT) {
        node->least_bytes = INFINITY;
        return note_refusal(e, &refusal);
    }
    if (status != SBP_OK)
        return sbp_fail(e->diag, status, "%s", refusal.text);
    e->any_legal = true;
    e->out->evaluations++;
    e->out->space_size_log10 = fmax(e->out->space_size_log10, bound.space_size_log10);
    node->bound_s = fmax(node->bound_s, fmax(bound.bound_s, weights.host_s));
    node->time_s = bound.time_s;
    node->least_bytes = bound.least_bytes;
    return SBP_OK;
}

/* ---- along paths, and mixtures of them ------------------------------------------------------- */

double sbp_outer_ceiling_s(const struct sbp_branch_and_bound *e, const struct sbp_node *node)
{
    const bool is_first = node->knowledge < SBP_TRIED && sbp_outer_proves(e) &&
                          !is_to_relax(e, node) && isinf(sbp_outer_goal_s(e));
    return is_first ? SBP_OUTER_FIRST_TRY_RATIO * node->bound_s : INFINITY;
}

/* Notes how much more than modelled the plan of least memory needed, of a candidate without one
 * that fits. */
static void note_need(struct sbp_branch_and_bound *e, const struct sbp_node *node,
                      int64_t needed_bytes)
{
    if (needed_bytes <= 0 || !(node->least_bytes > 0))
        return;
    const double overhead = (double)needed_bytes / node->least_bytes;
    e->overhead = e->overhead > 0 ? fmin(e->overhead, overhead) : overhead;
}

/* Solves a candidate along one path (NULL: by the mean device, whatever the path) and keeps better
 * plans. */
static enum sbp_status solve_along(struct sbp_branch_and_bound *e, const struct sbp_node *node,
                                   const struct sbp_path *path, struct sbp_outcome *found)
{
    struct sbp_path_weights weights;
    struct sbp_solve_request request = sbp_outer_request(e, node);
    struct sbp_diag refusal = {{0}};
    const double most_s = fmin(sbp_outer_goal_s(e), sbp_outer_ceiling_s(e, node));
    request.upper_bound_s = isfinite(most_s) ? most_s : 0;
    request.asked.solver_options = options_left(e);
    enum sbp_status status = SBP_OK;
    if (path != NULL) {
        request.weights = &weights;
        status = sbp_path_weights_make(&e->cut, path, &e->arena, &weights, &refusal);
    }
    note_work(e, 1);
    if (status == SBP_OK)
        status = sbp_inner_solve(&e->cut, &request, &e->solve_arena, found, &refusal);
    if (status == SBP_OK && path != NULL)
        found->lower_bound_s = fmax(found->lower_bound_s, weights.host_s);
    if (status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED || sbp_outer_leaves_out(e, status)) {
        *found =
            (struct sbp_outcome){.objective_s = INFINITY,
                                 .strategy_s = INFINITY,
                                 .attained_s = INFINITY,
                                 .lower_bound_s = status == SBP_E_INPUT ? INFINITY : -INFINITY};
        return note_refusal(e, &refusal);
    }
    if (status != SBP_OK)
        return sbp_fail(e->diag, status, "%s", refusal.text);
    sbp_outer_note_outcome(e, found);
    if (!request.puts_memory_off)
        note_need(e, node, found->needed_bytes);
    if (isfinite(found->strategy_s) && !found->is_too_large)
        sbp_pool_offer(&e->found, &e->cut, &found->strategy,
                       &(struct sbp_pool_plan){.objective_s = found->strategy_s});
    return SBP_OK;
}

/* Raises a candidate's bound and returns it. What is proved without the memory limit holds for the
 * siblings, too: time_s. */
static double raise_bound(const struct sbp_branch_and_bound *e, struct sbp_node *node,
                          double proved_s)
{
    if (is_to_relax(e, node))
        node->time_s = fmax(node->time_s, proved_s);
    node->bound_s = fmax(node->bound_s, proved_s);
    return node->bound_s;
}

/* Whether path enumeration may close the gap that mixtures left: the candidate has several stages,
 * is not refuted, and its prices bound the step. */
static bool may_enumerate(struct sbp_branch_and_bound *e, const struct sbp_node *node)
{
    return e->cut.parallel.pipeline > 1 && e->pool->most == 1 && isfinite(sbp_outer_goal_s(e)) &&
           !sbp_outer_is_refuted(e, node->bound_s) && !sbp_outer_is_over(e) &&
           sbp_outer_proves(e) && sbp_space_rule(e->request->space)->mesh == SBP_MESH_FREE &&
           sbp_inner_is_bounded(&e->cut, &e->solve);
}

/* Adds what was found along a path to the game: the best plan; where that brings nothing new, the
 * strategy that the bound rests on, whose own path comes next. Where memory binds, the bound rests
 * on another. */
static enum sbp_status learn_paths(struct sbp_mixture *mixture, const struct sbp_outcome *found,
                                   bool *more, struct sbp_diag *diag)
{
    if (isfinite(found->strategy_s))
        SBP_TRY(sbp_mixture_add(mixture, &found->strategy, more, diag));
    if (!*more && isfinite(found->attained_s) && !found->memory_binds)
        return sbp_mixture_add(mixture, &found->attained, more, diag);
    return isfinite(found->strategy_s) ? SBP_OK : sbp_mixture_skip(mixture, more);
}

/* Solves along the path that is longest by work alone, then along the longest paths of the plans
 * found and along mixtures of all these, as long as a path is new. */
static enum sbp_status solve_mixtures(struct sbp_branch_and_bound *e, struct sbp_node *node,
                                      struct sbp_mixture *mixture)
{
    SBP_TRY(sbp_mixture_begin(&e->cut, &e->arena, mixture, e->diag));
    for (int i = 0; i < SBP_PATHS_ROUNDS && !sbp_outer_is_over(e); i++) {
        struct sbp_outcome found;
        bool more = false;
        SBP_TRY(solve_along(e, node, &mixture->path, &found));
        const double bound_s = raise_bound(e, node, found.lower_bound_s);
        sbp_mixture_note(mixture, found.lower_bound_s);
        if (!sbp_outer_is_refuted(e, bound_s))
            SBP_TRY(learn_paths(mixture, &found, &more, e->diag));
        if (!more)
            break;
    }
    return SBP_OK;
}

static enum sbp_status solve_paths(struct sbp_branch_and_bound *e, struct sbp_node *node)
{
    struct sbp_mixture mixture;
    if (e->request->objective == SBP_COMMUNICATION) {
        struct sbp_outcome found;
        SBP_TRY(solve_along(e, node, NULL, &found));
        (void)raise_bound(e, node, found.lower_bound_s);
        return SBP_OK;
    }
    SBP_TRY(solve_mixtures(e, node, &mixture));
    if (e->is_too_large || !may_enumerate(e, node))
        return SBP_OK;
    node->mixture = SBP_NEW(&e->arena, struct sbp_mixture, 1);
    if (node->mixture == NULL)
        return SBP_E_MEMORY;
    *node->mixture = mixture;
    node->knowledge = SBP_MIXED;
    return SBP_OK;
}

/* Drops a candidate if its working sets show that nothing fits. */
static enum sbp_status try_to_rule_out(struct sbp_branch_and_bound *e, struct sbp_node *node)
{
    const double limit_bytes =
        (double)sbp_request_limit_bytes(e->request, &e->given->workload.cluster);
    struct sbp_diag refusal = {{0}};
    double least_bytes;
    if (node->knowledge >= SBP_TRIED || is_to_relax(e, node) || !sbp_outer_proves(e) ||
        node->least_bytes < SBP_OUTER_TIGHT_SHARE * limit_bytes)
        return SBP_OK;
    const struct sbp_solve_request request = sbp_outer_request(e, node);
    const enum sbp_status status = sbp_inner_least_bytes(&e->cut, &request, &least_bytes, &refusal);
    if (status == SBP_E_MEMORY && !sbp_outer_leaves_out(e, status))
        return sbp_fail(e->diag, status, "%s", refusal.text);
    if (status == SBP_OK && least_bytes > limit_bytes * (1 + SBP_CAPACITY_ROUND_OFF)) {
        node->bound_s = INFINITY;
        e->memory_binds = true;
    }
    return SBP_OK;
}

enum sbp_status sbp_outer_solve(struct sbp_branch_and_bound *e, struct sbp_node *node)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->arena);
    const struct sbp_arena_mark plan_mark = sbp_arena_mark(&e->solve_arena);
    SBP_TRY(sbp_outer_cut(e, &node->parallel, e->diag));
    SBP_TRY(try_to_rule_out(e, node));
    if (isfinite(node->bound_s))
        SBP_TRY(solve_paths(e, node));
    sbp_arena_release(&e->solve_arena, plan_mark); /* the best is kept elsewhere */
    e->work += e->cuts > 0 ? e->cut.graph.op_count : 0;
    if (node->mixture == NULL)
        sbp_arena_release(&e->arena, mark);
    return SBP_OK;
}

/* ---- path enumeration ------------------------------------------------------------------------ */

static void offer_enumerated(void *context, const struct sbp_strategy *strategy, double objective_s)
{
    struct sbp_branch_and_bound *e = context;
    if (objective_s < sbp_outer_best_s(e))
        add_point(e->out, e->out->evaluations, sbp_clock_s() - e->start_s, objective_s);
    sbp_pool_offer(&e->found, &e->cut, strategy,
                   &(struct sbp_pool_plan){.objective_s = objective_s});
}

enum sbp_status sbp_outer_enumerate_paths(struct sbp_branch_and_bound *e, struct sbp_node *node)
{
    struct sbp_solve_request request = sbp_outer_request(e, node);
    request.asked.solver_options = options_left(e);
    struct sbp_path_enumeration enumeration = {.cut = &e->cut,
                                               .request = &request,
                                               .mixture = node->mixture,
                                               .goal_s = sbp_outer_goal_s(e),
                                               .bound_s = node->bound_s,
                                               .offer = offer_enumerated,
                                               .context = e};
    SBP_TRY(sbp_outer_cut(e, &node->parallel, e->diag));
    struct sbp_diag refusal = {{0}};
    const enum sbp_status status = sbp_path_enumerate(&enumeration, &refusal);
    if (status != SBP_OK && !sbp_outer_leaves_out(e, status))
        return sbp_fail(e->diag, status, "%s", refusal.text);
    node->mixture = NULL; /* there is no more to be said */
    e->out->evaluations += enumeration.evaluations;
    e->out->stopped |= enumeration.stopped;
    e->memory_binds |= enumeration.memory_binds;
    node->bound_s = fmax(node->bound_s, enumeration.bound_s);
    return SBP_OK;
}

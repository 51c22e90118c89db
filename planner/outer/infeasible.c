#include "planner/outer/bnb.h"
#include "planner/least.h"

/* What each part of explaining that nothing fits may take of a search's time limit, where less of
 * it is left. */
#define LIMIT_SHARE 0.1
/* Searches within a byte less: how many, what they evaluate before no other begins, and how large
 * they are, in candidates times digits of the space: larger ones take long and hardly prove
 * anything. */
enum { MOST_DESCENTS = 8 };
#define DESCENT_EVALUATIONS INT64_C(500000000)
#define MOST_DIGITS         5000.0

/* ---- the leanest plan of any candidate ------------------------------------------------------ */

/* Of the candidates that were looked at. */
static enum sbp_status find_leanest(struct sbp_explorer *e, const struct sbp_request *request,
                                    struct sbp_ranked *leanest)
{
    int count = 0;
    struct sbp_least_candidate *candidate =
        SBP_NEW(&e->arena, struct sbp_least_candidate, e->node_count);
    if (candidate == NULL)
        return SBP_E_MEMORY;
    e->out->least_bytes = INFINITY;
    for (int i = 0; i < e->node_count; i++) {
        const struct sbp_node *node = &e->node[i];
        if (!(node->least_bytes > 0) || isinf(node->least_bytes))
            continue;
        candidate[count++] = (struct sbp_least_candidate){i, node->parallel, node->least_bytes};
    }
    if (request->solver_options.max_evaluations == 0)
        SBP_TRY(sbp_least_find(e->plan, request, candidate, count, leanest, &e->out->evaluations,
                               e->diag));
    for (int i = 0; i < count; i++)
        e->out->least_bytes = fmin(e->out->least_bytes, candidate[i].bound_bytes);
    return SBP_OK;
}

static bool has_seen_all(const struct sbp_explorer *e)
{
    bool seen = true;
    for (int i = 0; i < e->node_count; i++)
        seen &= e->node[i].knowledge > SBP_LISTED && e->node[i].least_bytes > 0;
    return seen;
}

/* What no plan does with less than: by the model, where it was asked of all candidates, and more
 * than the limit, where it is proved that nothing fits that. */
static void raise_least(struct sbp_explorer *e)
{
    const int64_t limit_bytes = sbp_request_limit_bytes(e->request, &e->plan->cluster);
    if (!has_seen_all(e))
        e->out->least_bytes = 0;
    if (sbp_explorer_is_infeasible(e))
        e->out->least_bytes = fmax(e->out->least_bytes, (double)limit_bytes + 1);
}

/* ---- within a byte less --------------------------------------------------------------------- */

/* The first plan of a whole search within so many bytes, if it finds one, is the leanest. */
static enum sbp_status descend(struct sbp_explorer *e, struct sbp_request *request,
                               struct sbp_ranked *leanest, struct sbp_outcome *found)
{
    struct sbp_plan *const plan = e->plan;
    struct sbp_ranking ranking;
    struct sbp_step step;
    request->memory_limit_bytes = leanest->device_bytes - 1;
    SBP_TRY(sbp_explore_top(plan, request, 1, &ranking, found, e->diag));
    e->out->evaluations += found->evaluations;
    if (ranking.count == 0)
        return SBP_OK;
    SBP_TRY(sbp_plan_brief_step(plan, &plan->strategy, &step, e->diag));
    *leanest = (struct sbp_ranked){.objective_s = ranking.plan[0].objective_s,
                                   .parallel = plan->parallel,
                                   .strategy = plan->strategy,
                                   .device_bytes = step.totals.device_bytes};
    sbp_step_free(&step);
    return SBP_OK;
}

/* Where a search within a byte less proves that there is no plan, what is known is the least. It
 * may find one, too. */
static enum sbp_status descend_all(struct sbp_explorer *e, const struct sbp_parallel *given,
                                   struct sbp_request *request, struct sbp_ranked *leanest)
{
    const double limit_s = request->solver_options.time_limit_s, start_s = sbp_clock_s();
    const int64_t before = e->out->evaluations;
    request->any_plan = true;
    if (e->node_count * e->out->space_size_log10 > MOST_DIGITS)
        return SBP_OK;
    for (int i = 0; i < MOST_DESCENTS && e->out->evaluations - before < DESCENT_EVALUATIONS; i++) {
        struct sbp_outcome found;
        const int64_t known_bytes = leanest->device_bytes;
        const double left_s = limit_s - (sbp_clock_s() - start_s);
        if ((limit_s > 0 && left_s <= 0) || e->out->least_bytes >= (double)known_bytes)
            break;
        request->solver_options.time_limit_s = limit_s > 0 ? left_s : 0;
        SBP_TRY(sbp_plan_set_parallel(e->plan, given, e->diag));
        SBP_TRY(descend(e, request, leanest, &found));
        if (found.status == SBP_PLAN_INFEASIBLE)
            e->out->least_bytes = (double)known_bytes;
        if (leanest->device_bytes == known_bytes)
            break;
    }
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Where nothing was found the time may be up: what explains it has time of its own then. */
static struct sbp_request explaining(const struct sbp_explorer *e)
{
    struct sbp_request request = e->asked;
    double *const limit_s = &request.solver_options.time_limit_s;
    request.deadline_s = 0;
    request.solver = NULL;
    if (*limit_s > 0)
        *limit_s = fmax(*limit_s - (sbp_clock_s() - e->start_s), LIMIT_SHARE * *limit_s);
    return request;
}

enum sbp_status sbp_explorer_take_leanest(struct sbp_explorer *e, const struct sbp_parallel *given)
{
    struct sbp_ranked *const leanest = SBP_NEW(&e->plan->arena, struct sbp_ranked, 1), unused;
    struct sbp_request request = explaining(e);
    if (leanest == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_leanest(e, &request, leanest));
    const double modelled_bytes = e->out->least_bytes;
    raise_least(e);
    if (leanest->device_bytes == 0) {
        e->out->needed_bytes = isfinite(modelled_bytes) ? (int64_t)ceil(modelled_bytes) : 0;
        return SBP_OK;
    }
    request = explaining(e);
    SBP_TRY(descend_all(e, given, &request, leanest));
    e->out->needed_bytes = leanest->device_bytes;
    e->out->leanest = leanest;
    if (leanest->device_bytes > sbp_request_limit_bytes(e->request, &e->plan->cluster))
        return SBP_OK;
    SBP_TRY(sbp_plan_set_parallel(e->plan, &leanest->parallel, e->diag));
    e->plan->strategy = leanest->strategy;
    e->out->algorithm = "exact"; /* whatever found nothing */
    sbp_ranking_offer(&e->found, e->plan,
                      &(struct sbp_ranked){.objective_s = leanest->objective_s});
    return sbp_explorer_rank(e, &e->found, NULL, &unused);
}

#include "planner/outer/branch_and_bound_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "planner/limits.h"

/* A candidate of the search, with a lower bound of the memory that its plans need. */
struct candidate {
    int node;
    double bound_bytes;
};

struct memory_search {
    struct sbp_branch_and_bound *tree;
    struct sbp_solve_request request; /* of solves: over common roles and rests first */
    struct sbp_solve_request bounded; /* of bounds: over all that the search covers */
    struct candidate *candidate;      /* (count) */
    int count;
    struct sbp_pool_plan *least; /* device_bytes 0: none yet */
};

/* ---- which candidates ------------------------------------------------------------------------ */

static int by_bound(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->bound_bytes != b->bound_bytes)
        return a->bound_bytes < b->bound_bytes ? -1 : 1;
    return a->node - b->node;
}

static enum sbp_status list(struct memory_search *s)
{
    const struct sbp_branch_and_bound *e = s->tree;
    s->candidate = SBP_NEW(&s->tree->arena, struct candidate, e->node_count);
    if (s->candidate == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < e->node_count; i++)
        if (e->node[i].least_bytes > 0 && isfinite(e->node[i].least_bytes))
            s->candidate[s->count++] = (struct candidate){i, e->node[i].least_bytes};
    qsort(s->candidate, (size_t)s->count, sizeof *s->candidate, by_bound);
    return SBP_OK;
}

/* Cuts the step as a candidate does and asks the question; a candidate that is refused answers
 * nothing. */
static enum sbp_status ask(struct memory_search *s, struct candidate *candidate,
                           enum sbp_status (*question)(struct memory_search *s,
                                                       struct candidate *candidate,
                                                       struct sbp_diag *refusal))
{
    struct sbp_branch_and_bound *const e = s->tree;
    struct sbp_diag refusal = {{0}};
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->solve_arena);
    if (s->request.deadline_s > 0)
        s->request.asked.solver_options.time_limit_s =
            fmax(1e-9, s->request.deadline_s - sbp_clock_s());
    enum sbp_status status = sbp_outer_cut(e, &e->node[candidate->node].parallel, &refusal);
    if (status == SBP_OK)
        status = question(s, candidate, &refusal);
    sbp_arena_release(&e->solve_arena, mark);
    return status == SBP_OK || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED ||
                   status == SBP_STOPPED || sbp_outer_leaves_out(e, status)
               ? SBP_OK
               : sbp_fail(e->diag, status, "%s", refusal.text);
}

static enum sbp_status raise_bound(struct memory_search *s, struct candidate *candidate,
                                   struct sbp_diag *refusal)
{
    double bytes;
    SBP_TRY(sbp_inner_least_bytes(&s->tree->cut, &s->bounded, &bytes, refusal));
    candidate->bound_bytes = fmax(candidate->bound_bytes, bytes);
    return SBP_OK;
}

/* Raises bounds by working sets, least first, until as many candidates as are solved are no worse
 * than all those that are left. */
static enum sbp_status raise_bounds(struct memory_search *s)
{
    int leading = 0;
    if (s->bounded.deadline_s > 0)
        s->bounded.deadline_s -=
            (1 - SBP_OUTER_LEAST_MEMORY_BOUND_TIME) * s->request.asked.solver_options.time_limit_s;
    for (int done = 0; done < s->count && leading < SBP_OUTER_LEAST_MEMORY_SOLVES; done++) {
        const double next_bytes = s->candidate[done].bound_bytes;
        if (sbp_solve_is_interrupted(&s->bounded))
            break;
        SBP_TRY(ask(s, &s->candidate[done], raise_bound));
        leading = 0;
        for (int i = 0; i <= done; i++)
            leading += s->candidate[i].bound_bytes <= next_bytes;
    }
    qsort(s->candidate, (size_t)s->count, sizeof *s->candidate, by_bound);
    return SBP_OK;
}

/* ---- the least of their plans ---------------------------------------------------------------- */

/* Solves a candidate for the plan of least memory by the model, and keeps it if it needs least once
 * compiled. */
static enum sbp_status solve(struct memory_search *s, struct candidate *candidate,
                             struct sbp_diag *refusal)
{
    struct sbp_branch_and_bound *const e = s->tree;
    struct sbp_outcome found;
    struct sbp_step step;
    (void)candidate;
    SBP_TRY(sbp_inner_solve_for_bytes(&e->cut, &s->request, &e->solve_arena, &found, refusal));
    e->out->evaluations += found.evaluations;
    if (isinf(found.strategy_s))
        return SBP_OK;
    SBP_TRY(sbp_cut_step(&e->cut, &found.strategy, true, &step, refusal));
    const int64_t bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    if (s->least->device_bytes > 0 && bytes >= s->least->device_bytes)
        return SBP_OK;
    s->least->device_bytes = bytes;
    s->least->objective_s = found.strategy_s;
    s->least->parallel = e->cut.parallel;
    sbp_strategy_copy(&e->cut.graph, &found.strategy, &s->least->strategy);
    return SBP_OK;
}

/* Solves candidates, least bound first, until no other can need less than the least that was found;
 * more of them than SBP_OUTER_LEAST_MEMORY_SOLVES only while none has a plan. */
static enum sbp_status solve_all(struct memory_search *s)
{
    for (int i = 0;
         i < s->count && (i < SBP_OUTER_LEAST_MEMORY_SOLVES || s->least->device_bytes == 0); i++) {
        const bool is_beaten = s->least->device_bytes > 0 &&
                               s->candidate[i].bound_bytes >= (double)s->least->device_bytes;
        if (is_beaten || sbp_solve_is_interrupted(&s->request))
            break;
        SBP_TRY(ask(s, &s->candidate[i], solve));
    }
    return SBP_OK;
}

/* Solves over all that the search covers where no common strategy can be labelled. */
static enum sbp_status solve_more(struct memory_search *s)
{
    if (s->least->device_bytes > 0 || !s->request.is_first_pass || s->request.asked.quick)
        return SBP_OK;
    s->request.is_first_pass = false;
    return solve_all(s);
}

static enum sbp_status find_least(struct memory_search *s)
{
    struct sbp_branch_and_bound *const e = s->tree;
    SBP_TRY(sbp_strategy_alloc(&e->given->workload.model, e->plans, &s->least->strategy));
    SBP_TRY(list(s));
    if (s->request.asked.solver_options.max_evaluations == 0) {
        SBP_TRY(raise_bounds(s));
        SBP_TRY(solve_all(s));
        SBP_TRY(solve_more(s));
    }
    e->out->least_bytes = s->count > 0 ? s->candidate[0].bound_bytes : INFINITY;
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool has_seen_all(const struct sbp_branch_and_bound *e)
{
    bool seen = true;
    for (int i = 0; i < e->node_count; i++)
        seen &= e->node[i].knowledge > SBP_LISTED && e->node[i].least_bytes > 0;
    return seen;
}

/* Closes the bound: it holds only if it covers all candidates; where it is proved that nothing
 * fits, a plan needs more than the limit. */
static void close_bound(struct sbp_branch_and_bound *e)
{
    const int64_t limit_bytes = sbp_request_limit_bytes(e->request, &e->given->workload.cluster);
    if (!has_seen_all(e) || e->out->is_plain)
        e->out->least_bytes = 0;
    if (sbp_outer_is_infeasible(e))
        e->out->least_bytes = fmax(e->out->least_bytes, (double)limit_bytes + 1);
}

/* The request for least memory. It has time of its own, since the search may have spent its time,
 * and no memory limit: the plan is then the same whatever the limit, so that a search which is
 * given the memory that was named has a plan. */
static struct sbp_solve_request request_of(const struct sbp_branch_and_bound *e)
{
    struct sbp_solve_request request = e->solve;
    double *const limit_s = &request.asked.solver_options.time_limit_s;
    const double now_s = sbp_clock_s();
    request.asked.solver = NULL;
    request.asked.memory_limit_bytes = INT64_MAX;
    if (*limit_s > 0) {
        *limit_s = fmax(*limit_s - (now_s - e->start_s), SBP_OUTER_LEAST_MEMORY_TIME * *limit_s);
        request.deadline_s = now_s + *limit_s;
    }
    return request;
}

/* Ranks the plan of least memory, which fits after all. */
static enum sbp_status rank_least(struct sbp_branch_and_bound *e, const struct sbp_pool_plan *least)
{
    struct sbp_pool_plan unused;
    SBP_TRY(sbp_outer_cut(e, &least->parallel, e->diag));
    e->out->algorithm = "exact"; /* also where another solver found nothing */
    sbp_pool_offer(&e->found, &e->cut, &least->strategy,
                   &(struct sbp_pool_plan){.objective_s = least->objective_s});
    return sbp_outer_rank(e, &e->found, NULL, &unused);
}

enum sbp_status sbp_outer_take_least_memory(struct sbp_branch_and_bound *e)
{
    struct sbp_pool_plan *const least = SBP_NEW(e->plans, struct sbp_pool_plan, 1);
    struct memory_search search = {.tree = e, .bounded = request_of(e), .least = least};
    if (least == NULL)
        return SBP_E_MEMORY;
    search.request = search.bounded;
    search.request.is_first_pass = sbp_space_rule(e->request->space)->plays_spare;
    SBP_TRY(find_least(&search));
    const double modelled_bytes = e->out->least_bytes;
    close_bound(e);
    if (least->device_bytes == 0) {
        e->out->needed_bytes = isfinite(modelled_bytes) ? (int64_t)ceil(modelled_bytes) : 0;
        return SBP_OK;
    }
    e->out->needed_bytes = least->device_bytes;
    e->out->least_memory = least;
    return least->device_bytes <= sbp_request_limit_bytes(e->request, &e->given->workload.cluster)
               ? rank_least(e, least)
               : SBP_OK;
}

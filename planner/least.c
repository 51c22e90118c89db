#include "planner/least.h"

#include <math.h>
#include <stdlib.h>

#include "base/text.h"

/* Candidates that are asked for their leanest; bounds are close, so that few are mostly enough. */
enum { MOST_ASKED = 100, MOST_HALVINGS = 12 };
/* Of all of these, and of all searches within less and less memory. */
#define ASKED_EVALUATIONS    INT64_C(300000000)
#define SQUEEZED_EVALUATIONS INT64_C(100000000)
/* To look for what needs less than this share less is not worth it. */
#define NARROW 1e-3

struct hunt {
    struct sbp_plan *plan;
    struct sbp_request request;
    double limit_s, start_s;    /* of the time; no limit: 0 */
    int64_t asked, evaluations; /* for leanest plans, where that is over; since */
    struct sbp_ranked *least;
    struct sbp_diag *diag;
};

static int by_bound(const void *left, const void *right)
{
    const struct sbp_least_candidate *a = left, *b = right;
    if (a->bound_bytes != b->bound_bytes)
        return a->bound_bytes < b->bound_bytes ? -1 : 1;
    return a->order - b->order;
}

/* Whether the limit and the user leave time for a candidate, which then keeps to it. */
static bool has_time(struct hunt *h)
{
    struct sbp_solver_options *options = &h->request.solver_options;
    const double left_s = h->limit_s - (sbp_clock_s() - h->start_s);
    if (h->limit_s > 0)
        options->time_limit_s = left_s;
    return (h->limit_s <= 0 || left_s > 0) && (options->stop == NULL || *options->stop == 0);
}

/* Only plans that need less are looked for. */
static int64_t known_bytes(const struct hunt *h)
{
    return h->least->device_bytes > 0 ? h->least->device_bytes : INT64_MAX;
}

/* Keeps the plan's strategy where it needs less than the least so far. */
static enum sbp_status keep(struct hunt *h, double objective_s, struct sbp_diag *refusal)
{
    struct sbp_plan *const plan = h->plan;
    struct sbp_step step;
    SBP_TRY(sbp_plan_brief_step(plan, &plan->strategy, &step, refusal));
    if (step.totals.device_bytes < known_bytes(h)) {
        h->least->device_bytes = step.totals.device_bytes;
        h->least->objective_s = objective_s;
        h->least->parallel = plan->parallel;
        sbp_strategy_copy(&plan->graph, &plan->strategy, &h->least->strategy);
    }
    sbp_step_free(&step);
    return SBP_OK;
}

/* A plan of a candidate within so many bytes. */
static enum sbp_status ask(struct hunt *h, const struct sbp_parallel *parallel, int64_t limit_bytes)
{
    struct sbp_plan *const plan = h->plan;
    struct sbp_outcome outcome = {.strategy_s = INFINITY};
    struct sbp_diag refusal = {{0}};
    const struct sbp_arena_mark mark = sbp_arena_mark(&plan->arena);
    h->request.memory_limit_bytes = limit_bytes;
    enum sbp_status status = sbp_plan_set_parallel(plan, parallel, &refusal);
    if (status == SBP_OK)
        status = sbp_optimise(plan, &h->request, &outcome, &refusal);
    if (status == SBP_OK && isfinite(outcome.strategy_s))
        status = keep(h, outcome.strategy_s, &refusal);
    h->evaluations += outcome.evaluations;
    sbp_arena_release(&plan->arena, mark);
    return status == SBP_OK || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED
               ? SBP_OK
               : sbp_fail(h->diag, status, "%s", refusal.text);
}

/* Whether a candidate may hold a plan that needs less, and there is something left to look for it
 * with. */
static bool is_open(struct hunt *h, double bound_bytes, int64_t most_evaluations)
{
    return bound_bytes < (double)known_bytes(h) && h->evaluations < most_evaluations && has_time(h);
}

/* Within a byte less than is known, then by halves down to what the candidate is bounded by. */
static enum sbp_status squeeze(struct hunt *h, const struct sbp_least_candidate *candidate)
{
    double low = candidate->bound_bytes;
    int64_t limit = known_bytes(h) - 1;
    for (int i = 0; i < MOST_HALVINGS && is_open(h, low, SQUEEZED_EVALUATIONS); i++) {
        const int64_t before = known_bytes(h);
        SBP_TRY(ask(h, &candidate->parallel, limit));
        if (known_bytes(h) == before)
            low = (double)limit + 1;
        if (low >= (1 - NARROW) * (double)known_bytes(h))
            break;
        limit = (int64_t)((low + (double)known_bytes(h)) / 2);
    }
    return SBP_OK;
}

static enum sbp_status find(struct hunt *h, const struct sbp_least_candidate *candidate, int count)
{
    h->request.leanest = h->request.puts_memory_off = true;
    for (int i = 0; i < count && (i < MOST_ASKED || h->least->device_bytes == 0) &&
                    is_open(h, candidate[i].bound_bytes, ASKED_EVALUATIONS);
         i++)
        SBP_TRY(ask(h, &candidate[i].parallel, known_bytes(h)));
    h->request.leanest = h->request.puts_memory_off = false;
    h->asked = h->evaluations;
    h->evaluations = 0;
    for (int i = 0; i < count && is_open(h, candidate[i].bound_bytes, SQUEEZED_EVALUATIONS); i++)
        SBP_TRY(squeeze(h, &candidate[i]));
    return SBP_OK;
}

enum sbp_status sbp_least_find(struct sbp_plan *plan, const struct sbp_request *request,
                               struct sbp_least_candidate *candidate, int count,
                               struct sbp_ranked *least, int64_t *evaluations,
                               struct sbp_diag *diag)
{
    struct hunt h = {.plan = plan,
                     .request = *request,
                     .limit_s = request->solver_options.time_limit_s,
                     .start_s = sbp_clock_s(),
                     .least = least,
                     .diag = diag};
    *least = (struct sbp_ranked){.objective_s = INFINITY};
    SBP_TRY(sbp_strategy_alloc(&plan->graph, &plan->arena, &least->strategy));
    qsort(candidate, (size_t)count, sizeof *candidate, by_bound);
    const enum sbp_status status = find(&h, candidate, count);
    *evaluations += h.asked + h.evaluations;
    return status;
}

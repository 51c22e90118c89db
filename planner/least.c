#include "planner/least.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "base/text.h"
#include "planner/lean_walk.h"

/* Candidates that are asked for their leanest, in two ways each; bounds are close, so that few are
 * mostly enough. Walks that begin at one plan, and those of all plans together. */
enum { MOST_ASKED = 100, WALKS_A_PLAN = 3, MOST_SEEN = 300 };
#define ASKED_EVALUATIONS INT64_C(300000000)
/* Work of all walks: operators of the programs that they compile, each of a few microseconds, and
 * what a program takes besides. */
#define WALKED_OPERATORS INT64_C(2000000)
enum { PROGRAM_OPERATORS = 10 };
/* There is a walk for so many programs of all; so many go on to the last, at most. */
enum { PROGRAMS_A_WALK = 500, WALK_LAST = 4 };

/* What needs less by less than this share is not looked for. */
#define NARROW 1e-4
/* Shares of the time: until bounds are looked at closely, and, once there is a plan, until all are
 * asked; rounds of walks share the rest. */
#define SHARPENED_SHARE 0.2
#define ASKED_SHARE     0.5

/* A candidate's leanest plan so far, on one way. */
struct seen {
    struct sbp_ranked plan;
    double bound_bytes; /* no strategy of the candidate needs less */
    int candidate;      /* which */
    int order;          /* of equal ones the first comes first */
};

struct hunt {
    struct sbp_plan *plan;
    struct sbp_request request;
    double limit_s, start_s; /* of the time; no limit: 0 */
    int64_t evaluations;
    int seen_count;
    struct seen *seen; /* (MOST_SEEN) */
    uint64_t walks;
    struct sbp_arena scratch;
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

/* Whether a share of the limit and the user leave time for a candidate, which then keeps to it. */
static bool has_time(struct hunt *h, double share)
{
    struct sbp_solver_options *options = &h->request.solver_options;
    const double left_s = share * h->limit_s - (sbp_clock_s() - h->start_s);
    if (h->limit_s > 0) {
        options->time_limit_s = left_s;
        h->request.deadline_s = h->start_s + share * h->limit_s;
    }
    return (h->limit_s <= 0 || left_s > 0) && (options->stop == NULL || *options->stop == 0);
}

/* Only plans that need less are looked for. */
static int64_t known_bytes(const struct hunt *h)
{
    return h->least->device_bytes > 0 ? h->least->device_bytes : INT64_MAX;
}

static void copy_plan(const struct hunt *h, const struct sbp_ranked *from, struct sbp_ranked *to)
{
    const struct sbp_strategy own = to->strategy;
    *to = *from;
    to->strategy = own;
    sbp_strategy_copy(&h->plan->graph, &from->strategy, &to->strategy);
}

/* Whether a candidate may hold a plan that needs less by what is worth it. */
static bool is_open(const struct hunt *h, double bound_bytes)
{
    return bound_bytes < (1 - NARROW) * (double)known_bytes(h);
}

static void offer(struct hunt *h, const struct sbp_ranked *found)
{
    if (found->device_bytes < known_bytes(h))
        copy_plan(h, found, h->least);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Looks at a candidate's bound more closely. */
static enum sbp_status sharpen(struct hunt *h, struct sbp_least_candidate *candidate)
{
    struct sbp_plan *const plan = h->plan;
    struct sbp_optimise_bound bound;
    struct sbp_diag refusal = {{0}};
    const struct sbp_arena_mark mark = sbp_arena_mark(&plan->arena);
    enum sbp_status status = sbp_plan_set_parallel(plan, &candidate->parallel, &refusal);
    if (status == SBP_OK)
        status = sbp_optimise_bound(plan, &h->request, &bound, &refusal);
    if (status == SBP_OK)
        candidate->bound_bytes = fmax(candidate->bound_bytes, bound.least_bytes);
    sbp_arena_release(&plan->arena, mark);
    return status == SBP_E_MEMORY ? sbp_fail(h->diag, status, "%s", refusal.text) : SBP_OK;
}

/* Best first, until so many are no worse than any of those that are left. */
static enum sbp_status sharpen_all(struct hunt *h, struct sbp_least_candidate *candidate, int count)
{
    int done = 0, leading = 0;
    h->request.leanest = h->request.every_level = true;
    for (; done < count && leading < MOST_ASKED && has_time(h, SHARPENED_SHARE); done++) {
        const double next_bytes = candidate[done].bound_bytes;
        SBP_TRY(sharpen(h, &candidate[done]));
        leading = 0;
        for (int i = 0; i <= done; i++)
            leading += candidate[i].bound_bytes <= next_bytes;
    }
    h->request.leanest = h->request.every_level = false;
    qsort(candidate, (size_t)count, sizeof *candidate, by_bound);
    return SBP_OK;
}

/* ---- the leanest of each candidate, by the model --------------------------------------------- */

static enum sbp_status add_seen(struct hunt *h, const struct sbp_ranked *plan, int candidate,
                                double bound_bytes)
{
    struct seen *const seen = &h->seen[h->seen_count];
    *seen =
        (struct seen){.bound_bytes = bound_bytes, .candidate = candidate, .order = h->seen_count};
    SBP_TRY(sbp_strategy_alloc(&h->plan->graph, &h->scratch, &seen->plan.strategy));
    copy_plan(h, plan, &seen->plan);
    h->seen_count++;
    return SBP_OK;
}

/* Notes the plan's strategy. */
static enum sbp_status note(struct hunt *h, const struct sbp_least_candidate *candidate,
                            double objective_s, struct sbp_diag *refusal)
{
    struct sbp_plan *const plan = h->plan;
    struct sbp_step step;
    SBP_TRY(sbp_plan_brief_step(plan, &plan->strategy, &step, refusal));
    const struct sbp_ranked found = {.parallel = plan->parallel,
                                     .strategy = plan->strategy,
                                     .objective_s = objective_s,
                                     .device_bytes = step.totals.device_bytes};
    sbp_step_free(&step);
    offer(h, &found);
    return add_seen(h, &found, candidate->order, candidate->bound_bytes);
}

static enum sbp_status ask(struct hunt *h, const struct sbp_least_candidate *candidate)
{
    struct sbp_plan *const plan = h->plan;
    struct sbp_outcome outcome = {.strategy_s = INFINITY};
    struct sbp_diag refusal = {{0}};
    const struct sbp_arena_mark mark = sbp_arena_mark(&plan->arena);
    enum sbp_status status = sbp_plan_set_parallel(plan, &candidate->parallel, &refusal);
    if (status == SBP_OK)
        status = sbp_optimise(plan, &h->request, &outcome, &refusal);
    if (status == SBP_OK && isfinite(outcome.strategy_s))
        status = note(h, candidate, outcome.strategy_s, &refusal);
    h->evaluations += outcome.evaluations;
    sbp_arena_release(&plan->arena, mark);
    return status == SBP_OK || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED
               ? SBP_OK
               : sbp_fail(h->diag, status, "%s", refusal.text);
}

/* Until no other may need less, or it takes too long. What needs least by the sum of the model is
 * not what needs least with what operators need besides, nor is that what leads to less. */
static enum sbp_status ask_all(struct hunt *h, const struct sbp_least_candidate *candidate,
                               int count)
{
    h->request.leanest = h->request.puts_memory_off = true;
    for (int i = 0; i < count && (i < MOST_ASKED || h->seen_count == 0) &&
                    is_open(h, candidate[i].bound_bytes) && h->evaluations < ASKED_EVALUATIONS &&
                    has_time(h, h->seen_count == 0 ? 1 : ASKED_SHARE);
         i++)
        for (int way = 0; way < 2; way++) {
            h->request.weighs_work = way > 0;
            SBP_TRY(ask(h, &candidate[i]));
        }
    h->request.weighs_work = false;
    h->request.leanest = h->request.puts_memory_off = false;
    return SBP_OK;
}

/* ---- less than that, by programs ------------------------------------------------------------- */

static int by_bytes(const void *left, const void *right)
{
    const struct seen *a = left, *b = right;
    if (a->plan.device_bytes != b->plan.device_bytes)
        return a->plan.device_bytes < b->plan.device_bytes ? -1 : 1;
    return a->order - b->order;
}

/* From a plan on, or from another strategy (NULL: none) where that needs less. */
static enum sbp_status walk(struct hunt *h, struct seen *seen, int64_t programs,
                            const struct sbp_strategy *other)
{
    const uint64_t seed = sbp_counter_bits(h->request.solver_options.seed, 0, h->walks++);
    SBP_TRY(sbp_plan_set_parallel(h->plan, &seen->plan.parallel, h->diag));
    SBP_TRY(sbp_walk_leaner(h->plan, &h->request, seed, programs, other, &seen->plan,
                            &h->evaluations, h->diag));
    offer(h, &seen->plan);
    return SBP_OK;
}

/* From the leanest plans so far, until a share of the time is up. */
static enum sbp_status walk_from(struct hunt *h, int count, int64_t programs, double share)
{
    int walked = 0;
    qsort(h->seen, (size_t)h->seen_count, sizeof *h->seen, by_bytes);
    for (int i = 0; i < h->seen_count && walked < count && has_time(h, share); i++)
        if (is_open(h, h->seen[i].bound_bytes)) {
            walked++;
            SBP_TRY(walk(h, &h->seen[i], programs, NULL));
        }
    return SBP_OK;
}

/* Whether a candidate has been met among those before. */
static bool is_repeated(const struct hunt *h, int seen)
{
    for (int i = 0; i < seen; i++)
        if (h->seen[i].candidate == h->seen[seen].candidate)
            return true;
    return false;
}

/* Candidates that fell behind by bad luck may be the better ones: the strategy of the leanest plan
 * is tried on all that can have it. */
static enum sbp_status share_leanest(struct hunt *h, double share)
{
    const struct sbp_parallel leader = h->least->parallel;
    for (int i = 0; i < h->seen_count && has_time(h, share); i++) {
        const struct sbp_parallel *parallel = &h->seen[i].plan.parallel;
        if (parallel->pipeline == leader.pipeline && parallel->micro_batch == leader.micro_batch &&
            is_open(h, h->seen[i].bound_bytes) && !is_repeated(h, i))
            SBP_TRY(walk(h, &h->seen[i], 1, &h->least->strategy));
    }
    return SBP_OK;
}

/* Walks that begin at one plan end at several: each plan has as many, if there are to be so many.
 */
static enum sbp_status add_walks(struct hunt *h, int64_t most)
{
    const int plans = h->seen_count;
    qsort(h->seen, (size_t)plans, sizeof *h->seen, by_bytes);
    while (h->seen_count < MOST_SEEN && h->seen_count < most &&
           h->seen_count < WALKS_A_PLAN * plans) {
        const struct seen *const from = &h->seen[h->seen_count % plans];
        SBP_TRY(add_seen(h, &from->plan, from->candidate, from->bound_bytes));
    }
    return SBP_OK;
}

/* Rounds of the same work: the leaner half of those that walked walks on, twice as far. */
static enum sbp_status walk_all(struct hunt *h)
{
    const int64_t programs = WALKED_OPERATORS / (h->plan->graph.op_count + PROGRAM_OPERATORS);
    const int64_t most = programs / PROGRAMS_A_WALK + 1;
    int rounds = 1;
    SBP_TRY(add_walks(h, most));
    const int first = most < h->seen_count ? (int)most : h->seen_count;
    for (int count = first; count > WALK_LAST; count /= 2)
        rounds++;
    for (int round = 1, count = first; round <= rounds && count > 0; round++, count /= 2) {
        const double share = ASKED_SHARE + (1 - ASKED_SHARE) * round / rounds;
        if (round == rounds)
            SBP_TRY(share_leanest(h, share));
        SBP_TRY(walk_from(h, count, programs / rounds / count + 1, share));
    }
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum sbp_status find(struct hunt *h, struct sbp_least_candidate *candidate, int count)
{
    h->seen = SBP_NEW(&h->scratch, struct seen, MOST_SEEN);
    if (h->seen == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sharpen_all(h, candidate, count));
    SBP_TRY(ask_all(h, candidate, count));
    return walk_all(h);
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
    h.request.memory_limit_bytes = INT64_MAX; /* the same plan is found whatever the limit */
    qsort(candidate, (size_t)count, sizeof *candidate, by_bound);
    sbp_arena_init(&h.scratch);
    const enum sbp_status status = find(&h, candidate, count);
    sbp_arena_free(&h.scratch);
    *evaluations += h.evaluations;
    return status;
}

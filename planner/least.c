#include "planner/least.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "base/text.h"
#include "planner/crew.h"
#include "planner/lean_walk.h"

/* Candidates that are asked for their leanest, in two ways each; bounds are close, so that few are
 * mostly enough. Walkers that set out from one plan, and all of them. */
enum { MOST_ASKED = 100, MOST_SEEN = 2 * MOST_ASKED, WALKERS_A_PLAN = 3, MOST_WALKERS = 300 };
_Static_assert(MOST_SEEN <= MOST_WALKERS, "each plan has a walker");
#define ASKED_EVALUATIONS INT64_C(300000000)
/* Work of all walks of a hunt: operators of the programs that they compile, each of a few
 * microseconds, and what a program takes besides. Where a short one finds less than what was asked
 * for, there is more to find, by other walks: a long one has those. */
#define SHORT_OPERATORS 1e6
#define LONG_OPERATORS  4e6
enum { PROGRAM_OPERATORS = 10 };
/* Of each round of the walks that settle, which begin less hot, and how many there may be. */
#define SETTLING_OPERATORS 7e5
#define WARM               0.001
enum { MOST_SETTLING = 16 };
/* There is a walk for so many programs of all; so many go on to the last, at most. */
enum { PROGRAMS_A_WALK = 500, WALK_LAST = 4 };

/* What needs less by less than this share is not looked for. */
#define NARROW 1e-4
/* Shares of the time: until bounds are looked at closely, and, once there is a plan, until all are
 * asked; rounds of walks share the rest. */
#define SHARPENED_SHARE 0.2
#define ASKED_SHARE     0.5

/* A plan of a candidate: what it was asked for, or, of a walker, its leanest so far. */
struct seen {
    struct sbp_ranked plan;
    double bound_bytes; /* no strategy of the candidate needs less */
    int candidate;      /* which */
    int order;          /* of equal ones the first comes first */
};

/* A walk of a round, from a walker's plan, or from another strategy (NULL: none) where that needs
 * less. */
struct turn {
    struct seen *walker;
    const struct sbp_strategy *other;
    uint64_t seed;
    double hot; /* temperature at first */
    int64_t programs;
    int64_t evaluations; /* from here on it is the turn's own to write */
    enum sbp_status status;
    struct sbp_diag diag;
};

struct hunt {
    struct sbp_plan *plan;
    struct sbp_request request;
    double limit_s, start_s; /* of the time; no limit: 0 */
    int64_t evaluations;
    int seen_count, walker_count, turn_count;
    struct seen *seen;   /* (MOST_SEEN) as asked */
    struct seen *walker; /* (MOST_WALKERS) */
    struct turn *turn;   /* (MOST_WALKERS) of the round */
    uint64_t walks;
    struct sbp_crew crew;
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

/* One more in a list. */
static enum sbp_status add(struct hunt *h, const struct sbp_ranked *plan, int candidate,
                           double bound_bytes, struct seen *list, int *count)
{
    struct seen *const seen = &list[*count];
    *seen = (struct seen){.bound_bytes = bound_bytes, .candidate = candidate, .order = *count};
    SBP_TRY(sbp_strategy_alloc(&h->plan->graph, &h->scratch, &seen->plan.strategy));
    copy_plan(h, plan, &seen->plan);
    (*count)++;
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
    return add(h, &found, candidate->order, candidate->bound_bytes, h->seen, &h->seen_count);
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

static void do_turn(void *context, int turn, struct sbp_plan *plan)
{
    const struct hunt *const h = context;
    struct turn *const t = &h->turn[turn];
    if (sbp_request_interrupted(&h->request))
        return;
    t->status = sbp_plan_set_parallel(plan, &t->walker->plan.parallel, &t->diag);
    if (t->status == SBP_OK)
        t->status = sbp_walk_leaner(plan, &h->request, t->seed, t->hot, t->programs, t->other,
                                    &t->walker->plan, &t->evaluations, &t->diag);
}

/* All turns, by all threads at once; what they found counts in the order of the turns, so that it
 * is the same for any number of threads. */
static enum sbp_status do_round(struct hunt *h)
{
    sbp_crew_do(&h->crew, do_turn, h, h->turn_count);
    for (int i = 0; i < h->turn_count; i++) {
        const struct turn *turn = &h->turn[i];
        h->evaluations += turn->evaluations;
        if (turn->status != SBP_OK)
            return sbp_fail(h->diag, turn->status, "%s", turn->diag.text);
        offer(h, &turn->walker->plan);
    }
    return SBP_OK;
}

static void add_turn(struct hunt *h, struct seen *walker, double hot, int64_t programs,
                     const struct sbp_strategy *other)
{
    h->turn[h->turn_count++] =
        (struct turn){.walker = walker,
                      .other = other,
                      .seed = sbp_counter_bits(h->request.solver_options.seed, 0, h->walks++),
                      .hot = hot,
                      .programs = programs};
}

/* From the leanest plans so far. */
static enum sbp_status walk_from(struct hunt *h, int count, int64_t programs)
{
    qsort(h->walker, (size_t)h->walker_count, sizeof *h->walker, by_bytes);
    h->turn_count = 0;
    for (int i = 0; i < h->walker_count && h->turn_count < count; i++)
        if (is_open(h, h->walker[i].bound_bytes))
            add_turn(h, &h->walker[i], SBP_HOT, programs, NULL);
    return do_round(h);
}

/* Whether a candidate has been met among the walkers before. */
static bool is_repeated(const struct hunt *h, int walker)
{
    for (int i = 0; i < walker; i++)
        if (h->walker[i].candidate == h->walker[walker].candidate)
            return true;
    return false;
}

/* Candidates that fell behind by bad luck may be the better ones: the strategy of the leanest plan
 * is tried on all with its stages; those of other micro-batches may refuse it. */
static enum sbp_status share_leanest(struct hunt *h)
{
    const struct sbp_parallel *const leader = &h->least->parallel;
    h->turn_count = 0;
    for (int i = 0; i < h->walker_count; i++) {
        const struct sbp_parallel *parallel = &h->walker[i].plan.parallel;
        if (parallel->pipeline == leader->pipeline && is_open(h, h->walker[i].bound_bytes) &&
            !is_repeated(h, i))
            add_turn(h, &h->walker[i], SBP_HOT, 1, &h->least->strategy);
    }
    return do_round(h);
}

/* Walks that begin at one plan end at several: each plan has as many walkers, if so many are to
 * walk; one it has in any case, for what is shared. */
static enum sbp_status set_out(struct hunt *h, int64_t most)
{
    const int plans = h->seen_count;
    qsort(h->seen, (size_t)plans, sizeof *h->seen, by_bytes);
    h->walker_count = 0;
    while (h->walker_count < plans ||
           (h->walker_count < most && h->walker_count < WALKERS_A_PLAN * plans &&
            h->walker_count < MOST_WALKERS)) {
        const struct seen *const from = &h->seen[h->walker_count % plans];
        SBP_TRY(
            add(h, &from->plan, from->candidate, from->bound_bytes, h->walker, &h->walker_count));
    }
    return SBP_OK;
}

/* Share of the time; 1 where there is no limit. */
static double share_left(const struct hunt *h)
{
    return h->limit_s > 0 ? fmax(0, 1 - (sbp_clock_s() - h->start_s) / h->limit_s) : 1;
}

/* Rounds of the same work, which share what is left of the time: the leaner half of those that
 * walked walks on, twice as far. */
static enum sbp_status walk_rounds(struct hunt *h, int64_t programs)
{
    const int64_t most = programs / PROGRAMS_A_WALK + 1;
    const double left = share_left(h);
    int rounds = 1;
    SBP_TRY(set_out(h, most));
    const int first = most < h->walker_count ? (int)most : h->walker_count;
    for (int count = first; count > WALK_LAST; count /= 2)
        rounds++;
    for (int round = 1, count = first; round <= rounds && count > 0; round++, count /= 2) {
        if (!has_time(h, 1 - left * (rounds - round) / rounds))
            continue;
        if (round == rounds)
            SBP_TRY(share_leanest(h));
        SBP_TRY(walk_from(h, count, programs / rounds / count + 1));
    }
    return SBP_OK;
}

/* From the plans that were asked for; what walkers take of the memory is given back. */
static enum sbp_status walk_all(struct hunt *h, double operators)
{
    const int64_t programs = (int64_t)operators / (h->plan->graph.op_count + PROGRAM_OPERATORS);
    const struct sbp_arena_mark mark = sbp_arena_mark(&h->scratch);
    const enum sbp_status status = walk_rounds(h, programs);
    sbp_arena_release(&h->scratch, mark);
    return status;
}

/* Rounds of walks from the leanest plan, not far from it, as long as they find less by what is
 * worth it. */
static enum sbp_status settle(struct hunt *h)
{
    const int64_t programs =
        (int64_t)SETTLING_OPERATORS / (h->plan->graph.op_count + PROGRAM_OPERATORS);
    const struct sbp_arena_mark mark = sbp_arena_mark(&h->scratch);
    int64_t before_bytes = INT64_MAX;
    h->walker_count = h->turn_count = 0; /* of the hunt before */
    for (int round = 0; round < MOST_SETTLING && has_time(h, 1) &&
                        (double)known_bytes(h) < (1 - NARROW) * (double)before_bytes;
         round++) {
        before_bytes = known_bytes(h);
        for (int i = 0; i < WALK_LAST; i++) {
            SBP_TRY(add(h, h->least, 0, 0, h->walker, &h->walker_count));
            add_turn(h, &h->walker[i], WARM, programs / WALK_LAST + 1, NULL);
        }
        SBP_TRY(do_round(h));
        h->walker_count = h->turn_count = 0;
        sbp_arena_release(&h->scratch, mark);
    }
    return SBP_OK;
}

/* Long walks are no longer than the short ones' pace says that there is time for. */
static enum sbp_status walk_on(struct hunt *h)
{
    const int64_t asked_bytes = known_bytes(h);
    const double before = share_left(h);
    SBP_TRY(walk_all(h, SHORT_OPERATORS));
    const double left = share_left(h), spent = before - left;
    if (known_bytes(h) == asked_bytes)
        return SBP_OK;
    const double most = spent > 0 ? SHORT_OPERATORS * left / spent : LONG_OPERATORS;
    SBP_TRY(walk_all(h, fmin(most, LONG_OPERATORS)));
    return settle(h);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum sbp_status find(struct hunt *h, struct sbp_least_candidate *candidate, int count)
{
    h->seen = SBP_NEW(&h->scratch, struct seen, MOST_SEEN);
    h->walker = SBP_NEW(&h->scratch, struct seen, MOST_WALKERS);
    h->turn = SBP_NEW(&h->scratch, struct turn, MOST_WALKERS);
    if (h->seen == NULL || h->walker == NULL || h->turn == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_crew_init(&h->crew, h->plan, h->request.threads, &h->scratch));
    SBP_TRY(sharpen_all(h, candidate, count));
    SBP_TRY(ask_all(h, candidate, count));
    return walk_on(h);
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
    assert(request->store == NULL && request->view == NULL && request->part == NULL);
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

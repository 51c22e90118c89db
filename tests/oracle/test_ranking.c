/* The K best plans against all of them: every way to cut a step that is left open, in each every
 * labelled strategy, priced one by one; of those that split every layer alike the cheapest. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "oracle_plan.h"
#include "planner/outer/branch_and_bound.h"
#include "small_instance.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

enum { MOST_STRATEGIES = 3000, MOST_PLANS = 200000 };

/* A way to cut the step and to split every layer, and what the cheapest of its plans takes. */
struct truth {
    uint64_t name;
    double objective_s;
};

struct instance {
    struct small_instance small;
    struct truth *truth; /* (count) */
    int count;
    int64_t least_bytes; /* of any plan */
    bool gave_up;
};

static void complain(const struct instance *instance, const char *what)
{
    small_instance_complain(&instance->small, "%s", what);
}

static void open_instance(struct instance *instance, enum small_kind kind, int outer, int inner)
{
    const int linears = 2 + (int)(instance->small.seed % 2);
    small_instance_open(&instance->small, kind, linears, outer, inner);
    instance->truth = calloc(MOST_PLANS, sizeof *instance->truth);
    assert_non_null(instance->truth);
}

static void close_instance(struct instance *instance)
{
    free(instance->truth);
    sbp_plan_free(&instance->small.plan);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Ways that each role takes of each layer that chooses, at each level, and the cut of the step. */
static uint64_t name_of(const struct sbp_plan *plan, const struct sbp_strategy *strategy)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    static int64_t ways[SBP_MAX_CLASSES * SBP_MAX_ROLES * SBP_MAX_LEVELS];
    int count = 0;
    ways[count++] = plan->cut.parallel.pipeline;
    ways[count++] = plan->cut.parallel.micro_batch;
    ways[count++] = (int64_t)plan->cut.parallel.recompute;
    for (int op = 0; op < graph->op_count; op++) {
        if (graph->op[op].site != op || graph->op[op].entry->follows)
            continue;
        for (int i = 0; i < SBP_MAX_ROLES * SBP_MAX_LEVELS; i++)
            ways[count + i] = 1;
        for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
            ways[count + strategy->op[op].role[axis] * SBP_MAX_LEVELS +
                 plan->cut.mesh.axis[axis].level] *= plan->cut.mesh.axis[axis].size;
        count += SBP_MAX_ROLES * SBP_MAX_LEVELS;
    }
    return sbp_hash_bytes(ways, (uint64_t)count * sizeof *ways);
}

static void note(void *context, const struct sbp_strategy *strategy,
                 const struct sbp_step_totals *totals)
{
    struct instance *instance = context;
    const int64_t limit = instance->small.request.memory_limit_bytes;
    if (totals->device_bytes < instance->least_bytes)
        instance->least_bytes = totals->device_bytes;
    if ((limit > 0 && totals->device_bytes > limit) || instance->gave_up)
        return;
    const uint64_t name = name_of(&instance->small.plan, strategy);
    for (int i = instance->count - 1; i >= 0; i--)
        if (instance->truth[i].name == name) {
            instance->truth[i].objective_s = fmin(instance->truth[i].objective_s, totals->step_s);
            return;
        }
    instance->truth[instance->count++] = (struct truth){name, totals->step_s};
    instance->gave_up |= instance->count == MOST_PLANS;
}

static void try_cut(struct instance *instance, const struct sbp_parallel *parallel)
{
    struct sbp_plan *plan = &instance->small.plan;
    struct sbp_diag diag = {{0}};
    struct labelled_best best;
    if (instance->gave_up || sbp_plan_cut(plan, parallel, &diag) != SBP_OK ||
        sbp_stages_cut(&plan->cut.graph, (int)parallel->pipeline, parallel->stage_cut,
                       (int[4096]){0}, &diag) != SBP_OK)
        return;
    instance->gave_up |=
        labelled_count(plan, &instance->small.request, MOST_STRATEGIES) > MOST_STRATEGIES;
    if (!instance->gave_up && labelled_each(plan, &instance->small.request, MOST_STRATEGIES, note,
                                            instance, &best, &diag) != SBP_OK)
        complain(instance, diag.text);
}

static int compare_truth(const void *left, const void *right)
{
    const double a = ((const struct truth *)left)->objective_s;
    const double b = ((const struct truth *)right)->objective_s;
    return (a > b) - (a < b);
}

/* Stages and micro-batches where they are open, else as given. */
static void try_all(struct instance *instance, bool is_open)
{
    const struct sbp_parallel plain = instance->small.plan.cut.parallel;
    const int64_t devices = sbp_cluster_devices(&instance->small.plan.workload.cluster);
    instance->count = 0;
    instance->least_bytes = INT64_MAX;
    for (int64_t stages = 1; stages <= (is_open ? devices : 1); stages++)
        for (int64_t micro = is_open ? 1 : plain.micro_batch; micro <= plain.micro_batch; micro++) {
            struct sbp_parallel parallel = plain;
            parallel.pipeline = stages;
            parallel.micro_batch = micro;
            try_cut(instance, &parallel);
        }
    small_instance_cut(&instance->small, &plain);
    qsort(instance->truth, (size_t)instance->count, sizeof *instance->truth, compare_truth);
}

/* ---- the search beside it ------------------------------------------------------------------- */

struct tally {
    int run, listed, proved, staged, plans, complete;
};

/* A listed plan is legal, costs what it says, fits, and is no other one of the list. */
static uint64_t check_plan(struct instance *instance, const struct sbp_pool_plan *ranked)
{
    struct sbp_plan *plan = &instance->small.plan;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    const int64_t limit = instance->small.request.memory_limit_bytes;
    if (sbp_plan_cut(plan, &ranked->parallel, &diag) != SBP_OK)
        complain(instance, diag.text);
    plan->strategy = ranked->strategy;
    if (labelled_check(plan, &instance->small.request, &plan->strategy, &diag) != SBP_OK ||
        sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK)
        complain(instance, diag.text);
    if (fabs(step.totals.step_s - ranked->objective_s) > CLOSE * ranked->objective_s)
        complain(instance, "a plan does not cost what the search says");
    if (limit > 0 && step.totals.device_bytes > limit)
        complain(instance, "a plan does not fit");
    sbp_step_free(&step);
    return name_of(plan, &plan->strategy);
}

static void check_places(struct instance *instance, const struct sbp_pool *ranking)
{
    char text[200];
    for (int i = 0; i < ranking->count; i++) {
        const double found = ranking->plan[i].objective_s;
        const double true_s = i < instance->count ? instance->truth[i].objective_s : NAN;
        (void)snprintf(text, sizeof text, "plan %d of %d (%d proved): %.12g, of all %d plans %.12g",
                       i + 1, ranking->count, ranking->proved, found, instance->count, true_s);
        if (!(found >= true_s * (1 - CLOSE)) ||
            (i < ranking->proved && found > true_s * (1 + CLOSE)) ||
            (i > 0 && found < ranking->plan[i - 1].objective_s))
            complain(instance, text);
    }
}

static void compare(struct instance *instance, int most, struct tally *tally)
{
    struct sbp_outcome outcome;
    struct sbp_pool ranking;
    struct sbp_diag diag = {{0}};
    uint64_t name[64];
    const enum sbp_status status = explore_top(&instance->small.plan, &instance->small.request,
                                               most, &ranking, &outcome, &diag);
    tally->run++;
    if (status == SBP_E_INPUT && instance->count == 0)
        return;
    if (status != SBP_OK)
        complain(instance, diag.text);
    check_places(instance, &ranking);
    for (int i = 0; i < ranking.count; i++) {
        name[i] = check_plan(instance, &ranking.plan[i]);
        for (int k = 0; k < i; k++)
            if (name[k] == name[i])
                complain(instance, "a plan is listed twice");
        tally->staged += ranking.plan[i].parallel.pipeline > 1;
    }
    const int wanted = instance->count < most ? instance->count : most;
    if (ranking.count < wanted && ranking.rest_s > instance->truth[ranking.count].objective_s)
        complain(instance, "there are more plans");
    if (ranking.proved == wanted && ranking.count != wanted)
        complain(instance, "there are fewer plans");
    tally->listed += ranking.count;
    tally->proved += ranking.proved;
    tally->plans += wanted;
    tally->complete += ranking.proved == wanted;
}

/* Places of sbp_parallel_keys that stay as they are. */
static unsigned all_but(const char *const *open)
{
    unsigned given = 0;
    for (int i = 0; sbp_parallel_keys()[i] != NULL; i++) {
        bool is_open = false;
        for (int k = 0; open[k] != NULL; k++)
            is_open |= strcmp(open[k], sbp_parallel_keys()[i]) == 0;
        given |= is_open ? 0 : 1u << i;
    }
    return given;
}

/* share: of the memory between the least memory that a plan needs and twice that; negative: no
 * limit. */
static void run_kind(enum small_kind kind, int outer, int inner, bool is_open, double share,
                     int instances, uint64_t seed)
{
    static const char *const OPEN[] = {"pipeline", "micro_batch", NULL}, *const NOTHING[] = {NULL};
    static const int MOST[] = {1, 2, 5, 12, 40};
    struct tally tally = {0};
    for (int draw = 0; draw < 20 * instances && tally.run < instances; draw++) {
        struct instance instance = {
            .small = {.seed = seed + (uint64_t)draw * 1000003,
                      .request = {.space = SBP_SPACE_FULL,
                                  .quick = true,
                                  .given = all_but(is_open ? OPEN : NOTHING)}}};
        open_instance(&instance, kind, outer, inner);
        try_all(&instance, is_open);
        if (!instance.gave_up && share >= 0 && instance.count > 0) {
            instance.small.request.memory_limit_bytes =
                (int64_t)((double)instance.least_bytes * (1 + share));
            try_all(&instance, is_open);
        }
        if (!instance.gave_up)
            compare(&instance, MOST[tally.run % 5], &tally);
        close_instance(&instance);
    }
    print_message("%-12s %dx%d, cut %s, limit %+.2f, seed %" PRIu64
                  ": %d searches, %d plans listed of %d, %d proved, %d with stages; %d all "
                  "proved\n",
                  small_kind_name(kind), outer, inner, is_open ? "open" : "given", share, seed,
                  tally.run, tally.listed, tally.plans, tally.proved, tally.staged, tally.complete);
    assert_true(tally.run > 0);
    assert_true(tally.listed > 0);
    /* A list that is short, or proved nowhere, would pass all the rest. */
    assert_int_equal(tally.listed, tally.plans);
    assert_true(4 * tally.complete >= 3 * tally.run);
}

static void test_strategies(void **state)
{
    (void)state;
    run_kind(SMALL_CHAIN, 2, 1, false, -1, 20, 11);
    run_kind(SMALL_CHAIN, 2, 2, false, -1, 10, 12);
    run_kind(SMALL_RESIDUAL, 2, 1, false, -1, 10, 13);
    run_kind(SMALL_LANGUAGE, 2, 1, false, -1, 10, 14);
    run_kind(SMALL_GPT, 2, 1, false, -1, 10, 15);
    run_kind(SMALL_NORMED, 3, 1, false, -1, 10, 16);
}

static void test_cuts(void **state)
{
    (void)state;
    run_kind(SMALL_CHAIN, 2, 1, true, -1, 10, 21);
    run_kind(SMALL_CHAIN, 2, 2, true, -1, 5, 22);
    run_kind(SMALL_LANGUAGE, 2, 1, true, -1, 5, 23);
    run_kind(SMALL_GPT, 2, 1, true, -1, 5, 24);
}

static void test_memory(void **state)
{
    (void)state;
    static const double shares[] = {0, 0.1, 0.5};
    for (int i = 0; i < 3; i++) {
        run_kind(SMALL_CHAIN, 2, 1, true, shares[i], 5, 31 + (uint64_t)i);
        run_kind(SMALL_LANGUAGE, 2, 1, true, shares[i], 5, 41 + (uint64_t)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

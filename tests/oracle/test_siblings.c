/* Tests the assumptions with which the whole search skips candidates. A strategy takes no less time
 * where activations are formed again. It takes no less time where states are in host memory, unless
 * launches take time. No strategy takes less time than its candidate is listed with. The tests try
 * every labelled strategy of small models under every candidate of a step.
 *
 * Message-driven stages are greedy, so a stage that takes longer may make the step shorter. There
 * the assumptions hold only for paths. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "planner/outer/step_cuts.h"
#include "planner/outer/branch_and_bound.h"
#include "small_instance.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

/* Sums in another order differ by this share. */
#define CLOSE 1e-9

enum { MOST_STRATEGIES = 60, DRAWS = 40 };

struct times {
    int count;
    double step_s[MOST_STRATEGIES], communication_s[MOST_STRATEGIES];
};

static void draw_instance(struct small_instance *instance, double launch_s, uint64_t seed)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    *instance =
        (struct small_instance){.seed = seed, .request = {.space = SBP_SPACE_FULL, .quick = true}};
    const enum small_kind kind = (enum small_kind)sbp_random_below(&random, SMALL_KINDS);
    small_instance_open(instance, kind, 3, 2, 1 + (int)sbp_random_below(&random, 2));
    struct sbp_parallel parallel = instance->plan.cut.parallel;
    instance->plan.workload.cluster.host_link_bytes_per_s = 1e10;
    instance->plan.workload.cluster.kernel_launch_s = launch_s;
    instance->plan.workload.cluster.gradient_overlap = sbp_random_unit(&random);
    parallel.zero = (int64_t)sbp_random_below(&random, 4);
    parallel.regather = sbp_random_below(&random, 2) == 0;
    parallel.gather_blocks = sbp_random_below(&random, 2) == 0;
    parallel.keep_sent = sbp_random_below(&random, 2) == 0;
    parallel.recompute_every = 1 + (int64_t)sbp_random_below(&random, 2);
    parallel.bucket_parameters = 256;
    small_instance_cut(instance, &parallel);
}

/* ---- one strategy, candidate by candidate ---------------------------------------------------- */

static void note(void *context, const struct sbp_strategy *strategy,
                 const struct sbp_step_totals *totals)
{
    struct times *times = context;
    (void)strategy;
    times->step_s[times->count] = totals->step_s;
    times->communication_s[times->count++] = totals->communication_s;
}

/* False: there are too many strategies, or the model has too few cuts. */
static bool time_all(struct small_instance *instance, const struct sbp_parallel *parallel,
                     struct times *times)
{
    struct labelled_best best;
    struct sbp_diag diag = {{0}};
    times->count = 0;
    if (sbp_plan_cut(&instance->plan, parallel, &diag) != SBP_OK ||
        labelled_count(&instance->plan, &instance->request, MOST_STRATEGIES) > MOST_STRATEGIES)
        return false;
    if (labelled_each(&instance->plan, &instance->request, MOST_STRATEGIES, note, times, &best,
                      &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    return true;
}

/* Whether the first is what the second is with less formed again or moved. */
static bool is_base_of(const struct small_instance *instance, const struct sbp_parallel *base,
                       const struct sbp_parallel *other)
{
    struct sbp_parallel moved = *base;
    moved.recompute = other->recompute;
    if (!(instance->plan.workload.cluster.kernel_launch_s > 0))
        moved.offload = other->offload;
    return sbp_parallel_equal(&moved, other);
}

static void compare(const struct small_instance *instance, const struct sbp_parallel *parallel,
                    const struct times *base, const struct times *times)
{
    char text[200];
    assert_int_equal(base->count, times->count);
    for (int i = 0; i < times->count; i++) {
        const bool is_sooner = times->step_s[i] < base->step_s[i] * (1 - CLOSE) &&
                               parallel->schedule != SBP_MESSAGE_DRIVEN;
        (void)snprintf(text, sizeof text,
                       "%s, %" PRId64 " stages, micro-batches of %" PRId64
                       ", recompute %s, offload %d: %.12g s instead of %.12g s",
                       sbp_timeline_schedule_name(parallel->schedule), parallel->pipeline,
                       parallel->micro_batch, sbp_parallel_recompute_name(parallel->recompute),
                       parallel->offload, times->step_s[i], base->step_s[i]);
        if (is_sooner || times->communication_s[i] < base->communication_s[i] * (1 - CLOSE))
            small_instance_complain(instance, "%s", text);
    }
}

static int64_t check_instance(struct small_instance *instance)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_step_cuts list;
    struct times base = {0}, times;
    int64_t checked = 0;
    int base_at = 0;
    if (sbp_step_cuts_list(&instance->plan.cut, &instance->request, &arena, &list, &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    for (int i = 0; i < list.count; i++) {
        const struct sbp_step_cut *candidate = &list.candidate[i];
        if (!time_all(instance, &candidate->parallel, &times))
            continue;
        for (int s = 0; s < times.count; s++)
            if (candidate->bound_s > times.step_s[s] * (1 + CLOSE))
                small_instance_complain(instance, "a candidate takes less than it is listed with");
        if (base.count > 0 &&
            is_base_of(instance, &list.candidate[base_at].parallel, &candidate->parallel)) {
            compare(instance, &candidate->parallel, &base, &times);
            checked += times.count;
        } else {
            base_at = i;
            base = times;
        }
    }
    sbp_arena_free(&arena);
    return checked;
}

static void run(double launch_s, uint64_t first_seed)
{
    int64_t checked = 0;
    for (uint64_t seed = first_seed; seed < first_seed + DRAWS; seed++) {
        struct small_instance instance;
        draw_instance(&instance, launch_s, seed);
        checked += check_instance(&instance);
        sbp_plan_free(&instance.plan);
    }
    print_message("launches of %g s, seeds from %" PRIu64 ": %" PRId64 " steps\n", launch_s,
                  first_seed, checked);
    assert_true(checked > 1000);
}

static void test_no_launches(void **state)
{
    (void)state;
    run(0, 100);
}

static void test_launches(void **state)
{
    (void)state;
    run(1e-6, 200);
}

/* ---- the search beside it -------------------------------------------------------------------- */

static void give(struct sbp_request *request, const char *key)
{
    for (int i = 0; sbp_parallel_keys()[i] != NULL; i++)
        request->given |= strcmp(key, sbp_parallel_keys()[i]) == 0 ? 1u << i : 0;
}

static void search(struct small_instance *instance, bool offloads, struct sbp_outcome *outcome)
{
    struct sbp_diag diag = {{0}};
    struct sbp_parallel parallel = sbp_parallel_default(&instance->plan.cut.graph);
    parallel.offload = offloads;
    small_instance_cut(instance, &parallel);
    instance->request.given = 0;
    give(&instance->request, "pipeline");
    give(&instance->request, "micro_batch");
    if (offloads)
        give(&instance->request, "offload");
    if (explore_plan(&instance->plan, &instance->request, outcome, &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
}

/* Where launches take long, states that pass through in buckets are updated sooner: what nothing is
 * given for is no worse, and bounds nothing above. */
static void test_offload_for_speed(void **state)
{
    int offloaded = 0;
    (void)state;
    for (uint64_t seed = 300; seed < 300 + DRAWS; seed++) {
        struct small_instance instance;
        struct sbp_outcome moved, open;
        draw_instance(&instance, 1e-5, seed);
        search(&instance, true, &moved);
        search(&instance, false, &open);
        offloaded += instance.plan.cut.parallel.offload;
        if (open.objective_s > moved.objective_s * (1 + CLOSE) ||
            open.lower_bound_s > moved.objective_s * (1 + CLOSE))
            small_instance_complain(&instance, "a plan that offloads is better than the best");
        sbp_plan_free(&instance.plan);
    }
    assert_true(offloaded > DRAWS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_launches),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_offload_for_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

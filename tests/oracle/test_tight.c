/* Searches that get exactly the memory that a known plan takes: whatever they prove must leave room
 * for that plan. Models of a few operators, steps cut at random, offload and chunks among them;
 * known are the best plans without a limit, under ZeRO levels that layers choose and that all have.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "oracle_plan.h"
#include "planner/outer/branch_and_bound.h"
#include "small_instance.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

enum { LEVELS = 4, MOST_KNOWN = LEVELS + 1, DRAWS = 100 };

struct known {
    double step_s;
    int64_t device_bytes;
};

struct tally {
    int steps, known, optimal;
};

static bool draw_step(struct sbp_random *random, struct sbp_plan *plan)
{
    static const int64_t buckets[] = {16, 256, INT64_C(1) << 24};
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_diag refusal = {{0}};
    parallel.pipeline = 1 + (int64_t)sbp_random_below(random, 2);
    parallel.micro_batch =
        plan->cut.graph.global_batch / (1 + (int64_t)sbp_random_below(random, 3));
    if (parallel.pipeline > 1)
        parallel.schedule = (enum sbp_schedule)sbp_random_below(random, SBP_MESSAGE_DRIVEN + 1);
    parallel.chunks = parallel.schedule == SBP_INTERLEAVED ? 2 : 1;
    if (parallel.schedule == SBP_MESSAGE_DRIVEN)
        parallel.pipeline_limit = (int64_t)sbp_random_below(random, 4);
    parallel.recompute = (enum sbp_recompute)sbp_random_below(random, SBP_RECOMPUTES);
    parallel.offload = sbp_random_below(random, 2) == 0;
    parallel.bucket_parameters = buckets[sbp_random_below(random, 3)];
    parallel.regather = sbp_random_below(random, 4) == 0;
    parallel.keep_sent = sbp_random_below(random, 4) == 0;
    return sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK;
}

/* The request keeps all of the plan's parallel but ZeRO, unless a level is given. */
static void give(struct small_instance *instance, int level)
{
    const char *const *keys = sbp_parallel_keys();
    instance->request.given = 0;
    for (int i = 0; keys[i] != NULL; i++)
        if (level >= 0 || strcmp(keys[i], "zero") != 0)
            instance->request.given |= 1u << i;
}

/* The cheapest plan of the instance's step under its limit; INFINITY: there is none, or no legal
 * one. */
static struct known search(struct small_instance *instance, const struct sbp_parallel *parallel,
                           int level, struct sbp_outcome *outcome)
{
    struct sbp_parallel cut = *parallel;
    struct sbp_diag diag = {{0}};
    struct sbp_step step;
    cut.zero = level >= 0 ? level : parallel->zero;
    small_instance_cut(instance, &cut);
    give(instance, level);
    const enum sbp_status status =
        explore_plan(&instance->plan, &instance->request, outcome, &diag);
    if (status != SBP_OK && status != SBP_E_INPUT)
        small_instance_complain(instance, "%s", diag.text);
    if (status == SBP_E_INPUT || !isfinite(outcome->objective_s))
        return (struct known){INFINITY, 0};
    if (sbp_cut_step(&instance->plan.cut, &instance->plan.strategy, false, &step, &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    const struct known found = {step.totals.step_s, step.totals.device_bytes};
    sbp_step_free(&step);
    return found;
}

static void check_proof(const struct small_instance *instance, const struct known *known,
                        const struct sbp_outcome *outcome)
{
    if (outcome->status == SBP_PLAN_INFEASIBLE ||
        outcome->lower_bound_s > known->step_s * (1 + CLOSE) ||
        (outcome->status == SBP_PLAN_OPTIMAL && outcome->objective_s > known->step_s * (1 + CLOSE)))
        small_instance_complain(instance,
                                "a plan of %.9g s is known that takes all of the limit; found %.9g "
                                "s, bound %.9g s, %s",
                                known->step_s, outcome->objective_s, outcome->lower_bound_s,
                                sbp_solver_status_name(outcome->status));
}

static void run_step(struct small_instance *instance, struct tally *tally)
{
    const struct sbp_parallel parallel = instance->plan.cut.parallel;
    struct sbp_outcome outcome;
    struct known known[MOST_KNOWN];
    for (int i = 0; i < MOST_KNOWN; i++)
        known[i] = search(instance, &parallel, i - 1, &outcome);
    for (int i = 0; i < MOST_KNOWN; i++) {
        if (!isfinite(known[i].step_s))
            continue;
        instance->request.memory_limit_bytes = known[i].device_bytes;
        memset(&outcome, 0, sizeof outcome);
        (void)search(instance, &parallel, -1, &outcome);
        check_proof(instance, &known[i], &outcome);
        tally->known++;
        tally->optimal += outcome.status == SBP_PLAN_OPTIMAL;
    }
    tally->steps += isfinite(known[0].step_s);
}

static void run(enum small_kind kind, int outer, int inner, uint64_t first_seed)
{
    struct tally tally = {0};
    for (int draw = 0; draw < DRAWS; draw++) {
        struct small_instance instance = {.seed = first_seed + (uint64_t)draw,
                                          .request = {.space = SBP_SPACE_FULL, .quick = true}};
        struct sbp_random random;
        small_instance_open(&instance, kind, 4, outer, inner);
        instance.plan.workload.cluster.host_link_bytes_per_s = 1e10;
        sbp_random_seed(&random, instance.seed);
        if (draw_step(&random, &instance.plan))
            run_step(&instance, &tally);
        sbp_plan_free(&instance.plan);
    }
    print_message("%-12s %dx%d, seeds from %" PRIu64 ": %d steps, %d limits, %d proved optimal\n",
                  small_kind_name(kind), outer, inner, first_seed, tally.steps, tally.known,
                  tally.optimal);
    assert_true(tally.steps > DRAWS / 4);
    assert_true(tally.optimal > tally.known / 4);
}

static void test_chains(void **state)
{
    (void)state;
    run(SMALL_CHAIN, 2, 1, 1000);
    run(SMALL_CHAIN, 2, 2, 2000);
}

static void test_models(void **state)
{
    (void)state;
    run(SMALL_NORMED, 2, 1, 3000);
    run(SMALL_LANGUAGE, 2, 1, 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),
                                       cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

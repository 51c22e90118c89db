/* The whole search against all of it: every way to cut a step that plain loops find, and in each
 * every labelled strategy, closed, compiled, simulated and priced one by one. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "oracle_plan.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/space/space_table.h"
#include "small_instance.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

#define NO_LIMIT   (-1.0) /* of memory */
#define MOST_ABOVE 0.25   /* the least that does, what is named may be */

enum { MOST_STRATEGIES = 400, MOST_CUTS = 20000 };

struct instance {
    struct small_instance small;
    bool is_staged; /* stages and schedule are given */
    enum sbp_schedule schedule;
};

struct brute {
    double best_s;
    struct sbp_parallel best;
    int64_t strategies, least_device_bytes;
    int cuts;
    bool gave_up;
};

static void complain(const struct instance *instance, const char *what)
{
    small_instance_complain(&instance->small, "%s", what);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void try_cut(struct instance *instance, const struct sbp_parallel *parallel,
                    struct brute *brute)
{
    struct sbp_plan *plan = &instance->small.plan;
    struct sbp_diag diag = {{0}};
    struct labelled_best best;
    if (brute->gave_up || sbp_plan_cut(plan, parallel, &diag) != SBP_OK)
        return;
    if (sbp_stages_cut(&plan->cut.graph, (int)(parallel->pipeline * parallel->chunks),
                       parallel->stage_cut, (int[4096]){0}, &diag) != SBP_OK)
        return;
    brute->gave_up |=
        ++brute->cuts > MOST_CUTS ||
        labelled_count(plan, &instance->small.request, MOST_STRATEGIES) > MOST_STRATEGIES;
    if (brute->gave_up)
        return;
    if (labelled_search(plan, &instance->small.request, MOST_STRATEGIES, &best, &diag) != SBP_OK)
        complain(instance, diag.text);
    brute->strategies += best.visited;
    if (best.visited > 0 && best.least_device_bytes < brute->least_device_bytes)
        brute->least_device_bytes = best.least_device_bytes;
    if (best.objective_s < brute->best_s) {
        brute->best_s = best.objective_s;
        brute->best = *parallel;
    }
}

static void try_states(struct instance *instance, struct sbp_parallel parallel, struct brute *brute)
{
    for (int64_t zero = 0; zero <= 3; zero++)
        for (int again = 0; again < SBP_RECOMPUTES; again++) {
            parallel.zero = zero;
            parallel.recompute = (enum sbp_recompute)again;
            try_cut(instance, &parallel, brute);
        }
}

static void try_schedules(struct instance *instance, struct sbp_parallel parallel,
                          struct brute *brute)
{
    for (int schedule = SBP_GPIPE; schedule <= SBP_MESSAGE_DRIVEN; schedule++)
        for (int64_t chunks = 1; chunks <= (schedule == SBP_INTERLEAVED ? 3 : 1); chunks++)
            for (int cut = 0; cut < SBP_STAGE_CUTS; cut++) {
                if ((schedule == SBP_INTERLEAVED) != (chunks > 1) ||
                    (instance->is_staged && schedule != (int)instance->schedule))
                    continue;
                parallel.schedule = (enum sbp_schedule)schedule;
                parallel.chunks = chunks;
                parallel.stage_cut = (enum sbp_stage_cut)cut;
                parallel.pipeline_limit = 0;
                try_states(instance, parallel, brute);
                parallel.pipeline_limit = 2 * parallel.pipeline - 1;
                if (schedule == SBP_ZERO_BUBBLE)
                    try_states(instance, parallel, brute);
            }
}

static struct brute try_all(struct instance *instance)
{
    struct brute brute = {.best_s = INFINITY, .least_device_bytes = INT64_MAX};
    const struct sbp_parallel plain = instance->small.plan.cut.parallel;
    for (int64_t stages = 1; stages <= sbp_cluster_devices(&instance->small.plan.workload.cluster);
         stages++)
        for (int64_t micro = 1; micro <= instance->small.plan.cut.graph.global_batch; micro++) {
            struct sbp_parallel parallel = plain;
            parallel.pipeline = stages;
            parallel.micro_batch = micro;
            if (instance->is_staged && stages != plain.pipeline)
                continue;
            if (stages == 1)
                try_states(instance, parallel, &brute);
            else
                try_schedules(instance, parallel, &brute);
        }
    small_instance_cut(&instance->small, &plain);
    return brute;
}

/* ---- the search beside it ------------------------------------------------------------------- */

struct tally {
    int run, optimal, feasible, infeasible, staged, split, formed_again;
    int64_t strategies;
    int leaner, named, least;
    double worst_gap, most_above;
};

/* Whether layers have ZeRO levels of their own, which are not among all that was tried. */
static bool shards_by_layer(const struct sbp_plan *plan)
{
    for (int op = 0; op < plan->cut.graph.op_count; op++)
        if (plan->strategy.zero[op] != SBP_ZERO_DEFAULT &&
            plan->strategy.zero[op] != plan->cut.parallel.zero)
            return true;
    return false;
}

/* The plan is one of the space's, what it is said to cost is what its step costs, and it fits. */
static void check_plan(struct instance *instance, const struct sbp_outcome *outcome)
{
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    const int64_t limit = instance->small.request.memory_limit_bytes;
    if (labelled_check(&instance->small.plan, &instance->small.request,
                       &instance->small.plan.strategy, &diag) != SBP_OK ||
        sbp_cut_step(&instance->small.plan.cut, &instance->small.plan.strategy, false, &step,
                     &diag) != SBP_OK)
        complain(instance, diag.text);
    if (fabs(step.totals.step_s - outcome->objective_s) > CLOSE * outcome->objective_s)
        complain(instance, "the plan does not cost what the search says");
    if (limit > 0 && step.totals.device_bytes > limit)
        complain(instance, "the plan does not fit");
    sbp_step_free(&step);
}

/* ZeRO by layer is searched, too: with that alone the search may beat the brute force; its bound
 * never does. Where nothing fits, it may come to no proof of that. */
static void compare(struct instance *instance, const struct brute *brute, struct tally *tally)
{
    char text[200];
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    const enum sbp_status status =
        explore_plan(&instance->small.plan, &instance->small.request, &outcome, &diag);
    tally->run++;
    tally->strategies += brute->strategies;
    if (status == SBP_E_INPUT && brute->strategies == 0)
        return;
    if (status != SBP_OK)
        complain(instance, diag.text);
    if (isinf(outcome.objective_s)) {
        if (isfinite(brute->best_s))
            complain(instance, "there is a plan that the search did not find");
        snprintf(text, sizeof text,
                 "%s: %" PRId64 " bytes needed, no less than %.0f, %" PRId64 " do",
                 sbp_solver_status_name(outcome.status), outcome.needed_bytes, outcome.least_bytes,
                 brute->least_device_bytes);
        if ((outcome.status != SBP_PLAN_INFEASIBLE && outcome.status != SBP_PLAN_TIME_LIMIT) ||
            outcome.needed_bytes <= instance->small.request.memory_limit_bytes ||
            outcome.needed_bytes < brute->least_device_bytes ||
            outcome.least_bytes > (double)brute->least_device_bytes)
            complain(instance, text);
        tally->infeasible += outcome.status == SBP_PLAN_INFEASIBLE;
        return;
    }
    check_plan(instance, &outcome);
    snprintf(text, sizeof text,
             "search %.12g (bound %.12g), all %.12g: pipeline %" PRId64 " micro-batch %" PRId64
             " %s",
             outcome.objective_s, outcome.lower_bound_s, brute->best_s, brute->best.pipeline,
             brute->best.micro_batch, sbp_timeline_schedule_name(brute->best.schedule));
    if (outcome.lower_bound_s > brute->best_s * (1 + CLOSE))
        complain(instance, text);
    if (outcome.status == SBP_PLAN_OPTIMAL && outcome.objective_s > brute->best_s * (1 + CLOSE))
        complain(instance, text);
    if (outcome.objective_s < brute->best_s * (1 - CLOSE) &&
        !shards_by_layer(&instance->small.plan))
        complain(instance, text);
    const struct sbp_parallel *chosen = &instance->small.plan.cut.parallel;
    tally->optimal += outcome.status == SBP_PLAN_OPTIMAL;
    tally->feasible += outcome.status == SBP_PLAN_FEASIBLE;
    tally->staged += chosen->pipeline > 1;
    tally->split += chosen->micro_batch < instance->small.plan.cut.graph.global_batch;
    tally->formed_again += chosen->recompute != SBP_RECOMPUTE_NONE;
    tally->worst_gap = fmax(tally->worst_gap, outcome.objective_s / brute->best_s - 1);
}

/* No plan exists within one byte less than the least memory that a plan needs. The memory named as
 * needed is no less than the proved bound, no more than a quarter above the least memory, and
 * enough for a plan. */
static void check_least(struct instance *instance, const struct brute *brute, struct tally *tally)
{
    char text[200];
    struct sbp_outcome none, again;
    struct sbp_diag diag = {{0}};
    struct sbp_request *request = &instance->small.request;
    const struct sbp_parallel plain = instance->small.plan.cut.parallel;
    const double least = (double)brute->least_device_bytes;
    request->memory_limit_bytes = brute->least_device_bytes - 1;
    if (explore_plan(&instance->small.plan, request, &none, &diag) != SBP_OK)
        complain(instance, diag.text);
    tally->leaner += isfinite(none.objective_s); /* by layer */
    if (isfinite(none.objective_s))
        return;
    const double named = (double)none.needed_bytes;
    (void)snprintf(text, sizeof text, "%.0f bytes named, none with less than %.0f, %.0f do", named,
                   none.least_bytes, least);
    if (named < least || named > (1 + MOST_ABOVE) * least || none.least_bytes > least ||
        none.least_bytes <= 0)
        complain(instance, text);
    request->memory_limit_bytes = none.needed_bytes;
    small_instance_cut(&instance->small, &plain);
    if (explore_plan(&instance->small.plan, request, &again, &diag) != SBP_OK)
        complain(instance, diag.text);
    if (!isfinite(again.objective_s))
        complain(instance, "no plan is found within the bytes that are named");
    check_plan(instance, &again);
    tally->named++;
    tally->least += named <= least;
    tally->most_above = fmax(tally->most_above, named / least - 1);
    tally->infeasible += none.status == SBP_PLAN_INFEASIBLE;
}

static void run_least(enum small_kind kind, int outer, int inner, int instances, uint64_t seed)
{
    struct tally tally = {0};
    for (int draw = 0; draw < 20 * instances && tally.run < instances; draw++) {
        struct instance instance = {.small = {.seed = seed + (uint64_t)draw * 1000003,
                                              .request = {.space = SBP_SPACE_FULL, .quick = true}}};
        small_instance_open(&instance.small, kind, 2, outer, inner);
        const struct brute brute = try_all(&instance);
        if (!brute.gave_up && brute.strategies > 0) {
            tally.run++;
            check_least(&instance, &brute, &tally);
        }
        sbp_plan_free(&instance.small.plan);
    }
    print_message("%-12s %dx%d, seed %" PRIu64 ": %d run, %d leaner by layer; %d named, %d the "
                  "least, others at most %.1f %% above; %d proved infeasible below\n",
                  small_kind_name(kind), outer, inner, seed, tally.run, tally.leaner, tally.named,
                  tally.least, 100 * tally.most_above, tally.infeasible);
    assert_true(tally.named > 0);
}

static void run_instance(struct instance *instance, struct tally *tally, double share)
{
    struct brute brute = try_all(instance);
    if (brute.gave_up)
        return;
    if (share != NO_LIMIT && isfinite(brute.best_s)) {
        instance->small.request.memory_limit_bytes =
            (int64_t)((double)brute.least_device_bytes * (1 + share));
        brute = try_all(instance);
    }
    compare(instance, &brute, tally);
}

/* The request keeps the plan's value of a key. */
static void give(struct instance *instance, const char *key)
{
    const char *const *keys = sbp_parallel_keys();
    for (int i = 0; keys[i] != NULL; i++)
        if (strcmp(keys[i], key) == 0)
            instance->small.request.given |= 1u << i;
    assert_true(sbp_request_gives(&instance->small.request, key));
}

/* Two stages of two devices; false where the model has too few cuts. */
static bool give_stages(struct instance *instance, enum sbp_schedule schedule)
{
    struct sbp_diag diag = {{0}};
    struct sbp_parallel parallel = instance->small.plan.cut.parallel;
    parallel.pipeline = 2;
    parallel.schedule = schedule;
    instance->is_staged = true;
    instance->schedule = schedule;
    if (sbp_plan_cut(&instance->small.plan, &parallel, &diag) != SBP_OK)
        return false;
    give(instance, "pipeline");
    give(instance, "schedule");
    return true;
}

/* Stages of several devices under one schedule: strategies differ from path to path. share: as
 * run_kind has it. */
static void run_stages(enum small_kind kind, enum sbp_schedule schedule, double share,
                       int instances, uint64_t seed)
{
    struct tally tally = {0};
    for (int draw = 0; draw < 20 * instances && tally.run < instances; draw++) {
        struct instance instance = {.small = {.seed = seed + (uint64_t)draw * 1000003,
                                              .request = {.space = SBP_SPACE_FULL, .quick = true}}};
        small_instance_open(&instance.small, kind, 2, 2, 2);
        if (give_stages(&instance, schedule))
            run_instance(&instance, &tally, share);
        sbp_plan_free(&instance.small.plan);
    }
    print_message("%-12s %-14s limit %+.2f, seed %" PRIu64 ": %d run, %" PRId64
                  " strategies: %d optimal, %d formed again; plans off by at most %.3g %%\n",
                  small_kind_name(kind), sbp_timeline_schedule_name(schedule), share, seed,
                  tally.run, tally.strategies, tally.optimal, tally.formed_again,
                  100 * tally.worst_gap);
    assert_true(tally.run == instances && tally.staged == tally.run);
    if (share == NO_LIMIT) /* mixtures alone leave some open: what they leave is settled */
        assert_int_equal(tally.optimal, tally.run);
    assert_true(tally.worst_gap < 0.05);
}

/* share: of the memory above the least memory that a plan needs; below it nothing fits. */
static void run_kind(enum small_kind kind, int outer, int inner, double share, int instances,
                     uint64_t seed)
{
    struct tally tally = {0};
    for (int draw = 0; draw < 20 * instances && tally.run < instances; draw++) {
        struct instance instance = {.small = {.seed = seed + (uint64_t)draw * 1000003,
                                              .request = {.space = SBP_SPACE_FULL, .quick = true}}};
        small_instance_open(&instance.small, kind, 2, outer, inner);
        run_instance(&instance, &tally, share);
        sbp_plan_free(&instance.small.plan);
    }
    print_message("%-12s %dx%d, limit %+.2f, seed %" PRIu64 ": %d run, %" PRId64
                  " strategies: %d optimal, %d feasible, %d infeasible; %d with stages, %d with "
                  "micro-batches, %d formed again; plans off by at most %.3g %%\n",
                  small_kind_name(kind), outer, inner, share, seed, tally.run, tally.strategies,
                  tally.optimal, tally.feasible, tally.infeasible, tally.staged, tally.split,
                  tally.formed_again, 100 * tally.worst_gap);
    assert_int_equal(tally.run, instances);
    assert_true(tally.worst_gap < 0.05);
    assert_true(2 * (tally.optimal + tally.infeasible) >= tally.run);
}

static void test_without_limit(void **state)
{
    (void)state;
    run_kind(SMALL_CHAIN, 2, 1, NO_LIMIT, 8, 11);
    run_kind(SMALL_CHAIN, 2, 2, NO_LIMIT, 4, 12);
    run_kind(SMALL_RESIDUAL, 2, 1, NO_LIMIT, 4, 13);
    run_kind(SMALL_LANGUAGE, 2, 1, NO_LIMIT, 4, 14);
    run_kind(SMALL_GPT, 2, 1, NO_LIMIT, 3, 15);
}

static void test_stages(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE,
                                                  SBP_MESSAGE_DRIVEN};
    for (int i = 0; i < 4; i++) {
        run_stages(SMALL_CHAIN, schedules[i], NO_LIMIT, 4, 41 + (uint64_t)i);
        run_stages(SMALL_LANGUAGE, schedules[i], NO_LIMIT, 3, 51 + (uint64_t)i);
    }
}

static void test_stages_with_limit(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE};
    static const double shares[] = {0, 0.1, 0.5};
    for (int i = 0; i < 3; i++) {
        run_stages(SMALL_CHAIN, schedules[i], shares[i], 4, 61 + (uint64_t)i);
        run_stages(SMALL_LANGUAGE, schedules[i], shares[2 - i], 3, 71 + (uint64_t)i);
    }
}

static void test_with_limit(void **state)
{
    (void)state;
    static const double shares[] = {0, 0.1, 0.5, -0.02};
    for (int i = 0; i < 4; i++) {
        run_kind(SMALL_CHAIN, 2, 1, shares[i], 4, 21 + (uint64_t)i);
        run_kind(SMALL_LANGUAGE, 2, 1, shares[i], 3, 31 + (uint64_t)i);
    }
}

static void test_least_memory(void **state)
{
    (void)state;
    run_least(SMALL_CHAIN, 2, 1, 8, 41);
    run_least(SMALL_RESIDUAL, 2, 1, 4, 42);
    run_least(SMALL_LANGUAGE, 2, 1, 4, 43);
    run_least(SMALL_GPT, 2, 1, 3, 44);
}

/* ---- interrupts ------------------------------------------------------------------------------ */

static atomic_int interrupted;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* Raises the flag once, in so many microseconds. */
static void interrupt_in(long delay_us)
{
    const struct itimerval timer = {.it_value = {delay_us / 1000000, delay_us % 1000000}};
    interrupted = 0;
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* Wherever it comes, an interrupt leaves the best plan so far and a bound that holds. */
static void check_interrupted(struct instance *instance, const struct sbp_outcome *whole,
                              long delay_us)
{
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    char text[1400];
    interrupt_in(delay_us);
    const enum sbp_status status =
        explore_plan(&instance->small.plan, &instance->small.request, &outcome, &diag);
    interrupt_in(0);
    (void)snprintf(text, sizeof text, "after %ld us: %s %s, %.12g above %.12g, stopped %d: %s",
                   delay_us, sbp_status_name(status), sbp_solver_status_name(outcome.status),
                   outcome.objective_s, outcome.lower_bound_s, outcome.stopped, diag.text);
    if (status != SBP_OK || outcome.lower_bound_s > whole->objective_s * (1 + CLOSE) ||
        outcome.objective_s < whole->lower_bound_s * (1 - CLOSE) ||
        (!outcome.stopped && outcome.objective_s > whole->objective_s * (1 + CLOSE)) ||
        outcome.status == SBP_PLAN_INFEASIBLE)
        complain(instance, text);
    if (isfinite(outcome.objective_s))
        check_plan(instance, &outcome);
}

static void run_interrupts(enum small_kind kind, enum sbp_space_kind space, uint64_t seed)
{
    enum { DELAYS = 60 };
    struct sbp_outcome whole;
    struct sbp_diag diag = {{0}};
    struct instance instance = {
        .small = {.seed = seed, .request = {.space = space, .quick = true}}};
    small_instance_open(&instance.small, kind, 2, 2, 2);
    const struct sbp_parallel plain = instance.small.plan.cut.parallel;
    instance.small.request.solver_options.stop = &interrupted;
    interrupted = 0;
    if (explore_plan(&instance.small.plan, &instance.small.request, &whole, &diag) != SBP_OK)
        complain(&instance, diag.text);
    for (int i = 1; i <= DELAYS; i++) {
        small_instance_cut(&instance.small, &plain);
        check_interrupted(&instance, &whole, 1 + (long)(1e6 * whole.wall_s * i / DELAYS));
    }
    sbp_plan_free(&instance.small.plan);
}

static void test_interrupts(void **state)
{
    (void)state;
    struct sigaction before;
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    run_interrupts(SMALL_CHAIN, SBP_SPACE_FULL, 81);
    run_interrupts(SMALL_LANGUAGE, SBP_SPACE_FULL, 82);
    run_interrupts(SMALL_GPT, SBP_SPACE_FULL, 83);
    run_interrupts(SMALL_GPT, SBP_SPACE_MEGATRON, 84);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

/* No time at all: neither a plan nor a proof. */
static void test_no_time(void **state)
{
    (void)state;
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    struct instance instance = {.small = {.seed = 91,
                                          .request = {.space = SBP_SPACE_FULL,
                                                      .quick = true,
                                                      .solver_options = {.time_limit_s = 1e-9}}}};
    small_instance_open(&instance.small, SMALL_CHAIN, 2, 2, 1);
    if (explore_plan(&instance.small.plan, &instance.small.request, &outcome, &diag) != SBP_OK)
        complain(&instance, diag.text);
    assert_true(outcome.stopped && isinf(outcome.objective_s));
    assert_int_equal(outcome.status, SBP_PLAN_TIME_LIMIT);
    sbp_plan_free(&instance.small.plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_limit),     cmocka_unit_test(test_stages),
        cmocka_unit_test(test_stages_with_limit), cmocka_unit_test(test_with_limit),
        cmocka_unit_test(test_least_memory),      cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

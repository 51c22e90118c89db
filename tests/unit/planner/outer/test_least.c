/* The hunt for the plan that needs least: whom it asks, that it walks on from there, and that it
 * keeps to what it may take. How lean the leanest is, tests/oracle says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>

#include "planner/outer/branch_and_bound.h"
#include "planner/least.h"
#include "tests/support/space_bench.h"

#define LEVELS LEVEL("a", 2) ", " LEVEL("b", 4)

/* A request with a limit of time; 0: none. */
static struct sbp_request request_of(double limit_s)
{
    return (struct sbp_request){
        .space = SBP_SPACE_FULL, .zero_is_free = true, .solver_options = {.time_limit_s = limit_s}};
}

static struct sbp_least_candidate candidate_of(const struct sbp_plan *plan, int order,
                                               double bound_bytes)
{
    return (struct sbp_least_candidate){order, plan->parallel, bound_bytes};
}

/* Evaluations of a hunt. */
static int64_t hunt(struct sbp_plan *plan, const struct sbp_request *request,
                    struct sbp_least_candidate *candidate, int count, struct sbp_ranked *least)
{
    struct sbp_diag diag = {{0}};
    int64_t evaluations = 0;
    if (sbp_least_find(plan, request, candidate, count, least, &evaluations, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return evaluations;
}

/* What the plan needs that a plan's parallel is asked for. */
static int64_t asked_bytes(struct sbp_plan *plan)
{
    struct sbp_request request = request_of(0);
    struct sbp_outcome outcome;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    request.leanest = request.puts_memory_off = true;
    request.memory_limit_bytes = INT64_MAX;
    if (sbp_optimise(plan, &request, &outcome, &diag) != SBP_OK ||
        sbp_plan_brief_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const int64_t bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    return bytes;
}

/* Without candidates, without time and with a flag that is up there is no plan, and no error. */
static void test_none(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked least;
    atomic_int stop = 1;
    struct sbp_request request = request_of(0);
    open_plan(GPT(1, ""), LEVELS, &plan);
    struct sbp_least_candidate candidate = candidate_of(&plan, 0, 1);
    assert_int_equal(hunt(&plan, &request, &candidate, 0, &least), 0);
    assert_int_equal(least.device_bytes, 0);
    request.solver_options.stop = &stop;
    assert_int_equal(hunt(&plan, &request, &candidate, 1, &least), 0);
    assert_int_equal(least.device_bytes, 0);
    request = request_of(1e-9);
    assert_int_equal(hunt(&plan, &request, &candidate, 1, &least), 0);
    assert_int_equal(least.device_bytes, 0);
    sbp_plan_free(&plan);
}

/* The one with the least bound is asked first. Who cannot need less than what is known is not
 * asked, nor walked from, whatever the limit of memory is. */
static void test_closed(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked least;
    struct sbp_request request = request_of(0);
    request.memory_limit_bytes = 1;
    open_plan(GPT(1, ""), LEVELS, &plan);
    const struct sbp_parallel lean = plan.parallel;
    const int64_t bytes = asked_bytes(&plan);
    struct sbp_least_candidate alone = candidate_of(&plan, 1, (double)bytes);
    const int64_t evaluations = hunt(&plan, &request, &alone, 1, &least);
    assert_true(evaluations > 0);
    assert_int_equal(least.device_bytes, bytes);
    struct sbp_least_candidate both[] = {candidate_of(&plan, 0, (double)bytes + 1), alone};
    both[0].parallel.micro_batch = 12;
    assert_int_equal(hunt(&plan, &request, both, 2, &least), evaluations);
    assert_int_equal(least.device_bytes, bytes);
    assert_int_equal(least.parallel.micro_batch, lean.micro_batch);
    struct sbp_least_candidate equal[] = {candidate_of(&plan, 2, (double)bytes), alone};
    equal[0].parallel.micro_batch = 12;
    assert_int_equal(hunt(&plan, &request, equal, 2, &least), evaluations);
    assert_int_equal(least.parallel.micro_batch, lean.micro_batch);
    sbp_plan_free(&plan);
}

/* Many candidates that stay open are walked from until the time is up: there is work for more. Then
 * there is a plan that needs less than the leanest by the model. */
static void test_walks(void **state)
{
    (void)state;
    enum { CANDIDATES = 10 };
    const double limit_s = 0.6;
    struct sbp_plan plan;
    struct sbp_ranked least;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    struct sbp_request request = request_of(limit_s);
    request.threads = 2; /* however fast a machine is */
    open_plan(GPT(1, ""), LEVELS, &plan);
    struct sbp_least_candidate candidate[CANDIDATES];
    for (int i = 0; i < CANDIDATES; i++) {
        candidate[i] = candidate_of(&plan, i, 1);
        candidate[i].parallel.recompute = i % 2 == 0 ? SBP_RECOMPUTE_FULL : SBP_RECOMPUTE_NONE;
    }
    if (sbp_plan_set_parallel(&plan, &candidate[0].parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const int64_t asked = asked_bytes(&plan);
    const double start_s = sbp_clock_s();
    const int64_t evaluations = hunt(&plan, &request, candidate, CANDIDATES, &least);
    const double took_s = sbp_clock_s() - start_s;
    print_message("%" PRId64 " evaluations in %.2f s, %" PRId64 " bytes, by the model %" PRId64
                  "\n",
                  evaluations, took_s, least.device_bytes, asked);
    assert_true(least.device_bytes > 0 && least.device_bytes < asked);
    assert_true(took_s > 0.9 * limit_s && took_s < limit_s + 2);
    if (sbp_plan_set_parallel(&plan, &least.parallel, &diag) != SBP_OK ||
        sbp_strategy_close(&plan.graph, &plan.mesh, &least.strategy, &diag) != SBP_OK ||
        sbp_plan_brief_step(&plan, &least.strategy, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(step.totals.device_bytes, least.device_bytes);
    assert_true(step.totals.step_s == least.objective_s);
    sbp_step_free(&step);
    const double again_s = sbp_clock_s();
    hunt(&plan, &request, candidate, 1, &least); /* one walk keeps to it, too */
    assert_true(sbp_clock_s() - again_s < limit_s + 2);
    sbp_plan_free(&plan);
}

/* A closer look raises bounds, and what no strategy of any candidate needs less than: no plan
 * within a byte less is looked for, as none can be. The sum of the model alone is far from that. */
static void test_ruled_out(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranking ranking;
    struct sbp_ranked least;
    struct sbp_outcome outcome;
    struct sbp_optimise_bound sum;
    struct sbp_diag diag = {{0}};
    struct sbp_request request = request_of(0);
    open_plan(GPT(1, ""), LEVELS, &plan);
    if (sbp_optimise_bound(&plan, &request, &sum, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_least_candidate candidate = candidate_of(&plan, 0, sum.least_bytes);
    hunt(&plan, &request, &candidate, 1, &least);
    assert_true(candidate.bound_bytes > 1.05 * sum.least_bytes);
    assert_true(candidate.bound_bytes <= (double)least.device_bytes);
    request.given = ~0u; /* no other candidate */
    request.any_plan = true;
    request.memory_limit_bytes = (int64_t)ceil(candidate.bound_bytes) - 1;
    if (sbp_plan_set_parallel(&plan, &candidate.parallel, &diag) != SBP_OK ||
        sbp_explore_top(&plan, &request, 1, &ranking, &outcome, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(outcome.status, SBP_PLAN_INFEASIBLE);
    assert_true(outcome.evaluations < 100);
    sbp_plan_free(&plan);
}

/* By several threads as by one, whatever they walk in at the same time: micro-batches differ. */
static void test_threads(void **state)
{
    (void)state;
    enum { CANDIDATES = 4 };
    struct sbp_plan plan;
    struct sbp_ranked least[2];
    int64_t evaluations[2];
    struct sbp_request request = request_of(0);
    open_plan(GPT(1, ""), LEVELS, &plan);
    const struct sbp_parallel parallel = plan.parallel;
    for (int t = 0; t < 2; t++) {
        struct sbp_least_candidate candidate[CANDIDATES];
        for (int i = 0; i < CANDIDATES; i++) {
            candidate[i] = (struct sbp_least_candidate){i, parallel, 1};
            candidate[i].parallel.micro_batch = 36 / (i + 1);
            candidate[i].parallel.recompute = i % 2 == 0 ? SBP_RECOMPUTE_FULL : SBP_RECOMPUTE_NONE;
        }
        request.threads = 1 + 3 * t;
        evaluations[t] = hunt(&plan, &request, candidate, CANDIDATES, &least[t]);
    }
    assert_true(least[0].device_bytes > 0);
    assert_int_equal(evaluations[1], evaluations[0]);
    assert_int_equal(least[1].device_bytes, least[0].device_bytes);
    assert_true(least[1].objective_s == least[0].objective_s);
    assert_int_equal(least[1].parallel.micro_batch, least[0].parallel.micro_batch);
    assert_memory_equal(least[1].strategy.op, least[0].strategy.op,
                        (size_t)plan.graph.op_count * sizeof *least[0].strategy.op);
    assert_memory_equal(least[1].strategy.rest, least[0].strategy.rest,
                        (size_t)plan.graph.tensor_count * sizeof *least[0].strategy.rest);
    assert_memory_equal(least[1].strategy.zero, least[0].strategy.zero,
                        (size_t)plan.graph.op_count * sizeof *least[0].strategy.zero);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),    cmocka_unit_test(test_closed),
        cmocka_unit_test(test_walks),   cmocka_unit_test(test_ruled_out),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Walks to leaner plans: what they end at is a plan of the space, as lean as they say, never less
 * lean than where they began, and fixed by the seed. How lean the leanest is, tests/oracle says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/check.h"
#include "planner/lean_walk.h"
#include "space_bench.h"

enum { PROGRAMS = 400 };

#define LEVELS LEVEL("a", 2) ", " LEVEL("b", 4)

/* The cheapest plan of a request, which is rarely lean. */
static void start(struct sbp_plan *plan, const struct sbp_request *request,
                  struct sbp_ranked *leanest)
{
    struct sbp_outcome outcome;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    if (sbp_optimise(plan, request, &outcome, &diag) != SBP_OK ||
        sbp_plan_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    *leanest = (struct sbp_ranked){.parallel = plan->parallel,
                                   .objective_s = outcome.objective_s,
                                   .device_bytes = step.totals.device_bytes};
    sbp_step_free(&step);
    assert_int_equal(sbp_strategy_alloc(&plan->graph, &plan->arena, &leanest->strategy), SBP_OK);
    sbp_strategy_copy(&plan->graph, &plan->strategy, &leanest->strategy);
}

static int64_t walk(const struct sbp_plan *plan, const struct sbp_request *request, uint64_t seed,
                    int64_t programs, struct sbp_ranked *leanest)
{
    struct sbp_diag diag = {{0}};
    int64_t evaluations = 0;
    if (sbp_walk_leaner(plan, request, seed, programs, leanest, &evaluations, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return evaluations;
}

/* Closed and compiled anew the plan is legal, as dear and as lean as it is said to be, and keeps
 * the request's fixes: an independent pass says so. */
static void check_found(struct sbp_plan *plan, const struct sbp_request *request,
                        const struct sbp_ranked *found)
{
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    plan->strategy = found->strategy;
    if (sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) != SBP_OK ||
        sbp_plan_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(step.totals.device_bytes, found->device_bytes);
    assert_true(step.totals.step_s == found->objective_s);
    const struct sbp_claim claim = {.plan = plan, .step = &step, .request = request};
    if (sbp_check_plan(&claim, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_step_free(&step);
}

static struct sbp_request free_request(enum sbp_space_kind space)
{
    return (struct sbp_request){.space = space, .zero_is_free = true};
}

static void test_leaner(void **state)
{
    (void)state;
    struct sbp_plan plan;
    const struct sbp_request request = free_request(SBP_SPACE_FULL);
    struct sbp_ranked first, again, other;
    open_plan(GPT(2, ""), LEVELS, &plan);
    start(&plan, &request, &first);
    start(&plan, &request, &again);
    start(&plan, &request, &other);
    const int64_t before = first.device_bytes;
    assert_in_range(walk(&plan, &request, 1, PROGRAMS, &first), 1, PROGRAMS);
    print_message("from %" PRId64 " to %" PRId64 " bytes\n", before, first.device_bytes);
    assert_true(first.device_bytes < before - before / 10);
    check_found(&plan, &request, &first);
    walk(&plan, &request, 1, PROGRAMS, &again);
    assert_int_equal(again.device_bytes, first.device_bytes);
    assert_memory_equal(again.strategy.op, first.strategy.op,
                        (size_t)plan.graph.op_count * sizeof *first.strategy.op);
    walk(&plan, &request, 2, PROGRAMS, &other);
    assert_memory_not_equal(other.strategy.op, first.strategy.op,
                            (size_t)plan.graph.op_count * sizeof *first.strategy.op);
    /* On from there: never to more. */
    walk(&plan, &request, 3, PROGRAMS, &first);
    assert_true(first.device_bytes <= again.device_bytes);
    check_found(&plan, &request, &first);
    sbp_plan_free(&plan);
}

/* Whether an operator plays a role that leaves partial sums. */
static bool leaves_sums(const struct sbp_plan *plan, const struct sbp_strategy *strategy)
{
    bool any = false;
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_dist output = sbp_strategy_output(&plan->graph, &plan->mesh, strategy, op);
        any |= plan->graph.op[op].output >= 0 &&
               sbp_dist_of_kind(&plan->mesh, &output, SBP_PARTIAL) != 0;
    }
    return any;
}

/* A walk stays in its space: gshard's has no partial sums, those of full have. */
static void test_space(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked found;
    bool any = false;
    open_plan(GPT(1, ""), LEVELS, &plan);
    for (uint64_t seed = 0; seed < 5; seed++) {
        const struct sbp_request gshard = free_request(SBP_SPACE_GSHARD);
        const struct sbp_request full = free_request(SBP_SPACE_FULL);
        start(&plan, &gshard, &found);
        walk(&plan, &gshard, seed, PROGRAMS, &found);
        assert_false(leaves_sums(&plan, &found.strategy));
        check_found(&plan, &gshard, &found);
        walk(&plan, &full, seed, PROGRAMS, &found);
        any |= leaves_sums(&plan, &found.strategy);
    }
    assert_true(any);
    sbp_plan_free(&plan);
}

/* What is fixed stays, whatever that needs. */
static void test_fixes(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked found;
    struct sbp_fix fix = {.layer = "block0.up", .zero = 0};
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    request.fix = &fix;
    request.fix_count = 1;
    for (int role = 0; role < SBP_MAX_ROLES; role++) {
        fix.factor[role][0] = SBP_ANY;
        fix.factor[role][1] = role == 0 ? 4 : 1;
    }
    open_plan(GPT(2, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    const int64_t before = found.device_bytes;
    walk(&plan, &request, 7, PROGRAMS, &found);
    assert_true(found.device_bytes < before);
    check_found(&plan, &request, &found);
    sbp_plan_free(&plan);
}

/* Flag, budget, and a mesh that all layers share end a walk before its first program. */
static void test_ends(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked found;
    volatile sig_atomic_t stop = 1;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(1, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    const int64_t before = found.device_bytes;
    assert_int_equal(walk(&plan, &request, 0, 0, &found), 0);
    request.solver_options.stop = &stop;
    assert_int_equal(walk(&plan, &request, 0, PROGRAMS, &found), 0);
    request = free_request(SBP_SPACE_MEGATRON);
    assert_int_equal(walk(&plan, &request, 0, PROGRAMS, &found), 0);
    assert_int_equal(found.device_bytes, before);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leaner), cmocka_unit_test(test_space),
                                       cmocka_unit_test(test_fixes), cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

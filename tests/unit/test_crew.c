/* Threads that share out turns: each turn is taken once, on a plan that is nobody else's meanwhile,
 * and what a hunt finds does not depend on how many they are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "planner/crew.h"
#include "planner/least.h"
#include "space_bench.h"

#define LEVELS LEVEL("a", 2) ", " LEVEL("b", 4)

enum { TURNS = 200 };

struct tally {
    atomic_int taken[TURNS];
    atomic_int in_use[SBP_MOST_THREADS]; /* (crew's plan) */
    atomic_int clashes, strangers;
    const struct sbp_crew *crew;
};

static int place_of(const struct sbp_crew *crew, const struct sbp_plan *plan)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->plan[i] == plan)
            return i;
    return -1;
}

/* Sizes the plan to a micro-batch of its own and finds it as it left it. */
static void take_turn(void *context, int turn, struct sbp_plan *plan)
{
    struct tally *const tally = context;
    struct sbp_diag diag = {{0}};
    const int place = place_of(tally->crew, plan);
    struct sbp_parallel parallel = plan->parallel;
    atomic_fetch_add(&tally->taken[turn], 1);
    if (place < 0) {
        atomic_fetch_add(&tally->strangers, 1);
        return;
    }
    bool is_clash = atomic_fetch_add(&tally->in_use[place], 1) != 0;
    parallel.micro_batch = 1 + turn % 4; /* divisors of 36 */
    is_clash |= sbp_plan_set_parallel(plan, &parallel, &diag) != SBP_OK;
    (void)sched_yield();
    is_clash |= plan->graph.tensor[plan->graph.op[0].output].shape.size[SBP_DIM_BATCH] !=
                parallel.micro_batch;
    atomic_fetch_sub(&tally->in_use[place], 1);
    atomic_fetch_add(&tally->clashes, is_clash);
}

static void test_turns(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 5, SBP_MOST_THREADS};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        static const int turns[] = {0, 1, 3, TURNS};
        for (size_t k = 0; k < sizeof turns / sizeof *turns; k++) {
            struct sbp_plan plan;
            struct sbp_crew crew;
            struct sbp_arena arena = {0};
            open_plan(GPT(1, ""), LEVELS, &plan);
            assert_int_equal(sbp_crew_init(&crew, &plan, threads[t], &arena), SBP_OK);
            assert_int_equal(crew.count, threads[t]);
            assert_ptr_equal(crew.plan[0], &plan);
            struct tally tally = {.crew = &crew};
            sbp_crew_do(&crew, take_turn, &tally, turns[k]);
            for (int i = 0; i < TURNS; i++)
                assert_int_equal(tally.taken[i], i < turns[k]);
            assert_int_equal(tally.clashes, 0);
            assert_int_equal(tally.strangers, 0);
            sbp_arena_free(&arena);
            sbp_plan_free(&plan);
        }
    }
}

/* As many as there are processors, and not more than there may be. */
static void test_count(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_crew crew;
    struct sbp_arena arena = {0};
    open_plan(GPT(1, ""), LEVELS, &plan);
    assert_int_equal(sbp_crew_init(&crew, &plan, 0, &arena), SBP_OK);
    assert_in_range(crew.count, 1, SBP_MOST_THREADS);
    assert_int_equal(sbp_crew_init(&crew, &plan, 1000, &arena), SBP_OK);
    assert_int_equal(crew.count, SBP_MOST_THREADS);
    sbp_arena_free(&arena);
    sbp_plan_free(&plan);
}

/* Candidates of several micro-batches, so that plans are sized otherwise at the same time. */
static int64_t hunt(int threads, struct sbp_plan *plan, struct sbp_ranked *least)
{
    struct sbp_request request = {.space = SBP_SPACE_FULL,
                                  .zero_is_free = true,
                                  .threads = threads,
                                  .solver_options = {.seed = 7}};
    struct sbp_least_candidate candidate[4];
    struct sbp_diag diag = {{0}};
    int64_t evaluations = 0;
    for (int i = 0; i < 4; i++) {
        candidate[i] = (struct sbp_least_candidate){i, plan->parallel, 1};
        candidate[i].parallel.micro_batch = 36 / (i + 1);
        candidate[i].parallel.recompute = i % 2 ? SBP_RECOMPUTE_FULL : SBP_RECOMPUTE_NONE;
    }
    if (sbp_least_find(plan, &request, candidate, 4, least, &evaluations, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(least->device_bytes > 0);
    return evaluations;
}

static void test_same(void **state)
{
    (void)state;
    struct sbp_plan one, many;
    struct sbp_ranked by_one, by_many;
    open_plan(GPT(1, ""), LEVELS, &one);
    open_plan(GPT(1, ""), LEVELS, &many);
    const int64_t evaluations = hunt(1, &one, &by_one);
    assert_int_equal(hunt(4, &many, &by_many), evaluations);
    assert_int_equal(by_many.device_bytes, by_one.device_bytes);
    assert_true(by_many.objective_s == by_one.objective_s);
    assert_int_equal(by_many.parallel.micro_batch, by_one.parallel.micro_batch);
    assert_memory_equal(by_many.strategy.op, by_one.strategy.op,
                        (size_t)one.graph.op_count * sizeof *by_one.strategy.op);
    assert_memory_equal(by_many.strategy.rest, by_one.strategy.rest,
                        (size_t)one.graph.tensor_count * sizeof *by_one.strategy.rest);
    sbp_plan_free(&one);
    sbp_plan_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

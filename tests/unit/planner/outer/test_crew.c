/* Threads that share out turns: each turn is taken once, on a plan that is nobody else's meanwhile,
 * whose shapes are its own, and walks at the same time come to what they come to alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>

#include "planner/crew.h"
#include "planner/lean_walk.h"
#include "planner/inner/cut_solve.h"
#include "tests/support/space_bench.h"

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
    const struct sbp_shape *shape = &plan->graph.tensor[plan->graph.op[0].output].shape;
    is_clash |=
        shape->size[SBP_DIM_BATCH] != parallel.micro_batch ||
        plan->graph.dim_class[shape->dim_class[SBP_DIM_BATCH]].size != parallel.micro_batch ||
        plan->graph.micro_batch != parallel.micro_batch;
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
            for (int i = 1; i < crew.count; i++) {
                assert_ptr_not_equal(crew.plan[i]->graph.tensor, plan.graph.tensor);
                assert_ptr_not_equal(crew.plan[i]->graph.dim_class, plan.graph.dim_class);
            }
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

enum { WALKS = 8, PROGRAMS = 60 };

struct walks {
    struct sbp_request request;
    struct sbp_ranked found[WALKS];
    enum sbp_status status[WALKS];
};

static void walk(void *context, int turn, struct sbp_plan *plan)
{
    struct walks *const walks = context;
    struct sbp_diag diag = {{0}};
    int64_t evaluations = 0;
    walks->status[turn] = sbp_plan_set_parallel(plan, &walks->found[turn].parallel, &diag);
    if (walks->status[turn] == SBP_OK)
        walks->status[turn] =
            sbp_walk_leaner(plan, &walks->request, (uint64_t)turn, SBP_HOT, PROGRAMS, NULL,
                            &walks->found[turn], &evaluations, &diag);
}

/* Where each walk begins: what needs least by the model, in micro-batches that differ. */
static void begin(struct sbp_plan *plan, const struct sbp_parallel *plain, struct walks *walks)
{
    struct sbp_request request = walks->request;
    request.leanest = request.puts_memory_off = true;
    request.memory_limit_bytes = INT64_MAX;
    for (int i = 0; i < WALKS; i++) {
        struct sbp_outcome outcome;
        struct sbp_step step;
        struct sbp_diag diag = {{0}};
        struct sbp_parallel parallel = *plain;
        parallel.micro_batch = 36 / (1 + i % 4);
        if (sbp_plan_set_parallel(plan, &parallel, &diag) != SBP_OK ||
            sbp_optimise(plan, &request, &outcome, &diag) != SBP_OK ||
            sbp_plan_brief_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        struct sbp_ranked *const found = &walks->found[i];
        *found =
            (struct sbp_ranked){.parallel = parallel, .device_bytes = step.totals.device_bytes};
        sbp_step_free(&step);
        assert_int_equal(sbp_strategy_alloc(&plan->graph, &plan->arena, &found->strategy), SBP_OK);
        sbp_strategy_copy(&plan->graph, &plan->strategy, &found->strategy);
    }
}

static void test_walks(void **state)
{
    (void)state;
    struct sbp_plan plan;
    atomic_int stop = 0;
    const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                        .zero_is_free = true,
                                        .deadline_s = 1e300,
                                        .solver_options = {.stop = &stop}};
    struct walks alone = {.request = request}, together = {.request = request};
    struct sbp_arena arena = {0};
    open_plan(GPT(1, ""), LEVELS, &plan);
    const struct sbp_parallel plain = plan.parallel;
    int leaner = 0;
    begin(&plan, &plain, &alone);
    begin(&plan, &plain, &together);
    for (int several = 0; several < 2; several++) {
        struct sbp_crew crew;
        assert_int_equal(sbp_crew_init(&crew, &plan, several ? 4 : 1, &arena), SBP_OK);
        sbp_crew_do(&crew, walk, several ? &together : &alone, WALKS);
    }
    for (int i = 0; i < WALKS; i++) {
        assert_int_equal(together.status[i], SBP_OK);
        assert_int_equal(together.found[i].device_bytes, alone.found[i].device_bytes);
        assert_memory_equal(together.found[i].strategy.op, alone.found[i].strategy.op,
                            (size_t)plan.graph.op_count * sizeof *alone.found[i].strategy.op);
        leaner += alone.found[i].objective_s > 0;
    }
    assert_true(leaner > 0); /* walks went somewhere */
    sbp_arena_free(&arena);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

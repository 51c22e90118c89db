/* Labels that are legal, whatever they cost, against all that a space has: on levels of one axis
 * each a choice has one labelling, and all choices can be tried. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/labels/label_any.h"
#include "planner/labels/label_walk.h"
#include "tests/support/space_bench.h"

enum { MODELS = 150, MOST_CHOICES = 200000 };

/* The last layer reads the first one, and both branches are added: partial sums of both may go on
 * there, of one they may not. */
#define BRANCHES ", \"inputs\": [\"a\"]}, {\"op\": \"add\", \"inputs\": [\"b\", \"c\"]"

static bool is_legal(const struct sbp_plan *plan, const struct sbp_space *space,
                     const struct sbp_label_walk *walk, struct sbp_strategy *strategy)
{
    struct sbp_diag diag = {{0}};
    const int *choice = walk->now.choice;
    for (int i = 0; i < space->transfer_count; i++)
        if (sbp_space_transfer_s(space, &space->transfer[i], choice[space->transfer[i].from],
                                 choice[space->transfer[i].to]) >= SBP_FORBIDDEN)
            return false;
    sbp_label_write(space, choice, walk->now.role, strategy);
    return sbp_strategy_close(&plan->graph, &plan->mesh, strategy, &diag) == SBP_OK;
}

static bool next_choice(const struct sbp_space *space, int *choice)
{
    for (int v = 0; v < space->variable_count; v++) {
        if (++choice[v] < space->variable[v].choice_count)
            return true;
        choice[v] = 0;
    }
    return false;
}

/* Whether any of a space's choices is legal; -1: there are too many of them. *first: whether that
 * is so of the choices that cost least by themselves. */
static int try_all(const struct sbp_plan *plan, const struct sbp_space *space,
                   struct sbp_arena *arena, bool *first)
{
    struct sbp_label_walk walk;
    struct sbp_strategy strategy;
    double choices = 1;
    int *choice = SBP_NEW(arena, int, space->variable_count + 1);
    assert_non_null(choice);
    assert_int_equal(sbp_label_walk_init(&walk, space, 0, arena), SBP_OK);
    assert_int_equal(sbp_strategy_alloc(&plan->graph, arena, &strategy), SBP_OK);
    for (int v = 0; v < space->variable_count; v++) {
        choices *= space->variable[v].choice_count;
        for (int c = 1; c < space->variable[v].choice_count; c++)
            if (sbp_space_unary_s(space, v, c) < sbp_space_unary_s(space, v, choice[v]))
                choice[v] = c;
    }
    sbp_label_walk_in_order(&walk, choice);
    *first = is_legal(plan, space, &walk, &strategy);
    if (choices > MOST_CHOICES)
        return -1;
    memset(choice, 0, (size_t)space->variable_count * sizeof *choice);
    do {
        sbp_label_walk_in_order(&walk, choice);
        if (is_legal(plan, space, &walk, &strategy))
            return 1;
    } while (next_choice(space, choice));
    return 0;
}

struct tally {
    int some, sought, many;
};

/* The strategy is closed, and one of the space's. */
static void check_found(const struct sbp_plan *plan, const struct sbp_space *space, uint64_t seed,
                        struct sbp_arena *arena, struct sbp_strategy *strategy)
{
    struct sbp_label_walk walk;
    struct sbp_diag diag = {{0}};
    if (sbp_strategy_close(&plan->graph, &plan->mesh, strategy, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    assert_int_equal(sbp_label_walk_init(&walk, space, 0, arena), SBP_OK);
    if (!sbp_label_walk_at(&walk, strategy) || !is_legal(plan, space, &walk, strategy))
        fail_msg("seed %" PRIu64 ": the labels are none of the space's", seed);
}

static void check_space(const struct sbp_plan *plan, const struct sbp_space *space, uint64_t seed,
                        struct tally *tally)
{
    struct sbp_strategy strategy;
    struct sbp_arena arena;
    bool first, found, again;
    sbp_arena_init(&arena);
    assert_int_equal(sbp_strategy_alloc(&plan->graph, &arena, &strategy), SBP_OK);
    const int exists = try_all(plan, space, &arena, &first);
    assert_int_equal(sbp_label_any(space, seed, &strategy, &found), SBP_OK);
    if (exists >= 0 && found != exists)
        fail_msg("seed %" PRIu64 ": %s, and there %s", seed, found ? "found" : "none found",
                 exists ? "are some" : "are none");
    if (found)
        check_found(plan, space, seed, &arena, &strategy);
    const struct sbp_labels labels = strategy.op[0];
    assert_int_equal(sbp_label_any(space, seed, &strategy, &again), SBP_OK);
    assert_int_equal(again, found);
    assert_memory_equal(&strategy.op[0], &labels, sizeof labels);
    tally->some += exists == 1;
    tally->sought += exists == 1 && !first;
    tally->many += exists < 0;
    sbp_arena_free(&arena);
}

static void check_model(uint64_t seed, struct tally *tally)
{
    static const int64_t size[] = {1, 2, 3, 4, 6, 8, 9, 12};
    char model[400];
    int64_t drawn[5];
    struct sbp_random random;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_diag diag = {{0}};
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    sbp_random_seed(&random, seed);
    const bool branches = sbp_random_below(&random, 3) == 0;
    for (int i = 0; i < 5; i++)
        drawn[i] = size[sbp_random_below(&random, sizeof size / sizeof *size)];
    (void)snprintf(model, sizeof model,
                   "{\"name\": \"m\", \"global_batch\": %" PRId64
                   ", \"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"in\": %" PRId64
                   ", \"out\": %" PRId64 "}, {\"op\": \"linear\", \"name\": \"b\", \"out\": "
                   "%" PRId64 "}, {\"op\": \"linear\", \"name\": \"c\", \"out\": %" PRId64 "%s}]}",
                   drawn[0], drawn[1], drawn[2], drawn[3], drawn[branches ? 3 : 4],
                   branches ? BRANCHES : "");
    open_plan(model, LEVEL("a", 2) ", " LEVEL("b", 3), &plan);
    if (sbp_space_make(&plan, &request, NULL, NULL, &space, &diag) == SBP_OK) {
        check_space(&plan, &space, seed, tally);
        sbp_space_free(&space);
    }
    sbp_plan_free(&plan);
}

static void test_all_choices(void **state)
{
    (void)state;
    const uint64_t seed = 51;
    struct tally tally = {0};
    for (uint64_t i = 0; i < MODELS; i++)
        check_model(seed + i * 1000003, &tally);
    print_message("seed %" PRIu64 ": %d models with legal labels, not the cheapest of %d, %d not "
                  "tried whole\n",
                  seed, tally.some, tally.sought, tally.many);
    assert_true(tally.sought > 20);
}

/* A space that leaves one ZeRO level of each tuple: steps between tuples go on at another one. */
static void test_one_level(void **state)
{
    (void)state;
    static const char *const model =
        "{\"name\": \"m\", \"architecture\": \"face\", \"depth\": 34, \"classes\": 8192, "
        "\"embedding\": 512, \"global_batch\": 32, \"precision\": \"mixed\"}";
    enum { SEEDS = 20 };
    const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                        .leanest = true,
                                        .puts_memory_off = true,
                                        .zero_is_free = true,
                                        .memory_limit_bytes = INT64_MAX};
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_strategy strategy;
    struct sbp_diag diag = {{0}};
    int count = 0;
    open_plan(model, LEVEL("a", 2) ", " LEVEL("b", 16), &plan);
    struct sbp_parallel parallel = plan.parallel;
    parallel.micro_batch = 1;
    if (sbp_plan_set_parallel(&plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    make_space(&plan, &request, &space);
    assert_int_equal(sbp_strategy_alloc(&plan.graph, &space.arena, &strategy), SBP_OK);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bool found;
        assert_int_equal(sbp_label_any(&space, seed, &strategy, &found), SBP_OK);
        if (found)
            check_found(&plan, &space, seed, &space.arena, &strategy);
        count += found;
    }
    print_message("found with %d of %d seeds\n", count, SEEDS);
    assert_true(count > SEEDS / 2);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_choices),
                                       cmocka_unit_test(test_one_level)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

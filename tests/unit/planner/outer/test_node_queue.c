/* The queue of a best-first search beside a sorted list, pushed to and popped from at random. */
#include <math.h>
#include <stdbool.h>

#include "base/math/random.h"
#include "planner/outer/node_queue.h"
#include "tests/support/unit.h"

enum { TURNS = 20000, MOST = 400 };

static bool comes_first(const struct sbp_queued *a, const struct sbp_queued *b)
{
    if (a->bound_s < b->bound_s || a->bound_s > b->bound_s)
        return a->bound_s < b->bound_s;
    return a->knowledge > b->knowledge || (a->knowledge == b->knowledge && a->node < b->node);
}

static struct sbp_queued take_first(struct sbp_queued *list, int *count)
{
    int first = 0;
    for (int i = 1; i < *count; i++)
        first = comes_first(&list[i], &list[first]) ? i : first;
    const struct sbp_queued taken = list[first];
    list[first] = list[--*count];
    return taken;
}

/* Few different bounds, so that many are equal; some are infinite. */
static struct sbp_queued draw(struct sbp_random *random, int node)
{
    const int bound = (int)sbp_random_below(random, 12);
    return (struct sbp_queued){.bound_s = bound == 0 ? INFINITY : (double)bound,
                               .knowledge = (int)sbp_random_below(random, 4),
                               .node = node};
}

static void check_pop(struct sbp_queue *queue, struct sbp_queued *list, int *count)
{
    const struct sbp_queued wanted = take_first(list, count), got = sbp_queue_pop(queue);
    assert_int_equal(got.node, wanted.node);
    assert_int_equal(got.knowledge, wanted.knowledge);
    assert_true(got.bound_s == wanted.bound_s);
}

static void test_order(void **state)
{
    (void)state;
    struct sbp_arena arena;
    struct sbp_random random;
    struct sbp_queue queue = {.arena = &arena};
    struct sbp_queued list[MOST];
    int count = 0, most = 0;
    sbp_arena_init(&arena);
    sbp_random_seed(&random, 1);
    for (int turn = 0; turn < TURNS; turn++) {
        if (count < MOST && (count == 0 || sbp_random_below(&random, 100) < 51)) {
            list[count] = draw(&random, turn);
            assert_int_equal(sbp_queue_push(&queue, list[count++]), SBP_OK);
        } else {
            check_pop(&queue, list, &count);
        }
        assert_int_equal(queue.count, count);
        most = count > most ? count : most;
    }
    assert_true(most > 200);
    while (count > 0)
        check_pop(&queue, list, &count);
    assert_int_equal(queue.count, 0);
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

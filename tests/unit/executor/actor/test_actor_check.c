/* The checker of actors: what it refuses, how it names a circle, and random graphs, half of which
 * cannot come to their end, against all acts and what they wait for written out, and against a play
 * of the runtime's own state machine. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/math/random.h"
#include "executor/actor/actor_check.h"
#include "tests/support/actor_clock.h"
#include "tests/support/actor_draw.h"
#include "tests/support/unit.h"

enum { ROUNDS = 4000 };

/* ---- what is refused ----------------------------------------------------------------------- */

static struct sbp_arena arena;
static struct sbp_actor_graph graph;

static int open_graph(void **state)
{
    (void)state;
    sbp_actor_graph_init(&graph, &arena, 2);
    return 0;
}

static int close_graph(void **state)
{
    (void)state;
    sbp_arena_free(&arena);
    return 0;
}

static void expect_refused(const char *text)
{
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_actor_check(&graph, &diag), SBP_E_INPUT);
    assert_string_equal(diag.text, text);
    assert_false(graph.checked);
}

static void expect_accepted(void)
{
    struct sbp_diag diag = {{0}};
    if (sbp_actor_check(&graph, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(graph.checked);
}

static void refuses_numbers(void **state)
{
    (void)state;
    const int a = sbp_actor_add(&graph, "a", 0, SBP_LANE_COMPUTE, 4);
    const int b = sbp_actor_add(&graph, "b", 0, SBP_LANE_COMPUTE, 2);
    const int made = sbp_actor_add_register(&graph, a, 2, 8);
    const int read = sbp_actor_add_read(&graph, b, made, 2);
    expect_accepted();
    graph.actor[a].rank = 2;
    expect_refused("actors: a: rank 2, legal are 0 to 1");
    graph.actor[a].rank = 0;
    graph.actor[b].acts = -1;
    expect_refused("actors: b: -1 acts, legal are 0 and more");
    graph.actor[b].acts = 2;
    graph.read[read].takes = 1;
    expect_refused("actors: b takes 1 at a time of a in 2 acts: must be its 4 acts");
    graph.read[read].takes = 2;
    graph.reg[made].quota = 0;
    expect_refused("actors: a: a register of 0 slots of 8 bytes, legal are 1 and more slots");
    graph.reg[made].quota = 2;
    expect_accepted();
}

static void refuses_reads_across_ranks(void **state)
{
    (void)state;
    const int a = sbp_actor_add(&graph, "a", 0, SBP_LANE_COMPUTE, 4);
    const int b = sbp_actor_add(&graph, "b", 1, SBP_LANE_COMPUTE, 4);
    const int made = sbp_actor_add_register(&graph, a, 1, 8);
    const int pulled = sbp_actor_add_pull(&graph, made, 1, 1);
    (void)sbp_actor_add_read(&graph, b, pulled, 1);
    expect_accepted();
    (void)sbp_actor_add_read(&graph, b, made, 1);
    expect_refused("actors: b of rank 1 reads a of rank 0: pulls alone read of other ranks, and of "
                   "these alone");
}

static void refuses_orders(void **state)
{
    (void)state;
    static const int short_order[] = {0, 1, 0};
    static const int order[] = {0, 1, 1, 0};
    (void)sbp_actor_add(&graph, "a", 0, SBP_LANE_COLLECTIVE, 2);
    (void)sbp_actor_add(&graph, "b", 0, SBP_LANE_COLLECTIVE, 2);
    expect_refused("actors: a: lane collective of rank 0 needs an order, for its actors meet "
                   "others");
    sbp_actor_set_order(&graph, 0, SBP_LANE_COLLECTIVE, short_order, 3);
    expect_refused("actors: order of lane collective of rank 0: has b 1 times, must be its 2 acts");
    sbp_actor_set_order(&graph, 0, SBP_LANE_COLLECTIVE, order, 4);
    expect_accepted();
    sbp_actor_set_order(&graph, 1, SBP_LANE_COLLECTIVE, order, 4);
    expect_refused("actors: order of lane collective of rank 1: entry 0 is no actor of it");
}

/* ---- circles ------------------------------------------------------------------------------- */

/* Two ranks that meet in two collectives, in orders that differ. */
static void names_orders_that_differ(void **state)
{
    (void)state;
    static const int one[] = {0, 1}, other[] = {3, 2};
    for (int rank = 0; rank < 2; rank++) {
        const int x = sbp_actor_add(&graph, "x", rank, SBP_LANE_COLLECTIVE, 1);
        const int y = sbp_actor_add(&graph, "y", rank, SBP_LANE_COLLECTIVE, 1);
        sbp_actor_set_meeting(&graph, x, 0);
        sbp_actor_set_meeting(&graph, y, 1);
    }
    sbp_actor_set_order(&graph, 0, SBP_LANE_COLLECTIVE, one, 2);
    sbp_actor_set_order(&graph, 1, SBP_LANE_COLLECTIVE, other, 2);
    expect_refused("actors wait for each other: x (rank 0, collective, act 0) meets x (rank 1, "
                   "collective, act 0), which stands in its lane behind y (rank 1, collective, "
                   "act 0), which meets y (rank 0, collective, act 0), which stands in its lane "
                   "behind x (rank 0, collective, act 0)");
    sbp_actor_set_order(&graph, 1, SBP_LANE_COLLECTIVE, (const int[]){2, 3}, 2);
    expect_accepted();
}

/* A list that runs ahead by more micro-batches than there are slots. */
static void names_a_list_that_wants_more_slots(void **state)
{
    (void)state;
    static const int ahead[] = {0, 0, 0, 1, 1, 1};
    const int forward = sbp_actor_add(&graph, "forward", 0, SBP_LANE_COMPUTE, 3);
    const int backward = sbp_actor_add(&graph, "backward", 0, SBP_LANE_COMPUTE, 3);
    const int kept = sbp_actor_add_register(&graph, forward, 2, 8);
    (void)sbp_actor_add_read(&graph, backward, kept, 1);
    expect_accepted();
    sbp_actor_set_order(&graph, 0, SBP_LANE_COMPUTE, ahead, 6);
    expect_refused("actors wait for each other: forward (rank 0, compute, act 2) waits for a slot "
                   "to be freed by backward (rank 0, compute, act 0), which stands in its lane "
                   "behind forward (rank 0, compute, act 2)");
    graph.reg[kept].quota = 3;
    expect_accepted();
}

static void names_sums_of_more_than_there_are_slots(void **state)
{
    (void)state;
    const int part = sbp_actor_add(&graph, "part", 0, SBP_LANE_COMPUTE, 6);
    const int sum = sbp_actor_add(&graph, "sum", 0, SBP_LANE_COMPUTE, 2);
    const int parts = sbp_actor_add_register(&graph, part, 2, 8);
    (void)sbp_actor_add_read(&graph, sum, parts, 3);
    expect_refused("actors wait for each other: part (rank 0, compute, act 2) waits for a slot to "
                   "be freed by sum (rank 0, compute, act 0), which waits for what is made by part "
                   "(rank 0, compute, act 2)");
}

static void refuses_meetings_on_one_rank(void **state)
{
    (void)state;
    static const int one[] = {0}, other[] = {1};
    const int a = sbp_actor_add(&graph, "a", 0, SBP_LANE_COMPUTE, 1);
    const int b = sbp_actor_add(&graph, "b", 0, SBP_LANE_COPY_IN, 1);
    sbp_actor_set_meeting(&graph, a, 0);
    sbp_actor_set_meeting(&graph, b, 0);
    sbp_actor_set_order(&graph, 0, SBP_LANE_COMPUTE, one, 1);
    sbp_actor_set_order(&graph, 0, SBP_LANE_COPY_IN, other, 1);
    expect_refused("actors: b of rank 0 meets another one of that rank, must be of different "
                   "ranks");
}

/* ---- random graphs ------------------------------------------------------------------------- */

/* Every act, and whether it waits for another one. Acts that meet are one node: the first's. */
struct written_out {
    int first[ACTOR_DRAW_MOST + 1]; /* node of an actor's first act */
    bool *waits;                    /* (nodes, nodes) */
    int nodes;
    int *mark; /* (nodes) 0: not seen, 1: on the way, 2: done */
};

static int node_of(const struct written_out *all, int actor, int64_t act)
{
    int first = actor;
    for (int a = actor - 1; a >= 0; a--)
        if (graph.actor[actor].meeting >= 0 && graph.actor[a].meeting == graph.actor[actor].meeting)
            first = a;
    return all->first[first] + (int)act;
}

static void add_wait(struct written_out *all, int actor, int64_t act, int other, int64_t of)
{
    all->waits[node_of(all, actor, act) * all->nodes + node_of(all, other, of)] = true;
}

static void add_data_and_credits(struct written_out *all, int read)
{
    const struct sbp_actor_read *r = &graph.read[read];
    const struct sbp_actor_register *reg = &graph.reg[r->from];
    const int producer = reg->producer, consumer = r->consumer;
    for (int64_t made = 0; made < graph.actor[producer].acts; made++) {
        add_wait(all, consumer, made / r->takes, producer, made);
        if (made >= reg->quota)
            add_wait(all, producer, made, consumer, (made - reg->quota) / r->takes);
    }
}

static void add_order(struct written_out *all, const struct sbp_actor_order *order)
{
    int64_t act[ACTOR_DRAW_MOST] = {0};
    for (int64_t i = 0; order->actor != NULL && i < order->count; i++) {
        const int now = order->actor[i];
        if (i > 0)
            add_wait(all, now, act[now], order->actor[i - 1], act[order->actor[i - 1]] - 1);
        act[now]++;
    }
}

static bool has_circle_from(struct written_out *all, int node)
{
    if (all->mark[node] != 0)
        return all->mark[node] == 1;
    all->mark[node] = 1;
    for (int other = 0; other < all->nodes; other++)
        if (all->waits[node * all->nodes + other] && has_circle_from(all, other))
            return true;
    all->mark[node] = 2;
    return false;
}

static bool has_circle(void)
{
    struct written_out all = {.nodes = 0};
    for (int a = 0; a < graph.actors; a++) {
        all.first[a] = all.nodes;
        all.nodes += (int)graph.actor[a].acts;
    }
    all.waits = SBP_NEW(&arena, bool, all.nodes *all.nodes);
    all.mark = SBP_NEW(&arena, int, all.nodes);
    for (int r = 0; r < graph.reads; r++)
        add_data_and_credits(&all, r);
    for (int rank = 0; rank < graph.ranks; rank++)
        for (int lane = 0; lane < SBP_LANES; lane++)
            add_order(&all, sbp_actor_order(&graph, rank, (enum sbp_actor_lane)lane));
    bool found = false;
    for (int node = 0; node < all.nodes && !found; node++)
        found = has_circle_from(&all, node);
    return found;
}

static bool plays_to_its_end(struct sbp_random *random)
{
    double length_s[ACTOR_DRAW_MOST];
    for (int a = 0; a < graph.actors; a++)
        length_s[a] = 0.1 + sbp_random_unit(random);
    return !actor_clock_play(&graph, length_s, &arena).stuck;
}

static void agrees_with_all_acts_written_out(void **state)
{
    (void)state;
    const char *text = getenv("SBP_TEST_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20261127);
    struct sbp_random random;
    int circles = 0;
    print_message("seed %" PRIu64 "\n", seed);
    sbp_random_seed(&random, seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct sbp_diag diag = {{0}};
        actor_draw(&random, 1 + (int)sbp_random_below(&random, 3), true, &arena, &graph);
        const enum sbp_status status = sbp_actor_check(&graph, &diag);
        const bool circle = has_circle();
        if (status != (circle ? SBP_E_INPUT : SBP_OK) || plays_to_its_end(&random) == circle)
            fail_msg("round %d: the checker says \"%s\", there is %s circle", round, diag.text,
                     circle ? "a" : "no");
        if (circle)
            assert_memory_equal(diag.text, "actors wait for each other: ", 28);
        circles += circle;
        sbp_arena_free(&arena);
    }
    print_message("%d of %d graphs have a circle\n", circles, ROUNDS);
    assert_in_range(circles, ROUNDS / 5, ROUNDS - ROUNDS / 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refuses_numbers, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(refuses_reads_across_ranks, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(refuses_orders, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(names_orders_that_differ, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(names_a_list_that_wants_more_slots, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(names_sums_of_more_than_there_are_slots, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(refuses_meetings_on_one_rank, open_graph, close_graph),
        cmocka_unit_test(agrees_with_all_acts_written_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

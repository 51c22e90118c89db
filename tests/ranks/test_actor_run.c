/* Actors on threads: random graphs, in which every content says who made it, over `threads` and,
 * with the argument `mpi`, over the ranks of a launcher; content that is not copied within a rank;
 * 64 ranks in a ring; acts that fail. */
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "executor/actor/actor_check.h"
#include "executor/actor/actor_run.h"
#include "tests/support/actor_draw.h"
#include "tests/support/unit.h"

enum { FIRST_TAG = 10 };

/* ---- random graphs -------------------------------------------------------------------------- */

/* A graph under way on one rank. */
struct drawn {
    const struct sbp_actor_graph *graph;
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    int group[ACTOR_DRAW_MOST];         /* of each meeting that the rank comes to */
    atomic_llong done[ACTOR_DRAW_MOST]; /* acts of each actor */
    atomic_llong at[SBP_LANES];         /* acts of each lane */
};

/* What an act writes: who it is, and which act. Pulls pass on what they get. */
static int32_t content_of(int actor, int64_t act)
{
    return (int32_t)(actor * 4096 + act);
}

static int origin_of(const struct sbp_actor_graph *graph, int reg)
{
    const int producer = graph->reg[reg].producer;
    return graph->actor[producer].lane == SBP_LANE_NETWORK
               ? origin_of(graph, graph->read[graph->actor[producer].first_read].from)
               : producer;
}

/* All inputs are the next ones of their makers. */
static enum sbp_status check_inputs(const struct drawn *drawn, const struct sbp_act *act,
                                    struct sbp_diag *diag)
{
    const struct sbp_actor_graph *graph = drawn->graph;
    const struct sbp_actor_slot *in = act->in;
    for (int r = graph->actor[act->actor].first_read; r >= 0; r = graph->read[r].next_of_consumer)
        for (int k = 0; k < graph->read[r].takes; k++, in++) {
            const int32_t expected = content_of(origin_of(graph, graph->read[r].from),
                                                act->number * graph->read[r].takes + k);
            int32_t got;
            memcpy(&got, in->memory, sizeof got);
            if (got != expected)
                return sbp_fail(diag, SBP_E_INTERNAL, "actor %d act %lld reads %d, expected %d",
                                act->actor, (long long)act->number, got, expected);
        }
    return SBP_OK;
}

static void write_outputs(const struct drawn *drawn, const struct sbp_act *act)
{
    const struct sbp_actor_graph *graph = drawn->graph;
    const struct sbp_actor_slot *out = act->out;
    const int32_t content = content_of(act->actor, act->number);
    for (int g = graph->actor[act->actor].first_register; g >= 0; g = graph->reg[g].next)
        memcpy((out++)->memory, &content, sizeof content);
}

/* Those who meet add up their numbers of acts. */
static enum sbp_status meet(struct drawn *drawn, const struct sbp_act *act, struct sbp_diag *diag)
{
    const int meeting = drawn->graph->actor[act->actor].meeting;
    float sum = (float)act->number;
    if (meeting < 0)
        return SBP_OK;
    const enum sbp_status status =
        drawn->ops->all_reduce(drawn->comm, drawn->group[meeting], &sum, 1, SBP_F32, SBP_SUM);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", drawn->ops->reason(drawn->comm));
    return sum == 2 * (float)act->number
               ? SBP_OK
               : sbp_fail(diag, SBP_E_INTERNAL, "act %lld meets another", (long long)act->number);
}

static enum sbp_status check_order(struct drawn *drawn, const struct sbp_act *act,
                                   struct sbp_diag *diag)
{
    const struct sbp_actor *actor = &drawn->graph->actor[act->actor];
    const struct sbp_actor_order *order = sbp_actor_order(drawn->graph, actor->rank, actor->lane);
    const int64_t at = atomic_fetch_add(&drawn->at[actor->lane], 1);
    if (atomic_fetch_add(&drawn->done[act->actor], 1) != act->number ||
        (order->actor != NULL && order->actor[at] != act->actor))
        return sbp_fail(diag, SBP_E_INTERNAL, "actor %d acts out of its order", act->actor);
    return SBP_OK;
}

static enum sbp_status act_checked(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    struct drawn *drawn = context;
    SBP_TRY(check_order(drawn, act, diag));
    SBP_TRY(check_inputs(drawn, act, diag));
    write_outputs(drawn, act);
    if (sbp_random_bits_at(1, (uint64_t)act->actor, (uint64_t)act->number) % 4 == 0)
        (void)sched_yield();
    SBP_TRY(meet(drawn, act, diag));
    return check_inputs(drawn, act, diag); /* nobody wrote them meanwhile */
}

/* The groups of the meetings that this rank comes to. */
static enum sbp_status open_groups(struct drawn *drawn, int rank)
{
    const struct sbp_actor_graph *graph = drawn->graph;
    for (int a = 0; a < graph->actors; a++)
        for (int b = a + 1; b < graph->actors; b++) {
            const int meeting = graph->actor[a].meeting;
            const int ranks[] = {graph->actor[a].rank, graph->actor[b].rank};
            if (meeting >= 0 && graph->actor[b].meeting == meeting &&
                (ranks[0] == rank || ranks[1] == rank))
                SBP_TRY(drawn->ops->group(drawn->comm, ranks, 2, meeting, &drawn->group[meeting]));
        }
    return SBP_OK;
}

static enum sbp_status run_drawn(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 const struct sbp_actor_graph *graph, struct sbp_diag *diag)
{
    struct drawn drawn = {.graph = graph, .ops = ops, .comm = comm};
    const struct sbp_actor_job job = {.graph = graph,
                                      .endpoint = {ops, comm},
                                      .first_tag = FIRST_TAG,
                                      .memory = &sbp_device_host_memory,
                                      .action = act_checked,
                                      .context = &drawn};
    SBP_TRY(open_groups(&drawn, ops->rank(comm)));
    SBP_TRY(sbp_actor_run(&job, diag));
    for (int a = 0; a < graph->actors; a++)
        if (graph->actor[a].rank == ops->rank(comm) && graph->actor[a].lane != SBP_LANE_NETWORK &&
            atomic_load(&drawn.done[a]) != graph->actor[a].acts)
            return sbp_fail(diag, SBP_E_INTERNAL, "actor %d did not do all its acts", a);
    return SBP_OK;
}

struct rounds {
    uint64_t seed;
    int count;
};

/* Every rank draws the same graphs; those without a circle are run. */
static enum sbp_status run_rounds(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    const struct rounds *rounds = argument;
    struct sbp_random random;
    enum sbp_status status = SBP_OK;
    sbp_random_seed(&random, rounds->seed);
    for (int round = 0; round < rounds->count && status == SBP_OK; round++) {
        struct sbp_arena arena = {0};
        struct sbp_actor_graph graph;
        struct sbp_diag circle = {{0}};
        actor_draw(&random, ops->size(comm), false, &arena, &graph);
        if (sbp_actor_check(&graph, &circle) == SBP_OK)
            status = run_drawn(ops, comm, &graph, diag);
        sbp_arena_free(&arena);
        if (status == SBP_OK && ops->barrier(comm) != SBP_OK)
            return SBP_E_PEER;
    }
    return status;
}

static uint64_t test_seed(void)
{
    const char *text = getenv("SBP_TEST_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20261127);
    fprintf(stderr, "seed %" PRIu64 "\n", seed);
    return seed;
}

static void runs_random_graphs(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct rounds rounds = {seed + (uint64_t)ranks, 100};
        struct sbp_diag diag = {{0}};
        if (sbp_threads_run(ranks, run_rounds, &rounds, &diag) != SBP_OK)
            fail_msg("%d ranks: %s", ranks, diag.text);
    }
}

/* ---- a ring of many ranks ------------------------------------------------------------------- */

/* Rank 0 makes numbers, which every rank passes on with one added; each rank keeps what it made,
 * and all ranks sum a number a piece. */
enum { RING_RANKS = 64, RING_PIECES = 50, RING_SLOTS = 2 };

struct ring {
    struct sbp_arena arena;
    struct sbp_actor_graph graph;
    int order[RING_RANKS][RING_PIECES];
};

struct ring_rank {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    const struct sbp_actor_graph *graph;
    int rank, everybody;
};

static void draw_ring(struct ring *ring)
{
    struct sbp_actor_graph *graph = &ring->graph;
    int made = -1;
    sbp_actor_graph_init(graph, &ring->arena, RING_RANKS);
    for (int rank = 0; rank < RING_RANKS; rank++) {
        const int pulled = rank > 0 ? sbp_actor_add_pull(graph, made, rank, RING_SLOTS) : -1;
        const int add = sbp_actor_add(graph, "add", rank, SBP_LANE_COMPUTE, RING_PIECES);
        const int sum = sbp_actor_add(graph, "sum", rank, SBP_LANE_COLLECTIVE, RING_PIECES);
        if (rank > 0)
            (void)sbp_actor_add_read(graph, add, pulled, 1);
        made = sbp_actor_add_register(graph, add, RING_SLOTS, sizeof(double));
        (void)sbp_actor_add_read(graph, sum, made, 1);
        sbp_actor_set_meeting(graph, sum, 0);
        for (int piece = 0; piece < RING_PIECES; piece++)
            ring->order[rank][piece] = sum;
        sbp_actor_set_order(graph, rank, SBP_LANE_COLLECTIVE, ring->order[rank], RING_PIECES);
    }
}

static void add_one(const struct ring_rank *own, const struct sbp_act *act)
{
    double value = 1000.0 * (double)act->number;
    if (own->rank > 0)
        memcpy(&value, act->in[0].memory, sizeof value);
    value += 1;
    memcpy(act->out[0].memory, &value, sizeof value);
}

static enum sbp_status sum_all(const struct ring_rank *own, const struct sbp_act *act,
                               struct sbp_diag *diag)
{
    const double first = 1000.0 * (double)act->number;
    double value, sum;
    memcpy(&value, act->in[0].memory, sizeof value);
    sum = value;
    const enum sbp_status status =
        own->ops->all_reduce(own->comm, own->everybody, &sum, 1, SBP_F64, SBP_SUM);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", own->ops->reason(own->comm));
    if (value != first + own->rank + 1 ||
        sum != RING_RANKS * first + RING_RANKS * (RING_RANKS + 1.0) / 2)
        return sbp_fail(diag, SBP_E_INTERNAL, "piece %lld: %g and %g", (long long)act->number,
                        value, sum);
    return SBP_OK;
}

static enum sbp_status act_in_ring(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    const struct ring_rank *own = context;
    if (own->graph->actor[act->actor].lane == SBP_LANE_COLLECTIVE)
        return sum_all(own, act, diag);
    add_one(own, act);
    return SBP_OK;
}

static enum sbp_status run_ring(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                void *argument, struct sbp_diag *diag)
{
    const struct ring *ring = argument;
    struct ring_rank own = {
        .ops = ops, .comm = comm, .graph = &ring->graph, .rank = ops->rank(comm)};
    int ranks[RING_RANKS];
    for (int rank = 0; rank < RING_RANKS; rank++)
        ranks[rank] = rank;
    SBP_TRY(ops->group(comm, ranks, RING_RANKS, 1, &own.everybody));
    const struct sbp_actor_job job = {.graph = &ring->graph,
                                      .endpoint = {ops, comm},
                                      .first_tag = FIRST_TAG,
                                      .memory = &sbp_device_host_memory,
                                      .action = act_in_ring,
                                      .context = &own};
    return sbp_actor_run(&job, diag);
}

static void runs_64_ranks(void **state)
{
    (void)state;
    static struct ring ring;
    struct sbp_diag diag = {{0}};
    draw_ring(&ring);
    if (sbp_actor_check(&ring.graph, &diag) != SBP_OK ||
        sbp_threads_run(RING_RANKS, run_ring, &ring, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_free(&ring.arena);
}

/* ---- places of content ---------------------------------------------------------------------- */

/* A maker and a reader on different lanes: contents are read where they were written. */
enum { PLACES = 100 };

struct places {
    const void *written[PLACES], *read[PLACES];
};

static enum sbp_status note_place(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    struct places *places = context;
    (void)diag;
    if (act->actor == 0)
        places->written[act->number] = act->out[0].memory;
    else
        places->read[act->number] = act->in[0].memory;
    return SBP_OK;
}

static void copies_nothing_within_a_rank(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    struct sbp_actor_graph graph;
    struct sbp_diag diag = {{0}};
    static struct places places;
    sbp_actor_graph_init(&graph, &arena, 1);
    const int maker = sbp_actor_add(&graph, "maker", 0, SBP_LANE_PREPARE, PLACES);
    const int reader = sbp_actor_add(&graph, "reader", 0, SBP_LANE_COMPUTE, PLACES);
    (void)sbp_actor_add_read(&graph, reader, sbp_actor_add_register(&graph, maker, 3, 8), 1);
    const struct sbp_actor_job job = {.graph = &graph,
                                      .memory = &sbp_device_host_memory,
                                      .action = note_place,
                                      .context = &places};
    assert_int_equal(sbp_actor_run(&job, &diag), SBP_E_INTERNAL);
    assert_string_equal(diag.text, "actors: they run after they are checked");
    assert_int_equal(sbp_actor_check(&graph, &diag), SBP_OK);
    assert_int_equal(sbp_actor_run(&job, &diag), SBP_OK);
    for (int i = 0; i < PLACES; i++)
        assert_ptr_equal(places.written[i], places.read[i]);
    sbp_arena_free(&arena);
}

/* ---- messages beside an act ----------------------------------------------------------------- */

/* A maker with one slot on rank 0, a reader with two on rank 1. While the reader is in an act, the
 * maker goes on by two acts, for the next content is fetched meanwhile. */
enum { AHEAD_PIECES = 50, AHEAD = 2 };

struct ahead {
    struct sbp_actor_graph graph;
    atomic_llong begun; /* acts of the maker */
};

static enum sbp_status wait_for_maker(void *context, const struct sbp_act *act,
                                      struct sbp_diag *diag)
{
    struct ahead *ahead = context;
    const int64_t awaited = act->number + AHEAD < AHEAD_PIECES ? act->number + AHEAD + 1 : 0;
    const double start_s = sbp_clock_s();
    if (ahead->graph.actor[act->actor].rank == 0) {
        (void)atomic_fetch_add(&ahead->begun, 1);
        return SBP_OK;
    }
    while (atomic_load(&ahead->begun) < awaited) {
        if (sbp_clock_s() - start_s > 60)
            return sbp_fail(diag, SBP_E_INTERNAL, "act %lld: nothing is fetched beside it",
                            (long long)act->number);
        (void)sched_yield();
    }
    return SBP_OK;
}

static enum sbp_status run_ahead(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct ahead *ahead = argument;
    const struct sbp_actor_job job = {.graph = &ahead->graph,
                                      .endpoint = {ops, comm},
                                      .first_tag = FIRST_TAG,
                                      .memory = &sbp_device_host_memory,
                                      .action = wait_for_maker,
                                      .context = ahead};
    return sbp_actor_run(&job, diag);
}

static void fetches_beside_an_act(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    static struct ahead ahead;
    sbp_actor_graph_init(&ahead.graph, &arena, 2);
    const int maker = sbp_actor_add(&ahead.graph, "maker", 0, SBP_LANE_COMPUTE, AHEAD_PIECES);
    const int reader = sbp_actor_add(&ahead.graph, "reader", 1, SBP_LANE_COMPUTE, AHEAD_PIECES);
    const int made = sbp_actor_add_register(&ahead.graph, maker, 1, 1024);
    const int pulled = sbp_actor_add_pull(&ahead.graph, made, 1, 2);
    (void)sbp_actor_add_read(&ahead.graph, reader, pulled, 1);
    if (sbp_actor_check(&ahead.graph, &diag) != SBP_OK ||
        sbp_threads_run(2, run_ahead, &ahead, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_free(&arena);
}

/* ---- acts that fail ------------------------------------------------------------------------- */

enum { CHAIN_RANKS = 4, CHAIN_PIECES = 30 };

static enum sbp_status fail_in_chain(void *context, const struct sbp_act *act,
                                     struct sbp_diag *diag)
{
    const int *fails = context;
    if (act->actor == *fails && act->number == CHAIN_PIECES / 2)
        return sbp_fail(diag, SBP_E_INPUT, "actor %d cannot", act->actor);
    return SBP_OK;
}

static enum sbp_status run_chain(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct sbp_arena arena = {0};
    struct sbp_actor_graph graph;
    int made = -1;
    sbp_actor_graph_init(&graph, &arena, CHAIN_RANKS);
    for (int rank = 0; rank < CHAIN_RANKS; rank++) {
        const int pulled = rank > 0 ? sbp_actor_add_pull(&graph, made, rank, 2) : -1;
        const int actor = sbp_actor_add(&graph, "link", rank, SBP_LANE_COPY_IN, CHAIN_PIECES);
        const int other = sbp_actor_add(&graph, "other", rank, SBP_LANE_COMPUTE, CHAIN_PIECES);
        if (rank > 0)
            (void)sbp_actor_add_read(&graph, actor, pulled, 1);
        made = sbp_actor_add_register(&graph, actor, 1, 64);
        (void)sbp_actor_add_read(&graph, other, made, 1);
    }
    const struct sbp_actor_job job = {.graph = &graph,
                                      .endpoint = {ops, comm},
                                      .first_tag = FIRST_TAG,
                                      .memory = &sbp_device_host_memory,
                                      .action = fail_in_chain,
                                      .context = argument};
    enum sbp_status status = sbp_actor_check(&graph, diag);
    if (status == SBP_OK)
        status = sbp_actor_run(&job, diag);
    sbp_arena_free(&arena);
    return status;
}

/* Wherever an act fails, all ranks end with its reason. */
static void ends_all_ranks_when_an_act_fails(void **state)
{
    (void)state;
    for (int repeat = 0; repeat < 5; repeat++)
        for (int actor = 0; actor < 3 * CHAIN_RANKS - 1; actor++) {
            struct sbp_diag diag = {{0}};
            char text[64];
            const bool is_pull = actor >= 2 && (actor - 2) % 3 == 0;
            const enum sbp_status status = sbp_threads_run(CHAIN_RANKS, run_chain, &actor, &diag);
            (void)snprintf(text, sizeof text, "actor %d cannot", actor);
            if (status != (is_pull ? SBP_OK : SBP_E_INPUT) ||
                (!is_pull && strcmp(diag.text, text) != 0))
                fail_msg("actor %d: status %d, \"%s\"", actor, status, diag.text);
        }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "mpi") == 0) {
        struct rounds rounds = {test_seed(), 100};
        struct sbp_diag diag = {{0}};
        return sbp_status_exit_code(sbp_mpi_run(run_rounds, &rounds, &diag));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_random_graphs),
        cmocka_unit_test(runs_64_ranks),
        cmocka_unit_test(copies_nothing_within_a_rank),
        cmocka_unit_test(fetches_beside_an_act),
        cmocka_unit_test(ends_all_ranks_when_an_act_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The state machine of actors under a clock of its own: pipelines and back-pressure that come from
 * quotas alone, among them 1F1B and the figures of OneFlow (Yuan et al. 2021); and the protocol's
 * assertions, each of which must find the fault that is planted for it. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/math/random.h"
#include "costmodel/timeline/works.h"
#include "executor/actor/actor_check.h"
#include "tests/support/actor_clock.h"
#include "tests/support/unit.h"

static struct sbp_arena arena;
static struct sbp_actor_graph graph;

static int close_graph(void **state)
{
    (void)state;
    sbp_arena_free(&arena);
    return 0;
}

static void check_graph(void)
{
    struct sbp_diag diag = {{0}};
    if (sbp_actor_check(&graph, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

static struct actor_play play(const double *length_s)
{
    check_graph();
    const struct actor_play played = actor_clock_play(&graph, length_s, &arena);
    assert_false(played.stuck);
    return played;
}

/* When the act of an actor began. */
static double begin_s(const struct actor_play *played, int actor, int64_t act)
{
    for (int64_t i = 0; i < played->events; i++)
        if (played->event[i].actor == actor && played->event[i].act == act)
            return played->event[i].begin_s;
    fail_msg("actor %d has no act %lld", actor, (long long)act);
    return 0;
}

/* ---- figure 6: pipelining and back-pressure ------------------------------------------------- */

enum { PIECES = 12 };

/* Three actors in a row, with 3, 2 and 2 out-registers. */
static void draw_figure_6(void)
{
    static const enum sbp_actor_lane lane[] = {SBP_LANE_READ, SBP_LANE_PREPARE, SBP_LANE_COMPUTE};
    static const int quota[] = {3, 2, 2};
    sbp_actor_graph_init(&graph, &arena, 1);
    for (int a = 0; a < 3; a++) {
        (void)sbp_actor_add(&graph, "actor", 0, lane[a], PIECES);
        (void)sbp_actor_add_register(&graph, a, quota[a], 16);
        if (a > 0)
            (void)sbp_actor_add_read(&graph, a, a - 1, 1);
    }
}

/* The figure's times: the first acts alone, then with the second, then all three at once. */
static void pieces_pass_one_after_the_other(void **state)
{
    (void)state;
    draw_figure_6();
    const struct actor_play played = play((const double[]){1, 1, 1});
    for (int a = 0; a < 3; a++)
        for (int piece = 0; piece < PIECES; piece++)
            assert_true(begin_s(&played, a, piece) == a + piece);
}

/* The last actor is slow. The others run ahead as far as their registers go, 2 pieces and 3, and
 * then follow its pace: a slot comes back when the next actor is done with it. */
static void a_slow_reader_holds_back_all(void **state)
{
    (void)state;
    draw_figure_6();
    const struct actor_play played = play((const double[]){1, 1, 10});
    static const double first[PIECES] = {0, 1, 2, 3, 4, 13, 23, 33, 43, 53, 63, 73};
    static const double second[PIECES] = {1, 2, 12, 22, 32, 42, 52, 62, 72, 82, 92, 102};
    for (int piece = 0; piece < PIECES; piece++) {
        assert_true(begin_s(&played, 2, piece) == 2 + 10 * piece);
        assert_true(begin_s(&played, 1, piece) == second[piece]);
        assert_true(begin_s(&played, 0, piece) == first[piece]);
    }
}

/* With one register each neighbours cannot act at the same time on different pieces. */
static void one_register_does_not_pipeline(void **state)
{
    (void)state;
    draw_figure_6();
    for (int r = 0; r < 3; r++)
        graph.reg[r].quota = 1;
    const struct actor_play played = play((const double[]){1, 1, 1});
    for (int piece = 0; piece < PIECES; piece++)
        assert_true(begin_s(&played, 2, piece) == 2 + 2 * piece);
}

/* ---- figure 2: memory that two operators share ---------------------------------------------- */

/* Data movement M1 and M2 serves O1 and O2 on one device; O2 needs more memory than O1. */
enum { M1, M2, O1, O2, OPERATORS };
static const int needs_bytes[OPERATORS] = {2, 2, 3, 6};
enum { DEVICE_BYTES = 2 + 2 + 3 + 6, SMALL_BYTES = 9 };

/* A scheduler that looks for memory once an operator is chosen, after M1 and M2: its thread waits
 * for memory that only the operator behind it would give back. */
static bool blocks_behind(int first, int second)
{
    int taken = needs_bytes[M1] + needs_bytes[M2];
    if (taken + needs_bytes[first] > SMALL_BYTES)
        return true;
    taken -= needs_bytes[first - O1];
    return taken + needs_bytes[second] > SMALL_BYTES;
}

/* The same in a pipeline, with memory for all four: pieces are moved as soon as any is free, or
 * only after the piece before. Returns whether all came through. */
static bool allocate_on_demand(int pieces, bool moves_ahead)
{
    int moved[2] = {0}, computed[2] = {0}, taken = 0;
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int k = 0; k < 2; k++)
            while (moved[k] < pieces && (moves_ahead || moved[k] == computed[k]) &&
                   taken + needs_bytes[k] <= DEVICE_BYTES) {
                taken += needs_bytes[k];
                moved[k]++;
            }
        for (int k = 0; k < 2; k++)
            if (computed[k] < moved[k] && taken + needs_bytes[O1 + k] <= DEVICE_BYTES) {
                taken -= needs_bytes[k];
                computed[k]++;
                goes_on = true;
            }
    }
    return computed[0] == pieces && computed[1] == pieces;
}

/* The same as actors: each has its bytes from the beginning. */
static void draw_figure_2(int pieces)
{
    static const char *const name[] = {"M1", "M2", "O1", "O2"};
    sbp_actor_graph_init(&graph, &arena, 1);
    for (int a = 0; a < OPERATORS; a++) {
        (void)sbp_actor_add(&graph, name[a], 0, a < O1 ? SBP_LANE_COPY_IN : SBP_LANE_COMPUTE,
                            pieces);
        (void)sbp_actor_add_register(&graph, a, 1, needs_bytes[a]);
    }
    const int both = sbp_actor_add(&graph, "both", 0, SBP_LANE_COPY_OUT, pieces);
    for (int k = 0; k < 2; k++) {
        (void)sbp_actor_add_read(&graph, O1 + k, M1 + k, 1);
        (void)sbp_actor_add_read(&graph, both, O1 + k, 1);
    }
}

/* Bytes of the slots that are in use after the event: from an act's begin to the end of its last
 * reader's. */
static int64_t bytes_in_use(const struct actor_play *played, double now_s)
{
    int64_t bytes = 0;
    for (int r = 0; r < graph.registers; r++)
        for (int64_t i = 0; i < played->events; i++) {
            const struct actor_event *made = &played->event[i];
            bool used = made->actor == graph.reg[r].producer && made->begin_s <= now_s;
            const int reader = graph.read[graph.reg[r].first_read].consumer;
            for (int64_t k = 0; k < played->events; k++)
                used =
                    used && !(played->event[k].actor == reader &&
                              played->event[k].act == made->act && played->event[k].end_s <= now_s);
            bytes += used ? graph.reg[r].bytes : 0;
        }
    return bytes;
}

static void memory_by_quotas_never_runs_out(void **state)
{
    (void)state;
    enum { ROUNDS = 200, MOVES = 6 };
    struct sbp_random random;
    assert_false(blocks_behind(O1, O2));
    assert_true(blocks_behind(O2, O1)); /* the figure's deadlock */
    assert_true(allocate_on_demand(MOVES, false));
    assert_false(allocate_on_demand(MOVES, true)); /* "even more severe" */
    print_message("seed 2\n");
    sbp_random_seed(&random, 2);
    for (int round = 0; round < ROUNDS; round++) {
        double length_s[OPERATORS + 1];
        for (int a = 0; a <= OPERATORS; a++)
            length_s[a] = 0.01 + sbp_random_unit(&random);
        draw_figure_2(MOVES);
        const struct actor_play played = play(length_s);
        for (int64_t i = 0; i < played.events; i++)
            assert_true(bytes_in_use(&played, played.event[i].begin_s) <= DEVICE_BYTES);
        sbp_arena_free(&arena);
    }
}

/* ---- 1F1B ----------------------------------------------------------------------------------- */

enum { MOST_STAGES = 8, MESSAGE_SLOTS = 2 };

/* A pipeline without any list, a stage a rank: a forward act keeps a slot of quota[stage] until its
 * backward act; messages have two slots on each side. */
struct pipeline {
    int stages, micro_batches;
    int quota[MOST_STAGES];
    int forward[MOST_STAGES], backward[MOST_STAGES];
};

static void draw_stages(struct pipeline *pipeline)
{
    for (int s = 0; s < pipeline->stages; s++) {
        pipeline->forward[s] =
            sbp_actor_add(&graph, "forward", s, SBP_LANE_COMPUTE, pipeline->micro_batches);
        pipeline->backward[s] =
            sbp_actor_add(&graph, "backward", s, SBP_LANE_COMPUTE, pipeline->micro_batches);
        const int kept =
            sbp_actor_add_register(&graph, pipeline->forward[s], pipeline->quota[s], 0);
        (void)sbp_actor_add_read(&graph, pipeline->backward[s], kept, 1);
    }
}

static void pass(int from, int to, int rank)
{
    const int sent = sbp_actor_add_register(&graph, from, MESSAGE_SLOTS, 8);
    const int pulled = sbp_actor_add_pull(&graph, sent, rank, MESSAGE_SLOTS);
    (void)sbp_actor_add_read(&graph, to, pulled, 1);
}

static void draw_pipeline(struct pipeline *pipeline)
{
    sbp_actor_graph_init(&graph, &arena, pipeline->stages);
    draw_stages(pipeline);
    for (int s = 0; s + 1 < pipeline->stages; s++) {
        pass(pipeline->forward[s], pipeline->forward[s + 1], s + 1);
        pass(pipeline->backward[s + 1], pipeline->backward[s], s);
    }
}

static struct actor_play play_pipeline(const struct pipeline *pipeline, double backward_s)
{
    double length_s[6 * MOST_STAGES];
    for (int a = 0; a < graph.actors; a++)
        length_s[a] = 1e-3; /* of a message */
    for (int s = 0; s < pipeline->stages; s++) {
        length_s[pipeline->forward[s]] = 1;
        length_s[pipeline->backward[s]] = backward_s;
    }
    return play(length_s);
}

/* How many acts of a stage come in the order of its works. */
static int64_t acts_in_order(const struct actor_play *played, const struct pipeline *pipeline,
                             int stage)
{
    const struct sbp_timeline_request request = {.schedule = SBP_ONE_F_ONE_B,
                                                 .stages = pipeline->stages,
                                                 .micro_batches = pipeline->micro_batches};
    struct sbp_diag diag = {{0}};
    struct sbp_timeline_work *work;
    int64_t count, at = 0;
    assert_int_equal(sbp_timeline_works(&request, stage, &arena, &work, &count, &diag), SBP_OK);
    for (int64_t i = 0; i < played->events && at < count; i++) {
        const struct actor_event *event = &played->event[i];
        const int kind = event->actor == pipeline->forward[stage]    ? SBP_WORK_FORWARD
                         : event->actor == pipeline->backward[stage] ? SBP_WORK_BACKWARD
                                                                     : SBP_WORK_KINDS;
        if (kind == SBP_WORK_KINDS)
            continue;
        if (kind != work[at].kind || event->act != work[at].micro_batch)
            break;
        at++;
    }
    return at == count ? -1 : at;
}

static bool emerges(int stages, int micro_batches, int more, double backward_s)
{
    struct pipeline pipeline = {.stages = stages, .micro_batches = micro_batches};
    for (int s = 0; s < stages; s++)
        pipeline.quota[s] = stages - s + more;
    draw_pipeline(&pipeline);
    const struct actor_play played = play_pipeline(&pipeline, backward_s);
    bool same = true;
    for (int s = 0; s < stages; s++)
        same = same && acts_in_order(&played, &pipeline, s) < 0;
    sbp_arena_free(&arena);
    return same;
}

/* With quotas p - s and no list every stage does its works in the order of 1F1B. */
static void one_forward_one_backward_emerges(void **state)
{
    (void)state;
    for (int stages = 1; stages <= MOST_STAGES; stages++)
        for (int micro_batches = 1; micro_batches <= 3 * MOST_STAGES; micro_batches++)
            for (int backward = 1; backward <= 3; backward++)
                if (!emerges(stages, micro_batches, 0, backward))
                    fail_msg("not with %d stages, %d micro-batches, backward %d times as long",
                             stages, micro_batches, backward);
    assert_false(emerges(4, 8, 1, 1)); /* a slot more, and the first stage runs ahead */
}

/* ---- planted faults ------------------------------------------------------------------------- */

/* One actor with two slots, and two readers. */
struct bench {
    struct sbp_actor_state state;
    struct sbp_actor_message sent[16];
    int count;
};

static void collect(void *context, enum sbp_actor_lane lane, struct sbp_actor_message message)
{
    struct bench *b = context;
    (void)lane;
    b->sent[b->count++] = message;
}

static void open_bench(struct bench *b)
{
    *b = (struct bench){.count = 0};
    sbp_actor_graph_init(&graph, &arena, 1);
    const int producer = sbp_actor_add(&graph, "producer", 0, SBP_LANE_COMPUTE, 8);
    const int made = sbp_actor_add_register(&graph, producer, 2, 8);
    for (int k = 0; k < 2; k++)
        (void)sbp_actor_add_read(&graph, sbp_actor_add(&graph, "reader", 0, SBP_LANE_COMPUTE, 8),
                                 made, 1);
    check_graph();
    assert_int_equal(sbp_actor_open(&b->state, &graph, 0, &sbp_device_host_memory, NULL, &arena),
                     SBP_OK);
}

/* An act, whose messages stay in the bench. */
static void act(struct bench *b, int actor)
{
    struct sbp_act begun;
    b->count = 0;
    sbp_actor_begin(&b->state, actor, &begun);
    sbp_actor_end(&b->state, actor, collect, b);
}

static void deliver_all(struct bench *b)
{
    for (int i = 0; i < b->count; i++)
        sbp_actor_deliver(&b->state, b->sent[i]);
}

static void acts_without_a_credit(struct bench *b)
{
    for (int i = 0; i < 3; i++)
        act(b, 0);
}

static void acts_without_an_input(struct bench *b)
{
    act(b, 1);
}

static void acknowledges_twice(struct bench *b)
{
    act(b, 0);
    deliver_all(b);
    act(b, 1);
    deliver_all(b);
    deliver_all(b);
}

/* A slot comes home while a reader still has it. */
static void reuses_a_slot_too_early(struct bench *b)
{
    struct sbp_act begun;
    act(b, 0);
    deliver_all(b);
    struct sbp_actor_ring *free = &b->state.output[0].free;
    free->slot[(free->first + free->count++) % free->room] = b->sent[0].slot;
    for (int i = 0; i < 2; i++)
        sbp_actor_begin(&b->state, 0, &begun);
}

static void delivers_twice(struct bench *b)
{
    act(b, 0);
    deliver_all(b);
    deliver_all(b);
    deliver_all(b);
}

static void loses_an_ack(struct bench *b)
{
    for (int i = 0; i < 8; i++) {
        act(b, 0);
        deliver_all(b);
        for (int reader = 1; reader <= 2; reader++) {
            act(b, reader);
            if (i < 7 || reader < 2)
                deliver_all(b);
        }
    }
    sbp_actor_assert_home(&b->state);
}

/* Runs a fault in a child and says how it ended; *said: what it wrote to standard error. */
static int end_of(void (*fault)(struct bench *), char *said, size_t size)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bench b;
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        open_bench(&b);
        fault(&b);
        _exit(0);
    }
    (void)close(ends[1]);
    size_t length = 0;
    for (ssize_t got;
         length < size - 1 && (got = read(ends[0], said + length, size - 1 - length)) > 0;)
        length += (size_t)got;
    said[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void assertions_find_planted_faults(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    static const struct {
        void (*fault)(struct bench *);
        const char *says;
    } faults[] = {
        {acts_without_a_credit, "counters never become negative"},
        {acts_without_an_input, "counters never become negative"},
        {acknowledges_twice, "nobody acknowledges what it does not read"},
        {reuses_a_slot_too_early, "no register is written while it is read"},
        {delivers_twice, "credits never exceed the quota"},
        {loses_an_ack, "all acts have ended"},
    };
    char said[1024];
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const int status = end_of(faults[i].fault, said, sizeof said);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT ||
            strstr(said, faults[i].says) == NULL)
            fail_msg("fault %zu ended with status %x and said \"%s\"", i, (unsigned)status, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(pieces_pass_one_after_the_other, close_graph),
        cmocka_unit_test_teardown(a_slow_reader_holds_back_all, close_graph),
        cmocka_unit_test_teardown(one_register_does_not_pipeline, close_graph),
        cmocka_unit_test_teardown(memory_by_quotas_never_runs_out, close_graph),
        cmocka_unit_test_teardown(one_forward_one_backward_emerges, close_graph),
        cmocka_unit_test_teardown(assertions_find_planted_faults, close_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

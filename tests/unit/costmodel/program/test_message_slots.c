/* Slots of messages between stages: under no order of works do stages wait for each other, even
 * with one on either side, and their bytes are a part of a stage's memory where the trainer has
 * them. */
#include "costmodel/program/stage_layout.h"
#include "costmodel/timeline/works.h"
#include "tests/support/step_bench.h"

enum { MOST_STAGES = 12, MOST_CHUNKS = 3 };

/* ---- orders -------------------------------------------------------------------------------- */

/* A stage as far as it is, and messages that it sent and others took, forward and back. */
struct stage {
    struct sbp_timeline_work *work;
    int64_t count, at, sent[2], taken[2];
    bool has_taken; /* what its work begins with */
};

/* Whether a stage moves: takes the message of its work, or passes one on with `room` under way. */
static bool move(struct stage *stage, int stages, int pieces, int own, int room)
{
    struct stage *const s = &stage[own];
    if (s->at == s->count)
        return false;
    const struct sbp_timeline_work *work = &s->work[s->at];
    const int back = work->kind == SBP_WORK_BACKWARD;
    struct stage *const from = &stage[(own + (back ? 1 : stages - 1)) % stages];
    const bool takes = work->kind != SBP_WORK_WEIGHT && work->stage != (back ? pieces - 1 : 0);
    const bool passes = work->kind != SBP_WORK_WEIGHT && work->stage != (back ? 0 : pieces - 1);
    if (takes && !s->has_taken) {
        s->has_taken = from->sent[back] > from->taken[back];
        from->taken[back] += s->has_taken;
        return s->has_taken;
    }
    if (passes && s->sent[back] - s->taken[back] == room)
        return false;
    s->sent[back] += passes;
    s->has_taken = false;
    s->at++;
    return true;
}

static void check_order(const struct sbp_timeline_request *request)
{
    struct stage stage[MOST_STAGES] = {{0}};
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    bool moves = true;
    for (int i = 0; i < request->stages; i++)
        if (sbp_timeline_works(request, i, &arena, &stage[i].work, &stage[i].count, &diag) !=
            SBP_OK)
            fail_msg("%s", diag.text);
    while (moves) {
        moves = false;
        for (int i = 0; i < request->stages; i++)
            while (move(stage, request->stages, request->stages * request->chunks, i, 2))
                moves = true;
    }
    for (int i = 0; i < request->stages; i++)
        assert_int_equal(stage[i].at, stage[i].count);
    sbp_arena_free(&arena);
}

static void test_orders(void **state)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE};
    const struct sbp_stage_cost cost[MOST_STAGES * MOST_CHUNKS] = {{0}};
    const struct sbp_stage_end end[MOST_STAGES] = {{0}};
    (void)state;
    for (int k = 0; k < 4; k++)
        for (int stages = 2; stages <= MOST_STAGES; stages++)
            for (int groups = 1; groups <= 4; groups++)
                for (int extra = 0; extra < 4; extra++) {
                    const bool zero_bubble = schedules[k] == SBP_ZERO_BUBBLE;
                    check_order(&(struct sbp_timeline_request){
                        .schedule = schedules[k],
                        .stages = stages,
                        .micro_batches = groups * stages,
                        .chunks = schedules[k] == SBP_INTERLEAVED ? 2 + extra / 2 : 1,
                        .pipeline_limit = zero_bubble ? extra * stages / 2 : 0,
                        .stage = cost,
                        .end = end});
                }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static const char model[] =
    "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 4, \"hidden\": 48, \"heads\": 12,"
    "\"sequence\": 24, \"vocab\": 48, \"global_batch\": 32, \"precision\": \"fp32\"}";

/* Boundaries are activations of micro-batches of 4 on 2 devices, each with half of the rows. */
static void check_bytes(enum sbp_schedule schedule, int64_t slots)
{
    enum { STAGES = 4, BYTES = 4 / 2 * 24 * 48 * 4 };
    struct bench b[2] = {{.first = NULL}};
    for (int has = 0; has < 2; has++) {
        struct sbp_cluster cluster = flat(8);
        const struct sbp_parallel parallel = in_stages(STAGES, 4, schedule);
        cluster.runtime.has_slots = has == 1;
        bench_open(&b[has], model, &cluster, &parallel);
        bench_run(&b[has]);
    }
    assert_int_equal(sbp_stage_slots(&b[0].step), slots);
    for (int stage = 0; stage < STAGES; stage++) {
        const int sides = stage == 0 || stage == STAGES - 1 ? 2 : 4;
        assert_int_equal(b[0].step.memory[stage].message_bytes, 0);
        assert_int_equal(b[1].step.memory[stage].message_bytes, sides * slots * BYTES);
        assert_int_equal(b[1].step.memory[stage].device_bytes,
                         b[0].step.memory[stage].device_bytes + sides * slots * BYTES);
    }
    for (int has = 0; has < 2; has++)
        bench_close(&b[has]);
}

static void test_bytes(void **state)
{
    (void)state;
    check_bytes(SBP_GPIPE, 2);
    check_bytes(SBP_ONE_F_ONE_B, 2);
    check_bytes(SBP_ZERO_BUBBLE, 2);
    check_bytes(SBP_MESSAGE_DRIVEN, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

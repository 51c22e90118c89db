/* The arena of a stage: frames that live together lie apart, and fill it where they are alike. */
#include "base/math/random.h"
#include "costmodel/program/stage_layout.h"
#include "tests/support/unit.h"

enum { MOST_PIECES = 16, SEED = 4711 };

struct setting {
    struct sbp_arena arena;
    struct sbp_program program[MOST_PIECES];
    int program_of[MOST_PIECES];
    struct sbp_step step;
};

static int64_t draw(struct sbp_random *random, int slots)
{
    return 64 * (int64_t)sbp_random_below(random, (uint64_t)slots);
}

static void open_setting(struct setting *s, struct sbp_random *random, bool alike)
{
    const int stages = 2 + (int)sbp_random_below(random, 3);
    const int chunks = 1 + (int)sbp_random_below(random, 4);
    const bool waits = chunks == 1 && sbp_random_below(random, 2) > 0;
    const int64_t groups = 1 + (int64_t)sbp_random_below(random, 4);
    *s = (struct setting){0};
    for (int piece = 0; piece < stages * chunks; piece++) {
        struct sbp_program *program = &s->program[piece];
        s->program_of[piece] = piece;
        program->persistent_bytes = draw(random, 9);
        for (int part = 0; part < SBP_FRAME_PARTS; part++)
            program->frame_bytes[part] = part > 0 && !waits ? 0 : alike ? 128 : draw(random, 6);
        program->arena_bytes = program->persistent_bytes + draw(random, 7);
        for (int part = 0; part < SBP_FRAME_PARTS; part++)
            program->arena_bytes += program->frame_bytes[part];
    }
    s->step = (struct sbp_step){.parallel = {.schedule = chunks > 1 ? SBP_INTERLEAVED
                                                         : alike    ? SBP_ONE_F_ONE_B
                                                                    : SBP_GPIPE},
                                .micro_batches = groups * stages,
                                .stages = stages,
                                .pieces = stages * chunks,
                                .program_of = s->program_of,
                                .program = s->program};
}

/* The parts of frames that are there after each work, by brute force. */
struct held {
    bool (*is_there)[SBP_FRAME_PARTS]; /* (chunks, micro_batches) */
    int64_t most_bytes[SBP_FRAME_PARTS];
};

static int64_t part_bytes(const struct sbp_stage_layout *layout, int64_t frame, int part)
{
    return layout->program[frame / layout->micro_batches]->frame_bytes[part];
}

/* The new part lies apart from all others, of its own kind and of the rest. */
static void expect_apart(const struct sbp_stage_layout *layout, struct held *held, int64_t frame,
                         int part)
{
    const int64_t begin = layout->frame_at[frame][part];
    const int64_t end = begin + part_bytes(layout, frame, part);
    int64_t bytes = end - begin;
    for (int64_t other = 0; other < layout->chunks * layout->micro_batches; other++)
        for (int of = 0; of < SBP_FRAME_PARTS; of++) {
            const int64_t from = layout->frame_at[other][of];
            const int64_t to = from + part_bytes(layout, other, of);
            if (!held->is_there[other][of] || (other == frame && of == part))
                continue;
            bytes += of == part ? to - from : 0;
            assert_true(to <= begin || end <= from || to == from || end == begin);
        }
    held->most_bytes[part] = bytes > held->most_bytes[part] ? bytes : held->most_bytes[part];
}

static void begin_part(const struct sbp_stage_layout *layout, struct held *held, int64_t frame,
                       int part)
{
    held->is_there[frame][part] = true;
    expect_apart(layout, held, frame, part);
}

static void play_work(const struct setting *s, const struct sbp_stage_layout *layout,
                      struct held *held, const struct sbp_timeline_work *work)
{
    const int64_t frame = work->stage / s->step.stages * layout->micro_batches + work->micro_batch;
    if (work->kind == SBP_WORK_FORWARD) {
        begin_part(layout, held, frame, SBP_FRAME_KEPT);
        begin_part(layout, held, frame, SBP_FRAME_INPUTS);
    } else if (work->kind == SBP_WORK_BACKWARD) {
        begin_part(layout, held, frame, SBP_FRAME_GRADIENTS);
        held->is_there[frame][SBP_FRAME_KEPT] = false;
    } else {
        held->is_there[frame][SBP_FRAME_INPUTS] = held->is_there[frame][SBP_FRAME_GRADIENTS] =
            false;
    }
}

/* Returns the most bytes of all parts, each at its own time. */
static int64_t check_frames(struct setting *s, const struct sbp_stage_layout *layout, int stage)
{
    struct sbp_diag diag = {{0}};
    struct sbp_timeline_work *work;
    int64_t count, most = 0;
    struct held held = {0};
    held.is_there = sbp_arena_alloc(
        &s->arena, (size_t)layout->chunks * (size_t)layout->micro_batches, sizeof *held.is_there);
    assert_non_null(held.is_there);
    assert_int_equal(sbp_stage_works(&s->step, stage, &s->arena, &work, &count, &diag), SBP_OK);
    for (int64_t i = 0; i < count; i++)
        play_work(s, layout, &held, &work[i]);
    for (int part = 0; part < SBP_FRAME_PARTS; part++)
        most += held.most_bytes[part];
    return most;
}

static void check_stage(struct setting *s, int stage, bool alike)
{
    struct sbp_diag diag = {{0}};
    struct sbp_stage_layout layout;
    int64_t states = 0, besides = 0;
    assert_int_equal(sbp_stage_layout_make(&s->step, stage, &s->arena, &layout, &diag), SBP_OK);
    const int64_t most = check_frames(s, &layout, stage);
    for (int chunk = 0; chunk < layout.chunks; chunk++) {
        const struct sbp_program *program = sbp_step_chunk(&s->step, stage, chunk);
        int64_t rest = program->arena_bytes - program->persistent_bytes;
        for (int part = 0; part < SBP_FRAME_PARTS; part++)
            rest -= program->frame_bytes[part];
        assert_ptr_equal(layout.program[chunk], program);
        assert_int_equal(layout.states_at[chunk], states);
        states += program->persistent_bytes;
        besides = rest > besides ? rest : besides;
    }
    assert_true(layout.frames_bytes >= most);
    if (alike || layout.chunks == 1)
        assert_int_equal(layout.frames_bytes, most);
    assert_int_equal(layout.work_at, states + layout.frames_bytes);
    assert_int_equal(layout.bytes, layout.work_at + besides);
}

static void test_frames_lie_apart(void **state)
{
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, SEED);
    for (int round = 0; round < 200; round++) {
        struct setting s;
        open_setting(&s, &random, round % 2 == 0);
        for (int stage = 0; stage < s.step.stages; stage++)
            check_stage(&s, stage, round % 2 == 0);
        sbp_arena_free(&s.arena);
    }
}

/* One micro-batch of one program: its own arena. */
static void test_alone(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_random random;
    struct sbp_diag diag = {{0}};
    struct sbp_stage_layout layout;
    sbp_random_seed(&random, SEED);
    open_setting(&s, &random, false);
    assert_int_equal(sbp_stage_layout_alone(&s.program[0], &s.arena, &layout, &diag), SBP_OK);
    assert_int_equal(layout.bytes, s.program[0].arena_bytes);
    assert_int_equal(layout.frame_at[0][SBP_FRAME_KEPT], s.program[0].persistent_bytes);
    sbp_arena_free(&s.arena);
}

/* A legal order of a stage between others: of the works whose micro-batches may have come any one,
 * the forward one as long as the first stage has fewer in flight than its limit. */
static int64_t draw_order(const struct setting *s, struct sbp_random *random, int limit,
                          struct sbp_timeline_work *work)
{
    const int64_t count = s->step.micro_batches;
    int64_t at = 0;
    for (int forward = 0, backward = 0; backward < count;) {
        const bool may_go = forward < count && forward - backward < limit;
        const bool may_return = backward < forward;
        const bool goes = may_go && (!may_return || sbp_random_below(random, 2) > 0);
        work[at++] = (struct sbp_timeline_work){.kind = goes ? SBP_WORK_FORWARD : SBP_WORK_BACKWARD,
                                                .stage = 1,
                                                .micro_batch = goes ? forward++ : backward++};
    }
    return at;
}

/* Frames of one layout lie apart in every order that arrivals may make. */
static void test_every_order(void **state)
{
    (void)state;
    enum { ROUNDS = 200, MICRO_BATCHES = 9 };
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int round = 0; round < ROUNDS; round++) {
        struct setting s;
        struct sbp_diag diag = {{0}};
        struct sbp_stage_layout layout;
        struct sbp_timeline_work work[2 * MICRO_BATCHES];
        const int limit = 1 + (int)sbp_random_below(&random, MICRO_BATCHES);
        open_setting(&s, &random, true);
        s.step.parallel.schedule = SBP_MESSAGE_DRIVEN;
        s.step.parallel.pipeline_limit = limit;
        s.step.stages = s.step.pieces = 3;
        s.step.micro_batches = MICRO_BATCHES;
        for (int part = SBP_FRAME_KEPT + 1; part < SBP_FRAME_PARTS; part++)
            s.program[1].frame_bytes[part] = 0;
        assert_int_equal(sbp_stage_layout_make(&s.step, 1, &s.arena, &layout, &diag), SBP_OK);
        assert_int_equal(layout.frames_bytes, limit * s.program[1].frame_bytes[SBP_FRAME_KEPT]);
        struct held held = {.is_there =
                                sbp_arena_alloc(&s.arena, MICRO_BATCHES, sizeof *held.is_there)};
        assert_non_null(held.is_there);
        const int64_t count = draw_order(&s, &random, limit, work);
        for (int64_t i = 0; i < count; i++)
            play_work(&s, &layout, &held, &work[i]);
        sbp_arena_free(&s.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_lie_apart),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_every_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

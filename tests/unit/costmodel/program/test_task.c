/* The tasks of a step and their collective calls, of a program that is made by hand. */
#include "costmodel/program/task.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/unit.h"

#include <stdio.h>

enum { FORWARD_BOX, FORWARD, BACKWARD_BOX, SCATTER, UPDATE, INSTRS };

struct setting {
    struct sbp_arena arena;
    struct sbp_instr instr[INSTRS];
    struct sbp_graph graph; /* without tensors */
    struct sbp_program program;
    struct sbp_stage_end end[3]; /* nothing hides */
    struct sbp_step step;        /* of one stage that runs it */
    int program_of;
    struct sbp_tasks tasks;
};

/* The first collective is called twice, the scatter is of the step. */
static void open_setting(struct setting *s, int64_t micro_batches)
{
    const struct sbp_cluster cluster = oracle_cluster(1, (int64_t[]){2});
    struct sbp_diag diag = {{0}};
    *s = (struct setting){
        .instr = {{.kind = SBP_INSTR_BOX, .times = 2, .box = {.kind = SBP_ALL_GATHER, .axes = 1}},
                  {.kind = SBP_INSTR_FORWARD},
                  {.kind = SBP_INSTR_BOX, .times = 1, .box = {.kind = SBP_ALL_REDUCE, .axes = 1}},
                  {.kind = SBP_INSTR_SCATTER,
                   .times = 1,
                   .box = {.kind = SBP_REDUCE_SCATTER, .axes = 1}},
                  {.kind = SBP_INSTR_UPDATE}},
        .program = {.scope = {.micro_batches = micro_batches}, .instr_count = INSTRS}};
    s->program.instr = s->instr;
    s->program.graph = &s->graph;
    for (int i = 0; i < INSTRS; i++)
        s->instr[i].section = i < BACKWARD_BOX ? SBP_SECTION_FORWARD
                              : i < SCATTER    ? SBP_SECTION_BACKWARD
                                               : SBP_SECTION_STEP;
    assert_int_equal(sbp_mesh_make(&cluster, &s->program.mesh, &diag), SBP_OK);
    s->step = (struct sbp_step){.parallel = {.chunks = 1, .schedule = SBP_ONE_F_ONE_B},
                                .mesh = s->program.mesh,
                                .micro_batches = micro_batches,
                                .stages = 1,
                                .pieces = 1,
                                .program_of = &s->program_of,
                                .program_count = 1,
                                .end = s->end,
                                .program = &s->program};
    assert_int_equal(sbp_tasks_make(&s->step, 0, &s->arena, &s->tasks, &diag), SBP_OK);
}

/* Instruction and micro-batch of each. */
static void expect_tasks(const struct setting *s, const int (*want)[2], int count)
{
    assert_int_equal(s->tasks.count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(s->tasks.task[i].instr, want[i][0]);
        assert_int_equal(s->tasks.task[i].micro_batch, want[i][1]);
    }
}

/* `instr` of a call is the task that it belongs to. */
static void expect_calls(struct setting *s, const int *want, int count)
{
    struct sbp_call *calls;
    int found;
    assert_int_equal(sbp_tasks_calls(&s->step, 0, &s->tasks, &s->arena, &calls, &found), SBP_OK);
    assert_int_equal(found, count);
    for (int i = 0; i < count; i++) {
        const struct sbp_task *task = &s->tasks.task[calls[i].instr];
        assert_int_equal(calls[i].instr, want[i]);
        assert_int_equal(calls[i].kind, s->instr[task->instr].box.kind);
    }
}

static void test_one_micro_batch(void **state)
{
    (void)state;
    struct setting s;
    open_setting(&s, 1);
    expect_tasks(&s, (const int[][2]){{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}, 5);
    expect_calls(&s, (int[]){0, 0, 2, 3}, 4);
    sbp_arena_free(&s.arena);
}

static void test_three_micro_batches(void **state)
{
    (void)state;
    struct setting s;
    open_setting(&s, 3);
    expect_tasks(
        &s,
        (const int[][2]){
            {0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {2, 2}, {3, 2}, {4, 2}},
        11);
    expect_calls(&s, (int[]){0, 0, 2, 3, 3, 5, 6, 6, 8, 9}, 10);
    sbp_arena_free(&s.arena);
}

/* Works of a stage that has so many chunks of the program, which is named where they are several.
 */
static void expect_works(struct setting *s, enum sbp_schedule schedule, int stages, int stage,
                         const char *want)
{
    static const char letters[] = {[SBP_WORK_FORWARD] = 'F',
                                   [SBP_WORK_BACKWARD] = 'B',
                                   [SBP_WORK_WEIGHT] = 'W',
                                   [SBP_WORK_UPDATE] = 'U'};
    struct sbp_diag diag = {{0}};
    char seen[128] = "";
    int used = 0;
    int program_of[4] = {0};
    const int chunks = schedule == SBP_INTERLEAVED ? 2 : 1;
    s->step.parallel.schedule = schedule;
    s->step.stages = stages;
    s->step.pieces = stages * chunks;
    s->step.program_of = program_of;
    assert_int_equal(sbp_tasks_make(&s->step, stage, &s->arena, &s->tasks, &diag), SBP_OK);
    for (int64_t t = 0; t < s->tasks.count; t++) {
        const struct sbp_task *task = &s->tasks.task[t];
        if (!task->begins)
            continue;
        used += snprintf(seen + used, sizeof seen - (size_t)used, "%c%d", letters[task->work],
                         task->micro_batch);
        used += snprintf(seen + used, sizeof seen - (size_t)used, chunks > 1 ? "/%d " : " ",
                         task->chunk);
    }
    assert_string_equal(seen, want);
}

/* Works with their micro-batch. */
static void test_works(void **state)
{
    (void)state;
    struct setting s;
    open_setting(&s, 4);
    expect_works(&s, SBP_ONE_F_ONE_B, 1, 0, "F0 B0 F1 B1 F2 B2 F3 B3 U3 ");
    expect_works(&s, SBP_ONE_F_ONE_B, 3, 0, "F0 F1 F2 B0 F3 B1 B2 B3 U3 ");
    expect_works(&s, SBP_ONE_F_ONE_B, 3, 1, "F0 F1 B0 F2 B1 F3 B2 B3 U3 ");
    expect_works(&s, SBP_GPIPE, 2, 1, "F0 F1 F2 F3 B3 B2 B1 B0 U3 ");
    expect_works(&s, SBP_INTERLEAVED, 2, 1,
                 "F0/0 F1/0 F0/1 B0/1 F1/1 B1/1 F2/0 B0/0 F3/0 B1/0 F2/1 "
                 "B2/1 F3/1 B3/1 B2/0 B3/0 U3/0 ");
    sbp_arena_free(&s.arena);
}

/* Between the first and the last stage arrivals decide: the list is that of the first stage, which
 * has most in flight, and tells where every work begins. */
static void test_driven(void **state)
{
    (void)state;
    static const char first[] = "F0 F1 F2 B0 F3 B1 B2 B3 U3 ";
    struct setting s;
    open_setting(&s, 4);
    expect_works(&s, SBP_MESSAGE_DRIVEN, 3, 0, first);
    assert_null(s.tasks.begin[0]);
    expect_works(&s, SBP_MESSAGE_DRIVEN, 3, 2, "F0 B0 F1 B1 F2 B2 F3 B3 U3 ");
    assert_null(s.tasks.begin[0]);
    expect_works(&s, SBP_MESSAGE_DRIVEN, 3, 1, first);
    for (int back = 0; back < 2; back++)
        for (int m = 0; m < 4; m++) {
            const struct sbp_task *task = &s.tasks.task[s.tasks.begin[back][m]];
            assert_true(task->begins);
            assert_int_equal(task->work, back ? SBP_WORK_BACKWARD : SBP_WORK_FORWARD);
            assert_int_equal(task->micro_batch, m);
        }
    s.step.parallel.pipeline_limit = 6;
    expect_works(&s, SBP_MESSAGE_DRIVEN, 3, 1, "F0 F1 F2 F3 B0 B1 B2 B3 U3 ");
    s.step.parallel.pipeline_limit = 1;
    expect_works(&s, SBP_MESSAGE_DRIVEN, 3, 1, "F0 B0 F1 B1 F2 B2 F3 B3 U3 ");
    sbp_arena_free(&s.arena);
}

/* Weight gradients that wait are works of their own, and the last to need a frame. */
static void test_waiting_gradients(void **state)
{
    (void)state;
    struct setting s;
    open_setting(&s, 4);
    s.program.parallel.schedule = SBP_ZERO_BUBBLE;
    s.instr[BACKWARD_BOX].section = SBP_SECTION_BACKWARD_WEIGHT;
    expect_works(&s, SBP_ZERO_BUBBLE, 3, 2, "F0 F1 F2 W0 F3 W1 W2 W3 U3 ");
    expect_works(&s, SBP_ZERO_BUBBLE, 3, 0, "F0 F1 F2 W0 F3 W1 W2 W3 U3 ");
    sbp_arena_free(&s.arena);
}

/* Gradients of the first backward work of each chunk begin anew; at the end every chunk has summed
 * its own before the first updates. */
static void test_chunks(void **state)
{
    (void)state;
    struct setting s;
    int program_of[4] = {0};
    struct sbp_diag diag = {{0}};
    open_setting(&s, 2);
    s.step.parallel.schedule = SBP_INTERLEAVED;
    s.step.stages = 2;
    s.step.pieces = 4;
    s.step.program_of = program_of;
    assert_int_equal(sbp_tasks_make(&s.step, 0, &s.arena, &s.tasks, &diag), SBP_OK);
    bool went_back[2] = {false, false};
    for (int64_t t = 0; t < s.tasks.count; t++) {
        const struct sbp_task *task = &s.tasks.task[t];
        if (task->work != SBP_WORK_BACKWARD)
            continue;
        assert_int_equal(task->adds, went_back[task->chunk]);
        went_back[task->chunk] |= task->ends;
    }
    static const int end[][2] = {{SCATTER, 0}, {SCATTER, 1}, {UPDATE, 0}, {UPDATE, 1}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s.tasks.task[s.tasks.count - 4 + i].instr, end[i][0]);
        assert_int_equal(s.tasks.task[s.tasks.count - 4 + i].chunk, end[i][1]);
    }
    sbp_arena_free(&s.arena);
}

/* More than an int counts, which nothing is allocated for. */
static void test_too_many(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_tasks tasks;
    struct sbp_diag diag = {{0}};
    open_setting(&s, 1);
    s.program.scope.micro_batches = s.step.micro_batches = 1 << 20;
    s.program.instr_count = 1 << 11;
    assert_int_equal(sbp_tasks_make(&s.step, 0, &s.arena, &tasks, &diag), SBP_E_RANGE);
    s.program.instr_count = INSTRS;
    struct sbp_call *calls;
    int count;
    s.step.micro_batches = INT32_MAX / 4 + 1;
    assert_int_equal(sbp_tasks_calls(&s.step, 0, &s.tasks, &s.arena, &calls, &count), SBP_E_RANGE);
    sbp_arena_free(&s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_micro_batch),
        cmocka_unit_test(test_three_micro_batches),
        cmocka_unit_test(test_works),
        cmocka_unit_test(test_driven),
        cmocka_unit_test(test_waiting_gradients),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

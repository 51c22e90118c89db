/* The tasks of a step and their collective calls, of a program that is made by hand. */
#include "costmodel/program/task.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/unit.h"

enum { FORWARD_BOX, FORWARD, BACKWARD_BOX, SCATTER, UPDATE, INSTRS };

struct setting {
    struct sbp_arena arena;
    struct sbp_instr instr[INSTRS];
    struct sbp_program program;
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
    for (int i = 0; i < INSTRS; i++)
        s->instr[i].section = i < BACKWARD_BOX ? SBP_SECTION_FORWARD
                              : i < SCATTER    ? SBP_SECTION_BACKWARD
                                               : SBP_SECTION_STEP;
    assert_int_equal(sbp_mesh_make(&cluster, &s->program.mesh, &diag), SBP_OK);
    assert_int_equal(sbp_tasks_make(&s->program, &s->arena, &s->tasks), SBP_OK);
}

static void expect_tasks(const struct setting *s, const struct sbp_task *want, int count)
{
    assert_int_equal(s->tasks.count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(s->tasks.task[i].instr, want[i].instr);
        assert_int_equal(s->tasks.task[i].micro_batch, want[i].micro_batch);
    }
}

/* `instr` of a call is the task that it belongs to. */
static void expect_calls(struct setting *s, const int *want, int count)
{
    struct sbp_call *calls;
    int found;
    assert_int_equal(sbp_tasks_calls(&s->program, &s->tasks, &s->arena, &calls, &found), SBP_OK);
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
    expect_tasks(&s, (struct sbp_task[]){{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}, 5);
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
        (struct sbp_task[]){
            {0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {2, 2}, {3, 2}, {4, 2}},
        11);
    expect_calls(&s, (int[]){0, 0, 2, 3, 3, 5, 6, 6, 8, 9}, 10);
    sbp_arena_free(&s.arena);
}

/* More than an int counts, which nothing is allocated for. */
static void test_too_many(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_tasks tasks;
    open_setting(&s, 1);
    s.program.scope.micro_batches = INT32_MAX / INSTRS + 1;
    assert_int_equal(sbp_tasks_make(&s.program, &s.arena, &tasks), SBP_E_RANGE);
    struct sbp_call *calls;
    int count;
    s.program.scope.micro_batches = INT32_MAX / 4 + 1;
    assert_int_equal(sbp_tasks_calls(&s.program, &s.tasks, &s.arena, &calls, &count), SBP_E_RANGE);
    sbp_arena_free(&s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_micro_batch),
        cmocka_unit_test(test_three_micro_batches),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

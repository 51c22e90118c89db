/* Sums of gradients beside the backward pass in the lists of tasks: each once, behind all that is
 * added to its gradient, and nothing touches that before its sum is over. */
#include "costmodel/program/task.h"
#include "tests/support/step_bench.h"

/* The table is tied. */
static const char model[] =
    "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 4, \"hidden\": 48, \"heads\": 12,"
    "\"sequence\": 24, \"vocab\": 48, \"global_batch\": 24, \"precision\": \"fp32\", "
    "\"clip_norm\": 1.0}";

/* What was among the lists. */
struct seen {
    int sums, in_line, waits;
};

static bool touches(const struct sbp_instr *instr, int buffer)
{
    bool found = instr->kind == SBP_INSTR_NORM; /* of all gradients */
    for (int place = 0; place < SBP_INSTR_BUFFERS; place++)
        found |= instr->buffer[place] == buffer;
    return found;
}

/* Messages travel beside all else; who communicates with the stage's devices waits, so that there
 * is one order. */
static void check_later(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                        int64_t at, struct seen *seen)
{
    const struct sbp_task *sum = &tasks->task[at];
    const int gradient = sbp_task_instr(step, stage, sum)->buffer[SBP_AT_OUT];
    bool waited = false;
    for (int64_t i = at + 1; i < tasks->count; i++) {
        const struct sbp_task *task = &tasks->task[i];
        const struct sbp_instr *instr = sbp_task_instr(step, stage, task);
        const bool reads = (task->chunk == sum->chunk || instr->kind == SBP_INSTR_NORM) &&
                           touches(instr, gradient);
        const bool calls = sbp_program_is_call(instr) && instr->kind != SBP_INSTR_SEND;
        waited |= task->after > at;
        if (task->is_beside)
            assert_int_equal(task->after, 0);
        else if (reads || calls)
            assert_true(waited);
        seen->waits += !task->is_beside && reads;
    }
}

/* Every sum of gradients that is an all-reduce in place, and the tensor's only one, is beside. */
static void check_list(const struct sbp_step *step, int stage, struct seen *seen)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_tasks tasks;
    if (sbp_tasks_make(step, stage, &arena, &tasks, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int64_t i = 0; i < tasks.count; i++) {
        const struct sbp_task *task = &tasks.task[i];
        const struct sbp_instr *instr = sbp_task_instr(step, stage, task);
        const bool is_tied = instr->tensor >= 0 && instr->cause == SBP_CAUSE_WEIGHT_GRADIENT &&
                             step->holders[instr->tensor] > 1;
        if (instr->kind == SBP_INSTR_BOX && instr->cause == SBP_CAUSE_WEIGHT_GRADIENT)
            assert_int_equal(task->is_beside, step->end[stage].sync_overlap > 0 && !is_tied);
        seen->in_line += instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && !task->is_beside;
        if (!task->is_beside)
            continue;
        seen->sums++;
        assert_true(task->work != SBP_WORK_UPDATE);
        check_later(step, stage, &tasks, i, seen);
    }
    sbp_arena_free(&arena);
}

static void check_step(int64_t pipeline, enum sbp_schedule schedule, double overlap, int zero,
                       struct seen *seen)
{
    struct bench b = {0};
    const struct sbp_cluster cluster = flat(4);
    struct sbp_parallel parallel = in_stages(pipeline, 12, schedule);
    parallel.chunks = schedule == SBP_INTERLEAVED ? 2 : 1;
    parallel.gradient_overlap = overlap;
    parallel.zero = zero;
    bench_open(&b, model, &cluster, &parallel);
    bench_run(&b);
    for (int stage = 0; stage < b.step.stages; stage++)
        check_list(&b.step, stage, seen);
    bench_close(&b);
}

static void test_lists(void **state)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE,
                                                  SBP_INTERLEAVED, SBP_MESSAGE_DRIVEN};
    struct seen seen = {0};
    (void)state;
    check_step(1, SBP_ONE_F_ONE_B, 0.5, 0, &seen);
    assert_true(seen.sums > 0 && seen.waits >= seen.sums);
    assert_int_equal(seen.in_line, 0);
    for (int i = 0; i < 5; i++) {
        seen = (struct seen){0};
        check_step(2, schedules[i], 1, 0, &seen);
        assert_true(seen.sums > 0 && seen.in_line > 0);
    }
}

static void test_none(void **state)
{
    struct seen seen = {0};
    (void)state;
    check_step(2, SBP_ONE_F_ONE_B, 0, 0, &seen);
    check_step(2, SBP_ONE_F_ONE_B, 1, 1, &seen);
    assert_int_equal(seen.sums, 0);
    assert_true(seen.in_line > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

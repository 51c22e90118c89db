/* Sums of gradients beside the backward pass in the lists of tasks: each once, behind all that is
 * added to its gradient, and nothing touches that, or the room in which it is on its way to shards,
 * before its sum is over. */
#include "costmodel/program/task.h"
#include "tests/support/step_bench.h"

/* The table is tied. */
static const char model[] =
    "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 4, \"hidden\": 48, \"heads\": 12,"
    "\"sequence\": 24, \"vocab\": 48, \"global_batch\": 24, \"precision\": \"fp32\", "
    "\"clip_norm\": 1.0}";

/* What was among the lists. */
struct seen {
    int sums, in_line, waits, within, rooms;
};

static bool touches(const struct sbp_instr *instr, int buffer)
{
    bool found = instr->kind == SBP_INSTR_NORM; /* of all gradients */
    for (int place = 0; place < SBP_INSTR_BUFFERS; place++)
        found |= instr->buffer[place] == buffer;
    return found;
}

/* Whether tasks work in one place of the arena that no weight, gradient or state has. */
static bool meet(const struct sbp_step *step, int stage, const struct sbp_stage_layout *layout,
                 const struct sbp_task *a, const struct sbp_task *b)
{
    const struct sbp_task *const task[] = {a, b};
    int64_t first[2][SBP_INSTR_BUFFERS], end[2][SBP_INSTR_BUFFERS];
    for (int side = 0; side < 2; side++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, task[side]->chunk);
        for (int k = 0; k < SBP_INSTR_BUFFERS; k++) {
            const int at = program->instr[task[side]->instr].buffer[k];
            first[side][k] = end[side][k] = 0;
            if (at < 0 || sbp_program_buffer_persists(&program->buffer[at]))
                continue;
            first[side][k] = sbp_stage_buffer_at(layout, task[side]->chunk, task[side]->micro_batch,
                                                 &program->buffer[at]);
            end[side][k] = first[side][k] + sbp_program_buffer_bytes(program, at);
        }
    }
    for (int i = 0; i < SBP_INSTR_BUFFERS; i++)
        for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
            if (first[0][i] < end[1][k] && first[1][k] < end[0][i])
                return true;
    return false;
}

/* Messages travel beside all else; who communicates with the stage's devices waits, so that there
 * is one order. */
static void check_later(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                        const struct sbp_stage_layout *layout, int64_t at, struct seen *seen)
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
        const bool room = !task->is_beside && !waited && meet(step, stage, layout, sum, task);
        waited |= task->after > at;
        if (task->is_beside)
            assert_int_equal(task->after, 0);
        else if (reads || calls || room)
            assert_true(waited);
        seen->waits += !task->is_beside && reads;
        seen->rooms += room && !calls;
    }
}

/* Whether an instruction is a sum that may go beside: the only one of its tensor. Those of each
 * micro-batch may but where arrivals order works. */
static bool is_sum(const struct sbp_step *step, int stage, const struct sbp_instr *instr)
{
    return (instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_SCATTER) &&
           instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && step->holders[instr->tensor] == 1 &&
           (instr->section == SBP_SECTION_STEP ||
            !sbp_timeline_is_driven(step->parallel.schedule, step->stages, stage));
}

/* Every sum of gradients, but of a tied one, is beside. */
static void check_list(const struct sbp_step *step, int stage, struct seen *seen)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_tasks tasks;
    struct sbp_stage_layout layout;
    if (sbp_tasks_make(step, stage, &arena, &tasks, &diag) != SBP_OK ||
        sbp_stage_layout_make(step, stage, &arena, &layout, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int64_t i = 0; i < tasks.count; i++) {
        const struct sbp_task *task = &tasks.task[i];
        const struct sbp_instr *instr = sbp_task_instr(step, stage, task);
        assert_int_equal(task->is_beside,
                         step->end[stage].sync_overlap > 0 && is_sum(step, stage, instr));
        seen->in_line += instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && !task->is_beside;
        if (!task->is_beside)
            continue;
        seen->sums++;
        seen->within += instr->section != SBP_SECTION_STEP;
        assert_true(task->work != SBP_WORK_UPDATE);
        check_later(step, stage, &tasks, &layout, i, seen);
    }
    sbp_arena_free(&arena);
}

static void check_step(int64_t pipeline, enum sbp_schedule schedule, double overlap, int zero,
                       struct seen *seen)
{
    struct bench b = {0};
    struct sbp_cluster cluster = flat(4);
    cluster.runtime.hidden[SBP_HIDES_GRADIENTS] = overlap;
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

/* Of ZeRO's levels the first sums whole gradients in their place, once a step, the others each
 * micro-batch's on its way to shards. */
static void test_shards(void **state)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE,
                                                  SBP_INTERLEAVED, SBP_MESSAGE_DRIVEN};
    (void)state;
    for (int zero = 1; zero <= 2; zero++)
        for (int i = 0; i < 5; i++) {
            struct seen seen = {0};
            check_step(2, schedules[i], 1, zero, &seen);
            check_step(1, SBP_ONE_F_ONE_B, 1, zero, &seen);
            assert_true(seen.sums > 0 && seen.in_line > 0);
            assert_int_equal(seen.within > 0, zero == 2);
            assert_int_equal(seen.rooms > 0, zero == 2);
        }
}

static void test_none(void **state)
{
    struct seen seen = {0};
    (void)state;
    for (int zero = 0; zero <= 3; zero++)
        check_step(2, SBP_ONE_F_ONE_B, 0, zero, &seen);
    assert_int_equal(seen.sums, 0);
    assert_true(seen.in_line > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

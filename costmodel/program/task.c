#include "costmodel/program/task.h"

#include <assert.h>

#include "base/math/numeric.h"

/* ---- frames -------------------------------------------------------------------------------- */

/* Which micro-batch has each frame; -1: none. */
struct frames {
    int *holder; /* (count) */
    int count;   /* one more than micro-batches */
    int used;    /* frames that were ever taken */
};

static int find_frame(const struct frames *frames, int micro_batch)
{
    int frame = 0;
    while (frames->holder[frame] != micro_batch) {
        frame++;
        assert(frame < frames->count);
    }
    return frame;
}

/* The lowest free one. */
static int take_frame(struct frames *frames, int micro_batch)
{
    const int frame = find_frame(frames, -1);
    frames->holder[frame] = micro_batch;
    frames->used = frame >= frames->used ? frame + 1 : frames->used;
    return frame;
}

/* A backward work is the last one that needs its frame. */
static int frame_of(struct frames *frames, struct sbp_timeline_work work)
{
    if (work.kind == SBP_WORK_FORWARD)
        return take_frame(frames, work.micro_batch);
    const int frame = find_frame(frames, work.micro_batch);
    frames->holder[frame] = -1;
    return frame;
}

/* ---- the list ------------------------------------------------------------------------------ */

/* The first instruction of the norm and the updates, which end a program. */
static int find_first_update(const struct sbp_program *program)
{
    int first = 0;
    while (first < program->instr_count && program->instr[first].kind != SBP_INSTR_NORM &&
           program->instr[first].kind != SBP_INSTR_UPDATE)
        first++;
    return first;
}

/* Whole gradients on their way to shards have their memory until their sum is over. */
static bool ends_unreduced(const struct sbp_program *program, const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_SCATTER && instr->buffer[SBP_AT_IN] >= 0 &&
           program->buffer[instr->buffer[SBP_AT_IN]].use == SBP_USE_UNREDUCED;
}

/* With several stages sums of gradients wait until the stage has gone back, and others need not
 * wait for them. */
static bool runs_once(const struct sbp_program *program, int first_update, int index)
{
    const struct sbp_instr *instr = &program->instr[index];
    const bool waits = program->parallel.pipeline > 1 && !ends_unreduced(program, instr);
    return instr->section == SBP_SECTION_STEP &&
           (program->scope.micro_batches > 1 || waits || index >= first_update);
}

static bool belongs(const struct sbp_program *program, int first_update, int index,
                    enum sbp_work_kind work)
{
    if (program->instr[index].section == SBP_SECTION_FORWARD)
        return work == SBP_WORK_FORWARD;
    return work == (runs_once(program, first_update, index) ? SBP_WORK_UPDATE : SBP_WORK_BACKWARD);
}

static void add_work(const struct sbp_program *program, enum sbp_work_kind work, int micro_batch,
                     int frame, struct sbp_tasks *tasks)
{
    const int64_t first = tasks->count;
    const int first_update = find_first_update(program);
    for (int i = 0; i < program->instr_count; i++)
        if (belongs(program, first_update, i, work))
            tasks->task[tasks->count++] = (struct sbp_task){
                .instr = i, .micro_batch = micro_batch, .frame = frame, .work = (uint8_t)work};
    if (tasks->count > first) {
        tasks->task[first].begins = true;
        tasks->task[tasks->count - 1].ends = true;
    }
}

static enum sbp_status add_works(const struct sbp_program *program,
                                 const struct sbp_timeline_work *work, int64_t count,
                                 struct sbp_arena *arena, struct sbp_tasks *tasks)
{
    const int64_t micro_batches = program->scope.micro_batches;
    struct frames frames = {.holder = SBP_NEW(arena, int, micro_batches + 1),
                            .count = (int)micro_batches + 1};
    if (frames.holder == NULL)
        return SBP_E_MEMORY;
    for (int64_t m = 0; m <= micro_batches; m++)
        frames.holder[m] = -1;
    for (int64_t i = 0; i < count; i++)
        add_work(program, (enum sbp_work_kind)work[i].kind, work[i].micro_batch,
                 frame_of(&frames, work[i]), tasks);
    add_work(program, SBP_WORK_UPDATE, (int)micro_batches - 1, 0, tasks);
    tasks->frames = frames.used;
    return SBP_OK;
}

enum sbp_status sbp_tasks_make(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                               struct sbp_tasks *tasks, struct sbp_diag *diag)
{
    const struct sbp_program *program = sbp_step_program(step, stage);
    const struct sbp_timeline_request request = {.schedule = step->parallel.schedule,
                                                 .stages = step->stages,
                                                 .micro_batches = (int)step->micro_batches,
                                                 .pipeline_limit =
                                                     (int)step->parallel.pipeline_limit};
    struct sbp_timeline_work *work;
    int64_t count, most;
    *tasks = (struct sbp_tasks){0};
    if (step->parallel.chunks > 1 || step->parallel.schedule == SBP_ZERO_BUBBLE)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "parallel: schedule: %s has no list of tasks, 1f1b and gpipe are legal",
                        sbp_timeline_schedule_name(step->parallel.schedule));
    SBP_TRY(sbp_timeline_works(&request, stage, arena, &work, &count, diag));
    if (!sbp_mul_i64(program->instr_count, step->micro_batches, &most) || most > INT32_MAX)
        return sbp_fail(diag, SBP_E_RANGE, "a step of %lld micro-batches has more than 2^31 tasks",
                        (long long)step->micro_batches);
    tasks->task = SBP_NEW(arena, struct sbp_task, most + 1);
    const enum sbp_status status =
        tasks->task == NULL ? SBP_E_MEMORY : add_works(program, work, count, arena, tasks);
    return status == SBP_OK ? status : sbp_fail(diag, status, "out of memory for a step's tasks");
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Calls of one instruction, which follow each other in the program's own list. */
static int calls_of(const struct sbp_call *calls, int count, int first)
{
    int end = first;
    while (end < count && calls[end].instr == calls[first].instr)
        end++;
    return end - first;
}

/* Index of the first call of each instruction; -1: it has none. */
static void find_first(const struct sbp_program *program, const struct sbp_call *calls, int count,
                       int *first)
{
    for (int i = 0; i < program->instr_count; i++)
        first[i] = -1;
    for (int c = count - 1; c >= 0; c--)
        first[calls[c].instr] = c;
}

enum sbp_status sbp_tasks_calls(const struct sbp_program *program, const struct sbp_tasks *tasks,
                                struct sbp_arena *arena, struct sbp_call **calls, int *count)
{
    struct sbp_call *once;
    int of_program;
    int64_t most;
    SBP_TRY(sbp_program_calls(program, arena, &once, &of_program));
    if (!sbp_mul_i64(of_program, program->scope.micro_batches, &most) || most > INT32_MAX)
        return SBP_E_RANGE;
    int *first = SBP_NEW(arena, int, program->instr_count + 1);
    *calls = SBP_NEW(arena, struct sbp_call, most + 1);
    if (first == NULL || *calls == NULL)
        return SBP_E_MEMORY;
    find_first(program, once, of_program, first);
    *count = 0;
    for (int64_t t = 0; t < tasks->count; t++) {
        const int at = first[tasks->task[t].instr];
        for (int k = 0; at >= 0 && k < calls_of(once, of_program, at); k++) {
            (*calls)[*count] = once[at + k];
            (*calls)[(*count)++].instr = (int)t;
        }
    }
    return SBP_OK;
}

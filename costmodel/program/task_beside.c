#include "costmodel/program/task_beside_priv.h"

#include <assert.h>

#include "costmodel/program/price.h"

/* ---- which go beside ------------------------------------------------------------------------ */

bool sbp_task_ends_unreduced(const struct sbp_program *program, const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_SCATTER && instr->buffer[SBP_AT_IN] >= 0 &&
           program->buffer[instr->buffer[SBP_AT_IN]].use == SBP_USE_UNREDUCED;
}

/* Whether an instruction alone sums a gradient: by an all-reduce in place, to shards or to an
 * owner. Ties have other sums, and paths several. sums: (tensors) of its gradient. */
static bool sums_alone(const struct sbp_instr *instr, const int *sums)
{
    const bool in_place = instr->kind == SBP_INSTR_BOX && instr->box.kind == SBP_ALL_REDUCE &&
                          instr->buffer[SBP_AT_IN] == instr->buffer[SBP_AT_OUT];
    return instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && sums[instr->tensor] == 1 &&
           (instr->kind == SBP_INSTR_SCATTER || in_place);
}

/* Whether the price lets a sum hide. Those of each micro-batch, which are a part of its pass, are
 * the trainer's profile's to say; where arrivals decide which work is next, nobody knows ahead who
 * is to wait for them. */
static bool may_hide(const struct sbp_step *step, int stage, const struct sbp_instr *instr)
{
    return instr->section == SBP_SECTION_STEP ||
           (sbp_price_hidden_share(&step->cluster.runtime, instr->section, instr->cause,
                                   SBP_OP_KINDS) > 0 &&
            !sbp_timeline_is_driven(step->parallel.schedule, step->stages, stage));
}

/* Updates wait for all sums: they follow in the order of tensors, in which the first one's gradient
 * is among the last to be summed. Who communicates with the stage's devices waits, so that there is
 * one order. */
static bool waits_for_all(const struct sbp_instr *instr, const struct sbp_task *task)
{
    return task->bucket > 0 || instr->kind == SBP_INSTR_NORM || instr->kind == SBP_INSTR_UPDATE ||
           (sbp_program_is_call(instr) && instr->kind != SBP_INSTR_SEND);
}

/* Whether collectives of a chunk's way back would wait for sums, and with them the stage before,
 * for which it has gradients: there sums lie better behind the passes, where the stage would idle.
 */
static bool would_be_late(const struct sbp_program *program, int stage, const bool *hides)
{
    const struct sbp_task plain = {.bucket = 0};
    bool late = false;
    for (int i = 0; i < program->instr_count && stage > 0; i++)
        late |= program->instr[i].section != SBP_SECTION_FORWARD &&
                program->instr[i].section != SBP_SECTION_STEP && !hides[i] &&
                waits_for_all(&program->instr[i], &plain);
    return late;
}

/* Gradients on their way to shards are summed within the pass in any case. */
static void mark(const struct sbp_step *step, int stage, const struct sbp_program *program,
                 const int *sums, bool *hides)
{
    for (int i = 0; i < program->instr_count; i++)
        hides[i] = sums_alone(&program->instr[i], sums) &&
                   sbp_task_ends_unreduced(program, &program->instr[i]) &&
                   may_hide(step, stage, &program->instr[i]);
    if (would_be_late(program, stage, hides))
        return;
    for (int i = 0; i < program->instr_count; i++)
        hides[i] |=
            sums_alone(&program->instr[i], sums) && may_hide(step, stage, &program->instr[i]);
}

enum sbp_status sbp_task_beside_find(const struct sbp_step *step, int stage, int chunk,
                                     struct sbp_arena *arena, bool **hides)
{
    const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
    int *const sums = SBP_NEW(arena, int, program->graph->tensor_count + 1);
    *hides = SBP_NEW(arena, bool, program->instr_count + 1);
    if (sums == NULL || *hides == NULL)
        return SBP_E_MEMORY;
    if (!(step->end[stage].sync_overlap > 0))
        return SBP_OK;
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].cause == SBP_CAUSE_WEIGHT_GRADIENT)
            sums[program->instr[i].tensor]++;
    mark(step, stage, program, sums, *hides);
    return SBP_OK;
}

/* ---- who waits ------------------------------------------------------------------------------ */

/* Bytes of the arena, from first to before end, that a sum works in. It has no more than these two
 * besides what persists: the whole gradient, and room for what comes to an owner. */
enum { MOST_STRETCHES = 2 };
struct stretch {
    int64_t first, end;
    int after; /* tasks up to the sum's own */
};

/* A list as far as it is linked. */
struct linker {
    const struct sbp_step *step;
    int stage;
    struct sbp_stage_layout layout;
    struct stretch *stretch; /* first .. count: of sums that nobody waited for so far */
    int64_t first, count;
    int last, waited; /* tasks up to the last sum, to the last one that somebody waited for */
};

static struct stretch stretch_of(const struct linker *l, const struct sbp_task *task, int buffer)
{
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, task->chunk);
    const int64_t frame = sbp_stage_frame(&l->layout, task->chunk, 0, task->micro_batch);
    const int64_t first =
        sbp_stage_buffer_at(&l->layout, task->chunk, frame, &program->buffer[buffer]);
    return (struct stretch){first, first + sbp_program_buffer_bytes(program, buffer), l->last};
}

/* Gradients and their shards are the lane's own until all tasks wait. */
static void add_sum(struct linker *l, const struct sbp_task *task, int64_t index)
{
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, task->chunk);
    const struct sbp_instr *instr = &program->instr[task->instr];
    const int64_t begin = l->count;
    l->last = (int)index + 1;
    for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
        if (instr->buffer[k] >= 0 &&
            !sbp_program_buffer_persists(&program->buffer[instr->buffer[k]])) {
            assert(l->count < begin + MOST_STRETCHES);
            l->stretch[l->count++] = stretch_of(l, task, instr->buffer[k]);
        }
}

/* The last sum, of those that nobody waited for, that works where a buffer lies; 0: none. */
static int reaches(const struct linker *l, const struct sbp_task *task, int buffer)
{
    if (buffer < 0)
        return 0;
    const struct stretch own = stretch_of(l, task, buffer);
    int64_t i = l->count - 1;
    while (i >= l->first && (l->stretch[i].first >= own.end || own.first >= l->stretch[i].end))
        i--;
    return i < l->first ? 0 : l->stretch[i].after;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* A forward work begins with its tables, whoever reads them. */
static int touches(const struct linker *l, const struct sbp_task *task)
{
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, task->chunk);
    int after = 0;
    if (l->first == l->count)
        return 0;
    for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
        after = most(after, reaches(l, task, program->instr[task->instr].buffer[k]));
    if (!task->begins || task->work != SBP_WORK_FORWARD)
        return after;
    for (int op = 0; op < program->graph->op_count; op++)
        after = most(after, most(reaches(l, task, program->ids_buffer[op]),
                                 reaches(l, task, program->positions_buffer[op])));
    return most(after, reaches(l, task, program->labels_buffer));
}

/* The list goes on behind a task that waits, so that a wait that is lost leaves a sum without one.
 */
static void link_task(struct linker *l, struct sbp_task *task)
{
    const struct sbp_instr *instr = sbp_task_instr(l->step, l->stage, task);
    const int after = waits_for_all(instr, task) ? l->last : touches(l, task);
    if (after <= l->waited)
        return;
    task->after = l->waited = after;
    while (l->first < l->count && l->stretch[l->first].after <= after)
        l->first++;
}

enum sbp_status sbp_task_beside_link(const struct sbp_step *step, int stage,
                                     struct sbp_tasks *tasks, struct sbp_arena *scratch,
                                     struct sbp_diag *diag)
{
    struct linker l = {.step = step, .stage = stage};
    int64_t sums = 0;
    for (int64_t i = 0; i < tasks->count; i++)
        sums += tasks->task[i].is_beside;
    if (sums == 0)
        return SBP_OK;
    SBP_TRY(sbp_stage_layout_make(step, stage, scratch, &l.layout, diag));
    l.stretch = SBP_NEW(scratch, struct stretch, MOST_STRETCHES * sums);
    if (l.stretch == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < tasks->count; i++)
        if (tasks->task[i].is_beside)
            add_sum(&l, &tasks->task[i], i);
        else
            link_task(&l, &tasks->task[i]);
    return SBP_OK;
}

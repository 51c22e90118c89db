#include "costmodel/program/task.h"

#include "base/math/numeric.h"

static bool runs_once(const struct sbp_program *program, const struct sbp_instr *instr)
{
    return instr->section == SBP_SECTION_STEP && program->scope.micro_batches > 1;
}

static void add(const struct sbp_program *program, bool once, int64_t micro_batch,
                struct sbp_tasks *tasks)
{
    for (int i = 0; i < program->instr_count; i++)
        if (runs_once(program, &program->instr[i]) == once)
            tasks->task[tasks->count++] = (struct sbp_task){i, (int)micro_batch};
}

enum sbp_status sbp_tasks_make(const struct sbp_program *program, struct sbp_arena *arena,
                               struct sbp_tasks *tasks)
{
    const int64_t micro_batches = program->scope.micro_batches;
    int64_t most;
    *tasks = (struct sbp_tasks){0};
    if (!sbp_mul_i64(program->instr_count, micro_batches, &most) || most > INT32_MAX)
        return SBP_E_RANGE;
    tasks->task = SBP_NEW(arena, struct sbp_task, most + 1);
    if (tasks->task == NULL)
        return SBP_E_MEMORY;
    for (int64_t m = 0; m < micro_batches; m++)
        add(program, false, m, tasks);
    add(program, true, micro_batches - 1, tasks);
    return SBP_OK;
}

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

#include "executor/task_name.h"

#include <stdio.h>
#include <string.h>

static void name_instr(const struct sbp_program *program, const struct sbp_instr *instr, char *name,
                       int size)
{
    const bool collective = instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_REDUCE;
    const char *of = instr->tensor >= 0 ? program->graph->tensor[instr->tensor].name
                     : instr->op >= 0   ? program->graph->op[instr->op].name
                                        : "";
    const char *what =
        collective ? sbp_collective_name(instr->box.kind) : sbp_program_instr_name(instr->kind);
    if (instr->phase > 0)
        (void)snprintf(name, (size_t)size, "%s %s.%d", what, of, instr->phase);
    else
        (void)snprintf(name, (size_t)size, "%s%s%s", what, of[0] == '\0' ? "" : " ", of);
}

void sbp_task_name(const struct sbp_program *program, const struct sbp_task *task, char *name,
                   int size)
{
    name_instr(program, &program->instr[task->instr], name, size);
    const size_t used = strlen(name);
    if (program->scope.micro_batches > 1 && (int)used < size && task->work != SBP_WORK_UPDATE)
        (void)snprintf(name + used, (size_t)size - used, " [%d]", task->micro_batch);
}

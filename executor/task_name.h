/* What a task is called, in traces and in messages: "backward h1.mlp.fc1 [3]". */
#ifndef SBP_EXECUTOR_TASK_NAME_H
#define SBP_EXECUTOR_TASK_NAME_H

#include "costmodel/program/task.h"

/* Its instruction, the tensor or operator, and its micro-batch where there are several. */
void sbp_task_name(const struct sbp_program *program, const struct sbp_task *task, char *name,
                   int size);

#endif

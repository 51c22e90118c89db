/* The work of a step, instruction by instruction: a program unrolled over its micro-batches.
 *
 * A program stands for one micro-batch. Its instructions run for every micro-batch, one micro-batch
 * after the other, but for those of the section `step`, which follow the last one. With a single
 * micro-batch all run in the program's order. The list is what the executor plays, logs and times,
 * and what its predictions are sums over.
 */
#ifndef SBP_COSTMODEL_PROGRAM_TASK_H
#define SBP_COSTMODEL_PROGRAM_TASK_H

#include "costmodel/program/program.h"

struct sbp_task {
    int instr;       /* of the program */
    int micro_batch; /* of the step; the last one for what runs once a step */
};

struct sbp_tasks {
    struct sbp_task *task;
    int64_t count;
};

/* The array is the arena's. E_RANGE where there are more than INT32_MAX; E_MEMORY. */
enum sbp_status sbp_tasks_make(const struct sbp_program *program, struct sbp_arena *arena,
                               struct sbp_tasks *tasks) SBP_MUST_USE;
/* Calls of the step in order, whose `instr` are tasks; *calls is the arena's. E_RANGE, E_MEMORY. */
enum sbp_status sbp_tasks_calls(const struct sbp_program *program, const struct sbp_tasks *tasks,
                                struct sbp_arena *arena, struct sbp_call **calls,
                                int *count) SBP_MUST_USE;

#endif

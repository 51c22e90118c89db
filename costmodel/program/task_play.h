/* Plays the tasks of all stages with given times: when each begins and ends, and how long the step
 * takes.
 *
 * A stage does one task after the other, in the order of its list or, where arrivals decide, as
 * they do: of the works whose message is there the backward one, else the first to be there. A
 * message leaves when the tasks before it are done and travels beside those behind it, on a link a
 * direction that carries one message after the other; who receives it waits. Sums of gradients
 * beside the backward pass, or the optimizer, follow each other likewise, and tasks wait for those
 * that they need (task.h). Stages that sum together wait for the last of them. Played
 * with prices that is the step that a run predicts, with measured times the step that ranks with a
 * core each would have taken. Where nothing hides and no stages sum together, that is the
 * timeline's makespan, which does not wait for sums over stages. Without a flush steps follow each
 * other until they take equally long (else, of many, their mean). Lists that wait for each other
 * for ever are found, and the task is named.
 */
#ifndef SBP_COSTMODEL_PROGRAM_TASK_PLAY_H
#define SBP_COSTMODEL_PROGRAM_TASK_PLAY_H

#include "costmodel/program/task.h"

struct sbp_play {
    double **begin_s; /* (stages, tasks) */
    double **end_s;   /* likewise; of a message when it is there, of its receipt when it was waited
                         for; without a flush of the last step played, since its first task;
                         of a task that is not in that step (task.h, phases) NaN */
    double step_s;    /* without a flush: from step to step */
};

/* Lengths of all tasks, (stages, tasks): what they compute for (NULL: by their prices), and the
 * prices of communication. The arena's; NULL when memory is out. */
double **sbp_tasks_lengths(const struct sbp_step *step, const struct sbp_tasks *tasks,
                           double *const *compute_s, struct sbp_arena *arena);

/* length_s: (stages, tasks) of each task, of a message on its way. Arrays are the arena's.
 * E_INTERNAL: stages wait for each other; E_MEMORY. */
enum sbp_status sbp_tasks_play(const struct sbp_step *step, const struct sbp_tasks *tasks,
                               double *const *length_s, struct sbp_arena *arena,
                               struct sbp_play *play, struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* Draws a step as a timeline (base/json/trace.h): a process for each device that is drawn.
 *
 * A process has lanes for computing, collectives, messages each way, receipts and copies to the
 * host, and two counters: bytes in use, and micro-batches in flight. The lanes and what stands in
 * them have the same names whether times are predicted or measured, so that both can be compared.
 * Works ("forward [3]": micro-batch 3, from 0) stand above the tasks that they consist of. Bytes
 * are those of what persists, of the frames of micro-batches in flight, and of what a work needs
 * besides; their most is the step's memory (struct sbp_stage_memory) but for gaps between frames.
 */
#ifndef SBP_COSTMODEL_PROGRAM_STEP_TRACE_H
#define SBP_COSTMODEL_PROGRAM_STEP_TRACE_H

#include "base/json/trace.h"
#include "costmodel/program/task_play.h"

/* Events of a file, about: 30 MB. Beyond, fewer devices are drawn. */
#define SBP_STEP_TRACE_MOST_EVENTS 250000

struct sbp_task_time {
    double begin_s, end_s;
    double compute_s, communication_s; /* parts of it */
};

/* Times of a stage's tasks as they were played; compute_s: (tasks) what they computed for, NULL: by
 * prices. */
void sbp_step_trace_played(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                           const struct sbp_play *play, const double *compute_s,
                           struct sbp_task_time *time);

/* A process of one device of a stage, task by task; time: (tasks). Sends that are under way at the
 * same time are those to the next and to the previous stage; all other tasks follow each other. */
void sbp_step_trace_tasks(struct sbp_trace *trace, int pid, const char *process,
                          const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                          const struct sbp_task_time *time);

/* Processes "predicted, stage S", from pid 1, of the timeline of a step that was made with
 * `record`, work by work; of `stages` of them, spread evenly, the first and the last among them. */
void sbp_step_trace_works(struct sbp_trace *trace, const struct sbp_step *step, int stages);
/* How many stages sbp_step_trace_works can draw within the most events; 0: not even one. */
int sbp_step_trace_stages(const struct sbp_step *step);
/* "predicted", with the stage where there are several; returns buffer. */
#define SBP_STEP_TRACE_NAME_BYTES 64
const char *sbp_step_trace_name(const struct sbp_step *step, const char *what, int stage,
                                char *buffer);

#endif

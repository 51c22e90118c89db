/* Two times to compare a run with: the step by its prices, and by the arithmetic it measured.
 *
 * Ranks that share cores take turns, so that their wall time says nothing about a plan. The tasks
 * of all stages are played instead (costmodel/program/task_play.h): with their prices, or with the
 * arithmetic that ranks measured and the prices of communication.
 */
#ifndef SBP_EXECUTOR_RUN_RUN_TIMES_H
#define SBP_EXECUTOR_RUN_RUN_TIMES_H

#include "costmodel/program/task_play.h"

/* The step as it was played. Exposed communication and bubble are means of stages, as in struct
 * sbp_step_totals: a step is mean computing, what is exposed, and the bubble; collectives within
 * passes, which are not played beside them, are all exposed. */
struct sbp_run_prediction {
    double step_s;
    double compute_s, communication_s; /* the most of a stage */
    double exposed_s, bubble_s;
    struct sbp_play play;
};

/* By prices. Arrays are the arena's. Fail as sbp_tasks_play. */
enum sbp_status sbp_run_predict(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                struct sbp_arena *arena, struct sbp_run_prediction *prediction,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* By what tasks computed for, compute_s: (stages, tasks), and by the prices of communication. */
enum sbp_status sbp_run_replay(const struct sbp_step *step, const struct sbp_tasks *tasks,
                               double *const *compute_s, struct sbp_arena *arena,
                               struct sbp_run_prediction *replay,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif

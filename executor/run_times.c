#include "executor/run_times.h"

#include <math.h>

/* Lengths of all tasks: (stages, tasks), the arena's; NULL when memory is out. compute_s: what they
 * compute for; NULL: by their prices. */
static double **lengths_of(const struct sbp_step *step, const struct sbp_tasks *tasks,
                           double *const *compute_s, struct sbp_arena *arena)
{
    double **length_s = SBP_NEW(arena, double *, step->stages);
    for (int stage = 0; length_s != NULL && stage < step->stages; stage++) {
        length_s[stage] = SBP_NEW(arena, double, tasks[stage].count + 1);
        if (length_s[stage] == NULL)
            return NULL;
        for (int64_t i = 0; i < tasks[stage].count; i++) {
            const struct sbp_instr *instr = sbp_task_instr(step, stage, &tasks[stage].task[i]);
            length_s[stage][i] = instr->communication_s +
                                 (compute_s == NULL ? instr->compute_s : compute_s[stage][i]);
        }
    }
    return length_s;
}

static enum sbp_status play(const struct sbp_step *step, const struct sbp_tasks *tasks,
                            double *const *compute_s, struct sbp_arena *arena,
                            struct sbp_play *played, struct sbp_diag *diag)
{
    double **length_s = lengths_of(step, tasks, compute_s, arena);
    return length_s == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory for the times of a step")
                            : sbp_tasks_play(step, tasks, length_s, arena, played, diag);
}

/* Arithmetic and communication of a stage in a step. */
static void add_stage(const struct sbp_step *step, const struct sbp_tasks *tasks, int stage,
                      struct sbp_run_prediction *prediction)
{
    double compute_s = 0, communication_s = 0;
    for (int64_t i = 0; i < tasks[stage].count; i++) {
        const struct sbp_instr *instr = sbp_task_instr(step, stage, &tasks[stage].task[i]);
        compute_s += instr->compute_s;
        communication_s += instr->communication_s;
    }
    prediction->compute_s = fmax(prediction->compute_s, compute_s);
    prediction->communication_s = fmax(prediction->communication_s, communication_s);
}

enum sbp_status sbp_run_predict(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                struct sbp_arena *arena, struct sbp_run_prediction *prediction,
                                struct sbp_diag *diag)
{
    *prediction = (struct sbp_run_prediction){0};
    for (int stage = 0; stage < step->stages; stage++)
        add_stage(step, tasks, stage, prediction);
    SBP_TRY(play(step, tasks, NULL, arena, &prediction->play, diag));
    prediction->step_s = prediction->play.step_s;
    return SBP_OK;
}

enum sbp_status sbp_run_replay(const struct sbp_step *step, const struct sbp_tasks *tasks,
                               double *const *compute_s, struct sbp_arena *arena, double *step_s,
                               struct sbp_diag *diag)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    struct sbp_play played;
    const enum sbp_status status = play(step, tasks, compute_s, arena, &played, diag);
    *step_s = played.step_s;
    sbp_arena_release(arena, mark);
    return status;
}

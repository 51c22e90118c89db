#include "executor/run/run_times.h"

#include <math.h>

/* A time this small beside the step is rounding. */
static const double ROUNDING = 1e-12;

/* Sums over the stages of a step. */
struct sums {
    double compute_s, communication_s;
    double beside_s; /* messages and sums of gradients, which others run beside */
};

static bool others_run_beside(const struct sbp_instr *instr)
{
    return instr->cause == SBP_CAUSE_STAGE || instr->kind == SBP_INSTR_PASS ||
           (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && instr->section == SBP_SECTION_STEP);
}

/* compute_s: (tasks), NULL: by prices. */
static void add_stage(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                      const double *compute_s, struct sums *sums,
                      struct sbp_run_prediction *prediction)
{
    double computed_s = 0, communicated_s = 0;
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_instr *instr = sbp_task_instr(step, stage, &tasks->task[i]);
        const struct sbp_task_price price = sbp_task_price(step, stage, &tasks->task[i]);
        computed_s += compute_s == NULL ? price.compute_s : compute_s[i];
        communicated_s += price.communication_s;
        sums->beside_s +=
            others_run_beside(instr) ? price.communication_s / sbp_tasks_steps(tasks) : 0;
    }
    computed_s /= sbp_tasks_steps(tasks); /* of a step, in the mean */
    communicated_s /= sbp_tasks_steps(tasks);
    sums->compute_s += computed_s;
    sums->communication_s += communicated_s;
    prediction->compute_s = fmax(prediction->compute_s, computed_s);
    prediction->communication_s = fmax(prediction->communication_s, communicated_s);
}

/* Takes from the lengths of tasks what others run beside. */
static void free_beside(const struct sbp_step *step, const struct sbp_tasks *tasks,
                        double *const *length_s)
{
    for (int stage = 0; stage < step->stages; stage++)
        for (int64_t i = 0; i < tasks[stage].count; i++) {
            const struct sbp_instr *instr = sbp_task_instr(step, stage, &tasks[stage].task[i]);
            const struct sbp_task_price price = sbp_task_price(step, stage, &tasks[stage].task[i]);
            length_s[stage][i] -= others_run_beside(instr) ? price.communication_s : 0;
        }
}

/* Seconds of the step with messages and sums of gradients that take no time. */
static enum sbp_status play_free(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                 double *const *length_s, struct sbp_arena *arena, double *free_s,
                                 struct sbp_diag *diag)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    struct sbp_play played;
    free_beside(step, tasks, length_s);
    const enum sbp_status status = sbp_tasks_play(step, tasks, length_s, arena, &played, diag);
    sbp_arena_release(arena, mark);
    *free_s = played.step_s;
    return status;
}

static void expose(int stages, const struct sums *sums, double free_s,
                   struct sbp_run_prediction *prediction)
{
    const double step_s = prediction->step_s, communication_s = sums->communication_s / stages;
    const double beside_s = step_s - free_s > ROUNDING * step_s ? step_s - free_s : 0;
    prediction->exposed_s =
        fmin(communication_s - sums->beside_s / stages + beside_s, communication_s);
    const double idle_s = step_s - sums->compute_s / stages - prediction->exposed_s;
    prediction->bubble_s = idle_s > ROUNDING * step_s ? idle_s : 0;
}

enum sbp_status sbp_run_replay(const struct sbp_step *step, const struct sbp_tasks *tasks,
                               double *const *compute_s, struct sbp_arena *arena,
                               struct sbp_run_prediction *replay, struct sbp_diag *diag)
{
    struct sums sums = {0};
    double free_s;
    *replay = (struct sbp_run_prediction){0};
    for (int stage = 0; stage < step->stages; stage++)
        add_stage(step, stage, &tasks[stage], compute_s == NULL ? NULL : compute_s[stage], &sums,
                  replay);
    double **length_s = sbp_tasks_lengths(step, tasks, compute_s, arena);
    if (length_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the times of a step");
    SBP_TRY(sbp_tasks_play(step, tasks, length_s, arena, &replay->play, diag));
    replay->step_s = replay->play.step_s;
    SBP_TRY(play_free(step, tasks, length_s, arena, &free_s, diag));
    expose(step->stages, &sums, free_s, replay);
    return SBP_OK;
}

enum sbp_status sbp_run_predict(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                struct sbp_arena *arena, struct sbp_run_prediction *prediction,
                                struct sbp_diag *diag)
{
    return sbp_run_replay(step, tasks, NULL, arena, prediction, diag);
}

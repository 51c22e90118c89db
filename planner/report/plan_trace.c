#include "planner/report/plan_trace.h"

#include <math.h>

#include "costmodel/program/step_trace.h"

/* Works of a step that are recorded at most: 200 MB while it is drawn. */
#define MOST_WORKS ((int64_t)1 << 20)
/* Stages that sum gradients of a shared weight wait for each other; only tasks count that (2.4 % of
 * a step of tiny-gpt in 4 stages). Where the step hides communication, they differ by more. */
static const double MOST_APART = 0.05;

static enum sbp_status make_step(const struct sbp_plan *plan, struct sbp_step *step,
                                 struct sbp_diag *diag)
{
    const struct sbp_cut *cut = &plan->cut;
    const int64_t works = sbp_parallel_micro_batches(&cut->parallel, &cut->graph) *
                          sbp_parallel_groups(&cut->parallel) * cut->parallel.chunks;
    if (works > MOST_WORKS)
        return sbp_fail(diag, SBP_E_INPUT,
                        "sbplan explain: --trace: the step has %lld micro-batches x pieces, at "
                        "most %lld can be drawn",
                        (long long)works, (long long)MOST_WORKS);
    return sbp_cut_named_step(cut, &plan->strategy, true, step, diag);
}

/* ---- by tasks ------------------------------------------------------------------------------ */

/* The executor's tasks of a step, played with their prices. */
struct played {
    struct sbp_arena arena;
    struct sbp_tasks *tasks; /* (stages) */
    struct sbp_play play;
};

static bool has_too_many(const struct sbp_step *step)
{
    double most = 0;
    for (int piece = 0; piece < step->pieces; piece++)
        most += (double)sbp_step_program(step, piece)->instr_count * (double)step->micro_batches;
    return most > SBP_STEP_TRACE_MOST_EVENTS;
}

/* Lists and plays the tasks; SBP_NO: they are not this step, or too many, or steps have neither
 * begin nor end, of which the simulated ones show more. */
static enum sbp_status play(const struct sbp_step *step, struct played *played)
{
    struct sbp_diag unsaid = {0};
    if (has_too_many(step) || sbp_timeline_delays_gradients(step->parallel.schedule))
        return SBP_NO;
    played->tasks = SBP_NEW(&played->arena, struct sbp_tasks, step->stages);
    if (played->tasks == NULL)
        return SBP_E_MEMORY;
    for (int stage = 0; stage < step->stages; stage++) {
        const enum sbp_status status =
            sbp_tasks_make(step, stage, &played->arena, &played->tasks[stage], &unsaid);
        if (status != SBP_OK)
            return status == SBP_E_MEMORY ? status : SBP_NO;
    }
    double **length_s = sbp_tasks_lengths(step, played->tasks, NULL, &played->arena);
    if (length_s == NULL)
        return SBP_E_MEMORY;
    const enum sbp_status status =
        sbp_tasks_play(step, played->tasks, length_s, &played->arena, &played->play, &unsaid);
    const double step_s = step->totals.step_s;
    const bool close = fabs(played->play.step_s - step_s) <= MOST_APART * step_s;
    return status == SBP_E_MEMORY ? status : status == SBP_OK && close ? SBP_OK : SBP_NO;
}

static enum sbp_status draw_stage(struct sbp_trace *trace, const struct sbp_step *step,
                                  struct played *played, int stage)
{
    const struct sbp_tasks *tasks = &played->tasks[stage];
    struct sbp_task_time *time = SBP_NEW(&played->arena, struct sbp_task_time, tasks->count);
    char name[SBP_STEP_TRACE_NAME_BYTES];
    if (time == NULL)
        return SBP_E_MEMORY;
    sbp_step_trace_played(step, stage, tasks, &played->play, NULL, time);
    sbp_step_trace_tasks(trace, stage + 1, sbp_step_trace_name(step, "predicted", stage, name),
                         step, stage, tasks, time);
    return SBP_OK;
}

/* SBP_NO as play. */
static enum sbp_status draw_tasks(struct sbp_trace *trace, const struct sbp_step *step)
{
    struct played played = {0};
    enum sbp_status status = play(step, &played);
    for (int stage = 0; status == SBP_OK && stage < step->stages; stage++)
        status = draw_stage(trace, step, &played, stage);
    sbp_arena_free(&played.arena);
    return status;
}

/* ---- either -------------------------------------------------------------------------------- */

static enum sbp_status draw(struct sbp_trace *trace, const struct sbp_step *step,
                            struct sbp_plan_trace *drawn, struct sbp_diag *diag)
{
    const enum sbp_status status = draw_tasks(trace, step);
    *drawn = (struct sbp_plan_trace){.by_tasks = status == SBP_OK, .stages = step->stages};
    if (status < 0)
        return sbp_fail(diag, status, "out of memory for the timeline of a step");
    if (status == SBP_OK)
        return SBP_OK;
    drawn->stages = sbp_step_trace_stages(step);
    if (drawn->stages == 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "sbplan explain: --trace: a stage of %lld micro-batches makes a file of "
                        "more than %d events, which is not written",
                        (long long)step->micro_batches, SBP_STEP_TRACE_MOST_EVENTS);
    sbp_step_trace_works(trace, step, drawn->stages);
    return SBP_OK;
}

enum sbp_status sbp_plan_trace_draw(const struct sbp_plan *plan, struct sbp_trace *trace,
                                    struct sbp_plan_trace *drawn, struct sbp_diag *diag)
{
    struct sbp_step step;
    SBP_TRY(make_step(plan, &step, diag));
    const enum sbp_status status = draw(trace, &step, drawn, diag);
    sbp_step_free(&step);
    return status;
}

enum sbp_status sbp_plan_trace_write(const struct sbp_plan *plan, const char *path,
                                     struct sbp_plan_trace *drawn, struct sbp_diag *diag)
{
    struct sbp_trace trace = {0};
    const enum sbp_status status = sbp_plan_trace_draw(plan, &trace, drawn, diag);
    if (status == SBP_OK)
        return sbp_trace_write(&trace, path, diag);
    sbp_trace_free(&trace);
    return status;
}

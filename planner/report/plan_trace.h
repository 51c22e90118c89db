/* Draws the step that a plan predicts as a timeline for Perfetto and chrome://tracing.
 *
 * Task by task where the executor's list of tasks, played with its prices, takes as long as the
 * step does, within 5 %, and the file stays small: then names are those of `sbplan run --trace`.
 * Else work by work, as the schedule was simulated: where communication hides, under other
 * schedules, with offload, for large steps.
 */
#ifndef SBP_PLANNER_REPORT_PLAN_TRACE_H
#define SBP_PLANNER_REPORT_PLAN_TRACE_H

#include "base/json/trace.h"
#include "planner/plan/plan.h"

struct sbp_plan_trace {
    bool by_tasks;
    int stages; /* that are drawn, spread evenly over all */
};

/* Adds the events to a trace, or hands them to its sink. E_MEMORY; E_INPUT as below. */
enum sbp_status sbp_plan_trace_draw(const struct sbp_plan *plan, struct sbp_trace *trace,
                                    struct sbp_plan_trace *drawn,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* Writes the file; E_IO, E_MEMORY; E_INPUT: the step has more works than can be drawn. */
enum sbp_status sbp_plan_trace_write(const struct sbp_plan *plan, const char *path,
                                     struct sbp_plan_trace *drawn,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif

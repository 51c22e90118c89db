/* Compiles the strategy of a plan of one stage and one micro-batch, in the model's own precision.
 */
#ifndef SBP_TESTS_SUPPORT_COMPILE_PLAN_H
#define SBP_TESTS_SUPPORT_COMPILE_PLAN_H

#include "costmodel/program/program.h"
#include "planner/plan/plan.h"

static inline enum sbp_status compile_plan(const struct sbp_plan *plan, struct sbp_program *program,
                                           struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&plan->cut.graph.precision);
    return sbp_program_make(&plan->cut.graph, &plan->cut.stage, &plan->cut.mesh, &plan->strategy,
                            &bytes, program, diag);
}

#endif

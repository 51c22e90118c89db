#include "planner/solvers/solver_run.h"

enum sbp_status sbp_ilp_solve(const struct sbp_problem *problem,
                              const struct sbp_solver_options *options,
                              struct sbp_solution *solution, struct sbp_diag *diag)
{
    (void)problem;
    (void)options;
    *solution = (struct sbp_solution){0};
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "ilp: this build has no GLPK (configure with -Dglpk=enabled); use exact or "
                    "coordinate-descent");
}

/* Times the solvers on the perceptron's chain of 4 variables with 91 values each: 68.6 million
 * assignments. Prints one row a solver; nothing is checked but that a choice was found. */
#include <inttypes.h>
#include <stdio.h>

#include "../oracle/perceptron.h"
#include "base/text.h"
#include "planner/solver.h"

enum { REPETITIONS = 3 };

/* The fastest of a few runs; evaluations and cost are the same in each. */
static enum sbp_status time_solver(const struct sbp_solver *solver,
                                   const struct sbp_problem *problem, struct sbp_table *table)
{
    const struct sbp_solver_options options = {.seed = 0};
    double best_s = 0, cost = 0;
    int64_t evaluations = 0;
    enum sbp_plan_status answer = SBP_PLAN_TIME_LIMIT;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        struct sbp_solution solution;
        struct sbp_diag diag = {0};
        const enum sbp_status status = solver->solve(problem, &options, &solution, &diag);
        if (status != SBP_OK) {
            fprintf(stderr, "%s: %s\n", solver->name, diag.text);
            return status;
        }
        if (repetition == 0 || solution.wall_s < best_s)
            best_s = solution.wall_s;
        cost = solution.cost;
        evaluations = solution.evaluations;
        answer = solution.status;
        sbp_solution_free(&solution);
    }
    sbp_table_cell(table, "%s", solver->name);
    sbp_table_cell(table, "%s", sbp_plan_status_name(answer));
    sbp_table_cell(table, "%.7f", cost * 1e3);
    sbp_table_cell(table, "%.2f", best_s * 1e3);
    sbp_table_cell(table, "%" PRId64, evaluations);
    sbp_table_cell(table, "%.3g", (double)evaluations / best_s);
    return SBP_OK;
}

int main(void)
{
    static const char *const names[] = {"exhaustive", "exact", "coordinate-descent",
                                        "metropolis-hastings"};
    static const char *const titles[] = {"solver",    "status",      "cost (ms)",
                                         "time (ms)", "evaluations", "evaluations/s"};
    struct sbp_problem problem;
    struct sbp_table table;
    sbp_table_init(&table, 6, titles);
    enum sbp_status status = perceptron_build(&problem, 12, 1024);
    for (size_t i = 0; status == SBP_OK && i < sizeof names / sizeof *names; i++)
        status = time_solver(sbp_solver_find(names[i]), &problem, &table);
    if (status == SBP_OK) {
        printf("perceptron 32768-16384-4096-2048-512 on 4096 devices, one core:\n");
        status = sbp_table_print(&table, stdout, 0);
    }
    sbp_table_free(&table);
    sbp_problem_free(&problem);
    return sbp_status_exit_code(status);
}

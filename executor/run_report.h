/* Reports how a run of a plan went. Input: the plan's step, the options and the
 * result of the run. Output: text for people or JSON for programs on standard output, and a
 * timeline of the step as a file. */
#ifndef SBP_EXECUTOR_RUN_REPORT_H
#define SBP_EXECUTOR_RUN_REPORT_H

#include "executor/run.h"

struct sbp_run_report {
    const char *plan; /* its file */
    const struct sbp_step *step;
    const struct sbp_run_options *options;
    const struct sbp_run_result *result;
    enum sbp_real plan_real;       /* that the plan's bytes are for */
    const struct sbp_graph *whole; /* the plan's model, where a smaller one ran in its stead */
};

/* The first step, from 1, whose loss or norm of gradients is no finite number, but for steps that
 * loss scaling left out; 0: none. *what,
 * where not NULL, becomes its name. A model without a loss, or without clipping, has none. */
int sbp_run_odd_step(const struct sbp_run_report *report, const char **what);
/* Text on stdout; one JSON object on stdout. E_IO, E_MEMORY. */
enum sbp_status sbp_run_print(const struct sbp_run_report *report,
                              struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_run_print_json(const struct sbp_run_report *report,
                                   struct sbp_diag *diag) SBP_MUST_USE;
/* Chrome's trace format: the predicted intervals of a step, and every rank's measured ones of the
 * last step, under the same names. */
enum sbp_status sbp_run_write_trace(const struct sbp_run_report *report, const char *path,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

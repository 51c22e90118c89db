/* Reports how a run of a plan went. Input: the plan's step, the options and the
 * result of the run. Output: text for people or JSON for programs on standard output, and a
 * timeline of the step as a file. */
#ifndef SBP_EXECUTOR_RUN_REPORT_H
#define SBP_EXECUTOR_RUN_REPORT_H

#include "base/table.h"
#include "executor/run/run.h"

struct sbp_run_report {
    const char *plan; /* its file */
    const struct sbp_step *step;
    const struct sbp_run_options *options;
    const struct sbp_run_result *result;
    enum sbp_real plan_real;       /* that the plan's bytes are for */
    const struct sbp_graph *whole; /* the plan's model, where a smaller one ran in its stead */
};

/* The table of steps, which comes row by row. Zeroed before the first call. */
struct sbp_run_rows {
    struct sbp_table table;
    int printed; /* steps */
};

/* Text on stdout: what runs, header and prediction before the first step (steps is 0); then a row
 * for each step that is finished, flushed. E_IO, E_MEMORY. */
enum sbp_status sbp_run_print_rows(struct sbp_run_rows *rows, const struct sbp_run_report *report,
                                   int steps, struct sbp_diag *diag) SBP_MUST_USE;
/* The end of the text, below the rows. E_IO. */
enum sbp_status sbp_run_print_end(const struct sbp_run_report *report,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* One JSON object on stdout, of so many finished steps; stopped: why there are no more than these,
 * or NULL. E_IO, E_MEMORY. */
enum sbp_status sbp_run_print_json(const struct sbp_run_report *report, int steps,
                                   const char *stopped, struct sbp_diag *diag) SBP_MUST_USE;
/* A timeline (costmodel/program/step_trace.h) of each stage as predicted, of each rank as measured
 * in the last step, of one rank a stage where they are too many, and, where ranks share cores, of
 * each stage as replayed. */
enum sbp_status sbp_run_write_trace(const struct sbp_run_report *report, const char *path,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

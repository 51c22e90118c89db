/* A table of training runs that a user measured, as CSV: one line of names, one line a run.
 *
 * Names are the columns of a set of runs (planner/validate/run_set.h). Cells are numbers, true,
 * false or words, without quotes; an empty one says nothing; lines that begin with # are skipped.
 */
#ifndef SBP_PLANNER_VALIDATE_RUNS_CSV_H
#define SBP_PLANNER_VALIDATE_RUNS_CSV_H

#include "base/status.h"

struct cJSON;

/* Adds "columns" and "runs" to a tree, as a set's file has them; a run that has no id is called
 * after its line. E_INPUT, "FILE: line N: ...": no names, no runs, lines with too few or too many
 * cells, quotes; E_IO, E_MEMORY. */
enum sbp_status sbp_runs_csv_read(const char *path, struct cJSON *root,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif

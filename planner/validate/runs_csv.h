/* A table of training runs that a user measured, as CSV: one line of names, one line a run.
 *
 * Names are the columns of a set of runs (planner/validate/run_set.h). Cells are numbers, true,
 * false or words, without quotes, and of the column id any word; an empty one says nothing; lines
 * that begin with # and a byte order mark are skipped.
 */
#ifndef SBP_PLANNER_VALIDATE_RUNS_CSV_H
#define SBP_PLANNER_VALIDATE_RUNS_CSV_H

#include "base/arena.h"
#include "base/status.h"

struct cJSON;

/* Adds "columns" and "runs" to a tree, as a set's file has them; a run that has no id is called
 * after its line. line: (runs) where each stands, from the arena, for sbp_run_set_take. E_INPUT,
 * "FILE: line N: ...": no names or such as no column has, no runs, lines with too few or too many
 * cells, quotes; E_IO, E_MEMORY. */
enum sbp_status sbp_runs_csv_read(const char *path, struct sbp_arena *arena, struct cJSON *root,
                                  const int **line, struct sbp_diag *diag) SBP_MUST_USE;

#endif

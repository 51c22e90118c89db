/* The files that a command writes: their names, and what they must not be. Input: the arguments of
 * a command line. Output: a refusal, before any work is done.
 */
#ifndef SBP_PLANNER_CLI_OUTPUTS_H
#define SBP_PLANNER_CLI_OUTPUTS_H

#include "base/text.h"
#include "planner/cli/options.h"

/* Appends the name of a plan's file by its rank, from 1: "plan.json", "plan-2.json", ... */
void sbp_outputs_name(const char *output, int64_t rank, struct sbp_text *name);

/* The further files of --top can be written, as -o and --problem, and no two are one file. E_USAGE
 * names two that are; E_IO, E_MEMORY. */
enum sbp_status sbp_outputs_check(const struct sbp_arguments *arguments,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* No output is the file that is read from `path`, by links as well. E_USAGE, E_MEMORY. */
enum sbp_status sbp_outputs_check_input(const struct sbp_arguments *arguments, const char *path,
                                        struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* Starts the programs that sbplan is no part of, since they link MPI, BLAS and CUDA. sbplan becomes
 * the program; where ranks are asked for, it runs mpirun and waits for it.
 *
 * A program is looked for beside sbplan, in its folder of the build tree, and in $PATH, in this
 * order.
 */
#ifndef SBP_PLANNER_CLI_LAUNCH_H
#define SBP_PLANNER_CLI_LAUNCH_H

#include "planner/cli/options.h"

struct sbp_launch {
    const char *program;      /* "sbplan-run" */
    const char *build_folder; /* "executor": its folder of the build tree */
    bool is_everywhere;       /* built with -Dplanner_only=true, too */
    int64_t ranks;            /* processes under mpirun; 0: the program alone */
    const struct sbp_arguments *arguments;
    const char *extra[8]; /* further words for the program, NULL-terminated */
};

/* Whether mpirun is in $PATH. */
bool sbp_launch_has_mpirun(void);
/* Becomes the program, so that it returns only on failure; or runs mpirun, whose command it prints
 * on stderr first, and returns OK or SBP_NO as the ranks say; NO, too, where a rank is lost, which
 * is said. Words are operands, forwarded options, --json and extra, in this order. E_UNSUPPORTED:
 * the program is not found, or this build plans only; E_MEMORY: the limit of address space is below
 * what mpirun takes; E_IO: a program cannot be started, or standard output cannot be written; below
 * E_SIGNAL: mpirun was interrupted; E_BACKEND: mpirun failed otherwise. */
enum sbp_status sbp_launch(const struct sbp_launch *launch, struct sbp_diag *diag) SBP_MUST_USE;

#endif

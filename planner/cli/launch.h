/* Starting the programs that sbplan itself is no part of: they link MPI, BLAS and what else a
 * machine has.
 *
 * They are looked for beside this program, in the folder of the build tree that they are built in,
 * and in $PATH, in this order.
 */
#ifndef SBP_PLANNER_CLI_LAUNCH_H
#define SBP_PLANNER_CLI_LAUNCH_H

#include "planner/cli/options.h"

struct sbp_launch {
    const char *program;      /* "sbplan-run" */
    const char *build_folder; /* "executor": beside this program's own folder */
    bool is_everywhere;       /* it is also part of a build that plans only */
    int64_t ranks;            /* processes under mpirun; 0: the program alone */
    const struct sbp_arguments *arguments;
    const char *extra[8]; /* further words, NULL-terminated: what the command decided about */
};

/* Whether mpirun is in $PATH. */
bool sbp_launch_has_mpirun(void);
/* Prints the command on stderr when it is an mpirun line, and becomes it: returns only on failure.
 * Words: operands, what is handed on, --json, extra. E_UNSUPPORTED: the program is nowhere, or this
 * build plans only; E_IO. */
enum sbp_status sbp_launch(const struct sbp_launch *launch, struct sbp_diag *diag) SBP_MUST_USE;

#endif

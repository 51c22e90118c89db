/* Runs mpirun as a child, and says why its ranks ended where mpirun, kept quiet, does not.
 *
 * mpirun has a process group of its own, so that a signal to sbplan or its terminal reaches it
 * once; it ends with sbplan. What it prints passes through, since it does not say when that fails.
 */
#ifndef SBP_PLANNER_CLI_MPIRUN_H
#define SBP_PLANNER_CLI_MPIRUN_H

#include <stdatomic.h>

#include "base/status.h"

struct sbp_mpirun {
    const char *command; /* "sbplan run": who speaks */
    char *const *words;  /* NULL-ended */
    /* Set by the handler of signals, which are passed on. */
    const atomic_int *stop;
};

/* OK, SBP_NO as the ranks say; below E_SIGNAL: mpirun was interrupted, or a signal ended a rank;
 * E_IO: mpirun cannot be started (in the child, too), or standard output cannot be written;
 * E_BACKEND: mpirun failed otherwise. */
enum sbp_status sbp_mpirun_run(const struct sbp_mpirun *mpirun, struct sbp_diag *diag) SBP_MUST_USE;

#endif

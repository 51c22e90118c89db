/* The options of a small program: one table for the parser and for --help, so that they cannot
 * drift.
 *
 * An option is "--name VALUE" or "--name=VALUE", or a flag without a value. What a table does not
 * have is refused with the nearest that it has, an illegal value with the legal ones.
 */
#ifndef SBP_BASE_OPTIONS_H
#define SBP_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct sbp_option {
    const char *name;     /* "--steps"; NULL ends the table */
    const char *argument; /* what its value is called in the help; NULL: a flag */
    const char *legal;    /* legal values, for messages */
    const char *help;
    /* Takes a value (NULL for a flag); false: it is not legal. */
    bool (*set)(void *settings, const char *value);
};

/* Reads argv[1..]. Words that begin with no '-' are operands: *operand gets the only one, NULL when
 * there is none; operand itself NULL: none is legal. E_USAGE names the word. */
enum sbp_status sbp_options_read(const struct sbp_option *options, int argc, char **argv,
                                 void *settings, const char **operand,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_options_print(const struct sbp_option *options, FILE *out);

/* This process's rank as launchers (mpirun, srun) announce it, -1 without one. For who speaks
 * before MPI is up, and for defaults; MPI itself has the last word. */
int64_t sbp_launcher_rank(void);
/* How many processes the launcher says that it started; 1 without one, -1: it does not say. */
int64_t sbp_launcher_size(void);
/* Whether the launcher left behind what a process finds the others by (PMI, PMIx): srun without
 * --mpi does not, nor does no launcher. */
bool sbp_launcher_connects(void);
/* E_USAGE where a launcher started several processes that would each run all ranks. */
enum sbp_status sbp_launcher_alone(struct sbp_diag *diag) SBP_MUST_USE;
/* Before a process fails: lets rank 0 speak for all. A launcher ends a job at the first process
 * that fails, so a rank that rank 0 speaks for waits to be ended, 5 s at most; others do not wait.
 */
void sbp_launcher_yield(void);

#endif

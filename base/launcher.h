/* Launchers (mpirun, srun): how the processes of a job know their rank, and how they communicate.
 *
 * Each launcher announces a process's rank and the number of processes in environment variables of
 * its own. Programs read them before MPI is up.
 */
#ifndef SBP_BASE_LAUNCHER_H
#define SBP_BASE_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* How ranks communicate and where they compute, as options name it; both lists NULL-ended. */
enum sbp_backend { SBP_BACKEND_AUTO, SBP_BACKEND_THREADS, SBP_BACKEND_MPI, SBP_BACKEND_NCCL };
extern const char *const sbp_backend_names[];
extern const char *const sbp_device_names[]; /* "auto", "cpu", "cuda" */

/* Whether a run is compared with one device: the plan's, whole or by a sample of gradients, or that
 * of a smaller model; as options name it; NULL-ended. */
enum sbp_verify_mode { SBP_VERIFY_NONE, SBP_VERIFY_FULL, SBP_VERIFY_SAMPLED, SBP_VERIFY_SHRUNK };
extern const char *const sbp_verify_names[];

/* This process's rank as its launcher announces it, -1 without one. Programs use it to choose who
 * prints before MPI is up, and for defaults; MPI itself has the last word. */
int64_t sbp_launcher_rank(void);
/* Number of processes that the launcher says it started; 1 without one, -1: it does not say. */
int64_t sbp_launcher_size(void);
/* Whether the launcher told processes how to find each other (PMI, PMIx). False under srun without
 * --mpi, and without a launcher. */
bool sbp_launcher_connects(void);
/* E_USAGE where a launcher started several processes that would each run all ranks. */
enum sbp_status sbp_launcher_alone(struct sbp_diag *diag) SBP_MUST_USE;
/* Before a process fails: lets rank 0 speak for all. A launcher ends a job at the first process
 * that fails, so a rank that rank 0 speaks for waits to be ended, 5 s at most; others do not wait.
 */
void sbp_launcher_yield(void);

#endif

/* What a machine says of itself: settings in the environment, drivers, the speed of its network. */
#ifndef SBP_CALIB_SAMPLES_SYSTEM_H
#define SBP_CALIB_SAMPLES_SYSTEM_H

#include <stdbool.h>

/* Settings of communication libraries, "NAME=value" a line, sorted by name, out of an environment
 * (NULL-terminated). A white list: an environment holds secrets, too. What does not fit is left
 * out, with "..." at the end. */
void sbp_system_settings(char *const *environment, char *text, int size);

/* Versions of drivers that move bytes, of files below `root` ("" for the machine's own): NVIDIA's
 * kernel module, firmware of InfiniBand adapters. Empty where there is none. */
void sbp_system_driver(const char *root, char *text, int size);

/* The nominal rate of the fastest network port that is up, in one direction; false: none says. */
bool sbp_system_network(const char *root, double *bytes_per_s, char *name, int size);

/* "2 of 8 cores a rank": what this process may run on. */
void sbp_system_binding(char *text, int size);

/* What started this process as one of `ranks`, out of the environment: "srun --mpi=pmix", "srun",
 * "mpirun" (also other launchers of MPI); "": no launcher. */
void sbp_system_launcher(int ranks, char *text, int size);

/* The job of a batch system that this process belongs to: "Slurm 12.0, partition all"; "": none. */
void sbp_system_job(char *text, int size);

#endif

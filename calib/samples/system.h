/* Asks the system about itself: settings in the environment, drivers, the speed of its network, the
 * launcher. All answers are text for the origin of a calibration (calib/samples/origin.h); text
 * holds `size` bytes and is cut to fit. */
#ifndef SBP_CALIB_SAMPLES_SYSTEM_H
#define SBP_CALIB_SAMPLES_SYSTEM_H

#include <stdbool.h>

/* Settings of communication libraries, "NAME=value" a line, sorted by name, from an environment
 * (NULL-terminated). Only known names are taken, since an environment holds secrets, too. Where
 * more would not fit, "..." stands at the end. */
void sbp_system_settings(char *const *environment, char *text, int size);

/* Versions of drivers that move bytes, from files below `root` ("" for the machine's own): NVIDIA's
 * kernel module, firmware of InfiniBand adapters. "": there is none. */
void sbp_system_driver(const char *root, char *text, int size);

/* The nominal rate of the fastest network port that is up, in one direction; false: none says. */
bool sbp_system_network(const char *root, double *bytes_per_s, char *name, int size);

/* The cores that this process may run on: "2 of 8 cores a rank". */
void sbp_system_binding(char *text, int size);

/* The program that started this process as one of `ranks`, by the environment: "srun --mpi=pmix",
 * "srun", "mpirun" (also other launchers of MPI); "": no launcher. */
void sbp_system_launcher(int ranks, char *text, int size);

/* The job of a batch system that this process belongs to: "Slurm 12.0, partition all"; "": none. */
void sbp_system_job(char *text, int size);

#endif

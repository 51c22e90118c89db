/* Prints what a calibration would measure and how long that takes, or a job script that runs it.
 * Nothing is measured: the time is estimated from the rates below. */
#ifndef SBP_CALIB_MEASURE_JOB_H
#define SBP_CALIB_MEASURE_JOB_H

#include <stdio.h>

#include "calib/measure/settings.h"
#include "calib/samples/sweep.h"

struct sbp_measure_job {
    struct sbp_sweep_options layout;
    const struct sbp_measure_settings *settings; /* borrowed; the estimate takes --nominal for a
                                                    port's rate, else SBP_JOB_BYTES_PER_S */
};

#define SBP_JOB_BYTES_PER_S 1e9
#define SBP_JOB_LATENCY_S   1e-5

/* E_IO, E_MEMORY, E_RANGE. */
enum sbp_status sbp_job_print_plan(const struct sbp_measure_job *job, FILE *out,
                                   struct sbp_diag *diag) SBP_MUST_USE;
/* A script for Slurm that runs with the same settings. E_INPUT: a file's name cannot stand in a
 * script; E_IO, E_MEMORY. */
enum sbp_status sbp_job_print_sbatch(const struct sbp_measure_job *job, FILE *out,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif

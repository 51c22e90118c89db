/* What a calibration found, and its two files: the cluster file and every raw sample beside it. */
#ifndef SBP_CALIB_WRITE_H
#define SBP_CALIB_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "calib/fit.h"
#include "calib/gemm.h"
#include "calib/measure.h"

/* Where and how it was measured. */
struct sbp_calibration_origin {
    char name[64]; /* of the cluster */
    char host[64], cpu[128], system[160], compiler[96], date[32], backend[16];
    const char *version, *command;
    int ranks, hosts;
    int ranks_per_host, cores; /* of the fullest host */
    int64_t memory_bytes;      /* of the host, divided by its ranks; the least over hosts */
    uint64_t seed;
    double budget_s, wall_s;
};

struct sbp_calibration {
    struct sbp_calibration_origin origin;
    struct sbp_collective_times collectives; /* owned */
    struct sbp_compute_times compute;
};
void sbp_calibration_free(struct sbp_calibration *calibration);

/* More ranks than cores on a host: wall times hold waiting for a core. */
bool sbp_calibration_is_crowded(const struct sbp_calibration *calibration);

/* What the samples come to. */
struct sbp_calibrated {
    enum sbp_fit_weights weights;        /* whose fit the cluster file gets */
    struct sbp_fit fit[SBP_FIT_WEIGHTS]; /* of the paper's four collectives (all but send-recv) */
    struct sbp_fit_error kind_error[SBP_FIT_KINDS]; /* of that fit; send-recv is predicted only */
    struct sbp_fit alone[SBP_FIT_KINDS]; /* each kind by itself; error.points = 0: not determined */
    int points, settled;                 /* timed at all and to the tolerance */
    int kind_settled[SBP_FIT_KINDS];
    double flops[SBP_TYPES]; /* best of each type; 0: not timed */
    double gemm_flops[SBP_MAX_GEMMS];
    double copy_bytes_per_s;
};

/* E_INPUT: the samples do not determine the parameters; E_MEMORY. */
enum sbp_status sbp_calibrate(const struct sbp_calibration *calibration,
                              enum sbp_fit_weights weights, struct sbp_calibrated *calibrated,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* The name of the samples' file: path with ".json" replaced by ".samples.csv" (appended where path
 * does not end so). E_RANGE: longer than size - 1 bytes. */
enum sbp_status sbp_samples_path(const char *path, char *samples_path, int size,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* The cluster file's text (owned by the caller, free); it names the samples' file. E_MEMORY. */
enum sbp_status sbp_calibration_text(const struct sbp_calibration *calibration,
                                     const struct sbp_calibrated *calibrated,
                                     const char *samples_path, char **text,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* Writes both files, each whole or not at all, samples first; a samples file whose cluster file
 * cannot be written is removed. E_IO, E_MEMORY, E_RANGE. */
enum sbp_status sbp_calibration_write(const struct sbp_calibration *calibration,
                                      const struct sbp_calibrated *calibrated, const char *path,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif

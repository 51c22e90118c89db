/* What a calibration found, and its cluster file. */
#ifndef SBP_CALIB_OUTPUT_CLUSTER_FILE_H
#define SBP_CALIB_OUTPUT_CLUSTER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "calib/fit/level_fit.h"
#include "calib/samples/findings.h"
#include "calib/measure/compute.h"
#include "calib/fit/network_fit.h"
#include "calib/samples/origin.h"
#include "calib/samples/points.h"
#include "calib/fit/ports.h"

struct sbp_collective_point {
    enum sbp_collective kind;
    int members;
    int64_t bytes; /* n of the cost formula */
};

/* Collectives of neighbouring ranks, of as many groups at the same time as there is room for. */
struct sbp_collective_times {
    int count;
    struct sbp_collective_point *point; /* (count), owned */
    struct sbp_samples *samples;        /* (count), owned: a run's median each; of 0: not timed */
};

struct sbp_calibration {
    struct sbp_calibration_origin origin;
    const char *samples_path;
    enum sbp_statistic statistic;            /* of the collectives' times */
    struct sbp_collective_times collectives; /* owned */
    struct sbp_compute_times compute;
    struct sbp_sample_findings findings;
};
/* Out of a file of samples: the origin of its last session, all of its points, what is to be
 * noticed. E_INPUT: it has no points to fit; E_MEMORY. The record is borrowed as long as the
 * calibration lives, which the caller frees, also after failure. */
enum sbp_status sbp_calibrate_collect(const struct sbp_record *record, enum sbp_statistic statistic,
                                      struct sbp_calibration *calibration,
                                      struct sbp_diag *diag) SBP_MUST_USE;
void sbp_calibrate_free(struct sbp_calibration *calibration);

/* More ranks than cores on a host: wall times hold waiting for a core. */
bool sbp_calibrate_is_crowded(const struct sbp_calibration *calibration);
/* Ranks compute on a device each, which they do not share as they do cores. */
bool sbp_calibrate_is_gpu(const struct sbp_calibration *calibration);

/* Curves of all good runs, and the ports that ranks of a host share. */
struct sbp_calibrated_network {
    struct sbp_network_fit fit;
    struct sbp_ports ports;
};

/* What the samples come to. */
struct sbp_calibrated {
    enum sbp_fit_weights weights;        /* whose fit the cluster file gets */
    struct sbp_fit fit[SBP_FIT_WEIGHTS]; /* of the paper's four collectives (all but send-recv) */
    bool of_messages; /* of send-recv instead: no other collective was measured */
    struct sbp_fit_error kind_error[SBP_FIT_KINDS]; /* of that fit; send-recv is predicted only */
    struct sbp_fit alone[SBP_FIT_KINDS]; /* each kind by itself; error.points = 0: not determined */
    int points, settled;                 /* timed at all and to the tolerance */
    int kind_settled[SBP_FIT_KINDS];
    double flops[SBP_TYPES]; /* best of each type; 0: not timed */
    enum sbp_type grid_type; /* of most products: their shares of its rate are the device's */
    double gemm_flops[SBP_MAX_GEMMS];
    double copy_bytes_per_s;
    const struct sbp_calibrated_network *network; /* borrowed; NULL: alpha and beta alone */
};

/* network: NULL, or curves by group shape, beside which alpha and beta need not be determined
 * (fit[].error.points = 0). E_INPUT: the samples do not determine the parameters; E_MEMORY. */
enum sbp_status sbp_calibrate_fit(const struct sbp_calibration *calibration,
                                  enum sbp_fit_weights weights,
                                  const struct sbp_calibrated_network *network,
                                  struct sbp_calibrated *calibrated,
                                  struct sbp_diag *diag) SBP_MUST_USE;

struct cJSON;

/* The cluster file, owned by the caller; it names the samples' file. NULL: out of memory. */
struct cJSON *sbp_cluster_file_of_calibration(const struct sbp_calibration *calibration,
                                              const struct sbp_calibrated *calibrated);

#endif

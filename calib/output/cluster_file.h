/* Makes the JSON of a cluster file: from a calibration, or from fitted logs.
 *
 * Both write the same network, levels and quality; a calibration adds how it was measured and the
 * rates of its own compute, logs add their sources and take the device from a preset. Inputs are
 * the fits (calib/fit/); nothing is fitted here.
 */
#ifndef SBP_CALIB_OUTPUT_CLUSTER_FILE_H
#define SBP_CALIB_OUTPUT_CLUSTER_FILE_H

#include "calib/fit/calibrate.h"
#include "calib/logs/log.h"
#include "costmodel/cluster/preset.h"

struct cJSON;

/* Functions that make JSON return a tree that the caller deletes; NULL: out of memory. */

struct cJSON *sbp_cluster_file_of_calibration(const struct sbp_calibration *calibration,
                                              const struct sbp_calibrated *calibrated);

struct sbp_cluster_file_logs {
    const char *name; /* of the cluster */
    const struct sbp_preset *preset;
    int nodes;                           /* 0: the most that were measured */
    const struct sbp_measured *measured; /* whose sources are named */
    const struct sbp_logs *logs;         /* whose refusals are listed; NULL: none */
};
struct cJSON *sbp_cluster_file_of_logs(const struct sbp_network_fit *fit,
                                       const struct sbp_cluster_file_logs *file);

/* Writes a cluster file to `path`, but first reads its text as search does: what is refused is not
 * written. The message names `source` (the samples or logs), what the reader says and the times of
 * `measured` that lead there (fit NULL: no curves). path NULL: nothing is written. E_INPUT, E_IO,
 * E_MEMORY. */
enum sbp_status sbp_cluster_file_write(const struct cJSON *json, const char *path,
                                       const char *source, const struct sbp_measured *measured,
                                       const struct sbp_network_fit *fit,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* The fit alone: "quality", "network" and "levels" of an object. */
struct cJSON *sbp_cluster_file_of_fit(const struct sbp_network_fit *fit);

#endif

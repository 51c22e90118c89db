/* A fitted network for people and for programs: its report, and its cluster file. */
#ifndef SBP_CALIB_OUTPUT_NETWORK_TEXT_H
#define SBP_CALIB_OUTPUT_NETWORK_TEXT_H

#include <stdio.h>

#include "calib/logs/log.h"
#include "calib/fit/network_fit.h"
#include "costmodel/cluster/preset.h"

struct cJSON;

/* Errors in sample, on held-out sizes and shapes, mis-ordered pairs, noise; then a row a group;
 * what was left out, and what is poorly fitted. E_IO, E_MEMORY. */
enum sbp_status sbp_report_network(const struct sbp_network_fit *fit, FILE *out) SBP_MUST_USE;

/* The same as a JSON object, owned by the caller; NULL: out of memory. */
struct cJSON *sbp_cluster_file_quality(const struct sbp_network_fit *fit);
/* The `network` of a cluster file; NULL: out of memory. */
struct cJSON *sbp_cluster_file_network(const struct sbp_network_fit *fit);
/* Its `levels`: nodes where groups over several nodes were measured, then devices. link: what a
 * device reaches within a node, for where no group within one was measured; NULL: then it counts
 * as if it were between nodes. nodes: of the cluster, 0: the most that were measured; device: the
 * innermost level's name. */
struct cJSON *sbp_cluster_file_levels(const struct sbp_network_fit *fit,
                                      const struct sbp_preset *link, int nodes, const char *device);

/* What a cluster file of fitted logs says beside the fit. */
struct sbp_cluster_file_logs {
    const char *name; /* of the cluster */
    const struct sbp_preset *preset;
    int nodes;                           /* 0: the most that were measured */
    const struct sbp_measured *measured; /* whose sources are named */
    const struct sbp_logs *logs;         /* whose refusals are told; NULL: none */
};
/* Owned by the caller; NULL: out of memory. */
struct cJSON *sbp_cluster_file_of_logs(const struct sbp_network_fit *fit,
                                       const struct sbp_cluster_file_logs *file);

#endif

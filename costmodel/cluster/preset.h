/* Lists rates and sizes of known devices. Input: a place in the list. Output: the memory,
 * arithmetic rates and link rates of a device, from its data sheet, because logs of collectives do
 * not hold them. */
#ifndef SBP_COSTMODEL_CLUSTER_PRESET_H
#define SBP_COSTMODEL_CLUSTER_PRESET_H

#include <stdint.h>

#include "costmodel/cluster/cluster.h"

struct sbp_preset {
    const char *name;  /* "h100-sxm" */
    const char *title; /* "NVIDIA H100 80 GB, SXM" */
    int64_t memory_bytes;
    double flops[SBP_TYPES]; /* without sparsity; 0: it has none */
    double memory_bytes_per_s;
    double host_link_bytes_per_s; /* in one direction, as */
    double link_bytes_per_s;      /* what a device reaches within its node */
    const char *source;           /* of all of them */
    const char *link;             /* what the links are */
};

/* By place, from 0; NULL before the first and behind the last. */
const struct sbp_preset *sbp_preset_at(int place);
/* Its name; NULL as above. */
const char *sbp_preset_name(int place);

#endif

/* Measured collectives, wherever they come from: published logs or our own runs.
 *
 * A point is one collective of one group shape at one size. A shape is how many nodes a group spans
 * and how many of its members lie on each. Points of one source stand together.
 */
#ifndef SBP_CALIB_SAMPLES_MEASURED_H
#define SBP_CALIB_SAMPLES_MEASURED_H

#include <stdbool.h>

#include "base/arena.h"
#include "costmodel/cluster/collective_kind.h"

struct sbp_measured_point {
    enum sbp_collective kind;  /* not local */
    int nodes, ranks_per_node; /* members = nodes x ranks_per_node >= 2 */
    double bytes;  /* n of costmodel/cluster/collective.h: the larger side of the collective on a
                      device */
    double time_s; /* > 0 */
    double spread; /* |in-place - out-of-place| / time, or half the interval of the median (of one
                      run, or of the medians of several) / time; 0: unknown */
    bool
        first_use; /* a benchmark's first time for a protocol: time_s is its second, spread large */
    int source;    /* into source[] */
    int groups;    /* groups of a node that worked at the same time; 0: not said, one in a log */
};

struct sbp_measured_source {
    const char *name;    /* of the file */
    const char *library; /* "NCCL 2.18.5", "Open MPI 4.1.4"; NULL: not said */
    const char *network; /* what the run says that it used ("OFI", "Socket", "IB"); NULL */
    const char *date;    /* NULL: not said */
    int table;           /* of the file, from 0 */
};

struct sbp_measured {
    struct sbp_arena arena; /* owns what follows */
    int count, source_count;
    struct sbp_measured_point *point;   /* (count) */
    struct sbp_measured_source *source; /* (source_count) */
};

#endif

/* Timing collectives through a communication table.
 *
 * Points are all kinds x message sizes 1 KiB, 2 KiB, ... x group sizes. For a group size g the
 * ranks are cut into as many groups of neighbours as there is room for, and all of them work at the
 * same time, as the groups of a mesh axis do in a step; ranks left over wait. Before each
 * repetition all ranks meet in a barrier, then each times its own call.
 * Send-recv is half a round trip between the first and the last member of each group.
 */
#ifndef SBP_CALIB_MEASURE_H
#define SBP_CALIB_MEASURE_H

#include "calib/samples.h"
#include "costmodel/collective.h"

#define SBP_LEAST_BYTES       ((int64_t)1 << 10)
#define SBP_LEAST_MAX_BYTES   ((int64_t)4 << 10) /* two sizes are the least that a fit needs */
#define SBP_LARGEST_MAX_BYTES ((int64_t)1 << 30)

struct sbp_collective_point {
    enum sbp_collective kind;
    int members;
    int64_t bytes; /* n of the cost formula: whole blocks of floats, about the size asked for */
};

struct sbp_collective_times {
    int count;
    struct sbp_collective_point *point; /* (count), owned */
    struct sbp_samples *samples;        /* (count), owned; a count of 0: the budget was over */
};

/* The points for `ranks` ranks (>= 2) up to max_bytes (>= SBP_LEAST_MAX_BYTES): group sizes 2 ..
 * ranks, above 16 ranks only divisors and powers of two. *times is empty samples of them. E_MEMORY.
 */
enum sbp_status sbp_collective_times_init(struct sbp_collective_times *times, int ranks,
                                          int64_t max_bytes, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_collective_times_free(struct sbp_collective_times *times);

/* Fills the samples; collective over all ranks, which must have made the same points.
 * E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_measure_collectives(const struct sbp_sampler *sampler,
                                        struct sbp_collective_times *times,
                                        struct sbp_diag *diag) SBP_MUST_USE;

#endif

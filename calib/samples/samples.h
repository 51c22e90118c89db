/* Repeated timing of a piece of work until its median is known well enough or its time is spent.
 *
 * A repetition is one event, timed on every rank; the largest time over the ranks counts. The first
 * two warm up: the very first use of a protocol may take a thousand times as long. A median is
 * settled when its 95 % order-statistic interval is within 5 % of it on either side, or after
 * SBP_MAX_REPEATS. (Hoefler and Belli, Scientific Benchmarking, SC'15, rules 5 to 8 and 10.)
 */
#ifndef SBP_CALIB_SAMPLES_SAMPLES_H
#define SBP_CALIB_SAMPLES_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "executor/comm/comm.h"

#define SBP_MAX_REPEATS 100 /* what AutoDDL takes of every point (section 3.2) */

/* The repetitions of one point. */
struct sbp_samples {
    int count;
    double time_s[SBP_MAX_REPEATS]; /* (count), in the order they were taken */
    double median_s, low_s, high_s; /* median and its interval; valid when count > 0 */
    bool settled;
};

/* Adds repetitions (beyond SBP_MAX_REPEATS they are dropped) and forms the median anew. */
void sbp_samples_add(struct sbp_samples *samples, const double *time_s, int count);

/* What steers the measurements goes over host memory, whatever is measured. */
struct sbp_sampler {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    int everybody; /* group of all ranks */
};

/* One repetition on this rank; collective over all ranks, which leave a barrier together first. */
typedef enum sbp_status (*sbp_repetition)(void *context, double *time_s, struct sbp_diag *diag);

/* Repeats until settled or cap_s is over: seven times at least, or, where they would take longer
 * than cap_s, as many as fit and three at least. Collective; all ranks end with the same samples.
 * own (SBP_MAX_REPEATS; may be NULL) gets this rank's own times. *took_s: the longest that a rank
 * was busy. E_BACKEND, E_PEER: a call failed. */
enum sbp_status sbp_sampler_repeat(const struct sbp_sampler *sampler, double cap_s,
                                   sbp_repetition repetition, void *context,
                                   struct sbp_samples *samples, double *own, double *took_s,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* Leaves when all ranks are there. E_BACKEND, E_PEER. */
enum sbp_status sbp_sampler_together(const struct sbp_sampler *sampler,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* Largest of each value over all ranks, in place; collective. */
enum sbp_status sbp_sampler_largest(const struct sbp_sampler *sampler, double *values, int count,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* Repeated timing of many points until each median is known well enough or the time is spent.
 *
 * A repetition is one event, timed on every rank; the largest time over the ranks counts. Points
 * are visited in rounds, a few repetitions at a time behind one that warms up, so that slow drift
 * of the machine spreads over all of them; the first round goes in the order given (what is cheap
 * and needed first), the later ones in shuffled orders. A point is settled when the 95 %
 * order-statistic interval of its median is within 5 % of the median on either side, or after
 * SBP_MAX_REPEATS. (Hoefler and Belli, Scientific Benchmarking, SC'15, rules 5 to 8 and 10.)
 */
#ifndef SBP_CALIB_SAMPLES_H
#define SBP_CALIB_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "executor/comm.h"

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

struct sbp_sampler {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    int everybody;     /* group of all ranks */
    uint64_t seed;     /* of the shuffles; the same on all ranks */
    double budget_s;   /* ranks may differ by what they have used up: the least counts */
    int required;      /* so many points at the front are visited even when the budget is over */
    bool progress;     /* this rank shows a progress line */
    const char *label; /* what it says is being timed */
};

/* One repetition of a point on this rank; collective over all ranks. */
typedef enum sbp_status (*sbp_repetition)(void *context, int point, double *time_s);

/* Fills samples(points) until all are settled or budget_s is over; points behind the required ones
 * may be left with a count of 0. Collective; all ranks end with the same samples.
 * E_BACKEND, E_PEER: a call failed; E_MEMORY. */
enum sbp_status sbp_sample(const struct sbp_sampler *sampler, int points,
                           struct sbp_samples *samples, sbp_repetition repetition, void *context,
                           struct sbp_diag *diag) SBP_MUST_USE;

/* Largest of each value over all ranks, in place; collective. */
enum sbp_status sbp_sample_largest(const struct sbp_sampler *sampler, double *values, int count,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif

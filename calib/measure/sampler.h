/* The sampler: repeats a piece of work on all ranks until its median is known well enough or its
 * time is spent, and carries the few values on which ranks agree.
 *
 * A repetition is one event, timed on every rank; the largest time over the ranks counts (Hoefler
 * and Belli, SC'15, rule 10). The first two warm up, since the very first use of a protocol may
 * take a thousand times as long. calib/samples/cell.h says when a median is settled.
 *
 * Every call is collective over all ranks and fails with E_BACKEND or E_PEER, which diag explains.
 */
#ifndef SBP_CALIB_MEASURE_SAMPLER_H
#define SBP_CALIB_MEASURE_SAMPLER_H

#include "calib/samples/cell.h"
#include "executor/comm/comm.h"

/* An endpoint over host memory, whatever memory is measured. */
struct sbp_sampler {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    int everybody; /* group of all ranks */
};

/* The sampler of the ranks behind an endpoint over host memory. E_MEMORY, too. */
enum sbp_status sbp_sampler_open(struct sbp_endpoint host, struct sbp_sampler *sampler,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* One repetition on this rank, which all ranks begin together. */
typedef enum sbp_status (*sbp_repetition)(void *context, double *time_s, struct sbp_diag *diag);

/* Repeats until settled or cap_s is over: seven times at least, or, where they would take longer
 * than cap_s, as many as fit and three at least. All ranks end with the same samples. own
 * (SBP_MAX_REPEATS; may be NULL) gets this rank's own times. *took_s: the longest that a rank was
 * busy. */
enum sbp_status sbp_sampler_repeat(const struct sbp_sampler *sampler, double cap_s,
                                   sbp_repetition repetition, void *context,
                                   struct sbp_samples *samples, double *own, double *took_s,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* Returns when all ranks are there. */
enum sbp_status sbp_sampler_together(const struct sbp_sampler *sampler,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* The largest of each value over all ranks, in place: values (count). */
enum sbp_status sbp_sampler_largest(const struct sbp_sampler *sampler, double *values, int count,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* own (count) of every rank, bit by bit, into all (ranks, count). */
enum sbp_status sbp_sampler_gather(const struct sbp_sampler *sampler, const double *own, int count,
                                   void *all, struct sbp_diag *diag) SBP_MUST_USE;

#endif

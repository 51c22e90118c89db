/* Replicas and pyramids, the two plays of cyclic data parallelism whose devices hand sums of
 * gradients on and make their own updates, share this.
 */
#ifndef SBP_COSTMODEL_TIMELINE_HANDED_PRIV_H
#define SBP_COSTMODEL_TIMELINE_HANDED_PRIV_H

#include "costmodel/timeline/timeline_run_priv.h"

struct sbp_handed_run {
    struct sbp_timeline_run *run;
    int count; /* of stages of the model, and of micro-batches of a step */
    int sums;  /* of (device, stage of the model that it has) pairs */
    /* Sets static_bytes and owners; then, before a report, what devices do in the mean (may be
     * NULL). */
    enum sbp_status (*place)(struct sbp_handed_run *r);
    void (*even_out)(const struct sbp_handed_run *r);
    double *so_far_s;   /* (sums) when a sum so far is there, */
    double *finished_s; /* and a finished one */
    double *end_s;      /* (steps, count, 2 count) of all passes, in an order that repeats */
};

/* Sends a stage's sum that a device has at a time, and notes when it is there. Links carry one
 * message after the other. */
void sbp_handed_pass(struct sbp_handed_run *r, int device, int stage, double at_s, double *there_s);
/* The devices of a group sum what they have of the finished gradients, and update. Before the first
 * step updates are played as well, so that all steps have the same work. take_s: when the sum is
 * there that it waits for; pass_s: of whom it passes that to; NULL: nothing. */
void sbp_handed_update(struct sbp_handed_run *r, int device, int stage, int step,
                       const double *take_s, double *pass_s);
/* Plays until steps repeat, and reports. E_MEMORY. */
enum sbp_status sbp_handed_simulate(struct sbp_handed_run *r, struct sbp_arena *arena,
                                    struct sbp_timeline *timeline) SBP_MUST_USE;

#endif

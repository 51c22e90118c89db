/* How well predictions agree with measurements: errors, ranks, and what following them would cost.
 *
 * Input: predicted and measured values of the same runs, and the group of each run, within which
 * runs compete (one model, one batch, as many devices). Output: the figures that
 * docs/validate.md explains.
 */
#ifndef SBP_PLANNER_VALIDATE_AGREEMENT_H
#define SBP_PLANNER_VALIDATE_AGREEMENT_H

#include "base/arena.h"
#include "base/status.h"

/* A group of fewer runs says too little about ranks. */
#define SBP_AGREEMENT_LEAST_GROUP 4

struct sbp_agreement {
    int count;           /* runs */
    double error;        /* mean of |predicted / measured - 1|; NAN: no run */
    double median_error; /* their median, of an even number the mean of the two in the middle */
    double bias;         /* mean of predicted / measured - 1 */
    double factor;       /* by which all predictions multiplied have the least error, and */
    double factor_error; /* that error */
    double rank;         /* Spearman's, over all runs; NAN where one side does not vary */
    int groups;          /* of SBP_AGREEMENT_LEAST_GROUP runs and more, whose ranks are known */
    double group_rank;   /* mean of theirs; NAN: no group */
    double regret, worst_regret; /* measured at the predicted best / least measured - 1: mean, most
                                    of groups; among equal predictions the slowest counts */
};

/* predicted, measured: (count), > 0; group: (count), from 0. Scratch memory comes out of the arena.
 * E_MEMORY. */
enum sbp_status sbp_agreement_make(const double *predicted, const double *measured,
                                   const int *group, int count, struct sbp_arena *arena,
                                   struct sbp_agreement *agreement,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* Checks of a communication backend, run by every rank: each collective, over every group shape of
 * a mesh and over random groups, against a computation of all members' data done on this rank alone
 * (data comes from counters, so everybody can make everybody's).
 */
#ifndef SBP_TESTS_RANKS_COMM_CHECKS_H
#define SBP_TESTS_RANKS_COMM_CHECKS_H

#include <stdbool.h>
#include <stdint.h>

#include "executor/comm/comm.h"

struct comm_checks {
    uint64_t seed; /* of groups, calls and data */
    int rounds;    /* collectives and message bursts per rank */
    bool ordered;  /* reductions are left folds in group order, to the bit */
    bool polled;   /* the backend has try_receive */
    bool half;     /* elements of 16 bits, too */
    bool waits;    /* a long message leaves when its receiver is there (have_left) */
};

/* sbp_rank_main; argument is a const struct comm_checks *. */
enum sbp_status comm_checks_collectives(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                        void *argument, struct sbp_diag *diag);
enum sbp_status comm_checks_messages(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag);

/* Fingerprints of collectives: equal ones are, and on the last rank another count, another order
 * and another kind are named, by the ranks that see them. */
enum sbp_status comm_checks_fingerprints(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                         void *argument, struct sbp_diag *diag);

/* The seed of a test program: SBP_TEST_SEED in the environment, or a fixed one; printed. */
uint64_t comm_checks_seed(void);

#endif

/* Fingerprints of collectives, which the members of a group compare before a call, where that is
 * asked for.
 *
 * Members that call different collectives hang, or compute nonsense, far from where they parted. So
 * each member sends the next one in group order what it is about to call, the last one the first,
 * and hears it of the one before: where all of a group come to a call of that group and one
 * differs, two neighbours see it. Ranks that wait for each other in a circle of several groups are
 * left to the run's deadline.
 */
#ifndef SBP_EXECUTOR_COMM_FINGERPRINT_H
#define SBP_EXECUTOR_COMM_FINGERPRINT_H

#include "costmodel/program/task.h"
#include "executor/comm/comm.h"

/* A group, as one of its members sees it. */
struct sbp_circle {
    int before, behind; /* world ranks of its neighbours; of a group of one: its own */
    uint64_t group;     /* hash of the members' ranks, in order */
};

/* What a member is about to call. Sent as bytes: make it from zeros. */
struct sbp_fingerprint {
    int64_t kind; /* enum sbp_collective */
    int64_t count, element_bytes;
    int64_t reduction; /* enum sbp_comm_reduction */
    int64_t owner;     /* in group order */
    int64_t to_owner;
    uint64_t group;
    int64_t step, task; /* of its stage's list; -1 where members of several stages have others */
    int64_t at_step;    /* from 1; for messages alone, as is the name */
    char name[160];     /* of the task */
};

/* ranks: (count) of the group, in order, `rank` among them. */
struct sbp_circle sbp_fingerprint_circle(const int *ranks, int count, int rank);

/* Collective over the members. Fails with E_INTERNAL where the member before is about to call
 * something else, and says which rank at which task, and what differs; or as the endpoint does. */
enum sbp_status sbp_fingerprint_compare(const struct sbp_endpoint *host,
                                        const struct sbp_circle *circle,
                                        const struct sbp_fingerprint *own,
                                        struct sbp_diag *diag) SBP_MUST_USE;

#endif

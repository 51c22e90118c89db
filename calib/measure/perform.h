/* Performs the cells of a sweep on the ranks that there are, one repetition at a time.
 *
 * Collectives run over the library's own calls on groups of neighbouring nodes and neighbouring
 * ranks of each. Of the groups that a node has room for, the cell's first `groups` work and the
 * ranks of the others wait. Send-recv is half a round trip between a group's first and last member.
 *
 * Groups that work side by side call several times, one behind the other, and the time is the mean:
 * as in a step, where one group's latency falls into another one's transfer. In a single call from
 * a common start all would wait, and then all send, at the same time.
 *
 * Beside products a collective runs in a lane of its own (a stream of a GPU, a thread of a CPU
 * rank) while as many products follow each other as outlast it: it takes what they end later with
 * it than without.
 */
#ifndef SBP_CALIB_MEASURE_PERFORM_H
#define SBP_CALIB_MEASURE_PERFORM_H

#include "calib/measure/compute.h"
#include "calib/samples/placement.h"
#include "executor/comm/comm.h"

enum { SBP_CALLS_BESIDE = 4 };

/* Calls of a collective within one repetition. */
static inline int sbp_perform_calls(const struct sbp_cell *cell)
{
    return cell->work == SBP_CELL_COLLECTIVE && cell->kind != SBP_SEND_RECV && cell->groups > 1
               ? SBP_CALLS_BESIDE
               : 1;
}

struct sbp_performer {
    struct sbp_endpoint ranks;             /* whose calls are timed */
    const struct sbp_compute_ops *compute; /* borrowed, as the next two */
    const struct sbp_rank_placement *placement;
    const struct sbp_sample_sweep *sweep;
    int rank;
    int *group;            /* (nodes + 1, ranks a node + 1): handle of this rank's group of each
                              shape; owned */
    float *send, *receive; /* (largest message) in the memory of the ranks' endpoint; owned. Zeros,
                              so that sums of them stay finite */
    struct sbp_compute *work;       /* owned */
    const struct sbp_cell *cell;    /* under way */
    const struct sbp_cell *covered; /* beside which `products` products outlast the collective */
    int products;
};

/* Makes the groups and buffers. Collective. E_MEMORY, E_BACKEND, E_PEER; nothing is left allocated
 * then. */
enum sbp_status sbp_perform_open(struct sbp_performer *performer, struct sbp_endpoint ranks,
                                 const struct sbp_compute_ops *compute,
                                 const struct sbp_rank_placement *placement,
                                 const struct sbp_sample_sweep *sweep,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_perform_close(struct sbp_performer *performer);

/* Whether collectives of an endpoint may run beside products. */
bool sbp_perform_has_lane(const struct sbp_endpoint *ranks);

/* A repetition (calib/measure/sampler.h) of performer->cell; 0 s on ranks that wait. Of a pair the
 * lower rank has its time. */
enum sbp_status sbp_perform(void *performer, double *time_s, struct sbp_diag *diag) SBP_MUST_USE;

#endif

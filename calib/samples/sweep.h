/* The plan of measurements: every cell of a layout of ranks, in an order in which what is done by
 * the time it ends, or is ended, is as useful as it can be.
 *
 * - Group shapes: every divisor of the nodes x every divisor of the ranks on each, from 2 ranks.
 * - Groups of a node at the same time: one, and as many as there is room for; where a node has one
 *   rank in each, every divisor between, so that sharing its ports is measured, not assumed.
 * - Sizes: 8 B, 16 B, ... up to max_bytes; first some far apart, then those between (as SKaMPI
 *   refines: Reussner et al., "SKaMPI: a detailed, accurate MPI benchmark", 1998).
 * - Compute: a copy, products over a grid, the smallest product.
 * - Pairs: rounds of a tournament, all ranks of a node, then all nodes by each of their ranks.
 *
 * Stages put first what a cluster file cannot do without: the widest shapes of either tier, alone
 * and with all groups at once, at few sizes; and the pairs, which tell what is slow.
 */
#ifndef SBP_CALIB_SAMPLES_SWEEP_H
#define SBP_CALIB_SAMPLES_SWEEP_H

#include "calib/samples/cell.h"
#include "calib/samples/products.h"

#define SBP_SWEEP_LEAST_BYTES       ((int64_t)8)
#define SBP_SWEEP_LEAST_MAX_BYTES   ((int64_t)4 << 10)
#define SBP_SWEEP_LARGEST_MAX_BYTES ((int64_t)1 << 30)
#define SBP_SWEEP_STAGES            6

/* How ranks lie on nodes, and up to where to measure. */
struct sbp_sweep_options {
    int nodes, ranks_per_node; /* of the least full node; ranks beyond it wait */
    int64_t max_bytes;         /* SBP_SWEEP_LEAST_MAX_BYTES .. SBP_SWEEP_LARGEST_MAX_BYTES */
    int64_t copy_bytes;        /* of the copy: the least over nodes */
    enum sbp_products products;
    unsigned kinds; /* a bit for each collective that is measured, with hardly any compute; 0: all
                       of both */
};

struct sbp_sample_sweep {
    struct sbp_sweep_options options;
    int count;
    int required;                    /* so many at the front are measured whatever the time */
    struct sbp_cell *cell;           /* (count), by stage; owned */
    int first[SBP_SWEEP_STAGES + 1]; /* of each stage */
};

/* nodes x ranks_per_node >= 2. E_MEMORY; E_RANGE: a million cells and more. */
enum sbp_status sbp_sweep_init(struct sbp_sample_sweep *sweep,
                               const struct sbp_sweep_options *options,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_sweep_free(struct sbp_sample_sweep *sweep);

/* The order of the run-th repeat of the whole: stages in order, each shuffled by seed and run; the
 * required ones of run 0 stay in front, as they are. */
void sbp_sweep_order(const struct sbp_sample_sweep *sweep, uint64_t seed, int run, int *order);

/* The partner of a rank (node, local rank) in a round of pairs; false: it waits. */
bool sbp_sweep_partner(const struct sbp_sweep_options *options, int round, int node, int local,
                       int *partner_node, int *partner_local);

#endif

/* Times of all-reduces of Alps at the rank counts that configs/clusters/alps.json is not fitted to,
 * four ranks a node: github.com/boeschf/nccl-benchmark-on-alps-2025 at 897cff4,
 * results/NCCL_CROSS_NIC_1_nccl-tests_nccl-2.23.4-1-aws-1.13.0-v0/job-n-RANKS-N-NODES.txt. A time
 * is the mean of the two that a row holds, as calib/logs/log.h takes it.
 */
#ifndef SBP_TESTS_PAPERS_ALPS_COUNTS_H
#define SBP_TESTS_PAPERS_ALPS_COUNTS_H

#include "costmodel/cluster/network.h"

#define ALPS_COUNTS         5
#define ALPS_SIZES          30 /* 8 bytes to 4 GiB, each twice the one before */
#define ALPS_RANKS_PER_NODE 4

struct alps_count {
    int ranks;
    double time_us[ALPS_SIZES];
};
extern const struct alps_count alps_counts[ALPS_COUNTS]; /* ranks rise */

/* Median of |predicted / measured - 1| over the sizes. */
double alps_error(const struct alps_count *count, const struct sbp_network *network);

#endif

/* Placement: on which node each rank lies. Decided by the names of the ranks' hosts alone; nodes
 * are numbered in the order of their first ranks. */
#ifndef SBP_CALIB_SAMPLES_PLACEMENT_H
#define SBP_CALIB_SAMPLES_PLACEMENT_H

#include <stdbool.h>

#include "base/status.h"

#define SBP_HOST_NAME 64

struct sbp_rank_placement {
    int ranks, nodes;
    int least_ranks, most_ranks; /* of a node */
    int *node, *local;           /* (ranks): a rank's node and its place on it; owned */
    char (*host)[SBP_HOST_NAME]; /* (nodes); owned */
};

/* From the name of each rank's host, host (ranks). E_MEMORY: *placement is empty. */
enum sbp_status sbp_placement_of(char (*host)[SBP_HOST_NAME], int ranks,
                                 struct sbp_rank_placement *placement,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_placement_free(struct sbp_rank_placement *placement);
/* Whether every rank lies on a host of the same name in both. */
bool sbp_placement_same(const struct sbp_rank_placement *a, const struct sbp_rank_placement *b);
/* The rank at a place; -1: the node has fewer. */
int sbp_placement_rank(const struct sbp_rank_placement *placement, int node, int local);

#endif

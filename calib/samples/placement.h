/* How ranks lie on nodes. Nodes are numbered as their first ranks are. */
#ifndef SBP_CALIB_SAMPLES_PLACEMENT_H
#define SBP_CALIB_SAMPLES_PLACEMENT_H

#include "calib/samples/samples.h"

#define SBP_HOST_NAME 64

struct sbp_rank_placement {
    int ranks, nodes;
    int least_ranks, most_ranks; /* of a node */
    int *node, *local;           /* (ranks): its node and its place on it; owned */
    char (*host)[SBP_HOST_NAME]; /* (nodes) */
};

/* Collective: compares the names that nodes give themselves. E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_origin_find_placement(const struct sbp_sampler *sampler,
                                          struct sbp_rank_placement *placement,
                                          struct sbp_diag *diag) SBP_MUST_USE;
/* Out of the name of each rank's host, host (ranks). E_MEMORY. */
enum sbp_status sbp_placement_of(char (*host)[SBP_HOST_NAME], int ranks,
                                 struct sbp_rank_placement *placement,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_placement_free(struct sbp_rank_placement *placement);
/* Whether every rank lies on the host of the same name. */
bool sbp_placement_same(const struct sbp_rank_placement *a, const struct sbp_rank_placement *b);
/* The rank at a place; -1: the node has fewer. */
int sbp_placement_rank(const struct sbp_rank_placement *placement, int node, int local);

#endif

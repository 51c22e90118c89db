/* How ranks lie on nodes. Nodes are numbered as their first ranks are. */
#ifndef SBP_CALIB_PLACEMENT_H
#define SBP_CALIB_PLACEMENT_H

#include "calib/samples.h"

#define SBP_HOST_NAME 64

struct sbp_placement {
    int ranks, nodes;
    int least_ranks, most_ranks; /* of a node */
    int *node, *local;           /* (ranks): its node and its place on it; owned */
    char (*host)[SBP_HOST_NAME]; /* (nodes) */
};

/* Collective: compares the names that nodes give themselves. E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_placement_find(const struct sbp_sampler *sampler,
                                   struct sbp_placement *placement,
                                   struct sbp_diag *diag) SBP_MUST_USE;
/* Out of a node for each rank: nodes, counts and places; node (ranks) is copied. Names are left
 * empty. E_MEMORY; E_INPUT: nodes are not 0, 1, ... in the order of their first ranks. */
enum sbp_status sbp_placement_of(const int *node, int ranks, struct sbp_placement *placement,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_placement_free(struct sbp_placement *placement);
/* A text that is the same where every rank lies on the host of the same name. */
void sbp_placement_digest(const struct sbp_placement *placement, char *text, int size);
/* The rank at a place; -1: the node has fewer. */
int sbp_placement_rank(const struct sbp_placement *placement, int node, int local);

#endif

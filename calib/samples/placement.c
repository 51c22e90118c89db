#include "calib/samples/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sbp_placement_free(struct sbp_rank_placement *placement)
{
    if (placement == NULL)
        return;
    free(placement->node);
    free(placement->local);
    free(placement->host);
    *placement = (struct sbp_rank_placement){0};
}

/* Counts the ranks of each node and gives each rank its place, by placement->node. */
static bool fill_places(struct sbp_rank_placement *placement)
{
    int *count = calloc((size_t)placement->nodes, sizeof *count);
    if (count == NULL)
        return false;
    for (int r = 0; r < placement->ranks; r++)
        placement->local[r] = count[placement->node[r]]++;
    placement->least_ranks = placement->most_ranks = count[0];
    for (int n = 1; n < placement->nodes; n++) {
        if (count[n] < placement->least_ranks)
            placement->least_ranks = count[n];
        if (count[n] > placement->most_ranks)
            placement->most_ranks = count[n];
    }
    free(count);
    return true;
}

/* Numbers the nodes: node (ranks) from host (ranks), and first (ranks), each node's first rank;
 * returns how many. Quadratic in nodes, linear in ranks. */
static int number_nodes(char (*host)[SBP_HOST_NAME], int ranks, int *node, int *first)
{
    int nodes = 0;
    for (int r = 0; r < ranks; r++) {
        int n = r > 0 && strcmp(host[r], host[r - 1]) == 0 ? node[r - 1] : 0;
        while (n < nodes && strcmp(host[r], host[first[n]]) != 0)
            n++;
        node[r] = n;
        if (n == nodes)
            first[nodes++] = r;
    }
    return nodes;
}

enum sbp_status sbp_placement_of(char (*host)[SBP_HOST_NAME], int ranks,
                                 struct sbp_rank_placement *placement, struct sbp_diag *diag)
{
    int *first = calloc((size_t)ranks, sizeof *first);
    *placement =
        (struct sbp_rank_placement){.ranks = ranks,
                                    .node = calloc((size_t)ranks, sizeof *placement->node),
                                    .local = calloc((size_t)ranks, sizeof *placement->local)};
    bool done = first != NULL && placement->node != NULL && placement->local != NULL;
    if (done) {
        placement->nodes = number_nodes(host, ranks, placement->node, first);
        placement->host = calloc((size_t)placement->nodes, sizeof *placement->host);
        done = placement->host != NULL && fill_places(placement);
    }
    for (int n = 0; done && n < placement->nodes; n++)
        memcpy(placement->host[n], host[first[n]], SBP_HOST_NAME);
    free(first);
    if (done)
        return SBP_OK;
    sbp_placement_free(placement);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the places of %d ranks", ranks);
}

bool sbp_placement_same(const struct sbp_rank_placement *a, const struct sbp_rank_placement *b)
{
    bool same = a->ranks == b->ranks;
    for (int r = 0; same && r < a->ranks; r++)
        same = strcmp(a->host[a->node[r]], b->host[b->node[r]]) == 0;
    return same;
}

int sbp_placement_rank(const struct sbp_rank_placement *placement, int node, int local)
{
    for (int r = 0; r < placement->ranks; r++)
        if (placement->node[r] == node && placement->local[r] == local)
            return r;
    return -1;
}

#include "calib/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

void sbp_placement_free(struct sbp_placement *placement)
{
    if (placement == NULL)
        return;
    free(placement->node);
    free(placement->local);
    free(placement->host);
    *placement = (struct sbp_placement){0};
}

/* Numbers of nodes are given; counts their ranks and gives each its place. */
static bool fill_places(struct sbp_placement *placement)
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

enum sbp_status sbp_placement_of(const int *node, int ranks, struct sbp_placement *placement,
                                 struct sbp_diag *diag)
{
    *placement = (struct sbp_placement){.ranks = ranks};
    for (int r = 0; r < ranks; r++) {
        if (node[r] < 0 || node[r] > placement->nodes)
            return sbp_fail(diag, SBP_E_INPUT, "rank %d lies on node %d, legal are 0 to %d", r,
                            node[r], placement->nodes);
        if (node[r] == placement->nodes)
            placement->nodes++;
    }
    placement->node = calloc((size_t)ranks, sizeof *placement->node);
    placement->local = calloc((size_t)ranks, sizeof *placement->local);
    placement->host = calloc((size_t)placement->nodes, sizeof *placement->host);
    if (placement->node != NULL && placement->local != NULL && placement->host != NULL) {
        memcpy(placement->node, node, (size_t)ranks * sizeof *node);
        if (fill_places(placement))
            return SBP_OK;
    }
    sbp_placement_free(placement);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the places of %d ranks", ranks);
}

int sbp_placement_rank(const struct sbp_placement *placement, int node, int local)
{
    for (int r = 0; r < placement->ranks; r++)
        if (placement->node[r] == node && placement->local[r] == local)
            return r;
    return -1;
}

/* FNV-1a over the hosts' names, rank by rank. */
void sbp_placement_digest(const struct sbp_placement *placement, char *text, int size)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (int r = 0; r < placement->ranks; r++)
        for (int i = 0; i < SBP_HOST_NAME; i++)
            digest = (digest ^ (unsigned char)placement->host[placement->node[r]][i]) *
                     UINT64_C(0x100000001b3);
    (void)snprintf(text, (size_t)size, "%016llx", (unsigned long long)digest);
}

/* --- asking the ranks --- */

/* A name travels as the doubles that its bytes fill: a gather moves bits. */
enum { NAME_DOUBLES = SBP_HOST_NAME / sizeof(double) };

static void own_name(char *name)
{
    struct utsname names;
    memset(name, 0, SBP_HOST_NAME);
    const bool is_known = uname(&names) == 0 && names.nodename[0] != '\0';
    const char *found = is_known ? names.nodename : "host";
    for (int i = 0; i < SBP_HOST_NAME - 1 && found[i] != '\0'; i++)
        name[i] = found[i];
}

/* names (ranks, SBP_HOST_NAME) -> node (ranks); quadratic in nodes, linear in ranks. first (ranks)
 * is scratch: each node's first rank. */
static void number_nodes(char (*names)[SBP_HOST_NAME], int ranks, int *node, int *first)
{
    int nodes = 0;
    for (int r = 0; r < ranks; r++) {
        int n = r > 0 && strcmp(names[r], names[r - 1]) == 0 ? node[r - 1] : 0;
        while (n < nodes && strcmp(names[r], names[first[n]]) != 0)
            n++;
        node[r] = n;
        if (n == nodes)
            first[nodes++] = r;
    }
}

static enum sbp_status place(char (*names)[SBP_HOST_NAME], int ranks,
                             struct sbp_placement *placement, struct sbp_diag *diag)
{
    int *node = calloc(2 * (size_t)ranks, sizeof *node);
    if (node == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d ranks", ranks);
    number_nodes(names, ranks, node, node + ranks);
    const enum sbp_status status = sbp_placement_of(node, ranks, placement, diag);
    for (int n = 0; status == SBP_OK && n < placement->nodes; n++)
        memcpy(placement->host[n], names[node[ranks + n]], SBP_HOST_NAME);
    free(node);
    return status;
}

enum sbp_status sbp_placement_find(const struct sbp_sampler *sampler,
                                   struct sbp_placement *placement, struct sbp_diag *diag)
{
    const int ranks = sampler->ops->size(sampler->comm);
    union {
        char text[SBP_HOST_NAME];
        double moved[NAME_DOUBLES];
    } own;
    own_name(own.text);
    *placement = (struct sbp_placement){0};
    char(*names)[SBP_HOST_NAME] = calloc((size_t)ranks, sizeof *names);
    if (names == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the names of %d ranks", ranks);
    enum sbp_status status = sampler->ops->all_gather(sampler->comm, sampler->everybody, names,
                                                      own.moved, NAME_DOUBLES, SBP_F64);
    if (status != SBP_OK)
        status = sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
    else
        status = place(names, ranks, placement, diag);
    free(names);
    return status;
}

#include "calib/measure/perform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NO_GROUP      (-1)
#define COVER         1.5 /* times a collective's own time that products beside it take */
#define MOST_COVERING 1e6

/* --- one repetition --- */

static int *group_of(const struct sbp_performer *performer, int nodes, int ranks_per_node)
{
    const int stride = performer->sweep->options.ranks_per_node + 1;
    return &performer->group[nodes * stride + ranks_per_node];
}

/* Times half a message there and back; the answering rank times nothing. */
static enum sbp_status bounce(const struct sbp_performer *performer, int first, int last,
                              int64_t bytes, double *time_s)
{
    const struct sbp_comm_ops *ops = performer->ranks.ops;
    struct sbp_comm *comm = performer->ranks.comm;
    const int tag = 0;
    if (performer->rank == first) {
        const double start_s = sbp_clock_s();
        SBP_TRY(ops->send(comm, last, tag, performer->send, bytes));
        SBP_TRY(ops->receive(comm, last, tag, performer->receive, bytes));
        *time_s = (sbp_clock_s() - start_s) / 2;
    } else if (performer->rank == last) {
        SBP_TRY(ops->receive(comm, first, tag, performer->receive, bytes));
        SBP_TRY(ops->send(comm, first, tag, performer->send, bytes));
    }
    return SBP_OK;
}

static enum sbp_status call(const struct sbp_performer *performer, int group)
{
    const struct sbp_cell *cell = performer->cell;
    const struct sbp_comm_ops *ops = performer->ranks.ops;
    struct sbp_comm *comm = performer->ranks.comm;
    const int64_t count = cell->bytes / (int64_t)sizeof(float);
    const int64_t block = count / ((int64_t)cell->nodes * cell->ranks_per_node);
    float *receive = performer->receive;
    const float *send = performer->send;
    switch (cell->kind) {
    case SBP_ALL_REDUCE:
        return ops->all_reduce(comm, group, receive, count, SBP_F32, SBP_SUM);
    case SBP_ALL_GATHER:
        return ops->all_gather(comm, group, receive, send, block, SBP_F32);
    case SBP_REDUCE_SCATTER:
        return ops->reduce_scatter(comm, group, receive, send, block, SBP_F32);
    case SBP_ALL_TO_ALL:
        return ops->all_to_all(comm, group, receive, send, block, SBP_F32);
    case SBP_BROADCAST_COLL:
        return ops->broadcast(comm, group, 0, receive, count, SBP_F32);
    default:
        return SBP_E_INTERNAL;
    }
}

static enum sbp_status perform_collective(const struct sbp_performer *performer, double *time_s)
{
    const struct sbp_cell *cell = performer->cell;
    const struct sbp_rank_placement *placement = performer->placement;
    const int node = placement->node[performer->rank], local = placement->local[performer->rank];
    const int group = *group_of(performer, cell->nodes, cell->ranks_per_node);
    if (group == NO_GROUP || local / cell->ranks_per_node >= cell->groups)
        return SBP_OK;
    if (cell->kind == SBP_SEND_RECV) {
        const int first_node = node / cell->nodes * cell->nodes;
        const int first_local = local / cell->ranks_per_node * cell->ranks_per_node;
        const int first = sbp_placement_rank(placement, first_node, first_local);
        const int last = sbp_placement_rank(placement, first_node + cell->nodes - 1,
                                            first_local + cell->ranks_per_node - 1);
        return bounce(performer, first, last, cell->bytes, time_s);
    }
    const int calls = sbp_perform_calls(cell);
    const double start_s = sbp_clock_s();
    for (int i = 0; i < calls; i++)
        SBP_TRY(call(performer, group));
    *time_s = (sbp_clock_s() - start_s) / calls;
    return SBP_OK;
}

static enum sbp_status perform_pairs(const struct sbp_performer *performer, double *time_s)
{
    const struct sbp_cell *cell = performer->cell;
    const struct sbp_rank_placement *placement = performer->placement;
    int node, local;
    if (!sbp_sweep_partner(&performer->sweep->options, cell->round,
                           placement->node[performer->rank], placement->local[performer->rank],
                           &node, &local))
        return SBP_OK;
    const int other = sbp_placement_rank(placement, node, local);
    const int first = other < performer->rank ? other : performer->rank;
    const int last = other < performer->rank ? performer->rank : other;
    return bounce(performer, first, last, cell->bytes, time_s);
}

static enum sbp_status check(const struct sbp_performer *performer, enum sbp_status status,
                             struct sbp_diag *diag)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(diag, status, "%s", performer->ranks.ops->reason(performer->ranks.comm));
}

/* --- beside products --- */

bool sbp_perform_has_lane(const struct sbp_endpoint *ranks)
{
    return ranks->ops->work_on != NULL || ranks->ops->is_shared(ranks->comm);
}

static enum sbp_status call_beside(void *context, void *stream, struct sbp_diag *diag)
{
    const struct sbp_performer *performer = context;
    const struct sbp_cell *cell = performer->cell;
    const struct sbp_comm_ops *ops = performer->ranks.ops;
    if (stream != NULL)
        ops->work_on(performer->ranks.comm, stream);
    const enum sbp_status status =
        call(performer, *group_of(performer, cell->nodes, cell->ranks_per_node));
    if (stream != NULL)
        ops->work_on(performer->ranks.comm, NULL);
    return check(performer, status, diag);
}

static enum sbp_status look_beside(void *context, struct sbp_diag *diag)
{
    const struct sbp_performer *performer = context;
    return check(performer, performer->ranks.ops->look(performer->ranks.comm), diag);
}

/* Times the work of a cell beside products: so many of these, and the collective or not. */
static enum sbp_status time_beside(struct sbp_performer *performer, int products, bool calls,
                                   double *time_s, struct sbp_diag *diag)
{
    const struct sbp_beside beside = {call_beside, look_beside, performer};
    return performer->compute->beside(performer->work, performer->cell, products,
                                      calls ? &beside : NULL, time_s, diag);
}

/* Counts the products that outlast the collective; its very first use does not count. */
static enum sbp_status cover(struct sbp_performer *performer, struct sbp_diag *diag)
{
    double collective_s, product_s;
    for (int i = 0; i < 2; i++)
        SBP_TRY(time_beside(performer, 0, true, &collective_s, diag));
    for (int i = 0; i < 2; i++)
        SBP_TRY(time_beside(performer, 1, false, &product_s, diag));
    const double products = COVER * collective_s / fmax(product_s, SBP_LEAST_TIME_S);
    performer->products = (int)fmax(1, fmin(MOST_COVERING, ceil(products)));
    performer->covered = performer->cell;
    return SBP_OK;
}

/* What a hidden collective adds to products may be lost in how their own times vary. */
static enum sbp_status perform_beside(struct sbp_performer *performer, double *time_s,
                                      struct sbp_diag *diag)
{
    const struct sbp_cell *cell = performer->cell;
    const struct sbp_endpoint *ranks = &performer->ranks;
    const bool waits = *group_of(performer, cell->nodes, cell->ranks_per_node) == NO_GROUP;
    double alone_s = 0, both_s = 0;
    if (sbp_cell_is_alone(cell))
        return waits ? SBP_OK : time_beside(performer, 0, true, time_s, diag);
    if (!waits && performer->covered != cell)
        SBP_TRY(cover(performer, diag));
    if (!waits)
        SBP_TRY(time_beside(performer, performer->products, false, &alone_s, diag));
    SBP_TRY(check(performer, ranks->ops->barrier(ranks->comm), diag));
    if (!waits)
        SBP_TRY(time_beside(performer, performer->products, true, &both_s, diag));
    *time_s = fmax(SBP_LEAST_TIME_S, both_s - alone_s);
    return SBP_OK;
}

enum sbp_status sbp_perform(void *context, double *time_s, struct sbp_diag *diag)
{
    struct sbp_performer *performer = context;
    *time_s = 0;
    switch (performer->cell->work) {
    case SBP_CELL_BESIDE:
        return perform_beside(performer, time_s, diag);
    case SBP_CELL_COLLECTIVE:
        return check(performer, perform_collective(performer, time_s), diag);
    case SBP_CELL_PAIRS:
        return check(performer, perform_pairs(performer, time_s), diag);
    default:
        return performer->compute->repeat(performer->work, performer->cell, time_s, diag);
    }
}

/* --- setting up --- */

/* Makes this rank's group of one shape; ranks (nodes x ranks_per_node) is scratch. */
static enum sbp_status make_group(struct sbp_performer *performer, int nodes, int ranks_per_node,
                                  int key, int *ranks)
{
    const struct sbp_rank_placement *placement = performer->placement;
    const struct sbp_sweep_options *options = &performer->sweep->options;
    const int node = placement->node[performer->rank], local = placement->local[performer->rank];
    int *group = group_of(performer, nodes, ranks_per_node);
    if (local >= options->ranks_per_node)
        return SBP_OK;
    const int node_set = node / nodes, block = local / ranks_per_node;
    const int blocks = options->ranks_per_node / ranks_per_node;
    int count = 0;
    for (int n = 0; n < nodes; n++)
        for (int r = 0; r < ranks_per_node; r++)
            ranks[count++] =
                sbp_placement_rank(placement, node_set * nodes + n, block * ranks_per_node + r);
    return performer->ranks.ops->group(performer->ranks.comm, ranks, count,
                                       key + node_set * blocks + block, group);
}

/* Makes the groups of all shapes that cells ask for, each under a key of its own. */
static enum sbp_status make_groups(struct sbp_performer *performer, int *ranks)
{
    const struct sbp_sweep_options *options = &performer->sweep->options;
    int key = 1;
    for (int nodes = 1; nodes <= options->nodes; nodes++)
        for (int r = 1; r <= options->ranks_per_node; r++) {
            *group_of(performer, nodes, r) = NO_GROUP;
            if (options->nodes % nodes != 0 || options->ranks_per_node % r != 0 || nodes * r < 2)
                continue;
            SBP_TRY(make_group(performer, nodes, r, key, ranks));
            key += options->nodes / nodes * (options->ranks_per_node / r);
        }
    return SBP_OK;
}

static bool make_buffers(struct sbp_performer *performer)
{
    const struct sbp_sample_sweep *sweep = performer->sweep;
    const size_t shapes =
        ((size_t)sweep->options.nodes + 1) * ((size_t)sweep->options.ranks_per_node + 1);
    int64_t largest = 1;
    for (int i = 0; i < sweep->count; i++)
        if ((sweep->cell[i].work == SBP_CELL_COLLECTIVE || sweep->cell[i].work == SBP_CELL_PAIRS) &&
            sweep->cell[i].bytes > largest)
            largest = sweep->cell[i].bytes;
    performer->group = calloc(shapes, sizeof *performer->group);
    performer->send = performer->ranks.ops->memory->allocate(largest);
    performer->receive = performer->ranks.ops->memory->allocate(largest);
    return performer->group != NULL && performer->send != NULL && performer->receive != NULL;
}

enum sbp_status sbp_perform_open(struct sbp_performer *performer, struct sbp_endpoint ranks,
                                 const struct sbp_compute_ops *compute,
                                 const struct sbp_rank_placement *placement,
                                 const struct sbp_sample_sweep *sweep, struct sbp_diag *diag)
{
    *performer = (struct sbp_performer){.ranks = ranks,
                                        .compute = compute,
                                        .placement = placement,
                                        .sweep = sweep,
                                        .rank = ranks.ops->rank(ranks.comm)};
    int *members = calloc((size_t)placement->ranks, sizeof *members);
    enum sbp_status status;
    if (members == NULL || !make_buffers(performer)) {
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory for messages of up to %lld bytes",
                          (long long)sweep->options.max_bytes);
    } else {
        status = check(performer, make_groups(performer, members), diag);
    }
    free(members);
    if (status == SBP_OK)
        status = compute->open(&performer->work, sweep->options.copy_bytes, diag);
    if (status != SBP_OK)
        sbp_perform_close(performer);
    return status;
}

void sbp_perform_close(struct sbp_performer *performer)
{
    if (performer == NULL || performer->compute == NULL)
        return;
    performer->compute->close(performer->work);
    performer->ranks.ops->memory->release(performer->receive);
    performer->ranks.ops->memory->release(performer->send);
    free(performer->group);
    *performer = (struct sbp_performer){.compute = NULL};
}

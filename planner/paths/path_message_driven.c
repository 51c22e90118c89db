#include "planner/paths/path_message_driven.h"

#include <string.h>

#include "planner/limits.h"

/* Nodes of the step's dependencies: a pass of a micro-batch on a stage, or the message after it. */
enum kind { FORWARD, SENT, BACKWARD, RETURNED, KINDS };

struct node {
    enum kind kind;
    int64_t micro_batch; /* -1: no such node */
    int stage;
};
static const struct node none = {FORWARD, -1, -1};

struct grid {
    const struct sbp_path *times;
    int64_t count, limit; /* micro-batches, and how many may be in flight */
    int stages;
    double *end_s[KINDS]; /* (micro_batches, stages) length of the longest path to a node's end */
};

static struct node node_of(enum kind kind, int64_t micro_batch, int stage)
{
    return (struct node){kind, micro_batch, stage};
}

static double *end_of(const struct grid *grid, struct node node)
{
    return &grid->end_s[node.kind][node.micro_batch * grid->stages + node.stage];
}

static double duration_s(const struct grid *grid, struct node node)
{
    const struct sbp_path *times = grid->times;
    switch (node.kind) {
    case FORWARD:
        return times->forward[node.stage];
    case SENT:
        return times->sent[node.stage];
    case BACKWARD:
        return times->backward[node.stage] + times->weight[node.stage];
    default:
        return times->returned[node.stage];
    }
}

/* The node that always precedes this one on its stage or link. The first stage begins with as many
 * micro-batches as may be in flight; then a new one follows each that comes back. */
static struct node before(const struct grid *grid, struct node node)
{
    const int64_t i = node.micro_batch, ahead = i + grid->limit - 1;
    const bool is_first = node.stage == 0, is_last = node.stage == grid->stages - 1;
    if (node.kind == FORWARD && is_first && i >= grid->limit)
        return node_of(BACKWARD, i - grid->limit, 0);
    if (node.kind == FORWARD && is_last)
        return node_of(BACKWARD, i - 1, node.stage);
    if (node.kind == BACKWARD && is_first && ahead < grid->count)
        return node_of(FORWARD, ahead, 0);
    return node_of(node.kind, i - 1, node.stage);
}

/* The node that produces this node's input. */
static struct node source(const struct grid *grid, struct node node)
{
    const int64_t i = node.micro_batch;
    switch (node.kind) {
    case FORWARD:
        return node.stage > 0 ? node_of(SENT, i, node.stage - 1) : none;
    case BACKWARD:
        return node.stage + 1 < grid->stages ? node_of(RETURNED, i, node.stage + 1)
                                             : node_of(FORWARD, i, node.stage);
    default:
        return node_of(node.kind == SENT ? FORWARD : BACKWARD, i, node.stage);
    }
}

/* The later of the two nodes that this one waits for; none where the step begins. */
static struct node predecessor(const struct grid *grid, struct node node)
{
    const struct node a = before(grid, node), b = source(grid, node);
    if (a.micro_batch < 0 || b.micro_batch < 0)
        return a.micro_batch < 0 ? b : a;
    return *end_of(grid, a) > *end_of(grid, b) ? a : b;
}

static double begin_s(const struct grid *grid, struct node node)
{
    const struct node from = predecessor(grid, node);
    return from.micro_batch < 0 ? 0 : *end_of(grid, from);
}

static void fill(const struct grid *grid, enum kind kind, int64_t micro_batch, int stage)
{
    const struct node node = node_of(kind, micro_batch, stage);
    *end_of(grid, node) = begin_s(grid, node) + duration_s(grid, node);
}

/* Forward passes of the first stage are filled in as far ahead as the limit allows, because later
 * nodes need them. */
static void fill_all(const struct grid *grid)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < grid->count; i++) {
        while (taken < grid->count && taken < i + grid->limit)
            fill(grid, FORWARD, taken++, 0);
        for (int stage = 0; stage < grid->stages; stage++) {
            if (stage > 0)
                fill(grid, FORWARD, i, stage);
            fill(grid, SENT, i, stage);
        }
        for (int stage = grid->stages - 1; stage >= 0; stage--) {
            fill(grid, BACKWARD, i, stage);
            fill(grid, RETURNED, i, stage);
        }
    }
}

/* ---- the end of a path ---------------------------------------------------------------------- */

/* A path in three parts: up to the start of a node (none: start of the step); then counts of passes
 * on that node's stage, `turn`; then the last micro-batch back to the stage where the step ends. */
struct route {
    struct node up_to;
    int64_t forward, backward;
    int turn, end;
};

/* Seconds of the longest way from the last pass of a stage to the end of the step on *end. */
static double way_out_s(const struct grid *grid, int stage, int *end)
{
    const struct sbp_path *times = grid->times;
    double seconds = 0, longest_s = -1;
    for (int at = stage; at >= 0; at--) {
        if (at < stage)
            seconds += times->returned[at + 1] + times->backward[at] + times->weight[at];
        if (seconds + times->end[at] > longest_s) {
            longest_s = seconds + times->end[at];
            *end = at;
        }
    }
    return longest_s;
}

static double up_to_end_s(const struct grid *grid, const struct route *route)
{
    const struct sbp_path *times = grid->times;
    return begin_s(grid, route->up_to) + (double)route->forward * times->forward[route->turn] +
           (double)route->backward * (times->backward[route->turn] + times->weight[route->turn]);
}

/* The start of a micro-batch's forward pass precedes all passes of it and of later micro-batches.
 * The start of its backward pass precedes the forward passes that the limit holds back until then,
 * and all later backward passes. */
static struct route find_longest(const struct grid *grid)
{
    struct route longest = {none, 0, 0, 0, 0};
    double longest_s = -1;
    for (int stage = 0; stage < grid->stages; stage++) {
        int end = 0;
        const double out_s = way_out_s(grid, stage, &end);
        for (int64_t i = 0; i < 2 * grid->count; i++) {
            const enum kind kind = i < grid->count ? FORWARD : BACKWARD;
            const int64_t first = i % grid->count, left = grid->count - first;
            const int64_t held = left > grid->limit ? left - grid->limit : 0;
            const struct route route = {.up_to = node_of(kind, first, stage),
                                        .forward = kind == FORWARD ? left : held,
                                        .backward = left,
                                        .turn = stage,
                                        .end = end};
            const double seconds = up_to_end_s(grid, &route) + out_s;
            if (seconds > longest_s) {
                longest_s = seconds;
                longest = route;
            }
        }
    }
    return longest;
}

static void count_node(struct node node, struct sbp_path *path)
{
    double *const counts[KINDS] = {path->forward, path->sent, path->backward, path->returned};
    counts[node.kind][node.stage] += 1;
    if (node.kind == BACKWARD)
        path->weight[node.stage] += 1;
}

static void count_route(const struct grid *grid, const struct route *route, struct sbp_path *path)
{
    memset(path->all, 0, sbp_path_entries(path) * sizeof *path->all);
    for (struct node at = predecessor(grid, route->up_to); at.micro_batch >= 0;
         at = predecessor(grid, at))
        count_node(at, path);
    path->forward[route->turn] += (double)route->forward;
    path->backward[route->turn] += (double)route->backward;
    path->weight[route->turn] += (double)route->backward;
    for (int stage = route->turn - 1; stage >= route->end; stage--) {
        count_node(node_of(RETURNED, 0, stage + 1), path);
        count_node(node_of(BACKWARD, 0, stage), path);
    }
    path->end[route->end] = 1;
}

static enum sbp_status allocate(struct grid *grid, struct sbp_arena *scratch)
{
    for (int kind = 0; kind < KINDS; kind++) {
        grid->end_s[kind] = SBP_TAKE(scratch, double, grid->count * grid->stages);
        if (grid->end_s[kind] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

enum sbp_status sbp_path_driven(const struct sbp_path *times, int64_t micro_batches, int64_t limit,
                                struct sbp_arena *scratch, struct sbp_path *path)
{
    struct grid grid = {.times = times,
                        .count = micro_batches,
                        .limit = limit > 0 ? limit : times->stages,
                        .stages = times->stages};
    const struct sbp_arena_mark mark = sbp_arena_mark(scratch);
    if (micro_batches > SBP_PATHS_DRIVEN_WORKS / times->stages)
        return SBP_OK;
    const enum sbp_status status = allocate(&grid, scratch);
    if (status == SBP_OK) {
        fill_all(&grid);
        const struct route longest = find_longest(&grid);
        count_route(&grid, &longest, path);
    }
    sbp_arena_release(scratch, mark);
    return status;
}

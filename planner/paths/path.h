/* Paths through the timeline of a step.
 *
 * A path is a chain of passes and messages, each of which waits for the one before it, however long
 * any of them takes. The length of a path is therefore a lower bound of the step. A path is stored
 * as counts: how often each pass of a piece, each message between pieces and each stage's end lies
 * on it.
 *
 * A mixture of paths, each weighted by a share of one, bounds the step as well. The shares under
 * which the cheapest plan costs most solve a game: one side chooses a plan, the other the path that
 * it is measured along (planner/paths/path_mixture.h).
 */
#ifndef SBP_PLANNER_PATHS_PATH_H
#define SBP_PLANNER_PATHS_PATH_H

#include "costmodel/program/cut.h"

/* Counts by piece (costmodel/program/step.h): forward and backward passes, passes for weight
 * gradients, and messages that leave the piece forward (sent) and backward (returned). Passes for
 * weight gradients are as many as backward passes, unless the schedule separates them. A pass takes
 * as long as its device, its links and its host at least (sbp_runtime_pass_s): a path counts it by
 * its device, by its host's launches (_host), or by all of its collectives (_links).
 * Counts by stage: 1 where the path ends with the end of the step on that stage; and 1 where it
 * goes through all of that stage's sum of gradients (sync), which begins with a late pass for
 * gradients and may outlast all that follows, instead of from that pass on. Times of the same
 * passes and messages, in seconds, have the same shape; those of `end` include what of the sum
 * never hides, those of `sync` are the rest. */
struct sbp_path {
    int pieces, stages;
    double *all; /* (11 pieces + 2 stages): the arrays below, one after the other */
    double *forward, *backward, *weight, *sent, *returned;
    double *forward_host, *backward_host, *weight_host;
    double *forward_links, *backward_links, *weight_links;
    double *end, *sync;
};

/* A zeroed path of the cut's pieces and stages, allocated in the arena. E_MEMORY. */
enum sbp_status sbp_path_init(const struct sbp_cut *cut, struct sbp_arena *arena,
                              struct sbp_path *path) SBP_MUST_USE;
/* The path over the last stage and back to the first one. Where weight gradients come late the way
 * back need not be long, so that the path ends on the last stage. With one stage it is the whole
 * step. Arrays are allocated in the arena. E_MEMORY. */
enum sbp_status sbp_path_longest(const struct sbp_cut *cut, struct sbp_arena *arena,
                                 struct sbp_path *path) SBP_MUST_USE;

/* Entries of path->all. */
static inline size_t sbp_path_entries(const struct sbp_path *path)
{
    return 11 * (size_t)path->pieces + 2 * (size_t)path->stages;
}
/* Where the trainer's sends block, every pass on the path sends: each device waits for its own
 * messages, whether or not the path goes on with them. Else does nothing. */
void sbp_path_block(const struct sbp_cut *cut, struct sbp_path *path);
bool sbp_path_equal(const struct sbp_path *a, const struct sbp_path *b);
double sbp_path_length_s(const struct sbp_path *path, const struct sbp_path *times);
/* Sums path[i] times share[i], 0 <= i < count, into `mixed`, which is of the same cut. */
void sbp_path_mix(const struct sbp_path *path, const double *share, int count,
                  struct sbp_path *mixed);

/* Seconds of a message between stages: a tensor (-1: none) that rests in so many parts. */
double sbp_path_message_s(const struct sbp_cut *cut, int tensor, double parts);
/* The same for the activation that crosses before an operator, when every device holds no more than
 * its share: a lower bound for any strategy. */
double sbp_path_least_message_s(const struct sbp_cut *cut, int op);
/* Lower bound of the path's messages, whatever the strategy. first (pieces + 1): operators at which
 * the pieces begin. */
double sbp_path_messages_s(const struct sbp_cut *cut, const struct sbp_path *path,
                           const int *first);
/* The cut's schedule of so many micro-batches as a request for the timeline; cost (stages, chunks)
 * is borrowed. */
struct sbp_timeline_request sbp_path_timeline(const struct sbp_cut *cut, int64_t micro_batches,
                                              const struct sbp_stage_cost *cost);

#endif

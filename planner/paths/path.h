/* Paths through the timeline of a step: chains of works and messages, each of which waits for the
 * one before it, whatever they take. The length of each is a lower bound of the step.
 *
 * A mixture of paths, each counted with a share of one, bounds it as well. The shares for which the
 * cheapest plan along the mixture costs most are those of a game: one side chooses a cut, the
 * other the path that it is measured along (planner/paths/path_mixture.h).
 */
#ifndef SBP_PLANNER_PATHS_PATH_H
#define SBP_PLANNER_PATHS_PATH_H

#include "costmodel/program/cut.h"

/* By pieces (costmodel/program/step.h): how many works of each lie on the path, and how many
 * messages that leave each, forward and backward. Works on weight gradients count as many as those
 * on input gradients, unless the schedule parts them. By stages: whose end of the step it has. */
struct sbp_path {
    int pieces, stages;
    double *all; /* (5 pieces + stages) what follows, one array after the other */
    double *forward, *backward, *weight, *sent, *returned, *end;
};

/* Arrays come out of the arena. The plan's graph and mesh are cut as its parallel says
 * (sbp_plan_set_parallel). E_INPUT: the model has too few cuts; E_MEMORY.
 *
 * longest: over the last stage and back to the first; where weight gradients come late, the way
 * back is not bound to be long, and the path ends on the last stage. With one stage all there is.
 * expected: the longest if work takes what its flops do. of_step: the longest of a compiled plan;
 * times: what each work, message and end takes there, in the shape of a path.
 *
 * Under `message-driven` stages do what has come, and only some of what waits is known: the last
 * two are then the longest of the paths that are (planner/paths/path_message_driven.h). Under
 * cyclic schedules they are the first. */
enum sbp_status sbp_path_longest(const struct sbp_cut *cut, struct sbp_arena *arena,
                                 struct sbp_path *path) SBP_MUST_USE;
enum sbp_status sbp_path_expected(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_path *path, struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_path_of_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                                 struct sbp_arena *arena, struct sbp_path *path,
                                 struct sbp_path *times, struct sbp_diag *diag) SBP_MUST_USE;

bool sbp_path_equal(const struct sbp_path *a, const struct sbp_path *b);
double sbp_path_length_s(const struct sbp_path *path, const struct sbp_path *times);
/* Each with its share; `mixed` is one of the same plan, and written over. */
void sbp_path_mix(const struct sbp_path *path, const double *share, int count,
                  struct sbp_path *mixed);
/* A message between stages of an activation, -1: none, that rests in so many parts. */
double sbp_path_message_s(const struct sbp_cut *cut, int tensor, double parts);
/* The path's messages, at the least, whatever the strategy; first: where pieces begin. */
double sbp_path_messages_s(const struct sbp_cut *cut, const struct sbp_path *path,
                           const int *first);
/* The timeline of a step of the plan's parallel. */
struct sbp_timeline_request sbp_path_timeline(const struct sbp_cut *cut, int64_t micro_batches,
                                              const struct sbp_stage_cost *cost);

#endif

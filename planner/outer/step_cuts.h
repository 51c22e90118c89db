/* All legal ways to cut a step: stages, micro-batches, schedule, ZeRO level, recompute and offload.
 *
 * Each is a candidate of the outer search, with a lower bound of its step that needs no strategy:
 * the arithmetic at the peak rate, shared out evenly among the devices of a stage, along the
 * longest of the paths over each stage (planner/paths/path_weights.h).
 */
#ifndef SBP_PLANNER_OUTER_STEP_CUTS_H
#define SBP_PLANNER_OUTER_STEP_CUTS_H

#include "costmodel/program/cut.h"
#include "planner/space/space_table.h"

struct sbp_step_cut {
    struct sbp_parallel parallel;
    double bound_s;
};

struct sbp_step_cuts {
    int count;
    struct sbp_step_cut *candidate;
};

/* Lists all candidates that the request's space leaves open; keys that the request gives stay as in
 * given->parallel. Stages divide the cluster and are cut from the model; micro-batches divide the
 * global batch, into 65,536 at most; chunks deal the blocks out evenly; models of more than 256
 * operators are cut between blocks alone; with one stage, schedules are equal and the first stands
 * for all. Candidates with the same stages and micro-batch lie together, within them those with the
 * same schedule, within these those without offload first, and of each those without recompute
 * first. Bounds are 0 unless the objective is the step's time. Arrays come out of the arena.
 * E_INPUT: none is legal; E_MEMORY.
 */
enum sbp_status sbp_step_cuts_list(const struct sbp_cut *given, const struct sbp_request *request,
                                   struct sbp_arena *arena, struct sbp_step_cuts *candidates,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* What a search may put around a strategy: every legal way to cut a step in time.
 *
 * A candidate is a struct sbp_parallel with a lower bound of its step that needs no strategy at
 * all: arithmetic alone, at the peak rate, shared out evenly among a stage's devices, along the
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

/* All candidates that the request's space leaves open and the request does not give; the rest as
 * cut->parallel has it. Stages divide the cluster and are cut from the model; micro-batches divide
 * the global batch, into 65,536 at most; chunks deal the blocks out evenly; models of more than 256
 * operators are cut between blocks alone; among equal schedules of one stage the first stands for
 * all. Those with the same stages and micro-batch stand together, in them those with the same
 * schedule, in these what leaves the states on the device, then what offloads them, of both what
 * forms nothing again first. Bounds are 0 unless the objective is the step's time. Arrays come out
 * of the arena. E_INPUT: none is legal; E_MEMORY.
 */
enum sbp_status sbp_step_cuts_list(const struct sbp_cut *given, const struct sbp_request *request,
                                   struct sbp_arena *arena, struct sbp_step_cuts *candidates,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* A second opinion on a plan before it leaves the program.
 *
 * Everything that a plan claims is worked out once more, from the catalogue's roles, the graph's
 * shapes and the cluster file alone: nothing is shared with spaces, solvers, labels, the strategy
 * module or boxing. What is checked, in this order:
 *
 *   cut      stages take whole outer levels, micro-batches divide the batch, one activation
 *            crosses between stages, and pieces that share a program are the same work
 *   states   every axis has a role that the operator has, outputs rest in states that can be
 *            reached, axes that split a dimension class anywhere divide it (digit rule), heads of
 *            keys lie with heads of queries and rows of images in runs, tied weights agree, fixes
 *            are kept
 *   flow     every operator of every program reads and writes blocks in the states that its roles
 *            ask for, every transfer is a legal transition of the right size, every gradient is
 *            summed before it is used
 *   memory   parameters, gradients, masters and moments to the byte; buffers that live at the same
 *            time lie apart; the device's total, and that it fits
 *   price    every transfer by alpha and beta, every operator by flops and bytes, and their sums
 *   time     1F1B and GPipe are played once more, other schedules simulated anew; a step is no
 *            shorter than any stage's work
 *   answer   the objective is the plan's, no bound lies above it, and optimal means equal
 */
#ifndef SBP_PLANNER_VERIFY_VERIFY_H
#define SBP_PLANNER_VERIFY_VERIFY_H

#include "planner/inner/cut_solve.h"
#include "planner/plan/plan.h"

/* What is to be checked; all borrowed. */
struct sbp_claim {
    const struct sbp_plan *plan;
    const struct sbp_step *step;       /* what the plan's strategy compiles to */
    const struct sbp_request *request; /* limit, objective and fixes; NULL: none were asked for */
    const struct sbp_outcome *outcome; /* NULL: nobody claims that the plan is good */
};

/* E_INTERNAL: the claim is wrong, diag says what disagrees; then the plan must not be written.
 * E_MEMORY. */
enum sbp_status sbp_verify_plan(const struct sbp_claim *claim, struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* A second opinion on a plan before it leaves the program.
 *
 * It takes the plan, the step that its strategy compiles to, the request and the answer of the
 * search, and works out again what they claim. It shares nothing with spaces, solvers, labels, the
 * strategy module or boxing, but it does share parts of the cost model (docs/validation.md has the
 * same table):
 *
 *   check    worked out here                                  shared with the search
 *   cut      stages take whole outer levels, micro-batches    the graph
 *            divide the batch, one activation crosses between
 *            stages, pieces that share a program do the same
 *            work
 *   states   every axis has a role that the operator has,     the catalogue's roles, the graph
 *            tensors rest in states that can be reached,
 *            axes that split a dimension class divide it
 *            (digit rule), heads of keys lie with heads of
 *            queries, image rows lie in runs, tied weights
 *            agree, fixes are kept
 *   flow     every operator reads and writes blocks in the    the compiled program; which
 *            states of its roles, every transfer is legal     collectives and phases an operator
 *            and of the right size, every gradient is summed  has (sbp_op_inner,
 *            before it is used                                sbp_op_has_weight_phase,
 *                                                             sbp_op_norm_sums,
 *                                                             sbp_op_forms_input_gradient)
 *   memory   parameters, gradients, masters and moments to    the compiled program
 *            the byte; buffers that live at the same time
 *            lie apart; the total, and that it fits
 *   price    transfers by alpha and beta on clusters of       sbp_collective_group_s on measured
 *            rings; flops and bytes of linear products; the   and hierarchical networks;
 *            roofline; every sum                              sbp_op_work of other operators; peak
 *                                                             rate and its shares
 *                                                             (sbp_cluster_*, sbp_device_*);
 *                                                             sbp_op_forms_input_gradient
 *   time     GPipe and 1F1B without offload, up to 2^22       sbp_timeline_simulate for the rest
 *            passes, played again; no step is shorter than
 *            the work of any stage
 *   answer   the objective is the plan's, no bound lies       nothing
 *            above it, optimal means equal
 *
 * So it finds plans that break a rule and sums that are wrong, not an error of what it shares.
 */
#ifndef SBP_PLANNER_VERIFY_VERIFY_H
#define SBP_PLANNER_VERIFY_VERIFY_H

#include "planner/inner/cut_solve.h"
#include "planner/plan/plan.h"

/* The claim that is checked; everything is borrowed. */
struct sbp_claim {
    const struct sbp_plan *plan;
    const struct sbp_step *step;       /* that the plan's strategy compiles to */
    const struct sbp_request *request; /* limit, objective and fixes; NULL: none were asked for */
    const struct sbp_outcome *outcome; /* NULL: nobody claims that the plan is good */
};

/* E_INTERNAL: the claim is wrong, diag says what disagrees; then the plan must not be written.
 * E_MEMORY. */
enum sbp_status sbp_verify_plan(const struct sbp_claim *claim, struct sbp_diag *diag) SBP_MUST_USE;

#endif

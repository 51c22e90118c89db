/* Whether the executor can run a plan; everything else is searched and priced.
 *
 * It runs one stage with all of the batch at once, operators that it has kernels for, in roles that
 * split something or go on with partial sums, wherever activations rest. Checked before anything is
 * allocated.
 */
#ifndef SBP_COSTMODEL_PROGRAM_RUNNABLE_H
#define SBP_COSTMODEL_PROGRAM_RUNNABLE_H

#include "costmodel/program/parallel.h"
#include "costmodel/program/strategy.h"

/* The strategy is closed; parallel may be NULL: a plain step. E_UNSUPPORTED with "plan: WHERE: what
 * it is, what runs". */
enum sbp_status sbp_runnable_check(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   const struct sbp_strategy *strategy,
                                   const struct sbp_parallel *parallel,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif

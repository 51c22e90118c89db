/* Whether the executor can run a plan. Plans that it cannot run are still searched and priced.
 *
 * It runs stages, of several chunks, too, under every schedule, micro-batches, states shared out by
 * ZeRO or in host memory, and recomputation; operators that it has kernels for, in all their roles,
 * wherever activations rest. The check comes before any allocation.
 */
#ifndef SBP_COSTMODEL_PROGRAM_RUNNABLE_H
#define SBP_COSTMODEL_PROGRAM_RUNNABLE_H

#include "costmodel/program/parallel.h"

/* By whatever strategy: every role runs. parallel may be NULL: a plain step. E_UNSUPPORTED with
 * "plan: WHERE: what it is, what runs". */
enum sbp_status sbp_runnable_check(const struct sbp_graph *graph,
                                   const struct sbp_parallel *parallel,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif

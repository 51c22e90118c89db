/* Before they train, ranks agree on what: processes read plan and options on their own, ranks that
 * run different programs would wait for each other for ever, and ranks of one host that together
 * need more memory than is free there would be ended by the system without a word.
 */
#ifndef SBP_EXECUTOR_RUN_RUN_AGREE_H
#define SBP_EXECUTOR_RUN_RUN_AGREE_H

#include "executor/run/run.h"
#include "executor/run/run_memory.h"

struct sbp_run_pact {
    const struct sbp_step *step;
    const struct sbp_tasks *tasks; /* (stages) of the step */
    const struct sbp_run_options *options;
    int64_t ranks;            /* of all stages */
    struct sbp_run_need need; /* of this rank; nothing: it was compared before */
    struct sbp_post *post;    /* of this rank, or NULL */
};

/* Collective. *ranks_here becomes, on rank 0 alone, the ranks of its host. On rank 0 fails with
 * E_INPUT where another rank's plan or options differ, E_MEMORY for the first host that has less
 * free memory than its ranks need, or as another rank did; on others as the backend does. */
enum sbp_status sbp_run_agree(const struct sbp_run_pact *pact, const struct sbp_comm_ops *ops,
                              struct sbp_comm *comm, int *ranks_here,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* Collective. This rank's place among those of its host, by rank. Fails as the backend does, or
 * with E_MEMORY. */
enum sbp_status sbp_run_place_here(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                   int *place, struct sbp_diag *diag) SBP_MUST_USE;

#endif

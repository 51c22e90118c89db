/* Faults that tests plant in a run, to see that verification, or the backend, catches each. */
#ifndef SBP_EXECUTOR_RUN_RUN_FAULT_H
#define SBP_EXECUTOR_RUN_RUN_FAULT_H

#include "executor/rank/rank.h"

enum sbp_fault {
    SBP_FAULT_NONE,
    SBP_FAULT_SKIP,      /* an instruction's communication exchanges nothing; what it would send to
                            another stage is lost, what it receives from there are zeros */
    SBP_FAULT_SCALE,     /* an instruction's result is off by a factor on one rank */
    SBP_FAULT_LEAVE_OUT, /* a sum over stages goes without the one's part */
    SBP_FAULT_FRAME,     /* an instruction works in the frame of another micro-batch */
    SBP_FAULT_ROWS,      /* an instruction works on the first micro-batch's rows of the batch */
    SBP_FAULT_STALE,     /* others' shards of a weight are gathered, or a weight is updated, as the
                            first step had them */
    SBP_FAULT_PADDING,   /* behind the end of a shard, and of its states, stand large numbers */
    SBP_FAULT_LARGE,     /* the same numbers, and one in the last element that counts */
    SBP_FAULT_ODD,       /* the first element of an instruction's result is NaN on one rank */
    SBP_FAULT_STALL,     /* that rank never comes back from it */
    SBP_FAULT_INFINITY,  /* an element of a result, in 16 bits, is infinite on one rank in step 2 */
    SBP_FAULT_LOSS_SCALE, /* one rank of a stage has another loss scale in step 1 */
    SBP_FAULT_NO_COPY,    /* from step 2 on the second bucket's states do not come, or do not go */
    SBP_FAULT_VERSION,    /* from step 2 on an instruction reads the other one of a weight's two
                             versions, and an update works on the one that it should begin with */
    SBP_FAULT_SLOT,       /* on one rank two copies of tokens have each other's slot of an expert */
    SBP_FAULT_COUNT,      /* on one rank a collective is of one element less */
    SBP_FAULT_NO_WAIT,    /* an instruction does not wait for the sum beside of its gradient */
};

/* A rank's memory between the two calls, and from step to step; zeroed at first. */
struct sbp_run_fault {
    void *kept;                 /* the weight of the first step */
    int64_t micro_batch, frame; /* of the rank */
    int version;
};

/* At the beginning of a step, on a rank of the stage that the fault is planted in; before and after
 * the instruction that it is planted in. They fail as the device does. */
enum sbp_status sbp_run_fault_begin_step(enum sbp_fault fault, struct sbp_rank *rank,
                                         struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_run_fault_before(struct sbp_run_fault *memory, enum sbp_fault fault,
                                     struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_run_fault_after(struct sbp_run_fault *memory, enum sbp_fault fault,
                                    struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag) SBP_MUST_USE;
void sbp_run_fault_free(struct sbp_run_fault *memory, const struct sbp_rank *rank);

#endif

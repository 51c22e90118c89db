/* What the files of a run share: the job, a rank under way, and its report of a step. */
#ifndef SBP_EXECUTOR_RUN_RUNNER_PRIV_H
#define SBP_EXECUTOR_RUN_RUNNER_PRIV_H

#include <stdatomic.h>
#include <string.h>

#include "executor/rank/rank.h"
#include "executor/run/device_lanes.h"
#include "executor/run/message_lane.h"
#include "executor/run/run.h"
#include "executor/run/run_fault.h"
#include "executor/run/odd_layer.h"
#include "executor/run/state_copies.h"
#include "executor/run/pace.h"
#include "executor/run/sum_lane.h"
#include "executor/run/watch.h"
#include "executor/verify/verify.h"

enum { SBP_TAG_REPORT = 1, SBP_TAG_INTERVALS = 2, SBP_TAG_VERDICT = 4, SBP_TAG_ODD = 6 };

/* The data that all rank mains share; only rank 0 writes to the result. */
struct sbp_run_job {
    const struct sbp_step *step;
    int64_t ranks;                    /* of all stages */
    const struct sbp_tasks *tasks;    /* (stages) of a step */
    struct sbp_message_plan messages; /* of all of them */
    struct sbp_sum_plan sums;         /* of gradients beside, likewise */
    const struct sbp_cluster *cluster;
    const struct sbp_run_options *options;
    const struct sbp_device_ops *device; /* that options name */
    struct sbp_device_ops tf32_device;   /* it, where products are in TF32 */
    struct sbp_run_result *result;
    struct sbp_watch watch;        /* over the ranks of this process */
    struct sbp_verify_need verify; /* what verification takes; nothing without it */
    _Atomic(void *)
        space; /* kept for the kernels until all ranks have the memory they need; NULL: used */
    int64_t space_bytes;
    int refused; /* how many ranks there are, where the plan is for another number; else 0 */
};

/* One rank under way. */
struct sbp_runner {
    struct sbp_run_job *job;
    int stage;
    const struct sbp_tasks *tasks; /* of the stage */
    struct sbp_arena arena;
    struct sbp_channel channel;
    struct sbp_stage_layout layout; /* of the arena, and slots behind it */
    struct sbp_messenger messenger; /* of messages between stages */
    struct sbp_rank rank;
    struct sbp_sum_lane sums;           /* of the step under way */
    struct sbp_run_lanes lanes;         /* of its device */
    struct sbp_state_copies copies;     /* on them */
    struct sbp_pace pace;               /* of the step under way, of a virtual device */
    struct sbp_verifier *verifier;      /* NULL: no verification */
    struct sbp_run_interval *intervals; /* (tasks) */
    double through_s;                   /* the clock at the end of the last step's tasks */
    double *compute_s;                  /* (most tasks of a stage) to send, or received */
    bool is_spoiled;                    /* an earlier step of replicas had one */
    int odd_step;                       /* that the run ends with, as rank 0 said; 0: none */
    bool is_verdict_due;                /* of the step before */
    struct sbp_post *post;              /* NULL: nobody watches */
    struct sbp_odd_layer *second_look;  /* what it finds; NULL: this is the first look at a step */
    struct sbp_progress progress;       /* of the lead */
    struct sbp_run_fault fault;         /* tests only */
};

/* A rank's share of a step's report, sent as bytes. */
struct sbp_rank_report {
    struct sbp_run_step step;
    bool has_loss, has_odd_gradient;
    int calls;
    int64_t high_water_bytes, slot_high_water_bytes, host_high_water_bytes;
};

/* Among the ranks of all stages. */
static inline int sbp_runner_world_rank(const struct sbp_runner *runner)
{
    return sbp_channel_rank(&runner->channel, runner->stage, runner->rank.rank);
}

static inline bool sbp_runner_leads(const struct sbp_runner *runner)
{
    return sbp_runner_world_rank(runner) == 0;
}

static inline bool sbp_run_is_mpi(const struct sbp_run_job *job)
{
    return sbp_run_starts_mpi(job->options->backend);
}

/* One rank's run, as sbp_threads_run and sbp_mpi_run call it; argument: the job. */
enum sbp_status sbp_runner_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                void *argument, struct sbp_diag *diag) SBP_MUST_USE;
/* After a step: what this rank says of it. E_INTERNAL where its memory is not as full as the plan
 * says. */
enum sbp_status sbp_run_fill_report(const struct sbp_runner *runner,
                                    const struct sbp_message_lane *lane,
                                    struct sbp_rank_report *report,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* Collective: rank 0 keeps what all ranks say of a step in the job's result, and sends the others
 * its verdict, the odd step that the run ends with (0: none), by SBP_TAG_VERDICT. */
enum sbp_status sbp_run_gather_reports(struct sbp_runner *runner, int step,
                                       const struct sbp_rank_report *report,
                                       struct sbp_diag *diag) SBP_MUST_USE;
/* Collective: rank 0 keeps all ranks' times of the last step's tasks, where a trace is wanted. */
enum sbp_status sbp_run_gather_intervals(struct sbp_runner *runner,
                                         struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* A run: all ranks of a plan train some steps; the run times them and, if asked, verifies them.
 *
 * A plan promises which collectives each rank calls and how much memory it needs. Every rank logs
 * its calls and watches how much of its arena, and of host memory, it touches, and all must equal
 * the program's, step by step. Rank 0 gathers times and findings and fills the result. See
 * DESIGN.md, section 7.
 */
#ifndef SBP_EXECUTOR_RUN_RUN_H
#define SBP_EXECUTOR_RUN_RUN_H

#include "base/arena.h"
#include "base/signals.h"
#include "costmodel/program/task.h"
#include "executor/comm/comm.h"
#include "executor/comm/message_way.h"
#include "executor/run/odd_layer.h"
#include "executor/run/run_fault.h"
#include "executor/run/run_times.h"
#include "executor/verify/verify.h"
#include "executor/run/watch.h"

struct sbp_run_result;

struct sbp_run_options {
    int steps;    /* >= 1 */
    bool verify;  /* every step, against one device in double, */
    bool sampled; /* which has a sample of the gradients, and a piece of the model at a time */
    bool trace; /* keep the intervals of the last step; without a flush of the one before, which is
                   whole */
    bool compares; /* fingerprints of every collective, before it is called (fingerprint.h) */
    enum sbp_message_way messages; /* between stages, with nccl */
    enum sbp_real real;
    bool tf32; /* products in f32 round their factors to TF32; E_UNSUPPORTED on a device without */
    uint64_t seed;
    enum sbp_token_labels labels;
    const char *backend;       /* "threads", "mpi" or "nccl" */
    const char *device;        /* of sbp_device */
    struct sbp_done *progress; /* steps of this run and of others; rank 0 counts on. NULL: nobody
                                  asks */
    struct sbp_alarm *alarm;   /* what the watch over the ranks tells; NULL: none watches */
    double deadline_s;         /* of a wait, beside the predicted time of a step */
    /* What rank 0 does before the first step, and after each: steps, from 0, are finished. NULL:
     * nothing. A failure ends the run. */
    enum sbp_status (*on_step)(void *context, const struct sbp_run_result *result, int steps,
                               struct sbp_diag *diag);
    void *context;        /* its own */
    enum sbp_fault fault; /* that a test plants in an instruction of a piece's program */
    int fault_piece, fault_instr;
    bool remeasures; /* tests only: each step is compared with all shadows (verify.h) */
};

/* The time that a task took on a rank. Compute is the device's time (thread CPU time on a
 * CPU); communication is wall time inside the backend, waiting included. */
struct sbp_run_interval {
    double start_s, wall_s; /* since the step's start */
    double compute_s, communication_s;
};

/* Maxima over the ranks. wall_s is a parallel time only when every rank has a core of its own. */
struct sbp_run_step {
    double loss;       /* mean over tokens; NaN without a loss */
    double grad_norm;  /* -1 where no norm is formed; infinite in a step that is left out */
    double loss_scale; /* 1: none */
    bool left_out;     /* gradients overflowed: the step changed nothing on any rank */
    double wall_s, compute_s, communication_s;
    double replay_s; /* the measured arithmetic with the prices of communication (run_times.h) */
    double exposed_s, bubble_s; /* of the replay: communication that is waited for, and idleness */
};

/* A step whose loss, norm or a gradient is no finite number; a run ends with it. */
struct sbp_run_odd {
    int step;                   /* from 1; 0: none */
    const char *what;           /* "loss", "gradient norm", "gradient" */
    struct sbp_odd_layer layer; /* that made it; not found where a second look found all finite */
};

struct sbp_run_result {
    struct sbp_arena arena;    /* owns the arrays */
    bool filled;               /* this process ran rank 0 */
    int ranks, steps, calls;   /* steps: finished; calls: of one step, the most of a rank */
    int ranks_here, cores;     /* of rank 0's host */
    double slowdown;           /* of virtual devices on CPUs (pace.h); 1: ranks do not rest */
    struct sbp_run_step *step; /* (steps) */
    struct sbp_run_interval
        *intervals;                /* (ranks, most_tasks) of the last step, NULL without trace */
    const struct sbp_tasks *tasks; /* (stages) of a step */
    int64_t most_tasks;            /* of a stage */
    struct sbp_run_prediction prediction;
    struct sbp_message_times messages; /* before the first step; nothing without two ways */
    int64_t arena_bytes;               /* that the plan says, the most of a stage */
    int64_t high_water_bytes;          /* the most over the ranks */
    int64_t slot_bytes; /* of slots for messages between stages, as predicted, likewise */
    int64_t host_bytes; /* of offloaded states, that the plan says, the most of a stage */
    int64_t host_high_water_bytes;
    struct sbp_run_odd odd;     /* the last step, where it was so */
    bool verified, sampled;     /* verification was asked for; of a sample */
    struct sbp_finding finding; /* the first tensor that is off */
    double worst_ratio;         /* largest difference / bound seen */
    int64_t remeasured;         /* steps whose round-off was measured again (verify.h) */
};

/* Runs a step that was made for a run (struct sbp_step_request), with the bytes of its type.
 * `cluster` prices the reference (nothing of the result depends on it). With mpi every process of
 * the launcher calls this, with the same program and options (E_INPUT), or sbp_run_refuse; the
 * others' results stay unfilled. E_UNSUPPORTED for what is priced and not run
 * (costmodel/program/runnable.h), E_MEMORY when a host's ranks need more memory
 * than is free there, or more address space than is left, before anything begins. A rank that is
 * killed or does not go on ends the program (executor/run/watch.h). A log or a high-water mark that
 * differs from the program is E_INTERNAL; a failed verification is no error: see result->finding.
 * On failure nothing is left allocated. */
enum sbp_status sbp_run(const struct sbp_step *step, const struct sbp_cluster *cluster,
                        const struct sbp_run_options *options, struct sbp_run_result *result,
                        struct sbp_diag *diag) SBP_MUST_USE;
void sbp_run_free(struct sbp_run_result *result);
/* Whether each rank finds a core when it wants one, so that wall times are those of a parallel
 * machine: there are as many cores, or ranks rest for as long as the others have theirs. */
bool sbp_run_has_cores(const struct sbp_run_result *result);

/* Whether sbp_run would start ranks: all of its refusals that need none, before any is started. */
enum sbp_status sbp_run_check(const struct sbp_step *step, const struct sbp_run_options *options,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* Whether ranks are processes that MPI starts and connects: mpi and nccl. */
bool sbp_run_starts_mpi(const char *backend);

/* Instead of sbp_run, where this process of an MPI launcher has no program: ends those that have
 * one. Returns `status`; diag holds its reason. */
enum sbp_status sbp_run_refuse(enum sbp_status status, struct sbp_diag *diag) SBP_MUST_USE;

#endif

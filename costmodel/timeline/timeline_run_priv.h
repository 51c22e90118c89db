/* One play of a schedule: the state of all devices, and the steps that all schedules share.
 *
 * A schedule either lists the works of every device in order (`arrange`, or `simulate` where
 * devices are not stages), which sbp_timeline_run_play then plays as early as messages allow, or
 * has a loop of its own (`play`), whose list is what sbp_timeline_works gives. A work is one pass
 * of one micro-batch on one virtual stage, or an update.
 */
#ifndef SBP_COSTMODEL_TIMELINE_TIMELINE_RUN_PRIV_H
#define SBP_COSTMODEL_TIMELINE_TIMELINE_RUN_PRIV_H

#include "costmodel/timeline/works.h"

static inline struct sbp_timeline_work sbp_timeline_work_of(enum sbp_work_kind kind, int stage,
                                                            int micro_batch)
{
    return (struct sbp_timeline_work){(int16_t)kind, (int16_t)stage, micro_batch};
}

enum sbp_direction { SBP_TO_NEXT, SBP_TO_PREVIOUS };

/* Costs of a virtual stage as this play has them. */
struct sbp_unit {
    int device;
    double duration_s[SBP_WORK_KINDS];
    double recompute_s; /* part of backward's duration */
    double send_s[2];   /* by direction */
    int64_t kept_bytes, transient_bytes;
    int64_t parked_inputs_bytes, parked_gradients_bytes; /* 0 unless weight gradients wait */
};

struct sbp_lane { /* a device, as far as it has played */
    double free_s;
    double compute_s, send_s; /* done so far; sends only where they block */
    double link_free_s[2];    /* by direction */
    double gradients_from_s;  /* begin of the last micro-batch's gradient work; < 0: not yet */
    double end_s;             /* with the phases after the last work */
    int64_t held_bytes, peak_bytes;
    int in_flight, most_in_flight;
};

/* A stack of devices that may have something to do; none is on it twice. */
struct sbp_awake {
    int *device;
    bool *is_in;
    int count;
};

struct sbp_timeline_run {
    const struct sbp_timeline_request *request;
    const struct sbp_schedule_entry *schedule;
    struct sbp_arena *scratch; /* of the simulation */
    int devices, stages;       /* stages: virtual ones */
    int steps, micro_batches;  /* micro_batches: of all steps */
    int works;                 /* in fixed orders, at most */
    const int *owner;          /* (stages, micro_batches) devices; NULL: stage % devices */
    struct sbp_unit *unit;     /* (stages) */
    struct sbp_lane *lane;     /* (devices) */
    int64_t *static_bytes;     /* (devices) */
    double *arrival_s[2];      /* (micro_batches, stages) when the input of forward, of backward is
                                  there; < 0: not known yet */
    int *gradients_left;       /* (stages) micro-batches without all gradients */
    struct sbp_timeline_work *work; /* of fixed orders: devices one after the other */
    int64_t *first;                 /* (devices + 1) into work */
    struct sbp_awake awake;
    struct sbp_cdp_run *cdp;       /* schedule_cdp.c; NULL elsewhere */
    struct sbp_handed_run *handed; /* handed_priv.h; NULL elsewhere */
    bool free_sends, free_sync;
    bool recording;
    struct sbp_timeline *record;
};

struct sbp_schedule_entry {
    bool splits_backward; /* weight gradients are a work of their own */
    bool takes_chunks, takes_limit, takes_placement;
    /* Checks what the schedule requires beyond positive counts; may be NULL. */
    enum sbp_status (*check)(const struct sbp_timeline_request *request, struct sbp_diag *diag);
    /* Writes the works of one device; returns their end. NULL: prepare or play. */
    struct sbp_timeline_work *(*arrange)(const struct sbp_timeline_run *run, int device,
                                         struct sbp_timeline_work *work);
    enum sbp_status (*play)(struct sbp_timeline_run *run);
    /* Without a flush: simulates enough steps and reports the steady one. NULL: one step. */
    enum sbp_status (*simulate)(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                struct sbp_timeline *timeline);
    /* Before a work may begin and after it ended; NULL: nothing but messages counts. `gate` gives
     * the time from ready_s on at which the work may begin; < 0: not known yet. */
    double (*gate)(const struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                   double ready_s);
    void (*done)(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                 double end_s);
};
extern const struct sbp_schedule_entry sbp_schedule_gpipe, sbp_schedule_1f1b,
    sbp_schedule_interleaved, sbp_schedule_zero_bubble, sbp_schedule_message_driven,
    sbp_schedule_cdp, sbp_schedule_replicas,
    sbp_schedule_pyramid; /* the last two: cyclic ones, placed as replicas, as groups */

/* Whether counts and ends fit a cyclic schedule; E_INPUT. */
enum sbp_status sbp_timeline_check_cyclic(const struct sbp_timeline_request *request,
                                          struct sbp_diag *diag) SBP_MUST_USE;

/* Chunks of a stage, at least one. */
int sbp_timeline_run_chunks(const struct sbp_timeline_request *request);
/* Costs of a virtual stage as the request has them; borrowed from it. */
const struct sbp_stage_cost *sbp_timeline_run_cost(const struct sbp_timeline_run *run,
                                                   int virtual_stage);
/* Allocates what devices, stages, micro_batches and works ask for, except the owners. */
enum sbp_status sbp_timeline_run_allocate(struct sbp_timeline_run *run) SBP_MUST_USE;
/* Plays the schedule from its begin; free_sends and free_sync count. */
enum sbp_status sbp_timeline_run_restart(struct sbp_timeline_run *run) SBP_MUST_USE;
/* Starts to write intervals and memory into the timeline; arrays from the arena. E_MEMORY. */
enum sbp_status sbp_timeline_run_start_recording(struct sbp_timeline_run *run,
                                                 struct sbp_arena *arena,
                                                 struct sbp_timeline *timeline) SBP_MUST_USE;
/* Without a flush, of a run whose steps repeat: makes the timeline's devices, and plays once more
 * where it is recorded. E_MEMORY. */
enum sbp_status sbp_timeline_run_keep_steady(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                             struct sbp_timeline *timeline) SBP_MUST_USE;
/* The mean of these steps; timeline->makespan_s is a step's. */
void sbp_timeline_run_report_steady(const struct sbp_timeline_run *run,
                                    struct sbp_timeline *timeline);
/* The device that does a micro-batch on a virtual stage. */
static inline int sbp_timeline_run_device(const struct sbp_timeline_run *run, int stage,
                                          int micro_batch)
{
    return run->owner == NULL ? run->unit[stage].device
                              : run->owner[(int64_t)stage * run->micro_batches + micro_batch];
}

/* The slot of arrival_s[direction] of a virtual stage and a micro-batch: what devices look at in
 * the same while lies close together. */
static inline double *sbp_timeline_run_arrival(const struct sbp_timeline_run *run,
                                               enum sbp_direction direction, int stage,
                                               int micro_batch)
{
    return &run->arrival_s[direction][(int64_t)micro_batch * run->stages + stage];
}

/* Lets the device do the work as soon as it is free and not before ready_s, and sends what the
 * work makes. Returns the device that gets the message; the own one where none leaves it. */
int sbp_timeline_run_do(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                        double ready_s);
/* Sets what is exposed from the makespans without sends and without any communication. */
void sbp_timeline_expose(struct sbp_timeline *timeline, double without_sends_s, double free_s);
void sbp_timeline_run_record(struct sbp_timeline_run *run, struct sbp_timeline_interval interval);
/* Lets sbp_timeline_run_play look at a device again. */
void sbp_timeline_run_wake(struct sbp_timeline_run *run, int device);
/* Plays fixed orders; E_INTERNAL when they wait for each other. */
enum sbp_status sbp_timeline_run_play(struct sbp_timeline_run *run) SBP_MUST_USE;
/* Synchronisation and optimizer of a device after its last work: sets the lane's end_s. */
void sbp_timeline_run_end(struct sbp_timeline_run *run, int device);

#endif

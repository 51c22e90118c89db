/* Where a rank is and whom it waits for, written by the rank and read by those who watch it.
 *
 * A run's fault shows as ranks that wait. Each rank notes on its post the task it begins and the
 * call it is about to wait in, so that another thread, or a process of the same host, can say which
 * rank does not come. A note is a few stores without a lock (under 50 ns with its clock): posts may
 * be read at any time, and are read for messages alone.
 */
#ifndef SBP_EXECUTOR_COMM_POST_H
#define SBP_EXECUTOR_COMM_POST_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "costmodel/program/task.h"

/* The part of a run that a rank has come to. */
enum sbp_stay {
    SBP_STAYS_AWAY,   /* not begun, or on another host */
    SBP_STAYS_START,  /* finding the others, agreeing with them, groups */
    SBP_STAYS_FILL,   /* memory and weights */
    SBP_STAYS_STEP,   /* the task of the step under way */
    SBP_STAYS_REPORT, /* times and findings of the step go to rank 0 */
    SBP_STAYS_VERIFY, /* rank 0 computes the step again, the others wait for it */
    SBP_STAYS_OUTPUT, /* rank 0 writes a row, and waits for whoever reads it */
    SBP_STAYS_LEFT    /* its end is meant */
};

/* Who communicates: the members of the own stage along some axes; or their likes in several stages,
 * in those that hold a tied weight or in all. */
struct sbp_members {
    sbp_axes axes;
    bool crosses; /* stages */
    int tensor;   /* the tied weight, -1: of all stages; 0 within a stage */
};

enum { SBP_WAITS_NOT = -3, SBP_WAITS_ALL, SBP_WAITS_GROUP }; /* others: for that rank */

struct sbp_post {
    atomic_int process;               /* its id; 0: on another host */
    atomic_int stay;                  /* enum sbp_stay */
    atomic_int step;                  /* from 1 */
    atomic_int task;                  /* of the stage's list */
    atomic_int waits;                 /* for this rank, or SBP_WAITS_* */
    atomic_int axes, crosses, tensor; /* the members, of SBP_WAITS_GROUP */
    _Atomic double since_s; /* of the last note; monotonic clock, which a host's processes share */
    _Atomic double beat_s;  /* when the watch of its process last looked */
    char host[64];          /* written before the process is */
};

/* All of these take NULL: nobody watches. */
static inline void sbp_post_note(struct sbp_post *post, atomic_int *field, int value)
{
    atomic_store_explicit(field, value, memory_order_relaxed);
    atomic_store_explicit(&post->since_s, sbp_clock_s(), memory_order_relaxed);
}

static inline void sbp_post_stay(struct sbp_post *post, enum sbp_stay stay, int step)
{
    if (post == NULL)
        return;
    atomic_store_explicit(&post->step, step, memory_order_relaxed);
    atomic_store_explicit(&post->waits, SBP_WAITS_NOT, memory_order_relaxed);
    sbp_post_note(post, &post->stay, (int)stay);
}

static inline void sbp_post_task(struct sbp_post *post, int task)
{
    if (post != NULL)
        sbp_post_note(post, &post->task, task);
}

/* Before a call that may wait: for a rank, or SBP_WAITS_ALL; and after it: SBP_WAITS_NOT. */
static inline void sbp_post_wait(struct sbp_post *post, int waits)
{
    if (post != NULL)
        sbp_post_note(post, &post->waits, waits);
}

static inline void sbp_post_wait_group(struct sbp_post *post, const struct sbp_members *members)
{
    if (post == NULL)
        return;
    atomic_store_explicit(&post->axes, (int)members->axes, memory_order_relaxed);
    atomic_store_explicit(&post->crosses, members->crosses, memory_order_relaxed);
    atomic_store_explicit(&post->tensor, members->tensor, memory_order_relaxed);
    sbp_post_note(post, &post->waits, SBP_WAITS_GROUP);
}

/* Rank 0 shows that it is at work while others wait for it to verify. */
static inline void sbp_post_pulse(struct sbp_post *post)
{
    if (post != NULL)
        atomic_store_explicit(&post->since_s, sbp_clock_s(), memory_order_relaxed);
}

#endif

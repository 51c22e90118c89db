/* Message-driven: a stage takes whichever message has arrived (Myelin, algorithm 2). Of two it
 * takes the backward one, which frees memory; the paper leaves that open. The first stage injects
 * pipeline_limit micro-batches and one more after every backward pass; the last stage follows each
 * forward pass by its backward pass.
 *
 * Arrivals decide what a stage does, so stages act in order of time: a tree of winners holds when
 * each stage can act. Links and stages keep the order of messages, therefore the next message of a
 * direction is always that of the next micro-batch.
 */
#include <math.h>

#include "costmodel/timeline/timeline_run_priv.h"

struct loop {
    struct sbp_timeline_run *run;
    int *next[2]; /* (devices) the next micro-batch forward, backward */
    double *at_s; /* (devices) when it can act; INFINITY: nothing to do */
    int *first;   /* (2 devices) leaves from `devices` on; every node the first device of its two */
};

static void set_turn(struct loop *loop, int device, double at_s)
{
    if (loop->at_s[device] == at_s)
        return;
    loop->at_s[device] = at_s;
    int first = device;
    for (int node = loop->run->devices + device; node > 1; node /= 2) {
        const int other = loop->first[node ^ 1];
        const double other_s = loop->at_s[other];
        /* Ties go to the left; there is no branch, because nothing could predict it. */
        const int after = (other_s < at_s) | (node & (other_s == at_s));
        first ^= (first ^ other) & -after;
        at_s = other_s < at_s ? other_s : at_s;
        loop->first[node / 2] = first;
    }
}

/* When the next message of a direction is there; INFINITY: not on its way. */
static double message_s(const struct loop *loop, enum sbp_direction direction, int device)
{
    const int micro_batch = loop->next[direction][device];
    /* The first stage makes its own forward messages. */
    if (micro_batch >= loop->run->micro_batches || (direction == SBP_TO_NEXT && device == 0))
        return INFINITY;
    const double there_s = *sbp_timeline_run_arrival(loop->run, direction, device, micro_batch);
    return there_s < 0 ? INFINITY : there_s;
}

static void refresh(struct loop *loop, int device)
{
    const double forward_s = message_s(loop, SBP_TO_NEXT, device);
    const double backward_s = message_s(loop, SBP_TO_PREVIOUS, device);
    const double message = forward_s < backward_s ? forward_s : backward_s;
    const double free_s = loop->run->lane[device].free_s;
    set_turn(loop, device, message > free_s ? message : free_s);
}

static void act(struct loop *loop, enum sbp_direction direction, int device)
{
    const enum sbp_work_kind kind = direction == SBP_TO_NEXT ? SBP_WORK_FORWARD : SBP_WORK_BACKWARD;
    const int micro_batch = loop->next[direction][device]++;
    const double ready_s = *sbp_timeline_run_arrival(loop->run, direction, device, micro_batch);
    const int to = sbp_timeline_run_do(loop->run, device,
                                       sbp_timeline_work_of(kind, device, micro_batch), ready_s);
    if (to != device)
        refresh(loop, to);
}

/* Algorithm 2's reaction to one message. */
static void step(struct loop *loop, int device, double at_s)
{
    const int last = loop->run->devices - 1;
    if (message_s(loop, SBP_TO_PREVIOUS, device) <= at_s) {
        act(loop, SBP_TO_PREVIOUS, device);
        if (device == 0 && loop->next[SBP_TO_NEXT][0] < loop->run->micro_batches)
            act(loop, SBP_TO_NEXT, 0);
    } else {
        act(loop, SBP_TO_NEXT, device);
        if (device == last)
            act(loop, SBP_TO_PREVIOUS, device);
    }
    refresh(loop, device);
}

/* Micro-batches that are injected at first. */
static int limit_of(const struct sbp_timeline_run *run)
{
    const int asked = run->request->pipeline_limit, count = run->micro_batches;
    const int limit = asked > 0 ? asked : run->devices;
    return limit < count ? limit : count;
}

static void inject(struct loop *loop)
{
    const bool alone = loop->run->devices == 1; /* first and last: nobody sends it anything */
    const int limit = alone ? loop->run->micro_batches : limit_of(loop->run);
    for (int i = 0; i < limit; i++) {
        act(loop, SBP_TO_NEXT, 0);
        if (alone)
            act(loop, SBP_TO_PREVIOUS, 0);
    }
    refresh(loop, 0);
}

static enum sbp_status play(struct sbp_timeline_run *run)
{
    struct loop loop = {.run = run,
                        .next = {SBP_NEW(run->scratch, int, run->devices),
                                 SBP_NEW(run->scratch, int, run->devices)},
                        .at_s = SBP_NEW(run->scratch, double, run->devices),
                        .first = SBP_NEW(run->scratch, int, 2 * (int64_t)run->devices)};
    if (loop.next[0] == NULL || loop.next[1] == NULL || loop.at_s == NULL || loop.first == NULL)
        return SBP_E_MEMORY;
    for (int d = 0; d < run->devices; d++)
        loop.at_s[d] = INFINITY;
    for (int node = 2 * run->devices - 1; node >= 1; node--)
        loop.first[node] = node < run->devices ? loop.first[2 * node] : node - run->devices;
    inject(&loop);
    while (loop.at_s[loop.first[1]] < INFINITY)
        step(&loop, loop.first[1], loop.at_s[loop.first[1]]);
    for (int d = 0; d < run->devices; d++)
        if (loop.next[SBP_TO_PREVIOUS][d] < run->micro_batches)
            return SBP_E_INTERNAL;
    return SBP_OK;
}

/* The first stage's order holds all that is in flight, and no stage can hold more. The last one
 * holds one micro-batch. */
static struct sbp_timeline_work *arrange(const struct sbp_timeline_run *run, int device,
                                         struct sbp_timeline_work *work)
{
    const int count = run->micro_batches;
    const int ahead = device == run->devices - 1 ? 1 : limit_of(run);
    for (int i = 0; i < ahead; i++)
        *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = 0; i < count; i++) {
        *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, device, i);
        if (i + ahead < count)
            *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i + ahead);
    }
    return work;
}

const struct sbp_schedule_entry sbp_schedule_message_driven = {
    .takes_limit = true, .arrange = arrange, .play = play};

/* Message-driven: a stage takes whichever message is there, backward before forward (Myelin,
 * algorithm 2). The first stage injects pipeline_limit micro-batches and one more after every
 * backward pass; the last stage follows each forward pass by its backward pass.
 *
 * What a stage does depends on what has arrived, so stages act in order of time: a heap holds each
 * stage that has a message, keyed by when it can act. Links and stages keep the order of messages,
 * therefore the next message of a direction is always that of the next micro-batch.
 */
#include <math.h>

#include "costmodel/timeline_run.h"

struct loop {
    struct sbp_run *run;
    int *next[2];   /* (devices) the next micro-batch forward, backward */
    double *key_s;  /* (devices) when the device can act; INFINITY: nothing to do */
    int *heap, *at; /* (devices) devices by key; where each stands */
};

static bool before(const struct loop *loop, int a, int b)
{
    return loop->key_s[a] < loop->key_s[b] || (loop->key_s[a] == loop->key_s[b] && a < b);
}

static void put(struct loop *loop, int place, int device)
{
    loop->heap[place] = device;
    loop->at[device] = place;
}

/* Restores the heap after the key of one device changed. */
static void settle(struct loop *loop, int device)
{
    int place = loop->at[device];
    const int count = loop->run->devices;
    while (place > 0 && before(loop, device, loop->heap[(place - 1) / 2])) {
        put(loop, place, loop->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (int child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && before(loop, loop->heap[child + 1], loop->heap[child]))
            child++;
        if (!before(loop, loop->heap[child], device))
            break;
        put(loop, place, loop->heap[child]);
    }
    put(loop, place, device);
}

/* When the next message of a direction is there; INFINITY: not on its way. */
static double message_s(const struct loop *loop, enum sbp_direction direction, int device)
{
    const int micro_batch = loop->next[direction][device];
    /* The first stage makes its own forward messages. */
    if (micro_batch >= loop->run->micro_batches || (direction == SBP_TO_NEXT && device == 0))
        return INFINITY;
    const double there_s = *sbp_run_arrival(loop->run, direction, device, micro_batch);
    return there_s < 0 ? INFINITY : there_s;
}

static void refresh(struct loop *loop, int device)
{
    const double forward_s = message_s(loop, SBP_TO_NEXT, device);
    const double backward_s = message_s(loop, SBP_TO_PREVIOUS, device);
    const double message = forward_s < backward_s ? forward_s : backward_s;
    const double free_s = loop->run->lane[device].free_s;
    loop->key_s[device] = message > free_s ? message : free_s;
    settle(loop, device);
}

static void act(struct loop *loop, enum sbp_direction direction, int device)
{
    const enum sbp_work_kind kind = direction == SBP_TO_NEXT ? SBP_WORK_FORWARD : SBP_WORK_BACKWARD;
    const int micro_batch = loop->next[direction][device]++;
    const double ready_s = *sbp_run_arrival(loop->run, direction, device, micro_batch);
    const int to =
        sbp_run_do(loop->run, device, (struct sbp_work){kind, device, micro_batch}, ready_s);
    if (to != device)
        refresh(loop, to);
}

/* What algorithm 2 does with one message. */
static void step(struct loop *loop, int device)
{
    const int last = loop->run->devices - 1;
    if (message_s(loop, SBP_TO_PREVIOUS, device) <= loop->key_s[device]) {
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

static void inject(struct loop *loop)
{
    const int asked = loop->run->request->pipeline_limit, count = loop->run->micro_batches;
    const bool alone = loop->run->devices == 1; /* first and last: nobody sends it anything */
    const int limit = alone ? count : asked > 0 ? asked : loop->run->devices;
    for (int i = 0; i < limit && i < count; i++) {
        act(loop, SBP_TO_NEXT, 0);
        if (alone)
            act(loop, SBP_TO_PREVIOUS, 0);
    }
    refresh(loop, 0);
}

static enum sbp_status play(struct sbp_run *run)
{
    struct loop loop = {.run = run, .key_s = SBP_NEW(run->scratch, double, run->devices)};
    int *const index = SBP_NEW(run->scratch, int, 4 * (int64_t)run->devices);
    if (loop.key_s == NULL || index == NULL)
        return SBP_E_MEMORY;
    loop.next[0] = index;
    loop.next[1] = index + run->devices;
    loop.heap = index + 2 * (int64_t)run->devices;
    loop.at = index + 3 * (int64_t)run->devices;
    for (int d = 0; d < run->devices; d++) {
        loop.key_s[d] = INFINITY;
        put(&loop, d, d);
    }
    inject(&loop);
    while (loop.key_s[loop.heap[0]] < INFINITY)
        step(&loop, loop.heap[0]);
    for (int d = 0; d < run->devices; d++)
        if (loop.next[SBP_TO_PREVIOUS][d] < run->micro_batches)
            return SBP_E_INTERNAL;
    return SBP_OK;
}

const struct sbp_schedule_entry sbp_schedule_message_driven = {.takes_limit = true, .play = play};

#include "costmodel/timeline/timeline_path.h"

#include <string.h>

enum { WORKS = 3, NONE = -1 };

/* Intervals by what they are. Indices count intervals of the timeline. */
struct tracer {
    const struct sbp_timeline_request *request;
    const struct sbp_timeline *timeline;
    struct sbp_timeline_path *path;
    int stages, virtual_stages;
    int64_t
        *work[WORKS]; /* (virtual_stages, micro_batches) interval of forward, backward, weight */
    int64_t *before;  /* (intervals) the work before on its device; of a send: on its link */
    int64_t *last;    /* (devices) */
    int64_t *last_send[2]; /* (devices) by direction */
};

bool sbp_timeline_is_fixed(enum sbp_schedule schedule)
{
    return schedule != SBP_MESSAGE_DRIVEN && !sbp_timeline_delays_gradients(schedule);
}

static int kind_of(const struct sbp_timeline_interval *interval)
{
    switch (interval->kind) {
    case SBP_INTERVAL_FORWARD:
        return 0;
    case SBP_INTERVAL_BACKWARD:
        return 1;
    case SBP_INTERVAL_BACKWARD_WEIGHT:
        return 2;
    default:
        return NONE;
    }
}

static int virtual_stage(const struct tracer *t, const struct sbp_timeline_interval *interval)
{
    return interval->chunk * t->stages + interval->stage;
}

static int64_t *slot(const struct tracer *t, int kind, int stage, int micro_batch)
{
    return &t->work[kind][(int64_t)stage * t->request->micro_batches + micro_batch];
}

/* When a work began, recomputation included. */
static double begin_of(const struct tracer *t, int64_t index)
{
    const struct sbp_timeline_interval *work = &t->timeline->interval[index];
    if (work->kind == SBP_INTERVAL_BACKWARD && index > 0 && work[-1].kind == SBP_INTERVAL_RECOMPUTE)
        return work[-1].begin_s;
    return work->begin_s;
}

/* A send is recorded right after the work that it belongs to. */
static int64_t send_of(const struct tracer *t, int64_t work)
{
    const bool there = work + 1 < t->timeline->interval_count &&
                       t->timeline->interval[work + 1].kind == SBP_INTERVAL_SEND;
    return there ? work + 1 : NONE;
}

static enum sbp_status allocate(struct tracer *t, struct sbp_arena *scratch)
{
    const int64_t pairs = (int64_t)t->virtual_stages * t->request->micro_batches;
    for (int kind = 0; kind < WORKS; kind++) {
        t->work[kind] = SBP_NEW(scratch, int64_t, pairs);
        if (t->work[kind] == NULL)
            return SBP_E_MEMORY;
        for (int64_t i = 0; i < pairs; i++)
            t->work[kind][i] = NONE;
    }
    t->before = SBP_NEW(scratch, int64_t, t->timeline->interval_count);
    t->last = SBP_NEW(scratch, int64_t, t->stages);
    t->last_send[0] = SBP_NEW(scratch, int64_t, t->stages);
    t->last_send[1] = SBP_NEW(scratch, int64_t, t->stages);
    if (t->before == NULL || t->last == NULL || t->last_send[0] == NULL || t->last_send[1] == NULL)
        return SBP_E_MEMORY;
    for (int d = 0; d < t->stages; d++)
        t->last[d] = t->last_send[0][d] = t->last_send[1][d] = NONE;
    return SBP_OK;
}

static void index_intervals(struct tracer *t)
{
    int direction = 0;
    for (int64_t i = 0; i < t->timeline->interval_count; i++) {
        const struct sbp_timeline_interval *interval = &t->timeline->interval[i];
        const int kind = kind_of(interval);
        if (kind >= 0) {
            *slot(t, kind, virtual_stage(t, interval), interval->micro_batch) = i;
            t->before[i] = t->last[interval->device];
            t->last[interval->device] = i;
            direction = kind;
        } else if (interval->kind == SBP_INTERVAL_SEND) {
            t->before[i] = t->last_send[direction][interval->device];
            t->last_send[direction][interval->device] = i;
        }
    }
}

/* The work whose message a work waits for; NONE: it waits for none. The last virtual stage goes
 * back after its own forward work, on its own device. */
static int64_t source_of(const struct tracer *t, int64_t index)
{
    const struct sbp_timeline_interval *work = &t->timeline->interval[index];
    const int stage = virtual_stage(t, work);
    if (work->kind == SBP_INTERVAL_FORWARD)
        return stage == 0 ? NONE : *slot(t, 0, stage - 1, work->micro_batch);
    if (work->kind != SBP_INTERVAL_BACKWARD)
        return NONE;
    return stage + 1 < t->virtual_stages ? *slot(t, 1, stage + 1, work->micro_batch) : NONE;
}

static void count(const struct tracer *t, int64_t index)
{
    const struct sbp_timeline_interval *interval = &t->timeline->interval[index];
    const int stage = virtual_stage(t, interval);
    if (interval->kind == SBP_INTERVAL_SEND) {
        const bool forward = t->timeline->interval[index - 1].kind == SBP_INTERVAL_FORWARD;
        (forward ? t->path->send_forward : t->path->send_backward)[stage]++;
        return;
    }
    int64_t *const works[WORKS] = {t->path->forward, t->path->backward, t->path->weight};
    works[kind_of(interval)][stage]++;
}

/* Counts a message and those that it queued behind on its link, back to one that left at once;
 * returns the work of that one. */
static int64_t follow_link(const struct tracer *t, int64_t work)
{
    const struct sbp_timeline_interval *interval = t->timeline->interval;
    int64_t send = send_of(t, work);
    while (send != NONE) {
        count(t, send);
        work = send - 1;
        if (interval[send].begin_s == interval[work].end_s)
            break;
        send = t->before[send];
    }
    return work;
}

/* Finds the work that ended when this one began; NONE at the step's begin. False: none is known. */
static bool predecessor(const struct tracer *t, int64_t index, int64_t *previous)
{
    const struct sbp_timeline_interval *interval = t->timeline->interval;
    const double begin_s = begin_of(t, index);
    *previous = t->before[index];
    if (*previous != NONE && interval[*previous].end_s == begin_s)
        return true;
    if (begin_s == 0)
        return *previous == NONE;
    const int64_t source = source_of(t, index);
    if (source == NONE)
        return false;
    const int64_t send = send_of(t, source);
    if (interval[send != NONE ? send : source].end_s != begin_s)
        return false;
    *previous = follow_link(t, source);
    return true;
}

/* The last work on a virtual stage that leaves weight gradients. */
static int64_t last_gradients(const struct tracer *t, int stage)
{
    const int kind = sbp_timeline_weights_wait(t->request->schedule) ? 2 : 1;
    int64_t last = NONE;
    for (int i = 0; i < t->request->micro_batches; i++)
        if (*slot(t, kind, stage, i) > last)
            last = *slot(t, kind, stage, i);
    return last;
}

/* The work with which a stage's sum of gradients begins: the last one of the chunk whose gradients
 * are complete first. */
static int64_t begin_of_sum(const struct tracer *t, int stage)
{
    int64_t first = last_gradients(t, stage);
    for (int v = stage + t->stages; v < t->virtual_stages; v += t->stages)
        if (last_gradients(t, v) < first)
            first = last_gradients(t, v);
    return first;
}

/* Whether the part of the sum that may hide takes longer than the works that it hides behind. */
static bool outlasts(const struct tracer *t, int stage)
{
    if (t->request->end == NULL)
        return false;
    const struct sbp_stage_end *end = &t->request->end[stage];
    const double from_s = begin_of(t, begin_of_sum(t, stage));
    return end->sync_overlap * end->sync_s > t->timeline->interval[t->last[stage]].end_s - from_s;
}

static enum sbp_status trace(const struct tracer *t)
{
    int64_t at = t->last[t->path->end];
    if (at == NONE)
        return SBP_E_UNSUPPORTED;
    t->path->sums = outlasts(t, t->path->end);
    if (t->path->sums && !predecessor(t, begin_of_sum(t, t->path->end), &at))
        return SBP_E_UNSUPPORTED;
    while (at != NONE) {
        int64_t previous = NONE;
        count(t, at);
        if (!predecessor(t, at, &previous))
            return SBP_E_UNSUPPORTED;
        at = previous;
    }
    return SBP_OK;
}

static enum sbp_status make_path(const struct tracer *t, struct sbp_arena *arena, int end)
{
    struct sbp_timeline_path *path = t->path;
    const int count = t->virtual_stages;
    *path = (struct sbp_timeline_path){.virtual_stages = count,
                                       .forward = SBP_NEW(arena, int64_t, count),
                                       .backward = SBP_NEW(arena, int64_t, count),
                                       .weight = SBP_NEW(arena, int64_t, count),
                                       .send_forward = SBP_NEW(arena, int64_t, count),
                                       .send_backward = SBP_NEW(arena, int64_t, count),
                                       .end = end < 0 ? 0 : end};
    for (int d = 1; end < 0 && d < t->stages; d++)
        if (t->timeline->device[d].end_s > t->timeline->device[path->end].end_s)
            path->end = d;
    return path->forward == NULL || path->backward == NULL || path->weight == NULL ||
                   path->send_forward == NULL || path->send_backward == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

enum sbp_status sbp_timeline_critical(const struct sbp_timeline_request *request,
                                      const struct sbp_timeline *timeline, int end,
                                      struct sbp_arena *arena, struct sbp_timeline_path *path)
{
    const int chunks = request->chunks > 1 ? request->chunks : 1;
    struct tracer t = {.request = request,
                       .timeline = timeline,
                       .path = path,
                       .stages = request->stages,
                       .virtual_stages = request->stages * chunks};
    struct sbp_arena scratch;
    if (!sbp_timeline_is_fixed(request->schedule) || request->sends_block ||
        timeline->interval_count == 0)
        return SBP_E_UNSUPPORTED;
    SBP_TRY(make_path(&t, arena, end));
    sbp_arena_init(&scratch);
    enum sbp_status status = allocate(&t, &scratch);
    if (status == SBP_OK) {
        index_intervals(&t);
        status = trace(&t);
    }
    sbp_arena_free(&scratch);
    return status;
}

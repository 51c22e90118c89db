/* Cyclic data parallelism on replicas: a stage of the pipeline has the whole model, and does one
 * micro-batch of each step (costmodel/timeline/replicas.h). Here a virtual stage is a chunk of the
 * model, and a device is a replica.
 *
 * All that a replica waits for are sums of gradients. Every work stands at a time step, two of them
 * apart from one replica to the next, and needs nothing of a later one.
 */
#include <math.h>

#include "costmodel/timeline/cdp_priv.h"
#include "costmodel/timeline/replicas.h"
#include "costmodel/timeline/timeline_run_priv.h"

/* Numbers of simulated steps; more are needed while steps still change. */
enum { FIRST_STEPS = 4, MOST_STEPS = 96 };
#define SAME_SHARE 1e-9

/* ---- routes -------------------------------------------------------------------------------- */

bool sbp_replicas_update_first(enum sbp_schedule schedule, int stages, int chunk, int stage)
{
    const enum sbp_cdp_rule rule = schedule == SBP_CDP_V1 ? SBP_CDP_RULE_V1 : SBP_CDP_RULE_V2;
    return sbp_cdp_fresh(rule, stages, sbp_replicas_micro_batch(stages, stage) + 1, chunk + 1);
}

/* The first micro-batch that is fresh, whose stage begins the way of those; without one the way of
 * all begins with the first. */
static int head_of(enum sbp_schedule schedule, int stages, int chunk)
{
    return schedule == SBP_CDP_V1 ? 0 : stages - 1 - chunk;
}

static struct sbp_sum_route route_of(int stages, int micro_batch, bool finished)
{
    return (struct sbp_sum_route){
        micro_batch < 0 ? -1 : sbp_replicas_micro_batch(stages, micro_batch), finished};
}

struct sbp_sum_route sbp_replicas_take(enum sbp_schedule schedule, int stages, int chunk, int stage,
                                       bool late)
{
    const int own = sbp_replicas_micro_batch(stages, stage), last = stages - 1;
    if (!late)
        return route_of(stages, own - 1, false);
    if (own == last)
        return route_of(stages, -1, true);
    const bool begins = own == 0 || own == head_of(schedule, stages, chunk);
    return route_of(stages, begins ? last : own - 1, true);
}

struct sbp_sum_route sbp_replicas_pass(enum sbp_schedule schedule, int stages, int chunk, int stage,
                                       bool late)
{
    const int own = sbp_replicas_micro_batch(stages, stage), last = stages - 1;
    const int head = head_of(schedule, stages, chunk);
    if (own == last && !late)
        return route_of(stages, head < last ? head : 0, true);
    if (own == last)
        return route_of(stages, head > 0 && head < last ? 0 : -1, true);
    if (!late)
        return route_of(stages, own + 1, false);
    const bool ends = own + 1 == last || own + 1 == head;
    return route_of(stages, ends ? -1 : own + 1, true);
}

/* ---- a play -------------------------------------------------------------------------------- */

struct sbp_replicas_run {
    struct sbp_timeline_run *run;
    int count;          /* of stages, and of chunks */
    double *so_far_s;   /* (stages, chunks) when a sum so far is there, */
    double *finished_s; /* and a finished one */
    double *end_s;      /* (steps, stages, 2 count) of all passes, in order */
};

static enum sbp_schedule rule_of(const struct sbp_replicas_run *r)
{
    return r->run->request->schedule;
}

/* Sends a chunk's sum that a stage has at a time. Links carry one message after the other. */
static void pass(struct sbp_replicas_run *r, int stage, int chunk, bool late, double at_s)
{
    struct sbp_lane *lane = &r->run->lane[stage];
    const struct sbp_sum_route route = sbp_replicas_pass(rule_of(r), r->count, chunk, stage, late);
    const double send_s =
        r->run->free_sync ? 0 : sbp_timeline_run_cost(r->run, chunk)->send_gradients_s;
    if (route.peer < 0)
        return;
    const double there_s = fmax(at_s, lane->link_free_s[SBP_TO_NEXT]) + send_s;
    lane->link_free_s[SBP_TO_NEXT] = there_s;
    (route.finished ? r->finished_s : r->so_far_s)[route.peer * r->count + chunk] = there_s;
}

static void record_sync(struct sbp_replicas_run *r, int stage, int chunk, int step, double begin_s,
                        double sync_s)
{
    const struct sbp_timeline_interval interval = {.kind = SBP_INTERVAL_SYNC,
                                                   .device = stage,
                                                   .stage = chunk,
                                                   .micro_batch = -1,
                                                   .step = step,
                                                   .begin_s = begin_s,
                                                   .end_s = begin_s + sync_s};
    sbp_timeline_run_record(r->run, interval);
}

/* The stage's own devices sum what they have of the finished gradients, and update. Before the
 * first step updates are played as well, so that all steps have the same work. */
static void update(struct sbp_replicas_run *r, int stage, int chunk, int step)
{
    const struct sbp_timeline_request *request = r->run->request;
    const bool takes = sbp_replicas_take(rule_of(r), r->count, chunk, stage, true).peer >= 0;
    const double sync_s =
        request->end == NULL || r->run->free_sync ? 0 : request->end[chunk].sync_s;
    double at_s = r->run->lane[stage].free_s;
    if (step >= 0 && takes) {
        at_s = fmax(at_s, r->finished_s[stage * r->count + chunk]);
        pass(r, stage, chunk, true, at_s);
    }
    record_sync(r, stage, chunk, step, at_s, sync_s);
    sbp_timeline_run_do(r->run, stage, sbp_timeline_work_of(SBP_WORK_UPDATE, chunk, step),
                        at_s + sync_s);
}

static void forward(struct sbp_replicas_run *r, int stage, int chunk, int step)
{
    const int micro_batch = step * r->count + sbp_replicas_micro_batch(r->count, stage);
    if (sbp_replicas_update_first(rule_of(r), r->count, chunk, stage))
        update(r, stage, chunk, step - 1);
    sbp_timeline_run_do(r->run, stage, sbp_timeline_work_of(SBP_WORK_FORWARD, chunk, micro_batch),
                        0);
}

static void backward(struct sbp_replicas_run *r, int stage, int chunk, int step)
{
    const int micro_batch = step * r->count + sbp_replicas_micro_batch(r->count, stage);
    const bool takes = sbp_replicas_take(rule_of(r), r->count, chunk, stage, false).peer >= 0;
    sbp_timeline_run_do(r->run, stage, sbp_timeline_work_of(SBP_WORK_BACKWARD, chunk, micro_batch),
                        takes ? r->so_far_s[stage * r->count + chunk] : 0);
    pass(r, stage, chunk, false, r->run->lane[stage].free_s);
    if (sbp_replicas_micro_batch(r->count, stage) == r->count - 1)
        pass(r, stage, chunk, true, r->run->lane[stage].free_s);
    if (!sbp_replicas_update_first(rule_of(r), r->count, chunk, stage))
        update(r, stage, chunk, step - 1);
}

/* Lets a stage do its work of the k-th time step since it began. */
static void do_slot(struct sbp_replicas_run *r, int stage, int k)
{
    const int passes = 2 * r->count, step = k / passes, at = k % passes;
    if (at < r->count)
        forward(r, stage, at, step);
    else
        backward(r, stage, passes - 1 - at, step);
    r->end_s[((int64_t)step * r->count + stage) * passes + at] = r->run->lane[stage].free_s;
}

static struct sbp_timeline_work *arrange(const struct sbp_timeline_run *run, int device,
                                         struct sbp_timeline_work *work)
{
    const enum sbp_schedule schedule = run->request->schedule;
    const int stages = run->stages;
    const int ahead = stages + sbp_replicas_micro_batch(stages, device);
    for (int chunk = 0; chunk < stages; chunk++) {
        if (sbp_replicas_update_first(schedule, stages, chunk, device))
            *work++ = sbp_timeline_work_of(SBP_WORK_UPDATE, chunk, 0);
        *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, chunk, ahead);
    }
    for (int chunk = stages - 1; chunk >= 0; chunk--) {
        *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, chunk, ahead);
        if (!sbp_replicas_update_first(schedule, stages, chunk, device))
            *work++ = sbp_timeline_work_of(SBP_WORK_UPDATE, chunk, 0);
    }
    return work;
}

/* After the last step: first those before whose forward pass it would be. */
static void update_last(struct sbp_replicas_run *r, int stage)
{
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < r->count; i++) {
            const int chunk = late ? r->count - 1 - i : i;
            if (sbp_replicas_update_first(rule_of(r), r->count, chunk, stage) == (late == 0))
                update(r, stage, chunk, r->run->steps - 1);
        }
}

static enum sbp_status play(struct sbp_timeline_run *run)
{
    struct sbp_replicas_run r = *run->replicas;
    const int works = 2 * r.count * run->steps;
    for (int slot = 0; slot < works + 2 * r.count; slot++)
        for (int i = 0; i < r.count; i++)
            if (slot - 2 * i >= 0 && slot - 2 * i < works)
                do_slot(&r, sbp_replicas_micro_batch(r.count, i), slot - 2 * i);
    for (int i = 0; i < r.count; i++)
        update_last(&r, sbp_replicas_micro_batch(r.count, i));
    return SBP_OK;
}

/* ---- steady steps -------------------------------------------------------------------------- */

static enum sbp_status prepare(struct sbp_replicas_run *r, int steps)
{
    struct sbp_timeline_run *run = r->run;
    const int64_t pairs = (int64_t)r->count * r->count;
    run->steps = steps;
    run->micro_batches = steps * r->count;
    run->works = 0;
    SBP_TRY(sbp_timeline_run_allocate(run));
    r->so_far_s = SBP_NEW(run->scratch, double, pairs);
    r->finished_s = SBP_NEW(run->scratch, double, pairs);
    r->end_s = SBP_NEW(run->scratch, double, 2 * pairs * steps);
    for (int d = 0; d < run->devices; d++)
        for (int chunk = 0; chunk < r->count; chunk++)
            run->static_bytes[d] += sbp_timeline_run_cost(run, chunk)->static_bytes;
    return r->so_far_s == NULL || r->finished_s == NULL || r->end_s == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Seconds by which the k-th pass of all stages of the last step came later than so many steps
 * before. */
static double lag_s(const struct sbp_replicas_run *r, int k, int before)
{
    const int64_t passes = (int64_t)2 * r->count * r->count;
    const double *last = r->end_s + (r->run->steps - 1) * passes;
    return last[k] - last[k - before * passes];
}

/* Whether all passes of the last step came equally later than those of an earlier one: then all
 * steps to come repeat. Else the time is the longest mean of a pass over the later half. */
static bool steady(const struct sbp_replicas_run *r, double *step_s)
{
    const int passes = 2 * r->count * r->count, half = r->run->steps / 2;
    for (int period = 1; period < r->run->steps - 1; period++) {
        const double expected_s = lag_s(r, 0, period);
        int same = 0;
        while (same < passes &&
               fabs(lag_s(r, same, period) - expected_s) <= SAME_SHARE * expected_s)
            same++;
        *step_s = expected_s / period;
        if (same == passes)
            return true;
    }
    *step_s = 0;
    for (int k = 0; k < passes; k++)
        *step_s = fmax(*step_s, lag_s(r, k, half) / half);
    return false;
}

static enum sbp_status settle(struct sbp_replicas_run *r, bool free_sync, double *step_s)
{
    r->run->free_sync = free_sync;
    for (;;) {
        SBP_TRY(sbp_timeline_run_restart(r->run));
        if (steady(r, step_s) || 2 * r->run->steps > MOST_STEPS)
            return SBP_OK;
        SBP_TRY(prepare(r, 2 * r->run->steps));
    }
}

static void report(const struct sbp_replicas_run *r, struct sbp_timeline *timeline)
{
    sbp_timeline_run_report_steady(r->run, timeline);
    timeline->stale_share = sbp_cdp_stale_share(
        rule_of(r) == SBP_CDP_V1 ? SBP_CDP_RULE_V1 : SBP_CDP_RULE_V2, r->count, r->count);
}

static enum sbp_status simulate(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                struct sbp_timeline *timeline)
{
    struct sbp_replicas_run r = {.run = run, .count = run->stages};
    double free_s;
    run->replicas = &r;
    SBP_TRY(prepare(&r, FIRST_STEPS));
    SBP_TRY(settle(&r, false, &timeline->makespan_s));
    SBP_TRY(sbp_timeline_run_keep_steady(run, arena, timeline));
    report(&r, timeline);
    if (run->request->is_brief)
        return SBP_OK;
    SBP_TRY(settle(&r, true, &free_s));
    sbp_timeline_expose(timeline, timeline->makespan_s, free_s);
    return SBP_OK;
}

const struct sbp_schedule_entry sbp_schedule_replicas = {.takes_placement = true,
                                                         .check = sbp_timeline_check_cyclic,
                                                         .arrange = arrange,
                                                         .play = play,
                                                         .simulate = simulate};

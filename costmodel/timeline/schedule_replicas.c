/* Cyclic data parallelism on replicas: a stage of the pipeline has the whole model, and does one
 * micro-batch of each step (costmodel/timeline/replicas.h). Here a virtual stage is a chunk of the
 * model, and a device is a replica.
 *
 * All that a replica waits for are sums of gradients. Every work stands at a time step, two of them
 * apart from one replica to the next, and needs nothing of a later one.
 */
#include "costmodel/timeline/replicas.h"

#include "costmodel/timeline/cdp_priv.h"
#include "costmodel/timeline/handed_priv.h"

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

static enum sbp_schedule rule_of(const struct sbp_handed_run *r)
{
    return r->run->request->schedule;
}

/* Where a chunk's sum that a stage passes is noted; NULL: it passes none. */
static double *noted_at(struct sbp_handed_run *r, int stage, int chunk, bool late)
{
    const struct sbp_sum_route route = sbp_replicas_pass(rule_of(r), r->count, chunk, stage, late);
    return route.peer < 0
               ? NULL
               : &(route.finished ? r->finished_s : r->so_far_s)[route.peer * r->count + chunk];
}

static void update(struct sbp_handed_run *r, int stage, int chunk, int step)
{
    const bool takes = sbp_replicas_take(rule_of(r), r->count, chunk, stage, true).peer >= 0;
    sbp_handed_update(r, stage, chunk, step,
                      takes ? &r->finished_s[stage * r->count + chunk] : NULL,
                      noted_at(r, stage, chunk, true));
}

static void forward(struct sbp_handed_run *r, int stage, int chunk, int step)
{
    const int micro_batch = step * r->count + sbp_replicas_micro_batch(r->count, stage);
    if (sbp_replicas_update_first(rule_of(r), r->count, chunk, stage))
        update(r, stage, chunk, step - 1);
    sbp_timeline_run_do(r->run, stage, sbp_timeline_work_of(SBP_WORK_FORWARD, chunk, micro_batch),
                        0);
}

static void pass(struct sbp_handed_run *r, int stage, int chunk, bool late)
{
    double *const at = noted_at(r, stage, chunk, late);
    if (at != NULL)
        sbp_handed_pass(r, stage, chunk, r->run->lane[stage].free_s, at);
}

static void backward(struct sbp_handed_run *r, int stage, int chunk, int step)
{
    const int micro_batch = step * r->count + sbp_replicas_micro_batch(r->count, stage);
    const bool takes = sbp_replicas_take(rule_of(r), r->count, chunk, stage, false).peer >= 0;
    sbp_timeline_run_do(r->run, stage, sbp_timeline_work_of(SBP_WORK_BACKWARD, chunk, micro_batch),
                        takes ? r->so_far_s[stage * r->count + chunk] : 0);
    pass(r, stage, chunk, false);
    if (sbp_replicas_micro_batch(r->count, stage) == r->count - 1)
        pass(r, stage, chunk, true);
    if (!sbp_replicas_update_first(rule_of(r), r->count, chunk, stage))
        update(r, stage, chunk, step - 1);
}

/* Lets a stage do its work of the k-th time step since it began. */
static void do_slot(struct sbp_handed_run *r, int stage, int k)
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
static void update_last(struct sbp_handed_run *r, int stage)
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
    struct sbp_handed_run r = *run->handed;
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

static enum sbp_status place(struct sbp_handed_run *r)
{
    for (int d = 0; d < r->run->devices; d++)
        for (int chunk = 0; chunk < r->count; chunk++)
            r->run->static_bytes[d] += sbp_timeline_run_cost(r->run, chunk)->static_bytes;
    return SBP_OK;
}

static enum sbp_status simulate(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                struct sbp_timeline *timeline)
{
    struct sbp_handed_run r = {
        .run = run, .count = run->stages, .sums = run->stages * run->stages, .place = place};
    run->handed = &r;
    return sbp_handed_simulate(&r, arena, timeline);
}

const struct sbp_schedule_entry sbp_schedule_replicas = {.takes_placement = true,
                                                         .check = sbp_timeline_check_cyclic,
                                                         .arrange = arrange,
                                                         .play = play,
                                                         .simulate = simulate};

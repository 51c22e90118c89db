#include "costmodel/timeline/handed_priv.h"

#include <math.h>

#include "costmodel/timeline/cdp_priv.h"

/* Numbers of simulated steps; more are needed while steps still change. */
enum { FIRST_STEPS = 4, MOST_STEPS = 96 };
#define SAME_SHARE 1e-9

/* ---- works --------------------------------------------------------------------------------- */

void sbp_handed_pass(struct sbp_handed_run *r, int device, int stage, double at_s, double *there_s)
{
    struct sbp_lane *lane = &r->run->lane[device];
    const double send_s =
        r->run->free_sync ? 0 : sbp_timeline_run_cost(r->run, stage)->send_gradients_s;
    *there_s = fmax(at_s, lane->link_free_s[SBP_TO_NEXT]) + send_s;
    lane->link_free_s[SBP_TO_NEXT] = *there_s;
}

void sbp_handed_update(struct sbp_handed_run *r, int device, int stage, int step,
                       const double *take_s, double *pass_s)
{
    const struct sbp_timeline_request *request = r->run->request;
    const double sync_s =
        request->end == NULL || r->run->free_sync ? 0 : request->end[stage].sync_s;
    double at_s = r->run->lane[device].free_s;
    if (step >= 0 && take_s != NULL) {
        at_s = fmax(at_s, *take_s);
        if (pass_s != NULL)
            sbp_handed_pass(r, device, stage, at_s, pass_s);
    }
    const struct sbp_timeline_interval interval = {.kind = SBP_INTERVAL_SYNC,
                                                   .device = device,
                                                   .stage = stage,
                                                   .micro_batch = -1,
                                                   .step = step,
                                                   .begin_s = at_s,
                                                   .end_s = at_s + sync_s};
    sbp_timeline_run_record(r->run, interval);
    sbp_timeline_run_do(r->run, device, sbp_timeline_work_of(SBP_WORK_UPDATE, stage, step),
                        at_s + sync_s);
}

/* ---- steady steps -------------------------------------------------------------------------- */

static enum sbp_status prepare(struct sbp_handed_run *r, int steps)
{
    struct sbp_timeline_run *run = r->run;
    run->steps = steps;
    run->micro_batches = steps * r->count;
    run->works = 0;
    SBP_TRY(sbp_timeline_run_allocate(run));
    r->so_far_s = SBP_NEW(run->scratch, double, r->sums);
    r->finished_s = SBP_NEW(run->scratch, double, r->sums);
    r->end_s = SBP_NEW(run->scratch, double, 2 * (int64_t)r->count * r->count * steps);
    return r->so_far_s == NULL || r->finished_s == NULL || r->end_s == NULL ? SBP_E_MEMORY
                                                                            : r->place(r);
}

/* Seconds by which the k-th pass of the last step came later than so many steps
 * before. */
static double lag_s(const struct sbp_handed_run *r, int k, int before)
{
    const int64_t passes = (int64_t)2 * r->count * r->count;
    const double *last = r->end_s + (r->run->steps - 1) * passes;
    return last[k] - last[k - before * passes];
}

/* Whether all passes of the last step came equally later than those of an earlier one: then all
 * steps to come repeat. Else the time is the longest mean of a pass over the later half. */
static bool steady(const struct sbp_handed_run *r, double *step_s)
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

static enum sbp_status settle(struct sbp_handed_run *r, bool free_sends, bool free_sync,
                              double *step_s)
{
    r->run->free_sends = free_sends;
    r->run->free_sync = free_sync;
    for (;;) {
        SBP_TRY(sbp_timeline_run_restart(r->run));
        if (steady(r, step_s) || 2 * r->run->steps > MOST_STEPS)
            return SBP_OK;
        SBP_TRY(prepare(r, 2 * r->run->steps));
    }
}

static void report(const struct sbp_handed_run *r, struct sbp_timeline *timeline)
{
    const bool is_v1 = r->run->request->schedule == SBP_CDP_V1;
    if (r->even_out != NULL)
        r->even_out(r);
    sbp_timeline_run_report_steady(r->run, timeline);
    timeline->stale_share =
        sbp_cdp_stale_share(is_v1 ? SBP_CDP_RULE_V1 : SBP_CDP_RULE_V2, r->count, r->count);
}

enum sbp_status sbp_handed_simulate(struct sbp_handed_run *r, struct sbp_arena *arena,
                                    struct sbp_timeline *timeline)
{
    double without_sends_s, free_s;
    SBP_TRY(prepare(r, FIRST_STEPS));
    SBP_TRY(settle(r, false, false, &timeline->makespan_s));
    SBP_TRY(sbp_timeline_run_keep_steady(r->run, arena, timeline));
    report(r, timeline);
    if (r->run->request->is_brief)
        return SBP_OK;
    without_sends_s = timeline->makespan_s;
    if (r->run->owner != NULL) /* else no message leaves its device */
        SBP_TRY(settle(r, true, false, &without_sends_s));
    SBP_TRY(settle(r, true, true, &free_s));
    sbp_timeline_expose(timeline, without_sends_s, free_s);
    return SBP_OK;
}

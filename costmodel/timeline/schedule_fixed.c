/* Schedules whose order is fixed in advance: GPipe, 1F1B, interleaved 1F1B and zero bubble. Each
 * lists the works of a device; sbp_timeline_run_play plays them as early as messages allow.
 */
#include "costmodel/timeline/timeline_run_priv.h"

/* ---- gpipe ---- */

/* GPipe: all forward passes, then all backward passes, the last micro-batch first. */
static struct sbp_timeline_work *arrange_gpipe(const struct sbp_timeline_run *run, int device,
                                               struct sbp_timeline_work *work)
{
    for (int i = 0; i < run->micro_batches; i++)
        *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = run->micro_batches - 1; i >= 0; i--)
        *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, device, i);
    return work;
}

const struct sbp_schedule_entry sbp_schedule_gpipe = {.arrange = arrange_gpipe};

/* ---- 1f1b ---- */

/* One forward, one backward: a stage runs ahead by as many forward passes as stages follow it, so
 * that it holds at most (stages - stage) micro-batches. */
static struct sbp_timeline_work *arrange_1f1b(const struct sbp_timeline_run *run, int device,
                                              struct sbp_timeline_work *work)
{
    const int count = run->micro_batches, behind = run->devices - 1 - device;
    const int ahead = behind < count ? behind : count;
    for (int i = 0; i < ahead; i++)
        *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = 0; i < count; i++) {
        if (i + ahead < count)
            *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i + ahead);
        *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, device, i);
    }
    return work;
}

const struct sbp_schedule_entry sbp_schedule_1f1b = {.arrange = arrange_1f1b};

/* ---- interleaved ---- */

/* Interleaved 1F1B: a stage owns several chunks of layers; micro-batches go in groups of as many as
 * there are stages, each group through all chunks, the backward passes through the chunks the other
 * way round (Megatron-LM, schedules.py, with groups of the default size). */
static enum sbp_status check_interleaved(const struct sbp_timeline_request *request,
                                         struct sbp_diag *diag)
{
    if (request->chunks < 2)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: chunks: interleaved needs at least 2 chunks a stage, not %d",
                        request->chunks);
    if (request->micro_batches % request->stages != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: micro_batches: interleaved needs a multiple of the %d stages, "
                        "not %d",
                        request->stages, request->micro_batches);
    return SBP_OK;
}

/* The index-th of a device's forward or backward passes. */
static struct sbp_timeline_work nth(const struct sbp_timeline_run *run, int device,
                                    enum sbp_work_kind kind, int index)
{
    const int group = run->devices, chunks = run->request->chunks;
    const int within = index % (group * chunks);
    const int turn = within / group;
    const int chunk = kind == SBP_WORK_FORWARD ? turn : chunks - 1 - turn;
    return sbp_timeline_work_of(kind, chunk * run->devices + device,
                                index / (group * chunks) * group + within % group);
}

static struct sbp_timeline_work *arrange_interleaved(const struct sbp_timeline_run *run, int device,
                                                     struct sbp_timeline_work *work)
{
    const int count = run->micro_batches * run->request->chunks;
    const int wanted = 2 * (run->devices - 1 - device) + (run->request->chunks - 1) * run->devices;
    const int ahead = wanted < count ? wanted : count;
    for (int i = 0; i < ahead; i++)
        *work++ = nth(run, device, SBP_WORK_FORWARD, i);
    for (int i = 0; i < count; i++) {
        if (i + ahead < count)
            *work++ = nth(run, device, SBP_WORK_FORWARD, i + ahead);
        *work++ = nth(run, device, SBP_WORK_BACKWARD, i);
    }
    return work;
}

const struct sbp_schedule_entry sbp_schedule_interleaved = {
    .takes_chunks = true, .check = check_interleaved, .arrange = arrange_interleaved};

/* ---- zero-bubble ---- */

/* Zero bubble: backward passes make input gradients first, so that the previous stage can go on;
 * weight gradients follow later, where the stage would idle. A stage puts them off by as many
 * micro-batches as its limit leaves room for: those that it does not run ahead with. With a limit
 * of `stages` that is ZB-H1, with 2 stages - 1 ZB-H2 (Qi et al. 2023, section 2). */
static int least(int a, int b)
{
    return a < b ? a : b;
}

static struct sbp_timeline_work *arrange_zero_bubble(const struct sbp_timeline_run *run, int device,
                                                     struct sbp_timeline_work *work)
{
    const int count = run->micro_batches, stages = run->devices;
    const int limit = run->request->pipeline_limit > 0 ? run->request->pipeline_limit : stages;
    const int behind = stages - 1 - device;
    const int spare = limit > stages ? least(limit - stages, behind) : 0;
    const int planned = least(behind + spare, limit - 1);
    const int ahead = least(planned, count);
    const int delay = limit - 1 - planned; /* of weight gradients, in micro-batches */
    for (int i = 0; i < ahead; i++)
        *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = 0; i < count; i++) {
        if (i + ahead < count)
            *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, device, i + ahead);
        *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, device, i);
        if (i >= delay)
            *work++ = sbp_timeline_work_of(SBP_WORK_WEIGHT, device, i - delay);
    }
    for (int i = count > delay ? count - delay : 0; i < count; i++)
        *work++ = sbp_timeline_work_of(SBP_WORK_WEIGHT, device, i);
    return work;
}

const struct sbp_schedule_entry sbp_schedule_zero_bubble = {
    .splits_backward = true, .takes_limit = true, .arrange = arrange_zero_bubble};

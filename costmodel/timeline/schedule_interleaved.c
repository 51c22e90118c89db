/* Interleaved 1F1B: a stage owns several chunks of layers; micro-batches go in groups of as many as
 * there are stages, each group through all chunks, the backward passes through the chunks the other
 * way round (Megatron-LM, schedules.py, with groups of the default size). */
#include "costmodel/timeline/timeline_run.h"

static enum sbp_status check(const struct sbp_timeline_request *request, struct sbp_diag *diag)
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
static struct sbp_work nth(const struct sbp_run *run, int device, enum sbp_work_kind kind,
                           int index)
{
    const int group = run->devices, chunks = run->request->chunks;
    const int within = index % (group * chunks);
    const int turn = within / group;
    const int chunk = kind == SBP_WORK_FORWARD ? turn : chunks - 1 - turn;
    return sbp_work_of(kind, chunk * run->devices + device,
                       index / (group * chunks) * group + within % group);
}

static struct sbp_work *arrange(const struct sbp_run *run, int device, struct sbp_work *work)
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
    .takes_chunks = true, .check = check, .arrange = arrange};

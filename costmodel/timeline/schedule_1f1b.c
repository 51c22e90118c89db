/* One forward, one backward: a stage runs ahead by as many forward passes as stages follow it, so
 * that it holds at most (stages - stage) micro-batches. */
#include "costmodel/timeline/timeline_run.h"

static struct sbp_work *arrange(const struct sbp_run *run, int device, struct sbp_work *work)
{
    const int count = run->micro_batches, behind = run->devices - 1 - device;
    const int ahead = behind < count ? behind : count;
    for (int i = 0; i < ahead; i++)
        *work++ = sbp_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = 0; i < count; i++) {
        if (i + ahead < count)
            *work++ = sbp_work_of(SBP_WORK_FORWARD, device, i + ahead);
        *work++ = sbp_work_of(SBP_WORK_BACKWARD, device, i);
    }
    return work;
}

const struct sbp_schedule_entry sbp_schedule_1f1b = {.arrange = arrange};

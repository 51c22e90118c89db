/* Zero bubble: backward passes make input gradients first, so that the previous stage can go on;
 * weight gradients follow later, where the stage would idle. A stage puts them off by as many
 * micro-batches as its limit leaves room for: those that it does not run ahead with. With a limit
 * of `stages` that is ZB-H1, with 2 stages - 1 ZB-H2 (Qi et al. 2023, section 2). */
#include "costmodel/timeline/timeline_run.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

static struct sbp_work *arrange(const struct sbp_run *run, int device, struct sbp_work *work)
{
    const int count = run->micro_batches, stages = run->devices;
    const int limit = run->request->pipeline_limit > 0 ? run->request->pipeline_limit : stages;
    const int behind = stages - 1 - device;
    const int spare = limit > stages ? least(limit - stages, behind) : 0;
    const int planned = least(behind + spare, limit - 1);
    const int ahead = least(planned, count);
    const int delay = limit - 1 - planned; /* of weight gradients, in micro-batches */
    for (int i = 0; i < ahead; i++)
        *work++ = sbp_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = 0; i < count; i++) {
        if (i + ahead < count)
            *work++ = sbp_work_of(SBP_WORK_FORWARD, device, i + ahead);
        *work++ = sbp_work_of(SBP_WORK_BACKWARD, device, i);
        if (i >= delay)
            *work++ = sbp_work_of(SBP_WORK_WEIGHT, device, i - delay);
    }
    for (int i = count > delay ? count - delay : 0; i < count; i++)
        *work++ = sbp_work_of(SBP_WORK_WEIGHT, device, i);
    return work;
}

const struct sbp_schedule_entry sbp_schedule_zero_bubble = {
    .splits_backward = true, .takes_limit = true, .arrange = arrange};

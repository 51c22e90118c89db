/* GPipe: all forward passes, then all backward passes, the last micro-batch first. */
#include "costmodel/timeline/timeline_run.h"

static struct sbp_work *arrange(const struct sbp_run *run, int device, struct sbp_work *work)
{
    for (int i = 0; i < run->micro_batches; i++)
        *work++ = sbp_work_of(SBP_WORK_FORWARD, device, i);
    for (int i = run->micro_batches - 1; i >= 0; i--)
        *work++ = sbp_work_of(SBP_WORK_BACKWARD, device, i);
    return work;
}

const struct sbp_schedule_entry sbp_schedule_gpipe = {.arrange = arrange};

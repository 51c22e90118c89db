#include "costmodel/timeline/timeline_run.h"

static void record_end(struct sbp_run *run, int device, enum sbp_interval_kind kind, double begin_s,
                       double end_s)
{
    const struct sbp_timeline_interval interval = {.kind = kind,
                                                   .device = device,
                                                   .stage = device,
                                                   .micro_batch = -1,
                                                   .begin_s = begin_s,
                                                   .end_s = end_s};
    sbp_run_record(run, interval);
}

/* One all-reduce, hidden behind the last gradient work as far as overlap and window allow. */
static double sync_whole(struct sbp_run *run, int device, double sync_s, double at_s)
{
    const double window_s = at_s - run->lane[device].gradients_from_s;
    const double forced_s = (1 - run->request->end[device].sync_overlap) * sync_s;
    const double too_long_s = sync_s - window_s;
    const double exposed_s = forced_s > too_long_s ? forced_s : too_long_s;
    record_end(run, device, SBP_INTERVAL_SYNC, at_s + exposed_s - sync_s, at_s + exposed_s);
    return at_s + exposed_s;
}

static double step_bucket(struct sbp_run *run, int device, const struct sbp_offload *offload,
                          double at_s)
{
    const double in_s = at_s + offload->in_s, stepped_s = in_s + offload->step_s;
    record_end(run, device, SBP_INTERVAL_OFFLOAD, at_s, in_s);
    record_end(run, device, SBP_INTERVAL_OPTIMIZER, in_s, stepped_s);
    record_end(run, device, SBP_INTERVAL_OFFLOAD, stepped_s, stepped_s + offload->out_s);
    return stepped_s + offload->out_s;
}

/* All-reduces of k buckets back to back; the optimizer takes a bucket when its all-reduce is done
 * (Myelin, V-C and figure 7). */
static double sync_in_chunks(struct sbp_run *run, int device, const struct sbp_offload *offload,
                             double at_s)
{
    double synced_s = at_s, stepped_s = at_s;
    for (int b = 0; b < offload->buckets; b++) {
        if (b % offload->chunk_buckets == 0) {
            const bool whole = b + offload->chunk_buckets <= offload->buckets;
            const double began_s = synced_s;
            if (!run->free_sync)
                synced_s += whole ? offload->chunk_sync_s : offload->last_chunk_sync_s;
            record_end(run, device, SBP_INTERVAL_SYNC, began_s, synced_s);
        }
        stepped_s = step_bucket(run, device, offload, stepped_s > synced_s ? stepped_s : synced_s);
    }
    return stepped_s;
}

void sbp_run_end(struct sbp_run *run, int device)
{
    struct sbp_lane *lane = &run->lane[device];
    lane->end_s = lane->free_s;
    if (run->request->end == NULL)
        return;
    const struct sbp_stage_end *end = &run->request->end[device];
    const struct sbp_offload *offload = &end->offload;
    if (offload->buckets > 0 && offload->chunk_buckets > 0) {
        lane->end_s = sync_in_chunks(run, device, offload, lane->end_s);
        return;
    }
    if (!run->free_sync)
        lane->end_s = sync_whole(run, device, end->sync_s, lane->end_s);
    if (offload->buckets == 0)
        record_end(run, device, SBP_INTERVAL_OPTIMIZER, lane->end_s,
                   lane->end_s + end->optimizer_s);
    if (offload->buckets == 0)
        lane->end_s += end->optimizer_s;
    for (int b = 0; b < offload->buckets; b++)
        lane->end_s = step_bucket(run, device, offload, lane->end_s);
}

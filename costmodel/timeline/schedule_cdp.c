/* Cyclic data parallelism: micro-batches start two time steps apart, and steps follow each other
 * without a flush (Fournier and Oyallon, section 3.2). Works stand in the order of the paper's time
 * steps; messages and parameters decide when each one runs.
 *
 * The next version of a stage's parameters is there when all gradients of a step are synchronised
 * and the optimizer has run, which takes a device's time. cdp-v2 takes version t wherever i + j >=
 * N + 1, so the optimizer runs right after the last gradients. cdp-v1 computes every micro-batch of
 * step t on version t - 1, so that it could wait until step t + 1 is over on the stage. In a
 * pipeline it does not: there a stage has one sum of gradients, to which its next backward pass
 * would add.
 */
#include <math.h>

#include "costmodel/timeline/cdp_priv.h"
#include "costmodel/timeline/timeline_run_priv.h"

/* Numbers of simulated steps: the first fills the pipeline, the last drains it; more are needed
 * while steps still change. Synchronisation that may be late reaches over two steps. */
enum { FIRST_STEPS = 3, FIRST_DEEP_STEPS = 6, MOST_STEPS = 96 };
#define MAX_WORK   (INT64_C(1) << 26)
#define SAME_SHARE 1e-9

/* Times that gate the works of one play; stages count from 0. */
struct sbp_cdp_run {
    enum sbp_cdp_rule rule;
    int *left;           /* (stages, 2 + steps) micro-batches without gradients */
    double *gradients_s; /* (stages, 2 + steps) when the latest gradients so far were there */
    double *updated_s;   /* (stages, 2 + steps) when the step's update was done; < 0: not yet */
    bool waited;         /* a device for the synchronisation of gradients */
    int *step;           /* (micro_batches) of all steps: its step */
    int *next_update;    /* (stages) step of the next update to be put in order */
    double *back_s;      /* (micro_batches) of all steps: end of backward on the first stage */
    double *second_s;   /* (micro_batches of a step) end of forward on the second stage in the first
                           step; < 0: not yet */
    int *slot;          /* (stages) zero: time step of the stage's latest work; -1: none */
    int *holder;        /* (stages) zero: the device that has the states */
    double *released_s; /* (stages) zero: when they may leave it */
};

/* Chunks of one stage are stages of the model on one device. */
static enum sbp_placement placement_of(const struct sbp_timeline_request *request)
{
    return request->placement == SBP_PLACE_PIPELINE && sbp_timeline_run_chunks(request) > 1
               ? SBP_PLACE_SINGLE
               : request->placement;
}

static const struct sbp_stage_end *end_of(const struct sbp_timeline_run *run, int stage)
{
    return &run->request->end[stage % run->request->stages];
}

/* The first chunk's end is that of all. */
static double sync_s_of(const struct sbp_timeline_run *run, int stage)
{
    const bool syncs = run->request->end != NULL && !run->free_sync;
    return syncs && stage < run->request->stages ? end_of(run, stage)->sync_s : 0;
}

enum sbp_status sbp_timeline_check_cyclic(const struct sbp_timeline_request *request,
                                          struct sbp_diag *diag)
{
    const char *name = sbp_timeline_schedule_name(request->schedule);
    const int stages = request->stages * sbp_timeline_run_chunks(request);
    if (request->stages > 1 && stages > request->stages)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: chunks: %s takes several on one stage alone, not on %d", name,
                        request->stages);
    if (request->micro_batches < stages)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: micro_batches: %s needs at least one for each of the %d stages, "
                        "not %d",
                        name, stages, request->micro_batches);
    if (request->placement != SBP_PLACE_PIPELINE && request->micro_batches != request->stages)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: micro_batches: %s placed as %s needs as many as the %d stages, "
                        "not %d",
                        name, sbp_timeline_placement_name(request->placement), request->stages,
                        request->micro_batches);
    if ((int64_t)stages * request->micro_batches > MAX_WORK / MOST_STEPS)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: micro_batches: %d on %d stages are too many, %s needs stages x "
                        "micro-batches of at most %lld",
                        request->micro_batches, stages, name, (long long)(MAX_WORK / MOST_STEPS));
    for (int s = 0; request->end != NULL && s < request->stages; s++)
        if (request->end[s].offload.buckets > 0 || request->end[s].sync_overlap > 0)
            return sbp_fail(diag, SBP_E_INPUT,
                            "timeline: end[%d]: %s has no end of a step: offload.buckets and "
                            "sync_overlap must be 0",
                            s, name);
    return SBP_OK;
}

/* --- order --- */

/* The work of a stage at a time step; false: none before it fills and after it drains. A stage has
 * one at every time step between, forward and backward in turn. */
static bool work_at(const struct sbp_timeline_run *run, int stage, int slot,
                    struct sbp_timeline_work *work)
{
    const int from_backward = slot - (2 * run->stages - 1 - stage);
    const bool forward = (slot - stage) % 2 == 0;
    const int twice = forward ? slot - stage : from_backward;
    if (twice < 0 || twice / 2 >= run->micro_batches)
        return false;
    *work = sbp_timeline_work_of(forward ? SBP_WORK_FORWARD : SBP_WORK_BACKWARD, stage, twice / 2);
    return true;
}

static int slot_of(const struct sbp_timeline_run *run, struct sbp_timeline_work work)
{
    return 2 * work.micro_batch +
           (work.kind == SBP_WORK_FORWARD ? work.stage : 2 * run->stages - 1 - work.stage);
}

/* Whether an update may wait for the micro-batch that first reads it. */
static bool updates_late(const struct sbp_timeline_run *run)
{
    return run->cdp->rule == SBP_CDP_RULE_V1 && run->request->placement != SBP_PLACE_PIPELINE;
}

/* The micro-batch that comes behind the update of a stage after a step. The updates of the two
 * steps before the first are played as well, so that all steps have the same work. */
static int first_behind(const struct sbp_timeline_run *run, int stage, int step)
{
    const int per_step = run->request->micro_batches;
    return updates_late(run) ? (step + 2) * per_step
                             : (step + 1) * per_step + run->stages - 1 - stage;
}

/* Its device makes the update, right before its forward pass. */
static int updater(const struct sbp_timeline_run *run, int stage, int step)
{
    int behind = first_behind(run, stage, step);
    while (behind >= run->micro_batches) /* after the last step: as in those before */
        behind -= run->request->micro_batches;
    return sbp_timeline_run_device(run, stage, behind);
}

/* The update of a stage at a time step, before its other work; false: none. Time steps of a stage
 * must come in order, from rewind_updates on. */
static bool update_at(const struct sbp_timeline_run *run, int stage, int slot,
                      struct sbp_timeline_work *work)
{
    int *const next = &run->cdp->next_update[stage];
    if (*next >= run->steps || slot != 2 * first_behind(run, stage, *next) + stage)
        return false;
    *work = sbp_timeline_work_of(SBP_WORK_UPDATE, stage, (*next)++);
    return true;
}

static void rewind_updates(struct sbp_timeline_run *run)
{
    for (int stage = 0; stage < run->stages; stage++) {
        int step = -2;
        while (first_behind(run, stage, step) < 0)
            step++;
        run->cdp->next_update[stage] = step;
    }
}

static int slots_of(const struct sbp_timeline_run *run)
{
    return 2 * (run->micro_batches + run->request->micro_batches + run->stages);
}

static void append(struct sbp_timeline_run *run, int64_t *at, int device,
                   struct sbp_timeline_work work)
{
    if (run->work != NULL)
        run->work[at[device]] = work;
    at[device]++;
}

/* Every work in order of time steps, behind the `at` of its device. */
static void walk(struct sbp_timeline_run *run, int64_t *at)
{
    struct sbp_timeline_work work;
    rewind_updates(run);
    for (int slot = 0; slot < slots_of(run); slot++)
        for (int stage = 0; stage < run->stages; stage++) {
            if (update_at(run, stage, slot, &work))
                append(run, at, updater(run, stage, work.micro_batch), work);
            if (work_at(run, stage, slot, &work))
                append(run, at, sbp_timeline_run_device(run, stage, work.micro_batch), work);
        }
}

static enum sbp_status arrange(struct sbp_timeline_run *run)
{
    struct sbp_timeline_work *const work = run->work;
    int64_t *const at = SBP_NEW(run->scratch, int64_t, run->devices);
    if (at == NULL)
        return SBP_E_MEMORY;
    run->work = NULL; /* count first */
    walk(run, at);
    run->work = work;
    for (int d = 0; d < run->devices; d++) {
        run->first[d + 1] = run->first[d] + at[d];
        at[d] = run->first[d];
    }
    walk(run, at);
    return SBP_OK;
}

/* The works of a device between its updates of two steps, in rounds of two time steps: in each of
 * them every stage that it has does a forward and a backward pass, and forward passes are ahead by
 * the stages that follow. The last stage comes first, so that activations are taken before the next
 * ones come, and that a micro-batch goes back through all of them. */
static struct sbp_timeline_work *arrange_step(const struct sbp_timeline_run *run, int device,
                                              struct sbp_timeline_work *work)
{
    const int last = run->stages - run->devices + device;
    for (int i = 0; i < run->micro_batches; i++) {
        for (int stage = last; stage >= 0; stage -= run->devices)
            *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, stage, i + run->stages - 1 - stage);
        for (int stage = last; stage >= 0; stage -= run->devices)
            *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, stage, i);
    }
    return work;
}

/* --- devices --- */

/* Stage j's micro-batches take the device that was freed last, or a new one (section 4.3). */
static enum sbp_status stack_pyramid(struct sbp_timeline_run *run, int *owner)
{
    int *const freed = SBP_NEW(run->scratch, int, run->stages);
    if (freed == NULL)
        return SBP_E_MEMORY;
    run->devices = 0;
    for (int stage = 0; stage < run->stages; stage++) {
        int *const own = owner + (int64_t)stage * run->micro_batches;
        int freed_count = 0;
        struct sbp_timeline_work work;
        for (int slot = 0; slot < 2 * (run->micro_batches + run->stages); slot++) {
            if (!work_at(run, stage, slot, &work))
                continue;
            if (work.kind == SBP_WORK_BACKWARD)
                freed[freed_count++] = own[work.micro_batch];
            else
                own[work.micro_batch] = freed_count > 0 ? freed[--freed_count] : run->devices++;
        }
    }
    return SBP_OK;
}

static enum sbp_status place(struct sbp_timeline_run *run)
{
    const enum sbp_placement placement = placement_of(run->request);
    run->devices = run->stages;
    run->owner = NULL;
    if (placement == SBP_PLACE_PIPELINE)
        return SBP_OK;
    int *const owner = SBP_NEW(run->scratch, int, (int64_t)run->stages * run->micro_batches);
    if (owner == NULL)
        return SBP_E_MEMORY;
    run->owner = owner;
    if (placement == SBP_PLACE_PYRAMID)
        return stack_pyramid(run, owner);
    if (placement == SBP_PLACE_SINGLE)
        run->devices = 1;
    for (int stage = 0; stage < run->stages; stage++)
        for (int i = 0; i < run->micro_batches; i++)
            owner[(int64_t)stage * run->micro_batches + i] = i % run->devices;
    return SBP_OK;
}

static void set_static_bytes(struct sbp_timeline_run *run)
{
    const enum sbp_placement placement = placement_of(run->request);
    int64_t all = 0, largest = 0;
    for (int stage = 0; stage < run->stages; stage++) {
        const int64_t bytes = sbp_timeline_run_cost(run, stage)->static_bytes;
        all += bytes;
        largest = bytes > largest ? bytes : largest;
        if (placement == SBP_PLACE_PIPELINE || placement == SBP_PLACE_PYRAMID)
            for (int i = 0; i < run->micro_batches; i++)
                run->static_bytes[run->owner == NULL ? stage
                                                     : sbp_timeline_run_device(run, stage, i)] =
                    bytes;
    }
    if (placement == SBP_PLACE_PIPELINE || placement == SBP_PLACE_PYRAMID)
        return;
    for (int d = 0; d < run->devices; d++)
        run->static_bytes[d] = placement == SBP_PLACE_ZERO ? largest : all;
}

/* The two steps before the first have a turn as well. */
static int64_t turn_of(const struct sbp_timeline_run *run, int stage, int step)
{
    return (int64_t)stage * (run->steps + 2) + step + 2;
}

static enum sbp_status allocate(struct sbp_timeline_run *run)
{
    struct sbp_cdp_run *cdp = run->cdp;
    const int64_t turns = (int64_t)run->stages * (run->steps + 2);
    cdp->left = SBP_NEW(run->scratch, int, turns);
    cdp->gradients_s = SBP_NEW(run->scratch, double, turns);
    cdp->updated_s = SBP_NEW(run->scratch, double, turns);
    cdp->step = SBP_NEW(run->scratch, int, run->micro_batches);
    cdp->next_update = SBP_NEW(run->scratch, int, run->stages);
    cdp->back_s = SBP_NEW(run->scratch, double, run->micro_batches);
    cdp->second_s = SBP_NEW(run->scratch, double, run->request->micro_batches);
    cdp->slot = SBP_NEW(run->scratch, int, run->stages);
    cdp->holder = SBP_NEW(run->scratch, int, run->stages);
    cdp->released_s = SBP_NEW(run->scratch, double, run->stages);
    return cdp->left != NULL && cdp->gradients_s != NULL && cdp->updated_s != NULL &&
                   cdp->step != NULL && cdp->next_update != NULL && cdp->second_s != NULL &&
                   cdp->back_s != NULL && cdp->slot != NULL && cdp->holder != NULL &&
                   cdp->released_s != NULL
               ? SBP_OK
               : SBP_E_MEMORY;
}

static enum sbp_status prepare(struct sbp_timeline_run *run, int steps)
{
    run->steps = steps;
    run->micro_batches = steps * run->request->micro_batches;
    const bool arranged = placement_of(run->request) != SBP_PLACE_PIPELINE;
    run->works = arranged ? 2 * run->stages * run->micro_batches + run->stages * (steps + 2) : 0;
    SBP_TRY(place(run));
    SBP_TRY(sbp_timeline_run_allocate(run));
    SBP_TRY(allocate(run));
    for (int i = 0; i < run->micro_batches; i++)
        run->cdp->step[i] = i / run->request->micro_batches;
    set_static_bytes(run);
    return arranged ? arrange(run) : SBP_OK;
}

/* --- gates --- */

/* Parameters for a forward pass: version `step` is what the update of the step before makes. */
static double parameters_s(const struct sbp_timeline_run *run, struct sbp_timeline_work work)
{
    const int step = run->cdp->step[work.micro_batch];
    const int i = work.micro_batch - step * run->request->micro_batches;
    const bool fresh = sbp_cdp_fresh(run->cdp->rule, run->stages, i + 1, work.stage + 1);
    /* Unless updates are late, a stale version is read only where the one before was read by an
     * earlier micro-batch. */
    const int made_by = step - (fresh ? 1 : 2);
    if (made_by < 0 && !fresh && !updates_late(run))
        return 0;
    return run->cdp->updated_s[turn_of(run, work.stage, made_by)];
}

/* The states come from the device that worked on the stage one time step (or, while the pipeline
 * fills or drains, two) before. */
static double states_s(const struct sbp_timeline_run *run, int device,
                       struct sbp_timeline_work work)
{
    const struct sbp_cdp_run *cdp = run->cdp;
    const int slot = slot_of(run, work), had = cdp->slot[work.stage];
    struct sbp_timeline_work before;
    const int wanted = work_at(run, work.stage, slot - 1, &before)   ? slot - 1
                       : work_at(run, work.stage, slot - 2, &before) ? slot - 2
                                                                     : -1;
    if (had != wanted)
        return -1;
    if (had < 0 || cdp->holder[work.stage] == device || run->free_sends)
        return cdp->released_s[work.stage];
    return cdp->released_s[work.stage] + sbp_timeline_run_cost(run, work.stage)->send_states_s;
}

/* Keeps the uniform delay of two time steps where no shared device enforces it: a micro-batch
 * starts when the one before leaves the second stage. Later steps keep the delay by themselves. */
static double start_s(const struct sbp_timeline_run *run, struct sbp_timeline_work work)
{
    const bool waits = run->request->placement != SBP_PLACE_PIPELINE && run->stages > 1 &&
                       work.stage == 0 && work.micro_batch > 0 &&
                       work.micro_batch < run->request->micro_batches;
    return waits ? run->cdp->second_s[work.micro_batch - 1] : 0;
}

/* When an update has its gradients. */
static double synced_s(const struct sbp_timeline_run *run, int device,
                       struct sbp_timeline_work work)
{
    struct sbp_cdp_run *cdp = run->cdp;
    const int64_t turn = turn_of(run, work.stage, work.micro_batch);
    if (cdp->left[turn] > 0)
        return -1;
    /* Stages that share a device sum their gradients together, when all of them are there. */
    const double from_s = sbp_timeline_run_chunks(run->request) > 1
                              ? fmax(cdp->gradients_s[turn], run->lane[device].free_s)
                              : cdp->gradients_s[turn];
    const double there_s = from_s + sync_s_of(run, work.stage);
    const bool goes_on = first_behind(run, work.stage, work.micro_batch) < run->micro_batches;
    if (work.micro_batch >= 0 && goes_on && there_s > run->lane[device].free_s)
        cdp->waited = true;
    return there_s;
}

static double gate(const struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                   double ready_s)
{
    if (work.kind == SBP_WORK_UPDATE)
        return synced_s(run, device, work);
    if (work.kind == SBP_WORK_FORWARD) {
        const double made_s = parameters_s(run, work), started_s = start_s(run, work);
        if (made_s < 0 || started_s < 0)
            return -1;
        ready_s = fmax(fmax(ready_s, made_s), started_s);
    }
    if (run->request->placement == SBP_PLACE_ZERO) {
        const double there_s = states_s(run, device, work);
        return there_s < 0 ? -1 : fmax(ready_s, there_s);
    }
    return ready_s;
}

static void record_sync(struct sbp_timeline_run *run, int device, int stage, int step, double at_s)
{
    const struct sbp_timeline_interval interval = {.kind = SBP_INTERVAL_SYNC,
                                                   .device = device,
                                                   .stage = stage,
                                                   .micro_batch = -1,
                                                   .step = step,
                                                   .begin_s = at_s,
                                                   .end_s = at_s + sync_s_of(run, stage)};
    sbp_timeline_run_record(run, interval);
}

/* Those that forward the next two steps on the stage. */
static void wake_users(struct sbp_timeline_run *run, int stage, int step)
{
    const int per_step = run->request->micro_batches;
    const int from = step < 0 ? 0 : (step + 1) * per_step;
    for (int i = from; i < (step + 3) * per_step && i < run->micro_batches; i++)
        sbp_timeline_run_wake(run, sbp_timeline_run_device(run, stage, i));
}

/* Wakes the device that works on the stage next. */
static void wake_next(struct sbp_timeline_run *run, int stage, int slot)
{
    struct sbp_timeline_work next;
    if (work_at(run, stage, slot + 1, &next) || work_at(run, stage, slot + 2, &next))
        sbp_timeline_run_wake(run, sbp_timeline_run_device(run, stage, next.micro_batch));
}

/* Whether they were the last ones of the step on the stage. */
static bool note_gradients(struct sbp_timeline_run *run, struct sbp_timeline_work work,
                           double end_s)
{
    struct sbp_cdp_run *cdp = run->cdp;
    const int step = cdp->step[work.micro_batch];
    const int64_t turn = turn_of(run, work.stage, step);
    cdp->gradients_s[turn] = fmax(cdp->gradients_s[turn], end_s);
    if (work.stage == 0)
        cdp->back_s[work.micro_batch] = end_s;
    if (--cdp->left[turn] > 0)
        return false;
    record_sync(run, updater(run, work.stage, step), work.stage, step, cdp->gradients_s[turn]);
    return true;
}

static void done(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                 double end_s)
{
    struct sbp_cdp_run *cdp = run->cdp;
    if (work.kind == SBP_WORK_UPDATE) {
        cdp->updated_s[turn_of(run, work.stage, work.micro_batch)] = end_s;
        wake_users(run, work.stage, work.micro_batch);
        return;
    }
    if (work.kind == SBP_WORK_BACKWARD) {
        if (note_gradients(run, work, end_s))
            sbp_timeline_run_wake(run, updater(run, work.stage, cdp->step[work.micro_batch]));
    } else if (work.stage == 1 && work.micro_batch < run->request->micro_batches) {
        cdp->second_s[work.micro_batch] = end_s;
        sbp_timeline_run_wake(run, sbp_timeline_run_device(run, 0, work.micro_batch + 1));
    }
    if (run->request->placement != SBP_PLACE_ZERO)
        return;
    cdp->slot[work.stage] = slot_of(run, work);
    cdp->holder[work.stage] = device;
    cdp->released_s[work.stage] = end_s;
    wake_next(run, work.stage, cdp->slot[work.stage]);
}

/* --- playing --- */

/* One work of a pipeline, where a device is a stage and itself makes the parameters that it reads;
 * false: it comes before what it needs. */
static bool do_work(struct sbp_timeline_run *run, struct sbp_timeline_work work)
{
    const int stage = work.stage;
    const enum sbp_direction from = work.kind == SBP_WORK_FORWARD ? SBP_TO_NEXT : SBP_TO_PREVIOUS;
    const double ready_s = work.kind == SBP_WORK_UPDATE
                               ? synced_s(run, stage, work)
                               : *sbp_timeline_run_arrival(run, from, stage, work.micro_batch);
    sbp_timeline_run_do(run, stage, work, ready_s);
    if (work.kind == SBP_WORK_BACKWARD)
        note_gradients(run, work, run->lane[stage].free_s);
    return ready_s >= 0;
}

/* Plays a pipeline in order of time steps. With at least as many micro-batches as stages,
 * everything that a work needs was made in an earlier time step, so no work has to wait. */
static enum sbp_status play_pipeline(struct sbp_timeline_run *run)
{
    struct sbp_timeline_work work;
    rewind_updates(run);
    for (int slot = 0; slot < slots_of(run); slot++)
        for (int stage = 0; stage < run->stages; stage++)
            if ((update_at(run, stage, slot, &work) && !do_work(run, work)) ||
                (work_at(run, stage, slot, &work) && !do_work(run, work)))
                return SBP_E_INTERNAL;
    return SBP_OK;
}

static enum sbp_status play(struct sbp_timeline_run *run)
{
    struct sbp_cdp_run *cdp = run->cdp;
    for (int stage = 0; stage < run->stages; stage++) {
        for (int step = -2; step < run->steps; step++) {
            const int64_t turn = turn_of(run, stage, step);
            cdp->left[turn] = step < 0 ? 0 : run->request->micro_batches;
            cdp->gradients_s[turn] = 0;
            cdp->updated_s[turn] = -1;
        }
        cdp->slot[stage] = -1;
        cdp->released_s[stage] = 0;
    }
    cdp->waited = false;
    for (int i = 0; i < run->request->micro_batches; i++)
        cdp->second_s[i] = -1;
    return placement_of(run->request) == SBP_PLACE_PIPELINE ? play_pipeline(run)
                                                            : sbp_timeline_run_play(run);
}

/* --- steady steps --- */

/* Seconds by which a pass's message comes later than that of so many micro-batches before. */
static double lag_s(const struct sbp_timeline_run *run, enum sbp_work_kind kind, int stage, int i,
                    int before)
{
    const int next = stage + (kind == SBP_WORK_FORWARD ? 1 : -1);
    const enum sbp_direction direction =
        kind == SBP_WORK_FORWARD && next < run->stages ? SBP_TO_NEXT : SBP_TO_PREVIOUS;
    if (next < 0)
        return run->cdp->back_s[i] - run->cdp->back_s[i - before];
    const int to = next < run->stages ? next : stage;
    return *sbp_timeline_run_arrival(run, direction, to, i) -
           *sbp_timeline_run_arrival(run, direction, to, i - before);
}

/* Whether steps wait for synchronisation that reaches over two of them. */
static bool waits_deep(const struct sbp_timeline_run *run)
{
    return run->cdp->waited && updates_late(run);
}

/* Whether in the last steps that do not drain, all passes of the last micro-batches, one a stage,
 * ended equally long after those of so many steps before. Then all later steps repeat as well,
 * since no more micro-batches are under way and one step decides the next. Where late updates wait
 * for synchronisation two steps decide, and only from the third on they wait for gradients that
 * were played. All stages must be compared, because others may still fall behind the first. */
static bool repeats(const struct sbp_timeline_run *run, int period, double *step_s)
{
    const bool deep = waits_deep(run);
    const int count = run->request->micro_batches, last = run->steps - 2;
    const int first = last - (deep ? 1 : 0);
    const int from = count - run->stages;
    if (first - period < (deep ? 2 : 0))
        return false;
    const double expected_s = lag_s(run, SBP_WORK_BACKWARD, 0, last * count + from, period * count);
    for (int stage = 0; stage < run->stages; stage++)
        for (int step = first; step <= last; step++)
            for (int i = step * count + from; i < (step + 1) * count; i++) {
                const double forward_s = lag_s(run, SBP_WORK_FORWARD, stage, i, period * count);
                const double backward_s = lag_s(run, SBP_WORK_BACKWARD, stage, i, period * count);
                if (fabs(forward_s - expected_s) > SAME_SHARE * expected_s ||
                    fabs(backward_s - expected_s) > SAME_SHARE * expected_s)
                    return false;
            }
    *step_s = expected_s / period;
    return true;
}

/* Finds the time of a steady step. Devices that take turns may repeat only after a few steps.
 * Returns false while nothing repeats; the time is then the mean over the later half, of the
 * micro-batch that takes longest. */
static bool steady(const struct sbp_timeline_run *run, double *step_s)
{
    const int count = run->request->micro_batches, last = run->steps - 2;
    const int from = run->steps / 2 - 1;
    for (int period = 1; period == 1 || period <= last / 2; period++)
        if (repeats(run, period, step_s))
            return true;
    *step_s = 0;
    for (int stage = 0; stage < run->stages; stage++)
        for (int i = last * count; i < (last + 1) * count; i++) {
            const double mean_s =
                lag_s(run, SBP_WORK_BACKWARD, stage, i, (last - from) * count) / (last - from);
            *step_s = fmax(*step_s, mean_s);
        }
    return false;
}

/* Most pipelines repeat after a step or two more, others only after many; ends at MOST_STEPS. */
static int more_steps(const struct sbp_timeline_run *run)
{
    if (run->steps >= FIRST_DEEP_STEPS)
        return 2 * run->steps;
    return waits_deep(run) ? FIRST_DEEP_STEPS : run->steps + 1;
}

/* Plays until steps repeat, starting with the number of steps of the last play; the run stays
 * prepared for the number that it took. */
static enum sbp_status settle(struct sbp_timeline_run *run, bool free_sends, bool free_sync,
                              double *step_s)
{
    run->free_sends = free_sends;
    run->free_sync = free_sync;
    for (;;) {
        SBP_TRY(sbp_timeline_run_restart(run));
        if (steady(run, step_s) || run->steps >= MOST_STEPS)
            return SBP_OK;
        SBP_TRY(prepare(run, more_steps(run)));
    }
}

/* The devices of a pyramid's stage, N - j + 1 in a row, take turns over more than one step: in the
 * long run each does as much as the others. */
static void even_out(const struct sbp_timeline_run *run)
{
    for (int stage = 0, d = 0; stage < run->stages; d += run->stages - stage, stage++) {
        const int count = run->stages - stage;
        double compute_s = 0, send_s = 0;
        for (int k = 0; k < count; k++) {
            compute_s += run->lane[d + k].compute_s / count;
            send_s += run->lane[d + k].send_s / count;
        }
        for (int k = 0; k < count; k++) {
            run->lane[d + k].compute_s = compute_s;
            run->lane[d + k].send_s = send_s;
        }
    }
}

static void report(const struct sbp_timeline_run *run, struct sbp_timeline *timeline)
{
    if (run->request->placement == SBP_PLACE_PYRAMID)
        even_out(run);
    sbp_timeline_run_report_steady(run, timeline);
    timeline->stale_share =
        sbp_cdp_stale_share(run->cdp->rule, run->stages, run->request->micro_batches);
}

/* A lower bound of a step on any network: the work of the busiest device and, unless
 * synchronisation is free as well, the chain on a pipeline's device: last gradients,
 * synchronisation, optimizer and the forward pass behind it. */
static double bound_s(const struct sbp_timeline_run *run, const struct sbp_timeline *timeline,
                      bool free_sync)
{
    const bool waits =
        !free_sync && run->request->end != NULL && run->request->placement == SBP_PLACE_PIPELINE;
    double most_s = 0;
    for (int d = 0; d < timeline->devices; d++)
        most_s = fmax(most_s, timeline->device[d].compute_s + (waits ? end_of(run, d)->sync_s : 0));
    return most_s;
}

/* Plays with free communication where the bounds leave the exposed time open. */
static enum sbp_status expose(struct sbp_timeline_run *run, struct sbp_timeline *timeline)
{
    const double step_s = timeline->makespan_s, reach = 1 + SAME_SHARE;
    double without_sends_s = step_s, free_s = step_s;
    if (step_s > bound_s(run, timeline, false) * reach)
        SBP_TRY(settle(run, true, false, &without_sends_s));
    if (step_s > bound_s(run, timeline, true) * reach)
        SBP_TRY(settle(run, true, true, &free_s));
    sbp_timeline_expose(timeline, without_sends_s, free_s);
    return SBP_OK;
}

static enum sbp_status simulate(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                struct sbp_timeline *timeline)
{
    struct sbp_cdp_run cdp = {.rule = run->request->schedule == SBP_CDP_V1 ? SBP_CDP_RULE_V1
                                                                           : SBP_CDP_RULE_V2};
    run->cdp = &cdp;
    SBP_TRY(prepare(run, FIRST_STEPS));
    SBP_TRY(settle(run, false, false, &timeline->makespan_s));
    SBP_TRY(sbp_timeline_run_keep_steady(run, arena, timeline));
    report(run, timeline);
    return expose(run, timeline);
}

const struct sbp_schedule_entry sbp_schedule_cdp = {.takes_chunks = true,
                                                    .takes_placement = true,
                                                    .check = sbp_timeline_check_cyclic,
                                                    .arrange = arrange_step,
                                                    .play = play,
                                                    .simulate = simulate,
                                                    .gate = gate,
                                                    .done = done};

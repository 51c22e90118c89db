/* Cyclic data parallelism on a pyramid of groups (costmodel/timeline/pyramid.h). Here a virtual
 * stage is a stage of the model, and a device is a group.
 *
 * Works are played in the order of the paper's time steps: each needs messages, sums of gradients
 * and weights of earlier ones alone.
 */
#include "costmodel/timeline/pyramid.h"

#include <math.h>

#include "base/math/numeric.h"
#include "costmodel/timeline/cdp_priv.h"
#include "costmodel/timeline/handed_priv.h"

/* ---- who does what ------------------------------------------------------------------------- */

int sbp_pyramid_stage(int stages, int group)
{
    int stage = 0;
    while (group >= sbp_pyramid_first(stages, stage + 1))
        stage++;
    return stage;
}

int sbp_pyramid_period(int stages, int stage)
{
    int a = stages, b = sbp_pyramid_size(stages, stage);
    while (b != 0) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return sbp_pyramid_size(stages, stage) / a;
}

static int64_t floor_of(int64_t number, int64_t by)
{
    return number / by - (number % by < 0);
}

/* The step whose update makes what a micro-batch reads. */
static int64_t read_by(enum sbp_schedule schedule, int stages, int stage, int64_t micro_batch)
{
    const enum sbp_cdp_rule rule = schedule == SBP_CDP_V1 ? SBP_CDP_RULE_V1 : SBP_CDP_RULE_V2;
    const int64_t step = floor_of(micro_batch, stages);
    const int i = (int)(micro_batch - step * stages);
    return step - (sbp_cdp_fresh(rule, stages, i + 1, stage + 1) ? 1 : 2);
}

bool sbp_pyramid_updates(enum sbp_schedule schedule, int stages, int stage, int64_t micro_batch,
                         int64_t *step)
{
    *step = read_by(schedule, stages, stage, micro_batch);
    return *step > read_by(schedule, stages, stage, micro_batch - sbp_pyramid_size(stages, stage));
}

/* The finished sum's way through the groups of a stage, each by its place in its own stage. */
struct way {
    int size, finisher;
    int leader; /* the first that updates */
};

static int within(int64_t number, int size)
{
    return (int)(number - floor_of(number, size) * size);
}

/* Under cdp-v2 those who have stale micro-batches update behind them, in their order, and the one
 * that finishes right away. Under cdp-v1 all update behind their last one of the step that follows.
 */
static struct way way_of(enum sbp_schedule schedule, int stages, int stage, int64_t step)
{
    const int size = sbp_pyramid_size(stages, stage);
    const int finisher = within(step * stages + stages - 1, size);
    return (struct way){size, finisher,
                        schedule == SBP_CDP_V1 ? within(finisher + stages + 1, size) : finisher};
}

/* The group behind (by: 1) or before (-1) a turn, other than the one that finishes; -1: none is. */
static int along(const struct way *way, int turn, int by)
{
    turn += by;
    if (within(way->leader + turn, way->size) == way->finisher)
        turn += by;
    return turn < 0 || turn >= way->size ? -1 : within(way->leader + turn, way->size);
}

struct sbp_sum_route sbp_pyramid_take(enum sbp_schedule schedule, int stages, int group,
                                      int64_t step, int micro_batch, bool late)
{
    const int stage = sbp_pyramid_stage(stages, group), first = sbp_pyramid_first(stages, stage);
    const struct way way = way_of(schedule, stages, stage, step);
    const int own = group - first;
    struct sbp_sum_route route = {-1, late};
    if (way.size == 1 || (late ? own == way.finisher : micro_batch == 0))
        return route;
    if (!late) {
        route.peer = first + within(own - 1, way.size);
        return route;
    }
    const int before = along(&way, within(own - way.leader, way.size), -1);
    route.peer = first + (before < 0 ? way.finisher : before);
    return route;
}

struct sbp_sum_route sbp_pyramid_pass(enum sbp_schedule schedule, int stages, int group,
                                      int64_t step, int micro_batch, bool late)
{
    const int stage = sbp_pyramid_stage(stages, group), first = sbp_pyramid_first(stages, stage);
    const struct way way = way_of(schedule, stages, stage, step);
    const int own = group - first;
    const bool finishes = !late && micro_batch == stages - 1;
    struct sbp_sum_route route = {-1, late || finishes};
    if (way.size == 1 || (late && own == way.finisher))
        return route;
    if (!late && !finishes) {
        route.peer = first + within(own + 1, way.size);
        return route;
    }
    const int behind = along(&way, late ? within(own - way.leader, way.size) : -1, 1);
    route.peer = behind < 0 ? -1 : first + behind;
    return route;
}

/* ---- a play -------------------------------------------------------------------------------- */

static enum sbp_schedule rule_of(const struct sbp_handed_run *r)
{
    return r->run->request->schedule;
}

static void update(struct sbp_handed_run *r, int stage, int group, int64_t step)
{
    const struct sbp_sum_route take =
        sbp_pyramid_take(rule_of(r), r->count, group, step, r->count - 1, true);
    const struct sbp_sum_route pass =
        sbp_pyramid_pass(rule_of(r), r->count, group, step, r->count - 1, true);
    sbp_handed_update(r, group, stage, (int)step, take.peer >= 0 ? &r->finished_s[group] : NULL,
                      pass.peer < 0 ? NULL : &r->finished_s[pass.peer]);
}

static void forward(struct sbp_handed_run *r, int stage, int micro_batch)
{
    const int group = sbp_pyramid_group(r->count, stage, micro_batch);
    int64_t step;
    if (sbp_pyramid_updates(rule_of(r), r->count, stage, micro_batch, &step))
        update(r, stage, group, step);
    sbp_timeline_run_do(r->run, group, sbp_timeline_work_of(SBP_WORK_FORWARD, stage, micro_batch),
                        *sbp_timeline_run_arrival(r->run, SBP_TO_NEXT, stage, micro_batch));
}

static void backward(struct sbp_handed_run *r, int stage, int micro_batch)
{
    const int group = sbp_pyramid_group(r->count, stage, micro_batch);
    const int step = micro_batch / r->count, i = micro_batch % r->count;
    const bool takes = sbp_pyramid_take(rule_of(r), r->count, group, step, i, false).peer >= 0;
    const struct sbp_sum_route pass = sbp_pyramid_pass(rule_of(r), r->count, group, step, i, false);
    const double there_s = *sbp_timeline_run_arrival(r->run, SBP_TO_PREVIOUS, stage, micro_batch);
    sbp_timeline_run_do(r->run, group, sbp_timeline_work_of(SBP_WORK_BACKWARD, stage, micro_batch),
                        takes ? fmax(there_s, r->so_far_s[group]) : there_s);
    if (pass.peer >= 0)
        sbp_handed_pass(r, group, stage, r->run->lane[group].free_s,
                        &(pass.finished ? r->finished_s : r->so_far_s)[pass.peer]);
}

static void do_pass(struct sbp_handed_run *r, int stage, int micro_batch, bool is_forward)
{
    const int64_t at = (int64_t)stage * r->run->micro_batches + micro_batch;
    const int64_t row = micro_batch % r->count, step = micro_batch / r->count;
    const int pass = is_forward ? stage : 2 * r->count - 1 - stage;
    (is_forward ? forward : backward)(r, stage, micro_batch);
    r->end_s[(step * r->count + row) * 2 * r->count + pass] =
        r->run->lane[r->run->owner[at]].free_s;
}

/* The updates before a forward pass that would come behind the last step. */
static void update_last(struct sbp_handed_run *r, int stage, int micro_batch)
{
    int64_t step;
    if (sbp_pyramid_updates(rule_of(r), r->count, stage, micro_batch, &step) &&
        step < r->run->steps)
        update(r, stage, sbp_pyramid_group(r->count, stage, micro_batch), step);
}

static enum sbp_status play(struct sbp_timeline_run *run)
{
    struct sbp_handed_run r = *run->handed;
    const int stages = r.count, behind = run->micro_batches + 2 * stages;
    for (int slot = 0; slot < 2 * (behind + stages); slot++)
        for (int stage = 0; stage < stages; stage++) {
            const bool is_forward = (slot - stage) % 2 == 0;
            const int twice = slot - (is_forward ? stage : 2 * stages - 1 - stage);
            if (twice >= 0 && twice / 2 < run->micro_batches)
                do_pass(&r, stage, twice / 2, is_forward);
            else if (twice >= 0 && is_forward && twice / 2 < behind)
                update_last(&r, stage, twice / 2);
        }
    return SBP_OK;
}

/* Between two updates lie at least one micro-batch and at most all of a step. */
static struct sbp_timeline_work *arrange(const struct sbp_timeline_run *run, int device,
                                         struct sbp_timeline_work *work)
{
    const int n = run->stages, stage = sbp_pyramid_stage(n, device);
    const int size = sbp_pyramid_size(n, stage), place = device - sbp_pyramid_first(n, stage);
    for (int round = 0; round < sbp_pyramid_period(n, stage); round++) {
        const int first = n * (round + 1);
        bool updated = false;
        for (int i = first + within(place - first, size); i < first + n; i += size) {
            int64_t step;
            if (sbp_pyramid_updates(run->request->schedule, n, stage, i, &step) && step == round) {
                *work++ = sbp_timeline_work_of(SBP_WORK_UPDATE, stage, round);
                updated = true;
            }
            *work++ = sbp_timeline_work_of(SBP_WORK_FORWARD, stage, i);
            *work++ = sbp_timeline_work_of(SBP_WORK_BACKWARD, stage, i);
        }
        if (!updated)
            *work++ = sbp_timeline_work_of(SBP_WORK_UPDATE, stage, round);
    }
    return work;
}

/* ---- steady steps -------------------------------------------------------------------------- */

static enum sbp_status place(struct sbp_handed_run *r)
{
    struct sbp_timeline_run *run = r->run;
    int *const owner = SBP_NEW(run->scratch, int, (int64_t)run->stages * run->micro_batches);
    if (owner == NULL)
        return SBP_E_MEMORY;
    for (int stage = 0; stage < run->stages; stage++)
        for (int i = 0; i < run->micro_batches; i++)
            owner[(int64_t)stage * run->micro_batches + i] = sbp_pyramid_group(r->count, stage, i);
    for (int d = 0; d < run->devices; d++)
        run->static_bytes[d] =
            sbp_timeline_run_cost(run, sbp_pyramid_stage(r->count, d))->static_bytes;
    run->owner = owner;
    return SBP_OK;
}

/* Groups of a stage take turns over more than one step: in the long run each does as much as the
 * others. */
static void even_out(const struct sbp_handed_run *r)
{
    for (int stage = 0; stage < r->count; stage++) {
        const int first = sbp_pyramid_first(r->count, stage);
        const int size = sbp_pyramid_size(r->count, stage);
        double compute_s = 0, send_s = 0;
        for (int k = first; k < first + size; k++) {
            compute_s += r->run->lane[k].compute_s / size;
            send_s += r->run->lane[k].send_s / size;
        }
        for (int k = first; k < first + size; k++) {
            r->run->lane[k].compute_s = compute_s;
            r->run->lane[k].send_s = send_s;
        }
    }
}

static enum sbp_status simulate(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                struct sbp_timeline *timeline)
{
    struct sbp_handed_run r = {.run = run,
                               .count = run->stages,
                               .sums = (int)sbp_pyramid_groups(run->stages),
                               .place = place,
                               .even_out = even_out};
    run->devices = r.sums;
    run->handed = &r;
    return sbp_handed_simulate(&r, arena, timeline);
}

const struct sbp_schedule_entry sbp_schedule_pyramid = {.takes_placement = true,
                                                        .check = sbp_timeline_check_cyclic,
                                                        .arrange = arrange,
                                                        .play = play,
                                                        .simulate = simulate};

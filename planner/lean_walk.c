#include "planner/lean_walk.h"

#include <assert.h>
#include <math.h>

#include "base/portable.h"
#include "planner/labels/label.h"
#include "planner/labels/label_walk.h"
#include "planner/lean_peak.h"
#include "planner/space/space_table.h"
#include "planner/pricing/working_set.h"

/* The last temperature, as a share of the bytes of the leanest plan so far. */
#define COLD 0.0005
/* Steps for each program that may be compiled: most are ruled out before. */
enum { STEPS_A_PROGRAM = 8 };

struct walk {
    const struct sbp_plan *plan;
    struct sbp_space space;
    struct sbp_working working;
    struct sbp_label_walk labels;
    struct sbp_lean_peak peak; /* of where the walk stands; of its start: unknown */
    double now_bytes;
    struct sbp_strategy trial;
    struct sbp_ranked *leanest;
    int64_t compiled;
    struct sbp_arena arena;
    struct sbp_diag *diag;
};

static void keep_leaner(struct walk *w, const struct sbp_step_totals *totals)
{
    if (totals->device_bytes >= w->leanest->device_bytes)
        return;
    w->leanest->device_bytes = totals->device_bytes;
    sbp_strategy_copy(w->space.graph, &w->trial, &w->leanest->strategy);
}

static bool is_no_plan(enum sbp_status status)
{
    return status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED;
}

/* The walk stands at what was compiled. */
static void take(struct walk *w, const struct sbp_step *step)
{
    w->now_bytes = (double)step->totals.device_bytes;
    sbp_lean_peak_find(&w->peak, step);
    w->labels.focus = w->peak.variable;
    w->labels.focus_count = w->peak.count;
}

/* Compiles the next labels, and takes them if their program needs at most so much of a device. */
static enum sbp_status compile(struct walk *w, double most_bytes, bool *is_taken)
{
    struct sbp_step step;
    struct sbp_diag refusal = {{0}};
    w->compiled++;
    sbp_label_write(&w->space, w->labels.next.choice, w->labels.next.role, &w->trial);
    enum sbp_status status = sbp_strategy_close(w->space.graph, w->space.mesh, &w->trial, &refusal);
    if (status == SBP_OK)
        status = sbp_plan_memory_step(w->plan, &w->trial, &step, &refusal);
    if (status != SBP_OK)
        return is_no_plan(status) ? SBP_OK : sbp_fail(w->diag, status, "%s", refusal.text);
    keep_leaner(w, &step.totals);
    *is_taken = (double)step.totals.device_bytes <= most_bytes;
    if (*is_taken)
        take(w, &step);
    sbp_step_free(&step);
    return SBP_OK;
}

/* What is accepted needs at most so much, drawn beforehand, so that the model can rule it out. */
static enum sbp_status take_step(struct walk *w, double temperature_bytes)
{
    const double most_bytes =
        w->now_bytes - temperature_bytes * sbp_log(1 - sbp_random_unit(&w->labels.random));
    const double reserve_bytes = (double)w->plan->cluster.reserve_bytes;
    bool is_taken = false;
    if (sbp_label_walk_draw(&w->labels) && sbp_label_walk_goes_together(&w->labels) &&
        sbp_working_bytes(&w->working, w->labels.next.choice) + reserve_bytes <= most_bytes)
        SBP_TRY(compile(w, most_bytes, &is_taken));
    sbp_label_walk_end(&w->labels, is_taken);
    return SBP_OK;
}

static enum sbp_status walk(struct walk *w, double hot, int64_t programs)
{
    const int64_t steps = programs * STEPS_A_PROGRAM;
    for (int64_t i = 0; i < steps && w->compiled < programs; i++) {
        const double done = fmax((double)i / (double)steps, (double)w->compiled / (double)programs);
        if (sbp_space_interrupted(&w->space))
            break;
        SBP_TRY(take_step(w, hot * sbp_pow(COLD / hot, done) * (double)w->leanest->device_bytes));
    }
    return SBP_OK;
}

/* Another strategy may be the leaner one here, too. */
static enum sbp_status try_other(struct walk *w, const struct sbp_strategy *other)
{
    bool is_taken = false;
    return sbp_label_walk_at(&w->labels, other) ? compile(w, 0, &is_taken) : SBP_OK;
}

/* What the leanest costs, which walks do not ask. The whole step is legal, as that of the plan
 * which the walk set out from was, at the same parallel. */
static enum sbp_status price(struct walk *w, int64_t known_bytes)
{
    struct sbp_step step;
    if (w->leanest->device_bytes == known_bytes)
        return SBP_OK;
    SBP_TRY(sbp_plan_brief_step(w->plan, &w->leanest->strategy, &step, w->diag));
    assert(step.totals.device_bytes == w->leanest->device_bytes);
    w->leanest->objective_s = w->space.request->objective == SBP_COMMUNICATION
                                  ? step.totals.communication_s
                                  : step.totals.step_s;
    sbp_step_free(&step);
    return SBP_OK;
}

static enum sbp_status begin(struct walk *w, uint64_t seed, double hot, int64_t programs,
                             const struct sbp_strategy *other)
{
    SBP_TRY(sbp_label_walk_init(&w->labels, &w->space, seed, &w->arena));
    SBP_TRY(sbp_working_init(&w->working, &w->space, &w->arena));
    SBP_TRY(sbp_lean_peak_init(&w->peak, &w->space, &w->arena));
    SBP_TRY(sbp_strategy_alloc(w->space.graph, &w->arena, &w->trial));
    if (w->space.variable_count == 0 || w->space.mesh->axis_count == 0)
        return SBP_OK;
    if (other != NULL)
        SBP_TRY(try_other(w, other));
    if (!sbp_label_walk_at(&w->labels, &w->leanest->strategy))
        return SBP_OK;
    w->now_bytes = (double)w->leanest->device_bytes;
    return walk(w, hot, programs);
}

enum sbp_status sbp_walk_leaner(const struct sbp_plan *plan, const struct sbp_request *request,
                                uint64_t seed, double hot, int64_t programs,
                                const struct sbp_strategy *other, struct sbp_ranked *leanest,
                                int64_t *evaluations, struct sbp_diag *diag)
{
    struct sbp_request asked = *request;
    struct walk w = {.plan = plan, .leanest = leanest, .diag = diag};
    struct sbp_diag refusal = {{0}};
    if (sbp_space_rule(request->space)->mesh != SBP_MESH_FREE ||
        request->boxing == SBP_BOXING_PAPER)
        return SBP_OK;
    asked.every_level = true; /* dear ones may be the leanest */
    enum sbp_status status = sbp_space_make(plan, &asked, NULL, NULL, &w.space, &refusal);
    if (status != SBP_OK)
        return status == SBP_STOPPED || is_no_plan(status)
                   ? SBP_OK
                   : sbp_fail(diag, status, "%s", refusal.text);
    const int64_t known_bytes = leanest->device_bytes;
    status = begin(&w, seed, hot, programs, other);
    if (status == SBP_OK)
        status = price(&w, known_bytes);
    *evaluations += w.compiled;
    sbp_arena_free(&w.arena);
    sbp_space_free(&w.space);
    return status;
}

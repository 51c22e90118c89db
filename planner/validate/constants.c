#include "planner/validate/constants.h"

#include <math.h>

#define MOST_TIMES    50.0 /* faster or slower than the cluster says */
#define MOST_LAUNCH_S 1e-2 /* Python launches in some 10 us, and blocks for some 100 */
#define LEAST_SHARE   1e-4 /* of what hides, and of the longest launch: where looking begins */
#define EXACT         1e-3 /* of the value */

const char *sbp_constant_name(enum sbp_constant cause)
{
#define SBP_CONSTANT_NAME(symbol, name) [SBP_CONSTANT_##symbol] = (name),
    static const char *const names[] = {SBP_CONSTANT_MAP(SBP_CONSTANT_NAME)};
#undef SBP_CONSTANT_NAME
    return names[cause];
}

static void set(struct sbp_cluster *cluster, enum sbp_constant cause, double value)
{
    switch (cause) {
    case SBP_CONSTANT_ARITHMETIC:
        for (int type = 0; type < SBP_TYPES; type++)
            cluster->flops[type] *= value;
        return;
    case SBP_CONSTANT_MEMORY:
        cluster->memory_bytes_per_s *= value;
        return;
    case SBP_CONSTANT_LINKS:
        for (int level = 0; level < cluster->level_count; level++)
            cluster->level[level].beta_s_per_byte /= value;
        return;
    case SBP_CONSTANT_HOST:
        cluster->runtime.host_s = value;
        return;
    default:
        for (int kind = 0; kind < SBP_HIDINGS; kind++)
            cluster->runtime.hidden[kind] = value;
        cluster->gradient_overlap = value; /* of gradients it is this one that steps read */
    }
}

/* The step of the same plan where one constant is another. */
static enum sbp_status price(const struct sbp_plan *plan, enum sbp_constant cause, double value,
                             double *step_s, struct sbp_diag *diag)
{
    struct sbp_cluster cluster = plan->workload.cluster;
    struct sbp_arena arena = {0};
    struct sbp_cut cut;
    struct sbp_step step;
    set(&cluster, cause, value);
    enum sbp_status status =
        sbp_cut_make(&plan->workload.model, &cluster, &plan->cut.parallel, &arena, &cut, diag);
    if (status == SBP_OK)
        status = sbp_cut_step(&cut, &plan->strategy, true, &step, diag);
    if (status == SBP_OK) {
        *step_s = step.totals.step_s;
        sbp_step_free(&step);
    }
    sbp_arena_free(&arena);
    return status;
}

/* Values between which a constant is looked for; the step at `near` is nearer to the predicted one.
 * Both are positive, so that the middle is geometric. */
struct range {
    double near, far;
};

static bool range_of(const struct sbp_cluster *cluster, enum sbp_constant cause, bool longer,
                     struct range *range)
{
    const double host_s = cluster->runtime.host_s;
    const double most_hidden = sbp_device_factor(cluster->rates.overlap_share);
    double hidden = fmax(LEAST_SHARE, fmin(cluster->gradient_overlap, most_hidden));
    *range = (struct range){1, longer ? 1 / MOST_TIMES : MOST_TIMES};
    if (cause == SBP_CONSTANT_HOST) {
        *range = (struct range){fmax(host_s, LEAST_SHARE * MOST_LAUNCH_S), MOST_LAUNCH_S};
        return longer && host_s < MOST_LAUNCH_S;
    }
    if (cause == SBP_CONSTANT_HIDING) {
        for (int kind = 0; kind < SBP_HIDINGS; kind++)
            hidden = fmax(hidden, cluster->runtime.hidden[kind]);
        *range = (struct range){hidden, most_hidden};
        return !longer && hidden < most_hidden;
    }
    return true;
}

/* Halves the range, in which the step passes the measured time, until it is narrow. */
static enum sbp_status narrow(const struct sbp_plan *plan, enum sbp_constant cause,
                              double measured_s, bool longer, struct range *range,
                              struct sbp_diag *diag)
{
    while (fabs(range->far / range->near - 1) > EXACT) {
        const double middle = sqrt(range->near * range->far);
        double step_s;
        SBP_TRY(price(plan, cause, middle, &step_s, diag));
        if (longer ? step_s < measured_s : step_s > measured_s)
            range->near = middle;
        else
            range->far = middle;
    }
    return SBP_OK;
}

static enum sbp_status explain(const struct sbp_plan *plan, enum sbp_constant at, double measured_s,
                               bool longer, struct sbp_constant_value *cause, struct sbp_diag *diag)
{
    struct range range;
    double far_s;
    *cause = (struct sbp_constant_value){false, 0};
    if (!range_of(&plan->workload.cluster, at, longer, &range))
        return SBP_OK;
    SBP_TRY(price(plan, at, range.far, &far_s, diag));
    if (longer ? far_s < measured_s : far_s > measured_s)
        return SBP_OK;
    SBP_TRY(narrow(plan, at, measured_s, longer, &range, diag));
    *cause = (struct sbp_constant_value){true, range.far};
    return SBP_OK;
}

enum sbp_status sbp_constants_explain(const struct sbp_plan *plan, double measured_s,
                                      struct sbp_constant_value *cause, struct sbp_diag *diag)
{
    double predicted_s;
    SBP_TRY(price(plan, SBP_CONSTANT_ARITHMETIC, 1, &predicted_s, diag));
    for (int at = 0; at < SBP_CONSTANTS; at++)
        SBP_TRY(explain(plan, (enum sbp_constant)at, measured_s, measured_s > predicted_s,
                        &cause[at], diag));
    return SBP_OK;
}

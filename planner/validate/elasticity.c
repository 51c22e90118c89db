#include "planner/validate/elasticity.h"

#include <math.h>
#include <stdlib.h>

#include "base/math/portable.h"

/* A machine that is so much faster; small beside the bends of a price, large beside round-off. */
#define FASTER 1.001

enum { ARITHMETIC = -2, MEMORY_BANDWIDTH = -1 }; /* from 0 on: links of a level */

/* Measured groups know two tiers: within a node, and between nodes. */
static void speed_network(struct sbp_cluster *cluster, bool outer)
{
    struct sbp_network *network = &cluster->network;
    for (int i = 0; i < network->curve_count; i++) {
        struct sbp_shape_curve *curve = &network->curve[i];
        for (int k = 0; (curve->nodes > 1) == outer && k < curve->segment_count; k++)
            curve->segment[k].beta_s_per_byte /= FASTER;
    }
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        network->formula[kind].coefficient[outer ? SBP_INTER_BYTE : SBP_INTRA_BYTE] /= FASTER;
}

static void speed_links(struct sbp_cluster *cluster, int level)
{
    const int innermost = cluster->level_count - 1;
    cluster->level[level].beta_s_per_byte /= FASTER;
    for (int i = 0; i < cluster->curves.curve_count; i++) {
        const struct sbp_curve *curve = &cluster->curves.curve[i];
        for (int k = 0; curve->level == level && k < curve->count; k++)
            cluster->curves.point[curve->first + k].seconds /= FASTER;
    }
    if (level == innermost || level == 0)
        speed_network(cluster, level < innermost);
}

static void speed(struct sbp_cluster *cluster, int what)
{
    if (what >= 0)
        speed_links(cluster, what);
    else if (what == MEMORY_BANDWIDTH)
        cluster->memory_bytes_per_s *= FASTER;
    else
        for (int type = 0; type < SBP_TYPES; type++)
            cluster->flops[type] *= FASTER;
}

static enum sbp_status saved(const struct sbp_plan *plan, int what, double step_s, double *share,
                             struct sbp_diag *diag)
{
    struct sbp_cluster *cluster = malloc(sizeof *cluster);
    struct sbp_arena arena = {0};
    struct sbp_cut cut;
    struct sbp_step step;
    if (cluster == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    *cluster = plan->workload.cluster;
    speed(cluster, what);
    enum sbp_status status =
        sbp_cut_make(&plan->workload.model, cluster, &plan->cut.parallel, &arena, &cut, diag);
    if (status == SBP_OK)
        status = sbp_cut_step(&cut, &plan->strategy, true, &step, diag);
    if (status == SBP_OK) {
        *share = sbp_log(step_s / step.totals.step_s) / sbp_log(FASTER);
        sbp_step_free(&step);
    }
    sbp_arena_free(&arena);
    free(cluster);
    return status;
}

enum sbp_status sbp_elasticity_make(const struct sbp_plan *plan, struct sbp_elasticity *elasticity,
                                    struct sbp_diag *diag)
{
    struct sbp_step step;
    *elasticity = (struct sbp_elasticity){0};
    SBP_TRY(sbp_cut_step(&plan->cut, &plan->strategy, true, &step, diag));
    const double step_s = step.totals.step_s;
    sbp_step_free(&step);
    if (!(step_s > 0))
        return SBP_OK;
    SBP_TRY(saved(plan, ARITHMETIC, step_s, &elasticity->arithmetic, diag));
    SBP_TRY(saved(plan, MEMORY_BANDWIDTH, step_s, &elasticity->memory_bandwidth, diag));
    for (int level = 0; level < plan->workload.cluster.level_count; level++)
        SBP_TRY(saved(plan, level, step_s, &elasticity->link[level], diag));
    return SBP_OK;
}

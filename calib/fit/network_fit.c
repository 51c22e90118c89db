#include "calib/fit/network_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/stats.h"
#include "calib/fit/level_fit.h"
#include "calib/fit/tier_fit.h"

#define LARGE 0.125 /* of the largest size, from which bandwidth decides */

void sbp_network_fit_free(struct sbp_network_fit *fit)
{
    if (fit != NULL)
        sbp_arena_free(&fit->arena);
}

static enum sbp_status fit_curves(struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    for (int s = 0; s < fit->shapes.count; s++) {
        const struct sbp_measured_group *shape = &fit->shapes.shape[s];
        struct sbp_shape_curve *curve = &fit->network.curve[s];
        struct sbp_curve_fit found;
        SBP_TRY(sbp_curve_fit(shape->sample, shape->count, &found, diag));
        *curve = (struct sbp_shape_curve){.kind = shape->kind,
                                          .nodes = shape->nodes,
                                          .ranks_per_node = shape->ranks_per_node,
                                          .segment_count = found.segment_count};
        memcpy(curve->segment, found.segment, sizeof curve->segment);
        fit->quality.shape[s].method = found.method;
        fit->network.curve_count++;
    }
    return SBP_OK;
}

/* Takes a level that the formula left out from the curve of messages that were sent over it:
 * latency of small ones, rate of large ones. A prediction that is far too small is off by 1 at
 * most, so that with few sizes leaving the level out may give the least error. */
static void take_from_messages(const struct sbp_network *network, bool between,
                               struct sbp_network_level *level)
{
    for (int i = 0; i < network->curve_count && !level->is_measured; i++) {
        const struct sbp_shape_curve *curve = &network->curve[i];
        const double beta = curve->segment[curve->segment_count - 1].beta_s_per_byte;
        if (curve->kind == SBP_SEND_RECV && (curve->nodes > 1) == between && beta > 0)
            *level = (struct sbp_network_level){true, curve->segment[0].alpha_s, beta};
    }
}

static enum sbp_status fit_formulas(struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    struct sbp_formula levels;
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        SBP_TRY(sbp_tier_fit(&fit->shapes, &fit->network, (enum sbp_collective)kind, SBP_NO_SHAPE,
                             &fit->network.formula[kind], diag));
    SBP_TRY(sbp_tier_fit_levels(&fit->shapes, &fit->network, &levels, diag));
    const double *c = levels.coefficient;
    fit->between =
        (struct sbp_network_level){c[SBP_INTER_BYTE] > 0, c[SBP_INTER_STEP], c[SBP_INTER_BYTE]};
    fit->within =
        (struct sbp_network_level){c[SBP_INTRA_BYTE] > 0, c[SBP_INTRA_STEP], c[SBP_INTRA_BYTE]};
    take_from_messages(&fit->network, true, &fit->between);
    take_from_messages(&fit->network, false, &fit->within);
    return SBP_OK;
}

/* --- the paper's fit --- */

/* Fits all points of groups over several nodes, or of those within one, as one network. Send-recv
 * is not among the paper's collectives, and broadcast has a formula of its own. */
static enum sbp_status fit_paper_level(const struct sbp_network_fit *fit, bool between,
                                       struct sbp_network_level *level, struct sbp_diag *diag)
{
    struct sbp_arena arena = {0};
    const int samples = sbp_shapes_samples(&fit->shapes);
    int count = 0;
    struct sbp_fit_point *point = SBP_NEW(&arena, struct sbp_fit_point, samples);
    struct sbp_fit found = {0};
    if (point == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", samples);
    for (int s = 0; s < fit->shapes.count; s++) {
        const struct sbp_measured_group *shape = &fit->shapes.shape[s];
        if ((shape->nodes > 1) != between || shape->kind >= SBP_SEND_RECV)
            continue;
        for (int i = 0; i < shape->count; i++)
            point[count++] =
                (struct sbp_fit_point){shape->kind, shape->nodes * shape->ranks_per_node,
                                       shape->sample[i].bytes, shape->sample[i].time_s};
    }
    const enum sbp_status status =
        count == 0 ? SBP_OK : sbp_fit_points(point, count, SBP_FIT_NONE, &found, diag);
    sbp_arena_free(&arena);
    SBP_TRY(status);
    *level = (struct sbp_network_level){count > 0, found.alpha_s, found.beta_s_per_byte};
    return SBP_OK;
}

static double paper_s(const void *model, const struct sbp_measured_group *shape, double bytes)
{
    const struct sbp_network_fit *fit = model;
    return sbp_network_fit_s(fit, shape->kind, shape->nodes, shape->ranks_per_node, bytes);
}

static enum sbp_status fit_paper(struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    SBP_TRY(fit_paper_level(fit, true, &fit->between, diag));
    SBP_TRY(fit_paper_level(fit, false, &fit->within, diag));
    if (!fit->between.is_measured && !fit->within.is_measured)
        return sbp_fail(diag, SBP_E_INPUT,
                        "the paper's fit needs an all-reduce, all-gather, reduce-scatter or "
                        "all-to-all; without --method paper other kinds are fitted, too");
    fit->quality.noise = fit->shapes.noise;
    return sbp_quality_errors(&fit->shapes, paper_s, fit, &fit->arena, &fit->quality.in_sample,
                              diag);
}

/* --- all of it --- */

enum sbp_status sbp_network_fit(const struct sbp_measured *measured,
                                const struct sbp_network_options *options,
                                struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    *fit = (struct sbp_network_fit){.network.ports = options->ports};
    SBP_TRY(sbp_shapes_group(measured, &fit->arena, &fit->shapes, diag));
    for (int s = 0; s < fit->shapes.count; s++) {
        const struct sbp_measured_group *shape = &fit->shapes.shape[s];
        fit->nodes = shape->nodes > fit->nodes ? shape->nodes : fit->nodes;
        if (shape->ranks_per_node > fit->ranks_per_node)
            fit->ranks_per_node = shape->ranks_per_node;
    }
    if (options->is_paper)
        return fit_paper(fit, diag);
    fit->quality.shape = SBP_NEW(&fit->arena, struct sbp_shape_quality, fit->shapes.count);
    if (fit->quality.shape == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d groups", fit->shapes.count);
    SBP_TRY(fit_curves(fit, diag));
    SBP_TRY(fit_formulas(fit, diag));
    return sbp_quality_judge(&fit->shapes, &fit->network, &fit->arena, &fit->quality, diag);
}

double sbp_network_fit_s(const struct sbp_network_fit *fit, enum sbp_collective kind, int nodes,
                         int ranks_per_node, double bytes)
{
    if (sbp_network_covers(&fit->network, kind, nodes))
        return sbp_network_price(&fit->network, kind, nodes, ranks_per_node, bytes).seconds;
    const struct sbp_network_level *level = nodes > 1 ? &fit->between : &fit->within;
    if (!level->is_measured)
        return NAN;
    const double members = (double)nodes * ranks_per_node;
    return sbp_collective_steps(kind, members) * level->alpha_s +
           sbp_collective_share(kind, members) * bytes * level->beta_s_per_byte;
}

/* --- ports --- */

/* Groups of neighbouring nodes with one member on each tell of ports. */
static bool is_told(const struct sbp_measured_point *point)
{
    return point->nodes > 1 && point->ranks_per_node == 1 && point->groups >= 1;
}

static double largest_size(const struct sbp_measured *measured, int groups)
{
    double largest = 0;
    for (int i = 0; i < measured->count; i++)
        if (is_told(&measured->point[i]) && measured->point[i].groups == groups)
            largest = fmax(largest, measured->point[i].bytes);
    return largest;
}

/* Finds the same collective of the same source by one group of a node alone; NULL: not measured. */
static const struct sbp_measured_point *find_alone(const struct sbp_measured *measured,
                                                   const struct sbp_measured_point *shared)
{
    for (int i = 0; i < measured->count; i++) {
        const struct sbp_measured_point *point = &measured->point[i];
        if (is_told(point) && point->groups == 1 && point->kind == shared->kind &&
            point->nodes == shared->nodes && point->bytes == shared->bytes &&
            point->source == shared->source)
            return point;
    }
    return NULL;
}

static int list_slowdowns(const struct sbp_measured *measured, int groups, double *slowdown)
{
    const double least = LARGE * largest_size(measured, groups);
    int count = 0;
    for (int i = 0; i < measured->count; i++) {
        const struct sbp_measured_point *point = &measured->point[i];
        if (!is_told(point) || point->groups != groups || point->bytes < least)
            continue;
        const struct sbp_measured_point *alone = find_alone(measured, point);
        if (alone != NULL)
            slowdown[count++] = point->time_s / alone->time_s;
    }
    return count;
}

enum sbp_status sbp_network_fit_ports(const struct sbp_measured *measured, struct sbp_ports *ports,
                                      struct sbp_diag *diag)
{
    int groups = 1;
    for (int i = 0; i < measured->count; i++)
        if (is_told(&measured->point[i]) && measured->point[i].groups > groups)
            groups = measured->point[i].groups;
    *ports = (struct sbp_ports){.ports = 1};
    if (groups == 1)
        return SBP_OK;
    double *slowdown = calloc((size_t)measured->count, sizeof *slowdown);
    if (slowdown == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", measured->count);
    const int count = list_slowdowns(measured, groups, slowdown);
    if (count > 0) {
        ports->groups = groups;
        ports->slowdown = sbp_median(slowdown, count);
        ports->ports = (int)fmin(groups, fmax(1, round(groups / ports->slowdown)));
    }
    free(slowdown);
    return SBP_OK;
}

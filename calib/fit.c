#include "calib/fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/stats.h"

/* Squared sine of the angle between the two columns under which they count as parallel: the times
 * would have to be right to one in ten thousand to tell the parameters apart. */
#define LEAST_SINE_SQUARED 1e-8

double sbp_fit_predict_s(double alpha_s, double beta_s_per_byte, const struct sbp_fit_point *point)
{
    const struct sbp_cluster cluster = {
        .level_count = 1,
        .level[0] = {.alpha_s = alpha_s, .beta_s_per_byte = beta_s_per_byte, .ports = 1},
    };
    return sbp_collective_group_s(&cluster, point->kind, point->members, 0, point->bytes);
}

static bool is_positive(double value)
{
    return value > 0 && isfinite(value);
}

static enum sbp_status check_points(const struct sbp_fit_point *points, int count,
                                    struct sbp_diag *diag)
{
    if (count <= 0)
        return sbp_fail(diag, SBP_E_INPUT, "fit: no measured points");
    for (int i = 0; i < count; i++) {
        const struct sbp_fit_point *p = &points[i];
        if ((int)p->kind < 0 || p->kind >= SBP_FIT_KINDS || p->members < 2 ||
            !is_positive(p->bytes) || !is_positive(p->time_s))
            return sbp_fail(diag, SBP_E_INPUT,
                            "fit: point %d (%d members, %g bytes, %g s) is no measurement of a "
                            "collective: at least 2 members, bytes and time above 0",
                            i, p->members, p->bytes, p->time_s);
    }
    return SBP_OK;
}

/* The weighted linear system, a row a point. */
struct linear_system {
    int count;
    double *memory; /* owns the four columns */
    double *steps, *bytes, *time_s, *weight;
};

static bool system_make(const struct sbp_fit_point *points, int count, enum sbp_fit_weights weights,
                        struct linear_system *system)
{
    const size_t rows = (size_t)count;
    double *memory = calloc(rows, 4 * sizeof *memory);
    if (memory == NULL)
        return false;
    *system = (struct linear_system){.count = count,
                                     .memory = memory,
                                     .steps = memory,
                                     .bytes = memory + rows,
                                     .time_s = memory + 2 * rows,
                                     .weight = memory + 3 * rows};
    for (int i = 0; i < count; i++) {
        system->steps[i] = sbp_fit_predict_s(1, 0, &points[i]);
        system->bytes[i] = sbp_fit_predict_s(0, 1, &points[i]);
        system->time_s[i] = points[i].time_s;
        system->weight[i] = weights == SBP_FIT_RELATIVE ? 1 / points[i].time_s : 1;
    }
    return true;
}

/* Whether the two columns point in different directions: y against its projection on x. */
static bool system_is_determined(const struct linear_system *system)
{
    double xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < system->count; i++) {
        const double x = system->weight[i] * system->steps[i];
        const double y = system->weight[i] * system->bytes[i];
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    return 1 - xy / xx * (xy / yy) > LEAST_SINE_SQUARED;
}

/* Errors of the points of one kind, or of all for kind SBP_FIT_KINDS; scratch(count). */
static struct sbp_fit_error error_of(const struct sbp_fit *fit, const struct sbp_fit_point *points,
                                     int count, enum sbp_collective kind, double *scratch)
{
    struct sbp_fit_error error = {0};
    for (int i = 0; i < count; i++) {
        if (kind != SBP_FIT_KINDS && points[i].kind != kind)
            continue;
        const double predicted_s =
            sbp_fit_predict_s(fit->alpha_s, fit->beta_s_per_byte, &points[i]);
        const double off = fabs(predicted_s - points[i].time_s) / points[i].time_s;
        error.max = fmax(error.max, off);
        scratch[error.points++] = off;
    }
    if (error.points > 0)
        error.median = sbp_median(scratch, error.points);
    return error;
}

static enum sbp_status solve(const struct linear_system *system, struct sbp_fit *fit,
                             struct sbp_diag *diag)
{
    if (!system_is_determined(system))
        return sbp_fail(diag, SBP_E_INPUT,
                        "fit: %d points cannot tell latency from bandwidth: more sizes are needed",
                        system->count);
    if (!sbp_fit_nonnegative(system->count, system->steps, system->bytes, system->time_s,
                             system->weight, &fit->alpha_s, &fit->beta_s_per_byte))
        return sbp_fail(diag, SBP_E_INPUT, "fit: the measured times overflow least squares");
    return SBP_OK;
}

enum sbp_status sbp_fit_points(const struct sbp_fit_point *points, int count,
                               enum sbp_fit_weights weights, struct sbp_fit *fit,
                               struct sbp_diag *diag)
{
    SBP_TRY(check_points(points, count, diag));
    struct linear_system system;
    if (!system_make(points, count, weights, &system))
        return sbp_fail(diag, SBP_E_MEMORY, "fit: out of memory for %d points", count);
    *fit = (struct sbp_fit){0};
    const enum sbp_status status = solve(&system, fit, diag);
    if (status == SBP_OK) {
        double *scratch = system.memory; /* the system is solved */
        for (int kind = 0; kind <= (int)SBP_FIT_KINDS; kind++) {
            const struct sbp_fit_error error =
                error_of(fit, points, count, (enum sbp_collective)kind, scratch);
            if (kind == (int)SBP_FIT_KINDS)
                fit->all = error;
            else
                fit->kind[kind] = error;
        }
    }
    free(system.memory);
    return status;
}

#include "calib/fit/level_fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/math/stats.h"

/* Squared sine of the angle between the two columns under which they count as parallel: the times
 * would have to be right to one in ten thousand to tell the parameters apart. */
#define LEAST_SINE_SQUARED 1e-8

/* The symmetric fit is solved by reweighting. Each round shrinks the distance to the minimum at
 * least by the spread of t / p about 1, so few rounds are needed. */
#define MOST_ROUNDS 500
#define CONVERGED   1e-12

const char *const sbp_fit_weights_names[] = {"relative", "symmetric", "none", NULL};

double sbp_fit_predict_s(double alpha_s, double beta_s_per_byte, const struct sbp_fit_point *point)
{
    return sbp_collective_steps(point->kind, point->members) * alpha_s +
           sbp_collective_share(point->kind, point->members) * point->bytes * beta_s_per_byte;
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
        system->weight[i] = weights == SBP_FIT_NONE ? 1 : 1 / points[i].time_s;
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

static bool solve_once(const struct linear_system *system, struct sbp_fit *fit)
{
    return sbp_fit_nonnegative(system->count, system->steps, system->bytes, system->time_s,
                               system->weight, &fit->alpha_s, &fit->beta_s_per_byte);
}

/* (p - t)^2 / (p t) = p/t + t/p - 2 is convex in p, which is linear in the parameters: there is one
 * minimum, where sum x (p - t) (p + t) / (t p^2) = 0 for both columns x. These are the normal
 * equations with weights w^2 = (p + t) / (t p^2); p is that of the round before. */
static bool solve_symmetric(const struct linear_system *system, struct sbp_fit *fit)
{
    for (int round = 0; round < MOST_ROUNDS; round++) {
        const struct sbp_fit before = *fit;
        for (int i = 0; i < system->count; i++) {
            const double t = system->time_s[i];
            const double p =
                before.alpha_s * system->steps[i] + before.beta_s_per_byte * system->bytes[i];
            system->weight[i] = sqrt((p + t) / t) / p;
        }
        if (!solve_once(system, fit))
            return false;
        if (fabs(fit->alpha_s - before.alpha_s) <= CONVERGED * before.alpha_s &&
            fabs(fit->beta_s_per_byte - before.beta_s_per_byte) <=
                CONVERGED * before.beta_s_per_byte)
            break;
    }
    return true;
}

static enum sbp_status solve(const struct linear_system *system, enum sbp_fit_weights weights,
                             struct sbp_fit *fit, struct sbp_diag *diag)
{
    if (!system_is_determined(system))
        return sbp_fail(diag, SBP_E_INPUT,
                        "fit: %d points cannot tell latency from bandwidth: more sizes are needed",
                        system->count);
    if (!solve_once(system, fit) || (weights == SBP_FIT_SYMMETRIC && !solve_symmetric(system, fit)))
        return sbp_fail(diag, SBP_E_INPUT, "fit: the measured times overflow least squares");
    return SBP_OK;
}

enum sbp_status sbp_fit_judge(double alpha_s, double beta_s_per_byte,
                              const struct sbp_fit_point *points, int count,
                              struct sbp_fit_error *error, struct sbp_diag *diag)
{
    *error = (struct sbp_fit_error){.points = count};
    if (count == 0)
        return SBP_OK;
    double *off = calloc((size_t)count, sizeof *off);
    if (off == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "fit: out of memory for %d points", count);
    double logarithms = 0;
    for (int i = 0; i < count; i++) {
        const double ratio =
            sbp_fit_predict_s(alpha_s, beta_s_per_byte, &points[i]) / points[i].time_s;
        off[i] = fabs(ratio - 1);
        error->max = fmax(error->max, off[i]);
        logarithms += log(ratio);
    }
    error->ratio = exp(logarithms / count);
    error->median = sbp_median(off, count);
    free(off);
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
    const enum sbp_status status = solve(&system, weights, fit, diag);
    free(system.memory);
    SBP_TRY(status);
    return sbp_fit_judge(fit->alpha_s, fit->beta_s_per_byte, points, count, &fit->error, diag);
}

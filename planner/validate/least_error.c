#include "planner/validate/least_error.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/arena.h"

#define AXIS_ROUNDS  3    /* with steps of 1/2, 1/4, 1/8 */
#define SLOPE_ROUNDS 40   /* at most */
#define FIRST_RADIUS 0.25 /* within which slopes are believed */
#define LEAST_RADIUS 1e-5 /* below which a coordinate tells nothing */
#define SLOPE_STEP   0.01 /* differences over more bend, over less are noise of rounding */
#define LEAST_GAIN   1e-6 /* of the error, or */
#define LEAST_SHARE  1e-3 /* of what is left of it */
#define GOOD_SHARE   0.25 /* of the gain that slopes promise: they are believed further */
#define ATTEMPTS     3    /* on the way that the slopes point, each within a quarter */
#define TURNS        2    /* of slopes to their other sides, before the radius shrinks */
#define REWEIGHTINGS 40   /* of squares, until they stand for absolute values */
#define SWEEPS       60   /* over coordinates, for one set of weights */
#define FIRST_FLOOR  0.1  /* of an error in a weight, falling to LAST_FLOOR */
#define LAST_FLOOR   1e-7

struct search {
    const struct sbp_least_error *problem;
    double begin[SBP_LEAST_ERROR_MOST];
    double at[SBP_LEAST_ERROR_MOST];   /* the best so far */
    double *error;                     /* (points) there */
    double *tried;                     /* (points) */
    double *slope;                     /* (coordinates, points) row-major */
    double side[SBP_LEAST_ERROR_MOST]; /* 1 or -1: on which slopes are taken */
    double score;                      /* of the best */
};

/* ---- points ---------------------------------------------------------------------------------- */

static double score_of(const struct search *s, const double *at, const double *error)
{
    double sum = 0, way = 0;
    for (int i = 0; i < s->problem->points; i++)
        sum += fabs(error[i]);
    for (int j = 0; j < s->problem->coordinates; j++)
        way += fabs(at[j] - s->begin[j]);
    return sum / s->problem->points + s->problem->hold * way;
}

static double within(double value, double least, double most)
{
    return fmin(most, fmax(least, value));
}

static void take(struct search *s, const double *at, double score)
{
    double *error = s->error;
    s->error = s->tried;
    s->tried = error;
    memcpy(s->at, at, sizeof s->at);
    s->score = score;
}

/* Takes a point that is better. */
static enum sbp_status try_point(struct search *s, const double *at, double *gain)
{
    SBP_TRY(s->problem->errors(s->problem->context, at, s->tried));
    const double score = score_of(s, at, s->tried);
    *gain = s->score - score;
    if (score < s->score)
        take(s, at, score);
    return SBP_OK;
}

/* ---- along the axes -------------------------------------------------------------------------- */

static enum sbp_status go_along(struct search *s, int j, double step)
{
    double at[SBP_LEAST_ERROR_MOST], gain;
    const double middle = s->at[j];
    for (int side = -1; side <= 1; side += 2) {
        memcpy(at, s->at, sizeof at);
        at[j] = within(middle + side * step, 0, 1);
        if (at[j] != middle)
            SBP_TRY(try_point(s, at, &gain));
    }
    return SBP_OK;
}

/* ---- by slopes ------------------------------------------------------------------------------- */

/* Errors a coordinate, by a difference to its side, or to the other where there is no room. */
static enum sbp_status find_slope(struct search *s, int j, double step)
{
    double at[SBP_LEAST_ERROR_MOST];
    double *slope = s->slope + (size_t)j * (size_t)s->problem->points;
    memcpy(at, s->at, sizeof at);
    at[j] = within(s->at[j] + s->side[j] * step, 0, 1);
    if (fabs(at[j] - s->at[j]) < step / 2) {
        s->side[j] = -s->side[j];
        at[j] = within(s->at[j] + s->side[j] * step, 0, 1);
    }
    SBP_TRY(s->problem->errors(s->problem->context, at, slope));
    for (int i = 0; i < s->problem->points; i++)
        slope[i] = (slope[i] - s->error[i]) / (at[j] - s->at[j]);
    return SBP_OK;
}

static double linear_error(const struct search *s, int i, const double *way)
{
    double error = s->error[i];
    for (int j = 0; j < s->problem->coordinates; j++)
        error += s->slope[(size_t)j * (size_t)s->problem->points + (size_t)i] * way[j];
    return error;
}

/* Returns by how much the score falls on a way if the slopes tell the truth. */
static double promise(const struct search *s, const double *way)
{
    double sum = 0, held = 0;
    for (int i = 0; i < s->problem->points; i++)
        sum += fabs(linear_error(s, i, way));
    for (int j = 0; j < s->problem->coordinates; j++)
        held += fabs(s->at[j] + way[j] - s->begin[j]);
    return s->score - sum / s->problem->points - s->problem->hold * held;
}

/* Squares: sum of weight[i] (error[i] + slope[i] . way)^2 = way' a way / 2 + b . way + c. */
struct squares {
    double a[SBP_LEAST_ERROR_MOST][SBP_LEAST_ERROR_MOST], b[SBP_LEAST_ERROR_MOST];
};

static void weigh(const struct search *s, const double *way, double floor, struct squares *squares)
{
    const int n = s->problem->coordinates, points = s->problem->points;
    *squares = (struct squares){0};
    for (int i = 0; i < points; i++) {
        const double weight = 1 / (points * fmax(floor, fabs(linear_error(s, i, way))));
        for (int j = 0; j < n; j++) {
            const double left = weight * s->slope[(size_t)j * (size_t)points + (size_t)i];
            squares->b[j] += left * s->error[i];
            for (int k = 0; k <= j; k++)
                squares->a[j][k] += left * s->slope[(size_t)k * (size_t)points + (size_t)i];
        }
    }
    for (int j = 0; j < n; j++) {
        const double from = s->at[j] - s->begin[j];
        const double weight = s->problem->hold / fmax(floor, fabs(from + way[j]));
        squares->a[j][j] += weight;
        squares->b[j] += weight * from;
        for (int k = 0; k < j; k++)
            squares->a[k][j] = squares->a[j][k];
    }
}

/* The least of the squares in the cube within the radius, from where `way` stands. */
static void settle(const struct search *s, const struct squares *squares, double radius,
                   double *way)
{
    const int n = s->problem->coordinates;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int j = 0; j < n; j++) {
            double pull = squares->b[j];
            for (int k = 0; k < n; k++)
                pull += k == j ? 0 : squares->a[j][k] * way[k];
            if (squares->a[j][j] > 0)
                way[j] = within(within(-pull / squares->a[j][j], -radius, radius), -s->at[j],
                                1 - s->at[j]);
        }
}

/* The way on which absolute errors, as the slopes have them, become the least: squares whose
 * weights follow the errors. Returns what they promise. */
static double find_way(const struct search *s, double radius, double *way)
{
    double tried[SBP_LEAST_ERROR_MOST] = {0}, most = 0, floor = FIRST_FLOOR;
    memset(way, 0, SBP_LEAST_ERROR_MOST * sizeof *way);
    for (int i = 0; i < REWEIGHTINGS; i++) {
        struct squares squares;
        weigh(s, tried, floor, &squares);
        settle(s, &squares, radius, tried);
        const double promised = promise(s, tried);
        if (promised > most) {
            most = promised;
            memcpy(way, tried, sizeof tried);
        }
        floor = fmax(LAST_FLOOR, floor / 2);
    }
    return most;
}

static double longest(const struct search *s, const double *way)
{
    double most = 0;
    for (int j = 0; j < s->problem->coordinates; j++)
        most = fmax(most, fabs(way[j]));
    return most;
}

/* Goes where the slopes point, by less where they do not tell the truth. *radius: becomes what is
 * believed next, unless nothing was gained; way: the last that was tried, 0 where there is none. */
static enum sbp_status follow_slopes(struct search *s, double *radius, double *way, double *gained)
{
    double at[SBP_LEAST_ERROR_MOST] = {0}, near = *radius;
    *gained = 0;
    for (int i = 0; i < ATTEMPTS && *gained <= 0; i++, near /= 4) {
        const double promised = find_way(s, near, way);
        if (promised < LEAST_GAIN)
            return SBP_OK;
        for (int j = 0; j < s->problem->coordinates; j++)
            at[j] = s->at[j] + way[j];
        SBP_TRY(try_point(s, at, gained));
        if (*gained > GOOD_SHARE * promised)
            *radius = fmin(FIRST_RADIUS, fmax(near, 2 * longest(s, way)));
        else if (*gained > 0)
            *radius = near;
    }
    return SBP_OK;
}

/* Errors bend, so slopes tell the truth on their own side: takes those anew that a way in vain was
 * against; of a way of no length all. False: there are none. */
static enum sbp_status turn_sides(struct search *s, const double *way, double step, bool *turned)
{
    const bool all = longest(s, way) == 0;
    *turned = false;
    for (int j = 0; j < s->problem->coordinates; j++)
        if (all || way[j] * s->side[j] < 0) {
            s->side[j] = -s->side[j];
            SBP_TRY(find_slope(s, j, step));
            *turned = true;
        }
    return SBP_OK;
}

static enum sbp_status go_along_axes(struct search *s)
{
    for (int round = 0; round < AXIS_ROUNDS; round++)
        for (int j = 0; j < s->problem->coordinates; j++)
            SBP_TRY(go_along(s, j, ldexp(0.5, -round)));
    return SBP_OK;
}

static enum sbp_status find_slopes(struct search *s, const double *way, double step)
{
    for (int j = 0; j < s->problem->coordinates; j++) {
        if (way[j] != 0)
            s->side[j] = way[j] > 0 ? 1 : -1;
        SBP_TRY(find_slope(s, j, step));
    }
    return SBP_OK;
}

static enum sbp_status go_by_slopes(struct search *s)
{
    double radius = FIRST_RADIUS, gained, way[SBP_LEAST_ERROR_MOST] = {0};
    bool turned;
    for (int j = 0; j < s->problem->coordinates; j++)
        s->side[j] = s->at[j] < 0.5 ? 1 : -1;
    SBP_TRY(find_slopes(s, way, SLOPE_STEP));
    for (int round = 0, turns = 0, slow = 0; round < SLOPE_ROUNDS && slow < 2; round++) {
        SBP_TRY(follow_slopes(s, &radius, way, &gained));
        const double step = fmin(SLOPE_STEP, radius);
        slow = gained > 0 && gained < LEAST_GAIN + LEAST_SHARE * s->score ? slow + 1 : 0;
        if (gained > 0) {
            turns = 0;
            SBP_TRY(find_slopes(s, way, step));
            continue;
        }
        if (turns > 0 && longest(s, way) == 0)
            break; /* slopes of either side promise nothing */
        turned = false;
        if (turns++ < TURNS)
            SBP_TRY(turn_sides(s, way, step, &turned));
        if (turned)
            continue;
        radius /= 64;
        turns = 0;
        if (radius < LEAST_RADIUS)
            break;
    }
    return SBP_OK;
}

enum sbp_status sbp_least_error_find(const struct sbp_least_error *problem, double *at,
                                     struct sbp_diag *diag)
{
    const int points = problem->points;
    struct sbp_arena arena = {0};
    struct search s = {.problem = problem};
    s.error = SBP_NEW(&arena, double, points);
    s.tried = SBP_NEW(&arena, double, points);
    s.slope = SBP_NEW(&arena, double, (size_t)SBP_LEAST_ERROR_MOST *(size_t)points);
    enum sbp_status status = SBP_OK;
    if (s.error == NULL || s.tried == NULL || s.slope == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    memcpy(s.begin, at, (size_t)problem->coordinates * sizeof *at);
    memcpy(s.at, s.begin, sizeof s.at);
    if (status == SBP_OK)
        status = problem->errors(problem->context, at, s.error);
    if (status == SBP_OK) {
        s.score = score_of(&s, at, s.error);
        status = go_along_axes(&s);
        if (status == SBP_OK)
            status = go_by_slopes(&s);
        memcpy(at, s.at, (size_t)problem->coordinates * sizeof *at);
    }
    sbp_arena_free(&arena);
    return status;
}

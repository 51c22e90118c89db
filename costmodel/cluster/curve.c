#include "costmodel/cluster/curve.h"

#include <assert.h>
#include <math.h>

#include <cjson/cJSON.h>

#include "base/math/portable.h"

#define MOST_MEMBERS (INT64_C(1) << 31)
#define MOST_BYTES   1e18
#define MOST_SECONDS 1e6
#define LEAST_NUMBER 1e-30 /* keeps quotients and logarithms finite */

/* --- reading --- */

static enum sbp_status read_positive(const struct sbp_json *pair, int index, double most,
                                     double *value)
{
    struct sbp_json number;
    SBP_TRY(sbp_json_element(pair, index, &number));
    return sbp_json_double(&number, LEAST_NUMBER, most, value);
}

static enum sbp_status read_point(const struct sbp_json *at, struct sbp_time_point *point)
{
    int length;
    SBP_TRY(sbp_json_length(at, &length));
    if (length != 2)
        return sbp_json_refuse(at, "has %d numbers, expected [bytes, seconds]", length);
    SBP_TRY(read_positive(at, 0, MOST_BYTES, &point->bytes));
    return read_positive(at, 1, MOST_SECONDS, &point->seconds);
}

static enum sbp_status check_rise(const struct sbp_json *at, const struct sbp_time_point *point,
                                  int index)
{
    if (point[0].bytes <= point[-1].bytes)
        return sbp_json_refuse(at, "%g bytes do not follow the %g of points[%d], bytes must rise",
                               point[0].bytes, point[-1].bytes, index - 1);
    if (point[0].seconds < point[-1].seconds)
        return sbp_json_refuse(at,
                               "%g s are less than the %g s of points[%d], a curve must not fall",
                               point[0].seconds, point[-1].seconds, index - 1);
    return SBP_OK;
}

static enum sbp_status read_points(const struct sbp_json *at, struct sbp_curve *curve,
                                   struct sbp_curves *curves)
{
    struct sbp_json list, element;
    SBP_TRY(sbp_json_member(at, "points", &list));
    SBP_TRY(sbp_json_length(&list, &curve->count));
    if (curve->count < 2)
        return sbp_json_refuse(&list, "has %d points, at least 2 are needed", curve->count);
    if (curve->count > SBP_MAX_CURVE_POINTS - curves->point_count)
        return sbp_json_refuse(&list, "more than %d points in all curves of the cluster",
                               SBP_MAX_CURVE_POINTS);
    curve->first = curves->point_count;
    struct sbp_time_point *point = &curves->point[curve->first];
    for (int i = 0; i < curve->count; i++) {
        SBP_TRY(i == 0 ? sbp_json_element(&list, 0, &element) : sbp_json_next(&list, i, &element));
        SBP_TRY(read_point(&element, &point[i]));
        if (i > 0)
            SBP_TRY(check_rise(&element, &point[i], i));
    }
    curves->point_count += curve->count;
    return SBP_OK;
}

static enum sbp_status read_curve(const struct sbp_json *at, const struct sbp_curve *before,
                                  struct sbp_curve *curve, struct sbp_curves *curves)
{
    static const char *const KEYS[] = {"members", "points", "source", NULL};
    struct sbp_json member;
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "members", &member));
    SBP_TRY(sbp_json_int64(&member, 2, MOST_MEMBERS, &curve->members));
    if (before != NULL && curve->members <= before->members)
        return sbp_json_refuse(&member, "%lld do not follow %lld, members must rise",
                               (long long)curve->members, (long long)before->members);
    return read_points(at, curve, curves);
}

static enum sbp_status read_kind(const struct sbp_json *at, int level, enum sbp_collective kind,
                                 struct sbp_curves *curves)
{
    struct sbp_json list, element;
    int count;
    SBP_TRY(sbp_json_member(at, sbp_collective_name(kind), &list));
    SBP_TRY(sbp_json_length(&list, &count));
    if (count == 0)
        return sbp_json_refuse(&list, "is empty: give a curve, or leave the key out");
    for (int i = 0; i < count; i++) {
        if (curves->curve_count == SBP_MAX_CURVES)
            return sbp_json_refuse(&list, "more than %d curves in the cluster", SBP_MAX_CURVES);
        struct sbp_curve *curve = &curves->curve[curves->curve_count];
        *curve = (struct sbp_curve){.kind = kind, .level = level};
        SBP_TRY(sbp_json_element(&list, i, &element));
        SBP_TRY(read_curve(&element, i == 0 ? NULL : curve - 1, curve, curves));
        curves->curve_count++;
    }
    return SBP_OK;
}

enum sbp_status sbp_curves_read(const struct sbp_json *at, int level, struct sbp_curves *curves)
{
    unsigned kinds;
    SBP_TRY(sbp_collectives_given(at, &kinds));
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        if ((kinds >> kind & 1) != 0)
            SBP_TRY(read_kind(at, level, (enum sbp_collective)kind, curves));
    return SBP_OK;
}

/* --- seconds --- */

bool sbp_curves_has(const struct sbp_curves *curves, int level, enum sbp_collective kind)
{
    for (int i = 0; i < curves->curve_count; i++)
        if (curves->curve[i].level == level && curves->curve[i].kind == kind)
            return true;
    return false;
}

/* The line by alpha and beta, where nothing was measured. */
struct line {
    double alpha_s, beta_s_per_byte;
};

static double line_s(const struct line *line, enum sbp_collective kind, double members,
                     double bytes)
{
    return sbp_collective_steps(kind, members) * line->alpha_s +
           sbp_collective_share(kind, members) * bytes * line->beta_s_per_byte;
}

/* One curve at its own group size. */
static double measured_s(const struct sbp_curves *curves, const struct sbp_curve *curve,
                         const struct line *line, double bytes)
{
    const struct sbp_time_point *point = &curves->point[curve->first];
    if (bytes <= point[0].bytes) {
        const double members = (double)curve->members;
        const double whole = line_s(line, curve->kind, members, point[0].bytes);
        const double part = line_s(line, curve->kind, members, bytes);
        return whole > 0 ? point[0].seconds * (part / whole) : point[0].seconds;
    }
    int next = 1; /* the first point that is not below, or the last */
    while (next + 1 < curve->count && point[next].bytes < bytes)
        next++;
    const struct sbp_time_point *a = &point[next - 1], *b = &point[next];
    if (bytes > b->bytes)
        return b->seconds +
               (bytes - b->bytes) * ((b->seconds - a->seconds) / (b->bytes - a->bytes));
    return a->seconds * sbp_pow(b->seconds / a->seconds,
                                sbp_log(bytes / a->bytes) / sbp_log(b->bytes / a->bytes));
}

/* Seconds of another group size: as many steps as it takes, each with as many bytes. */
static double scaled_s(const struct sbp_curves *curves, const struct sbp_curve *curve,
                       const struct line *line, double members, double bytes)
{
    const double own = (double)curve->members;
    if (own == members)
        return measured_s(curves, curve, line, bytes);
    const double steps = sbp_collective_steps(curve->kind, members);
    const double own_steps = sbp_collective_steps(curve->kind, own);
    const double a_step = sbp_collective_share(curve->kind, members) / steps;
    const double own_a_step = sbp_collective_share(curve->kind, own) / own_steps;
    return steps / own_steps * measured_s(curves, curve, line, bytes * (a_step / own_a_step));
}

double sbp_curves_s(const struct sbp_curves *curves, int level, enum sbp_collective kind,
                    double alpha_s, double beta_s_per_byte, double members, double bytes)
{
    const struct line line = {alpha_s, beta_s_per_byte};
    const struct sbp_curve *below = NULL, *above = NULL; /* nearest in members */
    for (int i = 0; i < curves->curve_count; i++) {
        const struct sbp_curve *curve = &curves->curve[i];
        if (curve->level != level || curve->kind != kind)
            continue;
        if ((double)curve->members <= members)
            below = curve;
        else if (above == NULL)
            above = curve;
    }
    assert(below != NULL || above != NULL);
    if (below == NULL || above == NULL || (double)below->members == members)
        return scaled_s(curves, below != NULL ? below : above, &line, members, bytes);
    const double weight = sbp_log(members / (double)below->members) /
                          sbp_log((double)above->members / (double)below->members);
    return sbp_pow(scaled_s(curves, below, &line, members, bytes), 1 - weight) *
           sbp_pow(scaled_s(curves, above, &line, members, bytes), weight);
}

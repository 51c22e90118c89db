#include "costmodel/cluster/network.h"

#include <cjson/cJSON.h>

#define MOST_MEMBERS  (INT64_C(1) << 31)
#define MOST_BYTES    1e18
#define MOST_SECONDS  1e6
#define LEAST_SECONDS 1e-15 /* keeps quotients and logarithms finite */
#define MOST_ERROR    1e3
#define ROUNDING      1e-4 /* share by which numbers rounded to a few digits may fall */

static enum sbp_status read_number(const struct sbp_json *at, const char *key, double least,
                                   double most, double *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, key, &member));
    return sbp_json_double(&member, least, most, value);
}

static enum sbp_status read_segment(const struct sbp_json *at, struct sbp_segment *segment)
{
    static const char *const KEYS[] = {"first_bytes", "last_bytes", "alpha_s", "beta_s_per_byte",
                                       NULL};
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(read_number(at, "first_bytes", 0, MOST_BYTES, &segment->first_bytes));
    SBP_TRY(read_number(at, "last_bytes", 0, MOST_BYTES, &segment->last_bytes));
    SBP_TRY(read_number(at, "alpha_s", 0, MOST_SECONDS, &segment->alpha_s));
    SBP_TRY(read_number(at, "beta_s_per_byte", 0, MOST_SECONDS, &segment->beta_s_per_byte));
    if (segment->last_bytes < segment->first_bytes)
        return sbp_json_refuse(at, "ends at %g bytes, before it begins at %g", segment->last_bytes,
                               segment->first_bytes);
    if (segment->alpha_s + segment->beta_s_per_byte * segment->first_bytes < LEAST_SECONDS)
        return sbp_json_refuse(at, "takes no time at %g bytes", segment->first_bytes);
    return SBP_OK;
}

static enum sbp_status check_follows(const struct sbp_json *at, const struct sbp_segment *segment)
{
    const struct sbp_segment *before = segment - 1;
    const double end_s = before->alpha_s + before->beta_s_per_byte * before->last_bytes;
    const double start_s = segment->alpha_s + segment->beta_s_per_byte * segment->first_bytes;
    if (segment->first_bytes <= before->last_bytes)
        return sbp_json_refuse(at,
                               "begins at %g bytes, inside the segment before, which ends at %g",
                               segment->first_bytes, before->last_bytes);
    if (start_s < end_s * (1 - ROUNDING))
        return sbp_json_refuse(at,
                               "begins with %g s, less than the %g s at which the segment "
                               "before ends: a curve must not fall",
                               start_s, end_s);
    return SBP_OK;
}

static enum sbp_status read_segments(const struct sbp_json *at, struct sbp_shape_curve *curve)
{
    struct sbp_json list, element;
    SBP_TRY(sbp_json_member(at, "segments", &list));
    SBP_TRY(sbp_json_length(&list, &curve->segment_count));
    if (curve->segment_count < 1 || curve->segment_count > SBP_NETWORK_SEGMENTS)
        return sbp_json_refuse(&list, "has %d segments, legal are 1 to %d", curve->segment_count,
                               SBP_NETWORK_SEGMENTS);
    for (int i = 0; i < curve->segment_count; i++) {
        SBP_TRY(sbp_json_element(&list, i, &element));
        SBP_TRY(read_segment(&element, &curve->segment[i]));
        if (i > 0)
            SBP_TRY(check_follows(&element, &curve->segment[i]));
    }
    return SBP_OK;
}

static enum sbp_status check_new(const struct sbp_json *at, const struct sbp_network *network,
                                 const struct sbp_shape_curve *curve)
{
    if (curve->nodes * curve->ranks_per_node < 2)
        return sbp_json_refuse(at, "is a group of one");
    for (const struct sbp_shape_curve *other = network->curve; other < curve; other++)
        if (other->kind == curve->kind && other->nodes == curve->nodes &&
            other->ranks_per_node == curve->ranks_per_node)
            return sbp_json_refuse(at, "%lld x %lld has a curve already", (long long)curve->nodes,
                                   (long long)curve->ranks_per_node);
    return SBP_OK;
}

static enum sbp_status read_curve(const struct sbp_json *at, const struct sbp_network *network,
                                  struct sbp_shape_curve *curve)
{
    static const char *const KEYS[] = {"nodes",  "ranks_per_node", "segments", "error",
                                       "points", "source",         NULL};
    struct sbp_json member;
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "nodes", &member));
    SBP_TRY(sbp_json_int64(&member, 1, MOST_MEMBERS, &curve->nodes));
    SBP_TRY(sbp_json_member(at, "ranks_per_node", &member));
    SBP_TRY(sbp_json_int64(&member, 1, MOST_MEMBERS, &curve->ranks_per_node));
    SBP_TRY(sbp_json_get_double(at, "error", 0, MOST_ERROR, &curve->error));
    SBP_TRY(check_new(at, network, curve));
    return read_segments(at, curve);
}

static enum sbp_status read_curves(const struct sbp_json *at, enum sbp_collective kind,
                                   struct sbp_network *network)
{
    struct sbp_json list, element;
    int count;
    if (!sbp_json_has(at, "curves"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(at, "curves", &list));
    SBP_TRY(sbp_json_length(&list, &count));
    for (int i = 0; i < count; i++) {
        if (network->curve_count == SBP_NETWORK_CURVES)
            return sbp_json_refuse(&list, "more than %d curves in the cluster", SBP_NETWORK_CURVES);
        struct sbp_shape_curve *curve = &network->curve[network->curve_count];
        *curve = (struct sbp_shape_curve){.kind = kind};
        SBP_TRY(i == 0 ? sbp_json_element(&list, 0, &element) : sbp_json_next(&list, i, &element));
        SBP_TRY(read_curve(&element, network, curve));
        network->curve_count++;
    }
    return SBP_OK;
}

static enum sbp_status read_formula(const struct sbp_json *at, struct sbp_formula *formula)
{
    static const char *const KEYS[] = {"launch_s",         "intra_step_s",     "inter_step_s",
                                       "intra_s_per_byte", "inter_s_per_byte", "error",
                                       "beyond_error",     "source",           NULL};
    struct sbp_json member;
    double sum = 0;
    SBP_TRY(sbp_json_member(at, "formula", &member));
    SBP_TRY(sbp_json_keys(&member, KEYS));
    for (int i = 0; i < SBP_NETWORK_TERMS; i++) {
        SBP_TRY(read_number(&member, KEYS[i], 0, MOST_SECONDS, &formula->coefficient[i]));
        sum += formula->coefficient[i];
    }
    if (!(sum > 0))
        return sbp_json_refuse(&member, "has no term above 0");
    formula->is_given = true;
    SBP_TRY(sbp_json_get_double(&member, "error", 0, MOST_ERROR, &formula->error));
    formula->beyond_error = formula->error;
    return sbp_json_get_double(&member, "beyond_error", 0, MOST_ERROR, &formula->beyond_error);
}

static enum sbp_status read_kind(const struct sbp_json *at, enum sbp_collective kind,
                                 struct sbp_network *network)
{
    static const char *const KEYS[] = {"formula", "curves", "source", NULL};
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, sbp_collective_name(kind), &member));
    SBP_TRY(sbp_json_keys(&member, KEYS));
    SBP_TRY(read_formula(&member, &network->formula[kind]));
    return read_curves(&member, kind, network);
}

enum sbp_status sbp_network_read(const struct sbp_json *at, struct sbp_network *network)
{
    unsigned kinds;
    SBP_TRY(sbp_collectives_given(at, &kinds));
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        if ((kinds >> kind & 1) != 0)
            SBP_TRY(read_kind(at, (enum sbp_collective)kind, network));
    return SBP_OK;
}

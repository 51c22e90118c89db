#include "calib/fit/ports.h"

#include <math.h>
#include <stdlib.h>

#include "base/stats.h"

#define LARGE 0.125 /* of the largest size */

/* What is told of ports: neighbouring nodes, one member on each. */
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

/* The same collective of the same source by one group of a node alone; NULL: not measured. */
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

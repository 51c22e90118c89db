#include "calib/fit/shapes.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/math/stats.h"

static int compare(double a, double b)
{
    return (a > b) - (a < b);
}

static int compare_shapes(const struct sbp_measured_point *a, const struct sbp_measured_point *b)
{
    if (a->kind != b->kind)
        return (int)a->kind - (int)b->kind;
    if (a->ranks_per_node != b->ranks_per_node)
        return compare(a->ranks_per_node, b->ranks_per_node);
    return compare(a->nodes, b->nodes);
}

/* A number that is not said counts as one group by itself. */
static int groups_of(const struct sbp_measured_point *point)
{
    return point->groups > 1 ? point->groups : 1;
}

static int compare_points(const void *left, const void *right)
{
    const struct sbp_measured_point *a = left, *b = right;
    const int shapes = compare_shapes(a, b);
    if (shapes != 0)
        return shapes;
    if (groups_of(a) != groups_of(b))
        return compare(groups_of(a), groups_of(b));
    return a->bytes != b->bytes ? compare(a->bytes, b->bytes) : compare(a->time_s, b->time_s);
}

/* Makes samples of the sorted points of one shape; sorted times have their median in the middle. */
static void take_samples(const struct sbp_measured_point *point, int count,
                         struct sbp_measured_group *shape)
{
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && point[end].bytes == point[i].bytes;)
            end++;
        shape->sample[shape->count++] = (struct sbp_curve_sample){
            point[i].bytes, (point[(i + end - 1) / 2].time_s + point[(i + end) / 2].time_s) / 2};
    }
}

static int count_tables(const struct sbp_measured_point *point, int count)
{
    int tables = 0;
    for (int i = 0; i < count; i++) {
        bool is_first = true;
        for (int j = 0; j < i && is_first; j++)
            is_first = point[j].source != point[i].source;
        tables += is_first;
    }
    return tables;
}

static enum sbp_status take_shape(const struct sbp_measured_point *point, int count,
                                  struct sbp_arena *arena, struct sbp_measured_groups *shapes,
                                  struct sbp_diag *diag)
{
    struct sbp_measured_group shape = {.kind = point->kind,
                                       .nodes = point->nodes,
                                       .ranks_per_node = point->ranks_per_node,
                                       .sample = SBP_NEW(arena, struct sbp_curve_sample, count),
                                       .points = count,
                                       .tables = count_tables(point, count)};
    if (shape.sample == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", count);
    take_samples(point, count, &shape);
    if (shape.count > SBP_MOST_CURVE_SAMPLES)
        return sbp_fail(diag, SBP_E_INPUT, "more than %d sizes of one group: fit fewer logs",
                        SBP_MOST_CURVE_SAMPLES);
    if (shape.count < SBP_LEAST_SHAPE_SIZES) {
        shapes->few[shapes->few_count++] = shape;
        return SBP_OK;
    }
    shapes->shape[shapes->count++] = shape;
    return SBP_OK;
}

/* --- more than a cluster file holds --- */

static int place_of(const struct sbp_measured_group *shape, bool by_nodes)
{
    return by_nodes ? shape->nodes : shape->ranks_per_node;
}

/* Finds the number of nodes (or ranks a node) whose neighbours are the smallest factor apart; of
 * several the largest, but never the least or the most. 0: there is none. */
static int densest(const struct sbp_measured_groups *shapes, bool by_nodes)
{
    double least = INFINITY;
    int found = 0;
    for (int s = 0; s < shapes->count; s++) {
        const int own = place_of(&shapes->shape[s], by_nodes);
        int below = 0, above = INT_MAX;
        for (int other = 0; other < shapes->count; other++) {
            const int place = place_of(&shapes->shape[other], by_nodes);
            if (place < own && place > below)
                below = place;
            if (place > own && place < above)
                above = place;
        }
        const double apart = below > 0 && above < INT_MAX ? (double)above / below : INFINITY;
        if (apart < least || (apart == least && own > found)) {
            least = apart;
            found = apart < INFINITY ? own : 0;
        }
    }
    return found;
}

static void leave_out(struct sbp_measured_groups *shapes, bool by_nodes, int place)
{
    int kept = 0;
    for (int s = 0; s < shapes->count; s++) {
        if (place_of(&shapes->shape[s], by_nodes) == place)
            shapes->over[shapes->over_count++] = shapes->shape[s];
        else
            shapes->shape[kept++] = shapes->shape[s];
    }
    shapes->count = kept;
}

static enum sbp_status thin_out(struct sbp_measured_groups *shapes, struct sbp_arena *arena,
                                struct sbp_diag *diag)
{
    shapes->over = SBP_NEW(arena, struct sbp_measured_group, shapes->count);
    if (shapes->over == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d groups", shapes->count);
    for (int by_nodes = 1; by_nodes >= 0; by_nodes--)
        for (int place = 1; shapes->count > SBP_NETWORK_CURVES && place > 0;) {
            place = densest(shapes, by_nodes == 1);
            if (place > 0)
                leave_out(shapes, by_nodes == 1, place);
        }
    return SBP_OK;
}

static enum sbp_status find_noise(const struct sbp_measured *measured, struct sbp_arena *arena,
                                  struct sbp_measured_groups *shapes, struct sbp_diag *diag)
{
    double *spread = SBP_NEW(arena, double, measured->count);
    int count = 0;
    if (spread == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", measured->count);
    for (int i = 0; i < measured->count; i++)
        if (measured->point[i].spread > 0)
            spread[count++] = measured->point[i].spread;
    shapes->noise = count > 0 ? sbp_median(spread, count) : 0;
    return SBP_OK;
}

enum sbp_status sbp_shapes_group(const struct sbp_measured *measured, struct sbp_arena *arena,
                                 struct sbp_measured_groups *shapes, struct sbp_diag *diag)
{
    const int count = measured->count;
    struct sbp_measured_point *point = SBP_NEW(arena, struct sbp_measured_point, count);
    *shapes =
        (struct sbp_measured_groups){.shape = SBP_NEW(arena, struct sbp_measured_group, count),
                                     .few = SBP_NEW(arena, struct sbp_measured_group, count)};
    if (point == NULL || shapes->shape == NULL || shapes->few == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", count);
    for (int i = 0; i < count; i++)
        point[i] = measured->point[i];
    qsort(point, (size_t)count, sizeof *point, compare_points);
    for (int i = 0, end; i < count; i = end) {
        int alone = 0; /* points of the fewest groups at a time */
        for (end = i; end < count && compare_shapes(&point[i], &point[end]) == 0; end++)
            alone += groups_of(&point[end]) == groups_of(&point[i]);
        SBP_TRY(take_shape(&point[i], alone, arena, shapes, diag));
    }
    if (shapes->count == 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "no collective was measured at %d sizes or more: there is nothing to fit",
                        SBP_LEAST_SHAPE_SIZES);
    SBP_TRY(thin_out(shapes, arena, diag));
    for (int s = 0; s < shapes->count; s++)
        shapes->points += shapes->shape[s].points;
    return find_noise(measured, arena, shapes, diag);
}

int sbp_shapes_samples(const struct sbp_measured_groups *shapes)
{
    int samples = 0;
    for (int s = 0; s < shapes->count; s++)
        samples += shapes->shape[s].count;
    return samples;
}

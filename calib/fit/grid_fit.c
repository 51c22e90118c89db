#include "calib/fit/grid_fit.h"

#include <math.h>

/* --- which sizes --- */

/* Puts a size where it belongs in a rising list, once. */
static void add_size(int64_t *sizes, int *count, int64_t size)
{
    int at = *count;
    while (at > 0 && sizes[at - 1] > size)
        at--;
    if (at > 0 && sizes[at - 1] == size)
        return;
    for (int i = (*count)++; i > at; i--)
        sizes[i] = sizes[i - 1];
    sizes[at] = size;
}

static void list_sizes(const struct sbp_grid_point *points, int count, struct sbp_grid_fit *fit)
{
    for (int axis = 0; axis < SBP_RATE_AXES; axis++) {
        fit->count[axis] = 0;
        for (int i = 0; i < count; i++)
            add_size(fit->size[axis], &fit->count[axis], points[i].size[axis]);
    }
}

static int points_of(const struct sbp_grid_point *points, int count, int axis, int64_t size)
{
    int of = 0;
    for (int i = 0; i < count; i++)
        of += points[i].size[axis] == size;
    return of;
}

static int64_t combinations(const struct sbp_grid_fit *fit)
{
    int64_t all = 1;
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        all *= fit->count[axis];
    return all;
}

/* The size of which the least part of all combinations was timed. */
struct rarest {
    int axis;
    int64_t size;
    double part;
};

static struct rarest find_rarest(const struct sbp_grid_point *points, int count,
                                 const struct sbp_grid_fit *fit)
{
    struct rarest rarest = {.part = 1};
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        for (int i = 0; i < fit->count[axis]; i++) {
            const int64_t size = fit->size[axis][i];
            const double part = (double)points_of(points, count, axis, size) * fit->count[axis] /
                                (double)combinations(fit);
            if (part < rarest.part)
                rarest = (struct rarest){axis, size, part};
        }
    return rarest;
}

/* Sizes go one by one, for the others' parts rise. Returns how many points are left, those first.
 */
static int choose_sizes(struct sbp_grid_point *points, int count, struct sbp_grid_fit *fit)
{
    for (;;) {
        list_sizes(points, count, fit);
        const struct rarest rarest = find_rarest(points, count, fit);
        if (rarest.part * SBP_LEAST_GRID_PARTS >= 1)
            return count;
        int left = 0;
        for (int i = 0; i < count; i++)
            if (points[i].size[rarest.axis] != rarest.size)
                points[left++] = points[i];
        count = left;
    }
}

/* --- rates of all of them --- */

/* Rates are filled in as logarithms; NAN: not known yet. */
struct place {
    int at[SBP_RATE_AXES];
};

static int index_of(const struct sbp_grid_fit *fit, struct place place)
{
    return (place.at[0] * fit->count[1] + place.at[1]) * fit->count[2] + place.at[2];
}

static struct place place_of(const struct sbp_grid_fit *fit, int index)
{
    return (struct place){{index / fit->count[2] / fit->count[1],
                           index / fit->count[2] % fit->count[1], index % fit->count[2]}};
}

/* The rate so many steps away on two axes; NAN outside. */
static double rate_at(const struct sbp_grid_fit *fit, struct place place, int a, int step_a, int b,
                      int step_b)
{
    place.at[a] += step_a;
    place.at[b] += step_b;
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        if (place.at[axis] < 0 || place.at[axis] >= fit->count[axis])
            return NAN;
    return fit->flops[index_of(fit, place)];
}

/* The mean of what neighbours in planes tell; NAN: they are not known. */
static double of_planes(const struct sbp_grid_fit *fit, struct place place)
{
    double sum = 0;
    int known = 0;
    for (int a = 0; a < SBP_RATE_AXES; a++)
        for (int b = 0; b < SBP_RATE_AXES; b++)
            for (int signs = 0; signs < 4 && a < b; signs++) {
                const int step_a = signs & 1 ? 1 : -1, step_b = signs & 2 ? 1 : -1;
                const double rate = rate_at(fit, place, a, step_a, b, 0) +
                                    rate_at(fit, place, a, 0, b, step_b) -
                                    rate_at(fit, place, a, step_a, b, step_b);
                sum += isnan(rate) ? 0 : rate;
                known += !isnan(rate);
            }
    return known > 0 ? sum / known : NAN;
}

/* The mean of all direct neighbours that are known; NAN: none is. */
static double of_neighbours(const struct sbp_grid_fit *fit, struct place place)
{
    double sum = 0;
    int known = 0;
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        for (int step = -1; step <= 1; step += 2) {
            const double rate = rate_at(fit, place, axis, step, axis, 0);
            sum += isnan(rate) ? 0 : rate;
            known += !isnan(rate);
        }
    return known > 0 ? sum / known : NAN;
}

/* Fills in from small sizes to large ones; returns how many are missing still. */
static int fill(struct sbp_grid_fit *fit, double least, double most,
                double (*told)(const struct sbp_grid_fit *, struct place))
{
    const int rates = sbp_grid_fit_rates(fit);
    int missing = 0;
    for (int i = 0; i < rates; i++) {
        if (!isnan(fit->flops[i]))
            continue;
        const double rate = told(fit, place_of(fit, i));
        fit->flops[i] = isnan(rate) ? NAN : fmax(least, fmin(most, rate));
        missing += isnan(rate);
    }
    return missing;
}

static int place_in(const int64_t *sizes, int64_t size)
{
    int at = 0;
    while (sizes[at] != size)
        at++;
    return at;
}

static void fill_all(const struct sbp_grid_point *points, int count, struct sbp_grid_fit *fit)
{
    const int rates = sbp_grid_fit_rates(fit);
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < rates; i++)
        fit->flops[i] = NAN;
    for (int i = 0; i < count; i++) {
        struct place place;
        for (int axis = 0; axis < SBP_RATE_AXES; axis++)
            place.at[axis] = place_in(fit->size[axis], points[i].size[axis]);
        const double rate = log(points[i].flops);
        fit->flops[index_of(fit, place)] = rate;
        least = fmin(least, rate);
        most = fmax(most, rate);
    }
    while (fill(fit, least, most, of_planes) > 0)
        (void)fill(fit, least, most, of_neighbours);
    for (int i = 0; i < rates; i++)
        fit->flops[i] = exp(fit->flops[i]);
}

int sbp_grid_fit_rates(const struct sbp_grid_fit *fit)
{
    return (int)combinations(fit);
}

void sbp_grid_fit(struct sbp_grid_point *points, int count, struct sbp_grid_fit *fit)
{
    *fit = (struct sbp_grid_fit){0};
    count = choose_sizes(points, count, fit);
    fit->timed = count;
    if (count > 0)
        fill_all(points, count, fit);
}

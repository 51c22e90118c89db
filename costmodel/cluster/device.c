#include "costmodel/cluster/device.h"

#include <assert.h>
#include <math.h>

#include "base/math/portable.h"

const char *sbp_device_pass_name(enum sbp_pass pass)
{
    static const char *const NAMES[SBP_PASSES] = {[SBP_PASS_FORWARD] = "forward",
                                                  [SBP_PASS_INPUT_GRADIENT] = "input_gradient",
                                                  [SBP_PASS_WEIGHT_GRADIENT] = "weight_gradient"};
    assert((unsigned)pass < SBP_PASSES);
    return NAMES[pass];
}

/* --- which table --- */

static bool is_half(int type)
{
    return type == SBP_BF16 || type == SBP_FP16;
}

/* How well a table speaks of a type and a pass; more is better, and a type weighs more than a pass.
 */
#define OF_ANY_TYPE 3 /* the least fit of a table that is not of quite another type */
static int fit_of(const struct sbp_rate_scope *scope, enum sbp_type type, enum sbp_pass pass)
{
    const int by_type = scope->type == (int)type                     ? 3
                        : is_half(scope->type) && is_half((int)type) ? 2
                        : scope->type < 0                            ? 1
                                                                     : 0;
    const int by_pass = scope->pass == (int)pass ? 2 : scope->pass < 0 ? 1 : 0;
    return OF_ANY_TYPE * by_type + by_pass;
}

static const struct sbp_rate_grid *best_grid(const struct sbp_rate_grid *grids, int count,
                                             enum sbp_type type, enum sbp_pass pass, int *fit)
{
    const struct sbp_rate_grid *best = NULL;
    *fit = -1;
    for (int i = 0; i < count; i++) {
        const int own = fit_of(&grids[i].scope, type, pass);
        if (own > *fit && own >= OF_ANY_TYPE) {
            *fit = own;
            best = &grids[i];
        }
    }
    return best;
}

/* --- on a grid --- */

/* The cell of an axis that holds a size, and where in it: 0 at its lower end, 1 at its upper. */
struct place {
    int cell;
    double within;
};

static struct place place_of(const double *log_size, int count, double log_x)
{
    int low = 0, high = count - 1;
    if (count == 1)
        return (struct place){0, 0};
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        *(log_size[middle] <= log_x ? &low : &high) = middle;
    }
    const double within = (log_x - log_size[low]) / (log_size[high] - log_size[low]);
    return (struct place){low, fmin(1, fmax(0, within))};
}

/* The mean of a cell's corners, weighted by place. */
static double corners_mean(const struct sbp_rate_grid *grid,
                           const struct place place[SBP_RATE_AXES])
{
    double sum = 0;
    for (int corner = 0; corner < 1 << SBP_RATE_AXES; corner++) {
        double weight = 1;
        size_t at = 0;
        for (int axis = 0; axis < SBP_RATE_AXES; axis++) {
            const int upper = corner >> axis & 1;
            weight *= upper ? place[axis].within : 1 - place[axis].within;
            at = at * (size_t)grid->count[axis] + (size_t)(place[axis].cell + upper);
        }
        if (weight > 0) /* an axis of one size has no upper end */
            sum += weight * grid->log_share[at];
    }
    return sum;
}

static double grid_share(const struct sbp_rate_grid *grid, const double size[SBP_RATE_AXES])
{
    struct place place[SBP_RATE_AXES];
    double below = 0; /* ln of how much smaller the work is than what the grid begins with */
    for (int axis = 0; axis < SBP_RATE_AXES; axis++) {
        const double log_x = sbp_log(size[axis]);
        place[axis] = place_of(grid->log_size[axis], grid->count[axis], log_x);
        if (grid->count[axis] > 1)
            below += fmin(0, log_x - grid->log_size[axis][0]);
    }
    return fmax(SBP_DEVICE_LEAST_SHARE, sbp_exp(corners_mean(grid, place) + below));
}

/* --- among scattered shapes --- */

/* Shepard's interpolation with power 2; shapes differ by factors, so distances are logarithmic. */
static double scattered_share(const struct sbp_device_rates *rates,
                              const struct sbp_device_product *product, int fit)
{
    double weights = 0, sum = 0;
    for (int i = 0; i < rates->efficiency_count; i++) {
        const struct sbp_efficiency *entry = &rates->efficiency[i];
        if (fit_of(&entry->scope, product->type, product->pass) != fit)
            continue;
        const double dm = sbp_log(product->m / (double)entry->m);
        const double dn = sbp_log(product->n / (double)entry->n);
        const double dk = sbp_log(product->k / (double)entry->k);
        const double squared = dm * dm + dn * dn + dk * dk;
        if (squared < 1e-18)
            return entry->share;
        weights += 1 / squared;
        sum += entry->share / squared;
    }
    return sum / weights;
}

/* The best fit of a scattered shape; -1: there is none. */
static int scattered_fit_of(const struct sbp_device_rates *rates, enum sbp_type type,
                            enum sbp_pass pass)
{
    int best = -1;
    for (int i = 0; i < rates->efficiency_count; i++) {
        const int fit = fit_of(&rates->efficiency[i].scope, type, pass);
        best = fit > best ? fit : best;
    }
    return best;
}

static double table_share(const struct sbp_device_rates *rates,
                          const struct sbp_device_product *product)
{
    int grid_fit;
    const struct sbp_rate_grid *grid =
        best_grid(rates->grid, rates->grid_count, product->type, product->pass, &grid_fit);
    const int scattered_fit = scattered_fit_of(rates, product->type, product->pass);
    if (grid != NULL && grid_fit >= scattered_fit)
        return grid_share(grid, (const double[]){product->m, product->n, product->k});
    return scattered_fit < 0 ? 1 : scattered_share(rates, product, scattered_fit);
}

/* --- factors --- */

static double alignment_share(const struct sbp_device_rates *rates, double a, double b)
{
    const double multiple = rates->alignment.multiple;
    if (!(multiple > 0) || (!(fmod(a, multiple) > 0) && !(fmod(b, multiple) > 0)))
        return 1;
    return rates->alignment.share;
}

double sbp_device_product_share(const struct sbp_device_rates *rates,
                                const struct sbp_device_product *product)
{
    const bool weights = product->pass == SBP_PASS_WEIGHT_GRADIENT;
    double share = table_share(rates, product);
    share *= alignment_share(rates, product->n, weights ? product->m : product->k);
    share *= sbp_device_factor(rates->pass_share[product->pass]);
    if (product->grouped)
        share *= sbp_device_factor(rates->grouped_share[product->pass]);
    return share * sbp_device_factor(rates->sustained[product->type]);
}

double sbp_device_attention_share(const struct sbp_device_rates *rates,
                                  const struct sbp_device_attention *attention)
{
    int fit;
    const struct sbp_rate_grid *grid =
        best_grid(rates->attention, rates->attention_count, attention->type, attention->pass, &fit);
    const double sizes[] = {attention->head_size, attention->sequence, attention->rows};
    const double share = grid == NULL ? 1 : grid_share(grid, sizes);
    return share * alignment_share(rates, attention->head_size, attention->head_size) *
           sbp_device_factor(rates->attention_share) *
           sbp_device_factor(rates->sustained[attention->type]);
}

double sbp_device_dispatch_share(const struct sbp_device_rates *rates, double row_bytes)
{
    const double sizes[] = {row_bytes, 1, 1};
    if (rates->dispatch == NULL)
        return 0;
    return grid_share(rates->dispatch, sizes) * sbp_device_factor(rates->dispatch_share);
}

#define SOFTMAX_PER_SCORE 6
double sbp_device_score_flops(enum sbp_pass pass, double qk_size, double value_size, bool flash)
{
    const double qk = 2 * qk_size, value = 2 * value_size;
    const double products =
        pass == SBP_PASS_FORWARD ? qk + value : 2 * (qk + value) + (flash ? qk : 0);
    return products + SOFTMAX_PER_SCORE;
}

/* --- bounds --- */

/* Interpolation stays within its table, but for rounding. */
#define ROUNDING 1e-9

static double most_of_grid(const struct sbp_rate_grid *grid)
{
    const int64_t points = sbp_device_rate_points(grid, 1);
    double most = grid->log_share[0];
    for (int64_t i = 1; i < points; i++)
        most = fmax(most, grid->log_share[i]);
    return fmin(1, sbp_exp(most) * (1 + ROUNDING));
}

double sbp_device_most_product_share(const struct sbp_device_rates *rates, enum sbp_type type,
                                     enum sbp_pass pass)
{
    int grid_fit;
    const struct sbp_rate_grid *grid =
        best_grid(rates->grid, rates->grid_count, type, pass, &grid_fit);
    const int scattered_fit = scattered_fit_of(rates, type, pass);
    double most = scattered_fit < 0 ? 1 : 0;
    if (grid != NULL && grid_fit >= scattered_fit)
        most = most_of_grid(grid);
    else
        for (int i = 0; i < rates->efficiency_count; i++)
            if (fit_of(&rates->efficiency[i].scope, type, pass) == scattered_fit)
                most = fmin(1, fmax(most, rates->efficiency[i].share * (1 + ROUNDING)));
    return most * sbp_device_factor(rates->pass_share[pass]) *
           sbp_device_factor(rates->sustained[type]);
}

double sbp_device_most_attention_share(const struct sbp_device_rates *rates, enum sbp_type type,
                                       enum sbp_pass pass)
{
    int fit;
    const struct sbp_rate_grid *grid =
        best_grid(rates->attention, rates->attention_count, type, pass, &fit);
    return (grid == NULL ? 1 : most_of_grid(grid)) * sbp_device_factor(rates->attention_share) *
           sbp_device_factor(rates->sustained[type]);
}

int64_t sbp_device_rate_points(const struct sbp_rate_grid *grids, int count)
{
    int64_t points = 0;
    for (int i = 0; i < count; i++)
        points += (int64_t)grids[i].count[0] * grids[i].count[1] * grids[i].count[2];
    return points;
}

/* What no strategy of a space can beat, without a look at pairs: the least cost of every variable
 * by itself, and what memory adds to that.
 *
 * Under a capacity every byte has a price (Lagrange): cost plus price times bytes, less price times
 * capacity, is never above the cost of a choice that fits. The prices are those that lift the bound
 * most, near enough; any prices bound.
 */
#ifndef SBP_PLANNER_BOUNDS_LAGRANGIAN_H
#define SBP_PLANNER_BOUNDS_LAGRANGIAN_H

#include "planner/space/space.h"

struct sbp_lagrangian_bound {
    double bound_s;     /* INFINITY: no choice fits by the memory model */
    double time_s;      /* without a capacity */
    double least_bytes; /* of the fullest point, by the model, with no reserve */
    double *price;      /* (points) seconds a byte; 0 where the bound is time_s */
};

/* capacity_bytes: of the memory model; INFINITY: none. Prices come out of the arena. E_MEMORY. */
enum sbp_status sbp_lagrangian_bound(const struct sbp_space *space, double capacity_bytes,
                                     struct sbp_arena *arena,
                                     struct sbp_lagrangian_bound *bound) SBP_MUST_USE;

/* Some of a space's choices, each of which may have costs of its tuple besides its own. */
struct sbp_priced {
    const struct sbp_space *space;
    double capacity_bytes;
    int *count;      /* (variable_count) choices that are looked at */
    int **choice;    /* (variable_count) which */
    double **beside; /* (variable_count)(tuple) */
    double *price;   /* (points), raised and lowered */
    double *used;    /* (points) scratch */
};
/* Sets the prices, starting from those that there are, to what lifts the sum of the variables'
 * least priced costs most, near enough; returns that sum, what no choice changes included. */
double sbp_lagrangian_set_prices(const struct sbp_priced *priced);

#endif

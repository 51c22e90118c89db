/* Computes a lower bound of the cost of all strategies that fit in memory. Input: a priced space
 * and a capacity in bytes. Output: seconds, the least bytes needed, and a price for a byte on each
 * memory stage.
 *
 * The bound ignores the costs of edges: it adds up the least cost of each variable. The capacity
 * enters by a price for every byte (a Lagrange multiplier): cost plus price times bytes, less price
 * times capacity, never exceeds the cost of a choice that fits. So any prices give a bound. The
 * module looks for prices that make the bound nearly as high as it can be.
 */
#ifndef SBP_PLANNER_BOUNDS_LAGRANGIAN_H
#define SBP_PLANNER_BOUNDS_LAGRANGIAN_H

#include "planner/space/space.h"

struct sbp_lagrangian_bound {
    double bound_s;     /* INFINITY: no choice fits by the memory model */
    double time_s;      /* without a capacity */
    double least_bytes; /* that the fullest memory stage needs by the model, with no reserve */
    double *price;      /* (memory stages) seconds a byte; 0 where the bound is time_s */
};

/* capacity_bytes: of the memory model; INFINITY: none. Prices come out of the arena. E_MEMORY. */
enum sbp_status sbp_lagrangian_bound(const struct sbp_space *space, double capacity_bytes,
                                     struct sbp_arena *arena,
                                     struct sbp_lagrangian_bound *bound) SBP_MUST_USE;

/* Some choices of a space, whose tuples may cost more than the space says. */
struct sbp_priced {
    const struct sbp_space *space;
    double capacity_bytes;
    int *count;      /* (variable_count) choices that are looked at */
    int **choice;    /* (variable_count)(count) which */
    double **beside; /* (variable_count)(tuple) additional seconds */
    double *price;   /* (memory stages), raised and lowered */
    double *used;    /* (memory stages) scratch */
};
/* Moves the prices, from those that it finds, to ones that raise the sum of the variables' least
 * priced costs most, nearly; returns that sum with the constant costs. */
double sbp_lagrangian_set_prices(const struct sbp_priced *priced);

#endif

/* How long the runs of consecutive global indices are in a local block.
 *
 * Kernels that need global indices ask for one index a run and count from there, so that the
 * digit rule is evaluated once a run instead of once an element.
 */
#ifndef SBP_KERNELS_CPU_RUNS_PRIV_H
#define SBP_KERNELS_CPU_RUNS_PRIV_H

#include "base/math/digits.h"

/* Local indices k * run .. k * run + run - 1 have consecutive global indices, for every k; the run
 * divides the local size. */
int64_t sbp_cpu_digits_run(const struct sbp_digits *digits);
int64_t sbp_cpu_region_run(const struct sbp_region *region);

#endif

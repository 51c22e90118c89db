/* The cheapest list of collectives by a shortest path over the distributions of a tensor.
 *
 * Every axis is in B, in P, or splits one of the dimensions that the layout gives it a digit of. A
 * step is one collective over any set of axes that change alike (P to splits, P to B, splits to B,
 * splits to other splits), or a free local change of one axis (B to a split, B or a split to P).
 * Prices need only be non-negative: this serves clusters whose curves or levels defeat
 * costmodel/layout/boxing_cut.h, on small meshes alone.
 */
#ifndef SBP_COSTMODEL_LAYOUT_BOXING_STEPS_PRIV_H
#define SBP_COSTMODEL_LAYOUT_BOXING_STEPS_PRIV_H

#include "costmodel/layout/boxing.h"

/* Most distributions that are searched: four axes in five states each. */
#define SBP_MOST_STEP_NODES 1024

/* Looks for a list that costs less than most_s; *found is false where there is none, or more than
 * so many distributions. Among paths of equal cost a shortest list counts. from != to, and both
 * have digits. E_MEMORY, with no text. */
enum sbp_status sbp_boxing_steps(const struct sbp_cluster *cluster, const struct sbp_layout *layout,
                                 const struct sbp_shape *shape, double element_bytes,
                                 const struct sbp_dist *from, const struct sbp_dist *to,
                                 double most_s, struct sbp_boxing *boxing,
                                 bool *found) SBP_MUST_USE;

#endif

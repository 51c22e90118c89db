/* The cheapest list of collectives by a shortest path over the distributions of a tensor.
 *
 * Every axis is in B, in P, or splits one of the dimensions that the layout gives it a digit of; a
 * step is one collective over any set of axes that change alike (P to splits, P to B, splits to B,
 * splits to other splits), or a local change of one axis (B to a split, B or a split to P), which
 * is free. Nothing is taken for granted about prices but that they are not negative: for clusters
 * whose curves or levels defeat costmodel/layout/boxing_cut.h, and small tensors' meshes only.
 * Internal to costmodel/layout/boxing_path.h.
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

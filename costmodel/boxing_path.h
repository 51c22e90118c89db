/* The cheapest list of collectives between two distributions (`boxing=path`).
 *
 * A shortest path over the distributions of a tensor. Every axis is in B, in P, or splits one of
 * the dimensions that the layout gives it a digit of; a step is one collective over any set of axes
 * that change alike (P to splits, P to B, splits to B, splits to other splits), or a local change
 * of one axis (B to a split, B or a split to P), which is free. Collectives are priced as
 * sbp_collective_s does. So a path may cut a collective by axes (with alpha > 0 a ring over 2^k
 * members costs 2^k - 1 alphas, k rings over pairs cost k), slice early, and use axes that look the
 * same before and after: a gradient that all devices of a node hold whole is all-reduced between
 * nodes a slice a device.
 *
 * Among paths of equal cost the shortest list counts, and the normal form before any other. What is
 * returned never costs more than the normal form, and exists wherever the distributions do.
 */
#ifndef SBP_COSTMODEL_BOXING_PATH_H
#define SBP_COSTMODEL_BOXING_PATH_H

#include "costmodel/boxing.h"

/* Most axes that a path may change; there are up to 6^6 distributions of so many. On a mesh with
 * more, paths change only axes that differ between the two distributions; where more than so many
 * differ, the answer is the normal form. */
#define SBP_MAX_PATH_AXES 6

/* element_bytes > 0. E_INPUT: a distribution that the layout has no digits for, or, with too many
 * axes, no normal form; E_MEMORY. */
enum sbp_status sbp_boxing_path(const struct sbp_cluster *cluster, const struct sbp_layout *layout,
                                const struct sbp_shape *shape, double element_bytes,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                struct sbp_boxing *boxing, struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* The formula across group shapes (costmodel/cluster/network.h): its five coefficients for each
 * kind of collective by least absolute relative deviations over all measured shapes, and the same
 * over all kinds together as alpha and beta of the levels, for kinds that were not measured.
 *
 * All-reduces of two nodes are set aside where larger ones were measured. A coefficient that the
 * shapes cannot tell from others is 0: where no group within a node was measured, nothing is said
 * of groups within nodes.
 */
#ifndef SBP_CALIB_FIT_TIER_FIT_H
#define SBP_CALIB_FIT_TIER_FIT_H

#include "calib/fit/shapes.h"

#define SBP_NO_SHAPE (-1)

/* network: its curves say which shapes are set aside, its ports count; its formulas are not read.
 * Left out is the shape of this place, or SBP_NO_SHAPE. A formula of a kind with no shape left is
 * not given. E_INTERNAL, E_MEMORY. */
enum sbp_status sbp_tier_fit(const struct sbp_measured_groups *shapes,
                             const struct sbp_network *network, enum sbp_collective kind,
                             int left_out, struct sbp_formula *formula,
                             struct sbp_diag *diag) SBP_MUST_USE;
/* Over all kinds but send-recv, whose messages nothing shares; send-recv alone where there is
 * nothing else. Of messages the smaller and the larger quarter of six sizes and more count: they
 * say what latency and bandwidth a link has, whatever buffers and protocols do between. (Of
 * collectives all sizes do: fits to the ends alone predicted published logs no better.) */
enum sbp_status sbp_tier_fit_levels(const struct sbp_measured_groups *shapes,
                                    const struct sbp_network *network, struct sbp_formula *formula,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

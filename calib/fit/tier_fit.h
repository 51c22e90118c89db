/* Fits the formula across group shapes (costmodel/cluster/network.h): its five coefficients for
 * each kind of collective, by least absolute relative deviations over all measured shapes; and the
 * same over all kinds together, as alpha and beta of the levels for kinds that were not measured.
 *
 * All-reduces of two nodes are set aside where larger ones were measured. A coefficient that the
 * shapes cannot tell from others is 0: without a measured group within a node, the formula says
 * nothing of groups within nodes.
 */
#ifndef SBP_CALIB_FIT_TIER_FIT_H
#define SBP_CALIB_FIT_TIER_FIT_H

#include "calib/fit/shapes.h"

#define SBP_NO_SHAPE (-1)

/* Fits the formula of one kind. network: its curves say which shapes are set aside, its ports
 * count; its formulas are not read. left_out: a shape to leave out, or SBP_NO_SHAPE. The formula is
 * not given where no shape is left. E_INTERNAL, E_MEMORY. */
enum sbp_status sbp_tier_fit(const struct sbp_measured_groups *shapes,
                             const struct sbp_network *network, enum sbp_collective kind,
                             int left_out, struct sbp_formula *formula,
                             struct sbp_diag *diag) SBP_MUST_USE;
/* Fits all kinds but send-recv, whose messages share nothing; send-recv alone where there is no
 * other. Its smaller and larger quarter of six sizes and more count: they show the latency and
 * bandwidth of a link, whatever buffers and protocols do between. (For collectives all sizes count:
 * fits to the ends alone predicted published logs no better.) */
enum sbp_status sbp_tier_fit_levels(const struct sbp_measured_groups *shapes,
                                    const struct sbp_network *network, struct sbp_formula *formula,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* Network ports of a node, measured: by how much messages of several groups of a node that work at
 * the same time slow each other down.
 *
 * A group that has one member on each of its nodes crosses one port of each. Where g such groups
 * take s times as long as one alone, they share g / s ports (costmodel/cluster/collective.h
 * stretches beta by groups / ports). Counted are the sizes from an eighth of the largest on that
 * both were measured at: there bandwidth decides; of several group numbers the largest.
 */
#ifndef SBP_CALIB_FIT_PORTS_H
#define SBP_CALIB_FIT_PORTS_H

#include "base/status.h"
#include "calib/samples/points.h"

struct sbp_ports {
    int ports;       /* the nearest whole number, 1 .. groups; 1 where nothing was measured */
    int groups;      /* of a node at the same time, the most; 0: nothing was measured */
    double slowdown; /* median of s */
};

/* E_MEMORY. */
enum sbp_status sbp_network_fit_ports(const struct sbp_measured *measured, struct sbp_ports *ports,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif

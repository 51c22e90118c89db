/* Fits a network to measured collectives: a curve for each group shape, a formula for each kind,
 * alpha and beta of the levels, the ports of a node, and how well all that predicts.
 *
 *     sbp_logs_read or sbp_points -> struct sbp_measured -> sbp_network_fit -> cluster file
 *
 * With is_paper there is one alpha and beta a network instead, by plain least squares (AutoDDL,
 * section 3.2).
 */
#ifndef SBP_CALIB_FIT_NETWORK_FIT_H
#define SBP_CALIB_FIT_NETWORK_FIT_H

#include "calib/fit/quality.h"

struct sbp_network_options {
    int ports; /* network ports of a node; 0: each device has its own */
    bool is_paper;
};

struct sbp_network_level {
    bool is_measured;
    double alpha_s, beta_s_per_byte;
};

struct sbp_network_fit {
    struct sbp_arena arena;                   /* owns the arrays of shapes and quality */
    struct sbp_measured_groups shapes;        /* fitted; curve[i] of network is of shape[i] */
    struct sbp_network network;               /* paper: empty */
    struct sbp_network_level between, within; /* nodes */
    int nodes, ranks_per_node;                /* most that were measured */
    struct sbp_quality quality;
};

/* *fit is freed by the caller, also after failure. E_INPUT: nothing to fit; E_MEMORY. */
enum sbp_status sbp_network_fit(const struct sbp_measured *measured,
                                const struct sbp_network_options *options,
                                struct sbp_network_fit *fit, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_network_fit_free(struct sbp_network_fit *fit);

/* Seconds that the fit predicts, as a cluster file of it would; NAN: it says nothing of this. */
double sbp_network_fit_s(const struct sbp_network_fit *fit, enum sbp_collective kind, int nodes,
                         int ranks_per_node, double bytes);

/* Network ports of a node, by how much groups of a node that work at the same time slow each other
 * down. A group that has one member on each of its nodes crosses one port of each. Where g such
 * groups take s times as long as one alone, they share g / s ports (costmodel/cluster/collective.h
 * stretches beta by groups / ports). Sizes from an eighth of the largest on count, since bandwidth
 * decides there; of several numbers of groups the largest. */
struct sbp_ports {
    int ports;       /* the nearest whole number, 1 .. groups; 1 where nothing was measured */
    int groups;      /* of a node at the same time, the most; 0: nothing was measured */
    double slowdown; /* median of s */
};

/* E_MEMORY. */
enum sbp_status sbp_network_fit_ports(const struct sbp_measured *measured, struct sbp_ports *ports,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif

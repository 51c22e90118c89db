/* Everything that measured collectives say of a network: a curve for each shape, a formula for each
 * kind, alpha and beta of the levels, and how well all that predicts (calib/fit/quality.h).
 *
 *     sbp_logs_read or own runs -> struct sbp_measured -> sbp_network_fit -> sbp_network_text
 */
#ifndef SBP_CALIB_FIT_NETWORK_FIT_H
#define SBP_CALIB_FIT_NETWORK_FIT_H

#include "calib/fit/quality.h"

struct sbp_network_options {
    int ports;     /* network ports of a node; 0: each device has its own */
    bool is_paper; /* one alpha and beta a network by plain least squares (AutoDDL, 3.2) */
};

struct sbp_network_level {
    bool is_measured;
    double alpha_s, beta_s_per_byte;
};

struct sbp_network_fit {
    struct sbp_arena arena;                   /* owns what follows */
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

/* Seconds that the fit predicts, as a cluster file of it would. */
double sbp_network_fit_s(const struct sbp_network_fit *fit, enum sbp_collective kind, int nodes,
                         int ranks_per_node, double bytes);

#endif

/* Prices of collectives in seconds (AutoDDL, table 2; DESIGN.md, section 5).
 *
 * One ring or tree of g members over links of one kind takes steps(g) alpha + share(g) n beta
 * (costmodel/cluster/collective_kind.h), or what the level's measured curves say instead
 * (costmodel/cluster/curve.h). The cluster file chooses how a group that spans levels is priced:
 *
 * `ring` (the paper, and the default): one ring over all members. Each of its links counts as slow
 * as any: it has the largest alpha and the largest beta, sharing included, of the levels that the
 * group spans. A level with curves of the kind says its own time of the whole ring instead; the
 * slowest counts.
 *
 * `hierarchical`: one phase a level. Let the group have m_1 members at the innermost level that it
 * spans, m_2 at the next, ..., m_L at the outermost, and N_i = m_1 ... m_(i-1). With t_i(kind, n)
 * the time of m_i members at level i,
 *   reduce-scatter  sum of t_i(reduce-scatter, n / N_i), innermost first
 *   all-gather      sum of t_i(all-gather, n / N_i), outermost first: the same backwards
 *   all-reduce      reduce-scatters up to level L - 1, t_L(all-reduce, n / N_L), all-gathers back
 *   all-to-all      sum of t_i(all-to-all, n): each phase puts one coordinate of every block right
 *   broadcast       sum of t_i(broadcast, n), outermost first, by one device a member
 * (Cho et al., "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network
 * hierarchy", MLSys 2019; with two levels also Mikami et al., "Massively distributed SGD", 2018).
 * By alpha and beta an all-gather costs what a reduce-scatter costs, and an all-reduce both. A
 * send-recv is one message over such a link in either model.
 *
 * Measured shapes. Kinds that the cluster file's `network` holds follow its curves and formulas in
 * either model (costmodel/cluster/network.h). They were measured on groups of r of a node's D
 * devices alone, but in a plan all D communicate: where a group leaves its node, n is scaled by
 * max(1, D / ports) / max(1, r / ports). Where the network lacks a kind, all-gathers and
 * reduce-scatters stand for each other and for half an all-reduce; others follow alpha and beta.
 *
 * Sharing. beta is the inverse bandwidth of one port in one direction. A member of level l (one
 * node) holds D devices and has `ports` ports at that level, and all groups of a mesh communicate
 * at the same time. How many share the ports depends on the collective. A ring of k devices in the
 * member crosses it once: D/k groups. Each device of an all-to-all sends parts of its own out: D.
 * In a phase of the hierarchical model each device talks to its like of the other members: D
 * (broadcast: D/k). beta is scaled by max(1, that/ports); with a curve n is scaled instead, which
 * is the same where the curve follows alpha and beta. Without `ports`, and at the innermost level,
 * every device has a port of its own.
 */
#ifndef SBP_COSTMODEL_CLUSTER_COLLECTIVE_H
#define SBP_COSTMODEL_CLUSTER_COLLECTIVE_H

#include <stdbool.h>

#include "costmodel/cluster/cluster.h"
#include "costmodel/cluster/collective_kind.h"
#include "costmodel/cluster/mesh.h"

/* A group by its size at each level, outermost first: 1 where it does not span, also beyond the
 * cluster's levels. All that a price depends on: searches know no labelled axes. */
struct sbp_group {
    double members[SBP_MAX_LEVELS];
};
struct sbp_group sbp_collective_group_one(void); /* a device by itself */
struct sbp_group sbp_collective_group_of(const struct sbp_mesh *mesh, sbp_axes axes);
double sbp_collective_group_size(const struct sbp_group *group);

/* Seconds; bytes: n as above, >= 0; 0 for groups of one and for LOCAL. */
double sbp_collective_group_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                              const struct sbp_group *group, double bytes);
/* The same at the expected value, with its error and what it rests on
 * (costmodel/cluster/network.h). Of a cluster without measured shapes: SBP_NOT_MEASURED_ERROR and
 * SBP_BASIS_NOT_MEASURED. */
struct sbp_network_price sbp_collective_price(const struct sbp_cluster *cluster,
                                              enum sbp_collective kind,
                                              const struct sbp_group *group, double bytes);
/* Copies of tokens on their way to experts, or back. */
struct sbp_dispatch {
    double copies;     /* of a token, one for each of its experts; >= 1 */
    double most_nodes; /* members of the levels above the innermost, together, among which a token's
                          experts lie at most; 0: any */
    bool once;         /* a level carries a token once to each of its members that wants it (DeepEP;
                          DeepSeek-V3, section 3.2.2), and devices there copy it on */
};
/* Seconds of an all-to-all of these copies, n bytes of them on a device, in either model. If not
 * `once`, that of n. Else one phase a level, the sum of t_i(all-to-all, share_i n): let the group
 * have x members down to level i. Of k experts, drawn alike and one by one, d(x) = x (1 - (1 -
 * 1/x)^k) members have one in the mean, and share_i = d(x) / k. Above the innermost level x is at
 * most most_nodes, on which it is that times the members below. */
double sbp_collective_dispatch_s(const struct sbp_cluster *cluster, const struct sbp_group *group,
                                 const struct sbp_dispatch *dispatch, double bytes);
struct sbp_network_price sbp_collective_dispatch_price(const struct sbp_cluster *cluster,
                                                       const struct sbp_group *group,
                                                       const struct sbp_dispatch *dispatch,
                                                       double bytes);
/* Bytes that a device sends: share(g) n, of phases their sum. */
double sbp_collective_dispatch_bytes(const struct sbp_cluster *cluster,
                                     const struct sbp_group *group,
                                     const struct sbp_dispatch *dispatch, double bytes);
double sbp_collective_s(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh,
                        enum sbp_collective kind, sbp_axes axes, double bytes);
/* Bytes that a device sends: share(g) n, whatever way a model lets them go. */
double sbp_collective_traffic_bytes(const struct sbp_mesh *mesh, enum sbp_collective kind,
                                    sbp_axes axes, double bytes);

/* Whether a collective over more axes never costs less, as far as is known. It can cost less in two
 * cases: kinds other than all-to-all over several levels; all kinds where curves say so. */
bool sbp_collective_grows(const struct sbp_cluster *cluster, enum sbp_collective kind);

#endif

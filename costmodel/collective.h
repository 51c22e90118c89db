/* What a collective costs (AutoDDL, table 2; design, section 5).
 *
 * g members, n bytes = the larger side on a device (input of a reduce-scatter, output of the
 * others): AllReduce 2(g-1) alpha + 2 (g-1)/g n beta; AllGather = ReduceScatter = AllToAll =
 * (g-1) alpha + (g-1)/g n beta; SendRecv alpha + n beta. A group that spans levels uses the alpha
 * and beta of its slowest level (the `ring` model of the paper).
 */
#ifndef SBP_COSTMODEL_COLLECTIVE_H
#define SBP_COSTMODEL_COLLECTIVE_H

#include "costmodel/cluster.h"
#include "costmodel/mesh.h"

#define SBP_COLLECTIVE_MAP(X)                                                                      \
    X(ALL_REDUCE, "all-reduce")                                                                    \
    X(ALL_GATHER, "all-gather")                                                                    \
    X(REDUCE_SCATTER, "reduce-scatter")                                                            \
    X(ALL_TO_ALL, "all-to-all")                                                                    \
    X(SEND_RECV, "send-recv")                                                                      \
    X(LOCAL, "local")

enum sbp_collective {
#define SBP_COLLECTIVE_ENUM(name, text) SBP_##name,
    SBP_COLLECTIVE_MAP(SBP_COLLECTIVE_ENUM)
#undef SBP_COLLECTIVE_ENUM
};
const char *sbp_collective_name(enum sbp_collective kind);

/* Seconds; bytes as above; 0 for groups of one and for LOCAL. */
double sbp_collective_s(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh,
                        enum sbp_collective kind, sbp_axes axes, double bytes);
/* Bytes that a device sends: the factor of beta above. */
double sbp_collective_traffic_bytes(const struct sbp_mesh *mesh, enum sbp_collective kind,
                                    sbp_axes axes, double bytes);
/* The same from a group's size alone and an explicit level: searches know no labelled axes.
 * `slowest` is the level whose alpha and beta count. */
double sbp_collective_group_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                              double members, int slowest, double bytes);
/* The level with the largest beta (ties: alpha) among those in a bit set; -1 for none. */
int sbp_collective_slowest(const struct sbp_cluster *cluster, unsigned levels);

#endif

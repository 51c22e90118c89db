/* The kinds of collectives, and the two numbers of each that every cost formula is made of.
 *
 * A collective of g members and n bytes on links of latency alpha and inverse bandwidth beta takes
 * steps alpha + share n beta seconds (AutoDDL, table 2). n is the larger side on a device: input of
 * a reduce-scatter, output of the others.
 *
 *   kind             steps      share
 *   all-reduce       2 (g-1)    2 (g-1)/g
 *   all-gather       g-1        (g-1)/g      also reduce-scatter and all-to-all
 *   send-recv        1          1
 *   broadcast        g-1        1            pipelined along a ring in pieces that are small beside
 *                                            n: a link carries every byte once, the last member
 *                                            waits for g-1 hops (nccl-tests, doc/PERFORMANCE.md:
 *                                            the bus bandwidth of a broadcast is n / t)
 *   local            0          0
 */
#ifndef SBP_COSTMODEL_CLUSTER_COLLECTIVE_KIND_H
#define SBP_COSTMODEL_CLUSTER_COLLECTIVE_KIND_H

#include "base/json/json.h"

#define SBP_COLLECTIVE_MAP(X)                                                                      \
    X(ALL_REDUCE, "all-reduce")                                                                    \
    X(ALL_GATHER, "all-gather")                                                                    \
    X(REDUCE_SCATTER, "reduce-scatter")                                                            \
    X(ALL_TO_ALL, "all-to-all")                                                                    \
    X(SEND_RECV, "send-recv")                                                                      \
    X(LOCAL, "local")                                                                              \
    X(BROADCAST_COLL, "broadcast")

#define SBP_COLLECTIVE_ENUM(name, text) SBP_##name,
enum sbp_collective { SBP_COLLECTIVE_MAP(SBP_COLLECTIVE_ENUM) };
#undef SBP_COLLECTIVE_ENUM
#define SBP_COLLECTIVES (SBP_BROADCAST_COLL + 1)

const char *sbp_collective_name(enum sbp_collective kind);
/* Which collectives an object has as keys, as bits; another key, `local` among them, is E_INPUT. */
enum sbp_status sbp_collectives_given(const struct sbp_json *at, unsigned *kinds) SBP_MUST_USE;

/* members >= 2 */
double sbp_collective_steps(enum sbp_collective kind, double members);
double sbp_collective_share(enum sbp_collective kind, double members);

#endif

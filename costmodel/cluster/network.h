/* Measured collectives by group shape: the results of a calibration, and how others follow from it.
 *
 * A shape is how many nodes a group spans and how many of its members lie on each: at the innermost
 * level of a cluster that has one level, nodes = 1; of more, the innermost holds a node's members
 * and all others together are the nodes.
 *
 * A measured shape has a curve of at most three segments alpha + n beta. Between the last size of
 * one segment and the first of the next, where protocols change, it is a straight line; beyond the
 * last size and below the first the segment's line goes on. Curves never fall.
 *
 * Other shapes follow a formula of five terms (NCCL's own model, src/graph/tuning.cc, adds up the
 * same ones):
 *   launch + steps within nodes x intra_step + steps between nodes x inter_step
 *          + max(bytes within nodes x intra beta, bytes between nodes x inter beta)
 * (bytes stream through both tiers at once, the slower one counts).
 * sbp_network_terms gives the factors. Where curves of the kind lie next to the shape, the formula
 * converts them: alphas by the ratio of the latencies, betas by that of the bandwidths, sizes by
 * the ratio of both. Sizes of all-reduces stay, since trees switch protocols by the whole message
 * and rings by a member's share. Curves still never fall. Between two curves logarithms are
 * interpolated in log nodes and log ranks per node; beyond the outermost curve that one counts.
 * Curves within a node and over several nodes are kept apart. All-reduces of two nodes are set
 * aside for larger groups where those were measured: NCCL's trees then send every byte once through
 * a network port, rings almost twice (nccl-tests, issue 309).
 *
 * Prices carry an error e: the time lies between t / (1 + e) and t (1 + e). The calibration took e
 * from sizes and shapes that it held out; beyond the measured sizes, or beyond twice the measured
 * nodes, e is added once more for each doubling.
 */
#ifndef SBP_COSTMODEL_CLUSTER_NETWORK_H
#define SBP_COSTMODEL_CLUSTER_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "costmodel/cluster/collective_kind.h"

#define SBP_NETWORK_SEGMENTS 3
#define SBP_NETWORK_CURVES   128 /* of a cluster */
#define SBP_NETWORK_TERMS    5

/* Seconds at n bytes, first_bytes <= n <= last_bytes: alpha_s + n beta_s_per_byte, both >= 0. */
struct sbp_segment {
    double first_bytes, last_bytes, alpha_s, beta_s_per_byte;
};

struct sbp_shape_curve {
    enum sbp_collective kind;
    int64_t nodes, ranks_per_node; /* together >= 2 */
    int segment_count;
    struct sbp_segment segment[SBP_NETWORK_SEGMENTS]; /* sizes rise */
    double error;                                     /* e of the sizes between the measured */
};

/* Coefficients of sbp_network_terms. */
enum sbp_term { SBP_LAUNCH, SBP_INTRA_STEP, SBP_INTER_STEP, SBP_INTRA_BYTE, SBP_INTER_BYTE };
struct sbp_formula {
    bool is_given;
    double coefficient[SBP_NETWORK_TERMS]; /* s, s, s, s/byte, s/byte; >= 0 */
    double error;                          /* e of shapes between measured ones */
    double beyond_error;                   /* of shapes beyond them */
};

/* Which end of the interval prices are of. */
enum sbp_bound { SBP_LOWEST = -1, SBP_EXPECTED = 0, SBP_HIGHEST = 1 };

struct sbp_network {
    int curve_count;
    struct sbp_shape_curve curve[SBP_NETWORK_CURVES];
    struct sbp_formula formula[SBP_COLLECTIVES];
    int ports; /* of a node, for its devices together; 0: each has its own */
    enum sbp_bound bound;
};

/* The basis of a price, best first. */
#define SBP_BASIS_MAP(X)                                                                           \
    X(MEASURED, "measured")                                                                        \
    X(OTHER_SIZE, "beyond the measured sizes")                                                     \
    X(BETWEEN, "between measured groups")                                                          \
    X(BEYOND, "beyond measured groups")                                                            \
    X(FAR_SHAPE, "beyond twice the measured nodes")                                                \
    X(TWO_NODES, "from all-reduces of two nodes")                                                  \
    X(OTHER_KIND, "not measured, taken from its mirror or half")                                   \
    X(NOT_MEASURED, "not measured")
#define SBP_BASIS_ENUM(name, text) SBP_BASIS_##name,
enum sbp_basis { SBP_BASIS_MAP(SBP_BASIS_ENUM) };
#undef SBP_BASIS_ENUM
const char *sbp_network_basis_text(enum sbp_basis basis);

struct sbp_network_price {
    double seconds, error;
    enum sbp_basis basis;
};

/* e of a collective that the calibration holds nothing of: alpha and beta of a level stand for it.
 */
#define SBP_NOT_MEASURED_ERROR 1.0

/* Reads {"all-reduce": {"formula": {"launch_s", "intra_step_s", "inter_step_s", "intra_s_per_byte",
 * "inter_s_per_byte", "error", "beyond_error"}, "curves": [{"nodes", "ranks_per_node", "error"?,
 * "segments":
 * [{"first_bytes", "last_bytes", "alpha_s", "beta_s_per_byte"}, ...]}, ...]}, ...}. E_INPUT: a kind
 * that is not known (or local), a shape twice, sizes that do not rise, a curve that falls, too
 * many. */
enum sbp_status sbp_network_read(const struct sbp_json *at,
                                 struct sbp_network *network) SBP_MUST_USE;

bool sbp_network_is_given(const struct sbp_network *network);
bool sbp_network_has(const struct sbp_network *network, enum sbp_collective kind);
/* Whether it says something of groups over several nodes, or within one: curves of either say
 * nothing of the other; a formula without any curve speaks for both. */
bool sbp_network_covers(const struct sbp_network *network, enum sbp_collective kind, double nodes);

/* Steps and bytes of a collective of N nodes with r members each, p = N r, n bytes on a device:
 *   kind          steps within   between    bytes within      between
 *   all-reduce    2 (r-1)        2 log2 N   2 (p-1)/p n       2 (p-1)/p n / ports(r), n / ports(2)
 *                                                             of two nodes
 *   all-gather, reduce-scatter   N (r-1)    N - 1             (p-1)/p n        (p-1)/p n / ports(r)
 *   all-to-all    r - 1          p - r      (r-1)/p n         (p-r)/p n r / ports(r)
 *   send-recv     1 or           1          n or              n
 *   broadcast     N (r-1)        N - 1      n                 n / ports(r)
 * Rings of several members a node use as many of its ports, ports(r) = min(r, ports). 0 between of
 * one node, 0 within of one member a node. term[SBP_LAUNCH] = 1. */
void sbp_network_terms(enum sbp_collective kind, double nodes, double ranks_per_node, int ports,
                       double bytes, double term[SBP_NETWORK_TERMS]);
double sbp_network_formula_s(const struct sbp_formula *formula, enum sbp_collective kind,
                             double nodes, double ranks_per_node, int ports, double bytes);
double sbp_network_curve_s(const struct sbp_shape_curve *curve, double bytes);
/* Whether an all-reduce of two nodes says nothing of larger groups: others of the kind do. */
bool sbp_network_sets_aside(const struct sbp_network *network, const struct sbp_shape_curve *curve);

/* Price of a kind that the network covers; nodes x ranks_per_node >= 2, bytes >= 0. */
struct sbp_network_price sbp_network_price(const struct sbp_network *network,
                                           enum sbp_collective kind, double nodes,
                                           double ranks_per_node, double bytes);
/* The seconds of a price at a bound. */
double sbp_network_bound_s(enum sbp_bound bound, double seconds, double error);

#endif

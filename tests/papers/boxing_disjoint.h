/* Boxing between disjoint device sets, which may differ in size: stages of a pipeline.
 *
 * Three phases (OneFlow, table 2, disjoint sets; T = bytes of the whole tensor):
 *
 *   reduce   (p - 1) T: producers of a partial sum over p members reduce-scatter it; copies (B) of
 *            the sum share the work, each a slice
 *   send     T: every element crosses once, from one producer to one consumer
 *   gather   (b - 1) T: consumers that want b copies all-gather what reached each of them
 *
 * Splits change nothing, and a partial target takes slices between zeros: (p + b - 1) T in all.
 * Sizes need not divide; then these are what an even split would move.
 */
#ifndef SBP_TESTS_PAPERS_BOXING_DISJOINT_H
#define SBP_TESTS_PAPERS_BOXING_DISJOINT_H

#include "costmodel/cluster/collective.h"
#include "costmodel/layout/distribution.h"

/* One of the two sets: a mesh of its own, and how its devices hold the tensor. All borrowed. */
struct sbp_disjoint_side {
    const struct sbp_cluster *cluster; /* prices what moves inside the set */
    const struct sbp_mesh *mesh;
    const struct sbp_dist *dist;
};

/* Between the sets: each device has one port in each direction. */
struct sbp_disjoint_link {
    double alpha_s, beta_s_per_byte;
};

struct sbp_disjoint {
    double reduce_bytes, send_bytes, gather_bytes; /* summed over devices */
    double reduce_s, send_s, gather_s;             /* one after the other */
    int64_t messages; /* that the busiest device sends or receives; blocks of a dimension are
                         contiguous, and what is not split by need is split to line up */
};

/* bytes: of the whole tensor, >= 0. */
struct sbp_disjoint sbp_boxing_disjoint(const struct sbp_disjoint_side *from,
                                        const struct sbp_disjoint_side *to,
                                        struct sbp_disjoint_link link, double bytes);

#endif

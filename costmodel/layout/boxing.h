/* The boxing planner: lists the collectives that bring a tensor from one distribution to another.
 *
 * The cost model prices the list and the executor runs it. It is in normal form (DESIGN.md, section
 * 4): one reduce-scatter over all axes that leave P, one all-to-all over all axes that go S(i) ->
 * S(j), one all-gather over all axes that end in B, in this order, so that the all-to-all moves the
 * smallest shard. An axis P -> B takes part in the first and the last; when only such axes change,
 * the two are one all-reduce. Local steps (slices of B, zero padding to P) move nothing and come
 * last. A normal form has at most four steps; lists of other origin
 * (costmodel/layout/boxing_path.h) may have more.
 */
#ifndef SBP_COSTMODEL_LAYOUT_BOXING_H
#define SBP_COSTMODEL_LAYOUT_BOXING_H

#include "costmodel/cluster/collective.h"
#include "costmodel/layout/distribution.h"

struct sbp_boxing_step {
    enum sbp_collective kind;
    sbp_axes axes;            /* the group */
    struct sbp_dist from, to; /* before and after */
    int64_t elements;         /* n of the cost formula, per device */
};

#define SBP_MAX_BOXING_STEPS (2 * SBP_MAX_AXES + 2) /* an axis is split, then whole again */
struct sbp_boxing {
    int count;
    struct sbp_boxing_step step[SBP_MAX_BOXING_STEPS];
};

/* E_INPUT when a distribution splits what the layout has no digit for, and when a transition does
 * not exist (a P -> B axis of a tensor with no dimension that its group divides, next to other
 * changes). */
enum sbp_status sbp_boxing_make(const struct sbp_layout *layout, const struct sbp_shape *shape,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                struct sbp_boxing *boxing, struct sbp_diag *diag) SBP_MUST_USE;

/* Seconds of the list, for elements of so many bytes. */
double sbp_boxing_s(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh,
                    const struct sbp_boxing *boxing, double element_bytes);

/* Appends one step; nothing for an empty group. There must be room. */
void sbp_boxing_append(const struct sbp_layout *layout, const struct sbp_shape *shape,
                       enum sbp_collective kind, sbp_axes axes, const struct sbp_dist *from,
                       const struct sbp_dist *to, struct sbp_boxing *boxing);

/* The reordering before (pack) and after (unpack) a step's exchange, as arguments of the permute
 * kernel: dst's dimension i is src's dimension order[i]. Pack brings the digits of the group's axes
 * to the front, in group order, so that member j's part is block j; unpack puts received blocks in
 * their places. Dimensions that stay together are merged; `needed` is false when nothing moves (the
 * exchange can use the block as it lies). */
struct sbp_permutation {
    bool needed;
    int dims;
    int64_t shape[4 * SBP_MAX_AXES]; /* of src */
    int order[4 * SBP_MAX_AXES];
};
void sbp_boxing_pack(const struct sbp_layout *layout, const struct sbp_shape *shape,
                     const struct sbp_boxing_step *step, struct sbp_permutation *pack);
void sbp_boxing_unpack(const struct sbp_layout *layout, const struct sbp_shape *shape,
                       const struct sbp_boxing_step *step, struct sbp_permutation *unpack);

#endif

/* Tensors and their distributions: one SBP state per mesh axis, elements owned by the digit rule.
 *
 * Every splittable dimension belongs to a dimension class (batch, sequence, hidden of the residual
 * stream, ...). The plan-wide set of axes that split a class decides its digits
 * (base/math/digits.h), so that layouts of different layers line up without a permutation.
 */
#ifndef SBP_COSTMODEL_LAYOUT_DISTRIBUTION_H
#define SBP_COSTMODEL_LAYOUT_DISTRIBUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/math/digits.h"
#include "costmodel/cluster/mesh.h"

/* Every state of a tensor on an axis says its gradient's, too: a split's is split, that of a
 * broadcast tensor is a partial sum, and a sum's is whole. A mirrored tensor lies as a broadcast
 * one, and its gradient is whole as well: all members do the same work there and back, and nothing
 * is summed. Gradients and what a program holds are never mirrored. */
enum sbp_kind { SBP_BROADCAST, SBP_SPLIT, SBP_PARTIAL, SBP_MIRRORED };

struct sbp_state {
    uint8_t kind; /* enum sbp_kind */
    uint8_t dim;  /* of a split, else 0 */
};
#define SBP_STATE_B    ((struct sbp_state){SBP_BROADCAST, 0})
#define SBP_STATE_P    ((struct sbp_state){SBP_PARTIAL, 0})
#define SBP_STATE_M    ((struct sbp_state){SBP_MIRRORED, 0})
#define SBP_STATE_S(d) ((struct sbp_state){SBP_SPLIT, (d)})

/* State of every axis of a mesh. */
struct sbp_dist {
    struct sbp_state axis[SBP_MAX_AXES];
};

#define SBP_NO_CLASS (-1)
struct sbp_shape {
    int64_t size[SBP_MAX_DIMS];
    int dim_class[SBP_MAX_DIMS]; /* index of a dimension class, or SBP_NO_CLASS: never split */
};

/* For each dimension class: which axes split it anywhere in the plan. */
#define SBP_MAX_CLASSES 4096
struct sbp_layout {
    const struct sbp_mesh *mesh; /* borrowed */
    int class_count;
    const sbp_axes *split; /* (class_count), borrowed */
};

static inline bool sbp_state_equal(struct sbp_state a, struct sbp_state b)
{
    return a.kind == b.kind && (a.kind != SBP_SPLIT || a.dim == b.dim);
}
bool sbp_dist_equal(const struct sbp_mesh *mesh, const struct sbp_dist *a,
                    const struct sbp_dist *b);
static inline struct sbp_dist sbp_dist_all(struct sbp_state state)
{
    struct sbp_dist dist;
    for (int i = 0; i < SBP_MAX_AXES; i++)
        dist.axis[i] = state;
    return dist;
}
/* How the tensor itself lies: M as B. */
struct sbp_dist sbp_dist_held(const struct sbp_mesh *mesh, const struct sbp_dist *dist);
/* Gradient's distribution: S stays, B becomes P, P and M become B. */
struct sbp_dist sbp_dist_dual(const struct sbp_mesh *mesh, const struct sbp_dist *dist);
/* Axes in a state: splitting dimension dim, broadcasting, partial, mirrored. */
static inline sbp_axes sbp_dist_split(const struct sbp_mesh *mesh, const struct sbp_dist *dist,
                                      int dim)
{
    sbp_axes axes = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (dist->axis[i].kind == SBP_SPLIT && dist->axis[i].dim == dim)
            axes |= (sbp_axes)1 << i;
    return axes;
}
sbp_axes sbp_dist_of_kind(const struct sbp_mesh *mesh, const struct sbp_dist *dist,
                          enum sbp_kind kind);
/* E_INPUT when an axis splits a dimension that the layout gives it no digit of. */
enum sbp_status sbp_dist_check(const struct sbp_layout *layout, const struct sbp_shape *shape,
                               const struct sbp_dist *dist, struct sbp_diag *diag) SBP_MUST_USE;
/* Elements a device holds; the dimensions must divide. */
int64_t sbp_dist_local_elements(const struct sbp_mesh *mesh, const struct sbp_shape *shape,
                                const struct sbp_dist *dist);
int64_t sbp_dist_local_size(const struct sbp_mesh *mesh, const struct sbp_shape *shape,
                            const struct sbp_dist *dist, int dim);
/* The block of a tensor that `rank` owns. */
void sbp_dist_region(const struct sbp_layout *layout, const struct sbp_shape *shape,
                     const struct sbp_dist *dist, int64_t rank, struct sbp_region *region);
/* "S0:4 B:2 M:2 P:2" with factors per state, for people; returns buffer (size bytes). */
const char *sbp_dist_text(const struct sbp_mesh *mesh, const struct sbp_dist *dist, char *buffer,
                          int size);

#endif

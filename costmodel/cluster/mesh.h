/* The mesh: a cluster's levels refined into axes of prime size, which operators are split over.
 *
 * Axes stand outermost first, larger primes first within a level. Equal primes of a level form a
 * family, whose axes are interchangeable for every cost. A device's rank is the mixed-radix number
 * of its coordinates, the innermost axis fastest.
 */
#ifndef SBP_COSTMODEL_CLUSTER_MESH_H
#define SBP_COSTMODEL_CLUSTER_MESH_H

#include <stdint.h>

#include "base/math/digits.h"
#include "base/status.h"
#include "costmodel/cluster/cluster.h"

/* A set of axes, bit i for axis i. */
typedef uint32_t sbp_axes;

struct sbp_axis {
    int level;
    int family;
    int64_t size;   /* prime */
    int64_t stride; /* ranks between neighbours along it */
};

/* Axes of the same level and prime. */
struct sbp_family {
    int level, first, count; /* axes first .. first + count - 1 */
    int64_t prime;
};

struct sbp_mesh {
    int axis_count, family_count, level_count;
    int64_t devices;
    struct sbp_axis axis[SBP_MAX_AXES];
    struct sbp_family family[SBP_MAX_AXES];
};

/* E_INPUT when the devices have more than SBP_MAX_AXES prime factors. */
enum sbp_status sbp_mesh_make(const struct sbp_cluster *cluster, struct sbp_mesh *mesh,
                              struct sbp_diag *diag) SBP_MUST_USE;

int64_t sbp_mesh_coordinate(const struct sbp_mesh *mesh, int64_t rank, int axis);
/* Product of the sizes of a set of axes: members of a group over them. */
static inline int64_t sbp_mesh_group_size(const struct sbp_mesh *mesh, sbp_axes axes)
{
    int64_t size = 1;
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            size *= mesh->axis[i].size;
    return size;
}
/* Rank of member `member` of the group over `axes` to which `rank` belongs, counting members with
 * the innermost axis fastest; and the inverse, this rank's place in its group. */
int64_t sbp_mesh_group_rank(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank,
                            int64_t member);
int64_t sbp_mesh_group_place(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank);

#endif

/* Prices of collectives over groups of devices.
 *
 * A group is known by its shape: how many axes of each family it takes, as a mixed-radix number
 * with one digit per family, so that the shapes of disjoint sets of axes add up; shape 0 is one
 * device. A mesh has few shapes, and searches ask for the same collectives again and again, so that
 * prices are remembered. Not for several threads at once.
 */
#ifndef SBP_PLANNER_SPACE_GROUP_PRICES_H
#define SBP_PLANNER_SPACE_GROUP_PRICES_H

#include "base/arena.h"
#include "costmodel/cluster/collective.h"
#include "costmodel/cluster/mesh.h"

struct sbp_shape_price; /* a remembered price */

struct sbp_group_prices {
    const struct sbp_cluster *cluster;
    int family_count, stride[SBP_MAX_AXES]; /* of a family's digit */
    int count;
    double *size;            /* (count) members of a group */
    struct sbp_group *group; /* (count) by level */
    struct sbp_shape_price *price;
};

/* Everything comes out of the arena; the cluster must outlive it. NULL when memory is out. */
struct sbp_group_prices *sbp_group_prices_make(const struct sbp_cluster *cluster,
                                               const struct sbp_mesh *mesh,
                                               struct sbp_arena *arena);

/* The shape of a set of the mesh's axes. */
int sbp_group_shape_of(const struct sbp_group_prices *shapes, const struct sbp_mesh *mesh,
                       sbp_axes axes);

/* Equals sbp_collective_group_s of a group of that shape to the bit; seconds. bytes: as there. */
double sbp_group_collective_s(struct sbp_group_prices *shapes, enum sbp_collective kind, int shape,
                              double bytes);
/* The same of sbp_collective_dispatch_s. Few operators ask, so that nothing is remembered. */
double sbp_group_dispatch_s(const struct sbp_group_prices *shapes, int shape,
                            const struct sbp_dispatch *dispatch, double bytes);

#endif

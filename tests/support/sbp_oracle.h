/* Which elements a rank owns, by the wording of the digit rule and nothing else: slow, plain, and
 * independent of the code under test. Also clusters and random meshes for the tests around it.
 */
#ifndef SBP_TESTS_UNIT_SBP_ORACLE_H
#define SBP_TESTS_UNIT_SBP_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/math/random.h"
#include "costmodel/layout/distribution.h"

/* Levels grow faster inwards, so that the slowest level of any set is the outermost. */
static inline struct sbp_cluster oracle_cluster(int levels, const int64_t *size)
{
    struct sbp_cluster cluster = {.name = "test", .level_count = levels};
    for (int i = 0; i < levels; i++) {
        struct sbp_level *level = &cluster.level[i];
        (void)snprintf(level->name, sizeof level->name, "level%d", i);
        level->size = size[i];
        level->alpha_s = 1e-5 / (1 + i);
        level->beta_s_per_byte = 1e-9 / (1 + 7 * i);
    }
    cluster.memory_bytes = INT64_C(1) << 40;
    for (int i = 0; i < SBP_TYPES; i++)
        cluster.flops[i] = 1e12 * (1 + i);
    cluster.memory_bytes_per_s = 1e11;
    return cluster;
}

static inline int64_t oracle_below(struct sbp_random *random, int64_t bound)
{
    return (int64_t)sbp_random_below(random, (uint64_t)bound);
}

/* The innermost axis counts fastest: what a clock's hands do. */
static inline int64_t oracle_coordinate(const struct sbp_mesh *mesh, int64_t rank, int axis)
{
    for (int i = mesh->axis_count - 1; i > axis; i--)
        rank /= mesh->axis[i].size;
    return rank % mesh->axis[axis].size;
}

/* Whether two ranks differ in coordinates of `axes` at most. */
static inline bool oracle_same_group(const struct sbp_mesh *mesh, sbp_axes axes, int64_t a,
                                     int64_t b)
{
    for (int i = 0; i < mesh->axis_count; i++)
        if ((axes >> i & 1) == 0 && oracle_coordinate(mesh, a, i) != oracle_coordinate(mesh, b, i))
            return false;
    return true;
}

static inline int64_t oracle_product(const struct sbp_mesh *mesh, sbp_axes axes)
{
    int64_t product = 1;
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            product *= mesh->axis[i].size;
    return product;
}

/* The digit that `axis` has in index `at` of a dimension of `size`, whose class `split` splits. */
static inline int64_t oracle_digit(const struct sbp_mesh *mesh, sbp_axes split, int64_t size,
                                   int axis, int64_t at)
{
    at /= size / oracle_product(mesh, split); /* the rest is least significant */
    for (int i = mesh->axis_count - 1; i > axis; i--)
        if (split >> i & 1)
            at /= mesh->axis[i].size;
    return at % mesh->axis[axis].size;
}

static inline bool oracle_owns_index(const struct sbp_layout *layout, const struct sbp_shape *shape,
                                     const struct sbp_dist *dist, int64_t rank, int dim, int64_t at)
{
    const struct sbp_mesh *mesh = layout->mesh;
    const int dim_class = shape->dim_class[dim];
    for (int i = 0; i < mesh->axis_count; i++) {
        if (dist->axis[i].kind != SBP_SPLIT || dist->axis[i].dim != dim)
            continue;
        if (oracle_digit(mesh, layout->split[dim_class], shape->size[dim], i, at) !=
            oracle_coordinate(mesh, rank, i))
            return false;
    }
    return true;
}

static inline int64_t oracle_size(const struct sbp_shape *shape)
{
    return shape->size[0] * shape->size[1] * shape->size[2] * shape->size[3];
}

/* Row-major global indices of a rank's block in canonical order; returns how many. */
static inline int64_t oracle_block(const struct sbp_layout *layout, const struct sbp_shape *shape,
                                   const struct sbp_dist *dist, int64_t rank, int64_t *global)
{
    int64_t count = 0;
    for (int64_t i = 0; i < oracle_size(shape); i++) {
        bool owns = true;
        int64_t at = i;
        for (int dim = SBP_MAX_DIMS - 1; dim >= 0; dim--) {
            owns &= oracle_owns_index(layout, shape, dist, rank, dim, at % shape->size[dim]);
            at /= shape->size[dim];
        }
        if (owns)
            global[count++] = i;
    }
    return count;
}

/* A random tensor of two or three splittable dimensions on a mesh: classes, their plan-wide splits
 * and sizes that divide. Axes in `needed[class]` are among the splits. */
struct oracle_tensor {
    sbp_axes split[SBP_MAX_DIMS];
    struct sbp_layout layout;
    struct sbp_shape shape;
};

static inline struct sbp_dist oracle_random_dist(struct sbp_random *random,
                                                 const struct sbp_mesh *mesh, int dims,
                                                 bool split_only)
{
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int i = 0; i < mesh->axis_count; i++) {
        const int64_t draw = oracle_below(random, split_only ? dims : dims + 2);
        dist.axis[i] = draw < dims    ? SBP_STATE_S((uint8_t)draw)
                       : draw == dims ? SBP_STATE_B
                                      : SBP_STATE_P;
    }
    return dist;
}

/* Gives the tensor a layout in which all `count` distributions are legal; further axes split its
 * classes at random, as other tensors of a plan would. */
static inline void oracle_random_tensor(struct sbp_random *random, const struct sbp_mesh *mesh,
                                        int dims, const struct sbp_dist *dist, int count,
                                        struct oracle_tensor *tensor)
{
    tensor->layout = (struct sbp_layout){mesh, SBP_MAX_DIMS, tensor->split};
    for (int d = 0; d < SBP_MAX_DIMS; d++) {
        tensor->split[d] = 0;
        for (int i = 0; i < mesh->axis_count && d < dims; i++) {
            bool splits = oracle_below(random, 4) == 0;
            for (int j = 0; j < count; j++)
                splits |= dist[j].axis[i].kind == SBP_SPLIT && dist[j].axis[i].dim == d;
            if (splits)
                tensor->split[d] |= (sbp_axes)1 << i;
        }
        tensor->shape.dim_class[d] = d < dims ? d : SBP_NO_CLASS;
        tensor->shape.size[d] =
            oracle_product(mesh, tensor->split[d]) * (1 + oracle_below(random, 3));
    }
}

#endif

/* Tensors with real numbers on real shards: dealt out by a distribution, and held against one after
 * members have worked on them. For tests of what roles and boxing say of tensors.
 */
#ifndef SBP_TESTS_UNIT_SHARD_ORACLE_H
#define SBP_TESTS_UNIT_SHARD_ORACLE_H

#include <stdlib.h>
#include <string.h>

#include "tests/support/sbp_oracle.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(4208) /* of the values */

/* A tensor with its true values. */
struct whole {
    struct sbp_shape shape;
    int64_t *value;
};

/* The values that the ranks hold of a tensor, over global indices, and which of them are there. */
#define MOST_RANKS 8
struct shards {
    int64_t *value[MOST_RANKS];
    bool *there[MOST_RANKS];
};

struct stage {
    struct sbp_mesh mesh;
    sbp_axes split[8];
    struct sbp_layout layout;
};

static inline void *zeroed(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    assert_non_null(memory);
    return memory;
}

static inline struct whole whole_of(const int64_t size[4], const int dim_class[4], uint64_t stream)
{
    struct whole whole;
    for (int i = 0; i < 4; i++) {
        whole.shape.size[i] = size[i];
        whole.shape.dim_class[i] = dim_class[i];
    }
    whole.value = zeroed(oracle_size(&whole.shape), sizeof(int64_t));
    for (int64_t i = 0; i < oracle_size(&whole.shape); i++)
        whole.value[i] = (int64_t)(sbp_random_bits_at(SEED, stream, (uint64_t)i) % 19) - 9;
    return whole;
}

static inline bool element_there(const struct stage *stage, const struct sbp_shape *shape,
                                 const struct sbp_dist *dist, int64_t rank, int64_t element)
{
    for (int d = 3; d >= 0; d--) {
        if (!oracle_owns_index(&stage->layout, shape, dist, rank, d, element % shape->size[d]))
            return false;
        element /= shape->size[d];
    }
    return true;
}

static inline struct shards shards_empty(const struct stage *stage, const struct sbp_shape *shape)
{
    struct shards shards = {{0}, {0}};
    for (int64_t r = 0; r < stage->mesh.devices; r++) {
        shards.value[r] = zeroed(oracle_size(shape), sizeof(int64_t));
        shards.there[r] = zeroed(oracle_size(shape), sizeof(bool));
    }
    return shards;
}

static inline void shards_drop(const struct stage *stage, struct shards *shards)
{
    for (int64_t r = 0; r < stage->mesh.devices; r++) {
        free(shards->value[r]);
        free(shards->there[r]);
    }
}

static inline sbp_axes axes_in(const struct stage *stage, const struct sbp_dist *dist, int kind)
{
    sbp_axes axes = 0;
    for (int i = 0; i < stage->mesh.axis_count; i++)
        if (dist->axis[i].kind == kind)
            axes |= (sbp_axes)1 << i;
    return axes;
}

static inline int64_t place_in(const struct stage *stage, sbp_axes axes, int64_t rank)
{
    int64_t place = 0;
    for (int i = 0; i < stage->mesh.axis_count; i++)
        if (axes >> i & 1)
            place = place * stage->mesh.axis[i].size + oracle_coordinate(&stage->mesh, rank, i);
    return place;
}

/* Deals a tensor out; of a partial sum the first holder has the difference to the others' draws. */
static inline struct shards deal(const struct stage *stage, const struct whole *whole,
                                 const struct sbp_dist *dist)
{
    struct shards shards = shards_empty(stage, &whole->shape);
    const sbp_axes partial = axes_in(stage, dist, SBP_PARTIAL);
    const int64_t holders = oracle_product(&stage->mesh, partial);
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < oracle_size(&whole->shape); i++) {
            const int64_t place = place_in(stage, partial, r);
            int64_t value = 0;
            for (int64_t h = 1; h < holders; h++) {
                const int64_t draw =
                    (int64_t)(sbp_random_bits_at(SEED, 99 + (uint64_t)h, (uint64_t)i) % 11);
                value += place == h ? draw : place == 0 ? -draw : 0;
            }
            shards.value[r][i] = value + (place == 0 ? whole->value[i] : 0);
            shards.there[r][i] = element_there(stage, &whole->shape, dist, r, i);
        }
    return shards;
}

/* Fails unless the members hold the distribution of the values that one device computes. */
static inline void must_be(const char *what, const struct stage *stage, const struct whole *whole,
                           const struct sbp_dist *dist, const struct shards *shards)
{
    const sbp_axes partial = axes_in(stage, dist, SBP_PARTIAL);
    char text[128];
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < oracle_size(&whole->shape); i++) {
            const bool there = element_there(stage, &whole->shape, dist, r, i);
            int64_t sum = 0;
            if (there != shards->there[r][i])
                fail_msg("%s is not %s: rank %lld, element %lld", what,
                         sbp_dist_text(&stage->mesh, dist, text, sizeof text), (long long)r,
                         (long long)i);
            for (int64_t o = 0; o < stage->mesh.devices && there; o++)
                if (oracle_same_group(&stage->mesh, partial, r, o))
                    sum += shards->value[o][i];
            if (there && sum != whole->value[i])
                fail_msg("%s is not %s: rank %lld, element %lld is %lld, expected %lld", what,
                         sbp_dist_text(&stage->mesh, dist, text, sizeof text), (long long)r,
                         (long long)i, (long long)sum, (long long)whole->value[i]);
        }
}

static inline void zero_whole(struct whole *whole)
{
    memset(whole->value, 0, (size_t)oracle_size(&whole->shape) * sizeof(int64_t));
}

static inline void allow_zeros(const struct stage *stage, const struct sbp_shape *shape,
                               const struct sbp_dist *dist, struct shards *shards)
{
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < oracle_size(shape); i++)
            shards->there[r][i] |= element_there(stage, shape, dist, r, i);
}

static inline void stage_make(struct stage *stage, int levels, const int64_t *size)
{
    const struct sbp_cluster cluster = oracle_cluster(levels, size);
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_mesh_make(&cluster, &stage->mesh, &diag), SBP_OK);
    /* Every axis has a digit in every class: all roles are legal in one plan. */
    for (int i = 0; i < 8; i++)
        stage->split[i] = ((sbp_axes)1 << stage->mesh.axis_count) - 1;
    stage->layout = (struct sbp_layout){&stage->mesh, 8, stage->split};
}

#endif

#include "planner/space/group_prices.h"

#include <string.h>

#include "planner/limits.h"

struct sbp_shape_price {
    int shape, kind;
    double bytes, seconds;
};

static void measure(struct sbp_group_prices *shapes, const struct sbp_mesh *mesh, int shape)
{
    shapes->group[shape] = sbp_collective_group_one();
    for (int f = 0; f < mesh->family_count; f++) {
        const int axes = shape / shapes->stride[f] % (mesh->family[f].count + 1);
        for (int k = 0; k < axes; k++)
            shapes->group[shape].members[mesh->family[f].level] *= (double)mesh->family[f].prime;
    }
    shapes->size[shape] = sbp_collective_group_size(&shapes->group[shape]);
}

struct sbp_group_prices *sbp_group_prices_make(const struct sbp_cluster *cluster,
                                               const struct sbp_mesh *mesh, struct sbp_arena *arena)
{
    struct sbp_group_prices *shapes = SBP_NEW(arena, struct sbp_group_prices, 1);
    if (shapes == NULL)
        return NULL;
    *shapes = (struct sbp_group_prices){
        .cluster = cluster, .family_count = mesh->family_count, .count = 1};
    for (int f = 0; f < mesh->family_count; f++) {
        shapes->stride[f] = shapes->count;
        shapes->count *= mesh->family[f].count + 1;
    }
    shapes->size = SBP_NEW(arena, double, shapes->count);
    shapes->group = SBP_NEW(arena, struct sbp_group, shapes->count);
    shapes->price = SBP_NEW(arena, struct sbp_shape_price, (size_t)1 << SBP_SPACE_PRICE_MEMO_BITS);
    if (shapes->size == NULL || shapes->group == NULL || shapes->price == NULL)
        return NULL;
    for (int shape = 0; shape < shapes->count; shape++)
        measure(shapes, mesh, shape);
    return shapes;
}

int sbp_group_shape_of(const struct sbp_group_prices *shapes, const struct sbp_mesh *mesh,
                       sbp_axes axes)
{
    int shape = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if ((axes >> axis & 1) != 0)
            shape += shapes->stride[mesh->axis[axis].family];
    return shape;
}

static size_t slot_of(enum sbp_collective kind, int shape, double bytes)
{
    uint64_t bits;
    memcpy(&bits, &bytes, sizeof bits);
    bits ^= ((uint64_t)shape * SBP_COLLECTIVES + (uint64_t)kind) << 7;
    return (size_t)(bits * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SBP_SPACE_PRICE_MEMO_BITS));
}

double sbp_group_collective_s(struct sbp_group_prices *shapes, enum sbp_collective kind, int shape,
                              double bytes)
{
    if (shape == 0 || kind == SBP_LOCAL)
        return 0;
    struct sbp_shape_price *price = &shapes->price[slot_of(kind, shape, bytes)];
    if (price->shape != shape || price->kind != (int)kind || price->bytes != bytes)
        *price = (struct sbp_shape_price){
            .shape = shape,
            .kind = (int)kind,
            .bytes = bytes,
            .seconds = sbp_collective_group_s(shapes->cluster, kind, &shapes->group[shape], bytes)};
    return price->seconds;
}

double sbp_group_dispatch_s(const struct sbp_group_prices *shapes, int shape,
                            const struct sbp_dispatch *dispatch, double bytes)
{
    return shape == 0
               ? 0
               : sbp_collective_dispatch_s(shapes->cluster, &shapes->group[shape], dispatch, bytes);
}

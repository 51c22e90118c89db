#include "costmodel/layout/boxing.h"

#include <assert.h>

/* What happens to the axes of a transition, as sets. */
struct change {
    sbp_axes leave_partial;  /* P -> S or B */
    sbp_axes partial_to_all; /* P -> B, a part of the above */
    sbp_axes move_split;     /* S(i) -> S(j) */
    sbp_axes gather;         /* S -> B, and P -> B after the reduce-scatter */
    sbp_axes slice;          /* B -> S: local */
    sbp_axes pad;            /* S or B -> P: local */
};

static struct change compare(const struct sbp_mesh *mesh, const struct sbp_dist *from,
                             const struct sbp_dist *to)
{
    struct change change = {0};
    for (int i = 0; i < mesh->axis_count; i++) {
        const struct sbp_state a = from->axis[i], b = to->axis[i];
        const sbp_axes bit = (sbp_axes)1 << i;
        if (sbp_state_equal(a, b))
            continue;
        if (b.kind == SBP_PARTIAL) {
            change.pad |= bit;
        } else if (a.kind == SBP_PARTIAL) {
            change.leave_partial |= bit;
            if (b.kind == SBP_BROADCAST)
                change.partial_to_all |= bit;
        } else if (a.kind == SBP_BROADCAST) {
            change.slice |= bit;
        } else if (b.kind == SBP_SPLIT) {
            change.move_split |= bit;
        } else {
            change.gather |= bit;
        }
    }
    change.gather |= change.partial_to_all;
    return change;
}

void sbp_boxing_append(const struct sbp_layout *layout, const struct sbp_shape *shape,
                       enum sbp_collective kind, sbp_axes axes, const struct sbp_dist *from,
                       const struct sbp_dist *to, struct sbp_boxing *boxing)
{
    if (axes == 0)
        return;
    assert(boxing->count < SBP_MAX_BOXING_STEPS);
    struct sbp_boxing_step *step = &boxing->step[boxing->count++];
    *step = (struct sbp_boxing_step){.kind = kind, .axes = axes, .from = *from, .to = *to};
    const struct sbp_dist *larger = kind == SBP_REDUCE_SCATTER ? &step->from : &step->to;
    step->elements = sbp_dist_local_elements(layout->mesh, shape, larger);
}

/* One step over `axes`, whose states become those of `to`. */
static void add_step(const struct sbp_layout *layout, const struct sbp_shape *shape,
                     enum sbp_collective kind, sbp_axes axes, const struct sbp_dist *to,
                     struct sbp_dist *current, struct sbp_boxing *boxing)
{
    struct sbp_dist next = *current;
    for (int i = 0; i < layout->mesh->axis_count; i++)
        if (axes >> i & 1)
            next.axis[i] = to->axis[i];
    sbp_boxing_append(layout, shape, kind, axes, current, &next, boxing);
    *current = next;
}

double sbp_boxing_s(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh,
                    const struct sbp_boxing *boxing, double element_bytes)
{
    double seconds = 0;
    for (int i = 0; i < boxing->count; i++)
        seconds += sbp_collective_s(cluster, mesh, boxing->step[i].kind, boxing->step[i].axes,
                                    (double)boxing->step[i].elements * element_bytes);
    return seconds;
}

/* Where a P -> B axis rests between its reduce-scatter and its all-gather: a dimension whose digits
 * the axis already is one of, not split by it in either state. */
static bool resting_dim(const struct sbp_layout *layout, const struct sbp_shape *shape, int axis,
                        uint8_t *dim)
{
    for (uint8_t d = 0; d < SBP_MAX_DIMS; d++) {
        const int dim_class = shape->dim_class[d];
        if (dim_class != SBP_NO_CLASS && layout->split[dim_class] >> axis & 1) {
            *dim = d;
            return true;
        }
    }
    return false;
}

enum sbp_status sbp_boxing_make(const struct sbp_layout *layout, const struct sbp_shape *shape,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                struct sbp_boxing *boxing, struct sbp_diag *diag)
{
    const struct sbp_mesh *mesh = layout->mesh;
    SBP_TRY(sbp_dist_check(layout, shape, from, diag));
    SBP_TRY(sbp_dist_check(layout, shape, to, diag));
    const struct change change = compare(mesh, from, to);
    struct sbp_dist current = *from;
    boxing->count = 0;

    const sbp_axes moving = change.leave_partial | change.move_split | change.gather;
    if (moving != 0 && moving == change.partial_to_all) {
        add_step(layout, shape, SBP_ALL_REDUCE, moving, to, &current, boxing);
    } else {
        struct sbp_dist resting = *to;
        for (int i = 0; i < mesh->axis_count; i++) {
            uint8_t dim = 0;
            if (!(change.partial_to_all >> i & 1))
                continue;
            if (!resting_dim(layout, shape, i, &dim))
                return sbp_fail(diag, SBP_E_INPUT,
                                "boxing: axis %d goes from P to B and no dimension of the tensor "
                                "has a digit for it to rest in",
                                i);
            resting.axis[i] = SBP_STATE_S(dim);
        }
        add_step(layout, shape, SBP_REDUCE_SCATTER, change.leave_partial, &resting, &current,
                 boxing);
        add_step(layout, shape, SBP_ALL_TO_ALL, change.move_split, to, &current, boxing);
        add_step(layout, shape, SBP_ALL_GATHER, change.gather, to, &current, boxing);
    }
    /* Slices come last in time order too: slicing before the gather would be cheaper but is
     * `boxing=path`'s business; padding cannot come before the sums are formed. */
    add_step(layout, shape, SBP_LOCAL, change.slice | change.pad, to, &current, boxing);
    return SBP_OK;
}

/* One digit (or rest) of a local block. */
struct part {
    int axis; /* -1: the rest of a dimension */
    int dim;
    int64_t size;
};

/* Digits of a block that run locally, most significant first, sizes of 1 left out. */
static int local_parts(const struct sbp_layout *layout, const struct sbp_shape *shape,
                       const struct sbp_dist *dist, struct part *parts)
{
    const struct sbp_mesh *mesh = layout->mesh;
    int count = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        int64_t rest = shape->size[dim];
        const int dim_class = shape->dim_class[dim];
        const sbp_axes splits = dim_class == SBP_NO_CLASS ? 0 : layout->split[dim_class];
        const sbp_axes own = sbp_dist_split(mesh, dist, dim);
        for (int i = 0; i < mesh->axis_count; i++) {
            if (!(splits >> i & 1))
                continue;
            rest /= mesh->axis[i].size;
            if (!(own >> i & 1))
                parts[count++] = (struct part){i, dim, mesh->axis[i].size};
        }
        if (rest > 1)
            parts[count++] = (struct part){-1, dim, rest};
    }
    return count;
}

/* Whether a part is the digit by which axis a of the group splits in `dist`. */
static bool is_group_digit(const struct part *part, sbp_axes axes, const struct sbp_dist *dist)
{
    return part->axis >= 0 && axes >> part->axis & 1 && dist->axis[part->axis].kind == SBP_SPLIT &&
           dist->axis[part->axis].dim == part->dim;
}

/* Order of a block's parts with the group's digits in front: front[i] = place in the block. */
static void group_first(const struct part *parts, int count, sbp_axes axes,
                        const struct sbp_dist *dist, int *front)
{
    int used = 0;
    for (int axis = 0; axis < SBP_MAX_AXES; axis++)
        for (int i = 0; i < count; i++)
            if (parts[i].axis == axis && is_group_digit(&parts[i], axes, dist))
                front[used++] = i;
    for (int i = 0; i < count; i++)
        if (!is_group_digit(&parts[i], axes, dist))
            front[used++] = i;
}

/* Merges neighbours of src that stay neighbours in dst. */
static void merge(const int64_t *shape, const int *order, int count, struct sbp_permutation *out)
{
    int start_of[4 * SBP_MAX_AXES], run_of[4 * SBP_MAX_AXES], runs = 0;
    bool starts[4 * SBP_MAX_AXES];
    for (int i = 0; i < count; i++)
        starts[i] = true;
    for (int i = 1; i < count; i++)
        if (order[i] == order[i - 1] + 1)
            starts[order[i]] = false;
    for (int i = 0; i < count; i++) {
        if (starts[i]) {
            start_of[runs] = i;
            out->shape[runs++] = 1;
        }
        run_of[i] = runs - 1;
        out->shape[runs - 1] *= shape[i];
    }
    out->dims = 0;
    for (int i = 0; i < count; i++)
        if (start_of[run_of[order[i]]] == order[i])
            out->order[out->dims++] = run_of[order[i]];
    out->needed = runs > 1;
}

void sbp_boxing_pack(const struct sbp_layout *layout, const struct sbp_shape *shape,
                     const struct sbp_boxing_step *step, struct sbp_permutation *pack)
{
    struct part parts[4 * SBP_MAX_AXES];
    int64_t sizes[4 * SBP_MAX_AXES];
    int front[4 * SBP_MAX_AXES];
    *pack = (struct sbp_permutation){0};
    if (step->kind != SBP_REDUCE_SCATTER && step->kind != SBP_ALL_TO_ALL)
        return;
    const int count = local_parts(layout, shape, &step->from, parts);
    for (int i = 0; i < count; i++)
        sizes[i] = parts[i].size;
    group_first(parts, count, step->axes, &step->to, front);
    merge(sizes, front, count, pack);
}

void sbp_boxing_unpack(const struct sbp_layout *layout, const struct sbp_shape *shape,
                       const struct sbp_boxing_step *step, struct sbp_permutation *unpack)
{
    struct part parts[4 * SBP_MAX_AXES];
    int64_t sizes[4 * SBP_MAX_AXES];
    int front[4 * SBP_MAX_AXES], place[4 * SBP_MAX_AXES];
    *unpack = (struct sbp_permutation){0};
    if (step->kind != SBP_ALL_GATHER && step->kind != SBP_ALL_TO_ALL)
        return;
    /* Received: the group's digits as the members held them, then the rest; wanted: the block. */
    const int count = local_parts(layout, shape, &step->to, parts);
    group_first(parts, count, step->axes, &step->from, front);
    for (int i = 0; i < count; i++) {
        sizes[i] = parts[front[i]].size;
        place[front[i]] = i;
    }
    merge(sizes, place, count, unpack);
}

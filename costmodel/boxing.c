#include "costmodel/boxing.h"

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

/* One step over `axes`, whose states become those of `to`. */
static void add_step(const struct sbp_layout *layout, const struct sbp_shape *shape,
                     enum sbp_collective kind, sbp_axes axes, const struct sbp_dist *to,
                     struct sbp_dist *current, struct sbp_boxing *boxing)
{
    if (axes == 0)
        return;
    struct sbp_boxing_step *step = &boxing->step[boxing->count++];
    step->kind = kind;
    step->axes = axes;
    step->from = *current;
    for (int i = 0; i < layout->mesh->axis_count; i++)
        if (axes >> i & 1)
            current->axis[i] = to->axis[i];
    step->to = *current;
    const struct sbp_dist *larger = kind == SBP_REDUCE_SCATTER ? &step->from : &step->to;
    step->elements = sbp_local_elements(layout->mesh, shape, larger);
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

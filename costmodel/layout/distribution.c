#include "costmodel/layout/distribution.h"

#include <stdio.h>
#include <string.h>

bool sbp_dist_equal(const struct sbp_mesh *mesh, const struct sbp_dist *a, const struct sbp_dist *b)
{
    for (int i = 0; i < mesh->axis_count; i++)
        if (!sbp_state_equal(a->axis[i], b->axis[i]))
            return false;
    return true;
}

struct sbp_dist sbp_dist_held(const struct sbp_mesh *mesh, const struct sbp_dist *dist)
{
    struct sbp_dist held = *dist;
    for (int i = 0; i < mesh->axis_count; i++)
        if (dist->axis[i].kind == SBP_MIRRORED)
            held.axis[i] = SBP_STATE_B;
    return held;
}

struct sbp_dist sbp_dist_dual(const struct sbp_mesh *mesh, const struct sbp_dist *dist)
{
    struct sbp_dist dual = *dist;
    for (int i = 0; i < mesh->axis_count; i++) {
        if (dist->axis[i].kind == SBP_BROADCAST)
            dual.axis[i] = SBP_STATE_P;
        else if (dist->axis[i].kind == SBP_PARTIAL || dist->axis[i].kind == SBP_MIRRORED)
            dual.axis[i] = SBP_STATE_B;
    }
    return dual;
}

sbp_axes sbp_dist_of_kind(const struct sbp_mesh *mesh, const struct sbp_dist *dist,
                          enum sbp_kind kind)
{
    sbp_axes axes = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (dist->axis[i].kind == kind)
            axes |= (sbp_axes)1 << i;
    return axes;
}

enum sbp_status sbp_dist_check(const struct sbp_layout *layout, const struct sbp_shape *shape,
                               const struct sbp_dist *dist, struct sbp_diag *diag)
{
    for (int i = 0; i < layout->mesh->axis_count; i++) {
        const struct sbp_state state = dist->axis[i];
        if (state.kind != SBP_SPLIT)
            continue;
        const int dim_class = state.dim < SBP_MAX_DIMS ? shape->dim_class[state.dim] : SBP_NO_CLASS;
        if (dim_class == SBP_NO_CLASS || !(layout->split[dim_class] >> i & 1))
            return sbp_fail(diag, SBP_E_INPUT,
                            "axis %d splits dimension %d, in which it has no digit", i, state.dim);
    }
    return SBP_OK;
}

int64_t sbp_dist_local_size(const struct sbp_mesh *mesh, const struct sbp_shape *shape,
                            const struct sbp_dist *dist, int dim)
{
    return shape->size[dim] / sbp_mesh_group_size(mesh, sbp_dist_split(mesh, dist, dim));
}

int64_t sbp_dist_local_elements(const struct sbp_mesh *mesh, const struct sbp_shape *shape,
                                const struct sbp_dist *dist)
{
    int64_t elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= sbp_dist_local_size(mesh, shape, dist, dim);
    return elements;
}

void sbp_dist_region(const struct sbp_layout *layout, const struct sbp_shape *shape,
                     const struct sbp_dist *dist, int64_t rank, struct sbp_region *region)
{
    const struct sbp_mesh *mesh = layout->mesh;
    region->first = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        struct sbp_digits *digits = &region->dim[dim];
        *digits = (struct sbp_digits){.rest = shape->size[dim]};
        if (shape->dim_class[dim] == SBP_NO_CLASS)
            continue;
        const sbp_axes splits = layout->split[shape->dim_class[dim]];
        const sbp_axes own = sbp_dist_split(mesh, dist, dim);
        for (int i = 0; i < mesh->axis_count; i++) {
            if (!(splits >> i & 1))
                continue;
            digits->size[digits->count] = mesh->axis[i].size;
            digits->fixed[digits->count++] = own >> i & 1 ? sbp_mesh_coordinate(mesh, rank, i) : -1;
            digits->rest /= mesh->axis[i].size;
        }
    }
}

static int append(char *buffer, int size, int used, const char *state, int64_t factor)
{
    if (used >= size)
        return used;
    return used + snprintf(buffer + used, (size_t)(size - used), "%s%s:%lld", used > 0 ? " " : "",
                           state, (long long)factor);
}

const char *sbp_dist_text(const struct sbp_mesh *mesh, const struct sbp_dist *dist, char *buffer,
                          int size)
{
    int used = 0;
    buffer[0] = '\0';
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const sbp_axes axes = sbp_dist_split(mesh, dist, dim);
        char name[4] = {'S', (char)('0' + dim), '\0'};
        if (axes != 0)
            used = append(buffer, size, used, name, sbp_mesh_group_size(mesh, axes));
    }
    const sbp_axes broadcast = sbp_dist_of_kind(mesh, dist, SBP_BROADCAST);
    const sbp_axes mirrored = sbp_dist_of_kind(mesh, dist, SBP_MIRRORED);
    const sbp_axes partial = sbp_dist_of_kind(mesh, dist, SBP_PARTIAL);
    if (broadcast != 0 || mesh->axis_count == 0)
        used = append(buffer, size, used, "B", sbp_mesh_group_size(mesh, broadcast));
    if (mirrored != 0)
        used = append(buffer, size, used, "M", sbp_mesh_group_size(mesh, mirrored));
    if (partial != 0)
        append(buffer, size, used, "P", sbp_mesh_group_size(mesh, partial));
    return buffer;
}

#include "costmodel/cluster/mesh.h"

static enum sbp_status add_family(struct sbp_mesh *mesh, int level, int64_t prime, int count,
                                  struct sbp_diag *diag)
{
    if (mesh->axis_count + count > SBP_MAX_AXES)
        return sbp_fail(diag, SBP_E_INPUT,
                        "levels: the devices have more than %d prime factors, at most %d are legal",
                        SBP_MAX_AXES, SBP_MAX_AXES);
    mesh->family[mesh->family_count] = (struct sbp_family){
        .level = level, .first = mesh->axis_count, .count = count, .prime = prime};
    for (int i = 0; i < count; i++)
        mesh->axis[mesh->axis_count++] =
            (struct sbp_axis){.level = level, .family = mesh->family_count, .size = prime};
    mesh->family_count++;
    return SBP_OK;
}

/* Larger primes first: families of a level in descending order. */
static enum sbp_status add_level(struct sbp_mesh *mesh, int level, int64_t size,
                                 struct sbp_diag *diag)
{
    int64_t prime[SBP_MAX_AXES * 2];
    int count[SBP_MAX_AXES * 2], distinct = 0;
    for (int64_t p = 2; p <= size / p; p++) {
        int times = 0;
        for (; size % p == 0; size /= p)
            times++;
        if (times > 0) {
            prime[distinct] = p;
            count[distinct++] = times;
        }
    }
    if (size > 1) { /* what no smaller prime divides is a prime of its own */
        prime[distinct] = size;
        count[distinct++] = 1;
    }
    for (int i = distinct - 1; i >= 0; i--)
        SBP_TRY(add_family(mesh, level, prime[i], count[i], diag));
    return SBP_OK;
}

enum sbp_status sbp_mesh_make(const struct sbp_cluster *cluster, struct sbp_mesh *mesh,
                              struct sbp_diag *diag)
{
    *mesh = (struct sbp_mesh){.level_count = cluster->level_count,
                              .devices = sbp_cluster_devices(cluster)};
    for (int level = 0; level < cluster->level_count; level++)
        SBP_TRY(add_level(mesh, level, cluster->level[level].size, diag));
    int64_t stride = 1;
    for (int i = mesh->axis_count - 1; i >= 0; i--) {
        mesh->axis[i].stride = stride;
        stride *= mesh->axis[i].size;
    }
    return SBP_OK;
}

int64_t sbp_mesh_coordinate(const struct sbp_mesh *mesh, int64_t rank, int axis)
{
    return rank / mesh->axis[axis].stride % mesh->axis[axis].size;
}

int64_t sbp_mesh_group_rank(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank,
                            int64_t member)
{
    for (int i = mesh->axis_count - 1; i >= 0; i--) {
        if (!(axes >> i & 1))
            continue;
        const int64_t coordinate = member % mesh->axis[i].size;
        member /= mesh->axis[i].size;
        rank += (coordinate - sbp_mesh_coordinate(mesh, rank, i)) * mesh->axis[i].stride;
    }
    return rank;
}

int64_t sbp_mesh_group_place(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank)
{
    int64_t place = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            place = place * mesh->axis[i].size + sbp_mesh_coordinate(mesh, rank, i);
    return place;
}

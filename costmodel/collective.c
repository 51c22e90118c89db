#include "costmodel/collective.h"

#include <stddef.h>

static const char *const names[] = {
#define SBP_COLLECTIVE_TEXT(name, text) [SBP_##name] = text,
    SBP_COLLECTIVE_MAP(SBP_COLLECTIVE_TEXT)
#undef SBP_COLLECTIVE_TEXT
};

const char *sbp_collective_name(enum sbp_collective kind)
{
    return names[kind];
}

/* Message steps and the share of n that a device sends (AutoDDL, table 2). */
static double steps_of(enum sbp_collective kind, double members)
{
    switch (kind) {
    case SBP_ALL_REDUCE:
        return 2 * (members - 1);
    case SBP_SEND_RECV:
        return 1;
    case SBP_LOCAL:
        return 0;
    default:
        return members - 1;
    }
}

static double share_of(enum sbp_collective kind, double members)
{
    return kind == SBP_SEND_RECV ? 1 : steps_of(kind, members) / members;
}

int sbp_collective_slowest(const struct sbp_cluster *cluster, unsigned levels)
{
    int slowest = -1;
    for (int i = 0; i < cluster->level_count; i++) {
        if (!(levels >> i & 1))
            continue;
        const struct sbp_level *level = &cluster->level[i];
        const struct sbp_level *worst = slowest < 0 ? NULL : &cluster->level[slowest];
        if (worst == NULL || level->beta_s_per_byte > worst->beta_s_per_byte ||
            (level->beta_s_per_byte == worst->beta_s_per_byte && level->alpha_s > worst->alpha_s))
            slowest = i;
    }
    return slowest;
}

double sbp_collective_group_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                              double members, int slowest, double bytes)
{
    if (members <= 1 || slowest < 0)
        return 0;
    const struct sbp_level *level = &cluster->level[slowest];
    return steps_of(kind, members) * level->alpha_s +
           share_of(kind, members) * bytes * level->beta_s_per_byte;
}

static unsigned levels_of(const struct sbp_mesh *mesh, sbp_axes axes)
{
    unsigned levels = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            levels |= 1u << mesh->axis[i].level;
    return levels;
}

double sbp_collective_s(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh,
                        enum sbp_collective kind, sbp_axes axes, double bytes)
{
    return sbp_collective_group_s(cluster, kind, (double)sbp_mesh_group_size(mesh, axes),
                                  sbp_collective_slowest(cluster, levels_of(mesh, axes)), bytes);
}

double sbp_collective_traffic_bytes(const struct sbp_mesh *mesh, enum sbp_collective kind,
                                    sbp_axes axes, double bytes)
{
    const double members = (double)sbp_mesh_group_size(mesh, axes);
    return members <= 1 ? 0 : share_of(kind, members) * bytes;
}

#include "costmodel/cluster/collective.h"

#include <math.h>
#include <stddef.h>

/* --- groups --- */

struct sbp_group sbp_collective_group_one(void)
{
    struct sbp_group group;
    for (int i = 0; i < SBP_MAX_LEVELS; i++)
        group.members[i] = 1;
    return group;
}

struct sbp_group sbp_collective_group_of(const struct sbp_mesh *mesh, sbp_axes axes)
{
    struct sbp_group group = sbp_collective_group_one();
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            group.members[mesh->axis[i].level] *= (double)mesh->axis[i].size;
    return group;
}

double sbp_collective_group_size(const struct sbp_group *group)
{
    double size = 1;
    for (int i = 0; i < SBP_MAX_LEVELS; i++)
        size *= group->members[i];
    return size;
}

/* --- one ring on one level --- */

/* Factor on n for groups that communicate at the same time, when `own` of a member's devices share
 * a group's way through its ports. */
static double stretch(const struct sbp_cluster *cluster, int level, double own)
{
    double devices = 1;
    if (cluster->level[level].ports == 0)
        return 1;
    for (int i = level + 1; i < cluster->level_count; i++)
        devices *= (double)cluster->level[i].size;
    return fmax(1, devices / own / cluster->level[level].ports);
}

/* Devices of a group within one of its members at a level. */
static double own_devices(const struct sbp_group *group, int level)
{
    double devices = 1;
    for (int i = level + 1; i < SBP_MAX_LEVELS; i++)
        devices *= group->members[i];
    return devices;
}

static double line_s(enum sbp_collective kind, double members, double bytes, double alpha_s,
                     double beta_s_per_byte)
{
    return sbp_collective_steps(kind, members) * alpha_s +
           sbp_collective_share(kind, members) * bytes * beta_s_per_byte;
}

static double level_s(const struct sbp_cluster *cluster, int level, enum sbp_collective kind,
                      double members, double bytes)
{
    const struct sbp_level *at = &cluster->level[level];
    if (members <= 1)
        return 0;
    if (cluster->curves.curve_count > 0 && sbp_curves_has(&cluster->curves, level, kind))
        return sbp_curves_s(&cluster->curves, level, kind, at->alpha_s, at->beta_s_per_byte,
                            members, bytes);
    return line_s(kind, members, bytes, at->alpha_s, at->beta_s_per_byte);
}

/* --- a group over levels --- */

static double ring_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                     const struct sbp_group *group, double bytes)
{
    const double members = sbp_collective_group_size(group);
    double alpha_s = 0, beta_s_per_byte = 0, measured_s = 0;
    if (members <= 1)
        return 0;
    for (int i = 0; i < cluster->level_count; i++) {
        if (group->members[i] <= 1)
            continue;
        const double own = kind == SBP_ALL_TO_ALL ? 1 : own_devices(group, i);
        const double factor = stretch(cluster, i, own);
        if (sbp_curves_has(&cluster->curves, i, kind)) {
            measured_s = fmax(measured_s, level_s(cluster, i, kind, members, factor * bytes));
            continue;
        }
        alpha_s = fmax(alpha_s, cluster->level[i].alpha_s);
        beta_s_per_byte = fmax(beta_s_per_byte, factor * cluster->level[i].beta_s_per_byte);
    }
    return fmax(measured_s, line_s(kind, members, bytes, alpha_s, beta_s_per_byte));
}

static double phases_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                       const struct sbp_group *group, double bytes)
{
    const bool shrinks = kind == SBP_REDUCE_SCATTER || kind == SBP_ALL_GATHER;
    double seconds = 0;
    for (int i = cluster->level_count - 1; i >= 0; i--) {
        if (group->members[i] <= 1)
            continue;
        const double inside = own_devices(group, i);
        const double factor = stretch(cluster, i, kind == SBP_BROADCAST_COLL ? inside : 1);
        seconds += level_s(cluster, i, kind, group->members[i],
                           factor * (shrinks ? bytes / inside : bytes));
    }
    return seconds;
}

/* Scatters up to the outermost level, one all-reduce there, and gathers back. */
static double all_reduce_phases_s(const struct sbp_cluster *cluster, const struct sbp_group *group,
                                  double bytes)
{
    struct sbp_group inner = *group;
    int outermost = 0;
    while (outermost < cluster->level_count && group->members[outermost] <= 1)
        outermost++;
    if (outermost == cluster->level_count)
        return 0;
    inner.members[outermost] = 1;
    return phases_s(cluster, SBP_REDUCE_SCATTER, &inner, bytes) +
           level_s(cluster, outermost, SBP_ALL_REDUCE, group->members[outermost],
                   stretch(cluster, outermost, 1) * bytes / own_devices(group, outermost)) +
           phases_s(cluster, SBP_ALL_GATHER, &inner, bytes);
}

static double level_model_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                            const struct sbp_group *group, double bytes)
{
    if (cluster->collectives == SBP_MODEL_RING || kind == SBP_SEND_RECV)
        return ring_s(cluster, kind, group, bytes);
    if (kind == SBP_ALL_REDUCE)
        return all_reduce_phases_s(cluster, group, bytes);
    return phases_s(cluster, kind, group, bytes);
}

/* --- measured by group shape --- */

/* Factor on n: all devices of a node communicate at the same time, whatever their groups. A
 * measured group already had its own devices share the ports. */
static double network_stretch(const struct sbp_cluster *cluster, double ranks_per_node)
{
    const double devices = (double)cluster->level[cluster->level_count - 1].size;
    const int ports = cluster->network.ports;
    return ports == 0 ? 1 : fmax(1, devices / ports) / fmax(1, ranks_per_node / ports);
}

/* Kinds that stand for one that was not measured: an all-gather and a reduce-scatter mirror each
 * other, and together are an all-reduce. */
static const struct {
    enum sbp_collective kind, other;
    double times, more_error;
} STAND_INS[] = {
    {SBP_REDUCE_SCATTER, SBP_ALL_GATHER, 1, 0.25},  {SBP_ALL_GATHER, SBP_REDUCE_SCATTER, 1, 0.25},
    {SBP_REDUCE_SCATTER, SBP_ALL_REDUCE, 0.5, 0.5}, {SBP_ALL_GATHER, SBP_ALL_REDUCE, 0.5, 0.5},
    {SBP_ALL_REDUCE, SBP_ALL_GATHER, 2, 0.5},       {SBP_ALL_REDUCE, SBP_REDUCE_SCATTER, 2, 0.5},
};

static struct sbp_network_price price_other(const struct sbp_cluster *cluster,
                                            enum sbp_collective kind, const struct sbp_group *group,
                                            double bytes, double factor)
{
    const double ranks_per_node = group->members[cluster->level_count - 1];
    const double nodes = sbp_collective_group_size(group) / ranks_per_node;
    struct sbp_network_price price = {.error = SBP_NOT_MEASURED_ERROR};
    for (size_t i = 0; i < sizeof STAND_INS / sizeof *STAND_INS; i++) {
        if (STAND_INS[i].kind != kind ||
            !sbp_network_covers(&cluster->network, STAND_INS[i].other, nodes))
            continue;
        price = sbp_network_price(&cluster->network, STAND_INS[i].other, nodes, ranks_per_node,
                                  factor * bytes);
        price.seconds *= STAND_INS[i].times;
        price.error += STAND_INS[i].more_error;
        price.basis = SBP_BASIS_OTHER_KIND;
        return price;
    }
    price.seconds = level_model_s(cluster, kind, group, bytes);
    price.basis = SBP_BASIS_NOT_MEASURED;
    return price;
}

struct sbp_network_price sbp_collective_price(const struct sbp_cluster *cluster,
                                              enum sbp_collective kind,
                                              const struct sbp_group *group, double bytes)
{
    const double ranks_per_node = group->members[cluster->level_count - 1];
    const double members = sbp_collective_group_size(group), nodes = members / ranks_per_node;
    if (kind == SBP_LOCAL || members <= 1)
        return (struct sbp_network_price){0};
    const double factor = nodes > 1 ? network_stretch(cluster, ranks_per_node) : 1;
    if (sbp_network_covers(&cluster->network, kind, nodes))
        return sbp_network_price(&cluster->network, kind, nodes, ranks_per_node, factor * bytes);
    return price_other(cluster, kind, group, bytes, factor);
}

double sbp_collective_group_s(const struct sbp_cluster *cluster, enum sbp_collective kind,
                              const struct sbp_group *group, double bytes)
{
    if (kind == SBP_LOCAL)
        return 0;
    if (!sbp_network_is_given(&cluster->network))
        return level_model_s(cluster, kind, group, bytes);
    const struct sbp_network_price price = sbp_collective_price(cluster, kind, group, bytes);
    return sbp_network_bound_s(cluster->network.bound, price.seconds, price.error);
}

/* --- tokens to experts --- */

/* Members that hold one of a token's experts, in the mean. */
static double members_wanted(double members, double copies)
{
    double misses = 1;
    for (double copy = 0; copy < copies; copy++)
        misses *= 1 - 1 / members;
    return members * (1 - misses);
}

/* A phase of a dispatch: the group at one level alone, and what of the copies goes over it. */
struct phase {
    struct sbp_group group;
    double share;
};

static struct phase phase_at(const struct sbp_cluster *cluster, const struct sbp_group *group,
                             const struct sbp_dispatch *dispatch, int level)
{
    struct phase phase = {.group = sbp_collective_group_one()};
    double reached = 1;
    for (int i = 0; i <= level; i++) {
        reached *= group->members[i];
        if (i < cluster->level_count - 1 && dispatch->most_nodes > 0)
            reached = fmin(reached, dispatch->most_nodes);
    }
    phase.group.members[level] = group->members[level];
    phase.share = members_wanted(reached, dispatch->copies) / dispatch->copies;
    return phase;
}

double sbp_collective_dispatch_s(const struct sbp_cluster *cluster, const struct sbp_group *group,
                                 const struct sbp_dispatch *dispatch, double bytes)
{
    double seconds = 0;
    if (!dispatch->once)
        return sbp_collective_group_s(cluster, SBP_ALL_TO_ALL, group, bytes);
    for (int level = 0; level < cluster->level_count; level++) {
        const struct phase phase = phase_at(cluster, group, dispatch, level);
        seconds +=
            sbp_collective_group_s(cluster, SBP_ALL_TO_ALL, &phase.group, phase.share * bytes);
    }
    return seconds;
}

/* Errors of phases weigh as their times; the worst basis counts. */
struct sbp_network_price sbp_collective_dispatch_price(const struct sbp_cluster *cluster,
                                                       const struct sbp_group *group,
                                                       const struct sbp_dispatch *dispatch,
                                                       double bytes)
{
    struct sbp_network_price sum = {0};
    if (!dispatch->once)
        return sbp_collective_price(cluster, SBP_ALL_TO_ALL, group, bytes);
    for (int level = 0; level < cluster->level_count; level++) {
        const struct phase phase = phase_at(cluster, group, dispatch, level);
        const struct sbp_network_price price =
            sbp_collective_price(cluster, SBP_ALL_TO_ALL, &phase.group, phase.share * bytes);
        sum.error += price.seconds * price.error;
        sum.seconds += price.seconds;
        sum.basis = price.basis > sum.basis ? price.basis : sum.basis;
    }
    sum.error = sum.seconds > 0 ? sum.error / sum.seconds : 0;
    return sum;
}

double sbp_collective_dispatch_bytes(const struct sbp_cluster *cluster,
                                     const struct sbp_group *group,
                                     const struct sbp_dispatch *dispatch, double bytes)
{
    double sent = 0;
    if (!dispatch->once)
        return sbp_collective_share(SBP_ALL_TO_ALL, sbp_collective_group_size(group)) * bytes;
    for (int level = 0; level < cluster->level_count; level++) {
        const struct phase phase = phase_at(cluster, group, dispatch, level);
        if (group->members[level] > 1)
            sent +=
                sbp_collective_share(SBP_ALL_TO_ALL, group->members[level]) * phase.share * bytes;
    }
    return sent;
}

double sbp_collective_s(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh,
                        enum sbp_collective kind, sbp_axes axes, double bytes)
{
    const struct sbp_group group = sbp_collective_group_of(mesh, axes);
    return sbp_collective_group_s(cluster, kind, &group, bytes);
}

double sbp_collective_traffic_bytes(const struct sbp_mesh *mesh, enum sbp_collective kind,
                                    sbp_axes axes, double bytes)
{
    const double members = (double)sbp_mesh_group_size(mesh, axes);
    return members <= 1 ? 0 : sbp_collective_share(kind, members) * bytes;
}

/* Over several levels gathers and reductions can get cheaper, since wider groups have more ports.
 */
bool sbp_collective_grows(const struct sbp_cluster *cluster, enum sbp_collective kind)
{
    if (sbp_network_is_given(&cluster->network)) /* which stands in for kinds that it lacks */
        return false;
    if (kind != SBP_ALL_TO_ALL && cluster->level_count > 1)
        return false;
    for (int i = 0; i < cluster->level_count; i++)
        if (sbp_curves_has(&cluster->curves, i, kind))
            return false;
    return true;
}

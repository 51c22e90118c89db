/* Blocks of keys and values, and their gradients, from rank to rank round a ring. */
#include "base/clock.h"
#include "executor/comm/channel_priv.h"
#include "executor/comm/post.h"

enum { TAG_BLOCK = 25, TAG_BLOCK_GRADIENT = 26, TAG_GREETING = 27 };

/* The member that is so many places further on. */
static int member_behind(const struct sbp_channel *channel, sbp_axes axes, int64_t places)
{
    const struct sbp_mesh *mesh = &channel->step->mesh;
    const int64_t members = sbp_mesh_group_size(mesh, axes);
    const int64_t own = sbp_mesh_group_place(mesh, axes, channel->place);
    return sbp_channel_rank_of(channel, axes, (own + places) % members);
}

/* The member behind, or the one before, which may know this one already. */
static enum sbp_status greet(struct sbp_channel *channel, int receiver)
{
    if (channel->reached[receiver])
        return SBP_OK;
    channel->reached[receiver] = true;
    return channel->ops->send(channel->comm, receiver, TAG_GREETING, NULL, 0);
}

static enum sbp_status hear(struct sbp_channel *channel, int sender)
{
    if (channel->heard[sender])
        return SBP_OK;
    channel->heard[sender] = true;
    sbp_post_wait(channel->post, sender);
    return channel->ops->receive(channel->comm, sender, TAG_GREETING, NULL, 0);
}

enum sbp_status sbp_channel_meet_ring(struct sbp_channel *channel, sbp_axes axes,
                                      struct sbp_diag *diag)
{
    const struct sbp_mesh *mesh = &channel->step->mesh;
    const int64_t members = sbp_mesh_group_size(mesh, axes);
    const int receiver = member_behind(channel, axes, 1);
    const int sender = member_behind(channel, axes, members - 1);
    const bool greets_first = sbp_mesh_group_place(mesh, axes, channel->place) == 0;
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    if (channel->skip)
        return SBP_OK;
    enum sbp_status status = greets_first ? greet(channel, receiver) : hear(channel, sender);
    if (status == SBP_OK)
        status = greets_first ? hear(channel, sender) : greet(channel, receiver);
    sbp_channel_spend(channel, wall_s, cpu_s);
    return sbp_channel_backend(channel, status, "meeting the members of a ring", diag);
}

enum sbp_status sbp_channel_pass_block(struct sbp_channel *channel, sbp_axes axes, bool gradients,
                                       const void *block, int64_t count, struct sbp_diag *diag)
{
    const struct sbp_exchange exchange = {
        .kind = SBP_SEND_RECV, .members.axes = axes, .count = count};
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    sbp_channel_note(channel, &exchange);
    if (channel->skip)
        return SBP_OK;
    const enum sbp_status status = channel->ops->send(
        channel->comm, member_behind(channel, axes, 1), gradients ? TAG_BLOCK_GRADIENT : TAG_BLOCK,
        block, count * channel->kernels->real_bytes);
    sbp_channel_spend(channel, wall_s, cpu_s);
    return sbp_channel_backend(channel, status, "passing on a block", diag);
}

enum sbp_status sbp_channel_take_block(struct sbp_channel *channel, sbp_axes axes, bool gradients,
                                       void *block, int64_t count, struct sbp_diag *diag)
{
    const int64_t members = sbp_mesh_group_size(&channel->step->mesh, axes);
    const int peer = member_behind(channel, axes, members - 1);
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    if (channel->skip) {
        channel->kernels->zero(block, count);
        return SBP_OK;
    }
    sbp_post_wait(channel->post, peer);
    const enum sbp_status status =
        channel->ops->receive(channel->comm, peer, gradients ? TAG_BLOCK_GRADIENT : TAG_BLOCK,
                              block, count * channel->kernels->real_bytes);
    sbp_channel_spend(channel, wall_s, cpu_s);
    return sbp_channel_backend(channel, status, "taking a block", diag);
}

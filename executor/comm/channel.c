#include "executor/comm/channel_priv.h"

#include <string.h>

#include "base/clock.h"

enum sbp_status sbp_channel_backend(struct sbp_channel *channel, enum sbp_status status,
                                    const char *what, struct sbp_diag *diag)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(diag, status, "%s: %s: %s", channel->ops->name, what,
                    channel->ops->reason(channel->comm));
}

static bool same_members(const struct sbp_members *a, const struct sbp_members *b)
{
    return a->axes == b->axes && a->crosses == b->crosses && a->tensor == b->tensor;
}

static int find_group(const struct sbp_channel *channel, const struct sbp_members *members)
{
    for (int g = 0; g < channel->group_count; g++)
        if (same_members(&channel->members[g], members))
            return g;
    return -1;
}

static struct sbp_members members_of(const struct sbp_call *call)
{
    const bool crosses = call->stages > 1 && call->kind != SBP_SEND_RECV;
    return (struct sbp_members){call->axes, crosses, crosses ? call->tensor : 0};
}

static bool is_in(const struct sbp_step *step, int own_stage, const struct sbp_members *members,
                  int stage)
{
    if (!members->crosses)
        return stage == own_stage;
    return members->tensor < 0 || sbp_step_holds(step, stage, members->tensor);
}

int sbp_channel_members(const struct sbp_step *step, int stage, int64_t place,
                        const struct sbp_members *members, int *ranks)
{
    const struct sbp_mesh *mesh = &step->mesh;
    const int64_t size = sbp_mesh_group_size(mesh, members->axes);
    int count = 0;
    for (int s = 0; s < step->stages; s++)
        for (int64_t member = 0; member < size && is_in(step, stage, members, s); member++)
            ranks[count++] =
                (int)(s * mesh->devices + sbp_mesh_group_rank(mesh, members->axes, place, member));
    return count;
}

static void list_members(struct sbp_channel *channel)
{
    for (int i = 0; i < channel->call_count; i++) {
        const struct sbp_members members = members_of(&channel->calls[i]);
        if (channel->calls[i].kind != SBP_SEND_RECV && find_group(channel, &members) < 0)
            channel->members[channel->group_count++] = members;
    }
}

/* ranks, counts: of the groups, as name_groups takes them. */
static enum sbp_status make_groups(struct sbp_channel *channel, const int *ranks, const int *counts,
                                   struct sbp_diag *diag)
{
    const struct sbp_comm_ops *ops = channel->ops;
    if (ops->name_groups != NULL)
        SBP_TRY(sbp_channel_backend(
            channel, ops->name_groups(channel->comm, ranks, counts, channel->group_count),
            "naming the groups", diag));
    for (int g = 0; g < channel->group_count; g++) {
        const struct sbp_members *members = &channel->members[g];
        channel->circle[g] = sbp_fingerprint_circle(ranks, counts[g], ops->rank(channel->comm));
        const int key = members->crosses ? 2 * (members->tensor + 1) : 2 * g + 1;
        SBP_TRY(sbp_channel_backend(
            channel, ops->group(channel->comm, ranks, counts[g], key, &channel->group[g]),
            "creating a group", diag));
        ranks += counts[g];
    }
    return SBP_OK;
}

/* Ranks that share several groups list them in one order: those of a stage have one list of calls,
 * and in every list a sum over stages of a tied weight comes before that of the norm. */
static enum sbp_status add_groups(struct sbp_channel *channel, struct sbp_arena *arena,
                                  struct sbp_diag *diag)
{
    const int64_t world = channel->step->stages * channel->step->mesh.devices;
    channel->members = SBP_NEW(arena, struct sbp_members, channel->call_count);
    channel->group = SBP_NEW(arena, int, channel->call_count);
    channel->circle = SBP_NEW(arena, struct sbp_circle, channel->call_count);
    channel->log = SBP_NEW(arena, struct sbp_logged_call, channel->call_count);
    channel->reached = SBP_NEW(arena, bool, world);
    channel->heard = SBP_NEW(arena, bool, world);
    int *counts = SBP_NEW(arena, int, channel->call_count);
    if (channel->members == NULL || channel->reached == NULL || channel->heard == NULL ||
        channel->group == NULL || channel->circle == NULL || channel->log == NULL || counts == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the communication groups");
    list_members(channel);
    int *ranks = SBP_NEW(arena, int, channel->group_count *world), *at = ranks;
    if (ranks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the ranks of groups");
    for (int g = 0; g < channel->group_count; g++) {
        counts[g] = sbp_channel_members(channel->step, channel->stage, channel->place,
                                        &channel->members[g], at);
        at += counts[g];
    }
    return make_groups(channel, ranks, counts, diag);
}

enum sbp_status sbp_channel_open(struct sbp_channel *channel, const struct sbp_comm_ops *ops,
                                 struct sbp_comm *comm, const struct sbp_step *step,
                                 const struct sbp_tasks *tasks, const struct sbp_kernels *kernels,
                                 struct sbp_arena *arena, struct sbp_diag *diag)
{
    const int64_t rank = ops->rank(comm), devices = step->mesh.devices;
    struct sbp_call *calls = NULL;
    *channel = (struct sbp_channel){.ops = ops,
                                    .comm = comm,
                                    .step = step,
                                    .stage = (int)(rank / devices),
                                    .place = rank % devices,
                                    .tasks = tasks,
                                    .kernels = kernels,
                                    .by_host = ops->by_host == NULL};
    const struct sbp_program *program = sbp_step_chunk(step, channel->stage, 0);
    channel->element_bytes[0] = program->bytes.activation;
    channel->element_bytes[1] = program->bytes.statistic;
    const enum sbp_status status =
        sbp_tasks_calls(step, channel->stage, tasks, arena, &calls, &channel->call_count);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "the program's list of collectives: %s",
                        sbp_status_text(status));
    channel->calls = calls;
    return add_groups(channel, arena, diag);
}

sbp_axes sbp_channel_work_axes(const struct sbp_channel *channel, const struct sbp_tasks *tasks)
{
    sbp_axes axes = 0;
    for (int i = 0; i < channel->call_count; i++) {
        const struct sbp_call *call = &channel->calls[i];
        const struct sbp_task *task = &tasks->task[call->instr];
        if (task->work != SBP_WORK_UPDATE && !task->is_beside)
            axes |= call->axes; /* messages between stages have none */
    }
    return axes;
}

void sbp_channel_begin_step(struct sbp_channel *channel, int64_t number, enum sbp_round round)
{
    memset(channel->log, 0, (size_t)channel->call_count * sizeof *channel->log);
    channel->at = channel->logged = 0;
    channel->number = number;
    channel->round = round;
}

/* The first call of a task, or of those behind it. */
static int find_call(const struct sbp_channel *channel, int64_t task)
{
    int first = 0, end = channel->call_count;
    while (first < end) {
        const int middle = first + (end - first) / 2;
        if (channel->calls[middle].instr < task)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

void sbp_channel_turn(struct sbp_channel *channel, int64_t task)
{
    channel->at = find_call(channel, task);
}

bool sbp_channel_waits(const struct sbp_channel *channel, int64_t task, struct sbp_members *members)
{
    const int at = find_call(channel, task);
    if (at == channel->call_count || channel->calls[at].instr != task ||
        channel->calls[at].kind == SBP_SEND_RECV)
        return false;
    *members = members_of(&channel->calls[at]);
    return true;
}

void sbp_channel_note(struct sbp_channel *channel, const struct sbp_exchange *exchange)
{
    if (channel->at < channel->call_count)
        channel->log[channel->at++] = (struct sbp_logged_call){
            .kind = exchange->kind,
            .axes = exchange->members.axes,
            .count = exchange->count,
            .element_bytes =
                exchange->statistic ? channel->kernels->wide_bytes : channel->kernels->real_bytes};
    channel->logged++;
}

static void copy(const struct sbp_channel *channel, void *to, const void *from, int64_t count)
{
    const int order = 0;
    if (to == from) /* in place */
        return;
    channel->kernels->permute(to, from, 1, &count, &order);
}

/* Turns an exchange of what is owned in parts into the one that the backend is called for. */
static struct sbp_exchange as_called(const struct sbp_channel *channel,
                                     const struct sbp_exchange *exchange)
{
    const struct sbp_mesh *mesh = &channel->step->mesh;
    const sbp_axes axes = exchange->members.axes;
    struct sbp_exchange called = *exchange;
    if (exchange->kind != SBP_BROADCAST_COLL || exchange->owner != SBP_OWNED_IN_PARTS)
        return called;
    called.kind = exchange->to_owner ? SBP_REDUCE_SCATTER : SBP_ALL_GATHER;
    called.count = exchange->count / sbp_mesh_group_size(mesh, axes);
    void *const own = (char *)exchange->receive + sbp_mesh_group_place(mesh, axes, channel->place) *
                                                      called.count * channel->kernels->real_bytes;
    called.send = exchange->to_owner ? exchange->receive : own;
    called.receive = exchange->to_owner ? own : exchange->receive;
    return called;
}

/* Leaves a rank with its own data in every place, as if its peers sent nothing; with zeros where it
 * has none. For tests. */
static void exchange_nothing(const struct sbp_channel *channel, const struct sbp_exchange *exchange)
{
    const struct sbp_mesh *mesh = &channel->step->mesh;
    const int64_t members = sbp_mesh_group_size(mesh, exchange->members.axes);
    const int64_t bytes = exchange->count * channel->kernels->real_bytes;
    const int64_t place = sbp_mesh_group_place(mesh, exchange->members.axes, channel->place);
    if (exchange->shift != 0)
        channel->kernels->zero(exchange->receive, exchange->received);
    else if (exchange->kind == SBP_REDUCE_SCATTER)
        copy(channel, exchange->receive, (const char *)exchange->send + place * bytes,
             exchange->count);
    else if (exchange->kind == SBP_ALL_TO_ALL)
        copy(channel, exchange->receive, exchange->send, members * exchange->count);
    else if (exchange->kind == SBP_ALL_GATHER)
        for (int64_t member = 0; member < members; member++)
            copy(channel, (char *)exchange->receive + member * bytes, exchange->send,
                 exchange->count);
    else if (exchange->kind != SBP_ALL_REDUCE && !exchange->to_owner && place != exchange->owner)
        channel->kernels->zero(exchange->receive, exchange->count);
}

static enum sbp_status call_backend(struct sbp_channel *channel,
                                    const struct sbp_exchange *exchange, int group)
{
    const struct sbp_comm_ops *ops = channel->ops;
    const enum sbp_real stored = channel->kernels->real;
    const enum sbp_real real = exchange->statistic ? sbp_real_wide(stored) : stored;
    switch (exchange->kind) {
    case SBP_ALL_REDUCE:
        return ops->all_reduce(channel->comm, group, exchange->receive, exchange->count, real,
                               exchange->reduction);
    case SBP_ALL_GATHER:
        return ops->all_gather(channel->comm, group, exchange->receive, exchange->send,
                               exchange->count, real);
    case SBP_REDUCE_SCATTER:
        return ops->reduce_scatter(channel->comm, group, exchange->receive, exchange->send,
                                   exchange->count, real);
    case SBP_ALL_TO_ALL:
        return ops->all_to_all(channel->comm, group, exchange->receive, exchange->send,
                               exchange->count, real);
    case SBP_BROADCAST_COLL:
        return (exchange->to_owner ? ops->reduce : ops->broadcast)(
            channel->comm, group, (int)exchange->owner, exchange->receive, exchange->count, real);
    case SBP_SEND_RECV:
    case SBP_LOCAL:
        break;
    }
    return SBP_E_INTERNAL;
}

/* What the rank is about to call; the log's last entry is its. */
static struct sbp_fingerprint fingerprint(const struct sbp_channel *channel,
                                          const struct sbp_exchange *exchange, int group)
{
    const int call = channel->at - 1;
    const int64_t task = call < 0 ? -1 : channel->calls[call].instr;
    const bool is_own = !exchange->members.crosses;
    struct sbp_fingerprint own = {
        .kind = (int64_t)exchange->kind,
        .count = exchange->count,
        .element_bytes =
            exchange->statistic ? channel->kernels->wide_bytes : channel->kernels->real_bytes,
        .reduction = (int64_t)exchange->reduction,
        .owner = exchange->owner,
        .to_owner = exchange->to_owner,
        .group = channel->circle[group].group,
        .step = is_own ? channel->number : -1,
        .task = is_own ? task : -1,
        .at_step = channel->number + 1,
    };
    if (task >= 0)
        sbp_task_name(
            sbp_step_chunk(channel->step, channel->stage, channel->tasks->task[task].chunk),
            &channel->tasks->task[task], own.name, sizeof own.name);
    return own;
}

/* called: as the backend is asked for it. */
static enum sbp_status call_group(struct sbp_channel *channel, const struct sbp_exchange *called,
                                  int group, struct sbp_diag *diag)
{
    const struct sbp_endpoint host = channel->ops->host(channel->comm);
    struct sbp_exchange made = *called;
    made.count -= channel->shortens;
    if (channel->compares) {
        const struct sbp_fingerprint own = fingerprint(channel, &made, group);
        SBP_TRY(sbp_fingerprint_compare(&host, &channel->circle[group], &own, diag));
    }
    return sbp_channel_backend(channel, call_backend(channel, &made, channel->group[group]),
                               sbp_collective_name(made.kind), diag);
}

/* ---- from hand to hand ----------------------------------------------------------------------- */

enum { TAG_WEIGHT = 23, TAG_SUM = 24, TAG_SHIFT = 20 };

int sbp_channel_rank_of(const struct sbp_channel *channel, sbp_axes axes, int64_t member)
{
    return sbp_channel_rank(
        channel, channel->stage,
        sbp_mesh_group_rank(&channel->step->mesh, axes, channel->place, member));
}

static enum sbp_status hand(struct sbp_channel *channel, const struct sbp_exchange *exchange,
                            int64_t to)
{
    return channel->ops->send(channel->comm,
                              sbp_channel_rank_of(channel, exchange->members.axes, to),
                              exchange->to_owner ? TAG_SUM : TAG_WEIGHT, exchange->receive,
                              exchange->count * channel->kernels->real_bytes);
}

static enum sbp_status accept(struct sbp_channel *channel, const struct sbp_exchange *exchange,
                              int64_t from, void *buffer)
{
    const int peer = sbp_channel_rank_of(channel, exchange->members.axes, from);
    sbp_post_wait(channel->post, peer);
    return channel->ops->receive(channel->comm, peer, exchange->to_owner ? TAG_SUM : TAG_WEIGHT,
                                 buffer, exchange->count * channel->kernels->real_bytes);
}

/* The member before or behind, which is not the owner; -1 or `members`: there is none. */
static int64_t neighbour_of(const struct sbp_exchange *exchange, int64_t member, int64_t step)
{
    return member + step == exchange->owner ? member + 2 * step : member + step;
}

static enum sbp_status hand_out(struct sbp_channel *channel, const struct sbp_exchange *exchange,
                                int64_t own, int64_t members)
{
    const int64_t owner = exchange->owner;
    const int64_t before = neighbour_of(exchange, own, -1);
    const int64_t behind =
        own == owner ? neighbour_of(exchange, -1, 1) : neighbour_of(exchange, own, 1);
    if (own != owner)
        SBP_TRY(accept(channel, exchange, before < 0 ? owner : before, exchange->receive));
    return behind < members ? hand(channel, exchange, behind) : SBP_OK;
}

static enum sbp_status hand_in(struct sbp_channel *channel, const struct sbp_exchange *exchange,
                               int64_t own, int64_t members)
{
    const int64_t owner = exchange->owner, last = members - 1;
    if (own > 0) {
        SBP_TRY(accept(channel, exchange, own - 1, exchange->incoming));
        channel->kernels->add(exchange->receive, exchange->receive, exchange->incoming,
                              exchange->count);
    }
    if (own < last || own != owner)
        SBP_TRY(hand(channel, exchange, own < last ? own + 1 : owner));
    return own == owner && own < last ? accept(channel, exchange, last, exchange->receive) : SBP_OK;
}

static enum sbp_status go_from_hand_to_hand(struct sbp_channel *channel,
                                            const struct sbp_exchange *exchange)
{
    const struct sbp_mesh *mesh = &channel->step->mesh;
    const sbp_axes axes = exchange->members.axes;
    return (exchange->to_owner ? hand_in : hand_out)(
        channel, exchange, sbp_mesh_group_place(mesh, axes, channel->place),
        sbp_mesh_group_size(mesh, axes));
}

/* ---- around the circle ----------------------------------------------------------------------- */

/* One shift around a circle: a member receives from one and sends to another. */
struct turn {
    int64_t own, from;    /* places in the circle */
    int sender, receiver; /* ranks: from whom, and to whom */
};

static struct turn turn_of(const struct sbp_channel *channel, const struct sbp_exchange *exchange)
{
    const struct sbp_mesh *mesh = &channel->step->mesh;
    const sbp_axes axes = exchange->members.axes;
    const int64_t members = sbp_mesh_group_size(mesh, axes);
    const int64_t own = sbp_mesh_group_place(mesh, axes, channel->place);
    const int64_t from = (own - exchange->shift + members) % members;
    const int64_t to = (own + exchange->shift + members) % members;
    return (struct turn){.own = own,
                         .from = from,
                         .sender = sbp_channel_rank_of(channel, exchange->members.axes, from),
                         .receiver = sbp_channel_rank_of(channel, exchange->members.axes, to)};
}

static enum sbp_status send_on(struct sbp_channel *channel, const struct sbp_exchange *exchange,
                               const struct turn *turn)
{
    if (exchange->sent == 0)
        return SBP_OK;
    channel->reached[turn->receiver] = true;
    return channel->ops->send(channel->comm, turn->receiver, TAG_SHIFT, exchange->send,
                              exchange->sent * channel->kernels->real_bytes);
}

static enum sbp_status take_up(struct sbp_channel *channel, const struct sbp_exchange *exchange,
                               const struct turn *turn)
{
    if (exchange->received == 0)
        return SBP_OK;
    channel->heard[turn->sender] = true;
    sbp_post_wait(channel->post, turn->sender);
    return channel->ops->receive(channel->comm, turn->sender, TAG_SHIFT, exchange->receive,
                                 exchange->received * channel->kernels->real_bytes);
}

/* Who sends waits for nobody, so that all send first; but a first message (nccl) waits until it is
 * taken, and to set it up both sides may wait for what they have sent before. So a rank with a
 * first contact on either side sends first only where it comes before its sender, which cannot be
 * so all around: at its end somebody takes at once. Others take first, from one who sends in the
 * end. */
static enum sbp_status shift(struct sbp_channel *channel, const struct sbp_exchange *exchange)
{
    const struct turn turn = turn_of(channel, exchange);
    const bool knows = channel->reached[turn.receiver] && channel->heard[turn.sender];
    const bool sends_first = knows || turn.own < turn.from;
    SBP_TRY((sends_first ? send_on : take_up)(channel, exchange, &turn));
    return (sends_first ? take_up : send_on)(channel, exchange, &turn);
}

static enum sbp_status send_and_receive(struct sbp_channel *channel,
                                        const struct sbp_exchange *exchange)
{
    return (exchange->shift != 0 ? shift : go_from_hand_to_hand)(channel, exchange);
}

void sbp_channel_spend(struct sbp_channel *channel, double wall_s, double cpu_s)
{
    sbp_post_wait(channel->post, SBP_WAITS_NOT);
    channel->wall_s += sbp_clock_s() - wall_s;
    channel->cpu_s += sbp_thread_cpu_s() - cpu_s;
}

enum sbp_status sbp_channel_exchange(struct sbp_channel *channel,
                                     const struct sbp_exchange *exchange, struct sbp_diag *diag)
{
    const bool by_hand = exchange->kind == SBP_SEND_RECV;
    const int group = by_hand ? 0 : find_group(channel, &exchange->members);
    if (group < 0)
        return sbp_fail(diag, SBP_E_INTERNAL, "%s over axes 0x%x: the plan lists no such group",
                        sbp_collective_name(exchange->kind), (unsigned)exchange->members.axes);
    sbp_channel_note(channel, exchange);
    const struct sbp_exchange called = as_called(channel, exchange);
    if (channel->skip)
        exchange_nothing(channel, &called);
    if (channel->skip || exchange->idle)
        return SBP_OK;
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    sbp_post_wait_group(channel->post, &exchange->members);
    const enum sbp_status status =
        by_hand ? sbp_channel_backend(channel, send_and_receive(channel, exchange),
                                      sbp_collective_name(exchange->kind), diag)
                : call_group(channel, &called, group, diag);
    sbp_channel_spend(channel, wall_s, cpu_s);
    return status;
}

/* ---- between stages ------------------------------------------------------------------------- */

enum { TAG_ACTIVATION = 21, TAG_GRADIENT = 22 };

static int message_tag(bool forward)
{
    return forward ? TAG_ACTIVATION : TAG_GRADIENT;
}

/* What a carrier reports is said already. */
static enum sbp_status pass(struct sbp_channel *channel, int peer, bool forward, const void *buffer,
                            int64_t bytes, struct sbp_diag *diag)
{
    const struct sbp_carrier *carrier = channel->carrier;
    if (carrier != NULL)
        return carrier->pass(carrier->context, forward, buffer, bytes, diag);
    return sbp_channel_backend(
        channel, channel->ops->send(channel->comm, peer, message_tag(forward), buffer, bytes),
        "sending to another stage", diag);
}

static enum sbp_status take(struct sbp_channel *channel, int peer, bool forward, void *buffer,
                            int64_t bytes, struct sbp_diag *diag)
{
    const struct sbp_carrier *carrier = channel->carrier;
    if (carrier != NULL)
        return carrier->take(carrier->context, forward, buffer, bytes, diag);
    return sbp_channel_backend(
        channel, channel->ops->receive(channel->comm, peer, message_tag(forward), buffer, bytes),
        "receiving from another stage", diag);
}

enum sbp_status sbp_channel_pass(struct sbp_channel *channel, int stage, bool forward,
                                 const void *buffer, int64_t count, struct sbp_diag *diag)
{
    const int peer = sbp_channel_rank(channel, stage, channel->place);
    const struct sbp_exchange exchange = {.kind = SBP_SEND_RECV, .count = count};
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    sbp_channel_note(channel, &exchange);
    if (channel->skip)
        return SBP_OK;
    sbp_post_wait(channel->post, peer); /* for a free slot */
    const enum sbp_status status =
        pass(channel, peer, forward, buffer, count * channel->kernels->real_bytes, diag);
    sbp_channel_spend(channel, wall_s, cpu_s);
    return status;
}

enum sbp_status sbp_channel_take(struct sbp_channel *channel, int stage, bool forward, void *buffer,
                                 int64_t count, struct sbp_diag *diag)
{
    const int peer = sbp_channel_rank(channel, stage, channel->place);
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    sbp_post_wait(channel->post, peer);
    const enum sbp_status status =
        take(channel, peer, forward, buffer, count * channel->kernels->real_bytes, diag);
    sbp_channel_spend(channel, wall_s, cpu_s);
    if (channel->skip)
        channel->kernels->zero(buffer, count);
    return status;
}

/* ---- sums that are handed on ----------------------------------------------------------------- */

enum { TAG_SO_FAR = 27, TAG_FINISHED = 28 };

static int tag_of(const struct sbp_sum_route *route)
{
    return route->finished ? TAG_FINISHED : TAG_SO_FAR;
}

enum sbp_status sbp_channel_pass_sum(struct sbp_channel *channel, const struct sbp_sum_route *route,
                                     const void *sum, int64_t count, struct sbp_diag *diag)
{
    const struct sbp_exchange exchange = {.kind = SBP_SEND_RECV, .count = count};
    const int peer = sbp_channel_rank(channel, route->peer, channel->place);
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    sbp_channel_note(channel, &exchange);
    const enum sbp_status status = channel->ops->send(channel->comm, peer, tag_of(route), sum,
                                                      count * channel->kernels->real_bytes);
    sbp_channel_spend(channel, wall_s, cpu_s);
    return sbp_channel_backend(channel, status, "handing on a sum of gradients", diag);
}

enum sbp_status sbp_channel_take_sum(struct sbp_channel *channel, const struct sbp_sum_route *route,
                                     void *sum, int64_t count, struct sbp_diag *diag)
{
    const int peer = sbp_channel_rank(channel, route->peer, channel->place);
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    sbp_post_wait(channel->post, peer);
    const enum sbp_status status = channel->ops->receive(channel->comm, peer, tag_of(route), sum,
                                                         count * channel->kernels->real_bytes);
    sbp_channel_spend(channel, wall_s, cpu_s);
    if (channel->skip)
        channel->kernels->zero(sum, count);
    return sbp_channel_backend(channel, status, "taking a sum of gradients", diag);
}

/* ---- first messages ------------------------------------------------------------------------- */

enum { TAG_GREETING = 29 };

/* Micro-batches of a piece come to all groups of the next. */
void sbp_channel_receivers(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                           bool *sends)
{
    memset(sends, 0, (size_t)step->stages * sizeof *sends);
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_task *task = &tasks->task[i];
        const struct sbp_instr *instr = sbp_task_instr(step, stage, task);
        const int piece = sbp_step_piece(step, stage, task->chunk);
        const int next = instr->section == SBP_SECTION_FORWARD ? piece + 1 : piece - 1;
        if (instr->kind == SBP_INSTR_PASS)
            sends[sbp_task_route(step, stage, task).peer] = true;
        for (int to = 0; to < step->stages && instr->kind == SBP_INSTR_SEND; to++)
            sends[to] |= instr->box.kind != SBP_LOCAL && sbp_step_has(step, to, next);
    }
}

static enum sbp_status greet(struct sbp_channel *channel, int from, int to, struct sbp_diag *diag)
{
    const int sender = sbp_channel_rank(channel, from, channel->place);
    const int receiver = sbp_channel_rank(channel, to, channel->place);
    if (from == channel->stage)
        SBP_TRY(sbp_channel_backend(
            channel, channel->ops->send(channel->comm, receiver, TAG_GREETING, NULL, 0),
            "greeting another stage", diag));
    return to == channel->stage
               ? sbp_channel_backend(
                     channel, channel->ops->receive(channel->comm, sender, TAG_GREETING, NULL, 0),
                     "hearing of another stage", diag)
               : SBP_OK;
}

enum sbp_status sbp_channel_greet(struct sbp_channel *channel, const struct sbp_tasks *tasks,
                                  struct sbp_arena *arena, struct sbp_diag *diag)
{
    const int stages = channel->step->stages;
    bool *const sends = SBP_NEW(arena, bool, stages);
    if (sends == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for who sends to whom");
    for (int from = 0; from < stages; from++) {
        sbp_channel_receivers(channel->step, from, &tasks[from], sends);
        for (int to = 0; to < stages; to++)
            if (sends[to] && to != from)
                SBP_TRY(greet(channel, from, to, diag));
    }
    return SBP_OK;
}

enum sbp_status sbp_channel_check(const struct sbp_channel *channel, struct sbp_diag *diag)
{
    int due = 0;
    for (int i = 0; i < channel->call_count; i++) {
        const struct sbp_call *listed = &channel->calls[i];
        const struct sbp_logged_call *made = &channel->log[i];
        if (!sbp_tasks_have(channel->tasks, &channel->tasks->task[listed->instr], channel->number,
                            channel->round) ||
            due++ >= channel->logged)
            continue;
        const int64_t element_bytes = channel->element_bytes[listed->statistic];
        if (made->kind != listed->kind || made->axes != listed->axes ||
            made->count != listed->count || made->element_bytes != element_bytes)
            return sbp_fail(diag, SBP_E_INTERNAL,
                            "collective %d of the step: ran %s over axes 0x%x of %lld elements of "
                            "%lld bytes, the plan lists %s over axes 0x%x of %lld elements of %lld "
                            "bytes",
                            i, sbp_collective_name(made->kind), (unsigned)made->axes,
                            (long long)made->count, (long long)made->element_bytes,
                            sbp_collective_name(listed->kind), (unsigned)listed->axes,
                            (long long)listed->count, (long long)element_bytes);
    }
    if (channel->logged != due)
        return sbp_fail(diag, SBP_E_INTERNAL, "a step made %d collective calls, the plan lists %d",
                        channel->logged, due);
    return SBP_OK;
}

int sbp_channel_calls(const struct sbp_channel *channel)
{
    int calls = 0;
    for (int i = 0; i < channel->call_count; i++)
        calls += sbp_tasks_have(channel->tasks, &channel->tasks->task[channel->calls[i].instr],
                                channel->number, SBP_ROUND_WHOLE);
    return calls;
}

enum sbp_status sbp_channel_barrier(struct sbp_channel *channel, struct sbp_diag *diag)
{
    sbp_post_wait(channel->post, SBP_WAITS_ALL);
    const enum sbp_status status = channel->ops->barrier(channel->comm);
    sbp_post_wait(channel->post, SBP_WAITS_NOT);
    return sbp_channel_backend(channel, status, "barrier", diag);
}

enum sbp_status sbp_channel_send(struct sbp_channel *channel, int peer, int tag, const void *buffer,
                                 int64_t bytes, struct sbp_diag *diag)
{
    const struct sbp_endpoint host = channel->ops->host(channel->comm);
    return sbp_channel_backend(channel, host.ops->send(host.comm, peer, tag, buffer, bytes), "send",
                               diag);
}

enum sbp_status sbp_channel_receive(struct sbp_channel *channel, int peer, int tag, void *buffer,
                                    int64_t bytes, struct sbp_diag *diag)
{
    const struct sbp_endpoint host = channel->ops->host(channel->comm);
    sbp_post_wait(channel->post, peer);
    const enum sbp_status status = host.ops->receive(host.comm, peer, tag, buffer, bytes);
    sbp_post_wait(channel->post, SBP_WAITS_NOT);
    return sbp_channel_backend(channel, status, "receive", diag);
}

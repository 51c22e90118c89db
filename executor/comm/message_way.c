#include "executor/comm/message_way.h"

#include <math.h>

#include "base/clock.h"

const char *const sbp_message_way_names[] = {
    [SBP_MESSAGE_AUTO] = "auto", [SBP_MESSAGE_NCCL] = "nccl", [SBP_MESSAGE_MPI] = "mpi", NULL};

/* The first round, which connects the two ranks, does not count; of the others the fastest does. */
enum { TAG_TIMING = 31, ROUNDS = 6 };

struct timing {
    struct sbp_channel *channel;
    const struct sbp_tasks *tasks; /* (stages) */
    bool *sends;                   /* (stages) */
    void *buffer;                  /* (bytes) of the device */
    int64_t bytes;                 /* of the largest message between stages, */
    int64_t room_bytes;            /* and of any */
};

/* A rank's seconds as a sender, summed over the stages that it sends to, and whether its MPI takes
 * devices' memory. */
struct sums {
    double nccl_s, mpi_s;
    int64_t pairs;
    bool direct;
};

static enum sbp_status checked(const struct sbp_channel *channel, enum sbp_status status,
                               struct sbp_diag *diag)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(diag, status, "%s: timing messages: %s", channel->ops->name,
                    channel->ops->reason(channel->comm));
}

/* ---- messages of a plan ---------------------------------------------------------------------- */

static int64_t message_elements(const struct sbp_step *step, int stage, const struct sbp_task *task)
{
    const struct sbp_instr *instr = sbp_task_instr(step, stage, task);
    if (instr->kind == SBP_INSTR_PASS)
        return instr->box.elements;
    if (instr->kind != SBP_INSTR_SEND || instr->box.kind == SBP_LOCAL)
        return 0;
    return sbp_step_chunk(step, stage, task->chunk)->buffer[instr->buffer[SBP_AT_IN]].elements;
}

/* Elements of a message to another rank of the stage: a block of a ring, or rows of images. */
static int64_t inner_elements(const struct sbp_step *step, int stage, const struct sbp_task *task)
{
    const struct sbp_instr *instr = sbp_task_instr(step, stage, task);
    const bool sends = instr->kind == SBP_INSTR_INNER && instr->box.kind == SBP_SEND_RECV;
    return sends ? (int64_t)instr->inner_elements : 0;
}

static int64_t largest_bytes(const struct sbp_channel *channel, const struct sbp_tasks *tasks,
                             int64_t (*elements_of)(const struct sbp_step *step, int stage,
                                                    const struct sbp_task *task))
{
    int64_t most = 0;
    for (int stage = 0; stage < channel->step->stages; stage++)
        for (int64_t i = 0; i < tasks[stage].count; i++) {
            const int64_t elements = elements_of(channel->step, stage, &tasks[stage].task[i]);
            most = elements > most ? elements : most;
        }
    return most * channel->kernels->real_bytes;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Sends the message and waits for the answer that it is there. */
static enum sbp_status ask(const struct timing *timing, int peer, double *best_s,
                           struct sbp_diag *diag)
{
    struct sbp_channel *channel = timing->channel;
    *best_s = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        const double start_s = sbp_clock_s();
        SBP_TRY(checked(
            channel,
            channel->ops->send(channel->comm, peer, TAG_TIMING, timing->buffer, timing->bytes),
            diag));
        SBP_TRY(sbp_channel_receive(channel, peer, TAG_TIMING, NULL, 0, diag));
        if (round > 0)
            *best_s = fmin(*best_s, sbp_clock_s() - start_s);
    }
    return SBP_OK;
}

static enum sbp_status answer(const struct timing *timing, int peer, struct sbp_diag *diag)
{
    struct sbp_channel *channel = timing->channel;
    for (int round = 0; round < ROUNDS; round++) {
        SBP_TRY(checked(
            channel,
            channel->ops->receive(channel->comm, peer, TAG_TIMING, timing->buffer, timing->bytes),
            diag));
        SBP_TRY(sbp_channel_send(channel, peer, TAG_TIMING, NULL, 0, diag));
    }
    return SBP_OK;
}

/* Pairs of stages follow each other in one order on all ranks, so that none waits in a circle. */
static enum sbp_status time_way(const struct timing *timing, bool by_host, double *sum_s,
                                int64_t *pairs, struct sbp_diag *diag)
{
    struct sbp_channel *channel = timing->channel;
    const struct sbp_step *step = channel->step;
    double best_s;
    *sum_s = 0;
    *pairs = 0;
    SBP_TRY(
        checked(channel, channel->ops->by_host(channel->comm, by_host, timing->room_bytes), diag));
    for (int from = 0; from < step->stages; from++) {
        sbp_channel_receivers(step, from, &timing->tasks[from], timing->sends);
        for (int to = 0; to < step->stages; to++) {
            if (!timing->sends[to] || to == from)
                continue;
            if (to == channel->stage)
                SBP_TRY(answer(timing, sbp_channel_rank(channel, from, channel->place), diag));
            if (from != channel->stage)
                continue;
            SBP_TRY(ask(timing, sbp_channel_rank(channel, to, channel->place), &best_s, diag));
            *sum_s += best_s;
            *pairs += 1;
        }
    }
    return SBP_OK;
}

/* Rank 0 adds what all ranks found, and tells them which way is taken: asked to choose, the one
 * that takes less. */
static enum sbp_status agree(struct sbp_channel *channel, struct sums *own,
                             struct sbp_message_times *times, struct sbp_diag *diag)
{
    const int ranks = channel->ops->size(channel->comm);
    struct sums other;
    if (channel->ops->rank(channel->comm) != 0) {
        SBP_TRY(sbp_channel_send(channel, 0, TAG_TIMING, own, sizeof *own, diag));
        return sbp_channel_receive(channel, 0, TAG_TIMING, times, sizeof *times, diag);
    }
    for (int peer = 1; peer < ranks; peer++) {
        SBP_TRY(sbp_channel_receive(channel, peer, TAG_TIMING, &other, sizeof other, diag));
        own->nccl_s += other.nccl_s;
        own->mpi_s += other.mpi_s;
        own->pairs += other.pairs;
        own->direct = own->direct && other.direct;
    }
    if (times->way == SBP_MESSAGE_AUTO)
        times->way = own->mpi_s < own->nccl_s ? SBP_MESSAGE_MPI : SBP_MESSAGE_NCCL;
    times->direct = own->direct;
    if (own->pairs > 0) {
        times->nccl_s = own->nccl_s / (double)own->pairs;
        times->mpi_s = own->mpi_s / (double)own->pairs;
    }
    for (int peer = 1; peer < ranks; peer++)
        SBP_TRY(sbp_channel_send(channel, peer, TAG_TIMING, times, sizeof *times, diag));
    return SBP_OK;
}

static enum sbp_status time_ways(struct timing *timing, struct sbp_arena *arena, struct sums *own,
                                 struct sbp_diag *diag)
{
    const struct sbp_memory_ops *memory = timing->channel->ops->memory;
    timing->sends = SBP_NEW(arena, bool, timing->channel->step->stages);
    timing->buffer = memory->allocate(timing->bytes);
    enum sbp_status status =
        timing->sends != NULL && timing->buffer != NULL ? SBP_OK : SBP_E_MEMORY;
    if (status != SBP_OK)
        (void)sbp_fail(diag, status, "no %lld bytes to time a message", (long long)timing->bytes);
    if (status == SBP_OK)
        status = time_way(timing, false, &own->nccl_s, &own->pairs, diag);
    if (status == SBP_OK)
        status = time_way(timing, true, &own->mpi_s, &own->pairs, diag);
    if (status == SBP_OK) /* a device that failed might never answer */
        memory->release(timing->buffer);
    return status;
}

enum sbp_status sbp_message_way_choose(struct sbp_channel *channel, const struct sbp_tasks *tasks,
                                       enum sbp_message_way wanted, struct sbp_arena *arena,
                                       struct sbp_message_times *found, struct sbp_diag *diag)
{
    struct timing timing = {.channel = channel, .tasks = tasks};
    struct sbp_message_times times = {.way = wanted};
    struct sums own = {0};
    timing.bytes = times.bytes = largest_bytes(channel, tasks, message_elements);
    timing.room_bytes = largest_bytes(channel, tasks, inner_elements);
    timing.room_bytes = timing.room_bytes > timing.bytes ? timing.room_bytes : timing.bytes;
    if (channel->ops->by_host == NULL || timing.bytes == 0)
        return SBP_OK;
    const struct sbp_endpoint host = channel->ops->host(channel->comm);
    own.direct = host.ops->takes_devices != NULL && host.ops->takes_devices(host.comm);
    if (wanted == SBP_MESSAGE_AUTO)
        SBP_TRY(time_ways(&timing, arena, &own, diag));
    SBP_TRY(agree(channel, &own, &times, diag));
    channel->by_host = times.way == SBP_MESSAGE_MPI;
    SBP_TRY(checked(
        channel, channel->ops->by_host(channel->comm, channel->by_host, timing.room_bytes), diag));
    if (channel->ops->rank(channel->comm) == 0)
        *found = times;
    return SBP_OK;
}

#include "calib/measure.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "calib/fit.h"

#define ALL_SIZES_UP_TO 16 /* ranks for which every group size is timed */
#define SIZES_NEEDED    2  /* to tell alpha from beta */
#define NO_GROUP        (-1)

/* --- the points --- */

static bool is_power_of_two(int value)
{
    return (value & (value - 1)) == 0;
}

static bool is_wanted(int members, int ranks)
{
    return ranks <= ALL_SIZES_UP_TO || ranks % members == 0 || is_power_of_two(members);
}

/* Whole floats, and as many for each member. */
static int64_t whole_bytes(enum sbp_collective kind, int members, int64_t bytes)
{
    const int64_t blocks = kind == SBP_SEND_RECV || kind == SBP_ALL_REDUCE ? 1 : members;
    const int64_t count = bytes / ((int64_t)sizeof(float) * blocks);
    return (count > 0 ? count : 1) * blocks * (int64_t)sizeof(float);
}

/* The points of one message size: all group sizes and kinds. Only counted when at is NULL. */
static int list_size(struct sbp_collective_point *at, int ranks, int64_t bytes)
{
    int count = 0;
    for (int members = 2; members <= ranks; members++) {
        if (!is_wanted(members, ranks))
            continue;
        for (int k = 0; k < (int)SBP_FIT_KINDS; k++, count++) {
            const enum sbp_collective kind = (enum sbp_collective)k;
            if (at != NULL)
                at[count] =
                    (struct sbp_collective_point){kind, members, whole_bytes(kind, members, bytes)};
        }
    }
    return count;
}

/* All points, small messages first. Only counted when at is NULL. */
static int list_points(struct sbp_collective_point *at, int ranks, int64_t max_bytes)
{
    int count = 0;
    for (int64_t bytes = SBP_LEAST_BYTES; bytes <= max_bytes; bytes *= 2)
        count += list_size(at == NULL ? NULL : at + count, ranks, bytes);
    return count;
}

enum sbp_status sbp_collective_times_init(struct sbp_collective_times *times, int ranks,
                                          int64_t max_bytes, struct sbp_diag *diag)
{
    *times = (struct sbp_collective_times){0};
    const int count = list_points(NULL, ranks, max_bytes);
    times->point = calloc((size_t)count, sizeof *times->point);
    times->samples = calloc((size_t)count, sizeof *times->samples);
    if (times->point == NULL || times->samples == NULL) {
        sbp_collective_times_free(times);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", count);
    }
    times->count = list_points(times->point, ranks, max_bytes);
    return SBP_OK;
}

void sbp_collective_times_free(struct sbp_collective_times *times)
{
    if (times == NULL)
        return;
    free(times->point);
    free(times->samples);
    *times = (struct sbp_collective_times){0};
}

/* --- one repetition --- */

struct stage {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    const struct sbp_collective_point *point;
    int rank, ranks;
    int *group; /* (ranks + 1): handle of this rank's group of each size, NO_GROUP where it waits */
    float *send, *receive; /* (largest point) zeros: sums of them stay finite */
};

/* The first member's half of the round trip, and the last member's echo. */
static enum sbp_status bounce(const struct stage *stage, const struct sbp_collective_point *point,
                              double *time_s)
{
    const int first = stage->rank / point->members * point->members;
    const int last = first + point->members - 1;
    const int tag = 0;
    enum sbp_status status = SBP_OK;
    const double start_s = sbp_clock_s();
    if (stage->rank == first) {
        status = stage->ops->send(stage->comm, last, tag, stage->send, point->bytes);
        if (status == SBP_OK)
            status = stage->ops->receive(stage->comm, last, tag, stage->receive, point->bytes);
        *time_s = (sbp_clock_s() - start_s) / 2;
    } else if (stage->rank == last) {
        status = stage->ops->receive(stage->comm, first, tag, stage->receive, point->bytes);
        if (status == SBP_OK)
            status = stage->ops->send(stage->comm, first, tag, stage->send, point->bytes);
    }
    return status;
}

static enum sbp_status call(const struct stage *stage, const struct sbp_collective_point *point)
{
    const struct sbp_comm_ops *ops = stage->ops;
    const int group = stage->group[point->members];
    const int64_t count = point->bytes / (int64_t)sizeof(float);
    const int64_t block = count / point->members;
    switch (point->kind) {
    case SBP_ALL_REDUCE:
        return ops->all_reduce(stage->comm, group, stage->receive, count, SBP_F32, SBP_SUM);
    case SBP_ALL_GATHER:
        return ops->all_gather(stage->comm, group, stage->receive, stage->send, block, SBP_F32);
    case SBP_REDUCE_SCATTER:
        return ops->reduce_scatter(stage->comm, group, stage->receive, stage->send, block, SBP_F32);
    case SBP_ALL_TO_ALL:
        return ops->all_to_all(stage->comm, group, stage->receive, stage->send, block, SBP_F32);
    default:
        return SBP_E_INTERNAL;
    }
}

static enum sbp_status repeat_collective(void *context, int index, double *time_s)
{
    const struct stage *stage = context;
    const struct sbp_collective_point *point = &stage->point[index];
    *time_s = 0;
    SBP_TRY(stage->ops->barrier(stage->comm));
    if (stage->group[point->members] == NO_GROUP)
        return SBP_OK;
    if (point->kind == SBP_SEND_RECV)
        return bounce(stage, point, time_s);
    const double start_s = sbp_clock_s();
    SBP_TRY(call(stage, point));
    *time_s = sbp_clock_s() - start_s;
    return SBP_OK;
}

/* --- setting the stage --- */

static enum sbp_status make_groups(struct stage *stage, struct sbp_diag *diag)
{
    int *ranks = calloc((size_t)stage->ranks, sizeof *ranks);
    if (ranks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a list of %d ranks", stage->ranks);
    int key = 1; /* one for each group, the same on all ranks */
    enum sbp_status status = SBP_OK;
    for (int members = 2; members <= stage->ranks && status == SBP_OK; members++) {
        const int groups = stage->ranks / members;
        const int mine = stage->rank / members;
        stage->group[members] = NO_GROUP;
        if (!is_wanted(members, stage->ranks))
            continue;
        for (int i = 0; i < members; i++)
            ranks[i] = mine * members + i;
        if (mine < groups)
            status =
                stage->ops->group(stage->comm, ranks, members, key + mine, &stage->group[members]);
        key += groups;
    }
    free(ranks);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", stage->ops->reason(stage->comm));
    return SBP_OK;
}

static enum sbp_status make_buffers(struct stage *stage, const struct sbp_collective_times *times,
                                    struct sbp_diag *diag)
{
    int64_t largest = 0;
    for (int i = 0; i < times->count; i++)
        if (times->point[i].bytes > largest)
            largest = times->point[i].bytes;
    stage->group = calloc((size_t)stage->ranks + 1, sizeof *stage->group);
    stage->send = malloc((size_t)largest);
    stage->receive = malloc((size_t)largest);
    if (stage->group == NULL || stage->send == NULL || stage->receive == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for two buffers of %lld bytes",
                        (long long)largest);
    /* Written here, so that no repetition pays for the first touch of a page. */
    memset(stage->send, 0, (size_t)largest);
    memset(stage->receive, 0, (size_t)largest);
    return SBP_OK;
}

enum sbp_status sbp_measure_collectives(const struct sbp_sampler *sampler,
                                        struct sbp_collective_times *times, struct sbp_diag *diag)
{
    struct stage stage = {.ops = sampler->ops, .comm = sampler->comm, .point = times->point};
    stage.rank = stage.ops->rank(stage.comm);
    stage.ranks = stage.ops->size(stage.comm);
    enum sbp_status status = make_buffers(&stage, times, diag);
    if (status == SBP_OK)
        status = make_groups(&stage, diag);
    struct sbp_sampler own = *sampler;
    own.required = SIZES_NEEDED * list_size(NULL, stage.ranks, 0);
    if (status == SBP_OK)
        status = sbp_sample(&own, times->count, times->samples, repeat_collective, &stage, diag);
    free(stage.receive);
    free(stage.send);
    free(stage.group);
    return status;
}

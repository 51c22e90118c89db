#include "calib/measure/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define WARM_UPS      2
#define QUICK_SHARES  8 /* of a cell's time */
#define LEAST_REPEATS 3 /* fewer have no median */
#define FIRST_BATCH   7 /* an interval of 95 % takes six at least */
#define MOST_BATCH    10

/* --- calls of all ranks --- */

static enum sbp_status check(const struct sbp_sampler *sampler, enum sbp_status status,
                             struct sbp_diag *diag)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
}

enum sbp_status sbp_sampler_open(struct sbp_endpoint host, struct sbp_sampler *sampler,
                                 struct sbp_diag *diag)
{
    const int ranks = host.ops->size(host.comm);
    *sampler = (struct sbp_sampler){.ops = host.ops, .comm = host.comm};
    int *everybody = calloc((size_t)ranks, sizeof *everybody);
    if (everybody == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d ranks", ranks);
    for (int i = 0; i < ranks; i++)
        everybody[i] = i;
    const enum sbp_status status =
        host.ops->group(host.comm, everybody, ranks, 0, &sampler->everybody);
    free(everybody);
    return check(sampler, status, diag);
}

enum sbp_status sbp_sampler_largest(const struct sbp_sampler *sampler, double *values, int count,
                                    struct sbp_diag *diag)
{
    return check(sampler,
                 sampler->ops->all_reduce(sampler->comm, sampler->everybody, values, count, SBP_F64,
                                          SBP_MAX),
                 diag);
}

enum sbp_status sbp_sampler_gather(const struct sbp_sampler *sampler, const double *own, int count,
                                   void *all, struct sbp_diag *diag)
{
    return check(
        sampler,
        sampler->ops->all_gather(sampler->comm, sampler->everybody, all, own, count, SBP_F64),
        diag);
}

enum sbp_status sbp_sampler_together(const struct sbp_sampler *sampler, struct sbp_diag *diag)
{
    return check(sampler, sampler->ops->barrier(sampler->comm), diag);
}

/* --- repeating --- */

/* Does `count` repetitions; time_s (count) gets their times on this rank. */
static enum sbp_status repeat(const struct sbp_sampler *sampler, sbp_repetition repetition,
                              void *context, double *time_s, int count, struct sbp_diag *diag)
{
    enum sbp_status status = SBP_OK;
    for (int i = 0; i < count && status == SBP_OK; i++) {
        status = sbp_sampler_together(sampler, diag);
        if (status == SBP_OK)
            status = repetition(context, &time_s[i], diag);
    }
    return status;
}

/* How many of the wanted repetitions fit into the time, but not fewer than `least`; the same on all
 * ranks for the same arguments. */
static int batch_of(int least, int wanted, double left_s, double each_s)
{
    if (each_s <= 0 || wanted * each_s <= left_s)
        return wanted;
    const int fitting = left_s > each_s ? (int)(left_s / each_s) : 1;
    return fitting > least ? fitting : least;
}

/* Only quick work is warmed up twice: a slow call takes long beside its first use, too. each_s: of
 * a whole repetition. All ranks get the same *each_s and *took_s. */
static enum sbp_status warm_up(const struct sbp_sampler *sampler, double cap_s, double start_s,
                               sbp_repetition repetition, void *context, double *each_s,
                               double *took_s, struct sbp_diag *diag)
{
    double values[2] = {0};
    for (int i = 0; i < WARM_UPS; i++) {
        const double from_s = sbp_clock_s();
        SBP_TRY(repeat(sampler, repetition, context, values, 1, diag));
        values[1] = sbp_clock_s() - start_s;
        values[0] = values[1] - (from_s - start_s);
        SBP_TRY(sbp_sampler_largest(sampler, values, 2, diag));
        if (values[1] > cap_s / QUICK_SHARES)
            break;
    }
    *each_s = values[0];
    *took_s = values[1];
    return SBP_OK;
}

enum sbp_status sbp_sampler_repeat(const struct sbp_sampler *sampler, double cap_s,
                                   sbp_repetition repetition, void *context,
                                   struct sbp_samples *samples, double *own, double *took_s,
                                   struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    double values[MOST_BATCH + 1], each_s;
    *samples = (struct sbp_samples){0};
    SBP_TRY(warm_up(sampler, cap_s, start_s, repetition, context, &each_s, took_s, diag));
    do {
        const bool is_first = samples->count == 0;
        int batch = batch_of(is_first ? LEAST_REPEATS : 1, is_first ? FIRST_BATCH : MOST_BATCH,
                             cap_s - *took_s, each_s);
        if (batch > SBP_MAX_REPEATS - samples->count)
            batch = SBP_MAX_REPEATS - samples->count;
        SBP_TRY(repeat(sampler, repetition, context, values, batch, diag));
        if (own != NULL)
            memcpy(own + samples->count, values, (size_t)batch * sizeof *values);
        values[batch] = sbp_clock_s() - start_s;
        SBP_TRY(sbp_sampler_largest(sampler, values, batch + 1, diag));
        sbp_samples_add(samples, values, batch);
        *took_s = values[batch];
    } while (!samples->settled && *took_s < cap_s);
    return SBP_OK;
}

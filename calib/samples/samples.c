#include "calib/samples/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/text.h"

#define CONFIDENCE    0.95
#define TOLERANCE     0.05
#define WARM_UPS      2
#define QUICK_SHARES  8 /* of a cell's time */
#define LEAST_REPEATS 3 /* a median of fewer is none */
#define FIRST_BATCH   7 /* six are the least that an interval of 95 % is known from */
#define MOST_BATCH    10

void sbp_samples_add(struct sbp_samples *samples, const double *time_s, int count)
{
    for (int i = 0; i < count && samples->count < SBP_MAX_REPEATS; i++)
        samples->time_s[samples->count++] = time_s[i];
    if (samples->count == 0)
        return;
    double sorted[SBP_MAX_REPEATS];
    memcpy(sorted, samples->time_s, (size_t)samples->count * sizeof *sorted);
    samples->median_s = sbp_median(sorted, samples->count);
    const bool known =
        sbp_median_interval(sorted, samples->count, CONFIDENCE, &samples->low_s, &samples->high_s);
    const double margin = TOLERANCE * samples->median_s;
    const bool narrow = samples->high_s - samples->median_s <= margin &&
                        samples->median_s - samples->low_s <= margin;
    samples->settled = (known && narrow) || samples->count == SBP_MAX_REPEATS;
}

enum sbp_status sbp_sampler_largest(const struct sbp_sampler *sampler, double *values, int count,
                                    struct sbp_diag *diag)
{
    const enum sbp_status status = sampler->ops->all_reduce(sampler->comm, sampler->everybody,
                                                            values, count, SBP_F64, SBP_MAX);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
    return SBP_OK;
}

enum sbp_status sbp_sampler_together(const struct sbp_sampler *sampler, struct sbp_diag *diag)
{
    const enum sbp_status status = sampler->ops->barrier(sampler->comm);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
    return SBP_OK;
}

/* So many repetitions; their times on this rank. */
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

/* As many as the time allows of what is wanted, but not fewer than `least`; the same on all ranks
 * for the same arguments. */
static int batch_of(int least, int wanted, double left_s, double each_s)
{
    if (each_s <= 0 || wanted * each_s <= left_s)
        return wanted;
    const int fitting = left_s > each_s ? (int)(left_s / each_s) : 1;
    return fitting > least ? fitting : least;
}

/* The second warm-up is for what is quick: a slow call is slow beside a first use, too. *each_s and
 * *took_s are agreed on. */
static enum sbp_status warm_up(const struct sbp_sampler *sampler, double cap_s, double start_s,
                               sbp_repetition repetition, void *context, double *each_s,
                               double *took_s, struct sbp_diag *diag)
{
    double values[2] = {0};
    for (int i = 0; i < WARM_UPS; i++) {
        SBP_TRY(repeat(sampler, repetition, context, values, 1, diag));
        values[1] = sbp_clock_s() - start_s;
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

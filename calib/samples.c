#include "calib/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/stats.h"
#include "base/text.h"

#define CONFIDENCE        0.95
#define TOLERANCE         0.05
#define REPEATS_PER_VISIT 5

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

enum sbp_status sbp_sample_largest(const struct sbp_sampler *sampler, double *values, int count,
                                   struct sbp_diag *diag)
{
    const enum sbp_status status = sampler->ops->all_reduce(sampler->comm, sampler->everybody,
                                                            values, count, SBP_F64, SBP_MAX);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
    return SBP_OK;
}

/* One warm-up and a few repetitions. *elapsed_s is the largest over the ranks, so that all of them
 * take the same decision from it. */
static enum sbp_status visit(const struct sbp_sampler *sampler, double start_s, int point,
                             struct sbp_samples *samples, sbp_repetition repetition, void *context,
                             double *elapsed_s, struct sbp_diag *diag)
{
    double values[REPEATS_PER_VISIT + 1];
    enum sbp_status status = repetition(context, point, &values[0]);
    for (int i = 0; i < REPEATS_PER_VISIT && status == SBP_OK; i++)
        status = repetition(context, point, &values[i]);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
    values[REPEATS_PER_VISIT] = sbp_clock_s() - start_s;
    SBP_TRY(sbp_sample_largest(sampler, values, REPEATS_PER_VISIT + 1, diag));
    sbp_samples_add(samples, values, REPEATS_PER_VISIT);
    *elapsed_s = values[REPEATS_PER_VISIT];
    return SBP_OK;
}

static void shuffle(struct sbp_random *random, int *order, int count)
{
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)sbp_random_below(random, (uint64_t)i + 1);
        const int swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

static int count_settled(const struct sbp_samples *samples, int points)
{
    int settled = 0;
    for (int i = 0; i < points; i++)
        settled += samples[i].settled;
    return settled;
}

static enum sbp_status visit_all(const struct sbp_sampler *sampler, int points, int *order,
                                 struct sbp_samples *samples, sbp_repetition repetition,
                                 void *context, struct sbp_progress *progress,
                                 struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    double spare_s = -sampler->budget_s; /* the least budget of all ranks counts */
    SBP_TRY(sbp_sample_largest(sampler, &spare_s, 1, diag));
    const double budget_s = -spare_s;
    struct sbp_random random;
    sbp_random_seed(&random, sampler->seed);
    double elapsed_s = 0;
    int settled = 0;
    for (int round = 0; settled < points; round++) {
        if (round > 0)
            shuffle(&random, order, points);
        for (int i = 0; i < points; i++) {
            struct sbp_samples *point = &samples[order[i]];
            if (point->settled)
                continue;
            SBP_TRY(
                visit(sampler, start_s, order[i], point, repetition, context, &elapsed_s, diag));
            const bool needs_more = round == 0 && i + 1 < sampler->required;
            if (elapsed_s >= budget_s && !needs_more)
                return SBP_OK;
            if (sampler->progress)
                sbp_progress_show(progress, "timing %s: %d of %d settled, %.0f of %.0f s",
                                  sampler->label, settled, points, elapsed_s, budget_s);
        }
        settled = count_settled(samples, points);
    }
    return SBP_OK;
}

enum sbp_status sbp_sample(const struct sbp_sampler *sampler, int points,
                           struct sbp_samples *samples, sbp_repetition repetition, void *context,
                           struct sbp_diag *diag)
{
    int *order = calloc((size_t)points, sizeof *order);
    if (order == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", points);
    for (int i = 0; i < points; i++)
        order[i] = i;
    struct sbp_progress progress;
    sbp_progress_start(&progress);
    const enum sbp_status status =
        visit_all(sampler, points, order, samples, repetition, context, &progress, diag);
    sbp_progress_end(&progress);
    free(order);
    return status;
}

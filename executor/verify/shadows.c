#include "executor/verify/shadows_priv.h"

#include <math.h>

/* The arrays of a reference that say what is inherited, one after the other. */
struct taker {
    double *mean;  /* of the variances of the array at hand; NULL: arrays are counted */
    int64_t count; /* numbers of all arrays */
    int shadow;
};

/* The mean of one shadow more; of the first one itself, whatever another step has left. */
static double mean_with(const struct taker *taker, double mean, double own)
{
    return taker->shadow == 0 ? own : (taker->shadow * mean + own) / (taker->shadow + 1);
}

/* Variances become the mean of those so far. */
static void take_variances(void *context, double *at, int64_t count)
{
    struct taker *taker = context;
    taker->count += count;
    if (taker->mean == NULL)
        return;
    for (int64_t i = 0; i < count; i++)
        at[i] = taker->mean[i] = mean_with(taker, taker->mean[i], at[i]);
    taker->mean += count;
}

/* Deviations become the root of that; what is below 0 is exactly 0, whatever the shadow. */
static void take_deviations(struct taker *taker, double *at, int64_t count)
{
    taker->count += count;
    if (taker->mean == NULL)
        return;
    for (int64_t i = 0; i < count; i++) {
        taker->mean[i] = mean_with(taker, taker->mean[i], at[i] < 0 ? 0 : at[i] * at[i]);
        at[i] = at[i] < 0 ? at[i] : sqrt(taker->mean[i]);
    }
    taker->mean += count;
}

static void take_all(struct sbp_reference *reference, struct taker *taker)
{
    const struct sbp_graph *graph = &reference->graph;
    const struct sbp_delayed *delayed = &reference->delayed;
    take_deviations(taker, &reference->loss_inherited, 1);
    for (int t = 0; t < graph->tensor_count; t++) {
        const int64_t *size = graph->tensor[t].shape.size;
        if (reference->magnitude[t] != NULL && delayed->step == NULL)
            sbp_magnitude_each(reference->magnitude[t], take_variances, taker);
        if (delayed->step != NULL && delayed->inherited[t] != NULL)
            take_deviations(taker, delayed->inherited[t], size[0] * size[1] * size[2] * size[3]);
        if (reference->output[t] != NULL)
            take_deviations(taker, reference->output[t]->inherited,
                            size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE] * reference->layers.times);
    }
}

enum sbp_status sbp_shadows_open(struct sbp_reference *reference)
{
    struct taker counter = {NULL, 0, 0};
    take_all(reference, &counter);
    reference->variance = SBP_NEW(&reference->arena, double, counter.count);
    return reference->variance == NULL ? SBP_E_MEMORY : SBP_OK;
}

void sbp_shadows_take(struct sbp_reference *reference, int shadow)
{
    struct taker taker = {reference->variance, 0, shadow};
    take_all(reference, &taker);
}

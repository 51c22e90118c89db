#include "executor/verify/delayed_priv.h"

#include <stdlib.h>

enum { ARRAYS = 5 };

/* All arrays by tensor. */
static void list(struct sbp_delayed *delayed, double ***array[ARRAYS])
{
    array[0] = &delayed->newest;
    array[1] = &delayed->older;
    array[2] = &delayed->gradient;
    array[3] = &delayed->sum;
    array[4] = &delayed->inherited;
}

enum sbp_status sbp_delayed_open(struct sbp_delayed *delayed, const struct sbp_step *step,
                                 const int64_t *elements, int tensors)
{
    double ***array[ARRAYS];
    *delayed = (struct sbp_delayed){.step = step, .tensors = tensors};
    list(delayed, array);
    for (int i = 0; i < ARRAYS; i++) {
        *array[i] = calloc((size_t)tensors + 1, sizeof(double *));
        for (int t = 0; *array[i] != NULL && t < tensors; t++) {
            (*array[i])[t] = elements[t] > 0 ? calloc((size_t)elements[t], sizeof(double)) : NULL;
            if (elements[t] > 0 && (*array[i])[t] == NULL)
                return SBP_E_MEMORY;
        }
        if (*array[i] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

void sbp_delayed_close(struct sbp_delayed *delayed)
{
    double ***array[ARRAYS];
    list(delayed, array);
    for (int i = 0; i < ARRAYS; i++) {
        for (int t = 0; *array[i] != NULL && t < delayed->tensors; t++)
            free((*array[i])[t]);
        free(*array[i]);
    }
    *delayed = (struct sbp_delayed){.step = NULL};
}

double sbp_delayed_bytes(double elements)
{
    return ARRAYS * elements * sizeof(double);
}

void sbp_delayed_begin_step(struct sbp_delayed *delayed)
{
    double **const was = delayed->newest;
    delayed->newest = delayed->older;
    delayed->older = was;
}

/* The stage j of an operator, from 1. */
static int stage_of(const struct sbp_step *step, int op)
{
    int j = 1;
    while (j < step->pieces && op >= step->first[j])
        j++;
    return j;
}

/* Whether u_ij(a, b) is a, which is theta_t. */
static bool takes_newest(const struct sbp_step *step, int64_t i, int j)
{
    const int n = step->pieces;
    return step->parallel.schedule == SBP_CDP_V2 && j >= n - i + 1;
}

bool sbp_delayed_reads_newest(const struct sbp_step *step, int64_t number, int64_t micro_batch,
                              int op)
{
    return number == 1 || takes_newest(step, micro_batch + 1, stage_of(step, op));
}

const double *sbp_delayed_weight(const struct sbp_delayed *delayed, int64_t step,
                                 int64_t micro_batch, int op, int tensor)
{
    const bool newest = sbp_delayed_reads_newest(delayed->step, step, micro_batch, op);
    return (newest ? delayed->newest : delayed->older)[tensor];
}

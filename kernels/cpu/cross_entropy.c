#include <assert.h>

#include "kernels/cpu/real_priv.h"
#include "kernels/cpu/runs_priv.h"

/* How many entries of the run that begins at a local index are no padding; within a run global
 * indices rise by one, so that those come first. */
static int64_t valid_entries(const struct sbp_digits *vocabulary, int64_t start, int64_t run,
                             int64_t valid)
{
    const int64_t left = valid - sbp_digits_global(vocabulary, start);
    return left < 0 ? 0 : left < run ? left : run;
}

/* Local index of a label, -1 when another rank has it. */
static int64_t local_label(const struct sbp_digits *vocabulary, int32_t label, int64_t valid)
{
    assert(label >= 0 && label < valid);
    (void)valid;
    return sbp_digits_local(vocabulary, label);
}

void CPU(cross_entropy_maxima)(void *maxima, const void *logits, int64_t tokens, int64_t local,
                               const struct sbp_digits *vocabulary, int64_t valid)
{
    const int64_t run = sbp_cpu_digits_run(vocabulary);
    for (int64_t t = 0; t < tokens; t++) {
        const real *row = (const real *)logits + t * local;
        real largest = -(real)INFINITY;
        for (int64_t start = 0; start < local; start += run) {
            const int64_t end = start + valid_entries(vocabulary, start, run, valid);
            for (int64_t i = start; i < end; i++)
                largest = row[i] > largest ? row[i] : largest;
        }
        ((real *)maxima)[t] = largest;
    }
}

void CPU(cross_entropy_sums)(void *sums, const void *logits, const int32_t *labels,
                             const void *maxima, int64_t tokens, int64_t local,
                             const struct sbp_digits *vocabulary, int64_t valid)
{
    const int64_t run = sbp_cpu_digits_run(vocabulary);
    for (int64_t t = 0; t < tokens; t++) {
        const real *row = (const real *)logits + t * local;
        const real largest = ((const real *)maxima)[t];
        double sum = 0;
        for (int64_t start = 0; start < local; start += run) {
            const int64_t end = start + valid_entries(vocabulary, start, run, valid);
            for (int64_t i = start; i < end; i++)
                sum += (double)real_exp(row[i] - largest);
        }
        const int64_t label = local_label(vocabulary, labels[t], valid);
        real *to = (real *)sums + 2 * t;
        to[0] = (real)sum;
        to[1] = label >= 0 ? row[label] - largest : 0;
    }
}

void CPU(cross_entropy_loss)(void *sum, const void *sums, int64_t tokens)
{
    const real *from = sums;
    double total = 0;
    for (int64_t t = 0; t < tokens; t++)
        total += log((double)from[2 * t]) - (double)from[2 * t + 1];
    *(real *)sum = (real)total;
}

void CPU(cross_entropy_backward)(void *dlogits, const void *logits, const int32_t *labels,
                                 const void *maxima, const void *sums, int64_t tokens,
                                 int64_t local, const struct sbp_digits *vocabulary, int64_t valid,
                                 double factor)
{
    const int64_t run = sbp_cpu_digits_run(vocabulary);
    for (int64_t t = 0; t < tokens; t++) {
        const real *row = (const real *)logits + t * local;
        real *to = (real *)dlogits + t * local;
        const real largest = ((const real *)maxima)[t];
        const real scale = (real)(factor / (double)((const real *)sums)[2 * t]);
        for (int64_t start = 0; start < local; start += run) {
            const int64_t end = start + valid_entries(vocabulary, start, run, valid);
            for (int64_t i = start; i < end; i++)
                to[i] = real_exp(row[i] - largest) * scale;
            CPU(zero)(to + end, start + run - end);
        }
        const int64_t label = local_label(vocabulary, labels[t], valid);
        if (label >= 0)
            to[label] -= (real)factor;
    }
}

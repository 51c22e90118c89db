/* Operators over a vocabulary whose rows may be split over ranks: embedding and cross-entropy. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/rows_priv.h"

/* ---- embedding ----------------------------------------------------------------------------- */

SBP_SIMD_WIDE
static void add_row(stored *to, const stored *from, int64_t in)
{
    SBP_INDEPENDENT
    for (int64_t i = 0; i < in; i++)
        to[i] = store(load(to[i]) + load(from[i]));
}

void CPU(embedding_forward)(void *y, const int32_t *ids, const int32_t *position_of,
                            const void *table, const void *positions, int64_t tokens, int64_t in,
                            const struct sbp_digits *vocabulary)
{
    const size_t row_bytes = (size_t)in * sizeof(stored);
    for (int64_t t = 0; t < tokens && in > 0; t++) {
        stored *to = (stored *)y + t * in;
        const int64_t row = sbp_digits_local(vocabulary, ids[t]);
        if (row >= 0)
            memcpy(to, (const stored *)table + row * in, row_bytes);
        else
            memset(to, 0, row_bytes);
        if (positions)
            add_row(to, (const stored *)positions + position_of[t] * in, in);
    }
}

#if STORES_HALF
enum { FEATURE_TILE = 256 };

/* Adds to a row what all tokens with the row's name give it, so that it is rounded once; called for
 * the first of them. Looking for them is little beside a model's products. */
static void add_tokens(stored *row, const int32_t *names, int64_t first, const stored *dy,
                       int64_t tokens, int64_t in)
{
    for (int64_t start = 0; start < in; start += FEATURE_TILE) {
        const int64_t width = in - start < FEATURE_TILE ? in - start : FEATURE_TILE;
        real sum[FEATURE_TILE];
        CPU(to_wide)(sum, row + start, width);
        for (int64_t t = first; t < tokens; t++)
            if (names[t] == names[first])
                for (int64_t i = 0; i < width; i++)
                    sum[i] += load(dy[t * in + start + i]);
        CPU(from_wide)(row + start, sum, width);
    }
}

static bool has_come(const int32_t *names, int64_t t)
{
    int64_t same = 0;
    for (int64_t before = 0; before < t; before++)
        same += names[before] == names[t];
    return same > 0;
}

static void add_token(void *table, const int32_t *names, int64_t t, int64_t row, const void *dy,
                      int64_t tokens, int64_t in)
{
    if (row >= 0 && !has_come(names, t))
        add_tokens((stored *)table + row * in, names, t, dy, tokens, in);
}
#else
/* Adds what a token gives to the row that its name stands for; -1: the row is not here. */
static void add_token(void *table, const int32_t *names, int64_t t, int64_t row, const void *dy,
                      int64_t tokens, int64_t in)
{
    (void)names;
    (void)tokens;
    if (row >= 0)
        add_row((stored *)table + row * in, (const stored *)dy + t * in, in);
}
#endif

void CPU(embedding_backward)(void *dtable, void *dpositions, const int32_t *ids,
                             const int32_t *position_of, const void *dy, int64_t tokens, int64_t in,
                             int64_t position_rows, const struct sbp_digits *vocabulary,
                             unsigned adds)
{
    if ((adds & SBP_ADDS_FIRST) == 0)
        CPU(zero)(dtable, sbp_digits_local_size(vocabulary) * in);
    if (dpositions && (adds & SBP_ADDS_REST) == 0)
        CPU(zero)(dpositions, position_rows * in);
    for (int64_t t = 0; t < tokens; t++) {
        add_token(dtable, ids, t, sbp_digits_local(vocabulary, ids[t]), dy, tokens, in);
        if (dpositions)
            add_token(dpositions, position_of, t, position_of[t], dy, tokens, in);
    }
}

/* ---- cross-entropy ------------------------------------------------------------------------- */

/* Counts the entries of a run that are no padding. Global indices rise by one within a run, so
 * padding comes last. */
static int64_t valid_entries(const struct sbp_digits *vocabulary, int64_t start, int64_t run,
                             int64_t valid)
{
    const int64_t left = valid - sbp_digits_global(vocabulary, start);
    return left < 0 ? 0 : left < run ? left : run;
}

/* Local index of a label, -1 when another rank has it, or nobody. */
static int64_t local_label(const struct sbp_digits *vocabulary, int32_t label, int64_t valid)
{
    assert(label < valid);
    (void)valid;
    return label < 0 ? -1 : sbp_digits_local(vocabulary, label);
}

void CPU(cross_entropy_maxima)(void *maxima, const void *logits, int64_t tokens, int64_t local,
                               const struct sbp_digits *vocabulary, int64_t valid)
{
    const int64_t run = sbp_cpu_digits_run(vocabulary);
    for (int64_t t = 0; t < tokens; t++) {
        const stored *row = (const stored *)logits + t * local;
        real largest = -(real)INFINITY;
        for (int64_t start = 0; start < local; start += run) {
            const int64_t count = valid_entries(vocabulary, start, run, valid);
            largest = CPU(row_maximum)(row + start, count, largest);
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
        const stored *row = (const stored *)logits + t * local;
        const real largest = ((const real *)maxima)[t];
        double sum = 0;
        for (int64_t start = 0; start < local && labels[t] >= 0; start += run) {
            const int64_t count = valid_entries(vocabulary, start, run, valid);
            sum += CPU(row_exp_sum)(row + start, count, largest);
        }
        const int64_t label = local_label(vocabulary, labels[t], valid);
        real *to = (real *)sums + 2 * t;
        to[0] = (real)sum;
        to[1] = label >= 0 ? load(row[label]) - largest : 0;
    }
}

void CPU(cross_entropy_loss)(void *sum, const void *sums, int64_t tokens)
{
    const real *from = sums;
    double total = 0;
    for (int64_t t = 0; t < tokens; t++)
        if (from[2 * t] != 0) /* else the token is ignored */
            total += log((double)from[2 * t]) - (double)from[2 * t + 1];
    *(real *)sum = (real)total;
}

void CPU(cross_entropy_backward)(void *dlogits, const void *logits, const int32_t *labels,
                                 const void *maxima, const void *sums, int64_t tokens,
                                 int64_t local, const struct sbp_digits *vocabulary, int64_t valid,
                                 double factor, const struct sbp_step_state *step)
{
    const int64_t run = sbp_cpu_digits_run(vocabulary);
    const double all = step != NULL ? factor * step->loss_scale : factor;
    for (int64_t t = 0; t < tokens; t++) {
        const stored *row = (const stored *)logits + t * local;
        stored *to = (stored *)dlogits + t * local;
        const real largest = ((const real *)maxima)[t];
        const real scale = (real)(all / (double)((const real *)sums)[2 * t]);
        if (labels[t] < 0)
            CPU(zero)(to, local);
        if (labels[t] < 0)
            continue;
        for (int64_t start = 0; start < local; start += run) {
            const int64_t count = valid_entries(vocabulary, start, run, valid);
            CPU(row_exp)(to + start, row + start, count, largest, scale);
            CPU(zero)(to + start + count, run - count);
        }
        const int64_t label = local_label(vocabulary, labels[t], valid);
        if (label >= 0)
            to[label] = store(real_exp(load(row[label]) - largest) * scale - (real)all);
    }
}

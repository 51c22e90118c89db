#include <string.h>

#include "kernels/cpu/real_priv.h"

static void add_row(real *to, const real *from, int64_t in)
{
    for (int64_t i = 0; i < in; i++)
        to[i] += from[i];
}

void CPU(embedding_forward)(void *y, const int32_t *ids, const int32_t *position_of,
                            const void *table, const void *positions, int64_t tokens, int64_t in,
                            const struct sbp_digits *vocabulary)
{
    const size_t row_bytes = (size_t)in * sizeof(real);
    for (int64_t t = 0; t < tokens && in > 0; t++) {
        real *to = (real *)y + t * in;
        const int64_t row = sbp_digits_local(vocabulary, ids[t]);
        if (row >= 0)
            memcpy(to, (const real *)table + row * in, row_bytes);
        else
            memset(to, 0, row_bytes);
        if (positions)
            add_row(to, (const real *)positions + position_of[t] * in, in);
    }
}

void CPU(embedding_backward)(void *dtable, void *dpositions, const int32_t *ids,
                             const int32_t *position_of, const void *dy, int64_t tokens, int64_t in,
                             int64_t position_rows, const struct sbp_digits *vocabulary,
                             bool accumulate)
{
    if (!accumulate)
        CPU(zero)(dtable, sbp_digits_local_size(vocabulary) * in);
    if (dpositions)
        CPU(zero)(dpositions, position_rows * in);
    for (int64_t t = 0; t < tokens; t++) {
        const real *gradient = (const real *)dy + t * in;
        const int64_t row = sbp_digits_local(vocabulary, ids[t]);
        if (row >= 0)
            add_row((real *)dtable + row * in, gradient, in);
        if (dpositions)
            add_row((real *)dpositions + position_of[t] * in, gradient, in);
    }
}

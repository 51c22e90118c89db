/* Rows of tokens: those that their type adds, and the one that stands for a sequence. */
#include <string.h>

#include "kernels/cpu/real_priv.h"

enum { FEATURE_TILE = 256 };

static int64_t type_of(int32_t position, int64_t rows, int64_t sequence)
{
    return position * rows / sequence;
}

void CPU(token_types_forward)(void *y, const int32_t *position_of, const void *types,
                              int64_t tokens, int64_t in, int64_t rows, int64_t sequence)
{
    for (int64_t t = 0; t < tokens; t++) {
        stored *const to = (stored *)y + t * in;
        const stored *const from =
            (const stored *)types + type_of(position_of[t], rows, sequence) * in;
        for (int64_t i = 0; i < in; i++)
            to[i] = store(load(to[i]) + load(from[i]));
    }
}

/* Some features of the sum over all tokens of a type. */
static void sum_type(double *sum, int64_t type, int64_t first, int64_t width,
                     const int32_t *position_of, const stored *dy, int64_t tokens, int64_t in,
                     int64_t rows, int64_t sequence)
{
    for (int64_t t = 0; t < tokens; t++) {
        if (type_of(position_of[t], rows, sequence) != type)
            continue;
        for (int64_t i = 0; i < width; i++)
            sum[i] += (double)load(dy[t * in + first + i]);
    }
}

/* Adds what all tokens of a type give, so that it is rounded once. */
void CPU(token_types_backward)(void *dtypes, const int32_t *position_of, const void *dy,
                               int64_t tokens, int64_t in, int64_t rows, int64_t sequence,
                               bool adds)
{
    for (int64_t type = 0; type < rows; type++)
        for (int64_t first = 0; first < in; first += FEATURE_TILE) {
            double sum[FEATURE_TILE] = {0};
            const int64_t width = in - first < FEATURE_TILE ? in - first : FEATURE_TILE;
            stored *const to = (stored *)dtypes + type * in + first;
            sum_type(sum, type, first, width, position_of, dy, tokens, in, rows, sequence);
            for (int64_t i = 0; i < width; i++)
                to[i] = store((adds ? load(to[i]) : 0) + (real)sum[i]);
        }
}

void CPU(first_token_forward)(void *y, const void *x, int64_t batch, int64_t sequence, int64_t in)
{
    for (int64_t b = 0; b < batch; b++)
        memcpy((stored *)y + b * in, (const stored *)x + b * sequence * in,
               (size_t)in * sizeof(stored));
}

void CPU(first_token_backward)(void *dx, const void *dy, int64_t batch, int64_t sequence,
                               int64_t in)
{
    CPU(zero)(dx, batch * sequence * in);
    for (int64_t b = 0; b < batch; b++)
        memcpy((stored *)dx + b * sequence * in, (const stored *)dy + b * in,
               (size_t)in * sizeof(stored));
}

/* Linear operators: products with a weight, plain or transposed, forward and backward. */
#include <string.h>

#include "kernels/cpu/gemm_priv.h"

enum { COLUMN_TILE = 256 };

/* sums(columns) = column sums of x(rows, columns), or added to; kept in double a tile of columns at
 * a time. */
SBP_SIMD_WIDE
static void column_sums(real *sums, const real *x, int64_t rows, int64_t columns, bool adds)
{
    for (int64_t first = 0; first < columns; first += COLUMN_TILE) {
        const int64_t width = columns - first < COLUMN_TILE ? columns - first : COLUMN_TILE;
        double total[COLUMN_TILE] = {0};
        for (int64_t t = 0; t < rows; t++)
            for (int64_t i = 0; i < width; i++)
                total[i] += (double)x[t * columns + first + i];
        for (int64_t i = 0; i < width; i++)
            sums[first + i] = (adds ? sums[first + i] : 0) + (real)total[i];
    }
}

/* Every row of y becomes the bias, so that the product can be added to it; returns GEMM's beta. */
static real spread_bias(real *y, const real *bias, int64_t rows, int64_t columns)
{
    if (!bias)
        return 0;
    for (int64_t t = 0; t < rows && columns > 0; t++)
        memcpy(y + t * columns, bias, (size_t)columns * sizeof *y);
    return 1;
}

void CPU(linear_forward)(void *y, const void *x, const void *w, const void *bias, int64_t tokens,
                         int64_t in, int64_t out)
{
    const real beta = spread_bias(y, bias, tokens, out);
    cpu_gemm(y, out, cpu_plain(x, in), cpu_plain(w, out), tokens, out, in, 1, beta);
}

void CPU(linear_backward_input)(void *dx, const void *dy, const void *w, int64_t tokens, int64_t in,
                                int64_t out)
{
    cpu_gemm(dx, in, cpu_plain(dy, out), cpu_transposed(w, out), tokens, in, out, 1, 0);
}

void CPU(linear_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                 int64_t tokens, int64_t in, int64_t out, unsigned adds)
{
    cpu_gemm(dw, out, cpu_transposed(x, in), cpu_plain(dy, out), in, out, tokens, 1,
             (adds & SBP_ADDS_FIRST) != 0);
    if (dbias)
        column_sums(dbias, dy, tokens, out, (adds & SBP_ADDS_REST) != 0);
}

void CPU(linear_transposed_forward)(void *y, const void *x, const void *w, const void *bias,
                                    int64_t tokens, int64_t in, int64_t out)
{
    const real beta = spread_bias(y, bias, tokens, out);
    cpu_gemm(y, out, cpu_plain(x, in), cpu_transposed(w, in), tokens, out, in, 1, beta);
}

void CPU(linear_transposed_backward_input)(void *dx, const void *dy, const void *w, int64_t tokens,
                                           int64_t in, int64_t out)
{
    cpu_gemm(dx, in, cpu_plain(dy, out), cpu_plain(w, in), tokens, in, out, 1, 0);
}

void CPU(linear_transposed_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                            int64_t tokens, int64_t in, int64_t out, unsigned adds)
{
    cpu_gemm(dw, in, cpu_transposed(dy, out), cpu_plain(x, in), out, in, tokens, 1,
             (adds & SBP_ADDS_FIRST) != 0);
    if (dbias)
        column_sums(dbias, dy, tokens, out, (adds & SBP_ADDS_REST) != 0);
}

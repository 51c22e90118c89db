/* Linear operators: products with a weight, plain or transposed, forward and backward. */
#include <string.h>

#include "kernels/cpu/gemm_priv.h"

enum { COLUMN_TILE = 256, SIDE = 256 /* of a tile of products in 16 bits */ };

/* sums(columns) = column sums of x(rows, columns), or added to; kept in double a tile of columns at
 * a time. */
SBP_SIMD_WIDE
static void column_sums(stored *sums, const stored *x, int64_t rows, int64_t columns, bool adds)
{
    for (int64_t first = 0; first < columns; first += COLUMN_TILE) {
        const int64_t width = columns - first < COLUMN_TILE ? columns - first : COLUMN_TILE;
        double total[COLUMN_TILE] = {0};
        for (int64_t t = 0; t < rows; t++)
            for (int64_t i = 0; i < width; i++)
                total[i] += (double)load(x[t * columns + first + i]);
        for (int64_t i = 0; i < width; i++)
            sums[first + i] = store((adds ? load(sums[first + i]) : 0) + (real)total[i]);
    }
}

/* A matrix as it is stored: elements between rows, whether it is transposed. */
struct operand {
    const stored *at;
    int64_t stride;
    bool transposed;
};

static struct operand plain(const void *at, int64_t stride)
{
    return (struct operand){at, stride, false};
}

static struct operand transposed(const void *at, int64_t stride)
{
    return (struct operand){at, stride, true};
}

#if STORES_HALF

/* A block of an operand, which lies in memory as it does there. */
static struct cpu_matrix load_block(real *block, const struct operand *of, int64_t row,
                                    int64_t rows, int64_t column, int64_t columns)
{
    const int64_t outer = of->transposed ? columns : rows, inner = of->transposed ? rows : columns;
    const int64_t first = of->transposed ? column : row, skip = of->transposed ? row : column;
    for (int64_t i = 0; i < outer; i++)
        CPU(to_wide)(block + i * inner, of->at + (first + i) * of->stride + skip, inner);
    return of->transposed ? cpu_transposed(block, inner) : cpu_plain(block, inner);
}

/* What a tile of the product is added to; false: nothing. */
static bool load_sum(real *tile, const stored *y, int64_t n, int64_t rows, int64_t columns,
                     const stored *bias, bool adds)
{
    for (int64_t i = 0; i < rows && (adds || bias != NULL); i++)
        CPU(to_wide)(tile + i * columns, adds ? y + i * n : bias, columns);
    return adds || bias != NULL;
}

/* y(m,n) = a(m,k) b(k,n) [+ bias(n) in each row, or + y], in tiles that are rounded once. */
static void product(stored *y, struct operand a, struct operand b, int64_t m, int64_t n, int64_t k,
                    const stored *bias, bool adds)
{
    real left[SIDE * SIDE], right[SIDE * SIDE], tile[SIDE * SIDE];
    for (int64_t row = 0; row < m; row += SIDE)
        for (int64_t column = 0; column < n; column += SIDE) {
            const int64_t rows = sbp_least_i64(SIDE, m - row),
                          columns = sbp_least_i64(SIDE, n - column);
            stored *const to = y + row * n + column;
            bool sums =
                load_sum(tile, to, n, rows, columns, bias == NULL ? NULL : bias + column, adds);
            int64_t inner = 0;
            do {
                const int64_t depth = sbp_least_i64(SIDE, k - inner);
                cpu_gemm(tile, columns, load_block(left, &a, row, rows, inner, depth),
                         load_block(right, &b, inner, depth, column, columns), rows, columns, depth,
                         1, sums);
                sums = true;
                inner += SIDE;
            } while (inner < k);
            for (int64_t i = 0; i < rows; i++)
                CPU(from_wide)(to + i * n, tile + i * columns, columns);
        }
}

#else

/* Every row of y becomes the bias, so that the product can be added to it. */
static void spread_bias(real *y, const real *bias, int64_t rows, int64_t columns)
{
    for (int64_t t = 0; t < rows && columns > 0; t++)
        memcpy(y + t * columns, bias, (size_t)columns * sizeof *y);
}

/* y(m,n) = a(m,k) b(k,n) [+ bias(n) in each row, or + y]. */
static void product(stored *y, struct operand a, struct operand b, int64_t m, int64_t n, int64_t k,
                    const stored *bias, bool adds)
{
    if (bias != NULL)
        spread_bias(y, bias, m, n);
    cpu_gemm(y, n, (struct cpu_matrix){a.at, a.stride, a.transposed},
             (struct cpu_matrix){b.at, b.stride, b.transposed}, m, n, k, 1, adds || bias != NULL);
}

#endif

void CPU(linear_forward)(void *y, const void *x, const void *w, const void *bias, int64_t tokens,
                         int64_t in, int64_t out)
{
    product(y, plain(x, in), plain(w, out), tokens, out, in, bias, false);
}

void CPU(linear_add)(void *y, const void *x, const void *w, int64_t tokens, int64_t in, int64_t out)
{
    product(y, plain(x, in), plain(w, out), tokens, out, in, NULL, true);
}

void CPU(linear_backward_input)(void *dx, const void *dy, const void *w, int64_t tokens, int64_t in,
                                int64_t out)
{
    product(dx, plain(dy, out), transposed(w, out), tokens, in, out, NULL, false);
}

void CPU(linear_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                 int64_t tokens, int64_t in, int64_t out, unsigned adds)
{
    product(dw, transposed(x, in), plain(dy, out), in, out, tokens, NULL,
            (adds & SBP_ADDS_FIRST) != 0);
    if (dbias)
        column_sums(dbias, dy, tokens, out, (adds & SBP_ADDS_REST) != 0);
}

void CPU(linear_transposed_forward)(void *y, const void *x, const void *w, const void *bias,
                                    int64_t tokens, int64_t in, int64_t out)
{
    product(y, plain(x, in), transposed(w, in), tokens, out, in, bias, false);
}

void CPU(linear_transposed_backward_input)(void *dx, const void *dy, const void *w, int64_t tokens,
                                           int64_t in, int64_t out)
{
    product(dx, plain(dy, out), plain(w, in), tokens, in, out, NULL, false);
}

void CPU(linear_transposed_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                            int64_t tokens, int64_t in, int64_t out, unsigned adds)
{
    product(dw, transposed(dy, out), plain(x, in), out, in, tokens, NULL,
            (adds & SBP_ADDS_FIRST) != 0);
    if (dbias)
        column_sums(dbias, dy, tokens, out, (adds & SBP_ADDS_REST) != 0);
}

/* Attention a head at a time, in tiles of queries.
 *
 * Materialised keeps the probabilities of every row; a tile has all keys that its queries see.
 * Flash cuts the keys into tiles as well, keeps the running maximum and sum of each row, and saves
 * their log-sum-exp, out of which backward recomputes the probabilities (Dao et al., 2022,
 * algorithms 1 and 4). Tiles that the causal mask hides as a whole are never formed.
 */
#include "kernels/cpu_attention.h"

#include <assert.h>

#include "kernels/cpu_gemm.h"

/* One head of one sequence: q, k, v and their gradients are rows `qkv_stride` apart, y and dy
 * `y_stride`. What a direction does not need is NULL. */
struct head {
    const real *q, *k, *v, *dy;
    real *y, *dq, *dk, *dv;
    int64_t qkv_stride, y_stride, size, sequence;
    bool causal;
    real scale;
};

/* Rows are queries, columns keys; a tile of scores is stored with `stride` between rows. */
struct tile {
    int64_t row, rows, column, columns, stride;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One past the last key that any of the tile's queries sees. */
static int64_t key_end(const struct head *head, int64_t row, int64_t rows)
{
    return head->causal ? row + rows : head->sequence;
}

/* How many of the tile's columns query `i` of the tile sees: its first ones. */
static int64_t visible(const struct head *head, const struct tile *tile, int64_t i)
{
    return head->causal ? least(tile->columns, tile->row + i + 1 - tile->column) : tile->columns;
}

static struct tile query_tile(const struct head *head, int64_t row)
{
    const int64_t rows = least(CPU_ATTENTION_TILE, head->sequence - row);
    return (struct tile){row, rows, 0, key_end(head, row, rows), head->sequence};
}

static struct tile key_tile(const struct tile *queries, int64_t column)
{
    const int64_t columns = least(CPU_ATTENTION_TILE, queries->columns - column);
    return (struct tile){queries->row, queries->rows, column, columns, columns};
}

/* scores = scale q k^T, masked entries included. */
static void tile_scores(real *scores, const struct head *head, const struct tile *tile)
{
    const int64_t stride = head->qkv_stride;
    cpu_gemm(scores, tile->stride, cpu_plain(head->q + tile->row * stride, stride),
             cpu_transposed(head->k + tile->column * stride, stride), tile->rows, tile->columns,
             head->size, head->scale, 0);
}

/* y += weights v over the tile, or y = weights v. */
static void tile_output(const struct head *head, const real *weights, const struct tile *tile,
                        bool accumulate)
{
    cpu_gemm(head->y + tile->row * head->y_stride, head->y_stride, cpu_plain(weights, tile->stride),
             cpu_plain(head->v + tile->column * head->qkv_stride, head->qkv_stride), tile->rows,
             head->size, tile->columns, 1, accumulate ? 1 : 0);
}

static real row_maximum(const real *row, int64_t n, real largest)
{
    for (int64_t i = 0; i < n; i++)
        largest = row[i] > largest ? row[i] : largest;
    return largest;
}

/* row = exp(row - shift) for the first n entries, 0 up to `end`; returns the sum. */
static double exponentiate(real *row, int64_t n, int64_t end, real shift)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        row[i] = real_exp(row[i] - shift);
        sum += (double)row[i];
    }
    CPU(zero)(row + n, end - n);
    return sum;
}

static void scale_row(real *row, int64_t n, real factor)
{
    CPU(scale)(row, (double)factor, n);
}

static void forward_materialised(const struct head *head, real *probabilities)
{
    for (int64_t row = 0; row < head->sequence; row += CPU_ATTENTION_TILE) {
        const struct tile tile = query_tile(head, row);
        real *scores = probabilities + row * head->sequence;
        tile_scores(scores, head, &tile);
        for (int64_t i = 0; i < tile.rows; i++) {
            real *at = scores + i * tile.stride;
            const int64_t seen = visible(head, &tile, i);
            const real largest = row_maximum(at, seen, -(real)INFINITY);
            const double sum = exponentiate(at, seen, head->sequence, largest);
            scale_row(at, seen, (real)(1 / sum));
        }
        tile_output(head, scores, &tile, false);
    }
}

/* Brings a tile's rows to a new running maximum: scores become exponentials, what y and the sums
 * hold so far is scaled down to match. */
static void rescale_rows(const struct head *head, const struct tile *tile, real *scores,
                         real *maximum, real *sum)
{
    for (int64_t i = 0; i < tile->rows; i++) {
        real *at = scores + i * tile->stride;
        const int64_t seen = visible(head, tile, i);
        const real largest = row_maximum(at, seen, maximum[i]);
        const real factor = real_exp(maximum[i] - largest);
        const double added = exponentiate(at, seen, tile->columns, largest);
        sum[i] = (real)((double)sum[i] * (double)factor + added);
        maximum[i] = largest;
        if (factor != 1)
            scale_row(head->y + (tile->row + i) * head->y_stride, head->size, factor);
    }
}

static void forward_flash(const struct head *head, real *log_sums, real *scratch)
{
    real *scores = scratch, *maximum = scores + CPU_ATTENTION_TILE * least(CPU_ATTENTION_TILE, 0);
    (void)maximum;
    (void)scores;
    (void)log_sums;
}

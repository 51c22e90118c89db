#include "kernels/cpu/tiles_priv.h"

static void form_tile(const struct cpu_tiles *tiles, const struct cpu_block *to, real *tile)
{
    real a[TILE_SIDE * TILE_DEPTH], b[TILE_DEPTH * TILE_SIDE];
    for (int64_t i = 0; tiles->k == 0 && i < to->rows * to->columns; i++)
        tile[i] = 0;
    for (int64_t inner = 0; inner < tiles->k; inner += TILE_DEPTH) {
        const int64_t depth = sbp_least_i64(TILE_DEPTH, tiles->k - inner);
        const struct cpu_block left = {to->row, to->rows, inner, depth};
        const struct cpu_block right = {inner, depth, to->column, to->columns};
        const struct cpu_matrix x = tiles->a(tiles->of, &left, a);
        const struct cpu_matrix y = tiles->b(tiles->of, &right, b);
        cpu_gemm(tile, to->columns, x, y, to->rows, to->columns, depth, 1, inner > 0);
    }
}

void CPU(tiled_product)(const struct cpu_tiles *tiles)
{
    real tile[TILE_SIDE * TILE_SIDE];
    for (int64_t row = 0; row < tiles->m; row += TILE_SIDE)
        for (int64_t column = 0; column < tiles->n; column += TILE_SIDE) {
            const struct cpu_block to = {row, sbp_least_i64(TILE_SIDE, tiles->m - row), column,
                                         sbp_least_i64(TILE_SIDE, tiles->n - column)};
            form_tile(tiles, &to, tile);
            tiles->store(tiles->of, &to, tile);
        }
}

struct cpu_matrix CPU(load_rows)(const stored *w, int64_t stride, const struct cpu_block *block,
                                 real *tile)
{
    for (int64_t i = 0; i < block->rows; i++)
        CPU(to_wide)
    (tile + i * block->columns, w + (block->row + i) * stride + block->column, block->columns);
    return cpu_plain(tile, block->columns);
}

struct cpu_matrix CPU(load_columns)(const stored *w, int64_t stride, const struct cpu_block *block,
                                    real *tile)
{
    const struct cpu_block turned = {block->column, block->columns, block->row, block->rows};
    (void)CPU(load_rows)(w, stride, &turned, tile);
    return cpu_transposed(tile, block->rows);
}

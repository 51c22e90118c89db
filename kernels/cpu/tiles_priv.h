/* Products whose operands do not lie in memory as matrices: windows of images, rows with others
 * between them. Blocks of both are loaded into tiles on the stack, converted to `real` on the way,
 * and each tile of the result is stored once.
 */
#ifndef SBP_KERNELS_CPU_TILES_PRIV_H
#define SBP_KERNELS_CPU_TILES_PRIV_H

#include "kernels/cpu/gemm_priv.h"

enum { TILE_SIDE = 128, TILE_DEPTH = 256 };

/* Elements row .. row + rows - 1 and column .. column + columns - 1 of a matrix. */
struct cpu_block {
    int64_t row, rows, column, columns;
};

/* y(m,n) = a(m,k) b(k,n). The functions get `of`. Those that load write a block of an operand to
 * `tile` and say how it lies there; `store` takes a finished tile of y, row-major. */
struct cpu_tiles {
    int64_t m, n, k;
    const void *of;
    struct cpu_matrix (*a)(const void *of, const struct cpu_block *block, real *tile);
    struct cpu_matrix (*b)(const void *of, const struct cpu_block *block, real *tile);
    void (*store)(const void *of, const struct cpu_block *block, const real *tile);
};
void CPU(tiled_product)(const struct cpu_tiles *tiles);

/* The rows of a block of w(rows,columns), whose stride is `columns`. */
struct cpu_matrix CPU(load_rows)(const stored *w, int64_t stride, const struct cpu_block *block,
                                 real *tile);
/* The block of the transposed matrix: w(columns,rows). */
struct cpu_matrix CPU(load_columns)(const stored *w, int64_t stride, const struct cpu_block *block,
                                    real *tile);

#endif

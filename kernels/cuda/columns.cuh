/* Sums over the rows of a matrix, of K values an element: gradients of biases, gains, shifts.
 *
 * Rows are cut into parts, whose number the sizes alone fix; blocks sum parts into scratch, and a
 * second kernel the parts. Source::add(sum, row, column) adds the values of N elements. */
#ifndef SBP_KERNELS_CUDA_COLUMNS_CUH
#define SBP_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/gpu.cuh"

enum { COLUMNS_WIDE = 32, COLUMNS_DEEP = 8, COLUMNS_ROWS = 128 /* of a part, at least */ };

template <int K, int N, class Source>
static __global__ void __launch_bounds__(COLUMNS_WIDE *COLUMNS_DEEP)
    column_parts(float *parts, int64_t rows, int64_t columns, int64_t part_rows, Source source)
{
    GPU_SHARED(float, deep, K *N *COLUMNS_WIDE *COLUMNS_DEEP);
    const int64_t column = ((int64_t)blockIdx.x * COLUMNS_WIDE + threadIdx.x) * N;
    const int64_t first = blockIdx.y * part_rows;
    const int64_t end = first + part_rows < rows ? first + part_rows : rows;
    float sum[K][N] = {};
    if (column < columns)
        for (int64_t row = first + threadIdx.y; row < end; row += COLUMNS_DEEP)
            source.add(sum, row, column);
    GPU_UNROLL
    for (int i = 0; i < K * N; i++)
        deep[(i * COLUMNS_DEEP + threadIdx.y) * COLUMNS_WIDE + threadIdx.x] = sum[i / N][i % N];
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns)
        return;
    GPU_UNROLL
    for (int i = 0; i < K * N; i++) {
        float total = 0;
        for (int y = 0; y < COLUMNS_DEEP; y++)
            total += deep[(i * COLUMNS_DEEP + y) * COLUMNS_WIDE + threadIdx.x];
        parts[((int64_t)(i / N) * gridDim.y + blockIdx.y) * columns + column + i % N] = total;
    }
}

template <class T>
static __global__ void __launch_bounds__(256)
    column_totals(T *first, T *second, const float *parts, int count, int64_t columns, bool adds)
{
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    T *const to = blockIdx.y == 0 ? first : second;
    if (column >= columns)
        return;
    float total = 0;
    for (int i = 0; i < count; i++)
        total += parts[((int64_t)blockIdx.y * count + i) * columns + column];
    to[column] = gpu_store<T>(adds ? gpu_load(to[column]) + total : total);
}

/* first(columns) gets value 0, second value 1 (NULL where K is 1). */
template <int K, int N, class T, class Source>
static void column_sums(struct sbp_cuda *cuda, T *first, T *second, int64_t rows, int64_t columns,
                        bool adds, Source source)
{
    if (columns == 0)
        return;
    const int64_t most = cuda->scratch_bytes / (int64_t)sizeof(float) / K / columns;
    const int64_t some_rows = rows > 0 ? rows : 1, wanted = gpu_ceil(some_rows, COLUMNS_ROWS);
    if (most == 0) { /* more than two million columns, or four */
        gpu_note(cuda, cudaErrorInvalidValue);
        return;
    }
    const int64_t part_rows = gpu_ceil(some_rows, sbp_least_i64(sbp_least_i64(wanted, most), 512));
    const int count = (int)gpu_ceil(some_rows, part_rows);
    const auto kernel = column_parts<K, N, Source>;
    GPU_LAUNCH(cuda, kernel, dim3((unsigned)gpu_ceil(columns, COLUMNS_WIDE * N), (unsigned)count),
               dim3(COLUMNS_WIDE, COLUMNS_DEEP), 0, (float *)cuda->scratch, rows, columns,
               part_rows, source);
    GPU_LAUNCH(cuda, column_totals<T>, dim3((unsigned)gpu_ceil(columns, 256), K), dim3(256), 0,
               first, second, (const float *)cuda->scratch, count, columns, adds);
}

#endif

/* Operators that move or make elements by place: permutations, initial values. */
#include <assert.h>

#include "kernels/cuda/place.cuh"
#include "kernels/cuda/random.cuh"

enum { THREADS = 256, TILE = 32, TILE_ROWS = 8 };

/* ---- permutations: the boxing's pack and unpack --------------------------------------------- */

/* Loops over the destination, innermost first, with the source's step of each, in units. */
struct loops {
    int count;
    int64_t elements;
    int64_t size[SBP_MOST_PERMUTED], step[SBP_MOST_PERMUTED];
};

/* Adds a loop within the last one, or makes it longer when the new one goes on with it. */
static void add_loop(loops *of, int64_t size, int64_t step)
{
    of->elements *= size;
    if (size == 1)
        return;
    const int last = of->count - 1;
    if (last >= 0 && of->step[last] == size * step) {
        of->size[last] *= size;
        of->step[last] = step;
        return;
    }
    of->size[of->count] = size;
    of->step[of->count++] = step;
}

static loops loops_of(int dims, const int64_t *shape, const int *order)
{
    int64_t step[SBP_MOST_PERMUTED], next = 1;
    loops outward = {}, of = {};
    assert(dims >= 0 && dims <= SBP_MOST_PERMUTED);
    for (int i = dims - 1; i >= 0; i--) {
        step[i] = next;
        next *= shape[i];
    }
    outward.elements = 1;
    for (int i = 0; i < dims; i++)
        add_loop(&outward, shape[order[i]], step[order[i]]);
    of.elements = outward.elements;
    of.count = outward.count;
    for (int i = 0; i < of.count; i++) {
        of.size[i] = outward.size[of.count - 1 - i];
        of.step[i] = outward.step[of.count - 1 - i];
    }
    return of;
}

static __device__ __forceinline__ int64_t source_of(const loops &of, int from, int64_t index)
{
    int64_t at = 0;
    for (int i = from; i < of.count; i++) {
        at += index % of.size[i] * of.step[i];
        index /= of.size[i];
    }
    return at;
}

template <class Unit>
static __global__ void __launch_bounds__(THREADS)
    permute_kernel(Unit *to, const Unit *from, GPU_GRID_CONSTANT loops of)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < of.elements; i += step)
        gpu_put(to + i, gpu_get<1>(from + source_of(of, 0, i)));
}

/* Where the source's innermost dimension is not the destination's: tiles of the two are turned in
 * shared memory, so that both are read and written along their rows. `across` is the loop of step
 * 1. */
template <class Unit>
static __global__ void __launch_bounds__(TILE *TILE_ROWS)
    turn_kernel(Unit *to, const Unit *from, GPU_GRID_CONSTANT loops of, int across)
{
    GPU_SHARED(Unit, tile, TILE * (TILE + 1));
    const int64_t inner = of.size[0], outer = of.size[across];
    const int64_t inner_tiles = (inner + TILE - 1) / TILE, outer_tiles = (outer + TILE - 1) / TILE;
    int64_t rest = blockIdx.x / (inner_tiles * outer_tiles), from_at = 0, to_at = 0, width = 1;
    const int64_t column = blockIdx.x % inner_tiles * TILE;
    const int64_t row = blockIdx.x / inner_tiles % outer_tiles * TILE;
    int64_t row_width = 1;
    for (int i = 0; i < of.count; i++) {
        if (i != 0 && i != across) {
            from_at += rest % of.size[i] * of.step[i];
            to_at += rest % of.size[i] * width;
            rest /= of.size[i];
        }
        row_width = i == across ? width : row_width;
        width *= of.size[i];
    }
    for (int y = (int)threadIdx.y; y < TILE; y += TILE_ROWS)
        if (column + y < inner && row + threadIdx.x < outer)
            tile[y * (TILE + 1) + threadIdx.x] =
                from[from_at + (column + y) * of.step[0] + row + threadIdx.x];
    __syncthreads();
    for (int y = (int)threadIdx.y; y < TILE; y += TILE_ROWS)
        if (row + y < outer && column + threadIdx.x < inner)
            to[to_at + (row + y) * row_width + column + threadIdx.x] =
                tile[threadIdx.x * (TILE + 1) + y];
}

/* The loop over the source's neighbours, where tiles of it and of the innermost loop are not
 * mostly empty; 0: none. */
static int turned_loop(const loops &of)
{
    if (of.count < 2 || of.step[0] == 1 || of.size[0] < TILE / 2)
        return 0;
    for (int i = 1; i < of.count; i++)
        if (of.step[i] == 1 && of.size[i] >= TILE / 2)
            return i;
    return 0;
}

template <class Unit>
static void launch_permute(struct sbp_cuda *cuda, void *dst, const void *src, const loops &of)
{
    const int across = turned_loop(of);
    if (across == 0) {
        GPU_LAUNCH(cuda, permute_kernel<Unit>, gpu_loop_blocks(cuda, of.elements, THREADS), THREADS,
                   0, (Unit *)dst, (const Unit *)src, of);
        return;
    }
    const int64_t tiles = gpu_ceil(of.size[0], TILE) * gpu_ceil(of.size[across], TILE);
    const int64_t planes = of.elements / of.size[0] / of.size[across];
    GPU_LAUNCH(cuda, turn_kernel<Unit>, (unsigned)(tiles * planes), dim3(TILE, TILE_ROWS), 0,
               (Unit *)dst, (const Unit *)src, of, across);
}

/* Runs of the source that stay together move in units of up to 16 bytes. */
static int64_t unit_of(const loops &of, const void *dst, const void *src, int64_t bytes)
{
    const bool stays = of.count > 0 && of.step[0] == 1;
    int64_t unit = 16;
    while (unit > bytes) {
        bool fits = stays && of.size[0] * bytes % unit == 0 && (uintptr_t)dst % unit == 0 &&
                    (uintptr_t)src % unit == 0;
        for (int i = 1; i < of.count; i++)
            fits = fits && of.step[i] * bytes % unit == 0;
        if (fits)
            break;
        unit /= 2;
    }
    return unit;
}

struct alignas(16) sixteen_bytes {
    uint64_t half[2];
};

/* ---- rows that lie apart --------------------------------------------------------------------- */

/* Lengths and distances in units. */
struct strided {
    int64_t n, to_row, from_row;
};

template <class Unit>
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(Unit *to, const Unit *from, strided rows, int64_t elements)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += step)
        gpu_put(to + i / rows.n * rows.to_row + i % rows.n,
                gpu_get<1>(from + i / rows.n * rows.from_row + i % rows.n));
}

template <class Unit>
static void launch_rows(struct sbp_cuda *cuda, void *to, const void *from, strided of, int64_t rows,
                        int64_t bytes)
{
    const int64_t unit = (int64_t)sizeof(Unit), elements = of.n * bytes / unit * rows;
    of = strided{of.n * bytes / unit, of.to_row * bytes / unit, of.from_row * bytes / unit};
    GPU_LAUNCH(cuda, rows_kernel<Unit>, gpu_loop_blocks(cuda, elements, THREADS), THREADS, 0,
               (Unit *)to, (const Unit *)from, of, elements);
}

template <class T>
static void copy_rows(struct sbp_cuda *cuda, void *to, int64_t to_row, const void *from,
                      int64_t from_row, int64_t n, int64_t rows)
{
    const int64_t bytes = (int64_t)sizeof(T);
    const uint64_t ends = ((uint64_t)n | (uint64_t)to_row | (uint64_t)from_row) * (uint64_t)bytes |
                          (uint64_t)(uintptr_t)to | (uint64_t)(uintptr_t)from;
    const strided of = {n, to_row, from_row};
    if (n == 0 || rows == 0)
        return;
    if (ends % 16 == 0)
        launch_rows<sixteen_bytes>(cuda, to, from, of, rows, bytes);
    else
        launch_rows<T>(cuda, to, from, of, rows, bytes);
}

/* ---- permutations, by the units that fit ----------------------------------------------------- */

template <class T>
static void permute(struct sbp_cuda *cuda, void *dst, const void *src, int dims,
                    const int64_t *shape, const int *order)
{
    loops of = loops_of(dims, shape, order);
    const int64_t bytes = (int64_t)sizeof(T), unit = unit_of(of, dst, src, bytes);
    if (of.elements == 0)
        return;
    if (unit > bytes) {
        of.size[0] = of.size[0] * bytes / unit;
        of.elements = of.elements * bytes / unit;
        for (int i = 1; i < of.count; i++)
            of.step[i] = of.step[i] * bytes / unit;
    }
    if (unit == 16)
        launch_permute<sixteen_bytes>(cuda, dst, src, of);
    else if (unit == 8)
        launch_permute<uint64_t>(cuda, dst, src, of);
    else if (unit == 4)
        launch_permute<uint32_t>(cuda, dst, src, of);
    else
        launch_permute<uint16_t>(cuda, dst, src, of);
}

/* ---- initial values ------------------------------------------------------------------------- */

/* Elements whose global index is not below `padding` are 0; the bits are the CPU's. state: all is
 * multiplied by its loss scale; NULL: not. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    fill_kernel(T *x, int64_t n, GPU_GRID_CONSTANT gpu_region region, double mean, double spread,
                uint64_t key, int64_t padding, const struct sbp_step_state *state)
{
    const double factor = state != NULL ? state->loss_scale : 1;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const int64_t global = gpu_region_global(region, i);
        double value = mean;
        if (spread != 0) {
            const float normal = gpu_random_normal(gpu_random_bits(key, (uint64_t)global));
            value = __dadd_rn(mean, __dmul_rn(spread, (double)normal));
        }
        x[i] = gpu_store<T>(global < padding ? (float)(value * factor) : 0);
    }
}

template <class T>
static void fill_normal(struct sbp_cuda *cuda, void *x, const struct sbp_region *region,
                        double mean, double spread, uint64_t seed, uint64_t stream,
                        int64_t valid_rows, const struct sbp_step_state *state)
{
    const int64_t n = sbp_region_elements(region);
    const gpu_region places = gpu_region_of(region);
    int64_t padding =
        sbp_least_i64(valid_rows < 0 ? 0 : valid_rows, region->first + places.global[0]);
    for (int i = 1; i < SBP_MAX_DIMS; i++)
        padding *= places.global[i];
    if (n > 0)
        GPU_LAUNCH(cuda, fill_kernel<T>, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, (T *)x, n,
                   places, mean, spread, sbp_random_key(seed, stream), padding, state);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->permute = permute<T>;
    kernels->copy_rows = copy_rows<T>;
    kernels->fill_normal = fill_normal<T>;
}
GPU_FILL(layout, permute_kernel<uint16_t>)

/* Convolutions as products over windows (im2col a tile at a time: Chetlur et al., cuDNN, 2014,
 * section 3.2). An output's place is (image, row, column), a term (input channel, kernel row,
 * kernel column), as the rows of the weight are.
 */
#include "kernels/cpu/tiles_priv.h"

struct work {
    const struct sbp_windows *at;
    int64_t out; /* channels */
    const stored *x, *w, *dy, *bias;
    stored *y, *dx, *dw;
    bool adds;
};

static int64_t area(const struct sbp_windows *at)
{
    return at->kernel[0] * at->kernel[1];
}

/* A place of an image that counts row by row, and how to go on to the next one. */
struct place {
    int64_t image, row, column, height, width;
};

static struct place place_at(int64_t index, int64_t height, int64_t width)
{
    return (struct place){.image = index / (height * width),
                          .row = index / width % height,
                          .column = index % width,
                          .height = height,
                          .width = width};
}

static void go_on(struct place *place)
{
    if (++place->column < place->width)
        return;
    place->column = 0;
    if (++place->row < place->height)
        return;
    place->row = 0;
    place->image++;
}

static bool is_within(int64_t index, int64_t size)
{
    return index >= 0 && index < size;
}

/* ---- what products read ---------------------------------------------------------------------- */

/* Where a row of an image begins in a channel: in the block, or around it; NULL: it is one of
 * zeros.
 */
static const stored *find_row(const struct work *work, int64_t image, int64_t row, int64_t channel)
{
    const struct sbp_windows *at = work->at;
    const stored *const around = at->around;
    if (is_within(row, at->height))
        return work->x + ((image * at->height + row) * at->channels + channel) * at->width;
    if (row < -at->above || row >= at->height + at->below)
        return NULL;
    const int64_t place = row < 0 ? row + at->above : row - at->height + at->above;
    return around + ((place * at->batch + image) * at->channels + channel) * at->width;
}

/* Every stride-th element of a row from `first` on, zeros where it has none. */
static void take_row(real *to, const stored *row, int64_t width, int64_t first, int64_t stride,
                     int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = first + i * stride;
        to[i] = row != NULL && is_within(column, width) ? load(row[column]) : 0;
    }
}

/* The terms of windows: (terms, places of outputs) of the unfolded input, a row of an image at a
 * time. */
static struct cpu_matrix load_windows(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    const struct sbp_windows *at = work->at;
    for (int64_t i = 0; i < block->rows; i++) {
        const int64_t term = block->row + i, tap = term % area(at);
        const int64_t down = tap / at->kernel[1] - at->padding[0];
        const int64_t right = tap % at->kernel[1] - at->padding[1];
        int64_t count;
        for (int64_t j = 0; j < block->columns; j += count) {
            const struct place place = place_at(block->column + j, at->out_height, at->out_width);
            count = sbp_least_i64(at->out_width - place.column, block->columns - j);
            take_row(tile + i * block->columns + j,
                     find_row(work, place.image, place.row * at->stride[0] + down, term / area(at)),
                     at->width, place.column * at->stride[1] + right, at->stride[1], count);
        }
    }
    return cpu_plain(tile, block->columns);
}

static struct cpu_matrix load_kernels(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    return CPU(load_columns)(work->w, work->out, block, tile);
}

/* Gradients of outputs: (places, channels). */
static struct cpu_matrix load_gradients(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    const struct sbp_windows *at = work->at;
    for (int64_t j = 0; j < block->columns; j++) {
        struct place place = place_at(block->row, at->out_height, at->out_width);
        for (int64_t i = 0; i < block->rows; i++, go_on(&place)) {
            const int64_t row = place.image * at->out_height + place.row;
            tile[j * block->rows + i] = load(
                work->dy[(row * work->out + block->column + j) * at->out_width + place.column]);
        }
    }
    return cpu_transposed(tile, block->rows);
}

/* The output along one side of which a place of the input is a kernel's tap; -1: there is none. */
static int64_t output_at(int64_t place, int64_t tap, int64_t stride, int64_t padding, int64_t size)
{
    const int64_t from = place + padding - tap;
    return from >= 0 && from % stride == 0 && from / stride < size ? from / stride : -1;
}

/* What outputs give to places of the input: (output channel and tap, places of inputs). */
static struct cpu_matrix load_sources(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    const struct sbp_windows *at = work->at;
    for (int64_t i = 0; i < block->rows; i++) {
        const int64_t channel = (block->row + i) / area(at), tap = (block->row + i) % area(at);
        struct place place = place_at(block->column, at->height, at->width);
        for (int64_t j = 0; j < block->columns; j++, go_on(&place)) {
            const int64_t row = output_at(place.row, tap / at->kernel[1], at->stride[0],
                                          at->padding[0], at->out_height);
            const int64_t column = output_at(place.column, tap % at->kernel[1], at->stride[1],
                                             at->padding[1], at->out_width);
            const int64_t from =
                ((place.image * at->out_height + row) * work->out + channel) * at->out_width +
                column;
            tile[i * block->columns + j] = row >= 0 && column >= 0 ? load(work->dy[from]) : 0;
        }
    }
    return cpu_plain(tile, block->columns);
}

/* (input channels, output channel and tap) */
static struct cpu_matrix load_turned(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    const int64_t taps = area(work->at);
    for (int64_t i = 0; i < block->rows; i++)
        for (int64_t j = 0; j < block->columns; j++) {
            const int64_t channel = (block->column + j) / taps, tap = (block->column + j) % taps;
            tile[i * block->columns + j] =
                load(work->w[((block->row + i) * taps + tap) * work->out + channel]);
        }
    return cpu_plain(tile, block->columns);
}

/* ---- what they leave ------------------------------------------------------------------------- */

static void store_outputs(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    const struct sbp_windows *at = work->at;
    for (int64_t i = 0; i < block->rows; i++) {
        const real bias = work->bias != NULL ? load(work->bias[block->row + i]) : 0;
        struct place place = place_at(block->column, at->out_height, at->out_width);
        for (int64_t j = 0; j < block->columns; j++, go_on(&place)) {
            const int64_t row = place.image * at->out_height + place.row;
            work->y[(row * work->out + block->row + i) * at->out_width + place.column] =
                store(tile[i * block->columns + j] + bias);
        }
    }
}

static void store_inputs(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    const struct sbp_windows *at = work->at;
    for (int64_t i = 0; i < block->rows; i++) {
        struct place place = place_at(block->column, at->height, at->width);
        for (int64_t j = 0; j < block->columns; j++, go_on(&place)) {
            const int64_t row = place.image * at->height + place.row;
            work->dx[(row * at->channels + block->row + i) * at->width + place.column] =
                store(tile[i * block->columns + j]);
        }
    }
}

static void store_kernels(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    for (int64_t i = 0; i < block->rows; i++)
        for (int64_t j = 0; j < block->columns; j++) {
            stored *const to = &work->dw[(block->row + i) * work->out + block->column + j];
            *to = store((work->adds ? load(*to) : 0) + tile[i * block->columns + j]);
        }
}

/* ---- the products ---------------------------------------------------------------------------- */

void CPU(conv2d_forward)(void *y, const void *x, const void *w, const void *bias,
                         const struct sbp_windows *windows, int64_t out)
{
    const struct work work = {.at = windows, .out = out, .x = x, .w = w, .bias = bias, .y = y};
    CPU(tiled_product)
    (&(struct cpu_tiles){.m = out,
                         .n = windows->batch * windows->out_height * windows->out_width,
                         .k = windows->channels * area(windows),
                         .of = &work,
                         .a = load_kernels,
                         .b = load_windows,
                         .store = store_outputs});
}

void CPU(conv2d_backward_input)(void *dx, const void *dy, const void *w,
                                const struct sbp_windows *windows, int64_t out)
{
    const struct work work = {.at = windows, .out = out, .w = w, .dy = dy, .dx = dx};
    CPU(tiled_product)
    (&(struct cpu_tiles){.m = windows->channels,
                         .n = windows->batch * windows->height * windows->width,
                         .k = out * area(windows),
                         .of = &work,
                         .a = load_turned,
                         .b = load_sources,
                         .store = store_inputs});
}

/* A bias's gradient: sums over all places, in double. */
static void sum_places(const struct work *work, stored *dbias, bool adds)
{
    const struct sbp_windows *at = work->at;
    for (int64_t channel = 0; channel < work->out; channel++) {
        double sum = 0;
        for (int64_t row = 0; row < at->batch * at->out_height; row++)
            for (int64_t i = 0; i < at->out_width; i++)
                sum += (double)load(work->dy[(row * work->out + channel) * at->out_width + i]);
        dbias[channel] = store((adds ? load(dbias[channel]) : 0) + (real)sum);
    }
}

void CPU(conv2d_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                 const struct sbp_windows *windows, int64_t out, unsigned adds)
{
    const struct work work = {.at = windows,
                              .out = out,
                              .x = x,
                              .dy = dy,
                              .dw = dw,
                              .adds = (adds & SBP_ADDS_FIRST) != 0};
    CPU(tiled_product)
    (&(struct cpu_tiles){.m = windows->channels * area(windows),
                         .n = out,
                         .k = windows->batch * windows->out_height * windows->out_width,
                         .of = &work,
                         .a = load_windows,
                         .b = load_gradients,
                         .store = store_kernels});
    if (dbias != NULL)
        sum_places(&work, dbias, (adds & SBP_ADDS_REST) != 0);
}

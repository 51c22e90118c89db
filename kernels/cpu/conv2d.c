/* Convolutions as products over windows (im2col a tile at a time: Chetlur et al., cuDNN, 2014,
 * section 3.2). An output's place is (image, row, column), a term (input channel, kernel row,
 * kernel column), as the rows of the weight are. Places that follow each other in a row of an image
 * are moved as one run, and the runs of a tile, which are those of all channels, are listed once.
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

static bool is_within(int64_t index, int64_t size)
{
    return index >= 0 && index < size;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Elements of the first channel's rows, and where they stand among the places of a tile's line. */
struct run {
    int64_t at, count, offset;
    bool is_around; /* the block of an image */
};

struct runs {
    int64_t step_at, step;      /* from element to element, in the line and in the image */
    int64_t channel;            /* from channel to channel */
    int64_t count, covered;     /* runs, and places that they have */
    struct run run[TILE_DEPTH]; /* a place each at least */
};

static void begin_runs(struct runs *runs, int64_t step_at, int64_t step, int64_t channel)
{
    runs->step_at = step_at;
    runs->step = step;
    runs->channel = channel;
    runs->count = runs->covered = 0;
}

static void add_run(struct runs *runs, int64_t at, int64_t count, int64_t offset, bool is_around)
{
    if (count <= 0)
        return;
    runs->run[runs->count++] = (struct run){at, count, offset, is_around};
    runs->covered += count;
}

/* A part of a row among places that count row by row, and how to go on to the next one. */
struct part {
    int64_t at;                 /* of its first place among the tile's */
    int64_t image, row, column; /* that this is */
    int64_t count;
};

static struct part first_part(int64_t place, int64_t places, int64_t height, int64_t width)
{
    const int64_t row = place / width, column = place % width;
    return (struct part){.image = row / height,
                         .row = row % height,
                         .column = column,
                         .count = sbp_least_i64(width - column, places)};
}

/* False: it was the last one. */
static bool next_part(struct part *part, int64_t places, int64_t height, int64_t width)
{
    part->at += part->count;
    part->column = 0;
    part->count = sbp_least_i64(width, places - part->at);
    if (++part->row == height) {
        part->row = 0;
        part->image++;
    }
    return part->count > 0;
}

/* Places of images (rows, channels, width) as they lie. */
static void list_places(struct runs *runs, int64_t first, int64_t places, int64_t width,
                        int64_t channels)
{
    begin_runs(runs, 1, 1, width);
    struct part part = first_part(first, places, INT64_MAX, width);
    do
        add_run(runs, part.at, part.count, part.row * channels * width + part.column, false);
    while (next_part(&part, places, INT64_MAX, width));
}

/* Where a row of an image begins, in the block or around it. */
static bool find_row(const struct sbp_windows *at, int64_t image, int64_t row, int64_t *offset,
                     bool *is_around)
{
    const int64_t place = row < 0 ? row + at->above : row - at->height + at->above;
    *is_around = !is_within(row, at->height);
    if (*is_around && !is_within(row + at->above, at->above + at->height + at->below))
        return false;
    *offset = (*is_around ? place * at->batch + image : image * at->height + row) * at->channels *
              at->width;
    return true;
}

static int64_t divide_up(int64_t number, int64_t by)
{
    return number > 0 ? (number + by - 1) / by : 0;
}

/* Elements that lie under a tap of the kernel in the windows of some outputs. */
static void list_windows(struct runs *runs, const struct sbp_windows *at, int64_t tap,
                         int64_t first, int64_t places)
{
    const int64_t down = tap / at->kernel[1] - at->padding[0], stride = at->stride[1];
    const int64_t right = tap % at->kernel[1] - at->padding[1];
    begin_runs(runs, 1, stride, at->width);
    struct part part = first_part(first, places, at->out_height, at->out_width);
    do {
        const int64_t column = part.column * stride + right; /* of the first place */
        const int64_t begin = divide_up(-column, stride);
        const int64_t end = sbp_least_i64(divide_up(at->width - column, stride), part.count);
        int64_t offset;
        bool is_around;
        if (find_row(at, part.image, part.row * at->stride[0] + down, &offset, &is_around))
            add_run(runs, part.at + begin, end - begin, offset + column + begin * stride,
                    is_around);
    } while (next_part(&part, places, at->out_height, at->out_width));
}

/* Of `count` places along one side, the first one, -1 if there is none, of which a tap belongs to
 * an output, and which output that is. */
static int64_t first_source(int64_t place, int64_t count, int64_t tap, int64_t stride,
                            int64_t padding, int64_t *output)
{
    const int64_t from = place + padding - tap;
    *output = divide_up(from, stride);
    const int64_t skipped = *output * stride - from;
    return skipped < count ? skipped : -1;
}

/* What outputs give by a tap to some places of the input. */
static void list_sources(struct runs *runs, const struct work *work, int64_t tap, int64_t first,
                         int64_t places)
{
    const struct sbp_windows *at = work->at;
    const int64_t stride = at->stride[1];
    begin_runs(runs, stride, 1, at->out_width);
    struct part part = first_part(first, places, at->height, at->width);
    do {
        int64_t row, column;
        const int64_t down =
            first_source(part.row, 1, tap / at->kernel[1], at->stride[0], at->padding[0], &row);
        const int64_t begin = first_source(part.column, part.count, tap % at->kernel[1], stride,
                                           at->padding[1], &column);
        if (down < 0 || row >= at->out_height || begin < 0)
            continue;
        const int64_t count =
            sbp_least_i64(divide_up(part.count - begin, stride), at->out_width - column);
        add_run(runs, part.at + begin, count,
                (part.image * at->out_height + row) * work->out * at->out_width + column, false);
    } while (next_part(&part, places, at->height, at->width));
}

/* A channel's elements into a line, zeros where it has none. */
static void take_line(real *line, int64_t places, const struct runs *runs, int64_t channel,
                      const stored *block, const stored *around)
{
    for (int64_t j = 0; runs->covered < places && j < places; j++)
        line[j] = 0;
    for (int64_t i = 0; i < runs->count; i++) {
        const struct run *run = &runs->run[i];
        const stored *const from =
            (run->is_around ? around : block) + run->offset + channel * runs->channel;
        real *const to = line + run->at;
        if (runs->step_at == 1 && runs->step == 1)
            for (int64_t j = 0; j < run->count; j++)
                to[j] = load(from[j]);
        else
            for (int64_t j = 0; j < run->count; j++)
                to[j * runs->step_at] = load(from[j * runs->step]);
    }
}

/* A line into a channel. */
static void put_line(stored *images, const struct runs *runs, int64_t channel, const real *line,
                     real added)
{
    for (int64_t i = 0; i < runs->count; i++) {
        const struct run *run = &runs->run[i];
        stored *const to = images + run->offset + channel * runs->channel;
        for (int64_t j = 0; j < run->count; j++)
            to[j] = store(line[run->at + j] + added);
    }
}

/* ---- what products read ---------------------------------------------------------------------- */

/* The terms of windows: (terms, places of outputs) of the unfolded input, tap by tap. */
static struct cpu_matrix load_windows(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    const int64_t taps = area(work->at);
    struct runs runs;
    for (int64_t first = 0; first < taps && first < block->rows; first++) {
        list_windows(&runs, work->at, (block->row + first) % taps, block->column, block->columns);
        for (int64_t i = first; i < block->rows; i += taps)
            take_line(tile + i * block->columns, block->columns, &runs, (block->row + i) / taps,
                      work->x, work->at->around);
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
    struct runs runs;
    list_places(&runs, block->row, block->rows, work->at->out_width, work->out);
    for (int64_t j = 0; j < block->columns; j++)
        take_line(tile + j * block->rows, block->rows, &runs, block->column + j, work->dy, NULL);
    return cpu_transposed(tile, block->rows);
}

/* What outputs give to places of the input: (tap and output channel, places of inputs). */
static struct cpu_matrix load_sources(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    struct runs runs;
    for (int64_t i = 0; i < block->rows;) {
        const int64_t tap = (block->row + i) / work->out, first = (block->row + i) % work->out;
        const int64_t end = sbp_least_i64(i + work->out - first, block->rows);
        list_sources(&runs, work, tap, block->column, block->columns);
        for (int64_t channel = first; i < end; i++, channel++)
            take_line(tile + i * block->columns, block->columns, &runs, channel, work->dy, NULL);
    }
    return cpu_plain(tile, block->columns);
}

/* (input channels, tap and output channel): the weight as it lies. */
static struct cpu_matrix load_turned(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    return CPU(load_rows)(work->w, area(work->at) * work->out, block, tile);
}

/* ---- what they leave ------------------------------------------------------------------------- */

static void store_outputs(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    struct runs runs;
    list_places(&runs, block->column, block->columns, work->at->out_width, work->out);
    for (int64_t i = 0; i < block->rows; i++)
        put_line(work->y, &runs, block->row + i, tile + i * block->columns,
                 work->bias != NULL ? load(work->bias[block->row + i]) : 0);
}

static void store_inputs(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    struct runs runs;
    list_places(&runs, block->column, block->columns, work->at->width, work->at->channels);
    for (int64_t i = 0; i < block->rows; i++)
        put_line(work->dx, &runs, block->row + i, tile + i * block->columns, 0);
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

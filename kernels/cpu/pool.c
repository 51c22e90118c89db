/* Pools: the largest element or the mean of each window. Gradients are gathered by the input's
 * places, from all windows that have them, and stored once.
 */
#include "kernels/cpu/real_priv.h"

enum { BYTE_PLACES = 256 }; /* of a window whose indices are bytes */

/* One channel of one image: elements between its rows are those of all channels. */
struct plane {
    const struct sbp_windows *at;
    int64_t image, channel;
};

static int64_t in_at(const struct plane *plane, int64_t row, int64_t column)
{
    const struct sbp_windows *at = plane->at;
    return ((plane->image * at->height + row) * at->channels + plane->channel) * at->width + column;
}

static int64_t out_at(const struct plane *plane, int64_t row, int64_t column)
{
    const struct sbp_windows *at = plane->at;
    return ((plane->image * at->out_height + row) * at->channels + plane->channel) * at->out_width +
           column;
}

/* The taps of a window along one side that lie within the image: first .. end - 1. */
struct span {
    int64_t first, end;
};

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct span taps(const struct sbp_windows *at, int side, int64_t out, int64_t size)
{
    const int64_t start = out * at->stride[side] - at->padding[side];
    return (struct span){most(0, -start), sbp_least_i64(at->kernel[side], size - start)};
}

/* The outputs along one side whose windows have a place of the input. */
static struct span outputs(const struct sbp_windows *at, int side, int64_t place, int64_t size)
{
    const int64_t reached = place + at->padding[side], before = reached - at->kernel[side] + 1;
    const int64_t stride = at->stride[side];
    return (struct span){before > 0 ? (before + stride - 1) / stride : 0,
                         sbp_least_i64(size, reached / stride + 1)};
}

static int64_t index_at(const void *index, bool bytes, int64_t i)
{
    return bytes ? ((const uint8_t *)index)[i] : ((const int32_t *)index)[i];
}

static bool has_bytes(const struct sbp_windows *at)
{
    return at->kernel[0] * at->kernel[1] <= BYTE_PLACES;
}

/* ---- the largest ----------------------------------------------------------------------------- */

/* The tap of the first of the largest elements of a window. */
static int64_t largest_tap(const struct plane *plane, const stored *x, int64_t row, int64_t column)
{
    const struct sbp_windows *at = plane->at;
    const struct span down = taps(at, 0, row, at->height), right = taps(at, 1, column, at->width);
    const int64_t top = row * at->stride[0] - at->padding[0];
    const int64_t left = column * at->stride[1] - at->padding[1];
    real largest = -(real)INFINITY;
    int64_t tap = down.first * at->kernel[1] + right.first;
    for (int64_t i = down.first; i < down.end; i++)
        for (int64_t j = right.first; j < right.end; j++) {
            const real value = load(x[in_at(plane, top + i, left + j)]);
            if (value > largest || isnan(value)) {
                largest = value;
                tap = i * at->kernel[1] + j;
            }
        }
    return tap;
}

static void pool_plane(const struct plane *plane, stored *y, void *index, const stored *x)
{
    const struct sbp_windows *at = plane->at;
    const bool bytes = has_bytes(at);
    for (int64_t row = 0; row < at->out_height; row++)
        for (int64_t column = 0; column < at->out_width; column++) {
            const int64_t tap = largest_tap(plane, x, row, column);
            const int64_t to = out_at(plane, row, column);
            y[to] = x[in_at(plane, row * at->stride[0] - at->padding[0] + tap / at->kernel[1],
                            column * at->stride[1] - at->padding[1] + tap % at->kernel[1])];
            if (bytes)
                ((uint8_t *)index)[to] = (uint8_t)tap;
            else
                ((int32_t *)index)[to] = (int32_t)tap;
        }
}

static int64_t planes(const struct sbp_windows *windows)
{
    return windows->batch * windows->channels;
}

static struct plane plane_at(const struct sbp_windows *windows, int64_t i)
{
    return (struct plane){windows, i / windows->channels, i % windows->channels};
}

void CPU(maxpool_forward)(void *y, void *index, const void *x, const struct sbp_windows *windows)
{
    for (int64_t i = 0; i < planes(windows); i++) {
        const struct plane plane = plane_at(windows, i);
        pool_plane(&plane, y, index, x);
    }
}

/* What all windows give to a place: those that chose it, or, without an index, all alike. */
static double gathered(const struct plane *plane, const void *index, const stored *dy, int64_t row,
                       int64_t column)
{
    const struct sbp_windows *at = plane->at;
    const struct span down = outputs(at, 0, row, at->out_height);
    const struct span right = outputs(at, 1, column, at->out_width);
    double sum = 0;
    for (int64_t i = down.first; i < down.end; i++)
        for (int64_t j = right.first; j < right.end; j++) {
            const int64_t from = out_at(plane, i, j);
            const int64_t tap = (row + at->padding[0] - i * at->stride[0]) * at->kernel[1] +
                                column + at->padding[1] - j * at->stride[1];
            if (index == NULL || index_at(index, has_bytes(at), from) == tap)
                sum += (double)load(dy[from]);
        }
    return sum;
}

static void gather(stored *dx, const void *index, const void *dy, const struct sbp_windows *windows,
                   double factor)
{
    for (int64_t i = 0; i < planes(windows); i++) {
        const struct plane plane = plane_at(windows, i);
        for (int64_t row = 0; row < windows->height; row++)
            for (int64_t column = 0; column < windows->width; column++)
                dx[in_at(&plane, row, column)] =
                    store((real)(gathered(&plane, index, dy, row, column) * factor));
    }
}

void CPU(maxpool_backward)(void *dx, const void *index, const void *dy,
                           const struct sbp_windows *windows)
{
    gather(dx, index, dy, windows, 1);
}

/* ---- the mean -------------------------------------------------------------------------------- */

static double window_sum(const struct plane *plane, const stored *x, int64_t row, int64_t column)
{
    const struct sbp_windows *at = plane->at;
    const struct span down = taps(at, 0, row, at->height), right = taps(at, 1, column, at->width);
    double sum = 0;
    for (int64_t i = down.first; i < down.end; i++)
        for (int64_t j = right.first; j < right.end; j++)
            sum += (double)load(x[in_at(plane, row * at->stride[0] - at->padding[0] + i,
                                        column * at->stride[1] - at->padding[1] + j)]);
    return sum;
}

static double share(const struct sbp_windows *windows)
{
    return 1 / ((double)windows->kernel[0] * (double)windows->kernel[1]);
}

void CPU(avgpool_forward)(void *y, const void *x, const struct sbp_windows *windows)
{
    for (int64_t i = 0; i < planes(windows); i++) {
        const struct plane plane = plane_at(windows, i);
        for (int64_t row = 0; row < windows->out_height; row++)
            for (int64_t column = 0; column < windows->out_width; column++)
                ((stored *)y)[out_at(&plane, row, column)] =
                    store((real)(window_sum(&plane, x, row, column) * share(windows)));
    }
}

void CPU(avgpool_backward)(void *dx, const void *dy, const struct sbp_windows *windows)
{
    gather(dx, NULL, dy, windows, share(windows));
}

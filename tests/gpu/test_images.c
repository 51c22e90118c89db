/* Pools, batch normalisation and what convolutions have beside their products, on the GPU beside
 * their CPU twins in double. */
#include <math.h>

#include "tests/gpu/device.h"

static const double EPSILON = 1e-5;

static int64_t windows_along(const struct sbp_windows *at, int side, int64_t size)
{
    return (size + 2 * at->padding[side] - at->kernel[side]) / at->stride[side] + 1;
}

/* Any width, or one of whole chunks of inputs, or of outputs. */
static int64_t draw_width(struct check *check, const struct sbp_windows *at, int64_t largest)
{
    const int64_t chunks = 8 * check_integer(check, 1, 2);
    switch (check_integer(check, 0, 2)) {
    case 0:
        return chunks;
    case 1:
        return (chunks - 1) * at->stride[1] + at->kernel[1] - 2 * at->padding[1];
    default:
        return largest + check_integer(check, 0, 6);
    }
}

/* Some of the places, or terms: often from a chunk's first on, and often a multiple of chunks. */
struct part {
    int64_t first, count;
};

static struct part draw_part(struct check *check, int64_t all)
{
    struct part of = {.first = check_integer(check, 0, all - 1)};
    if (all >= 8 && check_integer(check, 0, 3) > 0)
        of.first = 8 * check_integer(check, 0, all / 8 - 1);
    of.count = check_integer(check, 1, all - of.first);
    if (all - of.first >= 8 && check_integer(check, 0, 3) > 0)
        of.count = 8 * check_integer(check, 1, (all - of.first) / 8);
    return of;
}

/* Overlapping windows and apart ones, of either side. */
static struct sbp_windows draw(struct check *check, int64_t largest)
{
    struct sbp_windows at = {.batch = check_size(check, 3), .channels = check_integer(check, 1, 5)};
    for (int side = 0; side < 2; side++) {
        at.kernel[side] = check_integer(check, 1, largest);
        at.stride[side] = check_integer(check, 1, 3);
        at.padding[side] = check_integer(check, 0, at.kernel[side] - 1);
    }
    at.height = largest + check_integer(check, 0, 6);
    at.width = draw_width(check, &at, largest);
    at.out_height = windows_along(&at, 0, at.height);
    at.out_width = windows_along(&at, 1, at.width);
    return at;
}

static int64_t inputs(const struct sbp_windows *at)
{
    return at->batch * at->height * at->channels * at->width;
}

static int64_t outputs(const struct sbp_windows *at, int64_t channels)
{
    return at->batch * at->out_height * channels * at->out_width;
}

/* Scores repeat: of equal ones the first is taken. Indices are bytes, or four of them. */
static void maxpool(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const bool has_bytes = check->round % 3 > 0;
    struct sbp_windows at = draw(check, 4);
    for (int side = 0; side < 2 && !has_bytes; side++) {
        at.kernel[side] = at.height = at.width = 17;
        at.padding[side] = 8;
        at.out_height = windows_along(&at, 0, 17);
        at.out_width = windows_along(&at, 1, 17);
    }
    const int64_t in = inputs(&at), out = outputs(&at, at.channels);
    double *x = check_whole(check, in), *dy = check_uniform(check, out);
    double *y = check_zeros(check, out), *dx = check_zeros(check, in);
    if (check->round % 2 == 0)
        x[check_integer(check, 0, in - 1)] = (double)-INFINITY;
    uint8_t *want = check_bytes(check, 4 * out), *got = check_bytes(check, 4 * out);
    void *to = device_reals(&d, NULL, out), *back = device_reals(&d, NULL, in);
    d.twin->maxpool_forward(y, want, x, &at);
    d.twin->maxpool_backward(dx, want, dy, &at);
    d.kernels.maxpool_forward(&d.cuda, to, got, device_reals(&d, x, in), &at);
    d.kernels.maxpool_backward(&d.cuda, back, got, device_reals(&d, dy, out), &at);
    check_equal(check, "y", to, y, out);
    device_same(&d, "index", got, want, out * (has_bytes ? 1 : 4));
    check_near(check, "dx", back, dx, in, check_tolerance(check, 2e-6, 0));
}

static void avgpool(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct sbp_windows at = draw(check, 5);
    const int64_t in = inputs(&at), out = outputs(&at, at.channels);
    double *x = check_uniform(check, in), *dy = check_uniform(check, out);
    double *y = check_zeros(check, out), *dx = check_zeros(check, in);
    void *to = device_reals(&d, NULL, out), *back = device_reals(&d, NULL, in);
    d.twin->avgpool_forward(y, x, &at);
    d.twin->avgpool_backward(dx, dy, &at);
    d.kernels.avgpool_forward(&d.cuda, to, device_reals(&d, x, in), &at);
    d.kernels.avgpool_backward(&d.cuda, back, device_reals(&d, dy, out), &at);
    check_near(check, "y", to, y, out, check_tolerance(check, 2e-6, 0));
    check_near(check, "dx", back, dx, in, check_tolerance(check, 2e-6, 0));
}

static void normalise(struct check *check, const struct sbp_norm_rows *rows)
{
    DEVICE_BEGIN(d, check)
    const int64_t c = rows->channels, n = rows->count * c * rows->width;
    double *x = check_uniform(check, n), *dy = check_uniform(check, n);
    double *gain = check_uniform(check, c), *shift = check_uniform(check, c);
    double *statistics = check_zeros(check, 2 * c), *y = check_zeros(check, n);
    double *dx = check_zeros(check, n), *dgain = check_uniform(check, c);
    double *dshift = check_uniform(check, c);
    const bool adds = check_integer(check, 0, 1) == 1, wanted = check_integer(check, 0, 3) > 0;
    for (int64_t i = 0; i < n; i++)
        x[i] += 10; /* whose square has few bits left for what varies */
    const void *from = device_reals(&d, x, n), *gains = device_reals(&d, gain, c);
    void *of = device_wide(&d, NULL, 2 * c), *to = device_reals(&d, NULL, n);
    void *back = device_reals(&d, NULL, n), *to_gain = device_reals(&d, adds ? dgain : NULL, c);
    void *to_shift = device_reals(&d, adds ? dshift : NULL, c);
    for (int64_t i = 0; i < n; i++)
        x[i] = check_at(check, from, i); /* as it was rounded */
    d.twin->batchnorm_statistics(statistics, x, rows, EPSILON);
    d.twin->batchnorm_forward(y, x, statistics, gain, shift, rows);
    d.twin->batchnorm_backward(dx, wanted ? dgain : NULL, wanted ? dshift : NULL, dy, x, statistics,
                               gain, rows, adds);
    d.kernels.batchnorm_statistics(&d.cuda, of, from, rows, EPSILON);
    d.kernels.batchnorm_forward(&d.cuda, to, from, of, gains, device_reals(&d, shift, c), rows);
    d.kernels.batchnorm_backward(&d.cuda, back, wanted ? to_gain : NULL, wanted ? to_shift : NULL,
                                 device_reals(&d, dy, n), from, of, gains, rows, adds);
    /* One value alone has no variance, and rounding is seen large. */
    const double scale = rows->count * rows->width > 4 ? 1 : 400;
    check_wide_near(check, "statistics", of, statistics, 2 * c, 5e-6 * scale);
    check_near(check, "y", to, y, n, check_tolerance(check, 2e-5 * scale, 0));
    check_near(check, "dx", back, dx, n, check_tolerance(check, 1e-4 * scale, 0));
    if (!wanted)
        return;
    check_near(check, "dgain", to_gain, dgain, c, check_tolerance(check, 1e-4 * scale, 0));
    check_near(check, "dshift", to_shift, dshift, c, check_tolerance(check, 2e-5, 0));
}

static void batchnorm(struct check *check)
{
    const struct sbp_norm_rows rows = {.count = check_size(check, 30),
                                       .channels = check_size(check, 12),
                                       .width = check_integer(check, 0, 1) == 1
                                                    ? 8 * check_integer(check, 1, 4)
                                                    : check_size(check, 30)};
    normalise(check, &rows);
}

/* Rows that are named are refused, as launches are, by each kernel, and nothing is written. */
static void named_rows(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t row[] = {1};
    const struct sbp_norm_rows rows = {.count = 1, .row = row, .channels = 1, .width = 1};
    const float untouched = 7;
    float *to = (float *)check_bytes(check, 2 * sizeof *to);
    for (int kernel = 0; kernel < 3; kernel++) {
        d.cuda.error = 0;
        to[0] = to[1] = untouched;
        if (kernel == 0)
            d.kernels.batchnorm_statistics(&d.cuda, to, to, &rows, EPSILON);
        else if (kernel == 1)
            d.kernels.batchnorm_forward(&d.cuda, to, to, to, to, to, &rows);
        else
            d.kernels.batchnorm_backward(&d.cuda, to, to, to, to, to, to, to, &rows, false);
        assert_int_equal(d.cuda.error, 1);
        assert_true(to[0] == untouched && to[1] == untouched);
    }
}

/* More elements of a channel than a part has. */
static void large(struct check *check)
{
    const struct sbp_norm_rows rows = {.count = 311, .channels = 2, .width = 27};
    normalise(check, &rows);
}

/* Rounded to the table's type, where both sides agree. */
static void *taken(struct device *d, int64_t n)
{
    return device_reals(d, NULL, n);
}

/* A term's row of an image of a channel; NULL: beside the image. The last rows of `x` are those
 * around the block: (above + below, batch, channels, width). */
static const double *row_of(const struct sbp_windows *at, const double *x, int64_t image,
                            int64_t channel, int64_t row)
{
    const double *around = x + inputs(at);
    if (row < -at->above || row >= at->height + at->below)
        return NULL;
    if (row >= 0 && row < at->height)
        return x + ((image * at->height + row) * at->channels + channel) * at->width;
    const int64_t place = row < 0 ? row + at->above : row - at->height + at->above;
    return around + ((place * at->batch + image) * at->channels + channel) * at->width;
}

/* Some terms of some windows, by their definition. */
static void windows(struct check *check, struct sbp_windows at, struct part some, struct part lines)
{
    DEVICE_BEGIN(d, check)
    const int64_t area = at.kernel[0] * at.kernel[1];
    const int64_t first = some.first, places = some.count, from = lines.first, count = lines.count;
    const int64_t rows = (at.above + at.below) * at.batch * at.channels * at.width;
    const double *x = check_uniform(check, inputs(&at) + rows);
    double *want = check_zeros(check, count * places);
    for (int64_t i = 0; i < count * places; i++) {
        const int64_t place = first + i % places, term = from + i / places, tap = term % area;
        const int64_t row = place / at.out_width % at.out_height * at.stride[0] - at.padding[0] +
                            tap / at.kernel[1];
        const int64_t column =
            place % at.out_width * at.stride[1] - at.padding[1] + tap % at.kernel[1];
        const double *of = row_of(&at, x, place / at.out_width / at.out_height, term / area, row);
        if (of != NULL && column >= 0 && column < at.width)
            want[i] = of[column];
    }
    void *to = taken(&d, count * places);
    at.around = rows > 0 ? device_reals(&d, x + inputs(&at), rows) : NULL;
    d.kernels.conv2d_windows(&d.cuda, to, device_reals(&d, x, inputs(&at)), &at, from, count, first,
                             places);
    check_equal(check, "terms", to, want, count * places);
}

static void terms(struct check *check)
{
    struct sbp_windows at = draw(check, 4);
    const struct part some = draw_part(check, outputs(&at, 1));
    const struct part lines = draw_part(check, at.channels * at.kernel[0] * at.kernel[1]);
    at.above = check_integer(check, 0, 2);
    at.below = check_integer(check, 0, 2);
    at.padding[0] += check_integer(check, -2, 2);
    windows(check, at, some, lines);
}

/* The twin's gradient of the input, of a weight that is 1 at one tap of one output channel. */
static void gradients(struct check *check, struct sbp_windows at, struct part some)
{
    DEVICE_BEGIN(d, check)
    const int64_t out = check_integer(check, 1, 4), lines = at.kernel[0] * at.kernel[1] * out;
    const int64_t in = at.batch * at.height * at.width, n = outputs(&at, out);
    const int64_t first = some.first, places = some.count;
    const double *dy = check_uniform(check, n);
    double *want = check_zeros(check, lines * places), *dx = check_zeros(check, in);
    struct sbp_windows one = at;
    one.channels = 1;
    for (int64_t line = 0; line < lines; line++) {
        double *w = check_zeros(check, lines);
        w[line] = 1;
        d.twin->conv2d_backward_input(dx, dy, w, &one, out);
        for (int64_t i = 0; i < places; i++)
            want[line * places + i] = dx[first + i];
    }
    void *to = taken(&d, lines * places);
    d.kernels.conv2d_sources(&d.cuda, to, device_reals(&d, dy, n), &at, out, first, places);
    check_equal(check, "sources", to, want, lines * places);
}

static void sources(struct check *check)
{
    const struct sbp_windows at = draw(check, 3);
    gradients(check, at, draw_part(check, at.batch * at.height * at.width));
}

/* Aligned chunks that begin before a row, end behind it or lie beside it are zeros there, not what
 * neighbouring rows have. */
static void beside_rows(struct check *check)
{
    static const struct {
        int64_t width, kernel, padding;
    } shapes[] = {{6, 3, 2}, {8, 9, 8}, {16, 9, 0}};
    const int shape = check->round % 3;
    struct sbp_windows at = {.batch = 2,
                             .channels = 3,
                             .height = 4,
                             .width = shapes[shape].width,
                             .out_height = 4,
                             .kernel = {1, shapes[shape].kernel},
                             .stride = {1, 1},
                             .padding = {0, shapes[shape].padding}};
    at.out_width = windows_along(&at, 1, at.width);
    windows(check, at, (struct part){.count = outputs(&at, 1)},
            (struct part){.count = at.channels * at.kernel[1]});
    gradients(check, at, (struct part){.count = at.batch * at.height * at.width});
}

/* Rows of images and matrices of places, both ways, and sums over a channel. */
static void rows(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t count = check_size(check, 20), channels = check_size(check, 9);
    const int64_t width = device_columns(check, 40), n = count * channels * width;
    const struct part some = draw_part(check, count * width);
    const int64_t first = some.first, places = some.count;
    const double *x = check_uniform(check, n), *bias = check_uniform(check, channels);
    const bool adds = check_integer(check, 0, 1) == 1;
    double *by_place = check_zeros(check, channels * places), *back = check_uniform(check, n);
    double *sums = check_uniform(check, channels);
    void *to = taken(&d, channels * places), *put = device_reals(&d, back, n);
    void *of = device_reals(&d, adds ? sums : NULL, channels);
    for (int64_t c = 0; c < channels; c++) {
        sums[c] = adds ? sums[c] : 0;
        for (int64_t i = 0; i < count * width; i++) {
            const int64_t at = (i / width * channels + c) * width + i % width;
            sums[c] += x[at];
            if (i < first || i >= first + places)
                continue;
            by_place[c * places + i - first] = x[at];
            back[at] = x[at] + bias[c];
        }
    }
    const void *images = device_reals(&d, x, n);
    d.kernels.images_take(&d.cuda, to, images, channels, width, first, places);
    d.kernels.images_put(&d.cuda, put, device_wide(&d, by_place, channels * places),
                         device_reals(&d, bias, channels), channels, width, first, places);
    d.kernels.images_sums(&d.cuda, of, images, count, channels, width, adds);
    check_equal(check, "places", to, by_place, channels * places);
    check_near(check, "rows", put, back, n, check_tolerance(check, 1e-6, 0));
    check_near(check, "sums", of, sums, channels, check_tolerance(check, 1e-5, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(maxpool, 15),   CHECK_TABLES(avgpool, 12),     CHECK_TABLES(batchnorm, 8),
        CHECK_TABLES(named_rows, 1), CHECK_TABLES(large, 1),        CHECK_TABLES(terms, 20),
        CHECK_TABLES(sources, 20),   CHECK_TABLES(beside_rows, 12), CHECK_TABLES(rows, 20),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

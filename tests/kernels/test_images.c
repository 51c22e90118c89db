/* Convolutions, pools and batch normalisation against their definition and central differences. */
#include <math.h>

#include "tests/kernels/check.h"

static const double EPSILON = 1e-5;

struct problem {
    struct check *check;
    struct sbp_windows at;
    int64_t out, in_elements, out_elements, weights;
    double *x, *w, *bias, *dy, *y;
    double (*forward)(const struct problem *p, int64_t place[4]); /* of an output */
};

static int64_t windows_along(const struct sbp_windows *at, int side, int64_t size)
{
    return (size + 2 * at->padding[side] - at->kernel[side]) / at->stride[side] + 1;
}

/* Overlapping windows and apart ones, of either side. */
static struct problem draw(struct check *check, bool keeps_channels, bool whole)
{
    struct problem p = {.check = check};
    struct sbp_windows *at = &p.at;
    at->batch = check_size(check, 3);
    at->channels = check_integer(check, 1, 4);
    for (int side = 0; side < 2; side++) {
        at->kernel[side] = check_integer(check, 1, 4);
        at->stride[side] = check_integer(check, 1, 3);
        at->padding[side] = check_integer(check, 0, at->kernel[side] - 1);
    }
    at->height = check_integer(check, 4, 9);
    at->width = check_integer(check, 4, 9);
    at->out_height = windows_along(at, 0, at->height);
    at->out_width = windows_along(at, 1, at->width);
    p.out = keeps_channels ? at->channels : check_integer(check, 1, 5);
    p.in_elements = at->batch * at->height * at->channels * at->width;
    p.out_elements = at->batch * at->out_height * p.out * at->out_width;
    p.weights = at->channels * at->kernel[0] * at->kernel[1] * p.out;
    double *(*const values)(struct check *, int64_t) = whole ? check_whole : check_uniform;
    p.x = values(check, p.in_elements);
    p.w = values(check, p.weights);
    p.bias = values(check, p.out);
    p.dy = values(check, p.out_elements);
    p.y = check_zeros(check, p.out_elements);
    return p;
}

/* An element of the input under a tap of a window; false: beside the image. */
static bool find(const struct problem *p, const int64_t place[4], int64_t channel, int64_t down,
                 int64_t right, double *value)
{
    const struct sbp_windows *at = &p->at;
    const int64_t row = place[1] * at->stride[0] - at->padding[0] + down;
    const int64_t column = place[3] * at->stride[1] - at->padding[1] + right;
    if (row < 0 || row >= at->height || column < 0 || column >= at->width)
        return false;
    *value = p->x[((place[0] * at->height + row) * at->channels + channel) * at->width + column];
    return true;
}

static double convolve(const struct problem *p, int64_t place[4])
{
    const struct sbp_windows *at = &p->at;
    double sum = p->bias[place[2]], value;
    for (int64_t c = 0; c < at->channels; c++)
        for (int64_t i = 0; i < at->kernel[0]; i++)
            for (int64_t j = 0; j < at->kernel[1]; j++)
                if (find(p, place, c, i, j, &value))
                    sum += value *
                           p->w[((c * at->kernel[0] + i) * at->kernel[1] + j) * p->out + place[2]];
    return sum;
}

static double average(const struct problem *p, int64_t place[4])
{
    double sum = 0, value;
    for (int64_t i = 0; i < p->at.kernel[0]; i++)
        for (int64_t j = 0; j < p->at.kernel[1]; j++)
            if (find(p, place, place[2], i, j, &value))
                sum += value;
    return sum / (double)(p->at.kernel[0] * p->at.kernel[1]);
}

static double largest(const struct problem *p, int64_t place[4])
{
    double most = -INFINITY, value;
    for (int64_t i = 0; i < p->at.kernel[0]; i++)
        for (int64_t j = 0; j < p->at.kernel[1]; j++)
            if (find(p, place, place[2], i, j, &value))
                most = fmax(most, value);
    return most;
}

static const double *naive(const struct problem *p)
{
    const struct sbp_windows *at = &p->at;
    for (int64_t i = 0; i < p->out_elements; i++) {
        int64_t place[4] = {i / at->out_width / p->out / at->out_height,
                            i / at->out_width / p->out % at->out_height, i / at->out_width % p->out,
                            i % at->out_width};
        p->y[i] = p->forward(p, place);
    }
    return p->y;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    return check_dot(naive(p), p->dy, p->out_elements);
}

static double *twice(struct check *check, const double *once, int64_t n)
{
    double *all = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        all[i] = 2 * once[i];
    return all;
}

static void conv2d(struct check *check)
{
    struct problem p = draw(check, false, false);
    const struct sbp_kernels *k = check->kernels;
    p.forward = convolve;
    const void *x = check_reals(check, p.x, p.in_elements), *w = check_reals(check, p.w, p.weights);
    const void *dy = check_reals(check, p.dy, p.out_elements);
    void *y = check_blank(check, p.out_elements), *dx = check_blank(check, p.in_elements);
    void *dw = check_blank(check, p.weights), *dbias = check_blank(check, p.out);
    const double tolerance = check_roundings(check, 1e-4, 1e-7, 2);
    k->conv2d_forward(y, x, w, check_reals(check, p.bias, p.out), &p.at, p.out);
    check_near(check, "y", y, naive(&p), p.out_elements, check_tolerance(check, 1e-5, 1e-12));
    k->conv2d_backward_input(dx, dy, w, &p.at, p.out);
    check_near(check, "dx", dx, check_gradient(check, evaluate, &p, p.x, p.in_elements),
               p.in_elements, tolerance);
    k->conv2d_backward_weight(dw, dbias, x, dy, &p.at, p.out, 0);
    const double *want = check_gradient(check, evaluate, &p, p.w, p.weights);
    const double *bias = check_gradient(check, evaluate, &p, p.bias, p.out);
    check_near(check, "dw", dw, want, p.weights, tolerance);
    check_near(check, "dbias", dbias, bias, p.out, tolerance);
    k->conv2d_backward_weight(dw, dbias, x, dy, &p.at, p.out, SBP_ADDS_FIRST | SBP_ADDS_REST);
    check_near(check, "dw of two", dw, twice(check, want, p.weights), p.weights, tolerance);
    check_near(check, "dbias of two", dbias, twice(check, bias, p.out), p.out, tolerance);
}

/* Some rows of the images, and of the outputs, of a problem. */
struct part {
    int64_t first, end, out_first, out_end;
    struct sbp_windows at;
};

static struct part draw_part(struct check *check, const struct sbp_windows *whole)
{
    struct part part = {.at = *whole};
    part.first = check_integer(check, 0, whole->height - 1);
    part.end = check_integer(check, part.first + 1, whole->height);
    part.out_first = check_integer(check, 0, whole->out_height - 1);
    part.out_end = check_integer(check, part.out_first + 1, whole->out_height);
    const int64_t begin = part.out_first * whole->stride[0] - whole->padding[0];
    const int64_t reach =
        (part.out_end - 1) * whole->stride[0] - whole->padding[0] + whole->kernel[0];
    const int64_t above = begin > 0 ? begin : 0;
    const int64_t below = reach < whole->height ? reach : whole->height;
    part.at.height = part.end - part.first;
    part.at.out_height = part.out_end - part.out_first;
    part.at.padding[0] = part.first - begin;
    part.at.above = part.first > above ? part.first - above : 0;
    part.at.below = below > part.end ? below - part.end : 0;
    return part;
}

/* Rows first .. end - 1 of images of so many rows, as they lie in a block, or row by row. */
static double *rows_of(struct check *check, const double *x, const struct sbp_windows *at,
                       int64_t height, int64_t line, int64_t first, int64_t end, bool by_row)
{
    const int64_t rows = end - first;
    double *to = check_zeros(check, at->batch * rows * line);
    for (int64_t image = 0; image < at->batch; image++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < line; i++)
                to[(by_row ? row * at->batch + image : image * rows + row) * line + i] =
                    x[(image * height + first + row) * line + i];
    return to;
}

/* What lies around a part, above and below it. */
static const void *around(struct check *check, const struct problem *p, const struct part *part)
{
    const int64_t line = p->at.channels * p->at.width, row = p->at.batch * line;
    const double *above = rows_of(check, p->x, &p->at, p->at.height, line,
                                  part->first - part->at.above, part->first, true);
    const double *below = rows_of(check, p->x, &p->at, p->at.height, line, part->end,
                                  part->end + part->at.below, true);
    double *both = check_zeros(check, (part->at.above + part->at.below) * row);
    for (int64_t i = 0; i < part->at.above * row; i++)
        both[i] = above[i];
    for (int64_t i = 0; i < part->at.below * row; i++)
        both[part->at.above * row + i] = below[i];
    return check_reals(check, both, (part->at.above + part->at.below) * row);
}

/* Gradients of a part's rows of outputs in those of the whole, which are zeros elsewhere. */
static double *alone_in(struct check *check, const struct problem *p, const struct part *part,
                        const double *dy)
{
    const int64_t line = p->out * p->at.out_width, block = part->at.out_height * line;
    double *alone = check_zeros(check, p->out_elements);
    for (int64_t image = 0; image < p->at.batch; image++)
        for (int64_t i = 0; i < block; i++)
            alone[(image * p->at.out_height + part->out_first) * line + i] = dy[image * block + i];
    return alone;
}

/* Rows of outputs by rows of images and those around them, and the gradients that they give, as of
 * the whole images where other rows of outputs give none. Whole numbers are exact. */
static void conv2d_of_rows(struct check *check)
{
    struct problem p = draw(check, false, true);
    const struct sbp_kernels *k = check->kernels;
    const struct sbp_windows *whole = &p.at;
    struct part part = draw_part(check, whole);
    const int64_t line = whole->channels * whole->width, out_line = p.out * whole->out_width;
    const int64_t in = whole->batch * part.at.height * line;
    const int64_t out = whole->batch * part.at.out_height * out_line;
    p.forward = convolve;
    part.at.around = around(check, &p, &part);
    const void *x = check_reals(
        check, rows_of(check, p.x, whole, whole->height, line, part.first, part.end, false), in);
    const double *dy = rows_of(check, p.dy, whole, whole->out_height, out_line, part.out_first,
                               part.out_end, false);
    const double *alone = alone_in(check, &p, &part, dy);
    const void *w = check_reals(check, p.w, p.weights),
               *all = check_reals(check, alone, p.out_elements);
    void *y = check_blank(check, out), *dx = check_blank(check, in);
    void *dw = check_blank(check, p.weights), *want = check_blank(check, p.weights);
    void *dx_all = check_blank(check, p.in_elements);
    k->conv2d_forward(y, x, w, check_reals(check, p.bias, p.out), &part.at, p.out);
    check_equal(check, "y", y,
                rows_of(check, naive(&p), whole, whole->out_height, out_line, part.out_first,
                        part.out_end, false),
                out);
    k->conv2d_backward_input(dx, check_reals(check, dy, out), w, &part.at, p.out);
    k->conv2d_backward_input(dx_all, all, w, whole, p.out);
    check_equal(check, "dx", dx,
                rows_of(check, check_doubles(check, dx_all, p.in_elements), whole, whole->height,
                        line, part.first, part.end, false),
                in);
    k->conv2d_backward_weight(dw, NULL, x, check_reals(check, dy, out), &part.at, p.out, 0);
    k->conv2d_backward_weight(want, NULL, check_reals(check, p.x, p.in_elements), all, whole, p.out,
                              0);
    check_equal(check, "dw", dw, check_doubles(check, want, p.weights), p.weights);
}

/* More channels and places than a tile has, of whole numbers, which are exact. */
static void wide_conv2d(struct check *check)
{
    struct problem p = draw(check, false, true);
    const struct sbp_kernels *k = check->kernels;
    p.at = (struct sbp_windows){.batch = 2,
                                .channels = 40,
                                .height = 9,
                                .width = 10,
                                .out_height = 9,
                                .out_width = 10,
                                .kernel = {3, 3},
                                .stride = {1, 1},
                                .padding = {1, 1}};
    p.out = 140;
    p.in_elements = 2 * 90 * 40;
    p.out_elements = 2 * 90 * 140;
    p.weights = 40 * 9 * 140;
    p.x = check_whole(check, p.in_elements);
    p.w = check_whole(check, p.weights);
    p.dy = check_whole(check, p.out_elements);
    p.bias = check_zeros(check, p.out);
    p.y = check_zeros(check, p.out_elements);
    p.forward = convolve;
    const void *x = check_reals(check, p.x, p.in_elements), *w = check_reals(check, p.w, p.weights);
    const void *dy = check_reals(check, p.dy, p.out_elements);
    void *y = check_blank(check, p.out_elements), *dx = check_blank(check, p.in_elements);
    void *dw = check_blank(check, p.weights);
    k->conv2d_forward(y, x, w, NULL, &p.at, p.out);
    check_equal(check, "y", y, naive(&p), p.out_elements);
    k->conv2d_backward_input(dx, dy, w, &p.at, p.out);
    k->conv2d_backward_weight(dw, NULL, x, dy, &p.at, p.out, 0);
    if (check->kernels->real_bytes < 4)
        return; /* rounded sums do not add up */
    const double forward = check_dot(p.y, p.dy, p.out_elements);
    const double by_x = check_dot(check_doubles(check, dx, p.in_elements), p.x, p.in_elements);
    const double by_w = check_dot(check_doubles(check, dw, p.weights), p.w, p.weights);
    if (by_x != forward || by_w != forward)
        fail_msg("y dy %g, x dx %g, w dw %g", forward, by_x, by_w);
}

/* Ties would leave central differences between two elements. */
static void spread_apart(struct problem *p)
{
    for (int64_t i = 0; i < p->in_elements; i++)
        p->x[i] = (double)((i * 37) % p->in_elements) / 64;
}

static void pools(struct check *check)
{
    struct problem p = draw(check, true, false);
    const struct sbp_kernels *k = check->kernels;
    const double tolerance = check_roundings(check, 1e-4, 1e-7, 2);
    while (p.in_elements % 37 == 0 || p.in_elements > 256)
        p = draw(check, true, false);
    spread_apart(&p);
    const void *x = check_reals(check, p.x, p.in_elements);
    const void *dy = check_reals(check, p.dy, p.out_elements);
    void *y = check_blank(check, p.out_elements), *dx = check_blank(check, p.in_elements);
    void *index = check_bytes(check, 4 * p.out_elements);
    p.forward = largest;
    k->maxpool_forward(y, index, x, &p.at);
    k->maxpool_backward(dx, index, dy, &p.at);
    check_equal(check, "largest", y, naive(&p), p.out_elements);
    check_near(check, "dx", dx, check_gradient(check, evaluate, &p, p.x, p.in_elements),
               p.in_elements, tolerance);
    p.forward = average;
    k->avgpool_forward(y, x, &p.at);
    k->avgpool_backward(dx, dy, &p.at);
    check_near(check, "mean", y, naive(&p), p.out_elements, check_tolerance(check, 1e-6, 1e-13));
    check_near(check, "dx of means", dx, check_gradient(check, evaluate, &p, p.x, p.in_elements),
               p.in_elements, tolerance);
}

/* Indices of large windows take four bytes. */
static void large_window(struct check *check)
{
    enum { SIDE = 17, PLACES = SIDE * SIDE };
    const struct sbp_windows at = {.batch = 1,
                                   .channels = 1,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .out_height = 1,
                                   .out_width = 1,
                                   .kernel = {SIDE, SIDE},
                                   .stride = {SIDE, SIDE}};
    double *x = check_zeros(check, PLACES), *want = check_zeros(check, PLACES);
    const double one = 1;
    x[PLACES - 1] = want[PLACES - 1] = 1;
    void *y = check_blank(check, 1), *dx = check_blank(check, PLACES);
    void *index = check_bytes(check, 4);
    check->kernels->maxpool_forward(y, index, check_reals(check, x, PLACES), &at);
    check->kernels->maxpool_backward(dx, index, check_reals(check, &one, 1), &at);
    check_equal(check, "y", y, &one, 1);
    check_equal(check, "dx", dx, want, PLACES);
}

/* ---- batch normalisation --------------------------------------------------------------------- */

struct norm {
    struct sbp_norm_rows rows;
    double *x, *gain, *shift, *dy, *y;
    int64_t elements;
};

static double normalise(void *context)
{
    const struct norm *n = context;
    const int64_t width = n->rows.width, channels = n->rows.channels;
    const double count = (double)(n->rows.count * width);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n->rows.count * width; i++)
            sum += n->x[(i / width * channels + c) * width + i % width];
        for (int64_t i = 0; i < n->rows.count * width; i++) {
            const double left = n->x[(i / width * channels + c) * width + i % width] - sum / count;
            squares += left * left;
        }
        for (int64_t i = 0; i < n->rows.count * width; i++) {
            const int64_t at = (i / width * channels + c) * width + i % width;
            n->y[at] = (n->x[at] - sum / count) / sqrt(squares / count + EPSILON) * n->gain[c] +
                       n->shift[c];
        }
    }
    return check_dot(n->y, n->dy, n->elements);
}

static struct norm draw_norm(struct check *check)
{
    struct norm n = {.rows = {.count = check_integer(check, 3, 7),
                              .channels = check_integer(check, 1, 4),
                              .width = check_integer(check, 2, 20)}};
    n.elements = n.rows.count * n.rows.channels * n.rows.width;
    n.x = check_uniform(check, n.elements);
    n.dy = check_uniform(check, n.elements);
    n.gain = check_uniform(check, n.rows.channels);
    n.shift = check_uniform(check, n.rows.channels);
    n.y = check_zeros(check, n.elements);
    return n;
}

static void batchnorm(struct check *check)
{
    struct norm n = draw_norm(check);
    const struct sbp_kernels *k = check->kernels;
    const int64_t channels = n.rows.channels;
    const double tolerance = check_roundings(check, 1e-3, 1e-6, 3);
    const void *x = check_reals(check, n.x, n.elements), *dy = check_reals(check, n.dy, n.elements);
    const void *gain = check_reals(check, n.gain, channels);
    void *y = check_blank(check, n.elements), *dx = check_blank(check, n.elements);
    void *dgain = check_blank(check, channels), *dshift = check_blank(check, channels);
    void *statistics = check_wide_blank(check, 2 * channels);
    k->batchnorm_statistics(statistics, x, &n.rows, EPSILON);
    k->batchnorm_forward(y, x, statistics, gain, check_reals(check, n.shift, channels), &n.rows);
    k->batchnorm_backward(dx, dgain, dshift, dy, x, statistics, gain, &n.rows, false);
    (void)normalise(&n);
    check_near(check, "y", y, n.y, n.elements, check_tolerance(check, 1e-5, 1e-12));
    check_near(check, "dx", dx, check_gradient(check, normalise, &n, n.x, n.elements), n.elements,
               tolerance);
    const double *want = check_gradient(check, normalise, &n, n.gain, channels);
    check_near(check, "dgain", dgain, want, channels, tolerance);
    const double *shift = check_gradient(check, normalise, &n, n.shift, channels);
    check_near(check, "dshift", dshift, shift, channels, tolerance);
    k->batchnorm_backward(dx, dgain, dshift, dy, x, statistics, gain, &n.rows, true);
    check_near(check, "dgain of two", dgain, twice(check, want, channels), channels, tolerance);
    check_near(check, "dshift of two", dshift, twice(check, shift, channels), channels, tolerance);
}

/* Rows that do not follow each other, as they lie in a larger block. */
static void chosen_rows(struct check *check)
{
    const struct norm n = draw_norm(check);
    const struct sbp_kernels *k = check->kernels;
    const int64_t each = n.rows.channels * n.rows.width;
    double *spread = check_zeros(check, 2 * n.elements);
    int64_t row[8];
    for (int64_t i = 0; i < n.rows.count; i++) {
        row[i] = 2 * i + 1;
        for (int64_t j = 0; j < each; j++)
            spread[row[i] * each + j] = n.x[i * each + j];
    }
    const struct sbp_norm_rows rows = {n.rows.count, row, n.rows.channels, n.rows.width};
    void *some = check_wide_blank(check, 2 * n.rows.channels);
    void *all = check_wide_blank(check, 2 * n.rows.channels);
    k->batchnorm_statistics(some, check_reals(check, spread, 2 * n.elements), &rows, EPSILON);
    k->batchnorm_statistics(all, check_reals(check, n.x, n.elements), &n.rows, EPSILON);
    for (int64_t i = 0; i < 2 * n.rows.channels; i++)
        if (check_wide_at(check, some, i) != check_wide_at(check, all, i))
            fail_msg("statistic %lld of chosen rows is another", (long long)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(conv2d, 15),      CHECK_TABLES(conv2d_of_rows, 40),
        CHECK_TABLES(wide_conv2d, 1),  CHECK_TABLES(pools, 15),
        CHECK_TABLES(large_window, 1), CHECK_TABLES(batchnorm, 15),
        CHECK_TABLES(chosen_rows, 5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

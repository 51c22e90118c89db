#include "calib/fit/curve_fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "calib/fit/lad.h"

#define MOST_EXACT 64    /* sizes up to which lines of least absolute deviations lay segments out */
#define MANY_SIZES 12    /* from here on a segment has three sizes: no outlier gets its own */
#define TIE        1e-6  /* of held-out errors: rounding does not decide */
#define PARALLEL   1e-14 /* squared sine of the angle at which two columns are one */

const char *sbp_curve_method_text(enum sbp_curve_method method)
{
    return method == SBP_CURVE_LAD ? "least absolute deviations" : "least squares";
}

double sbp_curve_fit_s(const struct sbp_curve_fit *fit, double bytes)
{
    struct sbp_shape_curve curve = {.segment_count = fit->segment_count};
    memcpy(curve.segment, fit->segment, sizeof curve.segment);
    return sbp_network_curve_s(&curve, bytes);
}

/* --- one line --- */

static double absolute_sum(const struct sbp_curve_sample *sample, int count, double alpha_s,
                           double beta_s_per_byte, double most)
{
    double sum = 0;
    for (int i = 0; i < count && sum < most; i++)
        sum += fabs((alpha_s + beta_s_per_byte * sample[i].bytes) / sample[i].time_s - 1);
    return sum;
}

static double square_sum(const struct sbp_curve_sample *sample, int count, double alpha_s,
                         double beta_s_per_byte)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double off = (alpha_s + beta_s_per_byte * sample[i].bytes) / sample[i].time_s - 1;
        sum += off * off;
    }
    return sum;
}

/* A line of least absolute deviations with both parameters >= 0 goes through two points, or
 * through one with the other parameter 0: all are tried. */
static double absolute_line(const struct sbp_curve_sample *sample, int count,
                            struct sbp_segment *line)
{
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        for (int j = i; j <= count; j++) { /* i: flat; count: through the origin */
            double beta = 0;
            if (j == count)
                beta = sample[i].time_s / sample[i].bytes;
            else if (j > i)
                beta = (sample[j].time_s - sample[i].time_s) / (sample[j].bytes - sample[i].bytes);
            const double alpha = j == count ? 0 : sample[i].time_s - beta * sample[i].bytes;
            if (beta < 0 || alpha < 0)
                continue;
            const double sum = absolute_sum(sample, count, alpha, beta, least);
            if (sum < least) {
                least = sum;
                line->alpha_s = alpha;
                line->beta_s_per_byte = beta;
            }
        }
    }
    return least;
}

/* Solves the normal equations of the columns 1/t and n/t; where a parameter comes out below 0, the
 * better line with one of them at 0 counts. */
static double square_line(const struct sbp_curve_sample *sample, int count,
                          struct sbp_segment *line)
{
    double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
    for (int i = 0; i < count; i++) {
        const double u = 1 / sample[i].time_s, v = sample[i].bytes / sample[i].time_s;
        uu += u * u;
        uv += u * v;
        vv += v * v;
        u1 += u;
        v1 += v;
    }
    const double determinant = uu * vv - uv * uv;
    line->alpha_s = (vv * u1 - uv * v1) / determinant;
    line->beta_s_per_byte = (uu * v1 - uv * u1) / determinant;
    if (!(determinant > PARALLEL * uu * vv) || line->alpha_s < 0 || line->beta_s_per_byte < 0) {
        const bool is_flat =
            square_sum(sample, count, u1 / uu, 0) <= square_sum(sample, count, 0, v1 / vv);
        line->alpha_s = is_flat ? u1 / uu : 0;
        line->beta_s_per_byte = is_flat ? 0 : v1 / vv;
    }
    return square_sum(sample, count, line->alpha_s, line->beta_s_per_byte);
}

static double fit_line(enum sbp_curve_method method, const struct sbp_curve_sample *sample,
                       int count, struct sbp_segment *line)
{
    line->first_bytes = sample[0].bytes;
    line->last_bytes = sample[count - 1].bytes;
    return method == SBP_CURVE_LAD ? absolute_line(sample, count, line)
                                   : square_line(sample, count, line);
}

/* --- where segments begin --- */

struct layout {
    int segments;
    int first[SBP_NETWORK_SEGMENTS + 1]; /* sample, the last one's end included */
};

/* best[k][j]: of the first j samples in k segments; from[k][j]: where the last one begins. */
struct table {
    double best[SBP_NETWORK_SEGMENTS + 1][SBP_MOST_CURVE_SAMPLES + 1];
    int from[SBP_NETWORK_SEGMENTS + 1][SBP_MOST_CURVE_SAMPLES + 1];
};

static void start_table(struct table *table, int segments, int count)
{
    for (int k = 0; k <= segments; k++)
        for (int j = 0; j <= count; j++)
            table->best[k][j] = k == 0 && j == 0 ? 0 : INFINITY;
}

/* Lets the samples from i to j be the last segment, behind every number of others. */
static void extend(struct table *table, int segments, int i, int j, double cost)
{
    for (int k = 1; k <= segments; k++)
        if (table->best[k - 1][i] + cost < table->best[k][j]) {
            table->best[k][j] = table->best[k - 1][i] + cost;
            table->from[k][j] = i;
        }
}

static int least_sizes(int count)
{
    return count < MANY_SIZES ? 2 : 3;
}

static enum sbp_status overflow(struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_INPUT, "the measured times overflow a fit");
}

static enum sbp_status lay_out(const struct sbp_curve_sample *sample, int count,
                               enum sbp_curve_method method, int segments, struct layout *layout,
                               struct sbp_diag *diag)
{
    const enum sbp_curve_method lines = count > MOST_EXACT ? SBP_CURVE_SQUARES : method;
    const int least = least_sizes(count);
    while (segments > 1 && count < least * segments)
        segments--;
    *layout = (struct layout){.segments = segments, .first = {0}};
    layout->first[segments] = count;
    if (segments == 1)
        return SBP_OK;
    struct table *table = malloc(sizeof *table);
    if (table == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a curve of %d sizes", count);
    start_table(table, segments, count);
    for (int j = least; j <= count; j++)
        for (int i = 0; i + least <= j; i++) {
            struct sbp_segment line;
            if (i == 0 || i >= least)
                extend(table, segments, i, j, fit_line(lines, sample + i, j - i, &line));
        }
    const bool is_laid_out = isfinite(table->best[segments][count]);
    for (int k = segments, end = count; k > 0 && is_laid_out; k--)
        end = layout->first[k - 1] = table->from[k][end];
    free(table);
    return is_laid_out ? SBP_OK : overflow(diag);
}

/* --- parameters --- */

static double at_first(const struct sbp_segment *segment)
{
    return segment->alpha_s + segment->beta_s_per_byte * segment->first_bytes;
}

static double at_last(const struct sbp_segment *segment)
{
    return segment->alpha_s + segment->beta_s_per_byte * segment->last_bytes;
}

static void lift(struct sbp_curve_fit *fit)
{
    for (int k = 1; k < fit->segment_count; k++)
        fit->segment[k].alpha_s +=
            fmax(0, at_last(&fit->segment[k - 1]) - at_first(&fit->segment[k]));
}

/* Fits line by line, without a linear program: the layout for it, and all that least squares need.
 */
static enum sbp_status fit_quickly(const struct sbp_curve_sample *sample, int count,
                                   enum sbp_curve_method method, int segments,
                                   struct sbp_curve_fit *fit, struct sbp_diag *diag)
{
    struct layout layout;
    SBP_TRY(lay_out(sample, count, method, segments, &layout, diag));
    *fit = (struct sbp_curve_fit){.method = method, .segment_count = layout.segments};
    for (int k = 0; k < layout.segments; k++)
        if (!isfinite(fit_line(count > MOST_EXACT ? SBP_CURVE_SQUARES : method,
                               sample + layout.first[k], layout.first[k + 1] - layout.first[k],
                               &fit->segment[k])))
            return overflow(diag);
    lift(fit);
    return SBP_OK;
}

/* Fits all segments at once, joined so that none begins below the end of the one before. */
static enum sbp_status fit_program(const struct sbp_curve_sample *sample, int count,
                                   struct sbp_curve_fit *fit, struct sbp_diag *diag)
{
    enum { COLUMNS = 2 * SBP_NETWORK_SEGMENTS };
    const int columns = 2 * fit->segment_count;
    double order[(SBP_NETWORK_SEGMENTS - 1) * COLUMNS] = {0}, x[COLUMNS];
    double *matrix = calloc((size_t)count * (size_t)(columns + 1), sizeof *matrix);
    if (matrix == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a curve of %d sizes", count);
    double *target = matrix + (size_t)count * (size_t)columns;
    for (int i = 0, k = 0; i < count; i++) {
        k += sample[i].bytes > fit->segment[k].last_bytes;
        matrix[i * columns + 2 * k] = 1 / sample[i].time_s;
        matrix[i * columns + 2 * k + 1] = sample[i].bytes / sample[i].time_s;
        target[i] = 1;
    }
    for (int k = 0; k + 1 < fit->segment_count; k++) {
        double *row = &order[k * columns + 2 * k];
        row[0] = -1;
        row[1] = -fit->segment[k].last_bytes;
        row[2] = 1;
        row[3] = fit->segment[k + 1].first_bytes;
    }
    const struct sbp_lad lad = {count, columns, matrix, target, fit->segment_count - 1, order};
    const enum sbp_status status = sbp_lad_solve(&lad, x, diag);
    free(matrix);
    SBP_TRY(status);
    for (int k = 0; k < fit->segment_count; k++) {
        fit->segment[k].alpha_s = x[2 * k];
        fit->segment[k].beta_s_per_byte = x[2 * k + 1];
    }
    lift(fit); /* what tolerances left */
    return SBP_OK;
}

static enum sbp_status check(const struct sbp_curve_sample *sample, int count,
                             struct sbp_diag *diag)
{
    if (count < 1 || count > SBP_MOST_CURVE_SAMPLES)
        return sbp_fail(diag, SBP_E_INPUT, "a curve has %d sizes, legal are 1 to %d", count,
                        SBP_MOST_CURVE_SAMPLES);
    for (int i = 0; i < count; i++)
        if (!(sample[i].bytes > (i == 0 ? 0 : sample[i - 1].bytes)) || !(sample[i].time_s > 0) ||
            !isfinite(sample[i].bytes) || !isfinite(sample[i].time_s))
            return sbp_fail(diag, SBP_E_INPUT,
                            "a curve's sizes must rise and its times be above 0: %g bytes, %g s",
                            sample[i].bytes, sample[i].time_s);
    return SBP_OK;
}

enum sbp_status sbp_curve_fit_with(const struct sbp_curve_sample *samples, int count,
                                   enum sbp_curve_method method, int segments,
                                   struct sbp_curve_fit *fit, struct sbp_diag *diag)
{
    SBP_TRY(check(samples, count, diag));
    SBP_TRY(fit_quickly(samples, count, method, segments, fit, diag));
    return method == SBP_CURVE_LAD ? fit_program(samples, count, fit, diag) : SBP_OK;
}

/* --- which fit --- */

/* The mean of |p / t - 1| over all sizes, each predicted from the half that it is not in. */
static enum sbp_status hold_out(const struct sbp_curve_sample *sample, int count,
                                enum sbp_curve_method method, double *error, struct sbp_diag *diag)
{
    struct sbp_curve_sample kept[SBP_MOST_CURVE_SAMPLES];
    *error = 0;
    for (int half = 0; half < 2; half++) {
        struct sbp_curve_fit fit;
        int kept_count = 0;
        for (int i = half; i < count; i += 2)
            kept[kept_count++] = sample[i];
        SBP_TRY(sbp_curve_fit_with(kept, kept_count, method, SBP_NETWORK_SEGMENTS, &fit, diag));
        for (int i = 1 - half; i < count; i += 2)
            *error += fabs(sbp_curve_fit_s(&fit, sample[i].bytes) / sample[i].time_s - 1) / count;
    }
    return SBP_OK;
}

enum sbp_status sbp_curve_fit(const struct sbp_curve_sample *samples, int count,
                              struct sbp_curve_fit *fit, struct sbp_diag *diag)
{
    enum sbp_curve_method method = SBP_CURVE_SQUARES;
    double absolute = 0, squares = 0;
    SBP_TRY(check(samples, count, diag));
    if (sbp_lad_is_available() && count > 1) {
        SBP_TRY(hold_out(samples, count, SBP_CURVE_LAD, &absolute, diag));
        SBP_TRY(hold_out(samples, count, SBP_CURVE_SQUARES, &squares, diag));
        method = absolute <= squares * (1 + TIE) + TIE ? SBP_CURVE_LAD : SBP_CURVE_SQUARES;
    }
    return sbp_curve_fit_with(samples, count, method, SBP_NETWORK_SEGMENTS, fit, diag);
}

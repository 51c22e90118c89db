#include "planner/page/figure.h"

#include <math.h>
#include <string.h>

#include "base/math/portable.h"

/* Units of a figure's width: finer than the pixels of any screen that shows it. */
#define WIDTH 4000
/* Intervals that are narrower are joined with their neighbours; wider ones are drawn a little
 * shorter, so that two that meet can be told apart. */
#define NARROW 12
#define GAP    3
enum { BAR_HEIGHT = 20, PLOT_HEIGHT = 1000, TICKS = 5, MOST_LETTERS = 36, NUMBER_BYTES = 48 };

#define SBP_COLOUR_NAME(symbol, name) [SBP_COLOUR_##symbol] = (name),
static const char *const classes[] = {SBP_COLOUR_MAP(SBP_COLOUR_NAME)};
#undef SBP_COLOUR_NAME

const char *sbp_figure_class(enum sbp_colour colour)
{
    return classes[colour];
}

enum sbp_colour sbp_figure_colour(int64_t index)
{
    return (enum sbp_colour)(index % SBP_COLOUR_REST);
}

/* --- bars --- */

static void open_svg(struct sbp_text *html, const char *css, int height, const char *label)
{
    sbp_text_add(html,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"%s\" viewBox=\"0 0 %d %d\" "
                 "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
                 css, WIDTH, height);
    sbp_markup_text(html, label);
    sbp_text_add(html, "\">");
}

void sbp_figure_bar(struct sbp_text *html, const char *label, const struct sbp_part *part,
                    int count, double whole, double mark)
{
    double before = 0;
    open_svg(html, "bar", BAR_HEIGHT, label);
    for (int i = 0; i < count && whole > 0; i++) {
        const double from = WIDTH * before / whole;
        const double to = WIDTH * (before + part[i].value) / whole;
        before += part[i].value;
        if (to - from < 0.5)
            continue;
        sbp_text_add(html, "<path class=\"%s\" d=\"M%.1f 0H%.1fV%dH%.1fz\">",
                     sbp_figure_class(part[i].colour), from, to - from > NARROW ? to - 2 * GAP : to,
                     BAR_HEIGHT, from);
        if (part[i].name != NULL) {
            sbp_text_add(html, "<title>");
            sbp_markup_add(html, "%s, %.1f %%", part[i].name, 100 * part[i].value / whole);
            sbp_text_add(html, "</title>");
        }
        sbp_text_add(html, "</path>");
    }
    if (mark > 0 && whole > 0)
        sbp_text_add(html, "<path class=\"mark\" d=\"M%.1f 0V%d\"/>", WIDTH * mark / whole,
                     BAR_HEIGHT);
    sbp_text_add(html, "</svg>");
}

void sbp_figure_key(struct sbp_text *html, const struct sbp_part *part, int count)
{
    sbp_text_add(html, "<ul class=\"key\">");
    for (int i = 0; i < count; i++) {
        if (!(part[i].value > 0))
            continue;
        sbp_text_add(html, "<li><i class=\"%s\"></i>", sbp_figure_class(part[i].colour));
        sbp_markup_text(html, part[i].name);
        sbp_text_add(html, "</li>");
    }
    sbp_text_add(html, "</ul>\n");
}

/* --- strips --- */

static double place(const struct sbp_strip *strip, double at_s)
{
    const double share = (at_s - strip->begin_s) / (strip->end_s - strip->begin_s);
    return fmin(fmax(share, 0), 1);
}

static void add_shares(struct sbp_strip *strip, enum sbp_colour colour, double from, double to)
{
    const double first = from * SBP_STRIP_MOMENTS, last = to * SBP_STRIP_MOMENTS;
    for (int at = (int)first; at < SBP_STRIP_MOMENTS && at < last; at++)
        strip->share[colour][at] += fmin(last, at + 1) - fmax(first, at);
}

void sbp_figure_strip_add(struct sbp_strip *strip, enum sbp_colour colour, double begin_s,
                          double end_s)
{
    const double seconds = fmin(end_s, strip->end_s) - fmax(begin_s, strip->begin_s);
    if (!(seconds > 0))
        return;
    strip->sum_s += seconds;
    strip->count++;
    const double from = place(strip, begin_s), to = place(strip, end_s);
    const int left = (int)lround(WIDTH * from), right = (int)lround(WIDTH * to);
    const int end = right - left > NARROW ? right - GAP : right > left ? right : left + 1;
    add_shares(strip, colour, from, to);
    sbp_text_add(&strip->path[colour], "M%d 0H%dV%dH%dz", left, end, BAR_HEIGHT, left);
}

/* Whether intervals are mostly too narrow to be seen one by one. */
static bool is_dense(const struct sbp_strip *strip)
{
    const double mean = strip->sum_s / (double)strip->count;
    return strip->count > SBP_STRIP_MOMENTS / 4 &&
           WIDTH * mean < NARROW * (strip->end_s - strip->begin_s);
}

/* The height of all colours up to one, in a moment. */
static double height_at(const struct sbp_strip *strip, int colour, int at)
{
    double sum = 0;
    for (int i = 0; i <= colour; i++)
        sum += strip->share[i][at];
    return BAR_HEIGHT * fmin(sum, 1);
}

/* An area from the bottom; those below it are drawn over it. */
static void draw_shares(struct sbp_text *html, const struct sbp_strip *strip, int colour)
{
    double before = -1;
    sbp_text_add(html, "<path class=\"%s\" d=\"M0 %d", sbp_figure_class((enum sbp_colour)colour),
                 BAR_HEIGHT);
    for (int at = 0; at < SBP_STRIP_MOMENTS; at++) {
        const double top = round(10 * (BAR_HEIGHT - height_at(strip, colour, at))) / 10;
        if (top != before)
            sbp_text_add(html, "H%dV%g", at * (WIDTH / SBP_STRIP_MOMENTS), top);
        before = top;
    }
    sbp_text_add(html, "H%dV%dz\"/>", WIDTH, BAR_HEIGHT);
}

static void draw_paths(struct sbp_text *html, const struct sbp_strip *strip, int colour)
{
    const struct sbp_text *path = &strip->path[colour];
    html->failed |= path->failed;
    if (path->bytes != NULL)
        sbp_text_add(html, "<path class=\"%s\" d=\"%s\"/>",
                     sbp_figure_class((enum sbp_colour)colour), path->bytes);
}

void sbp_figure_strip_end(struct sbp_strip *strip, struct sbp_text *html, const char *css,
                          const char *label)
{
    open_svg(html, css, BAR_HEIGHT, label);
    for (int colour = SBP_COLOURS - 1; colour >= 0; colour--) {
        if (strip->path[colour].bytes != NULL && is_dense(strip))
            draw_shares(html, strip, colour);
        else
            draw_paths(html, strip, colour);
        sbp_text_free(&strip->path[colour]);
    }
    sbp_text_add(html, "</svg>");
}

/* --- axes --- */

static double digits_of(double number)
{
    static const double DIGITS_A_BIT = 0.30102999566398119521;
    return DIGITS_A_BIT * sbp_log2(number);
}

/* The least of 1, 2, 5, 10, ... that parts `most` into TICKS or fewer, but for rounding. */
static double nice_step(double most)
{
    static const double nice[] = {1, 2, 5};
    const double least = most / TICKS;
    const double power = sbp_pow(10, floor(digits_of(least)));
    for (int i = 0; i < 3; i++)
        if (nice[i] * power >= least * (1 - 1e-9))
            return nice[i] * power;
    return 10 * power;
}

/* What a number of the unit is counted in, at such a size: bytes in GiB, not in 10^9. */
static double scale_of(enum sbp_figure_unit unit, double most)
{
    double scale = 1;
    while (unit == SBP_FIGURE_BYTES && most / scale >= 1024)
        scale *= 1024;
    return scale;
}

/* So many as tell ticks apart. */
static int decimals_of(double step)
{
    return (int)fmin(fmax(ceil(-digits_of(step) - 1e-9), 0), 9);
}

/* Seconds as "120 s", "20 ms", "5.5 us": the ticks of an axis have the unit of its largest. */
static void format_time(double seconds, double most_s, double step_s, char *shown)
{
    const double scale = most_s >= 1 ? 1 : most_s >= 1e-3 ? 1e3 : 1e6;
    (void)snprintf(shown, NUMBER_BYTES, "%.*f %s", decimals_of(step_s * scale), seconds * scale,
                   scale > 1e3 ? "us"
                   : scale > 1 ? "ms"
                               : "s");
}

static void add_tick(struct sbp_text *html, enum sbp_figure_unit unit, double value, double most,
                     double step)
{
    char shown[NUMBER_BYTES];
    if (unit == SBP_FIGURE_SECONDS)
        format_time(value, most, step, shown);
    else if (unit == SBP_FIGURE_BYTES)
        (void)sbp_format_bytes(value, shown);
    else if (unit == SBP_FIGURE_COUNT)
        (void)sbp_format_count(value, shown);
    else
        (void)snprintf(shown, sizeof shown, "%.*f %%", decimals_of(100 * step), 100 * value);
    sbp_markup_text(html, value == 0 ? "0" : shown);
}

/* A tick near the right end has its letters at its left, so that they stay on the page. */
static void open_tick(struct sbp_text *html, double share)
{
    sbp_text_add(html, "<span%s style=\"left:%.2f%%\">", share > 0.8 ? " class=\"r\"" : "",
                 100 * share);
}

void sbp_figure_time_axis(struct sbp_text *html, double begin_s, double end_s)
{
    const double length_s = end_s - begin_s, step = nice_step(length_s);
    sbp_text_add(html, "<div class=\"axis\">");
    for (int i = 0; i <= 2 * TICKS; i++) {
        const double at = (ceil(begin_s / step - 1e-9) + i) * step;
        if (at > end_s + 1e-9 * step)
            break;
        open_tick(html, (at - begin_s) / length_s);
        add_tick(html, SBP_FIGURE_SECONDS, fabs(at) < 1e-9 * step ? 0 : at, end_s, step);
        sbp_text_add(html, "</span>");
    }
    sbp_text_add(html, "</div>\n");
}

/* --- lines --- */

struct frame {
    const struct sbp_lines *lines;
    double high_y, step_y;
};

static struct frame frame_of(const struct sbp_lines *lines)
{
    double most = 0;
    for (int i = 0; i < lines->count; i++)
        for (int k = 0; k < lines->series[i].count; k++)
            if (isfinite(lines->series[i].y[k]))
                most = fmax(most, lines->series[i].y[k]);
    most = most > 0 ? most : 1;
    const double scale = scale_of(lines->unit, most);
    const double step = scale * nice_step(most / scale);
    return (struct frame){lines, step * ceil(most * 1.02 / step), step};
}

static double x_of(const struct frame *frame, double x)
{
    const struct sbp_lines *lines = frame->lines;
    return lines->high_x > lines->low_x
               ? WIDTH * (x - lines->low_x) / (lines->high_x - lines->low_x)
               : WIDTH / 2.0;
}

static double y_of(const struct frame *frame, double y)
{
    return PLOT_HEIGHT * (1 - y / frame->high_y);
}

static void add_line(struct sbp_text *html, const struct frame *frame,
                     const struct sbp_series *series)
{
    bool begun = false;
    sbp_text_add(html, "<path class=\"line %s%s\" d=\"", sbp_figure_class(series->colour),
                 series->is_dashed ? " dashed" : "");
    for (int k = 0; k < series->count; k++) {
        if (!isfinite(series->y[k])) {
            begun = false;
            continue;
        }
        const double x = x_of(frame, series->x[k]), y = y_of(frame, series->y[k]);
        if (series->is_stepped && begun)
            sbp_text_add(html, "H%.0fV%.1f", x, y);
        else
            sbp_text_add(html, "%s%.0f %.1f", begun ? "L" : "M", x, y);
        begun = true;
    }
    sbp_text_add(html, "\"/>");
    if (!series->is_dotted)
        return;
    sbp_text_add(html, "<path class=\"dots %s\" d=\"", sbp_figure_class(series->colour));
    for (int k = 0; k < series->count; k++)
        if (isfinite(series->y[k]))
            sbp_text_add(html, "M%.0f %.1fh0", x_of(frame, series->x[k]),
                         y_of(frame, series->y[k]));
    sbp_text_add(html, "\"/>");
}

/* Ticks at the left, lines behind, and ticks below. */
static void add_grid(struct sbp_text *html, const struct frame *frame)
{
    sbp_text_add(html, "<div class=\"ys\">");
    for (int i = 0; i * frame->step_y <= frame->high_y * (1 + 1e-9); i++) {
        sbp_text_add(html, "<span style=\"bottom:%.2f%%\">",
                     100 * i * frame->step_y / frame->high_y);
        add_tick(html, frame->lines->unit, i * frame->step_y, frame->high_y, frame->step_y);
        sbp_text_add(html, "</span>");
    }
    sbp_text_add(html, "</div>");
}

static void add_grid_lines(struct sbp_text *html, const struct frame *frame)
{
    sbp_text_add(html, "<path class=\"grid\" d=\"");
    for (int i = 0; i * frame->step_y <= frame->high_y * (1 + 1e-9); i++)
        sbp_text_add(html, "M0 %.1fH%d", y_of(frame, i * frame->step_y), WIDTH);
    sbp_text_add(html, "\"/>");
}

static void add_series_key(struct sbp_text *html, const struct sbp_lines *lines)
{
    struct sbp_part part;
    if (lines->count < 2)
        return;
    sbp_text_add(html, "<ul class=\"key\">");
    for (int i = 0; i < lines->count; i++) {
        part = (struct sbp_part){lines->series[i].name, lines->series[i].colour, 1};
        sbp_text_add(html, "<li><i class=\"%s\"></i>", sbp_figure_class(part.colour));
        sbp_markup_text(html, part.name);
        sbp_text_add(html, "</li>");
    }
    sbp_text_add(html, "</ul>");
}

/* Names of ticks must not meet: every so many are shown. */
static int ticks_apart(const struct sbp_lines *lines)
{
    int longest = 1;
    for (int i = 0; i < lines->tick_count; i++)
        if ((int)strlen(lines->tick[i]) > longest)
            longest = (int)strlen(lines->tick[i]);
    const int most = longest + 2 < MOST_LETTERS ? MOST_LETTERS / (longest + 2) : 1;
    return (lines->tick_count + most - 1) / most;
}

static void add_ticks_below(struct sbp_text *html, const struct frame *frame)
{
    const struct sbp_lines *lines = frame->lines;
    if (lines->tick_count == 0) {
        sbp_figure_time_axis(html, lines->low_x, lines->high_x);
        return;
    }
    const int apart = ticks_apart(lines);
    sbp_text_add(html, "<div class=\"axis mid\">");
    for (int i = 0; i < lines->tick_count; i += apart) {
        sbp_text_add(html, "<span style=\"left:%.2f%%\">", 100 * x_of(frame, i) / WIDTH);
        sbp_markup_text(html, lines->tick[i]);
        sbp_text_add(html, "</span>");
    }
    sbp_text_add(html, "</div>");
}

void sbp_figure_lines(struct sbp_text *html, const struct sbp_lines *lines)
{
    const struct frame frame = frame_of(lines);
    sbp_text_add(html, "<figure class=\"plot\"><figcaption>");
    sbp_markup_text(html, lines->title);
    sbp_text_add(html, "</figcaption>");
    add_series_key(html, lines);
    sbp_text_add(html, "<div class=\"frame\">");
    add_grid(html, &frame);
    sbp_text_add(html, "<div>");
    open_svg(html, "lines", PLOT_HEIGHT, lines->label);
    add_grid_lines(html, &frame);
    for (int i = 0; i < lines->count; i++)
        add_line(html, &frame, &lines->series[i]);
    sbp_text_add(html, "</svg>");
    add_ticks_below(html, &frame);
    sbp_text_add(html, "</div></div></figure>\n");
}

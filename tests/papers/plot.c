#include "tests/papers/plot.h"

#include <math.h>

/* The size and place of the panel, in pixels; the legend takes the space to the right of it. */
enum { LEFT = 84, TOP = 44, PANEL_WIDTH = 460, PANEL_HEIGHT = 300, WIDTH = 740, HEIGHT = 400 };

/* Told apart in print and by the colour-blind (Okabe and Ito, "Color universal design", 2008). */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#666666", "#e69f00"};

static double place(const struct plot_axis *axis, double value)
{
    return axis->logarithmic ? log(value / axis->low) / log(axis->high / axis->low)
                             : (value - axis->low) / (axis->high - axis->low);
}

static double x_of(const struct plot *plot, double value)
{
    return LEFT + PANEL_WIDTH * place(&plot->x, value);
}

static double y_of(const struct plot *plot, double value)
{
    return TOP + PANEL_HEIGHT * (1 - place(&plot->y, value));
}

/* The tick numbered i; false beyond the axis. */
static bool tick_at(const struct plot_axis *axis, int i, double *value)
{
    *value = axis->logarithmic ? axis->low * pow(axis->tick, i) : axis->low + axis->tick * i;
    return *value <= axis->high + 1e-9 * fabs(axis->high);
}

static void write_ticks(const struct plot *plot, struct sbp_text *svg)
{
    double value = 0;
    for (int i = 0; tick_at(&plot->x, i, &value); i++) {
        const double x = x_of(plot, value);
        sbp_text_add(svg, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/>\n", x, TOP,
                     TOP + PANEL_HEIGHT);
        sbp_text_add(svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.7g</text>\n", x,
                     TOP + PANEL_HEIGHT + 18, value);
    }
    for (int i = 0; tick_at(&plot->y, i, &value); i++) {
        const double y = y_of(plot, value);
        sbp_text_add(svg, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, y,
                     LEFT + PANEL_WIDTH);
        sbp_text_add(svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.7g</text>\n", LEFT - 8,
                     y + 4, value);
    }
}

static void write_frame(const struct plot *plot, struct sbp_text *svg)
{
    sbp_text_add(svg,
                 "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
                 "stroke=\"#333\"/>\n",
                 LEFT, TOP, PANEL_WIDTH, PANEL_HEIGHT);
    sbp_text_add(svg, "<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n", LEFT, plot->title);
    sbp_text_add(svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                 LEFT + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 42, plot->x.label);
    sbp_text_add(svg,
                 "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">%s"
                 "</text>\n",
                 TOP + PANEL_HEIGHT / 2, plot->y.label);
}

static const char *dash_of(const struct plot_series *series)
{
    return series->dashed ? "6 4" : "none";
}

static void write_line(const struct plot *plot, const struct plot_series *series,
                       struct sbp_text *svg)
{
    sbp_text_add(svg,
                 "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
                 "stroke-dasharray=\"%s\" points=\"",
                 colours[series->colour], dash_of(series));
    for (int i = 0; i < series->count; i++)
        sbp_text_add(svg, "%s%.1f,%.1f", i == 0 ? "" : " ", x_of(plot, series->x[i]),
                     y_of(plot, series->y[i]));
    sbp_text_add(svg, "\"/>\n");
}

static void write_series(const struct plot *plot, int at, bool loose, struct sbp_text *svg)
{
    const struct plot_series *series = &plot->series[at];
    const char *colour = colours[series->colour];
    if (!loose)
        write_line(plot, series, svg);
    for (int i = 0; i < series->count && (series->dots || loose); i++)
        sbp_text_add(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n",
                     x_of(plot, series->x[i]), y_of(plot, series->y[i]), colour);
    const int x = LEFT + PANEL_WIDTH + 16, y = TOP + 14 + 24 * at;
    if (series->name[0] == '\0')
        return;
    if (loose)
        sbp_text_add(svg, "<circle cx=\"%d\" cy=\"%d\" r=\"3.5\" fill=\"%s\"/>\n", x + 15, y,
                     colour);
    else
        sbp_text_add(svg,
                     "<path d=\"M%d %dh30\" stroke=\"%s\" stroke-width=\"2\" "
                     "stroke-dasharray=\"%s\"/>\n",
                     x, y, colour, dash_of(series));
    sbp_text_add(svg, "<text x=\"%d\" y=\"%d\">%s</text>\n", x + 38, y + 4, series->name);
}

/* Over the upper edge and back under the lower one. */
static void write_band(const struct plot *plot, const struct plot_series *series,
                       const struct plot_band *band, struct sbp_text *svg)
{
    if (band->low == NULL || series->count == 0)
        return;
    sbp_text_add(svg, "<polygon stroke=\"none\" fill-opacity=\"0.2\" fill=\"%s\" points=\"",
                 colours[series->colour]);
    for (int i = 0; i < series->count; i++)
        sbp_text_add(svg, "%.1f,%.1f ", x_of(plot, series->x[i]), y_of(plot, band->high[i]));
    for (int i = series->count - 1; i >= 0; i--)
        sbp_text_add(svg, "%.1f,%.1f%s", x_of(plot, series->x[i]), y_of(plot, band->low[i]),
                     i > 0 ? " " : "");
    sbp_text_add(svg, "\"/>\n");
}

/* band: NULL, or one for each series. */
static void write_plot(const struct plot *plot, int loose, const struct plot_band *band,
                       struct sbp_text *svg)
{
    sbp_text_add(svg,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                 "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n",
                 WIDTH, HEIGHT, WIDTH, HEIGHT);
    sbp_text_add(svg, "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", WIDTH, HEIGHT);
    write_ticks(plot, svg);
    for (int i = 0; band != NULL && i < plot->count; i++)
        write_band(plot, &plot->series[i], &band[i], svg);
    for (int i = 0; i < plot->count; i++)
        write_series(plot, i, i < loose, svg);
    write_frame(plot, svg);
    sbp_text_add(svg, "</svg>\n");
}

void plot_write_loose(const struct plot *plot, int loose, struct sbp_text *svg)
{
    write_plot(plot, loose, NULL, svg);
}

void plot_write_bands(const struct plot *plot, const struct plot_band *band, struct sbp_text *svg)
{
    write_plot(plot, 0, band, svg);
}

void plot_write(const struct plot *plot, struct sbp_text *svg)
{
    write_plot(plot, 0, NULL, svg);
}

/* A line plot as SVG: one panel, labelled axes, linear or logarithmic, a legend at the right. */
#ifndef SBP_TESTS_PAPERS_PLOT_H
#define SBP_TESTS_PAPERS_PLOT_H

#include <stdbool.h>

#include "base/text.h"

struct plot_series {
    const char *name; /* in the legend; "": not there */
    int count;
    const double *x, *y; /* (count), borrowed; > 0 where the axis is logarithmic */
    int colour;          /* 0 .. 5; series of a kind may share one */
    bool dashed, dots;
};

struct plot_axis {
    const char *label; /* with its unit */
    double low, high;
    double tick; /* linear: distance of ticks; logarithmic: their ratio, from low on */
    bool logarithmic;
};

struct plot {
    const char *title;
    struct plot_axis x, y;
    int count;
    const struct plot_series *series;
};

void plot_write(const struct plot *plot, struct sbp_text *svg);
/* The same; the first `loose` series are dots alone, without a line through them. */
void plot_write_loose(const struct plot *plot, int loose, struct sbp_text *svg);
/* The same as plot_write with a shaded band behind each series. */
struct plot_band {
    const double *low, *high; /* (count of the series), borrowed; NULL: none */
};
void plot_write_bands(const struct plot *plot, const struct plot_band *band, struct sbp_text *svg);

#endif

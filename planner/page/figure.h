/* Figures as SVG that stretches to the width of the page; what is written in them is HTML, so that
 * letters stay letters on a narrow screen. Input: numbers. Output: markup.
 *
 * Colours are classes of the page's style sheet, which has them for light and dark.
 */
#ifndef SBP_PLANNER_PAGE_FIGURE_H
#define SBP_PLANNER_PAGE_FIGURE_H

#include <stdint.h>

#include "planner/page/markup.h"

/* What a colour means, the same in every figure of a page. */
#define SBP_COLOUR_MAP(X)                                                                          \
    X(FORWARD, "c1")                                                                               \
    X(COLLECTIVE, "c2")                                                                            \
    X(STATES, "c3")                                                                                \
    X(SEND, "c4")                                                                                  \
    X(RECOMPUTE, "c5")                                                                             \
    X(BACKWARD, "c6")                                                                              \
    X(COPY, "c7")                                                                                  \
    X(UPDATE, "c8")                                                                                \
    X(REST, "c0")
#define SBP_COLOUR_ENUM(symbol, name) SBP_COLOUR_##symbol,
enum sbp_colour { SBP_COLOUR_MAP(SBP_COLOUR_ENUM) SBP_COLOURS };
#undef SBP_COLOUR_ENUM
const char *sbp_figure_class(enum sbp_colour colour);
/* One of the eight that are not grey, for series and groups without a meaning of their own. */
enum sbp_colour sbp_figure_colour(int64_t index);

struct sbp_part {
    const char *name; /* NULL: the figure alone says what it is */
    enum sbp_colour colour;
    double value; /* >= 0 */
};

/* A bar of parts one after the other, of which `whole` is the full width; mark > 0: a line stands
 * there. `label` is read out in its place. */
void sbp_figure_bar(struct sbp_text *html, const char *label, const struct sbp_part *part,
                    int count, double whole, double mark);
/* A list of the names with their colours, of the parts that are not 0. */
void sbp_figure_key(struct sbp_text *html, const struct sbp_part *part, int count);

/* Intervals in a row, by colour. Where most of them are too short to be seen apart, the row shows
 * the shares of each colour in every moment instead, one above the other. Zeroed but for the
 * window. */
#define SBP_STRIP_MOMENTS 400
struct sbp_strip {
    double begin_s, end_s; /* the window */
    int64_t count;
    double sum_s; /* of what was added, within the window */
    struct sbp_text path[SBP_COLOURS];
    double share[SBP_COLOURS][SBP_STRIP_MOMENTS]; /* of a moment */
};
void sbp_figure_strip_add(struct sbp_strip *strip, enum sbp_colour colour, double begin_s,
                          double end_s);
/* Appends the row and frees the strip. Class "track" or a thinner one. */
void sbp_figure_strip_end(struct sbp_strip *strip, struct sbp_text *html, const char *css,
                          const char *label);

enum sbp_figure_unit { SBP_FIGURE_SECONDS, SBP_FIGURE_BYTES, SBP_FIGURE_COUNT, SBP_FIGURE_SHARE };

/* Appends the ticks of an axis of time below a row of the same window. */
void sbp_figure_time_axis(struct sbp_text *html, double begin_s, double end_s);

struct sbp_series {
    const char *name;
    enum sbp_colour colour;
    bool is_stepped, is_dotted, is_dashed;
    int count;
    const double *x, *y; /* (count), borrowed; what is not finite is left out */
};

struct sbp_lines {
    const char *title, *label; /* label is read out in its place */
    enum sbp_figure_unit unit; /* of y, which begins at 0 */
    double low_x, high_x;
    int tick_count;          /* of x; 0: times */
    const char *const *tick; /* (tick_count), at 0, 1, ... of x */
    int count;
    const struct sbp_series *series;
};
void sbp_figure_lines(struct sbp_text *html, const struct sbp_lines *lines);

#endif

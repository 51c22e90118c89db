/* What each stage holds, against what a device has. */
#include <math.h>

#include "planner/page/page_priv.h"

enum { PARTS = 6, MOST_ROWS = 32 };

/* All of it, so that the parts add up to the device's bytes. */
static void parts_of(const struct sbp_stage_memory *memory, struct sbp_part part[PARTS])
{
    const int64_t states = memory->moment_bytes + memory->master_bytes + memory->bucket_bytes;
    const int64_t activations = memory->device_bytes - memory->weight_bytes -
                                memory->gradient_bytes - states - memory->reserve_bytes;
    part[0] = (struct sbp_part){"weights", SBP_COLOUR_FORWARD, (double)memory->weight_bytes};
    part[1] = (struct sbp_part){"gradients", SBP_COLOUR_BACKWARD, (double)memory->gradient_bytes};
    part[2] = (struct sbp_part){"optimizer states", SBP_COLOUR_STATES, (double)states};
    part[3] = (struct sbp_part){"activations, buffers", SBP_COLOUR_COLLECTIVE, (double)activations};
    part[4] = (struct sbp_part){"reserve", SBP_COLOUR_REST, (double)memory->reserve_bytes};
    part[5] = (struct sbp_part){"in host memory", SBP_COLOUR_COPY, (double)memory->host_bytes};
}

static void add_bars(struct sbp_text *html, const struct sbp_page_plan *plan, int rows)
{
    const struct sbp_report *report = plan->report;
    const struct sbp_step *step = &report->step;
    const double limit = sbp_page_limit_bytes(plan);
    const double most = (double)report->summary.totals.device_bytes;
    const bool has_limit = sbp_page_shows_limit(most, limit);
    struct sbp_part part[PARTS];
    sbp_text_add(html, "<div class=\"rows three\">");
    for (int row = 0; row < rows; row++) {
        const int stage = sbp_page_spread(row, rows, step->stages);
        parts_of(&step->memory[stage], part);
        if (step->stages == 1)
            sbp_text_add(html, "<span>device</span>");
        else
            sbp_text_add(html, "<span>stage %d</span>", stage);
        sbp_figure_bar(html, "Memory of the stage; the table below has the numbers", part,
                       PARTS - 1, 1.02 * fmax(most, has_limit ? limit : 0), has_limit ? limit : 0);
        sbp_text_add(html, "<span>");
        sbp_markup_bytes(html, (double)step->memory[stage].device_bytes);
        sbp_text_add(html, "</span>");
    }
    sbp_text_add(html, "</div>");
    parts_of(&step->memory[report->summary.worst_stage], part);
    sbp_figure_key(html, part, PARTS - 1);
    sbp_text_add(html, "<p class=\"note\">%s: ",
                 has_limit ? "The line is the limit" : "The limit is far beyond the bars");
    sbp_markup_bytes(html, limit);
    sbp_text_add(html, " a device.</p>\n");
}

static void add_row(struct sbp_text *html, const struct sbp_step *step, int stage)
{
    const struct sbp_stage_memory *memory = &step->memory[stage];
    struct sbp_part part[PARTS];
    parts_of(memory, part);
    sbp_text_add(html, "<tr>");
    sbp_markup_cell(html, "%d", stage);
    for (int i = 0; i < PARTS; i++) {
        sbp_text_add(html, "<td>");
        sbp_markup_bytes(html, part[i].value);
        sbp_text_add(html, "</td>");
    }
    sbp_text_add(html, "<td>");
    sbp_markup_bytes(html, (double)memory->device_bytes);
    sbp_text_add(html, "</td><td>");
    sbp_markup_bytes(html, (double)memory->kept_bytes);
    sbp_text_add(html, "</td>");
    sbp_markup_cell(html, "%d", memory->in_flight);
    sbp_text_add(html, "<td>");
    sbp_markup_seconds(html, step->timeline.device[stage].compute_s);
    sbp_text_add(html, "</td><td>");
    sbp_markup_seconds(html, step->timeline.device[stage].bubble_s);
    sbp_text_add(html, "</td></tr>\n");
}

void sbp_page_memory(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    static const char *const TITLES[] = {"stage",     "weights",     "gradients",
                                         "states",    "activations", "reserve",
                                         "host",      "device",      "kept of a micro-batch",
                                         "in flight", "work",        "bubble"};
    const struct sbp_step *step = &plan->report->step;
    const int rows = step->stages < MOST_ROWS ? step->stages : MOST_ROWS;
    sbp_page_section(html, number, "memory", "Memory of each stage against its limit");
    if (rows < step->stages)
        sbp_text_add(html, "<p class=\"note\">%d of %d stages.</p>", rows, step->stages);
    add_bars(html, plan, rows);
    sbp_markup_table(html, "Memory and work by stage", (int)(sizeof TITLES / sizeof *TITLES),
                     TITLES);
    for (int row = 0; row < rows; row++)
        add_row(html, step, sbp_page_spread(row, rows, step->stages));
    sbp_markup_table_end(html);
    sbp_text_add(html, "</section>\n");
}

/* Where the time of a step goes. */
#include "planner/limits.h"
#include "planner/page/page_priv.h"

enum { PARTS = 5 };

/* What a step is the sum of. */
static void parts_of(const struct sbp_step_totals *totals, struct sbp_part part[PARTS])
{
    part[0] = (struct sbp_part){"compute", SBP_COLOUR_FORWARD, totals->compute_s};
    part[1] = (struct sbp_part){"recompute", SBP_COLOUR_RECOMPUTE, totals->recompute_s};
    part[2] = (struct sbp_part){"optimizer", SBP_COLOUR_UPDATE, totals->optimizer_s};
    part[3] = (struct sbp_part){"exposed communication", SBP_COLOUR_COLLECTIVE, totals->exposed_s};
    part[4] = (struct sbp_part){"bubble", SBP_COLOUR_REST, totals->bubble_s};
}

static void add_row(struct sbp_text *html, const char *css, const char *name, double seconds,
                    double step_s)
{
    sbp_text_add(html, "<tr%s>", css);
    sbp_markup_cell(html, "%s", name);
    sbp_text_add(html, "<td>");
    sbp_markup_seconds(html, seconds);
    sbp_text_add(html, "</td><td>");
    sbp_markup_share(html, seconds, step_s);
    sbp_text_add(html, "</td></tr>\n");
}

static void add_causes(struct sbp_text *html, const struct sbp_step_totals *totals, bool hidden)
{
    add_row(html, "", hidden ? "overlapped communication" : "exposed communication",
            hidden ? totals->hidden_s : totals->exposed_s, totals->step_s);
    for (int cause = SBP_CAUSE_ACTIVATION; cause < SBP_CAUSES; cause++) {
        const double hidden_s = totals->hidden_by_cause_s[cause];
        const double seconds = hidden ? hidden_s : totals->by_cause_s[cause] - hidden_s;
        if (seconds > SBP_INNER_ROUND_OFF * totals->communication_s) /* less is rounding */
            add_row(html, " class=\"sub\"", sbp_program_cause_name((enum sbp_cause)cause), seconds,
                    totals->step_s);
    }
}

static void add_table(struct sbp_text *html, const struct sbp_step_totals *totals)
{
    static const char *const TITLES[] = {"of a device", "a step", "share"};
    sbp_text_add(html, "<div class=\"plots\">");
    sbp_markup_table(html, "Parts of a step", 3, TITLES);
    add_row(html, "", "compute", totals->compute_s, totals->step_s);
    if (totals->recompute_s > 0)
        add_row(html, "", "recompute", totals->recompute_s, totals->step_s);
    add_row(html, "", "optimizer", totals->optimizer_s, totals->step_s);
    add_causes(html, totals, false);
    if (totals->bubble_s > 0)
        add_row(html, "", "bubble", totals->bubble_s, totals->step_s);
    add_row(html, " class=\"whole\"", "step", totals->step_s, totals->step_s);
    sbp_markup_table_end(html);
    if (totals->hidden_s > 0) {
        sbp_markup_table(html, "What is overlapped", 3, TITLES);
        add_causes(html, totals, true);
        sbp_markup_table_end(html);
    }
    sbp_text_add(html, "</div>");
}

void sbp_page_time(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    const struct sbp_summary *summary = &plan->report->summary;
    struct sbp_part part[PARTS];
    parts_of(&summary->totals, part);
    sbp_page_section(html, number, "time", "Where the time of a step goes");
    sbp_figure_bar(html, "Shares of the step; the table below has the numbers", part, PARTS,
                   summary->totals.step_s, 0);
    sbp_figure_key(html, part, PARTS);
    sbp_text_add(html,
                 "<p class=\"note\">%sExposed communication is what devices wait for, "
                 "overlapped what runs behind their arithmetic and costs no time.</p>\n",
                 summary->stages > 1 ? "The mean of all stages. " : "");
    add_table(html, &summary->totals);
    sbp_text_add(html, "</section>\n");
}

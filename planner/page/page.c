#include "planner/page/page.h"

#include <string.h>

#include "planner/page/page_priv.h"
#include "planner/report/plan_line.h"

void sbp_page_section(struct sbp_text *html, int number, const char *id, const char *title)
{
    char name[64];
    if (number > 0)
        (void)snprintf(name, sizeof name, "p%d-%s", number, id);
    else
        (void)snprintf(name, sizeof name, "%s", id);
    sbp_text_add(html, "<section id=\"%s\" aria-labelledby=\"%s-title\"><h3 id=\"%s-title\">", name,
                 name, name);
    sbp_markup_text(html, title);
    sbp_text_add(html, "</h3>\n");
}

/* --- the head --- */

static void add_head(struct sbp_text *html, const struct sbp_page *page)
{
    const struct sbp_plan *plan = page->plan[0].plan;
    sbp_text_add(html, "<!DOCTYPE html>\n"
                       "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>"
                       "<meta charset=\"utf-8\"/>\n<title>");
    sbp_markup_text(html, plan->cut.graph.name);
    sbp_text_add(html, " on ");
    sbp_markup_text(html, plan->workload.cluster.name);
    sbp_text_add(html,
                 "</title>\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                 "<meta name=\"generator\" content=\"sbplan " SBP_VERSION "\"/>\n"
                 "<link rel=\"icon\" href=\"data:,\"/>\n"
                 "<style>\n%s</style></head>\n<body>\n"
                 "<a class=\"skip\" href=\"#main\">To the figures</a>\n",
                 sbp_page_style);
}

static void add_link(struct sbp_text *html, const char *target, const char *title)
{
    sbp_text_add(html, "<li><a href=\"#%s\">", target);
    sbp_markup_text(html, title);
    sbp_text_add(html, "</a></li>");
}

static void add_links(struct sbp_text *html, const struct sbp_page *page)
{
    static const struct {
        const char *id, *title;
    } sections[] = {{"p1-time", "Time"},       {"p1-timeline", "Timeline"},
                    {"p1-memory", "Memory"},   {"p1-groups", "Communication"},
                    {"p1-layers", "Layers"},   {"p1-proof", "Proof"},
                    {"p1-assumed", "Assumed"}, {"p1-origin", "Origin"}};
    char target[32], title[64];
    sbp_text_add(html, "<nav aria-label=\"Sections\"><ul>");
    if (page->plan_count > 1)
        add_link(html, "beside", "Plans beside each other");
    for (int i = 0; i < page->run_count; i++) {
        (void)snprintf(target, sizeof target, "run-%d", i + 1);
        add_link(html, target, "Measured");
    }
    for (int i = 0; i < page->sweep_count; i++) {
        (void)snprintf(target, sizeof target, "sweep-%d", i + 1);
        add_link(html, target, "Sweep");
    }
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        add_link(html, sections[i].id, sections[i].title);
    for (int i = 1; i < page->plan_count; i++) {
        (void)snprintf(target, sizeof target, "p%d", i + 1);
        (void)snprintf(title, sizeof title, "Plan %d", i + 1);
        add_link(html, target, title);
    }
    sbp_text_add(html, "</ul></nav>\n");
}

/* --- the figures that count --- */

static void open_tile(struct sbp_text *html, const char *name)
{
    sbp_text_add(html, "<div><dt>%s</dt><dd>", name);
}

static void add_interval(struct sbp_text *html, const struct sbp_price_interval *trust)
{
    if (!trust->is_given)
        return;
    sbp_text_add(html, "<small>");
    sbp_markup_seconds(html, trust->low_s);
    sbp_text_add(html, " to ");
    sbp_markup_seconds(html, trust->high_s);
    sbp_text_add(html, " by its errors</small>");
}

static void add_rate(struct sbp_text *html, const struct sbp_page_plan *plan)
{
    char rate[SBP_RATE_BYTES];
    const struct sbp_summary *summary = &plan->report->summary;
    int64_t count;
    const char *unit = sbp_summary_unit(&plan->plan->cut.graph, &count);
    open_tile(html, "Rate");
    sbp_markup_value(html, (double)count / summary->totals.step_s,
                     sbp_report_rate(plan->report, rate));
    sbp_text_add(html, "<small>");
    sbp_markup_count(html, (double)count / summary->totals.step_s / (double)summary->devices);
    sbp_text_add(html, " %s/s a device</small></dd></div>", unit);
}

static void add_memory(struct sbp_text *html, const struct sbp_page_plan *plan)
{
    const struct sbp_summary *summary = &plan->report->summary;
    const double limit = sbp_page_limit_bytes(plan);
    open_tile(html, "Memory of a device");
    sbp_markup_bytes(html, (double)summary->totals.device_bytes);
    sbp_text_add(html, "<small>%sof ",
                 (double)summary->totals.device_bytes > limit ? "too much: " : "");
    sbp_markup_bytes(html, limit);
    sbp_text_add(html, "%s</small></dd></div>", summary->stages > 1 ? ", the fullest stage" : "");
}

static void add_tiles(struct sbp_text *html, const struct sbp_page_plan *plan)
{
    const struct sbp_summary *summary = &plan->report->summary;
    char rank[SBP_PAGE_RANK_BYTES], shown[32];
    sbp_text_add(html, "<dl class=\"tiles\">");
    open_tile(html, "Step, predicted");
    sbp_markup_seconds(html, summary->totals.step_s);
    add_interval(html, plan->trust);
    sbp_text_add(html, "</dd></div>");
    add_rate(html, plan);
    open_tile(html, "MFU");
    sbp_markup_share(html, summary->mfu, 1);
    sbp_text_add(html, "<small>");
    sbp_markup_value(html, 1000 * summary->gpu_hours_per_step,
                     sbp_format_digits(1000 * summary->gpu_hours_per_step, 4, shown));
    sbp_text_add(html, " GPU-hours a thousand steps</small></dd></div>");
    add_memory(html, plan);
    sbp_text_add(html, "<div><dt>Among plans searched</dt><dd class=\"long\">");
    sbp_markup_text(html, sbp_page_rank(plan->plan, rank));
    sbp_text_add(html, "</dd></div></dl>\n");
}

static void add_about(struct sbp_text *html, const struct sbp_page_plan *plan)
{
    const struct sbp_graph *graph = &plan->plan->cut.graph;
    const struct sbp_cluster *cluster = &plan->plan->workload.cluster;
    char layout[SBP_LAYOUT_BYTES], sizes[SBP_LAYOUT_BYTES], count[32];
    sbp_text_add(html, "<p class=\"soft\">");
    sbp_markup_add(html, "%s parameters, batch %lld",
                   sbp_format_count((double)graph->parameters, count),
                   (long long)graph->global_batch);
    if (graph->sequence > 1)
        sbp_markup_add(html, " x sequence %lld", (long long)graph->sequence);
    sbp_markup_add(html, "; %lld device%s", (long long)plan->report->summary.devices,
                   plan->report->summary.devices == 1 ? "" : "s");
    for (int i = 0; cluster->level_count > 1 && i < cluster->level_count; i++)
        sbp_markup_add(html, "%s%s %lld", i == 0 ? " = " : " x ", cluster->level[i].name,
                       (long long)cluster->level[i].size);
    sbp_text_add(html, "</p>\n<p><strong>");
    sbp_markup_text(html, sbp_layout_line_text(&plan->report->layout, layout));
    sbp_text_add(html, "</strong>");
    if (*sbp_layout_line_sizes(&plan->report->layout, sizes) != '\0')
        sbp_markup_add(html, "; %s", sizes);
    sbp_text_add(html, "</p>\n");
}

static void add_title(struct sbp_text *html, const struct sbp_plan *plan)
{
    sbp_markup_name(html, plan->cut.graph.name);
    sbp_text_add(html, " on ");
    sbp_markup_name(html, plan->workload.cluster.name);
}

/* --- the whole --- */

static enum sbp_status add_sections(struct sbp_text *html, const struct sbp_page_plan *plan,
                                    int number, struct sbp_diag *diag)
{
    sbp_page_time(html, plan, number);
    SBP_TRY(sbp_page_timeline(html, plan, number, diag));
    sbp_page_memory(html, plan, number);
    sbp_page_groups(html, plan, number);
    sbp_page_layers(html, plan, number);
    sbp_page_proof(html, plan, number);
    sbp_page_assumed(html, plan, number);
    sbp_page_origin(html, plan, number);
    return SBP_OK;
}

/* Plans behind the first are folded. */
static enum sbp_status add_further(struct sbp_text *html, const struct sbp_page_plan *plan,
                                   int number, struct sbp_diag *diag)
{
    sbp_text_add(html,
                 "<details class=\"plan\" id=\"p%d\"><summary class=\"file\">Plan %d: ", number,
                 number);
    sbp_markup_name(html, plan->file);
    sbp_text_add(html, "</summary>\n<h2>");
    add_title(html, plan->plan);
    sbp_text_add(html, "</h2>\n");
    add_about(html, plan);
    add_tiles(html, plan);
    SBP_TRY(add_sections(html, plan, number, diag));
    sbp_text_add(html, "</details>\n");
    return SBP_OK;
}

static enum sbp_status add_main(struct sbp_text *html, const struct sbp_page *page,
                                struct sbp_diag *diag)
{
    if (page->plan_count > 1)
        sbp_page_beside(html, page);
    for (int i = 0; i < page->run_count; i++)
        SBP_TRY(sbp_page_run(html, page, i, diag));
    for (int i = 0; i < page->sweep_count; i++)
        SBP_TRY(sbp_page_sweep(html, &page->sweep[i], i + 1, diag));
    if (page->plan_count > 1) {
        sbp_text_add(html, "<h2>Plan 1: ");
        sbp_markup_name(html, page->plan[0].file);
        sbp_text_add(html, "</h2>\n");
    }
    SBP_TRY(add_sections(html, &page->plan[0], 1, diag));
    for (int i = 1; i < page->plan_count; i++)
        SBP_TRY(add_further(html, &page->plan[i], i + 1, diag));
    return SBP_OK;
}

enum sbp_status sbp_page_write(const struct sbp_page *page, struct sbp_text *html,
                               struct sbp_diag *diag)
{
    add_head(html, page);
    sbp_text_add(html, "<header><h1>");
    add_title(html, page->plan[0].plan);
    sbp_text_add(html, "</h1>\n");
    add_about(html, &page->plan[0]);
    add_tiles(html, &page->plan[0]);
    sbp_text_add(html, "</header>\n");
    add_links(html, page);
    sbp_text_add(html, "<main id=\"main\">\n");
    SBP_TRY(add_main(html, page, diag));
    sbp_text_add(html, "</main>\n<footer><p>Made by sbplan " SBP_VERSION ": <code>");
    sbp_markup_text(html, page->command);
    sbp_text_add(html, "</code>. Times are predictions by the cost model unless they are said to "
                       "be measured.</p></footer>\n</body></html>\n");
    return html->failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

/* What each layer does and costs: how it is split, what lies where, which collectives move it. */
#include <math.h>
#include <string.h>

#include "planner/page/page_priv.h"
#include "planner/plan/roles.h"
#include "planner/report/operands.h"

enum { DIST_BYTES = 96 };

/* Whether a layer has a row: followers that move nothing have none. */
static bool is_shown(const struct sbp_report *report, int op)
{
    const struct sbp_op_node *node = &report->plan->cut.graph.op[op];
    return node->site == op && (!node->entry->follows || report->site[op].communication_s > 0);
}

/* --- tensors and transfers --- */

static void add_tensors(struct sbp_text *html, const struct sbp_plan *plan, int op)
{
    static const char *const TITLES[] = {"use", "<tensor", "<shape", "<distribution"};
    struct sbp_operand operand[SBP_MOST_OPERANDS];
    const int count = sbp_operands_of(plan, op, operand);
    sbp_markup_table(html, "Tensors of the layer", 4, TITLES);
    for (int i = 0; i < count; i++) {
        const struct sbp_tensor *tensor = &plan->cut.graph.tensor[operand[i].tensor];
        char shape[SBP_SHAPE_BYTES], dist[DIST_BYTES];
        sbp_text_add(html, "<tr>");
        sbp_markup_cell(html, "%s", operand[i].use);
        sbp_markup_words(html, "%s", tensor->name);
        sbp_markup_words(html, "%s", sbp_operands_shape_text(&tensor->shape, shape));
        sbp_markup_words(html, "%s",
                         sbp_dist_text(&plan->cut.mesh, &operand[i].dist, dist, (int)sizeof dist));
        sbp_text_add(html, "</tr>");
    }
    sbp_markup_table_end(html);
}

static void add_call(struct sbp_text *html, const struct sbp_report *report, int number,
                     const struct sbp_instr *instr)
{
    const struct sbp_program *program = &report->step.program[number];
    char group[SBP_GROUP_BYTES];
    sbp_text_add(html, "<tr>");
    sbp_markup_cell(html, "%s", sbp_collective_name(instr->box.kind));
    sbp_markup_words(html, "%s", sbp_operands_group_text(report->plan, instr, group));
    sbp_text_add(html, "<td>");
    sbp_markup_bytes(html, sbp_price_call_bytes(program, instr));
    sbp_text_add(html, "</td><td>");
    sbp_markup_seconds(html, instr->communication_s / instr->times);
    sbp_text_add(html, "</td>");
    sbp_markup_cell(html, "%lld",
                    (long long)(instr->times * sbp_report_program_times(report, number, instr)));
    sbp_markup_words(html, "%s", sbp_program_cause_name(instr->cause));
    sbp_markup_words(html, "%s",
                     instr->tensor < 0 ? "-" : report->plan->cut.graph.tensor[instr->tensor].name);
    sbp_text_add(html, "</tr>");
}

static bool has_calls(const struct sbp_report *report, int op)
{
    for (int p = 0; p < report->step.program_count; p++)
        for (int i = 0; i < report->step.program[p].instr_count; i++)
            if (report->step.program[p].instr[i].op == op &&
                sbp_program_is_call(&report->step.program[p].instr[i]))
                return true;
    return false;
}

static void add_calls(struct sbp_text *html, const struct sbp_report *report, int op)
{
    static const char *const TITLES[] = {"collective", "<group", "bytes",  "time",
                                         "a step",     "<cause", "<tensor"};
    if (!has_calls(report, op))
        return;
    sbp_markup_table(html, "Collectives of the layer", 7, TITLES);
    for (int p = 0; p < report->step.program_count; p++) {
        const struct sbp_program *program = &report->step.program[p];
        for (int i = 0; i < program->instr_count; i++)
            if (program->instr[i].op == op && sbp_program_is_call(&program->instr[i]))
                add_call(html, report, p, &program->instr[i]);
    }
    sbp_markup_table_end(html);
}

/* --- a layer --- */

struct scale {
    const struct sbp_report *report;
    double most_s; /* of any layer */
};

static void add_time(struct sbp_text *html, const struct scale *scale, const char *name,
                     enum sbp_colour colour, double seconds)
{
    const struct sbp_part part = {NULL, colour, seconds};
    sbp_text_add(html, "<span>");
    sbp_markup_seconds(html, seconds);
    sbp_text_add(html, " <span class=\"soft\">%s</span>", name);
    sbp_figure_bar(html, name, &part, 1, scale->most_s, 0);
    sbp_text_add(html, "</span>");
}

static void add_summary(struct sbp_text *html, const struct scale *scale, const char *name,
                        int repeats, const char *split, const struct sbp_site_cost *cost)
{
    sbp_text_add(html, "<summary><b>");
    sbp_markup_name(html, name);
    if (repeats > 1)
        sbp_text_add(html, " <span class=\"soft\">x%d</span>", repeats);
    sbp_text_add(html, "</b><span class=\"split\">");
    sbp_markup_text(html, split);
    sbp_text_add(html, "</span>");
    add_time(html, scale, "compute", SBP_COLOUR_FORWARD,
             sbp_report_of_device_s(scale->report, cost->compute_s));
    add_time(html, scale, "comm.", SBP_COLOUR_COLLECTIVE,
             sbp_report_of_device_s(scale->report, cost->communication_s));
    sbp_text_add(html, "</summary>");
}

/* "768 FLOP", "8.192 kFLOP" */
static void add_flops(struct sbp_text *html, double flops, const char *what)
{
    char count[32];
    (void)sbp_format_count(flops, count);
    sbp_markup_add(html, "%s%sFLOP %s, ", count, strchr(count, ' ') == NULL ? " " : "", what);
}

static void add_layer(struct sbp_text *html, const struct scale *scale, int op)
{
    const struct sbp_report *report = scale->report;
    const struct sbp_op_node *node = &report->plan->cut.graph.op[op];
    const struct sbp_site_cost *cost = &report->site[op];
    char roles[SBP_ROLES_BYTES], parameters[32], kept[32];
    sbp_text_add(html, "<details>");
    add_summary(html, scale, node->name, node->repeats, sbp_roles_text(report->plan, op, roles),
                cost);
    sbp_text_add(html, "<div class=\"body\"><p class=\"note\">");
    sbp_markup_add(html, "%s%s: ", node->entry->name, node->repeats > 1 ? ", all repeats" : "");
    add_flops(html, cost->forward_flops, "forward");
    add_flops(html, cost->backward_flops, "backward");
    sbp_markup_add(html, "%s parameters", sbp_format_count(cost->parameters, parameters));
    if (node->weight_count > 0)
        sbp_markup_add(html, ", ZeRO %d", sbp_plan_zero(report->plan, op));
    if (cost->kept_bytes > 0)
        sbp_markup_add(html, "; %skeeps %s a device and micro-batch for backward",
                       node->repeats > 1 ? "each repeat " : "",
                       sbp_format_bytes(cost->kept_bytes / node->repeats, kept));
    sbp_text_add(html, ".</p>");
    add_tensors(html, report->plan, op);
    add_calls(html, report, op);
    sbp_text_add(html, "</div></details>\n");
}

static void add_whole(struct sbp_text *html, const struct scale *scale)
{
    const struct sbp_report *report = scale->report;
    if (!(report->whole.communication_s > 0 || report->whole.compute_s > 0))
        return;
    sbp_text_add(html, "<details>");
    add_summary(html, scale, "(whole step)", 1,
                report->summary.stages > 1 ? "messages, norm" : "norm", &report->whole);
    sbp_text_add(html, "<div class=\"body\">");
    add_calls(html, report, -1);
    sbp_text_add(html, "</div></details>\n");
}

void sbp_page_layers(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    const struct sbp_report *report = plan->report;
    const struct sbp_graph *graph = &plan->plan->cut.graph;
    struct scale scale = {report, 0};
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].site == op)
            scale.most_s =
                fmax(scale.most_s,
                     sbp_report_of_device_s(report, fmax(report->site[op].compute_s,
                                                         report->site[op].communication_s)));
    sbp_page_section(html, number, "layers", "What each layer does and costs");
    sbp_text_add(html,
                 "<p class=\"note\">Times are of a device in a step, with all repeats%s. Open a "
                 "layer for its tensors and transfers. S0 splits the batch, S1 the sequence, S2 "
                 "the features; of weights S0 the inputs, S2 the outputs; B: whole on each, P: "
                 "partial sums; with the number of parts.</p>\n<div class=\"layers\">"
                 "<div class=\"head\"><span>layer</span><span>split</span><span>compute</span>"
                 "<span>communication</span></div>\n",
                 report->summary.stages > 1 ? ", the mean of stages" : "");
    for (int op = 0; op < graph->op_count; op++)
        if (is_shown(report, op))
            add_layer(html, &scale, op);
    add_whole(html, &scale);
    sbp_text_add(html, "</div></section>\n");
}

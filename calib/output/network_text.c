#include "calib/output/network_text.h"

#include <math.h>

#include "base/text.h"

/* e from which a curve is called poor: half or twice as much. */
#define POOR 1.0

static void percent_cell(struct sbp_table *table, double share)
{
    if (isnan(share))
        sbp_table_cell(table, "-");
    else
        sbp_table_cell(table, "%.1f %%", 100 * share);
}

static void errors_row(struct sbp_table *table, const char *name, const struct sbp_errors *errors)
{
    if (errors->count == 0)
        return;
    sbp_table_cell(table, "%s", name);
    sbp_table_cell(table, "%d", errors->count);
    percent_cell(table, errors->median);
    percent_cell(table, errors->most);
    percent_cell(table, errors->mis_ordered);
}

static enum sbp_status print_errors(const struct sbp_network_fit *fit, FILE *out)
{
    static const char *const TITLES[] = {"predicted", "points", "median error", "nine of ten below",
                                         "mis-ordered pairs"};
    struct sbp_table table;
    sbp_table_init(&table, 5, TITLES);
    errors_row(&table, "what was fitted", &fit->quality.in_sample);
    errors_row(&table, "held-out sizes", &fit->quality.held_out_sizes);
    errors_row(&table, "held-out groups between others", &fit->quality.between);
    errors_row(&table, "held-out groups beyond others", &fit->quality.beyond);
    const enum sbp_status status = sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    return status;
}

static void group_row(struct sbp_table *table, const struct sbp_network_fit *fit, int s)
{
    char least[32], most[32];
    const struct sbp_measured_group *shape = &fit->shapes.shape[s];
    const struct sbp_shape_quality *quality = &fit->quality.shape[s];
    sbp_table_cell(table, "%s", sbp_collective_name(shape->kind));
    sbp_table_cell(table, "%d x %d", shape->nodes, shape->ranks_per_node);
    sbp_table_cell(table, "%s .. %s", sbp_format_bytes(shape->sample[0].bytes, least),
                   sbp_format_bytes(shape->sample[shape->count - 1].bytes, most));
    sbp_table_cell(table, "%d", shape->count);
    sbp_table_cell(table, "%d", fit->network.curve[s].segment_count);
    sbp_table_cell(table, "%s", quality->method == SBP_CURVE_LAD ? "absolute" : "squares");
    percent_cell(table, quality->in_sample);
    percent_cell(table, quality->held_out_sizes);
    percent_cell(table, quality->held_out_shape);
}

static enum sbp_status print_groups(const struct sbp_network_fit *fit, FILE *out)
{
    static const char *const TITLES[] = {"collective", "nodes x ranks",  "bytes",
                                         "sizes",      "segments",       "deviations",
                                         "fitted",     "held-out sizes", "held-out group"};
    struct sbp_table table;
    sbp_table_init(&table, 9, TITLES);
    for (int s = 0; s < fit->shapes.count; s++)
        group_row(&table, fit, s);
    const enum sbp_status status = sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    return status;
}

static void print_remarks(const struct sbp_network_fit *fit, FILE *out)
{
    for (int s = 0; s < fit->shapes.few_count; s++)
        (void)fprintf(out, "left out: %s of %d x %d, of %d size%s: a curve needs %d\n",
                      sbp_collective_name(fit->shapes.few[s].kind), fit->shapes.few[s].nodes,
                      fit->shapes.few[s].ranks_per_node, fit->shapes.few[s].count,
                      fit->shapes.few[s].count == 1 ? "" : "s", SBP_LEAST_SHAPE_SIZES);
    if (fit->shapes.over_count > 0)
        (void)fprintf(out,
                      "left out: %d groups, for a cluster file holds %d: those of nodes and ranks "
                      "between others\n",
                      fit->shapes.over_count, SBP_NETWORK_CURVES);
    for (int s = 0; s < fit->network.curve_count; s++) {
        const struct sbp_shape_curve *curve = &fit->network.curve[s];
        if (curve->error >= POOR)
            (void)fprintf(out,
                          "poor: %s of %lld x %lld: one in ten held-out sizes is off by over a "
                          "factor of %.3g\n",
                          sbp_collective_name(curve->kind), (long long)curve->nodes,
                          (long long)curve->ranks_per_node, 1 + curve->error);
        if (sbp_network_sets_aside(&fit->network, curve))
            (void)fprintf(out,
                          "set aside: all-reduces of 2 x %lld count for two nodes alone: trees "
                          "then send half of what rings of more nodes do\n",
                          (long long)curve->ranks_per_node);
    }
}

enum sbp_status sbp_report_network(const struct sbp_network_fit *fit, FILE *out)
{
    const bool has_network = fit->network.curve_count > 0;
    SBP_TRY(print_errors(fit, out));
    if (fit->quality.noise > 0)
        (void)fprintf(out, "noise of a point: %.1f %% (median)\n", 100 * fit->quality.noise);
    if (fit->quality.in_sample.falling > 0)
        (void)fprintf(
            out,
            "falling: of %.1f %% of the pairs the smaller message of a group takes longer; "
            "no curve that rises orders them\n",
            100 * fit->quality.in_sample.falling);
    if (has_network) {
        (void)fprintf(out, "\n");
        SBP_TRY(print_groups(fit, out));
    } else {
        const struct sbp_network_level *const levels[] = {&fit->between, &fit->within};
        for (int i = 0; i < 2; i++)
            if (levels[i]->is_measured)
                (void)fprintf(out, "%s nodes: alpha %.6g s, beta %.6g s/byte\n",
                              i == 0 ? "between" : "within", levels[i]->alpha_s,
                              levels[i]->beta_s_per_byte);
    }
    print_remarks(fit, out);
    return ferror(out) ? SBP_E_IO : SBP_OK;
}

#include "calib/output/calib_report.h"

#include <math.h>

#include "base/table.h"
#include "base/text.h"

#define POOR 1.0    /* error from which a curve is called poor: half or twice as much */
enum { UNIT = 32 }; /* bytes that the formatters fill at most */

/* --- a network --- */

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

enum sbp_status sbp_calib_report_network(const struct sbp_network_fit *fit, FILE *out)
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

/* --- a calibration --- */

static void add_error_cells(struct sbp_table *table, const struct sbp_fit_error *error)
{
    sbp_table_cell(table, "%.1f %%", 100 * error->median);
    sbp_table_cell(table, "%.1f %%", 100 * error->max);
    sbp_table_cell(table, "%.2f", error->ratio);
}

/* Adds alpha, the bandwidth 1/beta and the median error of a kind's own fit. */
static void add_alone_cells(struct sbp_table *table, const struct sbp_fit *alone)
{
    char text[UNIT];
    if (alone->error.points == 0) {
        for (int i = 0; i < 3; i++)
            sbp_table_cell(table, "-");
        return;
    }
    sbp_table_cell(table, "%s", sbp_format_seconds(alone->alpha_s, text));
    if (alone->beta_s_per_byte > 0)
        sbp_table_cell(table, "%s/s", sbp_format_bytes(1 / alone->beta_s_per_byte, text));
    else
        sbp_table_cell(table, "-");
    sbp_table_cell(table, "%.1f %%", 100 * alone->error.median);
}

static enum sbp_status print_collectives(const struct sbp_calibrated *calibrated, FILE *out)
{
    static const char *const titles[] = {"collective",   "points",        "settled",
                                         "median error", "max error",     "predicted/measured",
                                         "own alpha",    "own bandwidth", "own median error"};
    struct sbp_table table;
    sbp_table_init(&table, 9, titles);
    for (int kind = 0; kind < (int)SBP_FIT_KINDS; kind++) {
        if (calibrated->kind_error[kind].points == 0)
            continue;
        sbp_table_cell(&table, "%s%s", sbp_collective_name((enum sbp_collective)kind),
                       kind == SBP_SEND_RECV && !calibrated->of_messages ? " (not fitted)" : "");
        sbp_table_cell(&table, "%d", calibrated->kind_error[kind].points);
        sbp_table_cell(&table, "%d", calibrated->kind_settled[kind]);
        add_error_cells(&table, &calibrated->kind_error[kind]);
        add_alone_cells(&table, &calibrated->alone[kind]);
    }
    const enum sbp_status status = sbp_table_print(&table, out, 2);
    sbp_table_free(&table);
    return status;
}

/* Prints the three ways to weigh the errors and marks the one that the cluster file gets. */
static enum sbp_status print_fits(const struct sbp_calibrated *calibrated, FILE *out)
{
    static const char *const titles[] = {
        "weights", "", "alpha", "beta s/byte", "median error", "max error", "predicted/measured"};
    char text[UNIT];
    struct sbp_table table;
    sbp_table_init(&table, 7, titles);
    for (int w = 0; w < SBP_FIT_WEIGHTS; w++) {
        const struct sbp_fit *fit = &calibrated->fit[w];
        sbp_table_cell(&table, "%s", sbp_fit_weights_names[w]);
        sbp_table_cell(&table, "%s", w == (int)calibrated->weights ? "taken" : "");
        sbp_table_cell(&table, "%s", sbp_format_seconds(fit->alpha_s, text));
        sbp_table_cell(&table, "%.3g", fit->beta_s_per_byte);
        add_error_cells(&table, &fit->error);
    }
    const enum sbp_status status = sbp_table_print(&table, out, 2);
    sbp_table_free(&table);
    return status;
}

static bool print_origin(const struct sbp_calibration *calibration, FILE *out)
{
    const struct sbp_calibration_origin *origin = &calibration->origin;
    bool done = sbp_text_print_line(
        out, "%s: %d rank%s on %d host%s (%s), backend %s, %.1f s\n", origin->name, origin->ranks,
        origin->ranks == 1 ? "" : "s", origin->hosts, origin->hosts == 1 ? "" : "s",
        sbp_calibrate_is_gpu(calibration) ? origin->device : origin->cpu, origin->backend,
        origin->wall_s);
    if (sbp_calibrate_is_crowded(calibration))
        done =
            done && fprintf(out,
                            "note: %d ranks share %d cores: communication times hold waiting for "
                            "a core%s\n",
                            origin->ranks_per_host, origin->cores,
                            sbp_calibrate_is_gpu(calibration)
                                ? ""
                                : ", compute rates are those of thread CPU time") >= 0;
    return done;
}

static bool print_findings(const struct sbp_sample_findings *findings, FILE *out)
{
    for (int i = 0; i < findings->count; i++)
        if (!sbp_text_print_line(out, "note: %s\n", findings->line[i]))
            return false;
    return true;
}

static bool print_bounds(const struct sbp_calibrated *calibrated, FILE *out)
{
    const struct sbp_fit *fit = &calibrated->fit[calibrated->weights];
    if (fit->alpha_s > 0 && fit->beta_s_per_byte > 0)
        return true;
    return fprintf(out, "note: %s came out as 0, its bound: the times do not follow the formulas\n",
                   fit->alpha_s > 0 ? "beta" : "alpha") >= 0;
}

/* "; 12 matrix shapes reach 9 to 100 % of fp32"; empty: one shape says nothing. */
static void say_reach(const struct sbp_calibration *calibration,
                      const struct sbp_calibrated *calibrated, enum sbp_type type,
                      struct sbp_text *text)
{
    double least = 1;
    int shapes = 0;
    for (int i = 0; i < calibration->compute.gemm_count; i++) {
        const double share = calibrated->gemm_flops[i] / calibrated->flops[type];
        if (calibration->compute.gemm[i].type != type || !(share > 0))
            continue;
        shapes++;
        least = share < least ? share : least;
    }
    if (shapes > 1)
        sbp_text_add(text, "; %d matrix shapes reach %.0f to 100 %% of %s", shapes, 100 * least,
                     sbp_cluster_type_name(type));
}

static bool print_device(const struct sbp_calibration *calibration,
                         const struct sbp_calibrated *calibrated, FILE *out)
{
    char rate[UNIT], copy[UNIT], memory[UNIT];
    struct sbp_text reach = {0};
    char sustained[64] = "", streams[48] = "", vectors[48] = "", host[48] = "", link[64] = "";
    if (calibrated->stream_bytes_per_s > 0)
        (void)snprintf(streams, sizeof streams, ", streams %.0f %% of it",
                       100 * calibrated->stream_bytes_per_s / calibrated->copy_bytes_per_s);
    if (calibrated->vector_operations_per_s > 0)
        (void)snprintf(vectors, sizeof vectors, ", element-wise %soperations/s",
                       sbp_format_count(calibrated->vector_operations_per_s, rate));
    for (int i = 0; i < calibrated->grid_count; i++)
        say_reach(calibration, calibrated, calibrated->grids[i].type, &reach);
    if (calibrated->sustained > 0)
        (void)snprintf(sustained, sizeof sustained, "; %lld s of load leave %.0f %%",
                       (long long)calibration->compute.load_s, 100 * calibrated->sustained);
    if (calibration->compute.host_s > 0)
        (void)snprintf(host, sizeof host, "; the host launches in %s",
                       sbp_format_seconds(calibration->compute.host_s, rate));
    if (calibrated->host_link_bytes_per_s > 0)
        (void)snprintf(link, sizeof link, "; its link moves %s/s one way",
                       sbp_format_bytes(calibrated->host_link_bytes_per_s, rate));
    bool done = fprintf(out, "device:") >= 0;
    for (int type = 0; type < SBP_TYPES; type++)
        if (calibrated->flops[type] > 0)
            done = done && fprintf(out, " %s %sFLOP/s,", sbp_cluster_type_name((enum sbp_type)type),
                                   sbp_format_count(calibrated->flops[type], rate)) >= 0;
    done = done && !reach.failed &&
           fprintf(out, " copy %s/s%s%s, memory %s%s%s%s%s\n",
                   sbp_format_bytes(calibrated->copy_bytes_per_s, copy), streams, vectors,
                   sbp_format_bytes((double)calibration->origin.memory_bytes, memory),
                   reach.bytes == NULL ? "" : reach.bytes, sustained, host, link) >= 0;
    sbp_text_free(&reach);
    return done;
}

/* "attention: 12 shapes forward reach 9 to 43 %, 12 shapes backward reach 12 to 68 % of fp32" */
static bool print_attention(const struct sbp_calibrated *calibrated, FILE *out)
{
    static const char *const passes[SBP_ATTENTION_PASSES] = {"forward", "backward"};
    const struct sbp_attention_fit *fit = &calibrated->attention;
    const char *before = "attention:";
    bool done = true;
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++) {
        const struct sbp_grid_fit *grid = &fit->grid[pass];
        const int shapes = sbp_grid_fit_rates(grid);
        double least = INFINITY, most = 0;
        for (int i = 0; i < shapes; i++) {
            least = fmin(least, grid->flops[i] / calibrated->flops[fit->type]);
            most = fmax(most, grid->flops[i] / calibrated->flops[fit->type]);
        }
        if (shapes == 0)
            continue;
        done = done && fprintf(out, "%s %d shapes %s reach %.0f to %.0f %%", before, shapes,
                               passes[pass], 100 * least, 100 * most) >= 0;
        before = ",";
    }
    if (sbp_attention_fit_is_empty(fit))
        return done;
    return done && fprintf(out, " of %s\n", sbp_cluster_type_name(fit->type)) >= 0;
}

/* "experts: products reach 98 % (95 to 101) forward, 97 % (96 to 99) of input gradients of the rate
 * of single ones" */
static bool print_experts(const struct sbp_calibrated *calibrated, FILE *out)
{
    static const char *const passes[SBP_PASSES] = {"forward", "of input gradients",
                                                   "of weight gradients"};
    const char *before = "experts: products reach";
    bool done = true;
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        if (calibrated->grouped[pass].sizes == 0)
            continue;
        done = done && fprintf(out, "%s %.0f %% (%.0f to %.0f) %s", before,
                               100 * calibrated->grouped[pass].middle,
                               100 * calibrated->grouped[pass].least,
                               100 * calibrated->grouped[pass].most, passes[pass]) >= 0;
        before = ",";
    }
    return done && (before[0] == 'e' || fprintf(out, " of the rate of single ones\n") >= 0);
}

/* "overlap: behind products hide 80 % (75 to 85) of all-reduce, 90 % (88 to 92) of all-gather;
 * products take the rest longer" */
static bool print_overlap(const struct sbp_calibrated *calibrated, FILE *out)
{
    const char *before = "overlap: behind products hide";
    bool done = true;
    if (calibrated->hidden_of_all.sizes == 0)
        return true;
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++) {
        const struct sbp_measured_shares *hidden = &calibrated->hidden[kind];
        if (hidden->sizes == 0)
            continue;
        done = done && fprintf(out, "%s %.0f %% (%.0f to %.0f) of %s", before, 100 * hidden->middle,
                               100 * hidden->least, 100 * hidden->most,
                               sbp_collective_name((enum sbp_collective)kind)) >= 0;
        before = ",";
    }
    return done && fprintf(out, "; products take the rest longer\n") >= 0;
}

/* "dispatch: rows of 512 B to 32768 B by expert reach 18 to 69 % of copies" */
static bool print_dispatch(const struct sbp_calibrated *calibrated, FILE *out)
{
    const int sizes = calibrated->dispatch.sizes;
    double least = INFINITY, most = 0;
    for (int i = 0; i < sizes; i++) {
        least = fmin(least, calibrated->dispatch.bytes_per_s[i] / calibrated->copy_bytes_per_s);
        most = fmax(most, calibrated->dispatch.bytes_per_s[i] / calibrated->copy_bytes_per_s);
    }
    return sizes == 0 ||
           fprintf(
               out, "dispatch: rows of %lld to %lld B by expert reach %.0f to %.0f %% of copies\n",
               (long long)calibrated->dispatch.row_bytes[0],
               (long long)calibrated->dispatch.row_bytes[sizes - 1], 100 * least, 100 * most) >= 0;
}

/* --- one alpha and beta, or curves --- */

static enum sbp_status print_line(const struct sbp_calibration *calibration,
                                  const struct sbp_calibrated *calibrated, FILE *out)
{
    const char *what = calibrated->of_messages ? "send-recv" : "four collectives together";
    if (calibration->origin.hosts > 1 &&
        fprintf(out, "note: ranks of several hosts are fitted as one level, within hosts and "
                     "between them alike\n") < 0)
        return SBP_E_IO;
    if (fprintf(out, "level rank, least squares of %s:\n", what) < 0)
        return SBP_E_IO;
    SBP_TRY(print_fits(calibrated, out));
    if (!print_bounds(calibrated, out))
        return SBP_E_IO;
    return print_collectives(calibrated, out);
}

static enum sbp_status print_curves(const struct sbp_calibrated_network *network, FILE *out)
{
    const struct sbp_ports *ports = &network->ports;
    SBP_TRY(sbp_calib_report_network(&network->fit, out));
    if (ports->groups > 0 &&
        fprintf(out,
                "network ports of a node: %d (%d groups at a time take %.3g times as long as "
                "one)\n",
                ports->ports, ports->groups, ports->slowdown) < 0)
        return SBP_E_IO;
    return SBP_OK;
}

enum sbp_status sbp_calib_report(const struct sbp_calibration *calibration,
                                 const struct sbp_calibrated *calibrated, FILE *out)
{
    if (!print_origin(calibration, out))
        return SBP_E_IO;
    if (!sbp_calibrate_is_alone(calibration))
        SBP_TRY(calibrated->network == NULL ? print_line(calibration, calibrated, out)
                                            : print_curves(calibrated->network, out));
    return print_device(calibration, calibrated, out) && print_experts(calibrated, out) &&
                   print_overlap(calibrated, out) && print_dispatch(calibrated, out) &&
                   print_attention(calibrated, out) && print_findings(&calibration->findings, out)
               ? SBP_OK
               : SBP_E_IO;
}

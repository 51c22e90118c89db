#include "calib/output/report.h"

#include "base/table.h"
#include "base/text.h"
#include "calib/output/network_text.h"

enum { UNIT = 32 }; /* what the formatters fill at most */

static void add_error_cells(struct sbp_table *table, const struct sbp_fit_error *error)
{
    sbp_table_cell(table, "%.1f %%", 100 * error->median);
    sbp_table_cell(table, "%.1f %%", 100 * error->max);
    sbp_table_cell(table, "%.2f", error->ratio);
}

/* Alpha, the bandwidth 1/beta and the median error of a kind's own fit. */
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

/* The three ways to weigh the errors, the one that the cluster file gets marked. */
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
    bool done = fprintf(out, "%s: %d ranks on %d host%s (%s), backend %s, %.1f s\n", origin->name,
                        origin->ranks, origin->hosts, origin->hosts == 1 ? "" : "s",
                        sbp_calibration_is_gpu(calibration) ? origin->device : origin->cpu,
                        origin->backend, origin->wall_s) >= 0;
    if (sbp_calibration_is_crowded(calibration))
        done =
            done && fprintf(out,
                            "note: %d ranks share %d cores: communication times hold waiting for "
                            "a core%s\n",
                            origin->ranks_per_host, origin->cores,
                            sbp_calibration_is_gpu(calibration)
                                ? ""
                                : ", compute rates are those of thread CPU time") >= 0;
    return done;
}

static bool print_findings(const struct sbp_findings *findings, FILE *out)
{
    for (int i = 0; i < findings->count; i++)
        if (fprintf(out, "note: %s\n", findings->line[i]) < 0)
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

static bool print_device(const struct sbp_calibration *calibration,
                         const struct sbp_calibrated *calibrated, FILE *out)
{
    char rate[UNIT], copy[UNIT], memory[UNIT];
    double least = 1;
    int shapes = 0;
    for (int i = 0; i < calibration->compute.gemm_count; i++) {
        const double share = calibrated->gemm_flops[i] / calibrated->flops[calibrated->grid_type];
        if (calibration->compute.gemm[i].type != calibrated->grid_type || !(share > 0))
            continue;
        shapes++;
        least = share < least ? share : least;
    }
    char reach[64] = "";
    if (shapes > 1)
        (void)snprintf(reach, sizeof reach, "; %d matrix shapes reach %.0f to 100 %% of %s", shapes,
                       100 * least, sbp_cluster_type_name(calibrated->grid_type));
    bool done = fprintf(out, "device:") >= 0;
    for (int type = 0; type < SBP_TYPES; type++)
        if (calibrated->flops[type] > 0)
            done = done && fprintf(out, " %s %sFLOP/s,", sbp_cluster_type_name((enum sbp_type)type),
                                   sbp_format_count(calibrated->flops[type], rate)) >= 0;
    return done &&
           fprintf(out, " copy %s/s, memory %s%s\n",
                   sbp_format_bytes(calibrated->copy_bytes_per_s, copy),
                   sbp_format_bytes((double)calibration->origin.memory_bytes, memory), reach) >= 0;
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
    SBP_TRY(sbp_network_print(&network->fit, out));
    if (ports->groups > 0 &&
        fprintf(out,
                "network ports of a node: %d (%d groups at a time take %.3g times as long as "
                "one)\n",
                ports->ports, ports->groups, ports->slowdown) < 0)
        return SBP_E_IO;
    return SBP_OK;
}

enum sbp_status sbp_calibration_print(const struct sbp_calibration *calibration,
                                      const struct sbp_calibrated *calibrated, FILE *out)
{
    if (!print_origin(calibration, out))
        return SBP_E_IO;
    SBP_TRY(calibrated->network == NULL ? print_line(calibration, calibrated, out)
                                        : print_curves(calibrated->network, out));
    return print_device(calibration, calibrated, out) && print_findings(&calibration->findings, out)
               ? SBP_OK
               : SBP_E_IO;
}

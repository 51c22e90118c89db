#include "calib/report.h"

#include "base/text.h"

enum { UNIT = 32 }; /* what the formatters fill at most */

static void add_error_cells(struct sbp_table *table, const struct sbp_fit_error *error)
{
    sbp_table_cell(table, "%.1f %%", 100 * error->median);
    sbp_table_cell(table, "%.1f %%", 100 * error->max);
}

/* Alpha and the bandwidth 1/beta. */
static void add_parameter_cells(struct sbp_table *table, const struct sbp_fit *fit)
{
    char text[UNIT];
    sbp_table_cell(table, "%s", sbp_format_seconds(fit->alpha_s, text));
    if (fit->beta_s_per_byte > 0)
        sbp_table_cell(table, "%s/s", sbp_format_bytes(1 / fit->beta_s_per_byte, text));
    else
        sbp_table_cell(table, "-");
}

static enum sbp_status print_collectives(const struct sbp_calibrated *calibrated, FILE *out)
{
    static const char *const titles[] = {"collective",    "points",          "settled",
                                         "median error",  "max error",       "own alpha",
                                         "own bandwidth", "own median error"};
    struct sbp_table table;
    sbp_table_init(&table, 8, titles);
    for (int kind = 0; kind < (int)SBP_FIT_KINDS; kind++) {
        const struct sbp_fit_error *error = &calibrated->fit.kind[kind];
        const struct sbp_fit *alone = &calibrated->alone[kind];
        sbp_table_cell(&table, "%s", sbp_collective_name((enum sbp_collective)kind));
        sbp_table_cell(&table, "%d", error->points);
        sbp_table_cell(&table, "%d", calibrated->kind_settled[kind]);
        add_error_cells(&table, error);
        if (alone->all.points > 0) {
            add_parameter_cells(&table, alone);
            sbp_table_cell(&table, "%.1f %%", 100 * alone->all.median);
        } else {
            for (int i = 0; i < 3; i++)
                sbp_table_cell(&table, "-");
        }
    }
    sbp_table_cell(&table, "all");
    sbp_table_cell(&table, "%d", calibrated->points);
    sbp_table_cell(&table, "%d", calibrated->settled);
    add_error_cells(&table, &calibrated->fit.all);
    for (int i = 0; i < 3; i++)
        sbp_table_cell(&table, "-");
    const enum sbp_status status = sbp_table_print(&table, out, 2);
    sbp_table_free(&table);
    return status;
}

static bool print_origin(const struct sbp_calibration *calibration, FILE *out)
{
    const struct sbp_calibration_origin *origin = &calibration->origin;
    bool done = fprintf(out, "%s: %d ranks on %d host%s (%s), backend %s, %.1f s\n", origin->name,
                        origin->ranks, origin->hosts, origin->hosts == 1 ? "" : "s", origin->cpu,
                        origin->backend, origin->wall_s) >= 0;
    if (sbp_calibration_is_crowded(calibration))
        done =
            done && fprintf(out,
                            "note: %d ranks share %d cores: communication times hold waiting for "
                            "a core, compute rates are those of thread CPU time\n",
                            origin->ranks_per_host, origin->cores) >= 0;
    if (origin->hosts > 1)
        done = done && fprintf(out, "note: ranks of several hosts are fitted as one level, within "
                                    "hosts and between them alike\n") >= 0;
    return done;
}

static bool print_parameters(const struct sbp_calibrated *calibrated, FILE *out)
{
    const struct sbp_fit *fit = &calibrated->fit;
    char alpha[UNIT], plain_alpha[UNIT];
    bool done = fprintf(out,
                        "level rank: alpha %s, beta %.3g s/byte (least squares, relative errors; "
                        "unweighted: %s, %.3g s/byte, median error %.1f %%)\n",
                        sbp_format_seconds(fit->alpha_s, alpha), fit->beta_s_per_byte,
                        sbp_format_seconds(calibrated->plain.alpha_s, plain_alpha),
                        calibrated->plain.beta_s_per_byte, 100 * calibrated->plain.all.median) >= 0;
    if (!(fit->alpha_s > 0) || !(fit->beta_s_per_byte > 0))
        done = done && fprintf(out,
                               "note: %s came out as 0, its bound: the times do not follow the "
                               "formulas\n",
                               fit->alpha_s > 0 ? "beta" : "alpha") >= 0;
    return done;
}

static bool print_device(const struct sbp_calibration *calibration,
                         const struct sbp_calibrated *calibrated, FILE *out)
{
    char fp32[UNIT], fp64[UNIT], copy[UNIT], memory[UNIT];
    double least = 1;
    int shapes = 0;
    for (int i = 0; i < calibration->compute.gemm_count; i++) {
        const double share = calibrated->gemm_flops[i] / calibrated->flops[SBP_FP32];
        if (calibration->compute.gemm[i].type != SBP_FP32 || !(share > 0))
            continue;
        shapes++;
        least = share < least ? share : least;
    }
    return fprintf(out,
                   "device: fp32 %sFLOP/s, fp64 %sFLOP/s, copy %s/s, memory %s; %d matrix shapes "
                   "reach %.0f to 100 %% of fp32\n",
                   sbp_format_count(calibrated->flops[SBP_FP32], fp32),
                   sbp_format_count(calibrated->flops[SBP_FP64], fp64),
                   sbp_format_bytes(calibrated->copy_bytes_per_s, copy),
                   sbp_format_bytes((double)calibration->origin.memory_bytes, memory), shapes,
                   100 * least) >= 0;
}

enum sbp_status sbp_calibration_print(const struct sbp_calibration *calibration,
                                      const struct sbp_calibrated *calibrated, FILE *out)
{
    if (!print_origin(calibration, out) || !print_parameters(calibrated, out))
        return SBP_E_IO;
    SBP_TRY(print_collectives(calibrated, out));
    return print_device(calibration, calibrated, out) ? SBP_OK : SBP_E_IO;
}

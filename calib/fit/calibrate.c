#include "calib/fit/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/stats.h"

#define SETTLED_SPREAD     0.05 /* of a point over its runs */
#define STREAM_OPERANDS    3    /* read and written */
#define GELU_ELEMENT_BYTES 4

/* --- from a record to what was measured --- */

void sbp_calibrate_free(struct sbp_calibration *calibration)
{
    if (calibration != NULL)
        sbp_points_free(&calibration->measured);
}

enum sbp_status sbp_calibrate_collect(const struct sbp_record *record, enum sbp_statistic statistic,
                                      struct sbp_calibration *calibration, struct sbp_diag *diag)
{
    const struct sbp_session *last = &record->session[record->session_count - 1];
    struct sbp_sample_findings *findings = &calibration->findings;
    struct sbp_sample_runs runs;
    *calibration = (struct sbp_calibration){
        .origin = last->origin, .samples_path = record->path, .statistic = statistic};
    calibration->origin.wall_s = last->wall_s;
    SBP_TRY(sbp_points(record, statistic, &calibration->measured, &runs, diag));
    sbp_points_compute(record, &runs, &calibration->compute);
    sbp_findings_of_times(record, findings);
    calibration->impossible = findings->count > 0 ? findings->line[0] : NULL;
    sbp_findings_of_runs(&runs, findings);
    sbp_findings_of_sessions(record, findings);
    sbp_findings_of_compute(record, findings);
    SBP_TRY(sbp_findings_of_pairs(record, sbp_calibrate_is_crowded(calibration), findings, diag));
    sbp_findings_of_network(record, findings);
    struct sbp_attention_fit attention;
    sbp_attention_fit(&calibration->compute, &attention);
    if (sbp_attention_fit_is_empty(&attention))
        sbp_findings_of_no_attention(record, findings);
    sbp_findings_of_no_fp8(record, &calibration->compute, findings);
    return SBP_OK;
}

bool sbp_calibrate_is_crowded(const struct sbp_calibration *calibration)
{
    return calibration->origin.ranks_per_host > calibration->origin.cores;
}

bool sbp_calibrate_is_gpu(const struct sbp_calibration *calibration)
{
    return calibration->origin.device[0] != '\0';
}

bool sbp_calibrate_is_alone(const struct sbp_calibration *calibration)
{
    return calibration->origin.ranks == 1 && calibration->measured.count == 0;
}

/* Passes a refusal on with the file's name and the times that were left out. */
static enum sbp_status refuse(const struct sbp_calibration *calibration, enum sbp_status status,
                              const struct sbp_diag *why, struct sbp_diag *diag)
{
    const char *left_out = calibration->impossible;
    return sbp_fail(diag, status, "%s: %s%s%s", calibration->samples_path, why->text,
                    left_out == NULL ? "" : "; ", left_out == NULL ? "" : left_out);
}

/* --- curves --- */

enum sbp_status sbp_calibrate_network(const struct sbp_calibration *calibration,
                                      struct sbp_calibrated_network *network, struct sbp_diag *diag)
{
    SBP_TRY(sbp_network_fit_ports(&calibration->measured, &network->ports, diag));
    const struct sbp_network_options options = {.ports = network->ports.ports};
    struct sbp_diag why = {0};
    const enum sbp_status status =
        sbp_network_fit(&calibration->measured, &options, &network->fit, &why);
    return status == SBP_OK ? SBP_OK : refuse(calibration, status, &why, diag);
}

/* --- one alpha and beta --- */

/* AutoDDL's formulas price collectives of neighbouring ranks, of as many groups of a node at the
 * same time as there is room for. */
static bool is_fitted(const struct sbp_calibration *calibration,
                      const struct sbp_measured_point *point)
{
    return point->kind < SBP_FIT_KINDS &&
           point->groups == calibration->origin.least_ranks_per_host / point->ranks_per_node;
}

/* Takes the points of the kinds in a bit set. */
static int list_points(const struct sbp_calibration *calibration, unsigned kinds,
                       struct sbp_fit_point *points)
{
    int count = 0;
    for (int i = 0; i < calibration->measured.count; i++) {
        const struct sbp_measured_point *point = &calibration->measured.point[i];
        if (is_fitted(calibration, point) && kinds >> point->kind & 1)
            points[count++] = (struct sbp_fit_point){
                point->kind, point->nodes * point->ranks_per_node, point->bytes, point->time_s};
    }
    return count;
}

static void count_points(const struct sbp_calibration *calibration,
                         struct sbp_calibrated *calibrated)
{
    for (int i = 0; i < calibration->measured.count; i++) {
        const struct sbp_measured_point *point = &calibration->measured.point[i];
        if (!is_fitted(calibration, point))
            continue;
        calibrated->points++;
        calibrated->settled += point->spread <= SETTLED_SPREAD;
        calibrated->kind_settled[point->kind] += point->spread <= SETTLED_SPREAD;
    }
}

/* AutoDDL fits its four collectives together; where none was measured, messages stand for them.
 * points (calibration->measured.count) is scratch. */
static enum sbp_status fit_together(const struct sbp_calibration *calibration,
                                    struct sbp_fit_point *points, struct sbp_calibrated *calibrated,
                                    struct sbp_diag *diag)
{
    const unsigned messages = 1u << SBP_SEND_RECV;
    int count = list_points(calibration, (1u << SBP_FIT_KINDS) - 1 - messages, points);
    calibrated->of_messages = count == 0;
    if (calibrated->of_messages)
        count = list_points(calibration, messages, points);
    for (int w = 0; w < SBP_FIT_WEIGHTS; w++)
        SBP_TRY(sbp_fit_points(points, count, (enum sbp_fit_weights)w, &calibrated->fit[w], diag));
    return SBP_OK;
}

static enum sbp_status judge_kinds(const struct sbp_calibration *calibration,
                                   struct sbp_fit_point *points, struct sbp_calibrated *calibrated,
                                   struct sbp_diag *diag)
{
    const struct sbp_fit *fit = &calibrated->fit[calibrated->weights];
    for (int kind = 0; kind < (int)SBP_FIT_KINDS; kind++) {
        const int count = list_points(calibration, 1u << kind, points);
        SBP_TRY(sbp_fit_judge(fit->alpha_s, fit->beta_s_per_byte, points, count,
                              &calibrated->kind_error[kind], diag));
        struct sbp_fit *alone = &calibrated->alone[kind];
        /* A kind that is not determined by itself has no fit of its own: that is no failure. */
        if (sbp_fit_points(points, count, calibrated->weights, alone, NULL) != SBP_OK)
            *alone = (struct sbp_fit){0};
    }
    return SBP_OK;
}

/* --- compute --- */

static void fit_type(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated,
                     enum sbp_type type)
{
    struct sbp_product_grids *grids = &calibrated->grids[calibrated->grid_count++];
    struct sbp_grid_point points[SBP_MAX_GEMMS];
    grids->type = type;
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        int count = 0;
        for (int i = 0; i < times->gemm_count; i++) {
            const struct sbp_gemm_point *gemm = &times->gemm[i];
            if (gemm->type == type && (int)gemm->pass == pass && calibrated->gemm_flops[i] > 0)
                points[count++] =
                    (struct sbp_grid_point){{gemm->m, gemm->n, gemm->k}, calibrated->gemm_flops[i]};
        }
        sbp_grid_fit(points, count, &grids->pass[pass]);
    }
}

static void fit_products(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated)
{
    int products[SBP_TYPES] = {0};
    enum sbp_type most = SBP_FP32;
    for (int i = 0; i < times->gemm_count; i++)
        if (calibrated->gemm_flops[i] > 0 && ++products[times->gemm[i].type] > products[most])
            most = times->gemm[i].type;
    fit_type(times, calibrated, most);
    for (int type = 0; type < SBP_TYPES; type++)
        if (type != (int)most && products[type] >= SBP_LEAST_TYPE_PRODUCTS &&
            calibrated->grid_count < SBP_MAX_PRODUCT_GRIDS)
            fit_type(times, calibrated, (enum sbp_type)type);
}

/* Sorts the shares. */
static struct sbp_measured_shares sum_up(double *share, int count)
{
    if (count == 0)
        return (struct sbp_measured_shares){0};
    const double middle = sbp_median(share, count);
    return (struct sbp_measured_shares){count, share[0], middle, share[count - 1]};
}

/* Compares each group of products with a single one of the same sizes, so that no error of a grid
 * is part of the share. On a GPU single products find small matrices in its cache, those of experts
 * never: the share holds that, too. */
static void fit_grouped(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated)
{
    double share[SBP_MAX_GROUPED];
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        int count = 0;
        for (int i = 0; i < times->grouped_count; i++) {
            const struct sbp_grouped_point *point = &times->grouped[i];
            const double single_s = sbp_points_product_s(times, &point->product);
            if ((int)point->product.pass == pass && single_s > 0)
                share[count++] =
                    (double)point->experts * single_s / times->grouped_samples[i].median_s;
        }
        calibrated->grouped[pass] = sum_up(share, count);
    }
}

/* What a collective adds to the time of products that outlast it is what it did not hide. */
static void fit_hidden(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated)
{
    double share[SBP_MAX_BESIDE], all[SBP_MAX_BESIDE];
    int every = 0;
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++) {
        int count = 0;
        for (int i = 0; i < times->beside_count; i++) {
            const double added = sbp_points_added_share(times, i);
            if ((int)times->beside[i].kind == kind && added >= 0)
                share[count++] = all[every++] = fmax(0, 1 - added);
        }
        calibrated->hidden[kind] = sum_up(share, count);
    }
    calibrated->hidden_of_all = sum_up(all, every);
}

/* Rows come as they were timed, and are written by size. */
static void rate_rows(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated)
{
    for (int i = 0; i < times->rows_count; i++) {
        const struct sbp_cell *rows = &times->rows[i];
        int at = calibrated->dispatch.sizes++;
        for (; at > 0 && calibrated->dispatch.row_bytes[at - 1] > rows->row_bytes; at--) {
            calibrated->dispatch.row_bytes[at] = calibrated->dispatch.row_bytes[at - 1];
            calibrated->dispatch.bytes_per_s[at] = calibrated->dispatch.bytes_per_s[at - 1];
        }
        calibrated->dispatch.row_bytes[at] = rows->row_bytes;
        calibrated->dispatch.bytes_per_s[at] =
            2 * (double)rows->bytes / times->rows_samples[i].median_s;
    }
}

static void rate_compute(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated)
{
    const struct sbp_samples *copy = &times->samples[0];
    if (copy->count > 0)
        calibrated->copy_bytes_per_s = 2 * (double)times->copy_bytes / copy->median_s;
    for (int i = 0; i < times->gemm_count; i++) {
        const struct sbp_gemm_point *gemm = &times->gemm[i];
        const struct sbp_samples *samples = &times->samples[i + 1];
        if (samples->count == 0)
            continue;
        const double flops = 2 * (double)gemm->m * (double)gemm->n * (double)gemm->k;
        calibrated->gemm_flops[i] = flops / samples->median_s;
        calibrated->flops[gemm->type] =
            fmax(calibrated->flops[gemm->type], calibrated->gemm_flops[i]);
        if (sbp_cell_product_same(gemm, &times->loaded) && times->loaded_s > 0)
            calibrated->sustained = fmin(1, samples->median_s / times->loaded_s);
    }
    if (times->stream_s > 0)
        calibrated->stream_bytes_per_s =
            STREAM_OPERANDS * (double)times->stream_bytes / times->stream_s;
    if (times->link_s > 0)
        calibrated->host_link_bytes_per_s = 2 * (double)times->link_bytes / times->link_s;
    if (times->gelu_s > 0)
        calibrated->vector_operations_per_s = SBP_DEVICE_GELU_OPERATIONS *
                                              ((double)times->gelu_bytes / GELU_ELEMENT_BYTES) /
                                              times->gelu_s;
    rate_rows(times, calibrated);
    fit_products(times, calibrated);
    fit_grouped(times, calibrated);
    fit_hidden(times, calibrated);
    sbp_attention_fit(times, &calibrated->attention);
}

/* A rate is missing without a time, or where a clock too coarse gave 0 s alone. */
static enum sbp_status check_rates(const struct sbp_calibrated *calibrated, struct sbp_diag *diag)
{
    const struct {
        double rate;
        const char *work;
    } needed[] = {{calibrated->flops[SBP_FP32], "fp32 product"},
                  {calibrated->flops[SBP_FP64], "fp64 product"},
                  {calibrated->copy_bytes_per_s, "copy"}};
    for (int i = 0; i < 3; i++)
        if (!(needed[i].rate > 0) || !isfinite(needed[i].rate))
            return sbp_fail(
                diag, SBP_E_INPUT,
                "no %s has a time that a machine takes, of which rates are formed: was it "
                "cut short, is the processor's clock working?",
                needed[i].work);
    return SBP_OK;
}

enum sbp_status sbp_calibrate_fit(const struct sbp_calibration *calibration,
                                  enum sbp_fit_weights weights,
                                  const struct sbp_calibrated_network *network,
                                  struct sbp_calibrated *calibrated, struct sbp_diag *diag)
{
    *calibrated = (struct sbp_calibrated){.weights = weights, .network = network};
    struct sbp_fit_point *points = calloc((size_t)calibration->measured.count + 1, sizeof *points);
    if (points == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points",
                        calibration->measured.count);
    struct sbp_diag why = {0};
    enum sbp_status status = SBP_OK;
    if (!sbp_calibrate_is_alone(calibration)) {
        status = fit_together(calibration, points, calibrated, &why);
        if (status == SBP_OK)
            status = judge_kinds(calibration, points, calibrated, &why);
    }
    free(points);
    if (status == SBP_E_INPUT && network != NULL)
        memset(calibrated->fit, 0, sizeof calibrated->fit);
    else if (status != SBP_OK)
        return refuse(calibration, status, &why, diag);
    count_points(calibration, calibrated);
    rate_compute(&calibration->compute, calibrated);
    why = (struct sbp_diag){0};
    status = check_rates(calibrated, &why);
    return status == SBP_OK ? SBP_OK : refuse(calibration, status, &why, diag);
}

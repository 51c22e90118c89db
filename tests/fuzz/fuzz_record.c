/* Files of samples: whatever is read, points are usable, findings fit, and what is whole is read
 * again alike. */
#include <math.h>
#include <stdlib.h>

#include "calib/fit/attention_fit.h"
#include "calib/logs/log.h"
#include "calib/samples/findings.h"
#include "tests/fuzz/fuzz.h"

static void check_grid(const struct sbp_grid_fit *grid, int points)
{
    const int rates = sbp_grid_fit_rates(grid);
    fuzz_check(grid->timed <= points && rates <= SBP_LEAST_GRID_PARTS * grid->timed,
               "cells of a grid");
    fuzz_check((grid->timed == 0) == (rates == 0), "all axes");
    for (int i = 0; i < rates; i++)
        fuzz_check(grid->flops[i] > 0 && isfinite(grid->flops[i]), "a rate");
}

static void check_products(const struct sbp_compute_times *times)
{
    static struct sbp_grid_point points[SBP_MAX_GEMMS];
    static struct sbp_grid_fit grid;
    int count = 0;
    for (int i = 0; i < times->gemm_count; i++) {
        const struct sbp_gemm_point *gemm = &times->gemm[i];
        if (gemm->type == times->gemm[0].type && gemm->pass == times->gemm[0].pass &&
            times->samples[i + 1].count > 0)
            points[count++] =
                (struct sbp_grid_point){{gemm->m, gemm->n, gemm->k},
                                        (double)gemm->m * (double)gemm->n * (double)gemm->k /
                                            times->samples[i + 1].median_s};
    }
    sbp_grid_fit(points, count, &grid);
    check_grid(&grid, count);
}

/* Times of which shares are formed. */
static void check_grouped(const struct sbp_compute_times *times)
{
    for (int i = 0; i < times->grouped_count; i++) {
        const double single_s = sbp_points_product_s(times, &times->grouped[i].product);
        fuzz_check(times->grouped[i].experts >= 1, "experts");
        fuzz_check(times->grouped_samples[i].median_s > 0 && single_s >= 0 && isfinite(single_s),
                   "times of experts");
    }
}

static void check_compute(const struct sbp_record *record, const struct sbp_sample_runs *runs)
{
    static struct sbp_compute_times times; /* large */
    static struct sbp_attention_fit fit;
    sbp_points_compute(record, runs, &times);
    fuzz_check(times.stream_s >= 0 && isfinite(times.stream_s), "a time of a stream");
    fuzz_check(times.gelu_s >= 0 && isfinite(times.gelu_s), "a time of GELU");
    sbp_attention_fit(&times, &fit);
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++)
        check_grid(&fit.grid[pass], times.attention_count);
    check_products(&times);
    check_grouped(&times);
}

static void check_points(const struct sbp_record *record, enum sbp_statistic statistic)
{
    struct sbp_measured measured;
    struct sbp_sample_runs runs;
    struct sbp_diag diag = {{0}};
    if (sbp_points(record, statistic, &measured, &runs, &diag) != SBP_OK)
        return;
    for (int i = 0; i < measured.count; i++) {
        const struct sbp_measured_point *point = &measured.point[i];
        fuzz_check(point->time_s > 0 && isfinite(point->time_s), "a time");
        fuzz_check(point->bytes >= 1 && point->groups >= 1, "a size and groups");
        fuzz_check(point->spread >= 0 && isfinite(point->spread), "a spread");
        fuzz_check((double)point->nodes * point->ranks_per_node >= 2, "two members");
        fuzz_check(point->source >= 0 && point->source < measured.source_count, "a source");
    }
    check_compute(record, &runs);
    sbp_points_free(&measured);
}

static void check_findings(const struct sbp_record *record)
{
    struct sbp_sample_findings findings = {.count = 0};
    sbp_findings_of_sessions(record, &findings);
    sbp_findings_of_times(record, &findings);
    sbp_findings_of_compute(record, &findings);
    sbp_findings_of_network(record, &findings);
    const enum sbp_status status = sbp_findings_of_pairs(record, false, &findings, NULL);
    fuzz_check(status == SBP_OK, "findings");
    fuzz_check(findings.count <= SBP_MAX_FINDINGS, "lines that there is room for");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct sbp_record record, again;
    struct sbp_diag diag = {{0}};
    if (sbp_sample_file_parse("input", text, size, &record, &diag) == SBP_OK) {
        fuzz_check(record.whole_bytes <= size, "bytes that are there");
        const enum sbp_status status =
            sbp_sample_file_parse("input", text, record.whole_bytes, &again, &diag);
        fuzz_check(status == SBP_OK && again.result_count == record.result_count, "the same again");
        check_points(&record, SBP_OF_MEDIANS);
        check_points(&record, SBP_OF_LEAST);
        check_findings(&record);
        sbp_sample_file_free(&again);
        sbp_sample_file_free(&record);
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason");
    }
    free(text);
    return 0;
}

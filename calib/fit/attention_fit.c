#include "calib/fit/attention_fit.h"

/* Whether a product of the type was timed: shares are of its rate. */
static bool has_peak(const struct sbp_compute_times *times, enum sbp_type type)
{
    for (int i = 0; i < times->gemm_count; i++)
        if (times->gemm[i].type == type && times->samples[i + 1].count > 0)
            return true;
    return false;
}

static int count_like(const struct sbp_compute_times *times,
                      const struct sbp_attention_point *point)
{
    int count = 0;
    for (int i = 0; i < times->attention_count; i++)
        count += times->attention[i].type == point->type &&
                 sbp_cell_attention_rows(&times->attention[i]) == sbp_cell_attention_rows(point);
    return count;
}

/* Not the last cell alone decides: a calibration on top of an older one of other rows may have been
 * cut off behind its first cells. */
static const struct sbp_attention_point *choose_scope(const struct sbp_compute_times *times)
{
    const struct sbp_attention_point *of = NULL;
    int most = 0;
    for (int i = 0; i < times->attention_count; i++) {
        const struct sbp_attention_point *at = &times->attention[i];
        const int count = has_peak(times, at->type) ? count_like(times, at) : 0;
        if (count == 0 || count < most)
            continue;
        most = count;
        of = at;
    }
    return of;
}

static void fit_pass(const struct sbp_compute_times *times, const struct sbp_attention_point *of,
                     int pass, struct sbp_grid_fit *grid)
{
    struct sbp_grid_point points[SBP_MAX_ATTENTION];
    const int64_t rows = sbp_cell_attention_rows(of);
    int count = 0;
    for (int i = 0; i < times->attention_count; i++) {
        const struct sbp_attention_point *at = &times->attention[i];
        const struct sbp_samples *samples = &times->attention_samples[i];
        if (at->type == of->type && (int)at->pass == pass && samples->count > 0 &&
            sbp_cell_attention_rows(at) == rows)
            points[count++] =
                (struct sbp_grid_point){{at->head_size, at->sequence, rows},
                                        sbp_cell_attention_flops(at) / samples->median_s};
    }
    sbp_grid_fit(points, count, grid);
}

void sbp_attention_fit(const struct sbp_compute_times *times, struct sbp_attention_fit *fit)
{
    const struct sbp_attention_point *of = choose_scope(times);
    *fit = (struct sbp_attention_fit){0};
    if (of == NULL)
        return;
    fit->type = of->type;
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++)
        fit_pass(times, of, pass, &fit->grid[pass]);
}

bool sbp_attention_fit_is_empty(const struct sbp_attention_fit *fit)
{
    return fit->grid[SBP_PASS_FORWARD].timed == 0 && fit->grid[SBP_PASS_INPUT_GRADIENT].timed == 0;
}

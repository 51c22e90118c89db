#include "calib/fit/attention_fit.h"

/* The rate of a cell of the fit's type and rows; 0: it was not timed. */
static double rate_of(const struct sbp_compute_times *times, const struct sbp_attention_fit *fit,
                      int pass, int64_t head_size, int64_t sequence)
{
    for (int i = 0; i < times->attention_count; i++) {
        const struct sbp_attention_point *at = &times->attention[i];
        if (at->type == fit->type && (int)at->pass == pass && at->head_size == head_size &&
            at->sequence == sequence && sbp_cell_attention_rows(at) == fit->rows &&
            times->attention_samples[i].count > 0)
            return sbp_cell_attention_flops(at) / times->attention_samples[i].median_s;
    }
    return 0;
}

/* Puts a size where it belongs in a rising list, once. */
static void add_size(int64_t *sizes, int *count, int64_t size)
{
    int at = *count;
    while (at > 0 && sizes[at - 1] > size)
        at--;
    if (at > 0 && sizes[at - 1] == size)
        return;
    for (int i = (*count)++; i > at; i--)
        sizes[i] = sizes[i - 1];
    sizes[at] = size;
}

/* Sequences that every one of the head sizes was timed at. */
static int list_common(const struct sbp_compute_times *times, const struct sbp_attention_fit *fit,
                       int pass, const struct sbp_attention_grid *all, const bool *is_kept,
                       int64_t *sequence)
{
    int count = 0;
    for (int s = 0; s < all->sequences; s++) {
        bool common = true;
        for (int h = 0; h < all->head_sizes; h++)
            common = common && (!is_kept[h] ||
                                rate_of(times, fit, pass, all->head_size[h], all->sequence[s]) > 0);
        if (common)
            sequence[count++] = all->sequence[s];
    }
    return count;
}

/* Keeps as many combinations as it can: head sizes go one by one, the one without which most are
 * left. */
static void keep_whole(const struct sbp_compute_times *times, const struct sbp_attention_fit *fit,
                       int pass, const struct sbp_attention_grid *all, bool *is_kept)
{
    int64_t sequence[SBP_MAX_ATTENTION];
    for (int left = all->head_sizes; left > 1; left--) {
        const int now = left * list_common(times, fit, pass, all, is_kept, sequence);
        int most = now, drop = -1;
        for (int h = 0; h < all->head_sizes; h++) {
            if (!is_kept[h])
                continue;
            is_kept[h] = false;
            const int then = (left - 1) * list_common(times, fit, pass, all, is_kept, sequence);
            is_kept[h] = true;
            if (then > most || (then == most && now == 0)) {
                most = then;
                drop = h;
            }
        }
        if (drop < 0)
            return;
        is_kept[drop] = false;
    }
}

static void fit_pass(const struct sbp_compute_times *times, int pass, struct sbp_attention_fit *fit)
{
    struct sbp_attention_grid all = {0}, *grid = &fit->grid[pass];
    bool is_kept[SBP_MAX_ATTENTION] = {false};
    for (int i = 0; i < times->attention_count; i++) {
        const struct sbp_attention_point *at = &times->attention[i];
        if (!(rate_of(times, fit, pass, at->head_size, at->sequence) > 0))
            continue;
        add_size(all.head_size, &all.head_sizes, at->head_size);
        add_size(all.sequence, &all.sequences, at->sequence);
    }
    for (int h = 0; h < all.head_sizes; h++)
        is_kept[h] = true;
    keep_whole(times, fit, pass, &all, is_kept);
    grid->sequences = list_common(times, fit, pass, &all, is_kept, grid->sequence);
    for (int h = 0; h < all.head_sizes && grid->sequences > 0; h++)
        if (is_kept[h])
            grid->head_size[grid->head_sizes++] = all.head_size[h];
    for (int h = 0; h < grid->head_sizes; h++)
        for (int s = 0; s < grid->sequences; s++)
            grid->flops[h * grid->sequences + s] =
                rate_of(times, fit, pass, grid->head_size[h], grid->sequence[s]);
}

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
static bool choose_scope(const struct sbp_compute_times *times, struct sbp_attention_fit *fit)
{
    int most = 0;
    for (int i = 0; i < times->attention_count; i++) {
        const struct sbp_attention_point *at = &times->attention[i];
        const int count = has_peak(times, at->type) ? count_like(times, at) : 0;
        if (count == 0 || count < most)
            continue;
        most = count;
        fit->type = at->type;
        fit->rows = sbp_cell_attention_rows(at);
    }
    return most > 0;
}

void sbp_attention_fit(const struct sbp_compute_times *times, struct sbp_attention_fit *fit)
{
    *fit = (struct sbp_attention_fit){0};
    if (!choose_scope(times, fit))
        return;
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++)
        fit_pass(times, pass, fit);
}

bool sbp_attention_fit_is_empty(const struct sbp_attention_fit *fit)
{
    return fit->grid[SBP_PASS_FORWARD].head_sizes == 0 &&
           fit->grid[SBP_PASS_INPUT_GRADIENT].head_sizes == 0;
}

#include "calib/measure/measure.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/math/stats.h"
#include "base/arena.h"
#include "calib/measure/perform.h"

#define CELL_SHARES      4
#define PROGRESS_LINES_S 30
#define PAIR_REPEATS     9
/* The repeat of a pair that counts, from the fastest: a low one, since a slow link is slow every
 * time, while a rank that waits for a core is not. */
#define PAIR_QUANTILE 2

struct pass {
    const struct sbp_measuring *by;
    struct sbp_performer performer;
    double start_s, budget_s, elapsed_s;
    double left;                  /* cells of all runs that are still to do */
    double *done;                 /* (runs, cells): 1 where measured; the same on all ranks */
    double *took_s;               /* (cells): the last time that a cell took, 0 before */
    double *gathered;             /* (ranks) */
    struct sbp_sample_pair *pair; /* (ranks / 2) */
    double spent_s;               /* on the cells that were done here */
    int performed;
    struct sbp_progress progress;
};

/* --- one cell --- */

/* Finds the slowest rank by the ranks' own medians, and how it compares with the middle one. */
static enum sbp_status find_slowest(const struct pass *pass, double *own, int count,
                                    struct sbp_result *result, struct sbp_diag *diag)
{
    const int ranks = pass->by->placement->ranks;
    const double own_s = sbp_median(own, count);
    SBP_TRY(sbp_sampler_gather(pass->by->sampler, &own_s, 1, pass->gathered, diag));
    int slowest = 0;
    for (int r = 1; r < ranks; r++)
        if (pass->gathered[r] > pass->gathered[slowest])
            slowest = r;
    const double most_s = pass->gathered[slowest];
    const double middle_s = sbp_median(pass->gathered, ranks);
    result->slowest_rank = slowest;
    result->slowest_ratio = middle_s > 0 ? most_s / middle_s : 1;
    return SBP_OK;
}

static enum sbp_status measure_samples(struct pass *pass, double cap_s, struct sbp_result *result,
                                       struct sbp_samples *samples, struct sbp_diag *diag)
{
    double own[SBP_MAX_REPEATS];
    SBP_TRY(sbp_sampler_repeat(pass->by->sampler, cap_s, sbp_perform, &pass->performer, samples,
                               own, &result->took_s, diag));
    result->settled = samples->settled;
    result->count = samples->count;
    result->time_s = samples->time_s;
    result->median_s = samples->median_s;
    result->low_s = samples->low_s;
    result->high_s = samples->high_s;
    if (result->cell.work == SBP_CELL_COLLECTIVE || result->cell.work == SBP_CELL_BESIDE)
        return SBP_OK;
    return find_slowest(pass, own, samples->count, result, diag);
}

/* Times a round of pairs; the lower rank of each pair has its time. */
static enum sbp_status measure_pairs(struct pass *pass, struct sbp_result *result,
                                     struct sbp_diag *diag)
{
    const struct sbp_measuring *by = pass->by;
    const struct sbp_rank_placement *placement = by->placement;
    const double start_s = sbp_clock_s();
    double time_s[PAIR_REPEATS + 1];
    for (int i = -1; i < PAIR_REPEATS; i++) { /* the first warms up */
        SBP_TRY(sbp_sampler_together(by->sampler, diag));
        SBP_TRY(sbp_perform(&pass->performer, &time_s[i + 1], diag));
    }
    (void)sbp_median(time_s + 1, PAIR_REPEATS); /* sorts */
    SBP_TRY(sbp_sampler_gather(by->sampler, &time_s[1 + PAIR_QUANTILE], 1, pass->gathered, diag));
    result->pair = pass->pair;
    for (int r = 0; r < placement->ranks; r++) {
        int node, local;
        if (!(pass->gathered[r] > 0) ||
            !sbp_sweep_partner(&by->sweep->options, result->cell.round, placement->node[r],
                               placement->local[r], &node, &local))
            continue;
        pass->pair[result->pair_count++] = (struct sbp_sample_pair){
            r, sbp_placement_rank(placement, node, local), pass->gathered[r]};
    }
    result->took_s = sbp_clock_s() - start_s;
    return SBP_OK;
}

static enum sbp_status measure_cell(struct pass *pass, int run, int cell, struct sbp_diag *diag)
{
    const struct sbp_measuring *by = pass->by;
    const double cap_s = CELL_SHARES * (pass->budget_s - pass->elapsed_s) / pass->left;
    struct sbp_samples samples;
    struct sbp_result result = {.cell = by->sweep->cell[cell], .run = run, .slowest_rank = -1};
    pass->performer.cell = &by->sweep->cell[cell];
    SBP_TRY(result.cell.work == SBP_CELL_PAIRS
                ? measure_pairs(pass, &result, diag)
                : measure_samples(pass, cap_s, &result, &samples, diag));
    double values[] = {sbp_clock_s() - pass->start_s, result.took_s};
    SBP_TRY(sbp_sampler_largest(by->sampler, values, 2, diag));
    pass->elapsed_s = values[0];
    pass->took_s[cell] = result.took_s = values[1];
    pass->spent_s += values[1];
    pass->performed++;
    pass->left--;
    pass->done[(size_t)run * (size_t)by->sweep->count + (size_t)cell] = 1;
    return pass->performer.rank == 0 ? by->take(by->context, &result, diag) : SBP_OK;
}

/* --- the time --- */

static bool is_done(const struct pass *pass, int run, int cell)
{
    return pass->done[(size_t)run * (size_t)pass->by->sweep->count + (size_t)cell] > 0;
}

/* Estimates the time left: each cell takes as long as before, or the average of all; at most the
 * budget. */
static double time_left(const struct pass *pass, int run, const int *order, int at)
{
    const struct sbp_sample_sweep *sweep = pass->by->sweep;
    const double average_s = pass->spent_s / pass->performed;
    double left_s = 0;
    for (int i = at; i < sweep->count; i++)
        if (!is_done(pass, run, order[i]))
            left_s += pass->took_s[order[i]] > 0 ? pass->took_s[order[i]] : average_s;
    double again_s = 0;
    for (int i = 0; i < sweep->count; i++)
        again_s += pass->took_s[i] > 0 ? pass->took_s[i] : average_s;
    left_s += again_s * (pass->by->runs - 1 - run);
    return left_s < pass->budget_s - pass->elapsed_s ? left_s : pass->budget_s - pass->elapsed_s;
}

static void show(struct pass *pass, int run, const int *order, int at)
{
    char name[SBP_CELL_NAME];
    if (!pass->by->progress || !sbp_progress_is_due(&pass->progress))
        return;
    const double left_s = time_left(pass, run, order, at);
    const int minutes = left_s > 0 ? (int)(left_s / 60) : 0;
    sbp_progress_show(&pass->progress, "run %d of %d, cell %d of %d, %d:%02d left: %s", run + 1,
                      pass->by->runs, at + 1, pass->by->sweep->count, minutes,
                      left_s > 0 ? (int)left_s % 60 : 0,
                      sbp_cell_name(&pass->by->sweep->cell[order[at]], name));
}

/* --- runs --- */

/* Measures the cells of a run that are not done yet, until deadline_s. */
static enum sbp_status measure_run(struct pass *pass, int run, double deadline_s, int *order,
                                   struct sbp_diag *diag)
{
    const struct sbp_measuring *by = pass->by;
    sbp_sweep_order(by->sweep, by->seed, run, order);
    for (int i = 0; i < by->sweep->count; i++) {
        const bool is_required = run == 0 && i < by->sweep->required;
        if (is_done(pass, run, order[i]))
            continue;
        if (pass->elapsed_s >= deadline_s && !is_required)
            return SBP_OK;
        show(pass, run, order, i);
        SBP_TRY(measure_cell(pass, run, order[i], diag));
    }
    return SBP_OK;
}

/* The first run may take half of the time; the others share the rest, so that repeats of the most
 * important cells come before the less important ones of a first run that would take all of the
 * time. */
static double deadline_of(const struct pass *pass, int run)
{
    const int runs = pass->by->runs;
    return runs == 1 ? pass->budget_s : pass->budget_s * (0.5 + 0.5 * run / (double)(runs - 1));
}

/* Lets all ranks agree on the time and on the cells that rank 0 has from before. */
static enum sbp_status agree(struct pass *pass, struct sbp_diag *diag)
{
    const struct sbp_measuring *by = pass->by;
    const int cells = by->runs * by->sweep->count;
    double spare_s = -by->budget_s;
    SBP_TRY(sbp_sampler_largest(by->sampler, &spare_s, 1, diag));
    pass->budget_s = -spare_s;
    for (int i = 0; i < cells; i++)
        pass->done[i] = pass->performer.rank == 0 && by->done != NULL && by->done[i] ? 1 : 0;
    SBP_TRY(sbp_sampler_largest(by->sampler, pass->done, cells, diag));
    for (int i = 0; i < cells; i++)
        pass->left += 1 - pass->done[i];
    return SBP_OK;
}

static enum sbp_status measure_all(struct pass *pass, int *order, bool *finished,
                                   struct sbp_diag *diag)
{
    SBP_TRY(agree(pass, diag));
    pass->by->begin(pass->by->context);
    for (int run = 0; run < pass->by->runs; run++)
        SBP_TRY(measure_run(pass, run, deadline_of(pass, run), order, diag));
    for (int run = 0; run < pass->by->runs; run++)
        SBP_TRY(measure_run(pass, run, pass->budget_s, order, diag));
    *finished = pass->left <= 0;
    return SBP_OK;
}

enum sbp_status sbp_measure(const struct sbp_measuring *measuring, bool *finished,
                            struct sbp_diag *diag)
{
    struct pass pass = {.by = measuring, .start_s = sbp_clock_s()};
    const size_t cells = (size_t)measuring->sweep->count;
    const size_t ranks = (size_t)measuring->placement->ranks;
    SBP_TRY(sbp_perform_open(&pass.performer, measuring->ranks, measuring->compute,
                             measuring->placement, measuring->sweep, diag));
    struct sbp_arena arena = {0};
    int *order = SBP_NEW(&arena, int, cells);
    pass.done = SBP_NEW(&arena, double, cells *(size_t)measuring->runs);
    pass.took_s = SBP_NEW(&arena, double, cells);
    pass.gathered = SBP_NEW(&arena, double, ranks);
    pass.pair = SBP_NEW(&arena, struct sbp_sample_pair, ranks);
    sbp_progress_start(&pass.progress);
    pass.progress.line_interval_s = PROGRESS_LINES_S;
    enum sbp_status status;
    if (order == NULL || pass.done == NULL || pass.took_s == NULL || pass.gathered == NULL ||
        pass.pair == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory for %zu cells", cells);
    else
        status = measure_all(&pass, order, finished, diag);
    sbp_progress_end(&pass.progress);
    sbp_arena_free(&arena);
    sbp_perform_close(&pass.performer);
    return status;
}

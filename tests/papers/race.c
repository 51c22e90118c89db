#include "tests/papers/race.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/math/stats.h"
#include "tests/oracle/perceptron.h"
#include "tests/papers/plot.h"
#include "tests/papers/setting.h"

#define POINTS_A_DECADE 8
#define ROUND_OFF       1e-9

/* Restarts: as many as the budget allows where they end by themselves, else the solver's own. */
static const struct {
    const char *name;
    int restarts;
} searches[RACE_SEARCHES] = {
    {"random", 0}, {"metropolis-hastings", 0}, {"coordinate-descent", INT_MAX}, {"exhaustive", 0}};

static struct sbp_solution solve(const struct sbp_problem *problem, const char *name,
                                 const struct sbp_solver_options *options)
{
    struct sbp_diag diag = {{0}};
    struct sbp_solution solution;
    setting_must(sbp_solver_find(name)->solve(problem, options, &solution, &diag), &diag);
    return solution;
}

/* The one of a few equal runs that came to its last improvement soonest: others on the machine
 * disturb it least. */
static struct sbp_solution solve_timed(const struct sbp_problem *problem, const char *name,
                                       const struct sbp_solver_options *options)
{
    struct sbp_solution best = solve(problem, name, options);
    for (int i = 1; i < RACE_REPETITIONS; i++) {
        struct sbp_solution other = solve(problem, name, options);
        const double new_s = other.curve[other.curve_count - 1].elapsed_s,
                     old_s = best.curve[best.curve_count - 1].elapsed_s;
        const bool sooner = other.cost < best.cost || (other.cost == best.cost && new_s < old_s);
        sbp_solver_solution_free(sooner ? &best : &other);
        best = sooner ? other : best;
    }
    return best;
}

static struct sbp_solution run_once(const struct sbp_problem *problem,
                                    const struct race_setting *setting, const char *name,
                                    const struct sbp_solver_options *options)
{
    return setting->timed ? solve_timed(problem, name, options) : solve(problem, name, options);
}

/* Returns how far the race has come at a point of a curve, as a share of its time or of its
 * evaluations. */
static double progress_of(const struct race *race, const struct race_setting *setting,
                          const struct sbp_curve_point *point)
{
    return setting->timed ? point->elapsed_s / race->wall_s
                          : (double)point->evaluations / (double)race->evaluations;
}

static double progress_to(const struct race *race, const struct race_setting *setting,
                          const struct sbp_solution *run, double cost)
{
    for (int i = 0; i < run->curve_count; i++)
        if (run->curve[i].best <= cost)
            return progress_of(race, setting, &run->curve[i]);
    return INFINITY;
}

static double best_at(const struct race *race, const struct race_setting *setting,
                      const struct sbp_solution *run, double progress)
{
    double best = INFINITY;
    for (int i = 0; i < run->curve_count; i++)
        if (progress_of(race, setting, &run->curve[i]) <= progress)
            best = fmin(best, run->curve[i].best);
    return best;
}

/* One point of the line; false while a run has nothing yet. */
static bool add_point(const struct race *race, const struct race_setting *setting,
                      const struct sbp_solution run[RACE_SEEDS], double progress,
                      struct race_line *line)
{
    double cost[RACE_SEEDS];
    for (int seed = 0; seed < RACE_SEEDS; seed++)
        cost[seed] = best_at(race, setting, &run[seed], progress) / race->optimum_s;
    const int at = line->count;
    line->progress[at] = progress;
    line->median[at] = sbp_median(cost, RACE_SEEDS);
    if (isinf(cost[RACE_SEEDS - 1]) ||
        !sbp_median_interval(cost, RACE_SEEDS, RACE_CONFIDENCE, &line->low[at], &line->high[at]))
        return false;
    line->count++;
    return true;
}

static void summarise(const struct race *race, const struct race_setting *setting,
                      const struct sbp_solution run[RACE_SEEDS], double most,
                      struct race_line *line)
{
    const int points = (int)lround(POINTS_A_DECADE * log10(most / setting->first));
    for (int seed = 0; seed < RACE_SEEDS; seed++) {
        line->first_at[seed] = progress_to(race, setting, &run[seed], INFINITY);
        line->near_at[seed] = progress_to(race, setting, &run[seed], race->optimum_s * RACE_NEAR);
        line->optimum_at[seed] =
            progress_to(race, setting, &run[seed], race->optimum_s * (1 + ROUND_OFF));
        line->last[seed] = run[seed].cost / race->optimum_s;
    }
    for (int i = 0; i <= points && line->count < RACE_MOST_POINTS; i++)
        (void)add_point(race, setting, run, setting->first * pow(10, (double)i / POINTS_A_DECADE),
                        line);
}

static void run_search(const struct sbp_problem *problem, const struct race_setting *setting,
                       const struct race *race, int restarts, struct race_line *line)
{
    struct sbp_solution run[RACE_SEEDS];
    for (int seed = 0; seed < RACE_SEEDS; seed++) {
        struct sbp_solver_options options = {.seed = (uint64_t)seed, .restarts = restarts};
        if (setting->timed)
            options.time_limit_s = setting->most * race->wall_s;
        else
            options.max_evaluations = (int64_t)(setting->most * (double)race->evaluations);
        run[seed] = run_once(problem, setting, line->name, &options);
    }
    summarise(race, setting, run, setting->most, line);
    for (int seed = 0; seed < RACE_SEEDS; seed++)
        sbp_solver_solution_free(&run[seed]);
}

/* It draws nothing by lot: its runs are alike. */
static void run_exhaustive(const struct sbp_problem *problem, const struct race_setting *setting,
                           struct race *race, struct race_line *line)
{
    struct sbp_solution run[RACE_SEEDS];
    for (int seed = 0; seed < RACE_SEEDS; seed++) {
        const struct sbp_solver_options options = {.seed = (uint64_t)seed};
        run[seed] = run_once(problem, setting, line->name, &options);
    }
    race->optimum_s = run[0].cost;
    race->evaluations = run[0].evaluations;
    race->wall_s = INFINITY;
    for (int seed = 0; seed < RACE_SEEDS; seed++)
        race->wall_s = fmin(race->wall_s, run[seed].wall_s);
    summarise(race, setting, run, 1, line);
    for (int seed = 0; seed < RACE_SEEDS; seed++)
        sbp_solver_solution_free(&run[seed]);
}

void race_run(const struct race_setting *setting, struct race *race)
{
    struct sbp_diag diag = {{0}};
    struct sbp_problem problem;
    *race = (struct race){0};
    for (int i = 0; i < RACE_SEARCHES; i++)
        race->line[i].name = searches[i].name;
    setting_must(perceptron_build(&problem, setting->log2_devices, setting->batch), &diag);
    run_exhaustive(&problem, setting, race, &race->line[RACE_SEARCHES - 1]);
    for (int i = 0; i < RACE_SEARCHES - 1; i++)
        run_search(&problem, setting, race, searches[i].restarts, &race->line[i]);
    sbp_problem_free(&problem);
}

static double largest(const struct race *race)
{
    double most = 1;
    for (int i = 0; i < RACE_SEARCHES; i++)
        for (int k = 0; k < race->line[i].count; k++)
            most = fmax(most, race->line[i].high[k]);
    return most;
}

void race_draw(const struct race *race, const struct race_setting *setting, const char *title,
               const char *x, struct sbp_text *svg)
{
    struct plot_series series[RACE_SEARCHES];
    struct plot_band band[RACE_SEARCHES];
    for (int i = 0; i < RACE_SEARCHES; i++) {
        const struct race_line *line = &race->line[i];
        series[i] =
            (struct plot_series){.name = line->name,
                                 .count = line->count,
                                 .x = line->progress,
                                 .y = line->median,
                                 .colour = i,
                                 .dashed = i == RACE_SEARCHES - 2}; /* others lie under it */
        band[i] = (struct plot_band){line->low, line->high};
    }
    const double top = exp2(ceil(log2(largest(race) * (1 + ROUND_OFF))));
    const struct plot plot = {
        .title = title,
        .x = {x, setting->first, fmax(1, setting->most), 10, true},
        .y = {"cost over the optimum", 0.5, top, 2, true},
        .count = RACE_SEARCHES,
        .series = series,
    };
    plot_write_bands(&plot, band, svg);
}

/* `sbplan solve` on the operator-sharding problems of the IOPDDL contest, beside what others found.
 * Runs the program itself, on the problems that lie in ../shared/data/iopddl.
 *
 * Usage: bench_iopddl SBPLAN [-o FOLDER] [--time-limit S] [PROBLEM...]
 * Each run gets the contest's time, of one core's processor time, or S where that is less. Ends
 * with 1 when a choice does not fit or costs something else than was said, a bound is above a known
 * cost, or an answer is worse than the values that are held.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/problem/problem.h"
#include "tests/bench/inputs.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"
#include "tests/papers/plot.h"

enum { PROBLEMS = 8, SEEDS = 3, MOST_POINTS = 520 };
#define DEAREST    1.02 /* of the best value seen */
#define WAIT       40.0 /* seconds of the clock for one of processor time */
#define MOST_BYTES 1073741824.0
#define TALLEST    1.25 /* of the plot */

/* How a problem's cost is held to the best value seen. */
enum held { WITHIN, EQUAL, BELOW };

/* Limits and values: asplos-contest/2025, misc/iopddl_final_results.csv, for the best of 20 teams;
 * ti2-group/iopddl_experiments, convergence.json and lower_bounds, for the later solver (best of 10
 * seeds) and the bounds. bound_share: of the published bound, which is held. */
static const struct published {
    const char *name, *model;
    double limit_s, contest, later, bound;
    enum held held;
    double bound_share;
} published[PROBLEMS] = {
    {"B", "Transformer inference [4,8]", 60, 532843, 532843, 532843, EQUAL, 0.99},
    {"D", "Gemma 1 7B [8,8]", 60, 313613524736, 309396217000, 298253500099, WITHIN, 1},
    {"G", "Transformer inference [2,16]", 120, 217039, 217039, 216931, EQUAL, 0.99},
    {"K", "GNS [2,16]", 180, 2274276676, 2242635780, 2065623588, BELOW, 0.99},
    {"M", "Gemma 1 2B [8,8]", 180, 49928460991, 49928157500, 49407421919, WITHIN, 1},
    {"R", "Gemma 2 27B [8,16]", 240, 371899551572, 367060921000, 304520000000, BELOW, 1},
    {"T", "Diffusion [4,8]", 240, 682895254913, 671305745000, 585686829499, BELOW, 1},
    {"V", "Transformer inference [2,4,4]", 300, 1632051, 1617084, 1617084, EQUAL, 0.99},
};

/* The worst of all seeds. */
struct outcome {
    const char *status;
    double cost, bound, cpu_s, peak_bytes;
    double least_cost;
};

struct bench {
    struct report_arguments arguments;
    struct inputs inputs;
    struct sbp_text table;
    int ran, missed;
    double x[PROBLEMS][MOST_POINTS], y[PROBLEMS][MOST_POINTS];
    struct plot_series series[PROBLEMS];
};

static double seen(const struct published *p)
{
    return fmin(p->contest, p->later);
}

static double number(const struct cJSON *answer, const char *key)
{
    const struct cJSON *item = cJSON_GetObjectItem(answer, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* ---- one run -------------------------------------------------------------------------------- */

/* Whether the choice is one of the problem that fits and costs what the answer says. */
static bool is_true(const struct sbp_problem *problem, const struct cJSON *answer)
{
    const struct cJSON *choice = cJSON_GetObjectItem(answer, "choice"), *value;
    int *values = calloc((size_t)problem->variable_count + 1, sizeof *values), count = 0;
    bool good = values != NULL && cJSON_GetArraySize(choice) == problem->variable_count;
    cJSON_ArrayForEach(value, choice)
    {
        if (!good)
            break;
        good = value->valueint >= 0 && value->valueint < problem->variable[count].domain;
        values[count++] = value->valueint;
    }
    good = good && sbp_problem_cost(problem, values) == number(answer, "cost") &&
           sbp_problem_fits(problem, sbp_problem_peak_usage(problem, values));
    free(values);
    return good;
}

/* The costs of a run over its processor time, as steps; time is the clock's, times the share of it
 * that the run had a core. */
static void draw_curve(struct bench *bench, int index, const struct measured *measured)
{
    const struct cJSON *curve = cJSON_GetObjectItem(measured->answer, "curve"), *point;
    const double share = measured->cpu_s / measured->wall_s;
    double *x = bench->x[index], *y = bench->y[index];
    int count = 0;
    cJSON_ArrayForEach(point, curve)
    {
        const double s = fmax(0.1, share * number(point, "elapsed_s"));
        const double ratio = number(point, "best") / seen(&published[index]);
        if (ratio > TALLEST || count + 3 > MOST_POINTS)
            continue;
        if (count > 0) {
            x[count] = s;
            y[count] = y[count - 1];
            count++;
        }
        x[count] = s;
        y[count++] = ratio;
    }
    if (count > 0) {
        x[count] = fmax(x[count - 1], measured->cpu_s);
        y[count] = y[count - 1];
        count++;
    }
    bench->series[index] = (struct plot_series){
        .name = published[index].name, count, x, y, index % 6, index >= 6, false};
}

static void add_run(struct outcome *worst, const struct measured *measured)
{
    const struct cJSON *status = cJSON_GetObjectItem(measured->answer, "status");
    if (!cJSON_IsString(status) || strcmp(status->valuestring, "optimal") != 0)
        worst->status = "feasible";
    worst->cost = fmax(worst->cost, number(measured->answer, "cost"));
    worst->least_cost = fmin(worst->least_cost, number(measured->answer, "cost"));
    worst->bound = fmin(worst->bound, number(measured->answer, "lower_bound"));
    worst->cpu_s = fmax(worst->cpu_s, measured->cpu_s);
    worst->peak_bytes = fmax(worst->peak_bytes, (double)measured->peak_bytes);
}

/* A run with one seed; runs stand beside each other, since their limits are of processor time. */
struct seed_run {
    const char *program, *path;
    int seed;
    double cpu_s;
    struct measured measured;
    enum sbp_status status;
    struct sbp_diag diag;
};

static void *run_seed(void *context)
{
    struct seed_run *run = context;
    char seed[16], limit[32];
    (void)snprintf(seed, sizeof seed, "%d", run->seed);
    (void)snprintf(limit, sizeof limit, "%.0f", WAIT * run->cpu_s);
    const char *words[] = {run->program,   "solve", run->path, "--seed", seed,
                           "--time-limit", limit,   "--json",  NULL};
    run->status =
        measure_run_share(words, run->cpu_s, 2 * WAIT * run->cpu_s, &run->measured, &run->diag);
    return NULL;
}

/* E_INPUT: the program failed, or what it says is not so. */
static enum sbp_status note_run(struct bench *bench, int index, const struct seed_run *run,
                                const struct sbp_problem *problem, struct outcome *worst,
                                struct sbp_diag *diag)
{
    char end[MEASURE_END_BYTES];
    const struct cJSON *answer = run->measured.answer;
    if (run->status != SBP_OK)
        return sbp_fail(diag, run->status, "%s", run->diag.text);
    if (answer == NULL || run->measured.exit_code != 0)
        return sbp_fail(diag, SBP_E_INPUT, "%s", measure_end_text(&run->measured, end));
    if (!is_true(problem, answer))
        return sbp_fail(diag, SBP_E_INPUT, "the choice does not fit, or costs something else");
    add_run(worst, &run->measured);
    (void)printf("%s seed %d: %.12g, %.6f of the best seen, bound %.12g, %.1f s, %.0f MB\n",
                 published[index].name, run->seed, number(answer, "cost"),
                 number(answer, "cost") / seen(&published[index]), number(answer, "lower_bound"),
                 run->measured.cpu_s, (double)run->measured.peak_bytes / 1e6);
    (void)fflush(stdout);
    if (run->seed == 0)
        draw_curve(bench, index, &run->measured);
    return SBP_OK;
}

static enum sbp_status run_seeds(struct bench *bench, int index, const char *path,
                                 const struct sbp_problem *problem, struct outcome *worst,
                                 struct sbp_diag *diag)
{
    struct seed_run run[SEEDS] = {{0}};
    pthread_t thread[SEEDS];
    enum sbp_status status = SBP_OK;
    const double asked_s =
        bench->arguments.time_limit == NULL ? INFINITY : strtod(bench->arguments.time_limit, NULL);
    int started = 0;
    for (; started < SEEDS; started++) {
        run[started] = (struct seed_run){.program = bench->arguments.program,
                                         .path = path,
                                         .seed = started,
                                         .cpu_s = fmin(published[index].limit_s, asked_s)};
        if (pthread_create(&thread[started], NULL, run_seed, &run[started]) != 0)
            break;
    }
    if (started < SEEDS)
        status = sbp_fail(diag, SBP_E_IO, "no thread for a run");
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
        if (status == SBP_OK)
            status = note_run(bench, index, &run[i], problem, worst, diag);
        measure_free(&run[i].measured);
    }
    return status;
}

/* ---- one problem ---------------------------------------------------------------------------- */

static bool is_held(const struct published *p, const struct outcome *worst)
{
    const double ratio = worst->cost / seen(p);
    const bool cheap = p->held == BELOW   ? ratio < 1
                       : p->held == EQUAL ? ratio <= 1
                                          : ratio <= DEAREST;
    return cheap && worst->bound >= p->bound_share * p->bound &&
           worst->bound <= worst->least_cost * (1 + 1e-9) && worst->peak_bytes < MOST_BYTES;
}

static void add_row(struct bench *bench, const struct published *p, const struct outcome *worst)
{
    const bool held = is_held(p, worst);
    bench->missed += !held;
    sbp_text_add(
        &bench->table,
        "| %s | %s | %.0f | %.5f | %s | %.0f | %.0f | %.0f | %.0f | %.4f | %.0f | %.0f | %s "
        "|\n",
        p->name, p->model, worst->cost, worst->cost / seen(p), worst->status, p->contest, p->later,
        worst->bound, p->bound, worst->bound / p->bound, worst->cpu_s, worst->peak_bytes / 1e6,
        held ? "yes" : "no");
}

/* Unpacks a problem; false: it is not there. */
static bool unpack(const struct bench *bench, const char *name, char *path)
{
    char packed[INPUTS_PATH_BYTES];
    struct measured measured;
    struct sbp_diag diag = {{0}};
    (void)snprintf(packed, sizeof packed, "%s/../shared/data/iopddl/%s.json.gz", SBP_SOURCE_ROOT,
                   name);
    (void)snprintf(path, INPUTS_PATH_BYTES, "%s/problem.json", bench->inputs.folder);
    const char *const words[] = {"/bin/sh", "-c", "gzip -dc \"$1\" >\"$2\"", "sh", packed,
                                 path,      NULL};
    const bool done = measure_run(words, 60, &measured, &diag) == SBP_OK && measured.exit_code == 0;
    measure_free(&measured);
    return done;
}

static enum sbp_status run_problem(struct bench *bench, int index, struct sbp_diag *diag)
{
    char path[INPUTS_PATH_BYTES];
    struct sbp_problem problem;
    struct outcome worst = {.status = "optimal", .bound = INFINITY, .least_cost = INFINITY};
    if (!unpack(bench, published[index].name, path)) {
        (void)printf("%s: skipped, ../shared/data/iopddl/%s.json.gz is not there\n",
                     published[index].name, published[index].name);
        return SBP_OK;
    }
    SBP_TRY(sbp_problem_read(path, &problem, diag));
    const enum sbp_status status = run_seeds(bench, index, path, &problem, &worst, diag);
    sbp_problem_free(&problem);
    if (status == SBP_OK) {
        add_row(bench, &published[index], &worst);
        bench->ran++;
    }
    return status;
}

/* ---- the page ------------------------------------------------------------------------------- */

static bool write_plot(struct bench *bench)
{
    struct sbp_text svg = {0};
    struct plot_series series[PROBLEMS];
    int count = 0;
    for (int i = 0; i < PROBLEMS; i++)
        if (bench->series[i].count > 0)
            series[count++] = bench->series[i];
    const struct plot plot = {"Cost over time, seed 0",
                              {"processor time (s)", 0.1, 1000, 10, true},
                              {"cost over the best value seen", 0.9, TALLEST, 0.05, false},
                              count,
                              series};
    plot_write(&plot, &svg);
    const bool written = report_write(&bench->arguments, "iopddl.svg", &svg);
    sbp_text_free(&svg);
    return written;
}

static bool write_page(struct bench *bench)
{
    struct sbp_text page = {0};
    sbp_text_add(&page,
                 "# Operator sharding: the IOPDDL problems\n\nMade by `./dev bench iopddl`, ");
    report_add_machine(&page);
    sbp_text_add(
        &page, ".\n\nProblems of a public contest (google/iopddl; ASPLOS and EuroSys 2025), taken "
               "from a compiler: one strategy for each\noperator, a limit of memory over "
               "time. `sbplan solve` had one core and the contest's limit, in processor "
               "time;\n");
    if (bench->arguments.time_limit != NULL)
        sbp_text_add(&page,
                     "where that is more than %s s, these (`bench_iopddl --time-limit %s`); ",
                     bench->arguments.time_limit, bench->arguments.time_limit);
    sbp_text_add(
        &page,
        "the contest had 8 cores. Each row is the worst of seeds 0 to %d, cost and bound alike. "
        "Contest: the best of 20 teams\n(asplos-contest/2025, misc/iopddl_final_results.csv); "
        "later "
        "solver, the best of 10 seeds, and published bound:\nti2-group/iopddl_experiments. Every "
        "choice is priced and checked against the limit by the benchmark. Held: cost at\nmost %.2f "
        "of the best value seen, equal to it on B, G and V, below it on K, R and T; bounds at "
        "least "
        "the published\nones on D, M, R and T, 0.99 of them on the others; less than 1 GiB.\n\n"
        "| id | model, mesh | cost | over seen | status | contest | later solver | bound | "
        "published "
        "bound | over it | s | MB | held |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- "
        "| "
        "--- | --- | --- | --- |\n",
        SEEDS - 1, DEAREST);
    sbp_text_add(&page,
                 "%s\n![Cost over time](iopddl.svg)\n\nTime in the plot is the clock's, times "
                 "the share of it that the run had a core.\n",
                 bench->table.bytes == NULL ? "" : bench->table.bytes);
    page.failed |= bench->table.failed;
    const bool written = report_write(&bench->arguments, "iopddl.md", &page);
    sbp_text_free(&page);
    return written;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct sbp_diag diag = {{0}};
    bool good = report_read_arguments(argc, argv, &bench.arguments);
    if (!good || inputs_open(&bench.inputs, &diag) != SBP_OK)
        return 2;
    for (int i = 0; i < PROBLEMS && good; i++)
        if (report_wants(&bench.arguments, published[i].name))
            good = run_problem(&bench, i, &diag) == SBP_OK;
    if (!good)
        (void)fprintf(stderr, "bench_iopddl: %s\n", diag.text);
    if (good && bench.ran > 0)
        good = write_plot(&bench) && write_page(&bench);
    inputs_close(&bench.inputs);
    sbp_text_free(&bench.table);
    return !good || bench.missed > 0;
}

/* Published training runs beside what sbplan predicts for them: the table of `sbplan validate`,
 * with what other predictors published, and pictures. Bounds are stated and not held here: whether
 * they hold is the exit status of `sbplan validate`. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/configs/config_files.h"
#include "planner/validate/validation.h"
#include "tests/papers/paper.h"
#include "tests/papers/plot.h"
#include "tests/papers/setting.h"

#define MOST_SETS   64
#define MOST_POINTS 4096

struct study {
    struct sbp_arena arena; /* names of files */
    int count;
    char name[MOST_SETS][64];
    struct sbp_run_set set[MOST_SETS];
    struct sbp_validation validation[MOST_SETS];
};

/* ---- sets ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_sets(struct study *study)
{
    char folder[4096];
    setting_runs_path("", folder, sizeof folder);
    DIR *files = opendir(folder);
    if (files == NULL)
        abort();
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".json") != 0 || study->count == MOST_SETS)
            continue;
        (void)snprintf(study->name[study->count++], sizeof *study->name, "%.*s",
                       (int)(dot - entry->d_name), entry->d_name);
    }
    (void)closedir(files);
    qsort(study->name, (size_t)study->count, sizeof *study->name, by_name);
}

static void validate_sets(struct study *study)
{
    for (int i = 0; i < study->count; i++) {
        struct sbp_diag diag = {{0}};
        char file[80], path[4096];
        (void)snprintf(file, sizeof file, "%s.json", study->name[i]);
        setting_runs_path(file, path, sizeof path);
        setting_must(sbp_run_set_open(path, NULL, &study->arena, &study->set[i], &diag), &diag);
        setting_must(sbp_validation_make(&study->set[i], NULL, &study->validation[i], &diag),
                     &diag);
    }
}

/* ---- tables --------------------------------------------------------------------------------- */

static void say_percent(struct paper *paper, double share, const char *behind)
{
    if (isnan(share))
        paper_say(paper, "-%s", behind);
    else
        paper_say(paper, "%.1f%s", 100 * share, behind);
}

static void say_number(struct paper *paper, double value, const char *behind)
{
    if (isnan(value))
        paper_say(paper, "-%s", behind);
    else
        paper_say(paper, "%.2f%s", value, behind);
}

static void say_set(struct paper *paper, const char *name, const struct sbp_validation *v)
{
    paper_say(paper, "| %s | %d | ", name, v->time.count);
    say_percent(paper, v->time.error, " | ");
    say_percent(paper, v->time.bias, " | ");
    say_percent(paper, v->time.factor_error, " | ");
    say_number(paper, v->time.factor, " | ");
    say_percent(paper, v->constant.factor_error, " | ");
    say_number(paper, v->time.rank, " | ");
    paper_say(paper, "%d | ", v->time.groups);
    say_number(paper, v->time.group_rank, " | ");
    say_percent(paper, v->time.regret, " | ");
    say_percent(paper, v->time.worst_regret, " | ");
    say_percent(paper, v->memory.error, " | ");
    say_percent(paper, v->settled.median_error, " | ");
    paper_say(paper, "%s |\n", v->holds ? "yes" : "no");
}

static void say_sets(struct paper *paper, const struct study *study)
{
    paper_table(paper,
                "| runs of | priced | error | bias | one factor | factor | constant use | "
                "rank | groups | rank in them | regret | worst | memory | settled | bounds hold |");
    for (int i = 0; i < study->count; i++)
        if (study->validation[i].refused_count < study->set[i].run_count)
            say_set(paper, study->name[i], &study->validation[i]);
    paper_say(paper, "\n");
}

static void say_figures(struct paper *paper, const struct sbp_run_figures *figures)
{
    say_percent(paper, figures->error, " | ");
    say_number(paper, figures->rank, " | ");
    say_percent(paper, figures->regret, " | ");
    say_percent(paper, figures->memory_error, " |\n");
}

/* What others published of the same runs, and ours beside. */
static void say_peers(struct paper *paper, const struct study *study)
{
    paper_say(paper, "## Other predictors\n\n");
    paper_table(paper, "| runs of | predictor | error | rank | regret | memory |");
    for (int i = 0; i < study->count; i++) {
        const struct sbp_run_set *set = &study->set[i];
        const struct sbp_validation *v = &study->validation[i];
        const struct sbp_run_figures ours = {.error = v->time.error,
                                             .rank = v->time.groups > 0 ? v->time.group_rank
                                                                        : v->time.rank,
                                             .regret = v->time.regret,
                                             .memory_error = v->memory.error};
        if (set->peer_count == 0)
            continue;
        paper_say(paper, "| %s | sbplan | ", study->name[i]);
        say_figures(paper, &ours);
        for (int peer = 0; peer < set->peer_count; peer++) {
            paper_say(paper, "| | %s | ", set->peer[peer].name);
            say_figures(paper, &set->peer[peer].figures);
        }
    }
    paper_say(paper, "\n");
}

static void say_bound(struct paper *paper, const struct sbp_validation_check *check, int place)
{
    const bool plain = strcmp(check->figure, "rank") == 0 || strcmp(check->figure, "refused") == 0;
    const double scale = plain ? 1 : 100;
    if (strcmp(check->figure, "refused") == 0 && check->bound == 0 && check->holds)
        return;
    paper_say(paper, "%s%s %.4g%s (%s %.4g)", place == 0 ? "" : ", ", check->figure,
              scale * check->value, plain ? "" : " %",
              strcmp(check->figure, "rank") == 0 ? "at least" : "at most", scale * check->bound);
}

static void say_sources(struct paper *paper, const struct study *study)
{
    paper_say(paper, "## Sources and bounds\n\n");
    for (int i = 0; i < study->count; i++) {
        const struct sbp_validation *v = &study->validation[i];
        paper_say(paper, "- **%s**: %s; %d runs, trainer %s. %s.\n  Bounds: ", study->name[i],
                  v->set->title, v->set->run_count, v->set->trainer, v->set->source);
        for (int c = 0, place = 0; c < v->check_count; c++) {
            const size_t before = paper->text.length;
            say_bound(paper, &v->check[c], place);
            place += paper->text.length > before;
        }
        paper_say(paper, ".\n");
    }
}

/* ---- pictures ------------------------------------------------------------------------------- */

/* Families of sets that share a colour; the first that a name begins with. */
static const struct {
    const char *title;
    const char *start[8];
} families[] = {
    {"Megatron", {"korthikanti", "megatron", "mtnlg", "sc21", NULL}},
    {"vTrain", {"vtrain", NULL}},
    {"BigScience", {"bigscience", NULL}},
    {"FSDP", {"llm-foundry", "torchtitan", NULL}},
    {"V100, T4", {"amp", "dlperf", "libai", NULL}},
    {"H100 and later", {"simumax", "dgxc", "mlperf", "bridge", "moe", NULL}},
};
#define FAMILIES ((int)(sizeof families / sizeof *families))

static int family_of(const char *name)
{
    for (int f = 0; f < FAMILIES; f++)
        for (const char *const *start = families[f].start; *start != NULL; start++)
            if (strncmp(name, *start, strlen(*start)) == 0)
                return f;
    return FAMILIES - 1;
}

struct points {
    int count;
    double x[MOST_POINTS], y[MOST_POINTS];
};

static void add_point(struct points *points, double measured, double predicted)
{
    if (measured <= 0 || points->count == MOST_POINTS)
        return;
    points->x[points->count] = measured;
    points->y[points->count++] = predicted;
}

static void add_set(const struct sbp_validation *v, bool memory, struct points *points)
{
    for (int i = 0; i < v->set->run_count; i++) {
        const struct sbp_run *run = &v->set->run[i];
        if (v->refused[i] != NULL)
            continue;
        if (memory)
            add_point(points, run->memory_bytes * 1e-9, v->price[i].memory_bytes * 1e-9);
        else
            add_point(points, run->step_s, v->price[i].step_s);
    }
}

static void draw(struct paper *paper, const struct study *study, bool memory)
{
    const double low = memory ? 1 : 0.01, high = 1000;
    const double ends[] = {low, high};
    const char *unit = memory ? "GB" : "s";
    struct points *points = calloc((size_t)FAMILIES, sizeof *points);
    struct plot_series series[FAMILIES + 1];
    char x[32], y[32];
    int count = 0;
    if (points == NULL)
        abort();
    for (int i = 0; i < study->count; i++)
        add_set(&study->validation[i], memory, &points[family_of(study->name[i])]);
    for (int f = 0; f < FAMILIES; f++)
        if (points[f].count > 0)
            series[count++] = (struct plot_series){.name = families[f].title,
                                                   .count = points[f].count,
                                                   .x = points[f].x,
                                                   .y = points[f].y,
                                                   .colour = f};
    series[count] = (struct plot_series){
        .name = "equal", .count = 2, .x = ends, .y = ends, .colour = 4, .dashed = true};
    (void)snprintf(x, sizeof x, "measured, %s", unit);
    (void)snprintf(y, sizeof y, "predicted, %s", unit);
    const struct plot plot = {
        .title = memory ? "Memory of a device" : "Step time",
        .x = {.label = x, .low = low, .high = high, .tick = 10, .logarithmic = true},
        .y = {.label = y, .low = low, .high = high, .tick = 10, .logarithmic = true},
        .count = count + 1,
        .series = series};
    plot_write_loose(&plot, count,
                     paper_picture(paper, memory ? "validation-memory" : "validation-time",
                                   memory ? "Predicted beside measured memory"
                                          : "Predicted beside measured step times"));
    free(points);
}

int main(int argc, char **argv)
{
    struct paper paper;
    struct study *study = calloc(1, sizeof *study);
    if (study == NULL)
        abort();
    list_sets(study);
    validate_sets(study);
    paper_open(&paper, "validation", "Published training runs");
    paper_say(
        &paper,
        "Every run's own degrees are priced; nothing is searched and nothing is fitted. "
        "`sbplan validate` prints the\nsame, and docs/validate.md says what the columns mean; "
        "errors, regret and memory in percent.\n\n");
    paper_true(&paper, "sets of runs", study->count > 0);
    say_sets(&paper, study);
    draw(&paper, study, false);
    draw(&paper, study, true);
    say_peers(&paper, study);
    say_sources(&paper, study);
    for (int i = 0; i < study->count; i++) {
        sbp_validation_free(&study->validation[i]);
        sbp_run_set_free(&study->set[i]);
    }
    sbp_arena_free(&study->arena);
    free(study);
    return paper_close(&paper, argc, argv);
}

/* Peak memory that others measured, beside what sbplan predicts for the same runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/papers/memory_runs.h"
#include "tests/papers/paper.h"
#include "tests/papers/plot.h"
#include "tests/papers/setting.h"

#define MOST_POINTS 256

/* The score of the rows of a group. */
struct score {
    int rows;
    double errors, worst; /* sum and most of |predicted - measured| / measured */
    double bias;          /* sum with its sign */
    char worst_id[48];
    int out_of_memory, found_so; /* runs, and those that sbplan does not fit either */
    double measured[MOST_POINTS], predicted[MOST_POINTS]; /* GB, for the picture */
};

static void count_row(struct score *score, const struct memory_row *row, double predicted)
{
    const double error = (predicted - row->bytes) / row->bytes;
    if (score->rows == MOST_POINTS)
        abort();
    score->measured[score->rows] = row->bytes * 1e-9;
    score->predicted[score->rows++] = predicted * 1e-9;
    score->errors += fabs(error);
    score->bias += error;
    if (fabs(error) <= score->worst)
        return;
    score->worst = fabs(error);
    (void)snprintf(score->worst_id, sizeof score->worst_id, "%s", row->id);
}

static void say_row(struct paper *paper, const struct memory_group *group,
                    const struct memory_row *row, struct score *score)
{
    const double predicted = memory_run_predict(group, row);
    const int64_t sequences =
        row->micro_batch > 0 ? row->micro_batch : row->global_batch / row->data;
    paper_say(paper, "| %s | %lld x %lld x %lld, %lld | ", row->id, (long long)row->tensor,
              (long long)row->pipeline, (long long)row->data, (long long)sequences);
    if (row->out_of_memory) {
        const bool fits = predicted <= group->limit_bytes;
        score->out_of_memory++;
        score->found_so += !fits;
        paper_say(paper, "out of memory | %.*f | %s |\n", group->digits,
                  predicted / group->unit_bytes, fits ? "fits" : "does not fit");
        return;
    }
    count_row(score, row, predicted);
    paper_say(paper, "%.*f | %.*f | %+.1f %% |\n", group->digits, row->bytes / group->unit_bytes,
              group->digits, predicted / group->unit_bytes,
              100 * (predicted - row->bytes) / row->bytes);
}

static void hold_group(struct paper *paper, const struct memory_group *group,
                       const struct score *score)
{
    const double mean = score->errors / score->rows;
    char what[160];
    paper_say(paper,
              "\n%d rows: mean absolute error %.1f %%, mean error %+.1f %%, worst %.1f %% (%s); "
              "held to %g and %g %%.",
              score->rows, 100 * mean, 100 * score->bias / score->rows, 100 * score->worst,
              score->worst_id, 100 * group->mean_bound, 100 * group->worst_bound);
    if (score->out_of_memory > 0) {
        paper_say(paper, " Of %d runs out of memory %d do not fit in %g %s.", score->out_of_memory,
                  score->found_so, group->limit_bytes / group->unit_bytes, group->unit);
        (void)snprintf(what, sizeof what, "%s: runs out of memory that do not fit", group->name);
        paper_within(paper, what, (double)score->found_so / score->out_of_memory,
                     group->out_of_memory_bound, 1);
    }
    paper_say(paper, "\n\n");
    (void)snprintf(what, sizeof what, "%s: mean absolute error", group->name);
    paper_within(paper, what, mean, 0, group->mean_bound);
    (void)snprintf(what, sizeof what, "%s: worst error", group->name);
    paper_within(paper, what, score->worst, 0, group->worst_bound);
}

static void say_group(struct paper *paper, const struct memory_group *group,
                      const struct memory_row *rows, int count, struct score *score)
{
    char header[160];
    paper_say(paper, "## %s\n\n%s\n\n", group->title, group->text);
    (void)snprintf(header, sizeof header,
                   "| run | tensor x pipeline x data, micro-batch | measured, %s | ours | error |",
                   group->unit);
    paper_table(paper, header);
    for (int i = 0; i < count; i++)
        if (memory_group_has(group, &rows[i]) && rows[i].measured)
            say_row(paper, group, &rows[i], score);
    hold_group(paper, group, score);
}

static bool is_used(const struct memory_row *row)
{
    for (int g = 0; g < memory_group_count; g++)
        if (memory_group_has(&memory_groups[g], row) && row->measured)
            return true;
    return false;
}

/* Rows that follow each other for one reason share a line. */
static void say_unused(struct paper *paper, const struct memory_row *rows, int count)
{
    const char *last = NULL;
    paper_say(paper, "## Rows left out\n");
    for (int i = 0; i < count; i++) {
        if (is_used(&rows[i]))
            continue;
        const char *why = memory_row_unused(&rows[i]);
        paper_true(paper, rows[i].id, why != NULL);
        if (why != last)
            paper_say(paper, "\n- %s: %s", why != NULL ? why : "unknown", rows[i].id);
        else if (strcmp(rows[i].id, rows[i - 1].id) != 0)
            paper_say(paper, ", %s", rows[i].id);
        last = why;
    }
    paper_say(paper, "\n\n");
}

static void summarise(struct paper *paper, const struct score *scores)
{
    paper_say(paper,
              "Each run's model, cluster and layout (`tests/papers/memory_runs.c`) go through "
              "`sbp_step_make`; rows of a group\ndiffer in nothing but their own configuration. "
              "Measured numbers come from `../shared/data/peak_memory.csv`\nand, for OneFlow, from "
              "DLPerf's table. The reserve of a group is what stands between the median run and "
              "what\nis modelled, in round numbers.\n\n");
    paper_table(paper, "| group | rows | mean absolute error | mean error | worst |");
    for (int g = 0; g < memory_group_count; g++)
        paper_say(paper, "| %s | %d | %.1f %% | %+.1f %% | %.1f %% |\n", memory_groups[g].title,
                  scores[g].rows, 100 * scores[g].errors / scores[g].rows,
                  100 * scores[g].bias / scores[g].rows, 100 * scores[g].worst);
    paper_say(paper, "\n");
}

static void draw(struct paper *paper, const struct score *scores)
{
    static const int colours[MEMORY_MOST_GROUPS] = {0, 1, 2, 2, 2, 3, 3, 5};
    struct plot_series series[MEMORY_MOST_GROUPS + 1];
    const double ends[] = {0.3, 600};
    for (int g = 0; g < memory_group_count; g++)
        series[g] = (struct plot_series){.name = memory_groups[g].name,
                                         .count = scores[g].rows,
                                         .x = scores[g].measured,
                                         .y = scores[g].predicted,
                                         .colour = colours[g]};
    series[memory_group_count] = (struct plot_series){
        .name = "equal", .count = 2, .x = ends, .y = ends, .colour = 4, .dashed = true};
    const struct plot plot = {
        .title = "Memory of a device (Myelin: of all devices)",
        .x = {.label = "measured, GB", .low = 0.3, .high = 600, .tick = 10, .logarithmic = true},
        .y = {.label = "predicted, GB", .low = 0.3, .high = 600, .tick = 10, .logarithmic = true},
        .count = memory_group_count + 1,
        .series = series};
    plot_write_loose(&plot, memory_group_count,
                     paper_picture(paper, "peak_memory", "Predicted beside measured memory"));
}

/* Rows of the file, and OneFlow's behind them; NULL where there is no file. */
static struct memory_row *all_rows(int *count)
{
    struct sbp_diag diag = {{0}};
    struct memory_row *rows = NULL;
    char path[4096];
    setting_shared_path("data/peak_memory.csv", path, sizeof path);
    if (memory_rows_read(path, &rows, count, &diag) != SBP_OK) {
        (void)printf("skipped: %s\n", diag.text);
        return NULL;
    }
    const int more = memory_runs_oneflow(NULL);
    struct memory_row *all = realloc(rows, (size_t)(*count + more) * sizeof *rows);
    if (all == NULL)
        abort();
    *count += memory_runs_oneflow(all + *count);
    return all;
}

int main(int argc, char **argv)
{
    struct paper paper, groups = {.name = "peak_memory"};
    int count = 0;
    struct memory_row *rows = all_rows(&count);
    if (rows == NULL)
        return 77; /* meson: skipped */
    struct score *scores = calloc(MEMORY_MOST_GROUPS, sizeof *scores);
    if (scores == NULL)
        abort();
    for (int g = 0; g < memory_group_count; g++)
        say_group(&groups, &memory_groups[g], rows, count, &scores[g]);
    say_unused(&groups, rows, count);
    paper_open(&paper, "peak_memory", "Peak memory of measured runs");
    summarise(&paper, scores);
    draw(&paper, scores);
    sbp_text_add(&paper.text, "%s", groups.text.bytes);
    paper.held += groups.held;
    paper.broken += groups.broken;
    sbp_text_free(&groups.text);
    free(rows);
    free(scores);
    return paper_close(&paper, argc, argv);
}

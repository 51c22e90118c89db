#include "calib/output/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/stats.h"
#include "base/table.h"
#include "base/text.h"
#include "calib/samples/points.h"

/* One of the two calibrations: the last chain of sessions in its file. */
struct side {
    const struct sbp_record *record;
    const struct sbp_calibration_origin *origin;
    struct sbp_measured measured;
    struct sbp_sample_runs runs;
    struct sbp_compute_times compute;
    int first; /* of the last chain's points */
};

static enum sbp_status open_side(const struct sbp_record *record, struct side *side,
                                 struct sbp_diag *diag)
{
    *side = (struct side){.record = record,
                          .origin = &record->session[record->session_count - 1].origin};
    SBP_TRY(sbp_points(record, SBP_OF_MEDIANS, &side->measured, &side->runs, diag));
    sbp_points_compute(record, &side->runs, &side->compute);
    const int last = side->measured.source_count - 1;
    while (side->first < side->measured.count && side->measured.point[side->first].source != last)
        side->first++;
    return SBP_OK;
}

/* --- software and settings --- */

static bool print_word(const char *what, const char *older, const char *newer, FILE *out)
{
    if (strcmp(older, newer) == 0)
        return true;
    return sbp_text_print_line(out, "%s: %s -> %s\n", what, older[0] == '\0' ? "none" : older,
                               newer[0] == '\0' ? "none" : newer);
}

static bool has_line(const char *lines, const char *line, size_t length)
{
    for (const char *at = lines; *at != '\0';) {
        const size_t there = strcspn(at, "\n");
        if (there == length && strncmp(at, line, length) == 0)
            return true;
        at += there + (at[there] == '\n');
    }
    return false;
}

/* Prints the lines of one that the other lacks. */
static bool print_missing(const char *lines, const char *other, char sign, FILE *out)
{
    bool done = true;
    for (const char *at = lines; *at != '\0' && done;) {
        const size_t length = strcspn(at, "\n");
        if (!has_line(other, at, length))
            done = fprintf(out, "setting %c %.*s\n", sign, (int)length, at) >= 0;
        at += length + (at[length] == '\n');
    }
    return done;
}

static bool print_origins(const struct sbp_calibration_origin *older,
                          const struct sbp_calibration_origin *newer, FILE *out)
{
    char older_layout[64], newer_layout[64];
    (void)snprintf(older_layout, sizeof older_layout, "%d ranks on %d nodes", older->ranks,
                   older->hosts);
    (void)snprintf(newer_layout, sizeof newer_layout, "%d ranks on %d nodes", newer->ranks,
                   newer->hosts);
    return print_word("date", older->date, newer->date, out) &&
           print_word("ranks", older_layout, newer_layout, out) &&
           print_word("host", older->host, newer->host, out) &&
           print_word("processor", older->cpu, newer->cpu, out) &&
           print_word("device", older->device, newer->device, out) &&
           print_word("system", older->system, newer->system, out) &&
           print_word("backend", older->backend, newer->backend, out) &&
           print_word("library", older->library, newer->library, out) &&
           print_word("driver", older->driver, newer->driver, out) &&
           print_word("binding", older->binding, newer->binding, out) &&
           print_missing(older->settings, newer->settings, '-', out) &&
           print_missing(newer->settings, older->settings, '+', out);
}

/* --- collectives --- */

static const struct sbp_measured_point *find_point(const struct side *side,
                                                   const struct sbp_measured_point *like)
{
    for (int i = side->first; i < side->measured.count; i++)
        if (sbp_points_same_series(&side->measured.point[i], like) &&
            side->measured.point[i].bytes == like->bytes)
            return &side->measured.point[i];
    return NULL;
}

struct series {
    int count, slower, faster;
    double *ratio; /* (count) new / old */
    double worst_ratio, worst_bytes;
};

static void add_pair(struct series *series, const struct sbp_measured_point *older,
                     const struct sbp_measured_point *newer)
{
    const double ratio = newer->time_s / older->time_s;
    const double scatter = older->spread + newer->spread * ratio;
    const double least = scatter > SBP_CHANGED ? scatter : SBP_CHANGED;
    const double off = ratio > 1 ? ratio : 1 / ratio;
    const double worst = series->worst_ratio > 1 ? series->worst_ratio : 1 / series->worst_ratio;
    series->slower += ratio - 1 > least;
    series->faster += 1 - ratio > least;
    series->ratio[series->count++] = ratio;
    if (series->count == 1 || off > worst) {
        series->worst_ratio = ratio;
        series->worst_bytes = newer->bytes;
    }
}

static void add_series(struct sbp_table *table, const struct sbp_measured_point *of,
                       struct series *series)
{
    char bytes[32];
    sbp_table_cell(table, "%s", sbp_collective_name(of->kind));
    sbp_table_cell(table, "%d x %d", of->nodes, of->ranks_per_node);
    sbp_table_cell(table, "%d", of->groups);
    sbp_table_cell(table, "%d", series->count);
    sbp_table_cell(table, "%d", series->slower);
    sbp_table_cell(table, "%d", series->faster);
    sbp_table_cell(table, "%.2f", sbp_median(series->ratio, series->count));
    sbp_table_cell(table, "%.2f at %s", series->worst_ratio,
                   sbp_format_bytes(series->worst_bytes, bytes));
}

/* Adds a row for each series of sizes, which stand together; *only_newer counts points that the
 * older calibration lacks. */
static void fill_table(const struct side *older, const struct side *newer, double *ratio,
                       struct sbp_table *table, int *compared, int *only_newer)
{
    const struct sbp_measured *measured = &newer->measured;
    for (int first = newer->first, end; first < measured->count; first = end) {
        const struct sbp_measured_point *of = &measured->point[first];
        struct series series = {.ratio = ratio};
        for (end = first;
             end < measured->count && sbp_points_same_series(of, &measured->point[end]); end++) {
            const struct sbp_measured_point *point = find_point(older, &measured->point[end]);
            if (point == NULL)
                ++*only_newer;
            else
                add_pair(&series, point, &measured->point[end]);
        }
        *compared += series.count;
        if (series.count > 0)
            add_series(table, of, &series);
    }
}

static enum sbp_status print_points(const struct side *older, const struct side *newer, FILE *out)
{
    static const char *const titles[] = {"collective", "ranks",  "groups a node", "sizes",
                                         "slower",     "faster", "new/old",       "farthest"};
    int compared = 0, only_newer = 0;
    double *ratio = calloc((size_t)newer->measured.count + 1, sizeof *ratio);
    if (ratio == NULL)
        return SBP_E_MEMORY;
    struct sbp_table table;
    sbp_table_init(&table, 8, titles);
    fill_table(older, newer, ratio, &table, &compared, &only_newer);
    free(ratio);
    const int only_older = older->measured.count - older->first - compared;
    enum sbp_status status = compared > 0 ? sbp_table_print(&table, out, 2) : SBP_OK;
    sbp_table_free(&table);
    if (status == SBP_OK && (compared == 0 || only_older > 0 || only_newer > 0) &&
        fprintf(out, "%d collectives in both, %d only in the older, %d only in the newer\n",
                compared, only_older, only_newer) < 0)
        status = SBP_E_IO;
    return status;
}

/* --- compute --- */

/* The median of new time / old time over the products that both have; 0: none. */
static double product_ratio(const struct sbp_compute_times *older,
                            const struct sbp_compute_times *newer, int *count)
{
    double ratio[SBP_MAX_GEMMS];
    *count = 0;
    for (int i = 0; i < newer->gemm_count; i++)
        for (int j = 0; j < older->gemm_count; j++) {
            const struct sbp_gemm_point *a = &newer->gemm[i], *b = &older->gemm[j];
            const struct sbp_samples *at = &newer->samples[i + 1], *was = &older->samples[j + 1];
            if (sbp_cell_product_same(a, b) && at->count > 0 && was->count > 0)
                ratio[(*count)++] = at->median_s / was->median_s;
        }
    return *count == 0 ? 0 : sbp_median(ratio, *count);
}

/* The same over cells of attention. */
static double attention_ratio(const struct sbp_compute_times *older,
                              const struct sbp_compute_times *newer, int *count)
{
    double ratio[SBP_MAX_ATTENTION];
    *count = 0;
    for (int i = 0; i < newer->attention_count; i++)
        for (int j = 0; j < older->attention_count; j++) {
            const struct sbp_cell at = {.attention = newer->attention[i]},
                                  was = {.attention = older->attention[j]};
            if (sbp_cell_same(&at, &was))
                ratio[(*count)++] =
                    newer->attention_samples[i].median_s / older->attention_samples[j].median_s;
        }
    return *count == 0 ? 0 : sbp_median(ratio, *count);
}

/* The same over products of experts. */
static double grouped_ratio(const struct sbp_compute_times *older,
                            const struct sbp_compute_times *newer, int *count)
{
    double ratio[SBP_MAX_GROUPED];
    *count = 0;
    for (int i = 0; i < newer->grouped_count; i++)
        for (int j = 0; j < older->grouped_count; j++)
            if (sbp_points_same_grouped(&newer->grouped[i], &older->grouped[j]))
                ratio[(*count)++] =
                    newer->grouped_samples[i].median_s / older->grouped_samples[j].median_s;
    return *count == 0 ? 0 : sbp_median(ratio, *count);
}

/* The same over rows in another order. */
static double rows_ratio(const struct sbp_compute_times *older,
                         const struct sbp_compute_times *newer, int *count)
{
    double ratio[SBP_MAX_ROWS];
    *count = 0;
    for (int i = 0; i < newer->rows_count; i++)
        for (int j = 0; j < older->rows_count; j++)
            if (sbp_cell_same(&newer->rows[i], &older->rows[j]))
                ratio[(*count)++] =
                    newer->rows_samples[i].median_s / older->rows_samples[j].median_s;
    return *count == 0 ? 0 : sbp_median(ratio, *count);
}

static bool print_middle(const char *what, double ratio, int count, FILE *out)
{
    return count == 0 ||
           fprintf(out, "%s: new/old %.2f in the middle of %d\n", what, ratio, count) >= 0;
}

/* A product under another load is another measurement. */
static bool print_loaded(const struct sbp_compute_times *older,
                         const struct sbp_compute_times *newer, FILE *out)
{
    return !(newer->loaded_s > 0) || !(older->loaded_s > 0) || newer->load_s != older->load_s ||
           !sbp_cell_product_same(&newer->loaded, &older->loaded) ||
           fprintf(out, "product under load: new/old %.2f\n", newer->loaded_s / older->loaded_s) >=
               0;
}

/* Ratios of what collectives add to products mislead, since most of them add nearly nothing. */
static bool print_hidden(const struct sbp_compute_times *older,
                         const struct sbp_compute_times *newer, FILE *out)
{
    double was[SBP_MAX_BESIDE], is[SBP_MAX_BESIDE];
    int count = 0;
    for (int i = 0; i < newer->beside_count; i++)
        for (int j = 0; j < older->beside_count; j++) {
            const double to = sbp_points_added_share(newer, i);
            const double from = sbp_points_added_share(older, j);
            if (to < 0 || from < 0 || !sbp_cell_same(&newer->beside[i], &older->beside[j]))
                continue;
            was[count] = 100 * fmax(0, 1 - from);
            is[count++] = 100 * fmax(0, 1 - to);
        }
    return count == 0 || fprintf(out, "behind products hide %.0f -> %.0f %% in the middle of %d\n",
                                 sbp_median(was, count), sbp_median(is, count), count) >= 0;
}

static bool print_compute(const struct sbp_compute_times *older,
                          const struct sbp_compute_times *newer, FILE *out)
{
    int products, experts, shapes, rows;
    const double ratio = product_ratio(older, newer, &products);
    const double grouped = grouped_ratio(older, newer, &experts);
    bool done = print_middle("matrix products", ratio, products, out) &&
                print_middle("products of experts", grouped, experts, out);
    if (done && newer->samples[0].count > 0 && older->samples[0].count > 0 &&
        newer->copy_bytes == older->copy_bytes)
        done = fprintf(out, "copy: new/old %.2f\n",
                       newer->samples[0].median_s / older->samples[0].median_s) >= 0;
    if (done && newer->stream_s > 0 && older->stream_s > 0 &&
        newer->stream_bytes == older->stream_bytes)
        done = fprintf(out, "element-wise sum: new/old %.2f\n",
                       newer->stream_s / older->stream_s) >= 0;
    if (done && newer->gelu_s > 0 && older->gelu_s > 0 && newer->gelu_bytes == older->gelu_bytes)
        done = fprintf(out, "GELU: new/old %.2f\n", newer->gelu_s / older->gelu_s) >= 0;
    if (done && newer->link_s > 0 && older->link_s > 0 && newer->link_bytes == older->link_bytes)
        done =
            fprintf(out, "copies to the host: new/old %.2f\n", newer->link_s / older->link_s) >= 0;
    const double attention = attention_ratio(older, newer, &shapes);
    const double dispatch = rows_ratio(older, newer, &rows);
    if (done && newer->host_s > 0 && older->host_s > 0)
        done =
            fprintf(out, "launch by the host: new/old %.2f\n", newer->host_s / older->host_s) >= 0;
    return done && print_middle("attention", attention, shapes, out) &&
           print_middle("rows by expert", dispatch, rows, out) && print_loaded(older, newer, out) &&
           print_hidden(older, newer, out);
}

enum sbp_status sbp_compare_print(const struct sbp_record *older, const struct sbp_record *newer,
                                  FILE *out, struct sbp_diag *diag)
{
    struct side was = {0}, is = {0};
    enum sbp_status status = open_side(older, &was, diag);
    if (status == SBP_OK)
        status = open_side(newer, &is, diag);
    if (status == SBP_OK)
        status = sbp_text_print_line(out, "changed from %s to %s:\n", older->path, newer->path) &&
                         print_origins(was.origin, is.origin, out)
                     ? print_points(&was, &is, out)
                     : SBP_E_IO;
    if (status == SBP_OK && !print_compute(&was.compute, &is.compute, out))
        status = SBP_E_IO;
    sbp_points_free(&is.measured);
    sbp_points_free(&was.measured);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", sbp_status_text(status));
}

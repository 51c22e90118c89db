#include "calib/samples/points.h"

#include <math.h>
#include <stdlib.h>

#include "base/math/stats.h"
#include "calib/samples/sample_file.h"

#define LEAST_RUNS 3 /* of which one can be called bad */

const char *const sbp_points_statistics[] = {"median", "least", NULL};

void sbp_points_free(struct sbp_measured *measured)
{
    sbp_arena_free(&measured->arena);
    *measured = (struct sbp_measured){.count = 0};
}

bool sbp_points_same_series(const struct sbp_measured_point *a, const struct sbp_measured_point *b)
{
    return a->kind == b->kind && a->nodes == b->nodes && a->ranks_per_node == b->ranks_per_node &&
           a->groups == b->groups;
}

/* --- results of a cell side by side --- */

struct sorted {
    const struct sbp_record *record;
    int count;
    const struct sbp_result **result; /* (count), by chain, cell, run */
};

static int chain_of(const struct sbp_record *record, const struct sbp_result *result)
{
    return record->session[result->session].chain;
}

/* qsort moves the record with each result, so that comparing needs no global. */
struct place {
    const struct sbp_record *record;
    const struct sbp_result *result;
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    const int chain = chain_of(a->record, a->result) - chain_of(b->record, b->result);
    if (chain != 0)
        return chain;
    const int cell = sbp_cell_compare(&a->result->cell, &b->result->cell);
    if (cell != 0)
        return cell;
    if (a->result->run != b->result->run)
        return a->result->run - b->result->run;
    return (a->result > b->result) - (a->result < b->result);
}

static bool sort_results(const struct sbp_record *record, struct sbp_arena *arena,
                         struct sorted *sorted)
{
    const size_t count = (size_t)record->result_count;
    struct place *places = SBP_NEW(arena, struct place, count);
    sorted->record = record;
    sorted->count = record->result_count;
    sorted->result = SBP_NEW(arena, const struct sbp_result *, count);
    if (places == NULL || sorted->result == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        places[i] = (struct place){record, &record->result[i]};
    qsort(places, count, sizeof *places, compare_places);
    for (size_t i = 0; i < count; i++)
        sorted->result[i] = places[i].result;
    return true;
}

/* The end of the results of the same cell and chain that begin at first. */
static int end_of_cell(const struct sorted *sorted, int first)
{
    int end = first + 1;
    while (end < sorted->count &&
           chain_of(sorted->record, sorted->result[end]) ==
               chain_of(sorted->record, sorted->result[first]) &&
           sbp_cell_same(&sorted->result[end]->cell, &sorted->result[first]->cell))
        end++;
    return end;
}

static bool is_timed(const struct sbp_result *result)
{
    return result->cell.work == SBP_CELL_COLLECTIVE && sbp_sample_file_is_possible(result);
}

/* --- runs --- */

static struct sbp_sample_run *find_run(const struct sbp_sample_runs *runs, int chain, int run)
{
    for (int i = 0; i < runs->count; i++)
        if (runs->run[i].chain == chain && runs->run[i].run == run)
            return &runs->run[i];
    return NULL;
}

static bool list_runs(const struct sbp_record *record, struct sbp_arena *arena,
                      struct sbp_sample_runs *runs)
{
    runs->run =
        SBP_NEW(arena, struct sbp_sample_run, record->result_count); /* of one each at most */
    if (runs->run == NULL)
        return false;
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_result *result = &record->result[i];
        if (!is_timed(result))
            continue;
        struct sbp_sample_run *run = find_run(runs, chain_of(record, result), result->run);
        if (run == NULL) {
            run = &runs->run[runs->count++];
            *run = (struct sbp_sample_run){
                .chain = chain_of(record, result), .run = result->run, .slowdown = 1};
        }
        run->cells++;
    }
    return true;
}

/* The least is one that a machine can take: a coarse clock gives 0 s now and then. */
static double time_of(const struct sbp_result *result, enum sbp_statistic statistic)
{
    const double possible_s = sbp_cell_least_s(&result->cell);
    double least_s = result->median_s;
    for (int i = 0; i < result->count && statistic == SBP_OF_LEAST; i++)
        if (result->time_s[i] >= possible_s)
            least_s = fmin(least_s, result->time_s[i]);
    return least_s;
}

/* Lists the times of a cell's results first .. end - 1, of good runs or of all; returns how many.
 */
static int list_times(const struct sorted *sorted, const struct sbp_sample_runs *runs, int first,
                      int end, bool all, enum sbp_statistic statistic, double *time_s)
{
    int count = 0;
    for (int i = first; i < end; i++) {
        const struct sbp_result *result = sorted->result[i];
        const struct sbp_sample_run *run =
            find_run(runs, chain_of(sorted->record, result), result->run);
        if (sbp_sample_file_is_possible(result) && (all || run == NULL || !run->bad))
            time_s[count++] = time_of(result, statistic);
    }
    return count;
}

/* The time by which a run is judged: the middle one of three and more, the faster one of two. */
static double reference_of(double *time_s, int count)
{
    return count >= LEAST_RUNS ? sbp_median(time_s, count) : fmin(time_s[0], time_s[count - 1]);
}

/* Lists, for each cell of one run, its time over that of all runs; *can_tell: most of the cells
 * have three runs or more. */
static int list_ratios(const struct sorted *sorted, const struct sbp_sample_runs *runs,
                       const struct sbp_sample_run *run, double *time_s, double *ratio,
                       bool *can_tell)
{
    int count = 0, told = 0;
    for (int first = 0, end; first < sorted->count; first = end) {
        end = end_of_cell(sorted, first);
        const struct sbp_result *own = NULL;
        for (int i = first; i < end; i++)
            if (is_timed(sorted->result[i]) && sorted->result[i]->run == run->run &&
                chain_of(sorted->record, sorted->result[i]) == run->chain)
                own = sorted->result[i];
        if (own == NULL)
            continue;
        const int times = list_times(sorted, runs, first, end, true, SBP_OF_MEDIANS, time_s);
        if (times < 2)
            continue;
        told += times >= LEAST_RUNS;
        ratio[count++] = own->median_s / reference_of(time_s, times);
    }
    *can_tell = told > 0 && 2 * told >= count;
    return count;
}

static void judge_runs(const struct sorted *sorted, struct sbp_sample_runs *runs, double *time_s,
                       double *ratio)
{
    for (int i = 0; i < runs->count; i++) {
        struct sbp_sample_run *run = &runs->run[i];
        bool can_tell;
        run->compared = list_ratios(sorted, runs, run, time_s, ratio, &can_tell);
        if (run->compared == 0)
            continue;
        run->slowdown = sbp_median(ratio, run->compared);
        run->bad = can_tell && run->slowdown >= SBP_BAD_RUN;
    }
}

/* --- points --- */

/* Sums up times of runs into a point: its time, and as spread half their range, or half the
 * interval of the only one. */
static void sum_up(const struct sorted *sorted, int first, int end, enum sbp_statistic statistic,
                   double *time_s, int count, struct sbp_measured_point *point)
{
    point->time_s = sbp_median(time_s, count); /* sorts */
    if (statistic == SBP_OF_LEAST)
        point->time_s = time_s[0];
    double range_s = time_s[count - 1] - time_s[0];
    for (int i = first; i < end && count == 1; i++)
        if (time_of(sorted->result[i], statistic) == point->time_s)
            range_s = sorted->result[i]->high_s - sorted->result[i]->low_s;
    point->spread = range_s / 2 / point->time_s;
}

static void add_points(const struct sorted *sorted, const struct sbp_sample_runs *runs,
                       enum sbp_statistic statistic, double *time_s, struct sbp_measured *measured)
{
    for (int first = 0, end; first < sorted->count; first = end) {
        end = end_of_cell(sorted, first);
        const struct sbp_cell *cell = &sorted->result[first]->cell;
        if (cell->work != SBP_CELL_COLLECTIVE)
            continue;
        int count = list_times(sorted, runs, first, end, false, statistic, time_s);
        if (count == 0) /* only bad runs have it: better than nothing */
            count = list_times(sorted, runs, first, end, true, statistic, time_s);
        if (count == 0)
            continue;
        struct sbp_measured_point *point = &measured->point[measured->count++];
        *point =
            (struct sbp_measured_point){.kind = cell->kind,
                                        .nodes = cell->nodes,
                                        .ranks_per_node = cell->ranks_per_node,
                                        .groups = cell->groups,
                                        .bytes = (double)cell->bytes,
                                        .line = sorted->result[first]->line,
                                        .source = chain_of(sorted->record, sorted->result[first])};
        sum_up(sorted, first, end, statistic, time_s, count, point);
    }
}

static int compare_cells(const void *left, const void *right)
{
    const struct sbp_measured_point *a = *(struct sbp_measured_point *const *)left;
    const struct sbp_measured_point *b = *(struct sbp_measured_point *const *)right;
    const double differences[] = {(double)a->kind - (double)b->kind,
                                  (double)a->nodes - b->nodes,
                                  (double)a->ranks_per_node - b->ranks_per_node,
                                  (double)a->groups - b->groups,
                                  a->bytes - b->bytes,
                                  a->time_s - b->time_s};
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        if (differences[i] != 0)
            return differences[i] > 0 ? 1 : -1;
    return 0;
}

/* With SBP_OF_LEAST all chains of sessions give a cell the same time, the least of them. */
static bool share_least(struct sbp_measured *measured)
{
    struct sbp_measured_point **point =
        SBP_NEW(&measured->arena, struct sbp_measured_point *, measured->count);
    if (point == NULL)
        return false;
    for (int i = 0; i < measured->count; i++)
        point[i] = &measured->point[i];
    qsort(point, (size_t)measured->count, sizeof *point, compare_cells);
    for (int i = 1; i < measured->count; i++)
        if (sbp_points_same_series(point[i], point[i - 1]) &&
            point[i]->bytes == point[i - 1]->bytes)
            point[i]->time_s = point[i - 1]->time_s;
    return true;
}

static const char *word_or_null(struct sbp_arena *arena, const char *word, bool *failed)
{
    if (word[0] == '\0')
        return NULL;
    const char *copy = sbp_arena_strdup(arena, word);
    *failed = *failed || copy == NULL;
    return copy;
}

static bool list_sources(const struct sbp_record *record, struct sbp_measured *measured)
{
    bool failed = false;
    const int chains =
        record->session_count == 0 ? 0 : record->session[record->session_count - 1].chain + 1;
    measured->source = SBP_NEW(&measured->arena, struct sbp_measured_source, chains);
    if (measured->source == NULL)
        return false;
    for (int i = 0; i < record->session_count; i++) {
        const struct sbp_session *session = &record->session[i];
        struct sbp_measured_source *source = &measured->source[session->chain];
        if (session->chain < measured->source_count)
            continue; /* the first of the chain speaks for it */
        measured->source_count++;
        source->name = word_or_null(&measured->arena, record->path, &failed);
        source->library = word_or_null(&measured->arena, session->origin.library, &failed);
        source->date = word_or_null(&measured->arena, session->origin.date, &failed);
        source->table = session->chain;
    }
    return !failed;
}

enum sbp_status sbp_points(const struct sbp_record *record, enum sbp_statistic statistic,
                           struct sbp_measured *measured, struct sbp_sample_runs *runs,
                           struct sbp_diag *diag)
{
    *measured = (struct sbp_measured){.count = 0};
    *runs = (struct sbp_sample_runs){.count = 0};
    const size_t count = (size_t)record->result_count;
    struct sorted sorted;
    double *time_s = SBP_NEW(&measured->arena, double, count);
    double *ratio = SBP_NEW(&measured->arena, double, count);
    measured->point = SBP_NEW(&measured->arena, struct sbp_measured_point, count);
    bool done = time_s != NULL && ratio != NULL && measured->point != NULL &&
                sort_results(record, &measured->arena, &sorted) &&
                list_runs(record, &measured->arena, runs) && list_sources(record, measured);
    if (done) {
        judge_runs(&sorted, runs, time_s, ratio);
        add_points(&sorted, runs, statistic, time_s, measured);
        done = statistic != SBP_OF_LEAST || share_least(measured);
    }
    if (done)
        return SBP_OK;
    sbp_points_free(measured);
    *runs = (struct sbp_sample_runs){.count = 0};
    return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", record->path);
}

/* --- compute --- */

static struct sbp_samples *find_product(const struct sbp_cell *cell,
                                        struct sbp_compute_times *times)
{
    const struct sbp_gemm_point product = sbp_cell_product(cell);
    for (int i = 0; i < times->gemm_count; i++)
        if (sbp_cell_product_same(&times->gemm[i], &product))
            return &times->samples[i + 1];
    if (times->gemm_count == SBP_MAX_GEMMS)
        return NULL;
    times->gemm[times->gemm_count] = product;
    return &times->samples[++times->gemm_count];
}

/* Copies of different sizes, as of sessions with more ranks and fewer, are not mixed, nor are
 * streams; the last size counts. */
static struct sbp_samples *find_bytes(const struct sbp_cell *cell, int64_t *bytes,
                                      struct sbp_samples *samples)
{
    if (*bytes != cell->bytes)
        *samples = (struct sbp_samples){0};
    *bytes = cell->bytes;
    return samples;
}

static struct sbp_samples *find_attention(const struct sbp_cell *cell,
                                          struct sbp_compute_times *times)
{
    const struct sbp_cell of = {.attention = cell->attention};
    for (int i = 0; i < times->attention_count; i++) {
        const struct sbp_cell at = {.attention = times->attention[i]};
        if (sbp_cell_same(&at, &of))
            return &times->attention_samples[i];
    }
    if (times->attention_count == SBP_MAX_ATTENTION)
        return NULL;
    times->attention[times->attention_count] = cell->attention;
    return &times->attention_samples[times->attention_count++];
}

bool sbp_points_same_grouped(const struct sbp_grouped_point *a, const struct sbp_grouped_point *b)
{
    return a->experts == b->experts && sbp_cell_product_same(&a->product, &b->product);
}

static struct sbp_samples *find_grouped(const struct sbp_cell *cell,
                                        struct sbp_compute_times *times)
{
    const struct sbp_grouped_point of = {sbp_cell_product(cell), cell->experts};
    for (int i = 0; i < times->grouped_count; i++)
        if (sbp_points_same_grouped(&times->grouped[i], &of))
            return &times->grouped_samples[i];
    if (times->grouped_count == SBP_MAX_GROUPED)
        return NULL;
    times->grouped[times->grouped_count] = of;
    return &times->grouped_samples[times->grouped_count++];
}

/* Finds the samples of a row's size; the last size of all rows counts, as with copies. */
static struct sbp_samples *find_rows(const struct sbp_cell *cell, struct sbp_compute_times *times)
{
    int i = 0;
    while (i < times->rows_count && times->rows[i].row_bytes != cell->row_bytes)
        i++;
    if (i == SBP_MAX_ROWS)
        return NULL;
    if (i == times->rows_count)
        times->rows[times->rows_count++] = *cell;
    return find_bytes(cell, &times->rows[i].bytes, &times->rows_samples[i]);
}

static struct sbp_samples *find_beside(const struct sbp_cell *cell, struct sbp_compute_times *times)
{
    for (int i = 0; i < times->beside_count; i++)
        if (sbp_cell_same(&times->beside[i], cell))
            return &times->beside_samples[i];
    if (times->beside_count == SBP_MAX_BESIDE)
        return NULL;
    times->beside[times->beside_count] = *cell;
    return &times->beside_samples[times->beside_count++];
}

double sbp_points_added_share(const struct sbp_compute_times *times, int beside)
{
    struct sbp_cell alone = times->beside[beside];
    if (sbp_cell_is_alone(&alone))
        return -1;
    alone.type = (enum sbp_type)0;
    alone.m = alone.n = alone.k = 0;
    for (int i = 0; i < times->beside_count; i++)
        if (sbp_cell_same(&times->beside[i], &alone))
            return times->beside_samples[beside].median_s / times->beside_samples[i].median_s;
    return -1;
}

/* Finds the samples of a product under load: shorter loads do not count beside longer ones. */
static struct sbp_samples *find_loaded(const struct sbp_cell *cell, struct sbp_compute_times *times,
                                       struct sbp_samples *samples)
{
    if (cell->load_s < times->load_s)
        return NULL;
    if (cell->load_s > times->load_s)
        *samples = (struct sbp_samples){0};
    times->load_s = cell->load_s;
    times->loaded = sbp_cell_product(cell);
    return samples;
}

double sbp_points_product_s(const struct sbp_compute_times *times,
                            const struct sbp_gemm_point *product)
{
    for (int i = 0; i < times->gemm_count; i++)
        if (sbp_cell_product_same(&times->gemm[i], product))
            return times->samples[i + 1].count > 0 ? times->samples[i + 1].median_s : 0;
    return 0;
}

void sbp_points_compute(const struct sbp_record *record, const struct sbp_sample_runs *runs,
                        struct sbp_compute_times *times)
{
    struct sbp_samples launch = {0}, loaded = {0}, stream = {0}, gelu = {0}, host = {0};
    struct sbp_samples link = {0};
    *times = (struct sbp_compute_times){0};
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_result *result = &record->result[i];
        const struct sbp_sample_run *run = find_run(runs, chain_of(record, result), result->run);
        struct sbp_samples *samples = NULL;
        if (!sbp_sample_file_is_possible(result) || (run != NULL && run->bad))
            continue;
        if (result->cell.work == SBP_CELL_COPY) {
            samples = find_bytes(&result->cell, &times->copy_bytes, &times->samples[0]);
        } else if (result->cell.work == SBP_CELL_GEMM) {
            samples = find_product(&result->cell, times);
        } else if (result->cell.work == SBP_CELL_LAUNCH) {
            samples = &launch;
        } else if (result->cell.work == SBP_CELL_SUSTAINED) {
            samples = find_loaded(&result->cell, times, &loaded);
        } else if (result->cell.work == SBP_CELL_STREAM) {
            samples = find_bytes(&result->cell, &times->stream_bytes, &stream);
        } else if (result->cell.work == SBP_CELL_GELU) {
            samples = find_bytes(&result->cell, &times->gelu_bytes, &gelu);
        } else if (result->cell.work == SBP_CELL_ATTENTION) {
            samples = find_attention(&result->cell, times);
        } else if (result->cell.work == SBP_CELL_GROUPED) {
            samples = find_grouped(&result->cell, times);
        } else if (result->cell.work == SBP_CELL_ROWS) {
            samples = find_rows(&result->cell, times);
        } else if (result->cell.work == SBP_CELL_BESIDE) {
            samples = find_beside(&result->cell, times);
        } else if (result->cell.work == SBP_CELL_HOST) {
            samples = &host;
        } else if (result->cell.work == SBP_CELL_LINK) {
            samples = find_bytes(&result->cell, &times->link_bytes, &link);
        }
        if (samples != NULL)
            sbp_samples_add(samples, &result->median_s, 1);
    }
    times->launch_s = launch.count > 0 ? launch.median_s : 0;
    times->loaded_s = loaded.count > 0 ? loaded.median_s : 0;
    times->stream_s = stream.count > 0 ? stream.median_s : 0;
    times->gelu_s = gelu.count > 0 ? gelu.median_s : 0;
    times->host_s = host.count > 0 ? host.median_s : 0;
    times->link_s = link.count > 0 ? link.median_s : 0;
}

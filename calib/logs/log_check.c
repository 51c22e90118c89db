/* Judges a run as it stands in a file: makes points of its rows, or notes why not. */
#include <math.h>
#include <string.h>

#include "calib/logs/log_parts_priv.h"

#define FIRST_USE  1.5  /* out-of-place / in-place, from which it is the first use of a protocol */
#define MOST_SIZES 4096 /* that a head announces */
#define ROUNDING   2e-3 /* of an average, beyond what the digits explain */
#define MOST_US    1e15 /* of a time: 30 years */

struct check {
    struct sbp_logs *logs;
    int file, index; /* of the table */
    const struct sbp_log_run *run;
    const struct sbp_log_scan *scan;
    const struct sbp_log_options *options;
    const struct sbp_log_collective *collective;
};

static struct sbp_log_table *table_of(const struct check *is)
{
    return &is->logs->table[is->index];
}

#define NOTE(is, line_of, reason_of, ...)                                                          \
    sbp_log_add_note((is)->logs, (is)->file, (is)->index, (line_of), (reason_of), __VA_ARGS__)

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

/* --- how many rows there should be --- */

/* The number of sizes that the settings announce; 0: they announce none. */
static int announced_sizes(const struct sbp_log_run *run)
{
    const bool grows = run->is_factor ? run->step >= 2 : run->step >= 1;
    int count = 0;
    if (!(run->least_bytes > 0) || run->most_bytes < run->least_bytes || !grows)
        return 0;
    for (double size = run->least_bytes; size <= run->most_bytes && count < MOST_SIZES; count++)
        size = run->is_factor ? size * run->step : size + run->step;
    return count;
}

/* Finds the row behind a step between sizes that is far wider than the narrowest, both as a
 * difference and as a factor: rows before it were taken out. NULL: there is none. */
static const struct sbp_log_row *find_gap(const struct sbp_log_run *run)
{
    double least_ratio = INFINITY, least_step = INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 1; i < run->row_count; i++) {
            const double before = run->row[i - 1].size_bytes, size = run->row[i].size_bytes;
            if (!(before > 0) || size <= before)
                continue;
            if (pass == 1 && log(size / before) > 1.5 * log(least_ratio) &&
                size - before > 1.5 * least_step)
                return &run->row[i];
            least_ratio = fmin(least_ratio, size / before);
            least_step = fmin(least_step, size - before);
        }
    return NULL;
}

/* --- the average --- */

/* Averages the bus bandwidths of all rows and halves, as the footer does; slack: how far it may be
 * off for their digits. */
static struct sbp_log_number average_of(const struct sbp_log_run *run)
{
    struct sbp_log_number sum = {0, 0};
    int count = 0;
    for (int i = 0; i < run->row_count; i++)
        for (int h = 0; h < SBP_LOG_HALVES; h++)
            if (run->row[i].half[h].is_there) {
                sum.value += run->row[i].half[h].busbw.value;
                sum.slack += run->row[i].half[h].busbw.slack;
                count++;
            }
    return count == 0 ? sum : (struct sbp_log_number){sum.value / count, sum.slack / count};
}

static enum sbp_status check_average(const struct check *is, int announced)
{
    const struct sbp_log_run *run = is->run;
    const struct sbp_log_number own = average_of(run);
    const double apart = fabs(own.value - run->average.value);
    const bool is_short = run->row_count < announced;
    if (apart <= own.slack + run->average.slack + ROUNDING * fabs(own.value))
        return SBP_OK;
    if (announced > 0 && run->row_count > announced)
        return NOTE(is, run->average_line, SBP_LOG_AVERAGE_DIFFERS,
                    "%d rows stand where %d sizes were asked for, and their average bus bandwidth "
                    "is %.6g GB/s, not %.6g: they are of several runs; take each run's log as it "
                    "printed it",
                    run->row_count, announced, own.value, run->average.value);
    if (announced > 0 && !is_short && run->broken_rows == 0 && run->gap_line == 0 &&
        find_gap(run) == NULL)
        return NOTE(is, run->average_line, SBP_LOG_AVERAGE_DIFFERS,
                    "the average bus bandwidth is said to be %.6g GB/s, but that of the rows is "
                    "%.6g, although every size is there: numbers were changed; take the log as "
                    "the run printed it",
                    run->average.value, own.value);
    if (is_short)
        return NOTE(is, run->average_line, SBP_LOG_SHORTENED,
                    "%d of %d sizes are there; the average bus bandwidth, %.6g GB/s, is not that "
                    "of these rows, %.6g: rows were taken out",
                    run->row_count, announced, run->average.value, own.value);
    return NOTE(is, run->average_line, SBP_LOG_SHORTENED,
                "the average bus bandwidth, %.6g GB/s, is not that of the rows, %.6g: rows were "
                "taken out",
                run->average.value, own.value);
}

/* Looks for missing or mixed rows without an average: OSU's sizes rise by one factor. */
static enum sbp_status check_sizes(const struct check *is)
{
    const struct sbp_log_run *run = is->run;
    const struct sbp_log_row *gap = find_gap(run);
    for (int i = 1; i < run->row_count; i++)
        if (run->row[i].size_bytes <= run->row[i - 1].size_bytes)
            return NOTE(is, run->row[i].line, SBP_LOG_SIZES_FALL,
                        "a row of %.0f bytes stands behind one of %.0f: these are rows of several "
                        "runs; give each of them its own head, or a file of its own",
                        run->row[i].size_bytes, run->row[i - 1].size_bytes);
    if (gap == NULL)
        return SBP_OK;
    return NOTE(is, gap->line, SBP_LOG_SHORTENED,
                "sizes are missing between %.0f and %.0f bytes: rows were taken out or lost",
                gap[-1].size_bytes, gap->size_bytes);
}

/* Checks that all of the run is there. */
static enum sbp_status check_end(const struct check *is)
{
    const struct sbp_log_run *run = is->run;
    const int announced = announced_sizes(run);
    if (run->is_bare)
        return run->tool == SBP_LOG_OSU ? check_sizes(is) : SBP_OK;
    if (run->average_line > 0)
        return check_average(is, announced);
    if (run->row_count >= announced)
        return NOTE(is, run->head_line, SBP_LOG_NO_AVERAGE,
                    "the table has no average at its end, by which missing rows would show");
    const int last = run->row_count == 0 ? run->line : run->row[run->row_count - 1].line;
    if (run->before.line > 0)
        return NOTE(is, run->before.line, SBP_LOG_FAILED_RUN,
                    "the run failed after %d of %d sizes: \"%s\"; %s", run->row_count, announced,
                    run->before.text, run->before.advice);
    return NOTE(is, last, SBP_LOG_CUT_OFF,
                "the table ends after %d of %d sizes, without an average: the run or the file was "
                "cut off",
                run->row_count, announced);
}

/* --- before the rows are looked at --- */

static enum sbp_status check_run(const struct check *is)
{
    const struct sbp_log_run *run = is->run;
    const struct sbp_log_failure *failure =
        run->failure.line > 0 || run->row_count > 0 ? &run->failure : &run->before;
    if (failure->line > 0)
        return NOTE(is, failure->line, SBP_LOG_FAILED_RUN, "the run failed: \"%s\"; %s",
                    failure->text, failure->advice);
    if (run->row_count == 0 && run->broken_rows == 0)
        return NOTE(is, run->line, SBP_LOG_NO_ROWS,
                    "the run ended before its first row, and no line says why; run it again");
    if (run->row_count == 0)
        return NOTE(is, run->broken_line, SBP_LOG_NO_ROWS,
                    "none of its %d row%s can be read: they stop short, or hold what is no number",
                    run->broken_rows, plural(run->broken_rows));
    if (run->behind_line > 0)
        return NOTE(is, run->line, SBP_LOG_ROWS_BEHIND,
                    "rows stand behind the end of a table in line %d: they are of another run; "
                    "give them its list of devices and its head, or a file of their own",
                    run->behind_line);
    if (run->not_priced != NULL)
        return NOTE(is, run->line, SBP_LOG_NOT_PRICED, "%s: %s", run->title, run->not_priced);
    if (run->is_cpu_time)
        return NOTE(is, run->head_line, SBP_LOG_CPU_TIME,
                    "the times are those of the host that starts the collectives, not theirs: run "
                    "without -C (--report_cputime)");
    return SBP_OK;
}

static enum sbp_status check_values(const struct check *is)
{
    const struct sbp_log_run *run = is->run;
    for (int i = 0; i < run->row_count; i++)
        for (int h = 0; h < SBP_LOG_HALVES; h++)
            if (run->row[i].half[h].is_there && run->row[i].half[h].is_wrong)
                return NOTE(is, run->row[i].line, SBP_LOG_WRONG_VALUES,
                            "values were wrong after %.0f bytes: what was timed is not the "
                            "collective; repair the machine and run again",
                            run->row[i].size_bytes);
    if (run->wrong_line > 0)
        return NOTE(is, run->wrong_line, SBP_LOG_WRONG_VALUES,
                    "%.0f results were out of bounds: what was timed is not the collective; repair "
                    "the machine and run again",
                    run->wrong);
    return SBP_OK;
}

/* --- rows --- */

/* The number of rows of one fault, and the line of the first. */
struct tally {
    int count, line;
};

struct tallies {
    struct tally zero, broken, impossible, first_use, apart;
};

static void tally(struct tally *of, int line)
{
    of->line = of->count++ == 0 ? line : of->line;
}

/* Takes the time of a row; log.h says which half counts. */
static void choose_time(const struct sbp_log_row *row, struct sbp_measured_point *point,
                        struct tallies *tallies)
{
    const struct sbp_log_half *out = &row->half[SBP_LOG_OUT_OF_PLACE];
    const struct sbp_log_half *in = &row->half[SBP_LOG_IN_PLACE];
    const double out_s = out->time_us.value * 1e-6, in_s = in->time_us.value * 1e-6;
    if (!out->is_there || !in->is_there) {
        point->time_s = out->is_there ? out_s : in_s;
        return;
    }
    point->first_use = out_s > FIRST_USE * in_s;
    const bool is_other = out->is_checked && !in->is_checked;
    point->time_s = point->first_use ? in_s : is_other ? out_s : (out_s + in_s) / 2;
    point->spread = fabs(out_s - in_s) / point->time_s;
    if (point->first_use)
        tally(&tallies->first_use, row->line);
    else if (!is_other && in_s > FIRST_USE * out_s)
        tally(&tallies->apart, row->line);
}

static bool has_times(const struct sbp_log_row *row)
{
    int there = 0;
    for (int h = 0; h < SBP_LOG_HALVES; h++) {
        there += row->half[h].is_there;
        if (row->half[h].is_there &&
            !(row->half[h].time_us.value > 0 && row->half[h].time_us.value < MOST_US))
            return false;
    }
    return there > 0;
}

/* Whether a half took less time than the collective can. */
static bool is_impossible(const struct sbp_log_row *row, double least_s)
{
    for (int h = 0; h < SBP_LOG_HALVES; h++)
        if (row->half[h].is_there && row->half[h].time_us.value * 1e-6 < least_s)
            return true;
    return false;
}

static void add_point(struct sbp_log_table *table, const struct sbp_measured_point *point)
{
    table->least_bytes = table->kept == 0 ? point->bytes : fmin(table->least_bytes, point->bytes);
    table->most_bytes = fmax(table->most_bytes, point->bytes);
    table->first_uses += point->first_use;
    table->point[table->kept++] = *point;
}

static enum sbp_status tell_rows(const struct check *is, const struct tallies *tallies)
{
    const struct tally zero = tallies->zero, broken = tallies->broken;
    const struct tally impossible = tallies->impossible;
    const struct tally first = tallies->first_use, apart = tallies->apart;
    const struct sbp_log_table *table = table_of(is);
    if (table->kept == 0)
        return NOTE(is, is->run->head_line, SBP_LOG_NO_ROWS,
                    "none of its %d row%s is left: %d of size 0, %d that stop short or whose "
                    "columns do not belong together, %d faster than any link",
                    table->rows, plural(table->rows), zero.count, broken.count, impossible.count);
    if (zero.count > 0)
        SBP_TRY(NOTE(is, zero.line, SBP_LOG_SIZE_ZERO, "%d row%s of size 0%s", zero.count,
                     plural(zero.count),
                     is->run->is_bare ? "" : " (less than 16 bytes a rank were asked for)"));
    if (broken.count > 0)
        SBP_TRY(NOTE(is, broken.line, SBP_LOG_BROKEN_ROW,
                     "%d row%s that stop%s short, or whose columns do not belong together",
                     broken.count, plural(broken.count), broken.count == 1 ? "s" : ""));
    if (impossible.count > 0)
        SBP_TRY(NOTE(is, impossible.line, SBP_LOG_IMPOSSIBLE,
                     "%d row%s faster than any machine: a device sends over %.0e B/s, or all of it "
                     "takes under %.0e s",
                     impossible.count, plural(impossible.count), SBP_MOST_BUS_BYTES_PER_S,
                     SBP_LEAST_TIME_S));
    if (first.count > 0)
        SBP_TRY(NOTE(is, first.line, SBP_LOG_FIRST_USE,
                     "%d time%s out of place over %.1f times that in place, the first use of a "
                     "protocol: the time in place is taken",
                     first.count, plural(first.count), FIRST_USE));
    if (apart.count > 0)
        SBP_TRY(NOTE(is, apart.line, SBP_LOG_HALVES_DIFFER,
                     "%d time%s in place over %.1f times that out of place: the mean is taken; one "
                     "of the two holds more than the collective: run again",
                     apart.count, plural(apart.count), FIRST_USE));
    return SBP_OK;
}

static enum sbp_status take_rows(const struct check *is)
{
    const struct sbp_log_run *run = is->run;
    struct sbp_log_table *table = table_of(is);
    struct tallies tallies = {.broken = {run->broken_rows, run->broken_line}};
    table->point = SBP_NEW(&is->logs->arena, struct sbp_measured_point, run->row_count);
    if (table->point == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < run->row_count; i++) {
        const struct sbp_log_row *row = &run->row[i];
        struct sbp_measured_point point = {.kind = table->kind,
                                           .nodes = table->nodes,
                                           .ranks_per_node = table->ranks_per_node,
                                           .line = row->line};
        const double ranks = run->is_per_rank ? table->ranks : 1;
        point.bytes = row->size_bytes * ranks;
        if (point.bytes == 0) {
            tally(&tallies.zero, row->line);
        } else if (!has_times(row) ||
                   (!run->is_bare && !sbp_log_row_agrees(row, is->collective, table->ranks))) {
            tally(&tallies.broken, row->line);
        } else if (is_impossible(
                       row, sbp_cell_least_collective_s(table->kind, table->ranks, point.bytes))) {
            tally(&tallies.impossible, row->line);
        } else {
            choose_time(row, &point, &tallies);
            add_point(table, &point);
        }
    }
    return tell_rows(is, &tallies);
}

/* --- what is to be known --- */

static enum sbp_status tell_settings(const struct check *is)
{
    const struct sbp_log_table *table = table_of(is);
    const struct sbp_log_run *run = is->run;
    if (run->is_below)
        SBP_TRY(NOTE(is, run->average_line, SBP_LOG_BELOW_MINIMUM,
                     "the average bus bandwidth failed the minimum that the run was given "
                     "(NCCL_TESTS_MIN_BW)"));
    if (run->grouped > 1)
        SBP_TRY(NOTE(is, run->line, SBP_LOG_NOT_ALONE,
                     "times are shares of groups of %.0f operations started together (-m)",
                     run->grouped));
    if (run->is_blocking)
        SBP_TRY(NOTE(is, run->line, SBP_LOG_NOT_ALONE,
                     "every operation was waited for (-z): times hold that, too"));
    if (table->nodes > 1 && sbp_log_is_socket(table->network))
        SBP_TRY(NOTE(is, run->line, SBP_LOG_SOCKETS,
                     "it went over TCP sockets: right only where training will"));
    return SBP_OK;
}

/* --- a table, a file --- */

static const char *keep(const struct check *is, const char *text)
{
    return text == NULL ? NULL : sbp_arena_strdup(&is->logs->arena, text);
}

static enum sbp_status judge(struct check *is)
{
    struct sbp_log_table *table = table_of(is);
    const struct sbp_log_said *said = &is->scan->said;
    SBP_TRY(check_run(is));
    if (!table->is_refused)
        SBP_TRY(check_values(is));
    if (!table->is_refused)
        SBP_TRY(sbp_log_check_list(is->logs, is->index, is->run, said, is->options));
    if (!table->is_refused)
        SBP_TRY(sbp_log_find_collective(is->logs, is->index, is->run, said, &is->collective));
    if (table->is_refused)
        return SBP_OK;
    table->is_known = true;
    table->kind = is->collective->kind;
    SBP_TRY(sbp_log_find_shape(is->logs, is->index, is->run, said, is->options, is->collective));
    if (!table->is_refused)
        SBP_TRY(check_end(is));
    if (!table->is_refused)
        SBP_TRY(take_rows(is));
    return table->is_refused ? SBP_OK : tell_settings(is);
}

static enum sbp_status add_table(struct check *is, int number)
{
    struct sbp_logs *logs = is->logs;
    const struct sbp_log_run *run = is->run;
    const struct sbp_log_scan *scan = is->scan;
    struct sbp_log_table *tables =
        SBP_LOG_GROW(&logs->arena, logs->table, logs->table_count, logs->table_capacity);
    if (tables == NULL)
        return SBP_E_MEMORY;
    const char *network = run->network_trust > scan->network_trust ? run->network : scan->network;
    logs->table = tables;
    is->index = logs->table_count++;
    logs->table[is->index] = (struct sbp_log_table){
        .file = is->file,
        .number = number,
        .line = run->line,
        .tool = run->tool,
        .collective = run->title == NULL ? "?" : keep(is, run->title),
        .rows = run->row_count + run->broken_rows,
        .library = keep(is, run->library),
        .network = keep(is, scan->said.network != NULL ? scan->said.network : network),
        .date = keep(is, run->date)};
    return logs->table[is->index].collective == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Notes faults of the file itself: nothing in it, or a failure that began no table. */
static enum sbp_status check_file(struct sbp_logs *logs, int file, const struct sbp_log_scan *scan)
{
    if (scan->json_error != NULL)
        return sbp_log_add_note(logs, file, -1, 0, SBP_LOG_NOT_WHOLE_JSON,
                                "it is no whole JSON of nccl-tests (%s); a run that is aborted "
                                "leaves it open: run again",
                                scan->json_error);
    if (scan->stray.line > 0)
        return sbp_log_add_note(logs, file, -1, scan->stray.line, SBP_LOG_FAILED_RUN,
                                "a run failed: \"%s\"; %s", scan->stray.text, scan->stray.advice);
    if (scan->run_count == 0 && scan->packing != NULL)
        return sbp_log_add_note(logs, file, -1, 0, SBP_LOG_NO_TABLE, "it is %s", scan->packing);
    if (scan->run_count == 0)
        return sbp_log_add_note(logs, file, -1, 0, SBP_LOG_NO_TABLE,
                                "it holds no table of times; known are those of nccl-tests (text "
                                "and JSON), rccl-tests, the OSU benchmarks and aiconfigurator's "
                                "collector, and samples of sbplan calibrate (.samples.jsonl)");
    return SBP_OK;
}

enum sbp_status sbp_log_check(struct sbp_logs *logs, int file, const struct sbp_log_scan *scan,
                              const struct sbp_log_options *options)
{
    for (int i = 0; i < scan->run_count; i++) {
        struct check is = {
            .logs = logs, .file = file, .run = &scan->run[i], .scan = scan, .options = options};
        SBP_TRY(add_table(&is, i));
        SBP_TRY(judge(&is));
    }
    return check_file(logs, file, scan);
}

/* Reads the lines that nccl-tests and rccl-tests print around their rows: settings, devices, heads,
 * footers.
 *
 * A run begins with the first line that announces one (version, name, settings) and ends with the
 * first such line behind rows, a footer or a failure. Where a publisher copied tables alone, each
 * head begins a run. Rows behind the average of a run were copied from another run, or are of a
 * process that ran beside it, so that nothing that the file says is about them.
 */
#include <string.h>

#include "calib/logs/log_parts_priv.h"

/* --- beginnings --- */

/* The run that a line of an announcement belongs to; begins one where the last is over. */
static struct sbp_log_run *announce(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                    enum sbp_log_tool tool, int number)
{
    struct sbp_log_run *run = sbp_log_current(scan);
    const bool is_used = run != NULL && (run->row_count > 0 || run->broken_rows > 0 ||
                                         run->is_over || run->failure.line > 0);
    if (run == NULL || !run->is_announced || is_used) {
        sbp_log_row_drop(&nccl->pending, run);
        nccl->columns = (struct sbp_log_columns){0};
        run = sbp_log_begin(scan, tool, number);
    }
    if (run != NULL)
        run->is_announced = true;
    return run;
}

/* Takes the name, "# Collective test starting: all_reduce_perf"; another name is another run. */
static enum sbp_status announce_name(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                     const char *rest, int number)
{
    struct sbp_log_run *run = announce(scan, nccl, SBP_LOG_NCCL, number);
    struct sbp_log_word word;
    if (run == NULL || sbp_log_split(rest, &word, 1) == 0)
        return run == NULL ? SBP_E_MEMORY : SBP_OK;
    if (run->title != NULL && !sbp_log_word_is(word, run->title)) {
        const enum sbp_log_tool tool = run->tool;
        run = sbp_log_begin(scan, tool, number);
        if (run == NULL)
            return SBP_E_MEMORY;
        run->is_announced = true;
    }
    run->title = sbp_log_copy(&scan->arena, word.at, word.length, 40);
    run->collective = sbp_log_collective_find(word.at, word.length);
    return run->title == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* "nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) ... agg iters: 1 ..." */
static enum sbp_status read_settings(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                     const char *line, int number)
{
    struct sbp_log_run *run = announce(scan, nccl, SBP_LOG_NCCL, number);
    if (run == NULL)
        return SBP_E_MEMORY;
    (void)sbp_log_named(line, "nThread ", &run->threads);
    (void)sbp_log_named(line, "nGpus ", &run->gpus);
    (void)sbp_log_named(line, "minBytes ", &run->least_bytes);
    (void)sbp_log_named(line, "maxBytes ", &run->most_bytes);
    (void)sbp_log_named(line, "step: ", &run->step);
    (void)sbp_log_named(line, "agg iters: ", &run->grouped);
    run->is_factor = strstr(line, "(factor)") != NULL;
    return SBP_OK;
}

/* "nccl-library=22807" is NCCL 2.28.7; before 2.9 as 2803. */
static const char *library_text(struct sbp_arena *arena, const char *name, double code)
{
    char text[48];
    const int number = code < 1e6 ? (int)code : 0;
    const int wide = number >= 10000 ? 10000 : 1000;
    (void)snprintf(text, sizeof text, "%s %d.%d.%d", name, number / wide, number % wide / 100,
                   number % 100);
    return number == 0 ? NULL : sbp_arena_strdup(arena, text);
}

/* "nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807" */
static enum sbp_status read_version(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                    const char *line, int number, enum sbp_log_tool tool)
{
    struct sbp_log_run *run = announce(scan, nccl, tool, number);
    double code;
    if (run == NULL)
        return SBP_E_MEMORY;
    run->tool = tool;
    if (sbp_log_named(line, "nccl-library=", &code))
        run->library = library_text(&scan->arena, "NCCL", code);
    else if (sbp_log_named(line, "rccl-library=", &code))
        run->library = library_text(&scan->arena, "RCCL", code);
    return SBP_OK;
}

/* --- devices --- */

/* Reads "Rank  0 Group  0 Pid  36600 on HOST device  0 [0x07] NAME"; before 2022 without Group, at
 * first without Pid. */
static bool read_device(const char *line, struct sbp_log_device *device, struct sbp_log_word *host,
                        struct sbp_log_word *bus)
{
    struct sbp_log_word word[11];
    const int count = sbp_log_split(line, word, 11);
    double number = 0, rank, group = 0;
    int at = 2;
    if (count < 6 || !sbp_log_word_is(word[0], "Rank") || !sbp_log_word_whole(word[1], &rank))
        return false;
    if (sbp_log_word_is(word[at], "Group") && sbp_log_word_whole(word[at + 1], &group))
        at += 2;
    if (at + 1 < count && sbp_log_word_is(word[at], "Pid"))
        at += 2;
    if (at + 3 >= count || !sbp_log_word_is(word[at], "on") ||
        !sbp_log_word_is(word[at + 2], "device") || !sbp_log_word_whole(word[at + 3], &number))
        return false;
    if (rank > 1e8 || group > 1e8 || number > 1e8)
        return false;
    *device = (struct sbp_log_device){
        .rank = (int)rank, .group = (int)group, .device = (int)number, .ranks = 1};
    *host = word[at + 1];
    *bus = (struct sbp_log_word){line, 0};
    if (at + 4 < count && word[at + 4].at[0] == '[')
        *bus = word[at + 4];
    return true;
}

static enum sbp_status take_device(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                   const char *line, int number, bool *is_taken)
{
    struct sbp_log_device device;
    struct sbp_log_word host, bus;
    *is_taken = read_device(line, &device, &host, &bus);
    if (!*is_taken)
        return SBP_OK;
    struct sbp_log_run *run = announce(scan, nccl, SBP_LOG_NCCL, number);
    device.host = sbp_log_copy(&scan->arena, host.at, host.length, 255);
    device.bus = sbp_log_copy(&scan->arena, bus.at, bus.length, 32);
    if (run == NULL || device.host == NULL || device.bus == NULL ||
        !sbp_log_add_device(scan, run, &device))
        return SBP_E_MEMORY;
    return SBP_OK;
}

/* --- footers --- */

/* "Out of bounds values : 50 FAILED", "Avg bus bandwidth    : 2.62677 OK" */
static bool read_footer(struct sbp_log_run *run, const char *line, int number)
{
    const char *bounds = sbp_log_after(line, "Out of bounds values");
    const char *average = sbp_log_after(line, "Avg bus bandwidth");
    const char *rest = bounds != NULL ? bounds : average;
    struct sbp_log_word word[3];
    if (rest == NULL || run == NULL || *rest != ':')
        return false;
    const int count = sbp_log_split(rest + 1, word, 3);
    struct sbp_log_number value = {0, 0};
    const bool is_number = count > 0 && sbp_log_word_number(word[0], &value);
    const bool failed = count > 1 && sbp_log_word_is(word[1], "FAILED");
    run->is_over = true;
    if (bounds != NULL && (failed || value.value > 0)) {
        run->wrong_line = number;
        run->wrong = value.value;
    }
    if (average != NULL && is_number) {
        run->average_line = number;
        run->average = value;
        run->is_below = failed;
    }
    return true;
}

/* --- other lines --- */

/* "NCCL version 2.4.6+cuda10.0", "RCCL version : 2.18.6-HEAD:..." */
static void read_library(struct sbp_log_scan *scan, struct sbp_log_run *run, const char *line)
{
    const char *at = strstr(line, "CCL version ");
    struct sbp_log_word word[2];
    if (run == NULL || run->library != NULL || at == NULL || at == line ||
        (at[-1] != 'N' && at[-1] != 'R'))
        return;
    const int count = sbp_log_split(at + 12, word, 2);
    const int first = count > 1 && sbp_log_word_is(word[0], ":") ? 1 : 0;
    const int length = count == 0 ? 0 : (int)strspn(word[first].at, "0123456789.");
    char text[48];
    (void)snprintf(text, sizeof text, "%cCCL %.*s", at[-1], length < 32 ? length : 32,
                   length == 0 ? "" : word[first].at);
    if (length > 0)
        run->library = sbp_arena_strdup(&scan->arena, text);
}

/* Reads a line that belongs to no table, but may say something of a run. */
static void read_other(struct sbp_log_scan *scan, const char *line, int number)
{
    struct sbp_log_run *run = sbp_log_current(scan);
    const bool is_open = run != NULL && !run->is_over;
    const struct sbp_log_collective *named = sbp_log_collective_run(line);
    const char *advice;
    scan->hint = named == NULL ? scan->hint : named;
    read_library(scan, run, line);
    if (run != NULL && strstr(line, "Blocking Enabled") != NULL)
        run->is_blocking = true;
    if (is_open)
        sbp_log_network_sign(line, false, &run->network, &run->network_trust, &scan->arena);
    else
        sbp_log_network_sign(line, false, &scan->network, &scan->network_trust, &scan->arena);
    if (sbp_log_failure_sign(line, &advice)) {
        struct sbp_log_failure *failure = is_open ? &run->failure : &scan->stray;
        if (failure->line == 0)
            *failure = (struct sbp_log_failure){
                number, sbp_log_copy(&scan->arena, line, (int)strlen(line), 160), advice};
    }
}

/* --- the table --- */

/* Whether a rank is listed twice: processes that each ran alone print by turns into one table. */
static bool is_of_copies(const struct sbp_log_run *run)
{
    return run->device_count > run->last_rank + 1;
}

static enum sbp_status take_head(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                 const struct sbp_log_columns *columns, bool is_cpu_time,
                                 int number)
{
    struct sbp_log_run *run = sbp_log_current(scan);
    sbp_log_row_drop(&nccl->pending, run);
    const bool is_used = run != NULL && (run->row_count > 0 || run->is_over) && !is_of_copies(run);
    if (run == NULL || run->tool > SBP_LOG_RCCL || is_used)
        run = sbp_log_begin(scan, SBP_LOG_NCCL, number);
    if (run == NULL)
        return SBP_E_MEMORY;
    nccl->columns = *columns;
    run->has_head = true;
    run->has_redop = columns->has_redop;
    run->has_root = columns->has_root;
    run->head_line = number;
    run->is_cpu_time = is_cpu_time;
    return SBP_OK;
}

static enum sbp_status take_row(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                enum sbp_log_row_state state, int number)
{
    struct sbp_log_run *run = sbp_log_current(scan);
    const bool is_whole = state == SBP_LOG_ROW_WHOLE;
    const int behind = run != NULL && is_whole && !is_of_copies(run) ? run->average_line : 0;
    if (run == NULL || run->tool > SBP_LOG_RCCL || behind > 0)
        run = sbp_log_begin(scan, SBP_LOG_NCCL, number);
    if (run == NULL)
        return SBP_E_MEMORY;
    run->behind_line = behind > 0 ? behind : run->behind_line;
    if (!is_whole)
        return SBP_OK;
    nccl->pending.is_there = false;
    return sbp_log_add_row(scan, run, &nccl->pending.row) ? SBP_OK : SBP_E_MEMORY;
}

/* Takes the line where it is a row or part of one. */
static enum sbp_status try_row(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                               const char *line, int number, bool *is_taken)
{
    const struct sbp_log_pending before = nccl->pending;
    const enum sbp_log_row_state state =
        sbp_log_row_read(&nccl->columns, line, number, &nccl->pending);
    *is_taken = state != SBP_LOG_NO_ROW;
    if (!*is_taken)
        return SBP_OK;
    if (before.is_there && before.row.line != nccl->pending.row.line) {
        struct sbp_log_pending ended = before;
        sbp_log_row_drop(&ended, sbp_log_current(scan));
    }
    return take_row(scan, nccl, state, number);
}

static bool is_dots(const char *line)
{
    return strncmp(line, "...", 3) == 0 || strncmp(line, "<snip>", 6) == 0 ||
           strncmp(line, "[...]", 5) == 0;
}

enum sbp_status sbp_log_nccl_line(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                  const char *line, int number)
{
    struct sbp_log_columns columns;
    bool is_cpu_time = false, is_taken = false;
    const char *text = line;
    while (*text == '#' && strncmp(text, "#wrong", 6) != 0)
        text = sbp_log_untagged(text + 1);
    const char *name = sbp_log_after(text, "Collective test starting:");
    if (name != NULL)
        return announce_name(scan, nccl, name, number);
    if (strncmp(text, "nThread ", 8) == 0)
        return read_settings(scan, nccl, text, number);
    if (strncmp(text, "nccl-tests version", 18) == 0)
        return read_version(scan, nccl, text, number, SBP_LOG_NCCL);
    if (strncmp(text, "rccl-tests: Version", 19) == 0 ||
        strncmp(text, "rccl-tests version", 18) == 0)
        return read_version(scan, nccl, text, number, SBP_LOG_RCCL);
    SBP_TRY(take_device(scan, nccl, text, number, &is_taken));
    if (is_taken || read_footer(sbp_log_current(scan), text, number))
        return SBP_OK;
    if (sbp_log_head(text, &columns, &is_cpu_time))
        return take_head(scan, nccl, &columns, is_cpu_time, number);
    if (*line != '#')
        SBP_TRY(try_row(scan, nccl, line, number, &is_taken));
    struct sbp_log_run *run = sbp_log_current(scan);
    if (run != NULL && !run->is_over && is_dots(text))
        *(run->has_head || run->row_count > 0 ? &run->gap_line : &run->list_gap_line) = number;
    if (run != NULL && strncmp(text, "Reducing maxBytes to", 20) == 0)
        (void)sbp_log_named(text, "maxBytes to ", &run->most_bytes);
    if (!is_taken)
        read_other(scan, line, number);
    return SBP_OK;
}

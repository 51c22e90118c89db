/* Reads the rows of nccl-tests' tables. In one line,
 *
 *     size count type [redop] [root] | time algbw busbw #wrong [more] |
 *                                    | time algbw busbw #wrong [more]
 *
 * The head says which columns there are: before 2022 they differ from collective to collective, and
 * an all-to-all leaves its redop blank; rccl-tests can have the in-place half alone; per-iteration
 * columns stand behind each half, algorithms and times of day behind both. Words are counted, not
 * places, since numbers outgrow their columns. A row that other output tore apart is put together.
 */
#include <ctype.h>
#include <string.h>

#include "calib/logs/log_parts_priv.h"

#define CELLS 4 /* time, algbw, busbw, #wrong */

/* In rows that replay a trace the out-of-place half is blank, and at least so wide. */
#define BLANK_HALF 30

int sbp_log_element_bytes(const char *name, int length)
{
    static const struct {
        const char *name;
        int bytes;
    } types[] = {{"float", 4},      {"half", 2},      {"double", 8},   {"bfloat16", 2},
                 {"int8", 1},       {"uint8", 1},     {"char", 1},     {"int32", 4},
                 {"uint32", 4},     {"int", 4},       {"int64", 8},    {"uint64", 8},
                 {"float16", 2},    {"float32", 4},   {"float64", 8},  {"bf16", 2},
                 {"f8e4m3", 1},     {"f8e5m2", 1},    {"fp8_e4m3", 1}, {"fp8_e5m2", 1},
                 {"float8e4m3", 1}, {"float8e5m2", 1}};
    const struct sbp_log_word word = {name, length};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (sbp_log_word_is(word, types[i].name))
            return types[i].bytes;
    return 0;
}

/* --- the head --- */

static bool is_time(struct sbp_log_word word)
{
    return sbp_log_word_is(word, "time") || sbp_log_word_is(word, "cputime");
}

static bool is_wrong(struct sbp_log_word word)
{
    return sbp_log_word_is(word, "#wrong") || sbp_log_word_is(word, "error") ||
           sbp_log_word_is(word, "res") || sbp_log_word_is(word, "wrong");
}

/* Reads the columns from the first time on. */
static void read_halves(const struct sbp_log_word *word, int count, struct sbp_log_columns *columns)
{
    int second = 0;
    for (int i = 1; i < count && second == 0; i++)
        second = is_time(word[i]) ? i : 0;
    columns->halves = second > 0 ? 2 : 1;
    columns->has_wrong = count > 3 && is_wrong(word[3]);
    columns->width = second > 0 ? second : 3 + columns->has_wrong;
}

bool sbp_log_head(const char *line, struct sbp_log_columns *columns, bool *is_cpu_time)
{
    struct sbp_log_word word[SBP_LOG_MAX_WORDS];
    const int count = sbp_log_split(line, word, SBP_LOG_MAX_WORDS);
    if (count < 6)
        return false;
    const bool now = sbp_log_word_is(word[0], "size") && sbp_log_word_is(word[1], "count");
    const bool first = sbp_log_word_is(word[0], "bytes") && sbp_log_word_is(word[1], "N");
    int time = 0;
    for (int i = 2; i < count && time == 0; i++)
        time = is_time(word[i]) ? i : 0;
    if ((!now && !first) || time == 0 || count < time + 3 ||
        !sbp_log_word_is(word[time + 1], "algbw") || !sbp_log_word_is(word[time + 2], "busbw"))
        return false;
    *columns = (struct sbp_log_columns){.is_known = true, .is_ms = first};
    for (int i = 2; i < time; i++) {
        columns->has_redop = columns->has_redop || sbp_log_word_is(word[i], "redop") ||
                             sbp_log_word_is(word[i], "op");
        columns->has_root = columns->has_root || sbp_log_word_is(word[i], "root");
    }
    read_halves(word + time, count - time, columns);
    *is_cpu_time = sbp_log_word_is(word[time], "cputime");
    return true;
}

/* --- cells --- */

/* Reads "N/A", a count of wrong values, or in older tables the largest error, behind which
 * rccl-tests puts an asterisk where it is too large. */
static bool read_wrong(struct sbp_log_word word, struct sbp_log_half *half)
{
    struct sbp_log_number number = {0, 0};
    const bool is_number = sbp_log_word_number(word, &number);
    const bool is_bad = word.at[word.length - 1] == '*' || sbp_log_word_is(word, "nan") ||
                        sbp_log_word_is(word, "-nan") || sbp_log_word_is(word, "inf");
    half->is_checked = is_number || is_bad;
    half->is_wrong = is_bad || number.value >= 1;
    return half->is_checked || sbp_log_word_is(word, "N/A");
}

/* Takes a word as the next cell of the row; false: it is none. */
static bool take_cell(const struct sbp_log_columns *columns, struct sbp_log_word word,
                      struct sbp_log_pending *pending)
{
    struct sbp_log_half *half = &pending->row.half[pending->cell / columns->width];
    const int at = pending->cell % columns->width;
    const double unit = at == 0 && columns->is_ms ? 1e3 : 1;
    struct sbp_log_number number = {0, 0}, *into[] = {&half->time_us, &half->algbw, &half->busbw};
    if (at == 3 && columns->has_wrong) {
        if (!read_wrong(word, half))
            return false;
    } else if (!sbp_log_word_number(word, &number)) {
        return false;
    }
    if (at < 3)
        *into[at] = (struct sbp_log_number){number.value * unit, number.slack * unit};
    half->is_there = true;
    pending->cell++;
    return true;
}

static enum sbp_log_row_state take_cells(const struct sbp_log_columns *columns,
                                         const struct sbp_log_word *word, int count,
                                         struct sbp_log_pending *pending)
{
    const int all = columns->halves * columns->width;
    for (int i = 0; i < count && pending->cell < all; i++)
        if (!take_cell(columns, word[i], pending))
            break;
    return pending->cell >= all ? SBP_LOG_ROW_WHOLE : SBP_LOG_ROW_BEGUN;
}

/* --- what stands before the cells --- */

static bool is_name(struct sbp_log_word word)
{
    return isalpha((unsigned char)word.at[0]) && !sbp_log_word_is(word, "N/A") &&
           !sbp_log_word_is(word, "nan") && !sbp_log_word_is(word, "inf");
}

static bool is_root(struct sbp_log_word word)
{
    double root;
    return sbp_log_word_is(word, "-1") || sbp_log_word_whole(word, &root);
}

/* Assumes two full halves for a row whose head was not copied. */
static struct sbp_log_columns guess_columns(const struct sbp_log_word *word, int count)
{
    struct sbp_log_columns columns = {
        .is_known = true, .has_wrong = true, .halves = 2, .width = CELLS};
    int cells = 3;
    columns.has_redop = count > cells && is_name(word[cells]);
    cells += columns.has_redop;
    columns.has_root = count - cells > 2 * CELLS && is_root(word[cells]);
    return columns;
}

/* Reads size, count, type, redop, root; returns how many words they are, 0: it is no row. */
static int read_front(const struct sbp_log_columns *columns, const struct sbp_log_word *word,
                      int count, struct sbp_log_row *row)
{
    int used = 3;
    if (count < 3 || !sbp_log_word_whole(word[0], &row->size_bytes) ||
        !sbp_log_word_whole(word[1], &row->count) || !is_name(word[2]))
        return 0;
    row->element_bytes = sbp_log_element_bytes(word[2].at, word[2].length);
    if (columns->has_redop && used < count && is_name(word[used])) {
        row->reduces = !sbp_log_word_is(word[used], "none");
        used++;
    }
    if (columns->has_root && used < count && is_root(word[used])) {
        row->is_rooted = word[used].at[0] != '-';
        used++;
    }
    return used;
}

/* Whether the out-of-place half is blank. */
static bool begins_in_place(const struct sbp_log_word *word, int count, int used)
{
    return used > 0 && used < count &&
           word[used].at - (word[used - 1].at + word[used - 1].length) > BLANK_HALF;
}

enum sbp_log_row_state sbp_log_row_read(const struct sbp_log_columns *columns, const char *line,
                                        int number, struct sbp_log_pending *pending)
{
    struct sbp_log_word word[SBP_LOG_MAX_WORDS];
    const int count = sbp_log_split(line, word, SBP_LOG_MAX_WORDS);
    if (count == 0)
        return SBP_LOG_NO_ROW;
    const struct sbp_log_columns known = columns->is_known ? *columns : guess_columns(word, count);
    struct sbp_log_pending fresh = {.is_there = true, .row = {.line = number}};
    const int used = read_front(&known, word, count, &fresh.row);
    /* Without a head, only a row with all its cells is told from other text. */
    if (used > 0 && (columns->is_known || count >= used + 2 * CELLS)) {
        if (known.halves == 2 && begins_in_place(word, count, used))
            fresh.cell = known.width;
        *pending = fresh;
        return take_cells(&known, word + used, count - used, pending);
    }
    if (!pending->is_there || !columns->is_known)
        return SBP_LOG_NO_ROW;
    struct sbp_log_pending more = *pending;
    const enum sbp_log_row_state state = take_cells(columns, word, count, &more);
    if (more.cell == pending->cell)
        return SBP_LOG_NO_ROW;
    *pending = more;
    return state;
}

void sbp_log_row_drop(struct sbp_log_pending *pending, struct sbp_log_run *run)
{
    if (pending->is_there && run != NULL)
        sbp_log_row_broken(run, pending->row.line);
    pending->is_there = false;
}

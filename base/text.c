#include "base/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_CAPACITY 256
#define LARGEST_EXACT  0x1p53 /* whole numbers up to here are exact in a double */

/* --- growing strings --- */

/* Room for `more` bytes and a NUL behind the text. */
static bool reserve(struct sbp_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more >= SIZE_MAX - text->length) {
        text->failed = true;
        return false;
    }
    const size_t needed = text->length + more + 1;
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity < FIRST_CAPACITY ? FIRST_CAPACITY : text->capacity;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : 2 * capacity;
    char *bytes = realloc(text->bytes, capacity);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

static void add_arguments(struct sbp_text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) {
        text->failed = true;
        return;
    }
    if (!reserve(text, (size_t)length))
        return;
    (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, arguments);
    text->length += (size_t)length;
}

void sbp_text_add(struct sbp_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_arguments(text, format, arguments);
    va_end(arguments);
}

void sbp_text_free(struct sbp_text *text)
{
    if (text == NULL)
        return;
    free(text->bytes);
    *text = (struct sbp_text){0};
}

/* --- tables --- */

/* Ends a cell with its NUL, which counts as a byte of the text. */
static void end_cell(struct sbp_table *table)
{
    if (reserve(&table->cells, 1)) {
        table->cells.bytes[table->cells.length++] = '\0';
        table->cells.bytes[table->cells.length] = '\0';
    }
    if (++table->filled == table->columns) {
        table->filled = 0;
        table->rows++;
    }
}

void sbp_table_init(struct sbp_table *table, int columns, const char *const *titles)
{
    assert(columns > 0 && columns <= SBP_TABLE_MAX_COLUMNS);
    *table = (struct sbp_table){.columns = columns};
    for (int i = 0; i < columns; i++)
        sbp_table_cell(table, "%s", titles[i]);
}

void sbp_table_cell(struct sbp_table *table, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_arguments(&table->cells, format, arguments);
    va_end(arguments);
    end_cell(table);
}

void sbp_table_free(struct sbp_table *table)
{
    if (table == NULL)
        return;
    sbp_text_free(&table->cells);
    *table = (struct sbp_table){0};
}

/* Characters of UTF-8 text: continuation bytes take no place of their own. */
static int width_of(const char *cell)
{
    int width = 0;
    for (; *cell != '\0'; cell++)
        width += ((unsigned char)*cell & 0xc0) != 0x80;
    return width;
}

/* "12", "-3.5", "1.25 GiB", "40 %", "+7%"; also "-" and "", which say that there is no number. */
static bool is_quantity(const char *cell)
{
    if (strcmp(cell, "-") == 0 || *cell == '\0')
        return true;
    if (!isdigit((unsigned char)cell[cell[0] == '-' || cell[0] == '+']))
        return false;
    char *end;
    (void)strtod(cell, &end);
    return *end == '\0' || *end == ' ' || strcmp(end, "%") == 0;
}

struct column_layout {
    int width[SBP_TABLE_MAX_COLUMNS];
    bool right[SBP_TABLE_MAX_COLUMNS];
};

/* Cells follow each other, so that one walk meets them row by row. */
static struct column_layout lay_out(const struct sbp_table *table)
{
    struct column_layout layout = {0};
    for (int i = 0; i < table->columns; i++)
        layout.right[i] = table->rows > 1;
    const char *cell = table->cells.bytes;
    for (int row = 0; row < table->rows; row++) {
        for (int i = 0; i < table->columns; i++) {
            const int width = width_of(cell);
            if (width > layout.width[i])
                layout.width[i] = width;
            if (row > 0 && !is_quantity(cell))
                layout.right[i] = false;
            cell += strlen(cell) + 1;
        }
    }
    return layout;
}

static bool print_row(const struct sbp_table *table, const struct column_layout *layout, FILE *out,
                      int indent, const char **cell)
{
    bool printed = fprintf(out, "%*s", indent, "") >= 0;
    for (int i = 0; i < table->columns; i++) {
        const int padding = layout->width[i] - width_of(*cell);
        const bool last = i + 1 == table->columns;
        const int before = layout->right[i] ? padding : 0;
        const int after = last ? 0 : padding - before + 2; /* no blanks at the end of a line */
        printed = printed && fprintf(out, "%*s%s%*s", before, "", *cell, after, "") >= 0;
        *cell += strlen(*cell) + 1;
    }
    return printed && fputc('\n', out) != EOF;
}

static bool print_rule(const struct sbp_table *table, const struct column_layout *layout, FILE *out,
                       int indent)
{
    bool printed = fprintf(out, "%*s", indent, "") >= 0;
    for (int i = 0; i < table->columns; i++) {
        for (int j = 0; j < layout->width[i]; j++)
            printed = printed && fputc('-', out) != EOF;
        if (i + 1 < table->columns)
            printed = printed && fputs("  ", out) != EOF;
    }
    return printed && fputc('\n', out) != EOF;
}

enum sbp_status sbp_table_print(const struct sbp_table *table, FILE *out, int indent)
{
    assert(table->filled == 0);
    if (table->cells.failed)
        return SBP_E_MEMORY;
    const struct column_layout layout = lay_out(table);
    const char *cell = table->cells.bytes;
    for (int row = 0; row < table->rows; row++) {
        if (!print_row(table, &layout, out, indent, &cell))
            return SBP_E_IO;
        if (row == 0 && !print_rule(table, &layout, out, indent))
            return SBP_E_IO;
    }
    return SBP_OK;
}

/* --- units --- */

#define FORMAT_BYTES 32 /* what a caller's buffer holds at least */

/* `digits` significant digits, without an exponent where people would write none. */
static void format_scaled(double value, int digits, const char *unit, char *buffer)
{
    int decimals = digits - 1;
    for (double limit = 10; decimals > 0 && fabs(value) >= limit - 0.5 * pow(10, -decimals);
         limit *= 10)
        decimals--;
    if (fabs(value) >= 0.1 && fabs(value) < 1e9)
        (void)snprintf(buffer, FORMAT_BYTES, "%.*f%s", decimals, value, unit);
    else
        (void)snprintf(buffer, FORMAT_BYTES, "%.*g%s", digits, value, unit);
}

struct unit {
    double size;
    const char *name;
};

/* The largest unit that keeps the rounded value at 1 or more; units ascend, the last has no name.
 */
static const char *format_in_units(double value, const struct unit *units, int digits, char *buffer)
{
    const struct unit *unit = units;
    if (value == 0 || !isfinite(value)) { /* zero has no scale: it is 0 of the plain unit */
        while (unit->size < 1)
            unit++;
        (void)snprintf(buffer, FORMAT_BYTES, "%g%s", value, unit->name);
        return buffer;
    }
    for (; unit[1].name != NULL; unit++) {
        const double limit = unit[1].size / unit->size;
        const double half_of_last = 0.5 * pow(10, (limit < 100 ? 2 : 3) - digits);
        if (fabs(value) / unit->size < limit - half_of_last)
            break;
    }
    format_scaled(value / unit->size, digits, unit->name, buffer);
    return buffer;
}

const char *sbp_format_seconds(double seconds, char *buffer)
{
    static const struct unit units[] = {{1e-9, " ns"}, {1e-6, " us"}, {1e-3, " ms"}, {1, " s"},
                                        {60, " min"},  {3600, " h"},  {86400, " d"}, {0, NULL}};
    return format_in_units(seconds, units, 3, buffer);
}

static bool is_small_whole(double value)
{
    return fabs(value) < 1000 && value == rint(value);
}

const char *sbp_format_bytes(double bytes, char *buffer)
{
    static const struct unit units[] = {{1, " B"},        {0x1p10, " KiB"}, {0x1p20, " MiB"},
                                        {0x1p30, " GiB"}, {0x1p40, " TiB"}, {0x1p50, " PiB"},
                                        {0x1p60, " EiB"}, {0, NULL}};
    if (is_small_whole(bytes)) {
        (void)snprintf(buffer, FORMAT_BYTES, "%.0f B", bytes);
        return buffer;
    }
    return format_in_units(bytes, units, 3, buffer);
}

const char *sbp_format_count(double count, char *buffer)
{
    static const struct unit units[] = {{1, ""},      {1e3, " k"},  {1e6, " M"},  {1e9, " G"},
                                        {1e12, " T"}, {1e15, " P"}, {1e18, " E"}, {0, NULL}};
    if (is_small_whole(count)) {
        (void)snprintf(buffer, FORMAT_BYTES, "%.0f", count);
        return buffer;
    }
    return format_in_units(count, units, 4, buffer);
}

/* --- numbers --- */

/* strtod also takes blanks, hexadecimal numbers, infinities and NaN; these are no input of ours. */
static bool starts_decimal(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    if (*text == '.')
        return isdigit((unsigned char)text[1]) != 0;
    return isdigit((unsigned char)text[0]) && text[1] != 'x' && text[1] != 'X';
}

bool sbp_parse_double(const char *text, double *value)
{
    if (!starts_decimal(text))
        return false;
    char *end;
    const double number = strtod(text, &end);
    if (*end != '\0' || !isfinite(number))
        return false;
    *value = number;
    return true;
}

bool sbp_parse_int64(const char *text, int64_t *value)
{
    if (!starts_decimal(text))
        return false;
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *value = (int64_t)number;
    return true;
}

/* The factor of a suffix: "", "K", "k", "KiB", ... "P"; 0 when it is none. */
static double size_factor(const char *suffix)
{
    static const char letters[] = "KMGTP";
    if (*suffix == '\0')
        return 1;
    const char *letter = strchr(letters, toupper((unsigned char)*suffix));
    if (letter == NULL || (suffix[1] != '\0' && strcmp(suffix + 1, "iB") != 0))
        return 0;
    return ldexp(1, 10 * (int)(letter - letters + 1));
}

bool sbp_parse_size(const char *text, int64_t *bytes)
{
    if (!starts_decimal(text) || *text == '-' || *text == '+')
        return false;
    char *end;
    const double number = strtod(text, &end);
    const double factor = size_factor(end);
    const double size = rint(number * factor);
    const bool cut = factor == 1 && size != number; /* half a byte is a slip, 0.3G is not */
    if (factor == 0 || cut || !(size <= LARGEST_EXACT))
        return false;
    *bytes = (int64_t)size;
    return true;
}

/* --- nearest names --- */

#define LONGEST_NAME 63

static int least(int a, int b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string
 * alignment), case aside; both at most LONGEST_NAME long. */
static int edit_distance(const char *a, int a_length, const char *b, int b_length)
{
    int rows[3][LONGEST_NAME + 1]; /* row i in rows[i % 3]: the distance of a's first i letters */
    for (int j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i - 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            row[j] = least(above[j], row[j - 1]) + 1;
            row[j] = least(row[j], above[j - 1] + !same_letter(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *sbp_nearest(const char *word, const char *const *names)
{
    const size_t word_length = strlen(word);
    const char *nearest = NULL;
    int nearest_distance = LONGEST_NAME;
    for (; word_length <= LONGEST_NAME && *names != NULL; names++) {
        const size_t length = strlen(*names);
        if (length > LONGEST_NAME)
            continue;
        const int distance = edit_distance(word, (int)word_length, *names, (int)length);
        const int longer = (int)(length > word_length ? length : word_length);
        /* A slip changes few letters of many: one in three, but never all of them. */
        const int limit = longer < 6 ? 1 : longer / 3;
        if (distance <= limit && distance < longer && distance < nearest_distance) {
            nearest = *names;
            nearest_distance = distance;
        }
    }
    return nearest;
}

/* --- progress --- */

#define PROGRESS_DELAY_S    1.0
#define PROGRESS_INTERVAL_S 0.1
#define PROGRESS_BYTES      80 /* one line of a narrow terminal */

void sbp_progress_start(struct sbp_progress *progress)
{
    const double now_s = sbp_clock_s();
    *progress = (struct sbp_progress){
        .start_s = now_s, .last_s = now_s, .terminal = isatty(STDERR_FILENO) == 1};
}

bool sbp_progress_is_due(const struct sbp_progress *progress)
{
    const double now_s = sbp_clock_s();
    if (!progress->terminal)
        return progress->line_interval_s > 0 &&
               now_s - progress->last_s >= progress->line_interval_s;
    return now_s - progress->start_s >= PROGRESS_DELAY_S &&
           now_s - progress->last_s >= PROGRESS_INTERVAL_S;
}

void sbp_progress_show(struct sbp_progress *progress, const char *format, ...)
{
    if (!sbp_progress_is_due(progress))
        return;
    char line[PROGRESS_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    /* Back to the first column, the line, and the rest of the older line erased (ECMA-48 EL). */
    (void)fprintf(stderr, progress->terminal ? "\r%s\033[K" : "%s\n", line);
    (void)fflush(stderr);
    progress->last_s = sbp_clock_s();
    progress->shown = progress->terminal;
}

void sbp_progress_end(struct sbp_progress *progress)
{
    if (progress->shown) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
    progress->shown = false;
}

static double read_clock(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double sbp_clock_s(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double sbp_thread_cpu_s(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

#include "base/table.h"

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal.h"

/* Begins the one text of a row that heads others; no cell holds a control character. */
#define HEAD '\x1e'

/* Ends a cell with its NUL, which counts as a byte of the text. */
static void end_cell(struct sbp_table *table)
{
    sbp_text_add(&table->cells, "%c", '\0');
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
    struct sbp_text cell = {0};
    va_list arguments;
    va_start(arguments, format);
    sbp_text_add_list(&cell, format, arguments);
    va_end(arguments);
    sbp_text_add_shown(&table->cells, cell.bytes == NULL ? "" : cell.bytes);
    table->cells.failed = table->cells.failed || cell.failed;
    sbp_text_free(&cell);
    end_cell(table);
}

void sbp_table_head(struct sbp_table *table, const char *text)
{
    assert(table->filled == 0);
    sbp_text_add(&table->cells, "%c", HEAD);
    sbp_text_add_shown(&table->cells, text);
    sbp_text_add(&table->cells, "%c", '\0');
    table->rows++;
}

void sbp_table_free(struct sbp_table *table)
{
    if (table == NULL)
        return;
    sbp_text_free(&table->cells);
    *table = (struct sbp_table){0};
}

/* Characters of UTF-8 text: continuation bytes take no place of their own. */
static int width_of_bytes(const char *text, size_t bytes)
{
    int width = 0;
    for (size_t i = 0; i < bytes; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

static int width_of(const char *cell)
{
    return width_of_bytes(cell, strlen(cell));
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
    int least[SBP_TABLE_MAX_COLUMNS]; /* of words, or of numbers, which stay in one line */
    bool right[SBP_TABLE_MAX_COLUMNS];
    bool one_line; /* wider cells push their row to the right */
};

static const char *next_of(const char *cell)
{
    return cell + strlen(cell) + 1;
}

static int longest_word(const char *text)
{
    int longest = 0;
    while (*text != '\0') {
        const size_t bytes = strcspn(text, " ");
        const int width = width_of_bytes(text, bytes);
        longest = width > longest ? width : longest;
        text += bytes + strspn(text + bytes, " ");
    }
    return longest;
}

/* Cells follow each other, so that one walk meets them row by row. */
static struct column_layout lay_out(const struct sbp_table *table)
{
    struct column_layout layout = {0};
    for (int i = 0; i < table->columns; i++)
        layout.right[i] = table->rows > 1;
    const char *cell = table->cells.bytes;
    for (int row = 0; row < table->rows; row++) {
        if (*cell == HEAD) {
            cell = next_of(cell);
            continue;
        }
        for (int i = 0; i < table->columns; i++, cell = next_of(cell)) {
            const bool number = row > 0 && is_quantity(cell);
            const int width = width_of(cell), least = number ? width : longest_word(cell);
            layout.width[i] = width > layout.width[i] ? width : layout.width[i];
            layout.least[i] = least > layout.least[i] ? least : layout.least[i];
            layout.right[i] = layout.right[i] && (row == 0 || number);
        }
    }
    return layout;
}

/* The widest column that can be narrower; -1: none. */
static int widest(const struct column_layout *layout, int columns)
{
    int found = -1;
    for (int i = 0; i < columns; i++)
        if (layout->width[i] > layout->least[i] &&
            (found < 0 || layout->width[i] > layout->width[found]))
            found = i;
    return found;
}

/* Takes from the widest columns what a line of `room` characters has not. */
static void narrow(struct column_layout *layout, int columns, int room)
{
    int needed = 2 * (columns - 1);
    for (int i = 0; i < columns; i++)
        needed += layout->width[i];
    for (int i = widest(layout, columns); needed > room && i >= 0; i = widest(layout, columns)) {
        layout->width[i]--;
        needed--;
    }
}

/* Takes from *rest as many whole words as a line of `width` has room for, one at least; their bytes
 * begin where *rest was. */
static int take_words(const char **rest, int width)
{
    const char *begin = *rest;
    size_t taken = 0;
    for (;;) {
        const size_t word = taken + strspn(begin + taken, " ");
        const size_t end = word + strcspn(begin + word, " ");
        if (end == taken || (taken > 0 && width_of_bytes(begin, end) > width))
            break;
        taken = end;
    }
    *rest += taken + strspn(begin + taken, " ");
    return (int)taken;
}

/* Prints the next line of a row and moves rest[] on; *more: there is one after it. */
static bool print_line(const struct sbp_table *table, const struct column_layout *layout, FILE *out,
                       int indent, const char **rest, bool *more)
{
    int blanks = indent; /* printed before the next text: none end a line */
    bool printed = true;
    *more = false;
    for (int i = 0; i < table->columns; i++) {
        const char *text = rest[i];
        const int bytes = take_words(&rest[i], layout->one_line ? INT_MAX : layout->width[i]);
        const int missing = layout->width[i] - width_of_bytes(text, (size_t)bytes);
        const int padding = missing > 0 ? missing : 0;
        const int before = layout->right[i] ? padding : 0;
        if (bytes > 0) {
            printed = printed && fprintf(out, "%*s%.*s", blanks + before, "", bytes, text) >= 0;
            blanks = 0;
        }
        blanks += (bytes > 0 ? padding - before : layout->width[i]) + 2;
        *more = *more || *rest[i] != '\0';
    }
    return printed && fputc('\n', out) != EOF;
}

static bool print_row(const struct sbp_table *table, const struct column_layout *layout, FILE *out,
                      int indent, const char **cell)
{
    const char *rest[SBP_TABLE_MAX_COLUMNS];
    bool more = true, printed = true;
    for (int i = 0; i < table->columns; i++, *cell = next_of(*cell))
        rest[i] = *cell;
    while (printed && more)
        printed = print_line(table, layout, out, indent, rest, &more);
    return printed;
}

/* The first head stands right below the rule. `columns`: of a line. */
static bool print_head(FILE *out, int indent, int columns, bool is_first, const char **cell)
{
    const char *rest = *cell + 1;
    bool printed = is_first || fputc('\n', out) != EOF;
    for (int begin = indent; printed && *rest != '\0'; begin = indent + 2) {
        const char *text = rest;
        const int bytes = take_words(&rest, columns - begin);
        printed = fprintf(out, "%*s%.*s\n", begin, "", bytes, text) >= 0;
    }
    *cell = next_of(*cell);
    return printed;
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
    const int asked = sbp_terminal_columns(out);
    const int columns = asked > 0 ? asked : INT_MAX;
    struct column_layout layout = lay_out(table);
    narrow(&layout, table->columns, columns - indent);
    const char *cell = table->cells.bytes;
    for (int row = 0; row < table->rows; row++) {
        if (*cell == HEAD ? !print_head(out, indent, columns, row == 1, &cell)
                          : !print_row(table, &layout, out, indent, &cell))
            return SBP_E_IO;
        if (row == 0 && !print_rule(table, &layout, out, indent))
            return SBP_E_IO;
    }
    return SBP_OK;
}

/* Rows that were printed are forgotten, but for the titles. */
static void forget_rows(struct sbp_table *table)
{
    const char *cell = table->cells.bytes;
    for (int i = 0; i < table->columns; i++)
        cell = next_of(cell);
    table->cells.length = (size_t)(cell - table->cells.bytes);
    table->rows = 1;
}

enum sbp_status sbp_table_flow(struct sbp_table *table, const int *width, FILE *out)
{
    struct column_layout layout = {.one_line = true};
    assert(table->filled == 0);
    if (table->cells.failed)
        return SBP_E_MEMORY;
    const char *cell = table->cells.bytes;
    for (int i = 0; i < table->columns; i++, cell = next_of(cell)) {
        layout.width[i] = width_of(cell) > width[i] ? width_of(cell) : width[i];
        layout.right[i] = i > 0;
    }
    const char *title = table->cells.bytes;
    bool printed = table->is_headed || (print_row(table, &layout, out, 0, &title) &&
                                        print_rule(table, &layout, out, 0));
    for (int row = 1; row < table->rows; row++)
        printed = printed && print_row(table, &layout, out, 0, &cell);
    table->is_headed = true;
    forget_rows(table);
    return printed && fflush(out) == 0 ? SBP_OK : SBP_E_IO;
}

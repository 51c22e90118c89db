#include "base/table.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

static const char *next_of(const char *cell)
{
    return cell + strlen(cell) + 1;
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
        for (int i = 0; i < table->columns; i++) {
            const int width = width_of(cell);
            if (width > layout.width[i])
                layout.width[i] = width;
            if (row > 0 && !is_quantity(cell))
                layout.right[i] = false;
            cell = next_of(cell);
        }
    }
    return layout;
}

static bool print_row(const struct sbp_table *table, const struct column_layout *layout, FILE *out,
                      int indent, const char **cell)
{
    bool printed = fprintf(out, "%*s", indent, "") >= 0;
    for (int i = 0; i < table->columns; i++) {
        const int missing = layout->width[i] - width_of(*cell);
        const int padding = missing > 0 ? missing : 0;
        const bool last = i + 1 == table->columns;
        const int before = layout->right[i] ? padding : 0;
        const int after = last ? 0 : padding - before + 2; /* no blanks at the end of a line */
        printed = printed && fprintf(out, "%*s%s%*s", before, "", *cell, after, "") >= 0;
        *cell = next_of(*cell);
    }
    return printed && fputc('\n', out) != EOF;
}

/* The first head stands right below the rule. */
static bool print_head(FILE *out, int indent, bool is_first, const char **cell)
{
    const bool printed =
        fprintf(out, "%s%*s%s\n", is_first ? "" : "\n", indent, "", *cell + 1) >= 0;
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
    const struct column_layout layout = lay_out(table);
    const char *cell = table->cells.bytes;
    for (int row = 0; row < table->rows; row++) {
        if (*cell == HEAD ? !print_head(out, indent, row == 1, &cell)
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
    struct column_layout layout = {0};
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

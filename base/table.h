/* Prints tables for people. Input: titles, then the cells row by row. Output: lines of text; a
 * column is as wide as its widest cell, and numbers are right-aligned. Where a terminal is
 * narrower, titles and cells of words go on in a second line, the widest columns first; words stay
 * whole. A table whose rows come one by one is printed as they come, in columns of widths that are
 * chosen before. */
#ifndef SBP_BASE_TABLE_H
#define SBP_BASE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "base/text.h"

#define SBP_TABLE_MAX_COLUMNS 16
struct sbp_table {
    struct sbp_text cells; /* NUL-separated */
    int columns, rows;     /* the header is row 0 */
    int filled;            /* cells of the row under way */
    bool is_headed;        /* header and rule are printed */
};
/* titles: `columns` strings. */
void sbp_table_init(struct sbp_table *table, int columns, const char *const *titles);
/* Control characters are shown as "\x1b": what a cell quotes came from outside. */
void sbp_table_cell(struct sbp_table *table, const char *format, ...) SBP_PRINTF(2, 3);
/* Begins a group of rows with a line of its own, as wide as it is, and a blank line before all but
 * the first. No row may be under way. */
void sbp_table_head(struct sbp_table *table, const char *text);
/* Prints header, rule and rows with `indent` leading blanks, no wider than the terminal where that
 * can be (base/terminal.h); E_IO, E_MEMORY. */
enum sbp_status sbp_table_print(const struct sbp_table *table, FILE *out, int indent) SBP_MUST_USE;
/* Prints the rows since the last call, the first time below header and rule, and flushes. Column i
 * is width[i] wide, or as its title; wider cells push their row to the right. All columns but the
 * first are right-aligned. E_IO, E_MEMORY. */
enum sbp_status sbp_table_flow(struct sbp_table *table, const int *width, FILE *out) SBP_MUST_USE;
void sbp_table_free(struct sbp_table *table);

#endif

/* Writes HTML that is well-formed XML, too. Input: texts and numbers. Output: markup at the end of
 * a growing string, whose `failed` is checked once, at its end.
 *
 * What came from outside (names of models, layers, files) goes through sbp_markup_text alone: no
 * other function of this room puts a text into the page unescaped.
 */
#ifndef SBP_PLANNER_PAGE_MARKUP_H
#define SBP_PLANNER_PAGE_MARKUP_H

#include "base/text.h"

/* Appends a text as text, in an element or in an attribute between double quotes: what HTML would
 * read is escaped, what a terminal or XML may not hold is shown as "\x1b". */
void sbp_markup_text(struct sbp_text *html, const char *outside);
/* The same of a formatted text. */
void sbp_markup_add(struct sbp_text *html, const char *format, ...) SBP_PRINTF(2, 3);
/* The same within <bdi>, so that a name's direction of writing stays its own. */
void sbp_markup_name(struct sbp_text *html, const char *outside);

/* Appends <data value="3.0153389878899617">3.015 s</data>: a number in all its digits, as people
 * read it. One that is not finite is "-". */
void sbp_markup_value(struct sbp_text *html, double value, const char *shown);
void sbp_markup_seconds(struct sbp_text *html, double seconds);
void sbp_markup_bytes(struct sbp_text *html, double bytes);
void sbp_markup_count(struct sbp_text *html, double count);
/* A share as a percentage, "98.4 %"; of a whole that is 0: "0.0 %". */
void sbp_markup_share(struct sbp_text *html, double part, double whole);

/* Appends the begin of a table that scrolls where it is wider than the page, and by keys, too;
 * `label` says to readers of the screen what it is. A title that begins with "<" heads a column of
 * words, which are left-aligned, as the first column is. The caller appends rows. */
void sbp_markup_table(struct sbp_text *html, const char *label, int columns,
                      const char *const *titles);
void sbp_markup_table_end(struct sbp_text *html);
/* A cell of a formatted text, escaped; and one of a column of words. */
void sbp_markup_cell(struct sbp_text *html, const char *format, ...) SBP_PRINTF(2, 3);
void sbp_markup_words(struct sbp_text *html, const char *format, ...) SBP_PRINTF(2, 3);

#endif

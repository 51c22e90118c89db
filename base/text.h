/* Text for people: growing strings, aligned tables, units, nearest names, a progress line. */
#ifndef SBP_BASE_TEXT_H
#define SBP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* A growing string. Zeroed is empty; after a failed allocation `failed` stays set and further
 * appends do nothing, so one check at the end is enough. */
struct sbp_text {
    char *bytes; /* NUL-terminated once non-NULL; owned */
    size_t length, capacity;
    bool failed;
};
void sbp_text_add(struct sbp_text *text, const char *format, ...) SBP_PRINTF(2, 3);
void sbp_text_free(struct sbp_text *text);

/* A table: columns are as wide as their widest cell; numbers are right-aligned. */
#define SBP_TABLE_MAX_COLUMNS 16
struct sbp_table {
    struct sbp_text cells; /* NUL-separated */
    int columns, rows;     /* the header is row 0 */
    int filled;            /* cells of the row under way */
};
/* titles: `columns` strings. */
void sbp_table_init(struct sbp_table *table, int columns, const char *const *titles);
void sbp_table_cell(struct sbp_table *table, const char *format, ...) SBP_PRINTF(2, 3);
/* Prints header, rule and rows with `indent` leading blanks; E_IO, E_MEMORY. */
enum sbp_status sbp_table_print(const struct sbp_table *table, FILE *out, int indent) SBP_MUST_USE;
void sbp_table_free(struct sbp_table *table);

/* "12.3 ms", "1.25 GiB", "3.1 TFLOP/s" style; buffer holds at least 32 bytes; returns buffer. */
const char *sbp_format_seconds(double seconds, char *buffer);
const char *sbp_format_bytes(double bytes, char *buffer);
const char *sbp_format_count(double count, char *buffer); /* 124.4 M */

/* "16M", "1.5G", "4096": powers of 1024, at least 0, at most 2^53; false when it is no size. */
bool sbp_parse_size(const char *text, int64_t *bytes);
/* Whole text as a number, no trailing characters, finite. */
bool sbp_parse_double(const char *text, double *value);
bool sbp_parse_int64(const char *text, int64_t *value);

/* The name nearest to word by edit distance, NULL when none is near enough to be a slip. */
const char *sbp_nearest(const char *word, const char *const *names);

/* One line on stderr, rewritten in place, only on a terminal and only after a second. Elsewhere
 * nothing, or whole lines now and then: ranks of a launcher and jobs of a batch system have no
 * terminal. */
struct sbp_progress {
    double start_s, last_s; /* monotonic clock */
    bool shown, terminal;
    double line_interval_s; /* without a terminal: of whole lines; 0 (after start): none */
};
void sbp_progress_start(struct sbp_progress *progress);
/* Whether the next show shows: for what is dear to find out. */
bool sbp_progress_is_due(const struct sbp_progress *progress);
/* Cheap to call often: formats only when 0.1 s passed since the last time. */
void sbp_progress_show(struct sbp_progress *progress, const char *format, ...) SBP_PRINTF(2, 3);
void sbp_progress_end(struct sbp_progress *progress);

/* Monotonic wall clock and this thread's CPU time, seconds. */
double sbp_clock_s(void);
double sbp_thread_cpu_s(void);

#endif

/* Text for people: growing strings, numbers with units, numbers read from text, nearest names. */
#ifndef SBP_BASE_TEXT_H
#define SBP_BASE_TEXT_H

#include <stdarg.h>
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
void sbp_text_add_list(struct sbp_text *text, const char *format, va_list arguments);
void sbp_text_free(struct sbp_text *text);

/* Text that came from outside (a file, its name, the command line) may hold what a terminal obeys:
 * control characters, and bytes that are no UTF-8. Whether it holds none. */
bool sbp_text_is_plain(const char *outside);
/* Appends such a text with these bytes as "\x1b", so that it is one line and does nothing. */
void sbp_text_add_shown(struct sbp_text *text, const char *outside);
/* The same within a buffer of `size` bytes, in place; what no longer fits is cut off. */
void sbp_text_show(char *buffer, size_t size);
/* Prints a line that quotes such texts, shown so; newlines are the format's first and last ones
 * alone. False: it could not be printed. */
bool sbp_text_print_line(FILE *out, const char *format, ...) SBP_PRINTF(2, 3);

/* "12.3 ms", "1.25 GiB", "3.1 TFLOP/s" style; buffer holds at least 32 bytes; returns buffer. */
const char *sbp_format_seconds(double seconds, char *buffer);
const char *sbp_format_bytes(double bytes, char *buffer);
const char *sbp_format_count(double count, char *buffer); /* 124.4 M */
/* So many significant digits, and all before the point: "543.8", "16170"; an exponent from 1e9 on
 * and below 1e-4. */
const char *sbp_format_digits(double value, int digits, char *buffer);

/* A whole number from 0 with a suffix, "4096", "3e11", "16M", "1.5 G": k (or K), M, G, T, P are
 * powers of 1000, of bytes powers of 1024; Ki, Mi, ... (or KiB, MiB, ...) are powers of 1024 of
 * anything; of bytes kB, MB, GB, ... are powers of 1000; B is a billion, not of bytes. A blank may
 * stand before a suffix. What has a suffix is rounded. False: it is none. */
bool sbp_parse_scaled(const char *text, bool is_bytes, double *value);
#define SBP_SCALED_HELP                                                                            \
    "Numbers may end in k, M, G, T or P, powers of 1000 (of bytes: of 1024), in B, a billion "     \
    "(not of bytes), or in Ki, Mi, Gi, Ti or Pi, powers of 1024. Bytes may end in GiB, which is "  \
    "G, 2^30, and in GB, 10^9; the other letters alike."
/* Whole text as a number, no trailing characters, finite. */
bool sbp_parse_double(const char *text, double *value);
bool sbp_parse_int64(const char *text, int64_t *value);

/* The name nearest to word by edit distance, NULL when none is near enough to be a slip. */
const char *sbp_text_nearest(const char *word, const char *const *names);

#endif

/* Logs of benchmarks that never ran: texts in the format of an age, with times of a formula, so
 * that a reader's answer is known beforehand.
 */
#ifndef SBP_TESTS_LOG_WORLD_H
#define SBP_TESTS_LOG_WORLD_H

#include <stdbool.h>

#include "base/text.h"
#include "calib/logs/log.h"

enum log_age {
    LOG_2017, /* "bytes N type op", milliseconds, no '#' before footers */
    LOG_2019, /* columns of the collective alone; all-gather's algbw is its busbw */
    LOG_2021, /* algbw = size / time everywhere */
    LOG_2022, /* the same columns for all, #wrong */
    LOG_2025, /* named, versions, times as long as they fit */
    LOG_AGES
};

struct log_world {
    enum log_age age;
    const char *collective; /* "all_reduce" */
    int nodes, each;
    double least, most; /* bytes, powers of 2 apart */
    bool no_list, no_settings, no_head, no_footer;
    bool by_iteration, has_stamp, has_algorithm, in_place_only, unchecked;
    const char *tag;        /* before every line; NULL */
    const char *end;        /* of lines; NULL: "\n" */
    const char *noise;      /* a line after every line of the table; NULL */
    const char *torn;       /* between a row's front and its cells; NULL */
    int wrong_row;          /* from 1; 0: none */
    double slow_first;      /* factor of the first out-of-place time; 0: 1 */
    double slow;            /* factor of all times; 0: 1 */
    int skip_from, skip_to; /* rows left out, from 1 */
    double shift_average;   /* added to the footer's */
};

/* The first fields. */
#define LOG_RUN(AGE, COLLECTIVE, NODES, EACH, LEAST, MOST)                                         \
    .age = (AGE), .collective = (COLLECTIVE), .nodes = (NODES), .each = (EACH), .least = (LEAST),  \
    .most = (MOST)

/* The size that a row prints for the bytes asked for. */
double log_world_size(const struct log_world *world, double asked);
/* half 0: out of place. */
double log_world_time_us(const struct log_world *world, double size, int half);
/* Rows of size > 0. */
int log_world_rows(const struct log_world *world);
/* Appends a whole run. */
void log_world_print(const struct log_world *world, struct sbp_text *text);

/* Reads the text as one file; fails the test when that fails. */
void log_world_read(const char *text, const char *name, const struct sbp_log_options *options,
                    struct sbp_logs *logs, struct sbp_measured *measured);
void log_world_free(struct sbp_logs *logs, struct sbp_measured *measured);
/* The note with the reason, NULL: there is none. */
const struct sbp_log_note *log_world_note(const struct sbp_logs *logs, enum sbp_log_reason reason);

/* Changes every `from` of a text into `to`. */
void log_text_replace(struct sbp_text *text, const char *from, const char *to);
/* The text's only refusal. points: that remain of the file all the same. */
void assert_refused(const char *text, const struct sbp_log_options *options,
                    enum sbp_log_reason reason, const char *part, int points);
/* The same of a text that is freed then. */
void assert_text_refused(struct sbp_text *text, const struct sbp_log_options *options,
                         enum sbp_log_reason reason, const char *part, int points);
void assert_told(const char *text, enum sbp_log_reason reason, const char *part);
void assert_text_told(struct sbp_text *text, enum sbp_log_reason reason, const char *part);
/* The run with a change. */
void assert_change_refused(const struct log_world *world, const char *from, const char *to,
                           enum sbp_log_reason reason, const char *part);
void assert_world_refused(const struct log_world *world, const struct sbp_log_options *options,
                          enum sbp_log_reason reason, const char *part);

#endif

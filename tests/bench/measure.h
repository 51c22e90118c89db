/* Runs a program as a child and measures it: wall and processor time, the most memory that was
 * resident, how it ended, and what it printed, as text and as JSON.
 *
 * A program that takes longer than it may is killed; it gets no more than 8 GiB. Linux alone: the
 * memory is what wait4 reports.
 */
#ifndef SBP_TESTS_BENCH_MEASURE_H
#define SBP_TESTS_BENCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

struct cJSON;

struct measured {
    bool timed_out;       /* it was killed at the limit */
    int signal;           /* that ended it; 0: it exited by itself */
    int exit_code;        /* -1 when a signal ended it */
    double wall_s, cpu_s; /* of the child, all its threads */
    int64_t peak_bytes;   /* resident; never under what the parent held when it forked */
    struct sbp_text out, err;
    struct cJSON *answer; /* what `out` holds; NULL: no JSON, or something behind it */
};

/* words: the program's path and its arguments, NULL-terminated. Waits for its end, limit_s at most.
 * E_IO: the child could not be started or read; E_MEMORY. `measured` may be freed either way; a
 * program that fails, crashes or takes too long is a measurement, not an error. */
enum sbp_status measure_run(const char *const *words, double limit_s, struct measured *measured,
                            struct sbp_diag *diag) SBP_MUST_USE;
/* The same; once it has used cpu_s of processor time it is asked to end by SIGTERM. So a program
 * gets what it was promised on a machine that others use. */
enum sbp_status measure_run_share(const char *const *words, double cpu_s, double limit_s,
                                  struct measured *measured, struct sbp_diag *diag) SBP_MUST_USE;
void measure_free(struct measured *measured);

/* How it ended and the first line of stderr: "exit 2: model.json: layers: ...", "signal 11
 * (Segmentation fault)", "killed after 60 s". Buffer holds MEASURE_END_BYTES; returns buffer. */
#define MEASURE_END_BYTES 512
const char *measure_end_text(const struct measured *measured, char *buffer);

#endif

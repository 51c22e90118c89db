/* Reads the answer of `sbplan search --json` and checks it.
 *
 * The checks know nothing of how the search works: the exit status fits the answer, a bound is no
 * more than the cost, memory fits the device, stages and roles multiply to the devices, the
 * micro-batch divides the batch, an infeasible answer names more memory than there is, and no less
 * than it says is proved.
 */
#ifndef SBP_TESTS_BENCH_ANSWER_H
#define SBP_TESTS_BENCH_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tests/bench/measure.h"

#define ANSWER_PLAN_BYTES 192
struct answer {
    const char *status; /* "optimal", ...; a literal */
    bool has_plan;
    bool is_narrow; /* status and bound hold for common roles and rests alone */
    int64_t parameters;
    /* With a plan: */
    double step_s, mfu;
    double bound_s;                      /* 0: none was stated */
    int64_t device_bytes, reserve_bytes; /* with the trainer's reserve, and that alone */
    char plan[ANSWER_PLAN_BYTES];        /* in a line */
    /* Without: */
    int64_t needed_bytes;       /* on a device; 0: not known */
    int64_t needed_bound_bytes; /* no plan needs less; 0: not known */
    char dominates[32];         /* most of what is needed, "" where it is not known */
};

/* devices: of the cluster; batch: sequences or images of a step. E_INPUT, with the cause in diag:
 * the program crashed, took too long, failed, or its answer is not what it must be. */
enum sbp_status answer_read(const struct measured *measured, int64_t devices, int64_t batch,
                            struct answer *answer, struct sbp_diag *diag) SBP_MUST_USE;

/* "optimal", "2.1 %", "infeasible", ...: status or, of a plan with a bound, its gap, with a star
 * where it is narrow. Buffer holds at least 32 bytes; returns buffer. */
const char *answer_verdict(const struct answer *answer, char *buffer);

#endif

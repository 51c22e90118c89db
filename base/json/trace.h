/* Writes timelines in the Trace Event Format, which Perfetto and chrome://tracing open: processes
 * with lanes of intervals, and counters.
 *
 * Times are seconds, written in microseconds with three decimals: whole nanoseconds, so that
 * intervals that meet, or lie within each other, still do once they are rounded. After a failed
 * allocation nothing more is added, and sbp_trace_write says so.
 */
#ifndef SBP_BASE_JSON_TRACE_H
#define SBP_BASE_JSON_TRACE_H

#include "base/text.h"

/* Hears of events, in their order, in place of a file. Names of lanes are static, others
 * borrowed for the call. */
struct sbp_trace_sink {
    void *context;
    void (*process)(void *context, int pid, const char *name);
    void (*lane)(void *context, int pid, int lane, const char *name);
    void (*interval)(void *context, int pid, int lane, const char *name, double begin_s,
                     double end_s);
    void (*counter)(void *context, int pid, const char *name, double at_s, int64_t value);
};

struct sbp_trace {
    struct sbp_text text;              /* zeroed: no events */
    const struct sbp_trace_sink *sink; /* borrowed; NULL: events become text */
};

/* A number that an interval shows when it is selected; `value` is finite. */
struct sbp_trace_detail {
    const char *name;
    double value;
};

/* Names a process, in whose place pid puts it, and a lane of it; both from 1. */
void sbp_trace_process(struct sbp_trace *trace, int pid, const char *name);
void sbp_trace_lane(struct sbp_trace *trace, int pid, int lane, const char *name);
/* Intervals of a lane follow each other, or lie within each other; 0 <= begin_s <= end_s. */
void sbp_trace_interval(struct sbp_trace *trace, int pid, int lane, const char *name,
                        double begin_s, double end_s, const struct sbp_trace_detail *details,
                        int detail_count);
/* The value of a process's counter from at_s on. */
void sbp_trace_counter(struct sbp_trace *trace, int pid, const char *name, const char *unit,
                       double at_s, int64_t value);
/* Writes the file, whole or not at all, and frees the trace. E_IO, E_MEMORY. */
enum sbp_status sbp_trace_write(struct sbp_trace *trace, const char *path,
                                struct sbp_diag *diag) SBP_MUST_USE;
void sbp_trace_free(struct sbp_trace *trace);

#endif

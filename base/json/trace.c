#include "base/json/trace.h"

#include <math.h>

#include "base/file.h"

/* ---- parts of an event --------------------------------------------------------------------- */

static void add_string(struct sbp_text *text, const char *string)
{
    sbp_text_add(text, "\"");
    for (const char *at = string; *at != '\0'; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < 0x20)
            sbp_text_add(text, "\\u%04x", byte);
        else
            sbp_text_add(text, byte == '"' || byte == '\\' ? "\\%c" : "%c", byte);
    }
    sbp_text_add(text, "\"");
}

static long long nanoseconds(double seconds)
{
    return seconds > 0 ? llround(1e9 * seconds) : 0;
}

static void add_time(struct sbp_text *text, const char *key, long long ns)
{
    sbp_text_add(text, ",\"%s\":%lld.%03lld", key, ns / 1000, ns % 1000);
}

/* Begins an event of a phase, "X" an interval; lane 0: of the process. */
static void begin_event(struct sbp_trace *trace, const char *name, const char *phase, int pid,
                        int lane)
{
    struct sbp_text *text = &trace->text;
    sbp_text_add(text,
                 text->length == 0 ? "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" : ",\n");
    sbp_text_add(text, "{\"name\":");
    add_string(text, name);
    sbp_text_add(text, ",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, pid, lane);
}

static void add_name(struct sbp_trace *trace, const char *of, int pid, int lane, const char *name)
{
    begin_event(trace, of, "M", pid, lane);
    sbp_text_add(&trace->text, ",\"args\":{\"name\":");
    add_string(&trace->text, name);
    sbp_text_add(&trace->text, "}}");
}

/* Where it stands among its like. */
static void add_place(struct sbp_trace *trace, const char *of, int pid, int lane, int place)
{
    begin_event(trace, of, "M", pid, lane);
    sbp_text_add(&trace->text, ",\"args\":{\"sort_index\":%d}}", place);
}

/* ---- events -------------------------------------------------------------------------------- */

void sbp_trace_process(struct sbp_trace *trace, int pid, const char *name)
{
    if (trace->sink != NULL) {
        trace->sink->process(trace->sink->context, pid, name);
        return;
    }
    add_name(trace, "process_name", pid, 0, name);
    add_place(trace, "process_sort_index", pid, 0, pid);
}

void sbp_trace_lane(struct sbp_trace *trace, int pid, int lane, const char *name)
{
    if (trace->sink != NULL) {
        trace->sink->lane(trace->sink->context, pid, lane, name);
        return;
    }
    add_name(trace, "thread_name", pid, lane, name);
    add_place(trace, "thread_sort_index", pid, lane, lane);
}

void sbp_trace_interval(struct sbp_trace *trace, int pid, int lane, const char *name,
                        double begin_s, double end_s, const struct sbp_trace_detail *details,
                        int detail_count)
{
    if (trace->sink != NULL) {
        trace->sink->interval(trace->sink->context, pid, lane, name, begin_s, end_s);
        return;
    }
    struct sbp_text *text = &trace->text;
    const long long begin_ns = nanoseconds(begin_s);
    begin_event(trace, name, "X", pid, lane);
    add_time(text, "ts", begin_ns);
    add_time(text, "dur", nanoseconds(end_s) - begin_ns);
    for (int i = 0; i < detail_count; i++) {
        sbp_text_add(text, i == 0 ? ",\"args\":{" : ",");
        add_string(text, details[i].name);
        sbp_text_add(text, ":%.9g", details[i].value);
    }
    sbp_text_add(text, detail_count > 0 ? "}}" : "}");
}

void sbp_trace_counter(struct sbp_trace *trace, int pid, const char *name, const char *unit,
                       double at_s, int64_t value)
{
    if (trace->sink != NULL) {
        trace->sink->counter(trace->sink->context, pid, name, at_s, value);
        return;
    }
    begin_event(trace, name, "C", pid, 0);
    add_time(&trace->text, "ts", nanoseconds(at_s));
    sbp_text_add(&trace->text, ",\"args\":{");
    add_string(&trace->text, unit);
    sbp_text_add(&trace->text, ":%lld}}", (long long)value);
}

/* ---- the file ------------------------------------------------------------------------------ */

enum sbp_status sbp_trace_write(struct sbp_trace *trace, const char *path, struct sbp_diag *diag)
{
    struct sbp_text *text = &trace->text;
    sbp_text_add(text, text->length == 0 ? "{\"traceEvents\":[" : "\n");
    sbp_text_add(text, "]}\n");
    const enum sbp_status status = text->failed
                                       ? sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", path)
                                       : sbp_file_write(path, text->bytes, text->length, diag);
    sbp_trace_free(trace);
    return status;
}

void sbp_trace_free(struct sbp_trace *trace)
{
    sbp_text_free(&trace->text);
}

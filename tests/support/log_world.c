#include "tests/support/log_world.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

/* --- the run --- */

static bool is(const struct log_world *world, const char *name)
{
    return strcmp(world->collective, name) == 0;
}

static bool is_shared(const struct log_world *world)
{
    return is(world, "all_gather") || is(world, "reduce_scatter") || is(world, "alltoall");
}

static bool reduces(const struct log_world *world)
{
    return is(world, "all_reduce") || is(world, "reduce_scatter") ||
           (is(world, "sendrecv") && world->age >= LOG_2022);
}

static bool is_rooted(const struct log_world *world)
{
    return is(world, "broadcast");
}

static int ranks_of(const struct log_world *world)
{
    return world->nodes * world->each;
}

static double factor_of(const struct log_world *world)
{
    const double g = ranks_of(world);
    return is(world, "all_reduce") ? 2 * (g - 1) / g : is_shared(world) ? (g - 1) / g : 1;
}

/* Elements of 4 bytes that a rank gives. */
static double count_of(const struct log_world *world, double asked)
{
    const double elements = floor(asked / 4);
    if (!is_shared(world))
        return elements;
    const double each = floor(elements / ranks_of(world));
    return world->age >= LOG_2022 ? floor(each / 4) * 4 : each;
}

double log_world_size(const struct log_world *world, double asked)
{
    return 4 * count_of(world, asked) * (is_shared(world) ? ranks_of(world) : 1);
}

double log_world_time_us(const struct log_world *world, double size, int half)
{
    const double slow = world->slow > 0 ? world->slow : 1;
    const double time = slow * (23.5 + size * factor_of(world) / 21e3);
    const bool is_first = size == log_world_size(world, world->least);
    const double first = is_first && world->slow_first > 0 ? world->slow_first : 1;
    return half == 0 ? time * 1.01 * first : time;
}

int log_world_rows(const struct log_world *world)
{
    int rows = 0;
    for (double asked = world->least; asked <= world->most; asked *= 2)
        rows += log_world_size(world, asked) > 0;
    return rows;
}

/* --- lines --- */

static void begin(const struct log_world *world, struct sbp_text *text)
{
    sbp_text_add(text, "%s", world->tag == NULL ? "" : world->tag);
}

static void end(const struct log_world *world, struct sbp_text *text)
{
    sbp_text_add(text, "%s", world->end == NULL ? "\n" : world->end);
}

#define LINE(world, text, ...)                                                                     \
    do {                                                                                           \
        begin((world), (text));                                                                    \
        sbp_text_add((text), __VA_ARGS__);                                                         \
        end((world), (text));                                                                      \
    } while (0)

static void print_settings(const struct log_world *world, struct sbp_text *text)
{
    const bool is_new = world->age == LOG_2025;
    if (is_new)
        LINE(world, text, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807");
    if (is_new)
        LINE(world, text, "# Collective test starting: %s_perf", world->collective);
    LINE(world, text,
         "%snThread 1 nGpus 1 minBytes %.0f maxBytes %.0f step: 2(factor) warmup iters: 5 iters: "
         "20 %svalidation: %d",
         world->age == LOG_2017 ? "" : "# ", world->least, world->most,
         world->age >= LOG_2022 ? "agg iters: 1 " : "", !world->unchecked);
    LINE(world, text, "#");
}

static void print_list(const struct log_world *world, struct sbp_text *text)
{
    LINE(world, text, "# Using devices");
    for (int rank = 0; rank < ranks_of(world); rank++) {
        const int node = rank / world->each, device = rank % world->each;
        if (world->age == LOG_2017)
            LINE(world, text, "#   Rank %2d on     node%02d device %2d [0x%02x] Quick Device", rank,
                 node, device, device);
        else if (world->age < LOG_2022)
            LINE(world, text,
                 "#   Rank %2d Pid %6d on     node%02d device %2d [0x%02x] Quick Device", rank,
                 4000 + rank, node, device, device);
        else
            LINE(world, text,
                 "#  Rank %2d Group  0 Pid %6d on     node%02d device %2d [0000:%02x:00] Quick "
                 "Device",
                 rank, 4000 + rank, node, device, device);
    }
}

static bool has_redop(const struct log_world *world)
{
    return world->age >= LOG_2022 || reduces(world) || is(world, "alltoall");
}

static bool has_root(const struct log_world *world)
{
    return world->age >= LOG_2022 || is_rooted(world);
}

static bool has_both(const struct log_world *world)
{
    return !world->in_place_only && !(world->age == LOG_2017 && is_rooted(world));
}

static void print_head(const struct log_world *world, struct sbp_text *text)
{
    const bool is_first = world->age == LOG_2017;
    const char *wrong = is_first ? "res" : world->age < LOG_2022 ? "error" : "#wrong";
    LINE(world, text, "#");
    LINE(world, text, "#                                  out-of-place                 in-place");
    begin(world, text);
    sbp_text_add(text, "# %10s  %12s  %8s", is_first ? "bytes" : "size", is_first ? "N" : "count",
                 "type");
    if (has_redop(world))
        sbp_text_add(text, "  %6s", is_first ? "op" : "redop");
    if (has_root(world))
        sbp_text_add(text, "  %6s", "root");
    for (int half = 0; half < (has_both(world) ? 2 : 1); half++) {
        sbp_text_add(text, "  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", wrong);
        if (world->by_iteration)
            sbp_text_add(text, "  i_min  i_max  i_p99  i_cv%%");
    }
    sbp_text_add(text, "%s%s", world->has_algorithm ? "  algo  proto  nchannels" : "",
                 world->has_stamp ? "            timestamp" : "");
    end(world, text);
    if (!is_first)
        LINE(world, text, "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)");
}

static void print_time(const struct log_world *world, double time_us, struct sbp_text *text)
{
    if (world->age == LOG_2017)
        sbp_text_add(text, "  %7.3f", time_us / 1e3);
    else if (world->age == LOG_2025)
        sbp_text_add(text, "  %7.*f", time_us < 9999.995 ? 2 : time_us < 99999.95 ? 1 : 0, time_us);
    else
        sbp_text_add(text, "  %7.*f", time_us < 100 ? 2 : time_us < 10000 ? 1 : 0, time_us);
}

/* Adds the bus bandwidth as printed to *sum. */
static void print_half(const struct log_world *world, double size, int half, bool is_wrong,
                       double *sum, struct sbp_text *text)
{
    const double time_us = log_world_time_us(world, size, half);
    const double algbw = size / time_us / 1e3, busbw = algbw * factor_of(world);
    const bool is_embedded = world->age <= LOG_2019 && is_shared(world) && !is(world, "alltoall");
    const bool is_other = half == 1 && (is(world, "alltoall") || is(world, "sendrecv"));
    print_time(world, time_us, text);
    sbp_text_add(text, "  %6.2f  %6.2f", is_embedded ? busbw : algbw, busbw);
    *sum += busbw;
    if (world->unchecked || (world->age >= LOG_2022 && is_other))
        sbp_text_add(text, "    N/A");
    else if (world->age < LOG_2022)
        sbp_text_add(text, "  %s", is_wrong ? "nan" : "5e-07");
    else
        sbp_text_add(text, "  %5d", is_wrong ? 50 : 0);
    if (world->by_iteration)
        sbp_text_add(text, "  %7.2f  %7.2f  %7.2f     1.25", 0.9 * time_us, 1.2 * time_us,
                     1.1 * time_us);
}

static void print_front(const struct log_world *world, double asked, struct sbp_text *text)
{
    begin(world, text);
    sbp_text_add(text, "%12.0f  %12.0f  %8s", log_world_size(world, asked), count_of(world, asked),
                 "float");
    if (has_redop(world)) /* early all-to-alls leave theirs blank */
        sbp_text_add(text, "  %6s", reduces(world) ? "sum" : world->age >= LOG_2022 ? "none" : "");
    if (has_root(world))
        sbp_text_add(text, "  %6d", is_rooted(world) ? 0 : -1);
    if (world->torn != NULL) {
        sbp_text_add(text, " %s\n", world->torn);
        LINE(world, text, "%s", world->torn);
        begin(world, text);
    }
}

/* Returns the average bus bandwidth. */
static double print_rows(const struct log_world *world, struct sbp_text *text)
{
    double sum = 0;
    int row = 0, halves = 0;
    for (double asked = world->least; asked <= world->most; asked *= 2) {
        struct sbp_text skipped = {0};
        const bool is_skipped = ++row >= world->skip_from && row <= world->skip_to;
        struct sbp_text *into = is_skipped ? &skipped : text;
        print_front(world, asked, into);
        for (int half = has_both(world) ? 0 : world->in_place_only;
             half < (has_both(world) ? 2 : 1 + world->in_place_only); half++) {
            print_half(world, log_world_size(world, asked), half, row == world->wrong_row, &sum,
                       into);
            halves++;
        }
        sbp_text_add(into, "%s%s", world->has_algorithm ? "  RING  LL128  24" : "",
                     world->has_stamp ? "  2026-07-01 10:11:12" : "");
        end(world, into);
        if (world->noise != NULL && !is_skipped)
            LINE(world, text, "%s", world->noise);
        sbp_text_free(&skipped);
    }
    return sum / halves;
}

void log_world_print(const struct log_world *world, struct sbp_text *text)
{
    const char *mark = world->age == LOG_2017 ? "" : "#";
    if (!world->no_settings)
        print_settings(world, text);
    if (!world->no_list)
        print_list(world, text);
    if (!world->no_head)
        print_head(world, text);
    const double average = print_rows(world, text);
    if (world->no_footer)
        return;
    LINE(world, text, "%s Out of bounds values : %d %s", mark, world->wrong_row > 0,
         world->wrong_row > 0 ? "FAILED" : "OK");
    LINE(world, text, "%s Avg bus bandwidth    : %g ", mark, average + world->shift_average);
    LINE(world, text, "%s", mark);
    if (world->age == LOG_2025)
        LINE(world, text, "# Collective test concluded: %s_perf", world->collective);
}

/* --- reading --- */

void log_world_read(const char *text, const char *name, const struct sbp_log_options *options,
                    struct sbp_logs *logs, struct sbp_measured *measured)
{
    static const struct sbp_log_options none = {0};
    struct sbp_diag diag = {{0}};
    if (sbp_logs_read_text(text, strlen(text), name, options == NULL ? &none : options, logs,
                           measured, &diag) != SBP_OK)
        fail_msg("%s: %s", name, diag.text);
}

void log_world_free(struct sbp_logs *logs, struct sbp_measured *measured)
{
    sbp_points_free(measured);
    sbp_logs_free(logs);
}

const struct sbp_log_note *log_world_note(const struct sbp_logs *logs, enum sbp_log_reason reason)
{
    for (int n = 0; n < logs->note_count; n++)
        if (logs->note[n].reason == reason)
            return &logs->note[n];
    return NULL;
}

/* --- refusals --- */

void log_text_replace(struct sbp_text *text, const char *from, const char *to)
{
    struct sbp_text changed = {0};
    const char *at = text->bytes, *next;
    while ((next = strstr(at, from)) != NULL) {
        sbp_text_add(&changed, "%.*s%s", (int)(next - at), at, to);
        at = next + strlen(from);
    }
    sbp_text_add(&changed, "%s", at);
    sbp_text_free(text);
    *text = changed;
}

void assert_refused(const char *text, const struct sbp_log_options *options,
                    enum sbp_log_reason reason, const char *part, int points)
{
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_read(text, "run.log", options, &logs, &measured);
    const struct sbp_log_note *note = log_world_note(&logs, reason);
    if (note == NULL)
        fail_msg("not refused as %s, but: %s", sbp_log_reasons[reason].name,
                 logs.note_count > 0 ? logs.note[0].text : "not at all");
    assert_int_equal(sbp_log_reasons[reason].effect, SBP_LOG_REFUSED);
    if (strstr(note->text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", note->text, part);
    for (int n = 0; n < logs.note_count; n++)
        if (&logs.note[n] != note && sbp_log_reasons[logs.note[n].reason].effect == SBP_LOG_REFUSED)
            fail_msg("also refused: %s", logs.note[n].text);
    assert_int_equal(measured.count, points);
    log_world_free(&logs, &measured);
}

void assert_text_refused(struct sbp_text *text, const struct sbp_log_options *options,
                         enum sbp_log_reason reason, const char *part, int points)
{
    assert_refused(text->bytes, options, reason, part, points);
    sbp_text_free(text);
}

void assert_told(const char *text, enum sbp_log_reason reason, const char *part)
{
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_read(text, "run.log", NULL, &logs, &measured);
    const struct sbp_log_note *note = log_world_note(&logs, reason);
    if (note == NULL || strstr(note->text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", note == NULL ? "" : note->text, part);
    assert_int_equal(sbp_log_reasons[reason].effect, SBP_LOG_TOLD);
    assert_true(measured.count > 0);
    log_world_free(&logs, &measured);
}

void assert_text_told(struct sbp_text *text, enum sbp_log_reason reason, const char *part)
{
    assert_told(text->bytes, reason, part);
    sbp_text_free(text);
}

void assert_change_refused(const struct log_world *world, const char *from, const char *to,
                           enum sbp_log_reason reason, const char *part)
{
    struct sbp_text text = {0};
    log_world_print(world, &text);
    log_text_replace(&text, from, to);
    assert_text_refused(&text, NULL, reason, part, 0);
}

void assert_world_refused(const struct log_world *world, const struct sbp_log_options *options,
                          enum sbp_log_reason reason, const char *part)
{
    struct sbp_text text = {0};
    log_world_print(world, &text);
    assert_text_refused(&text, options, reason, part, 0);
}

#include "planner/report/plan_contrast.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"

/* A difference that is a smaller share of the whole one is not told, nor more than so many. */
static const double TOLD_SHARE = 0.05;
enum { TOLD_SAVED = 3, TOLD_AGAINST = 2 };

/* --- parts --- */

static double exposed_s(const struct sbp_step_totals *totals, enum sbp_cause cause)
{
    return totals->by_cause_s[cause] - totals->hidden_by_cause_s[cause];
}

static const char *const NAMES[SBP_CONTRAST_PARTS] = {
    "compute",
    "recompute",
    "optimizer",
    "bubble",
    "exposed activation collectives (TP, SP)",
    "exposed collectives inside layers (CP, EP, loss)",
    "exposed gradient reduction (DP)",
    "exposed parameter gathers (ZeRO)",
    "exposed messages between stages (PP)",
    "exposed scalars"};

/* Fills seconds[which] of all parts, in the order of NAMES. */
static void fill(struct sbp_contrast *contrast, int which, double scale)
{
    const struct sbp_step_totals *totals = &contrast->report[which]->summary.totals;
    const double seconds[SBP_CONTRAST_PARTS] = {
        totals->compute_s,
        totals->recompute_s,
        totals->optimizer_s,
        totals->bubble_s,
        exposed_s(totals, SBP_CAUSE_ACTIVATION) + exposed_s(totals, SBP_CAUSE_ACTIVATION_GRADIENT),
        exposed_s(totals, SBP_CAUSE_OPERATOR),
        exposed_s(totals, SBP_CAUSE_WEIGHT_GRADIENT),
        exposed_s(totals, SBP_CAUSE_WEIGHT),
        exposed_s(totals, SBP_CAUSE_STAGE),
        exposed_s(totals, SBP_CAUSE_SCALAR)};
    for (int i = 0; i < SBP_CONTRAST_PARTS; i++)
        contrast->part[i].seconds[which] = scale * seconds[i];
    contrast->step_s[which] = scale * totals->step_s;
}

/* Drops parts that hardly differ, and sorts the others. */
static void order(struct sbp_contrast *contrast)
{
    const double least_s = TOLD_SHARE * fabs(contrast->step_s[1] - contrast->step_s[0]);
    const double rounding_s = SBP_REPORT_ROUND_OFF * contrast->step_s[0];
    contrast->count = 0;
    for (int i = 0; i < SBP_CONTRAST_PARTS; i++) {
        const struct sbp_contrast_part part = contrast->part[i];
        if (fabs(part.saved_s) <= fmax(least_s, rounding_s))
            continue;
        int at = contrast->count++;
        for (; at > 0 && contrast->part[at - 1].saved_s < part.saved_s; at--)
            contrast->part[at] = contrast->part[at - 1];
        contrast->part[at] = part;
    }
}

void sbp_contrast_make(const struct sbp_report *first, const struct sbp_report *second,
                       struct sbp_contrast *contrast)
{
    int64_t count[2];
    const char *unit[2];
    *contrast = (struct sbp_contrast){.report = {first, second}};
    for (int i = 0; i < 2; i++)
        unit[i] = sbp_summary_unit(&contrast->report[i]->plan->cut.graph, &count[i]);
    contrast->same_unit = strcmp(unit[0], unit[1]) == 0;
    contrast->same_batch = contrast->same_unit && count[0] == count[1];
    if (!contrast->same_unit) {
        contrast->faster = -1;
        return;
    }
    fill(contrast, 0, 1);
    fill(contrast, 1, (double)count[0] / (double)count[1]);
    const double more_s = contrast->step_s[1] - contrast->step_s[0];
    contrast->faster = fabs(more_s) <= SBP_REPORT_ROUND_OFF * contrast->step_s[0] ? -1
                       : more_s < 0                                               ? 1
                                                                                  : 0;
    const bool stages = first->summary.stages > 1 || second->summary.stages > 1;
    for (int i = 0; i < SBP_CONTRAST_PARTS; i++) {
        struct sbp_contrast_part *part = &contrast->part[i];
        part->what = strcmp(NAMES[i], "bubble") == 0 && !stages ? "waiting for hosts" : NAMES[i];
        part->saved_s = (part->seconds[1] - part->seconds[0]) * (contrast->faster == 1 ? -1 : 1);
    }
    order(contrast);
}

/* --- text --- */

struct line {
    char *bytes; /* (SBP_CONTRAST_BYTES) */
    int used;
};

static void SBP_PRINTF(2, 3) add(struct line *line, const char *format, ...)
{
    va_list arguments;
    if (line->used >= SBP_CONTRAST_BYTES - 1)
        return;
    va_start(arguments, format);
    line->used += vsnprintf(line->bytes + line->used, (size_t)(SBP_CONTRAST_BYTES - line->used),
                            format, arguments);
    va_end(arguments);
}

/* The model's flops a second of a device, while it computes: "569.2 TFLOP/s". */
static const char *reached(const struct sbp_report *report, char *buffer)
{
    const struct sbp_summary *summary = &report->summary;
    const double flops = sbp_op_model_flops(&report->plan->cut.graph) / (double)summary->devices;
    char rate[32];
    (void)snprintf(buffer, SBP_RATE_BYTES, "%sFLOP/s",
                   sbp_format_count(flops / summary->totals.compute_s, rate));
    return buffer;
}

/* Why compute differs: other numbers of devices, or other rates. */
static void add_compute(struct line *line, const struct sbp_contrast *contrast)
{
    const struct sbp_report *one = contrast->report[contrast->faster],
                            *other = contrast->report[1 - contrast->faster];
    char rate[SBP_RATE_BYTES], not_rate[SBP_RATE_BYTES];
    if (one->summary.devices != other->summary.devices)
        add(line, " (%lld devices, not %lld)", (long long)one->summary.devices,
            (long long)other->summary.devices);
    else if (one->summary.totals.compute_s > 0 && other->summary.totals.compute_s > 0)
        add(line, " (model at %s a device, not %s)", reached(one, rate), reached(other, not_rate));
}

static void add_part(struct line *line, const struct sbp_contrast *contrast,
                     const struct sbp_contrast_part *part)
{
    char seconds[32];
    add(line, "%s %c%s", part->what, part->saved_s > 0 ? '-' : '+',
        sbp_report_seconds(fabs(part->saved_s), seconds));
    if (strcmp(part->what, "compute") == 0)
        add_compute(line, contrast);
}

const char *sbp_contrast_reasons(const struct sbp_contrast *contrast, char *buffer)
{
    struct line line = {.bytes = buffer};
    int told = 0;
    buffer[0] = '\0';
    if (contrast->faster < 0)
        return buffer;
    for (int i = 0; i < contrast->count && told < TOLD_SAVED; i++)
        if (contrast->part[i].saved_s > 0) {
            add(&line, "%s", told++ > 0 ? ", " : "");
            add_part(&line, contrast, &contrast->part[i]);
        }
    told = 0;
    for (int i = contrast->count - 1; i >= 0 && told < TOLD_AGAINST; i--)
        if (contrast->part[i].saved_s < 0) {
            add(&line, "%s", told++ > 0 ? ", " : "; against it ");
            add_part(&line, contrast, &contrast->part[i]);
        }
    return buffer;
}

/* Model, cluster and trainer in front of the layout's words, with ", " between all. */
enum { ALL_BYTES = SBP_LAYOUT_BYTES + 256 };
static void all_words(const struct sbp_report *report, char all[ALL_BYTES])
{
    char layout[SBP_LAYOUT_BYTES];
    const struct sbp_cluster *cluster = &report->plan->workload.cluster;
    (void)snprintf(all, ALL_BYTES,
                   "model %.60s, batch %lld, cluster %.60s, %lld devices, trainer %.60s, %s",
                   report->plan->cut.graph.name, (long long)report->plan->cut.graph.global_batch,
                   cluster->name, (long long)report->summary.devices,
                   cluster->runtime.name[0] == '\0' ? "none" : cluster->runtime.name,
                   sbp_layout_line_text(&report->layout, layout));
}

/* Whether one of the words of `all` is these. */
static bool has_words(const char *all, const char *words, size_t length)
{
    for (const char *at = all; at != NULL; at = strstr(at, ", ")) {
        at += at == all ? 0 : 2;
        if (strncmp(at, words, length) == 0 && (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

const char *sbp_contrast_words(const struct sbp_contrast *contrast, int which, char *buffer)
{
    char mine[ALL_BYTES], others[ALL_BYTES];
    struct line line = {.bytes = buffer};
    buffer[0] = '\0';
    all_words(contrast->report[which], mine);
    all_words(contrast->report[1 - which], others);
    for (const char *at = mine; at != NULL;) {
        const char *end = strstr(at, ", ");
        const size_t length = end == NULL ? strlen(at) : (size_t)(end - at);
        if (!has_words(others, at, length))
            add(&line, "%s%.*s", line.used > 0 ? ", " : "", (int)length, at);
        at = end == NULL ? NULL : end + 2;
    }
    return buffer;
}

/* What a step that was measured says of the price (planner/validate/constants.h). */
#include <math.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"
#include "planner/validate/constants.h"

/* What a value of each constant means. */
static void say_cause(enum sbp_constant cause, double value, char *text, size_t size)
{
    char seconds[32];
    switch (cause) {
    case SBP_CONSTANT_HOST:
        (void)snprintf(text, size, "a host that needs %s to launch an operator",
                       sbp_format_seconds(value, seconds));
        return;
    case SBP_CONSTANT_HIDING:
        (void)snprintf(text, size, "%.3g %% of communication hidden behind arithmetic",
                       100 * value);
        return;
    default:
        (void)snprintf(text, size, "%s at %.3g of %s rate", sbp_constant_name(cause), value,
                       cause == SBP_CONSTANT_LINKS ? "their" : "its");
    }
}

/* "12.3 % more than predicted". */
static const char *compare(double ratio, char *text, size_t size)
{
    if (ratio >= 10)
        (void)snprintf(text, size, "%.3g times as long as predicted", ratio);
    else
        (void)snprintf(text, size, "%.1f %% %s than predicted", 100 * fabs(ratio - 1),
                       ratio > 1 ? "more" : "less");
    return text;
}

enum sbp_status sbp_search_measured_print(const struct sbp_search_job *job, double predicted_s,
                                          struct sbp_diag *diag)
{
    const double measured_s = job->arguments->measured_s;
    struct sbp_constant_value cause[SBP_CONSTANTS];
    char measured[32], text[96];
    int found = 0;
    if (measured_s == 0)
        return SBP_OK;
    SBP_TRY(sbp_constants_explain(&job->plan, measured_s, cause, diag));
    SBP_PRINT("measured   %s, %s", sbp_report_seconds(measured_s, measured),
              compare(measured_s / predicted_s, text, sizeof text));
    for (int i = 0; i < SBP_CONSTANTS; i++) {
        if (!cause[i].explains)
            continue;
        say_cause((enum sbp_constant)i, cause[i].value, text, sizeof text);
        SBP_PRINT("%s\n           %s",
                  found++ == 0 ? "; each of these alone would explain it:" : "", text);
    }
    SBP_PRINT("%s\n", found == 0 ? "; no constant alone would explain it" : "");
    return SBP_OK;
}

enum sbp_status sbp_search_measured_put(struct cJSON *json, const struct sbp_search_job *job,
                                        bool *failed, struct sbp_diag *diag)
{
    struct sbp_constant_value cause[SBP_CONSTANTS];
    if (job->arguments->measured_s == 0)
        return SBP_OK;
    SBP_TRY(sbp_constants_explain(&job->plan, job->arguments->measured_s, cause, diag));
    struct cJSON *object = sbp_json_put_object(json, "measured", failed);
    sbp_json_put_number(object, "step_s", job->arguments->measured_s, failed);
    for (int i = 0; i < SBP_CONSTANTS; i++)
        if (cause[i].explains)
            sbp_json_put_measured(object, sbp_constant_name((enum sbp_constant)i), cause[i].value,
                                  failed);
    return SBP_OK;
}

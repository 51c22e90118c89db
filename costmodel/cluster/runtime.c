#include "costmodel/cluster/runtime.h"

#include <math.h>
#include <stddef.h>

#define MOST_ERROR       1000.0 /* as of measured collectives */
#define MOST_HOST_S      1.0    /* a second for one operator is a mistake in the unit */
#define MOST_LOGIT_BYTES 64     /* eight copies in double precision */

#define NAME(symbol, name) name,
static const char *const hidings[] = {SBP_HIDING_MAP(NAME) "source", NULL};

const char *sbp_runtime_hiding_name(enum sbp_hiding hiding)
{
    return hidings[hiding];
}

static const char *const reaches[] = {SBP_REACH_MAP(NAME) "source", NULL};

static enum sbp_status read_reaches(const struct sbp_json *at, struct sbp_runtime *runtime)
{
    struct sbp_json member;
    for (int i = 0; i < SBP_REACHES; i++)
        runtime->reach[i] = 1;
    if (!sbp_json_has(at, "reaches"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(at, "reaches", &member));
    SBP_TRY(sbp_json_keys(&member, reaches));
    for (int i = 0; i < SBP_REACHES; i++)
        SBP_TRY(sbp_json_get_double(&member, reaches[i], SBP_DEVICE_LEAST_SHARE, 1,
                                    &runtime->reach[i]));
    return SBP_OK;
}

static enum sbp_status read_unfused(const struct sbp_json *at, struct sbp_runtime *runtime)
{
    struct sbp_json member;
    if (!sbp_json_has(at, "unfused_attention"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(at, "unfused_attention", &member));
    return sbp_device_read_unfused(&member, &runtime->unfused);
}

static enum sbp_status read_hides(const struct sbp_json *at, struct sbp_runtime *runtime)
{
    struct sbp_json hides;
    if (!sbp_json_has(at, "hides"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(at, "hides", &hides));
    SBP_TRY(sbp_json_keys(&hides, hidings));
    for (int i = 0; i < SBP_HIDINGS; i++)
        SBP_TRY(sbp_json_get_double(&hides, hidings[i], 0, 1, &runtime->hidden[i]));
    return SBP_OK;
}

enum sbp_status sbp_runtime_read(const struct sbp_json *at, int64_t most_bytes,
                                 struct sbp_runtime *runtime)
{
    static const char *const KEYS[] = {
        "name",     "reaches",  "unfused_attention", "hides",         "host_s",      "launch_s",
        "messages", "dispatch", "experts_wait_s",    "reserve_bytes", "logit_bytes", "error",
        "source",   NULL};
    static const char *const MESSAGES[] = {"overlap", "block", "slots", NULL};
    static const char *const DISPATCHES[] = {"copies", "once", NULL};
    struct sbp_json name;
    int messages = 0, dispatch = 0;
    *runtime = (struct sbp_runtime){0};
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "name", &name));
    SBP_TRY(sbp_json_name(&name, runtime->name, (int)sizeof runtime->name));
    SBP_TRY(read_reaches(at, runtime));
    SBP_TRY(read_unfused(at, runtime));
    SBP_TRY(read_hides(at, runtime));
    SBP_TRY(sbp_json_get_double(at, "host_s", 0, MOST_HOST_S, &runtime->host_s));
    SBP_TRY(sbp_json_get_double(at, "launch_s", 0, MOST_HOST_S, &runtime->launch_s));
    SBP_TRY(sbp_json_get_double(at, "experts_wait_s", 0, MOST_HOST_S, &runtime->experts_wait_s));
    SBP_TRY(sbp_json_get_choice(at, "messages", MESSAGES, &messages));
    runtime->sends_block = messages == 1;
    runtime->has_slots = messages == 2;
    SBP_TRY(sbp_json_get_choice(at, "dispatch", DISPATCHES, &dispatch));
    runtime->dispatches_once = dispatch == 1;
    SBP_TRY(sbp_json_get_double(at, "error", 0, MOST_ERROR, &runtime->error));
    SBP_TRY(sbp_json_get_int64(at, "logit_bytes", 0, MOST_LOGIT_BYTES, &runtime->logit_bytes));
    return sbp_json_get_int64(at, "reserve_bytes", 0, most_bytes, &runtime->reserve_bytes);
}

double sbp_runtime_pass_s(const struct sbp_runtime *runtime, const struct sbp_pass_time *time)
{
    return fmax(fmax(time->device_s, time->communication_s), time->launches * runtime->host_s);
}

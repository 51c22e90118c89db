#include "planner/cli/degree_options.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "planner/cli/inputs.h"

bool sbp_degree_options_of_layers(const struct sbp_arguments *arguments)
{
    const struct sbp_degrees *d = &arguments->degrees;
    return d->tensor > 0 || d->data > 0 || d->context > 0 || d->expert > 0 ||
           d->expert_tensor > 0 || d->sequence_parallel;
}

bool sbp_degree_options_given(const struct sbp_arguments *arguments)
{
    const struct sbp_degrees *d = &arguments->degrees;
    return sbp_degree_options_of_layers(arguments) || d->pipeline > 0 || d->chunks > 0 ||
           d->micro_batch > 0 || d->zero != SBP_ANY || d->recompute != SBP_ANY;
}

/* Takes over a key unless --set gives it. */
static enum sbp_status put(struct sbp_settings *settings, const char *option, const char *key,
                           struct cJSON *value, struct sbp_diag *diag)
{
    const bool given = cJSON_GetObjectItemCaseSensitive(settings->parallel, key) != NULL;
    if (value != NULL && !given && cJSON_AddItemToObject(settings->parallel, key, value))
        return SBP_OK;
    cJSON_Delete(value);
    return given ? sbp_fail(diag, SBP_E_USAGE, "%s: --set %s says the same, one of them is legal",
                            option, key)
                 : sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

static enum sbp_status put_whole(struct sbp_settings *settings, const char *option, const char *key,
                                 int64_t value, struct sbp_diag *diag)
{
    return put(settings, option, key, cJSON_CreateNumber((double)value), diag);
}

/* The schedule that --set gives, if it is one without a flush; else NULL. */
static const char *given_cyclic(const struct sbp_settings *settings)
{
    const char *given =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(settings->parallel, "schedule"));
    for (int schedule = 0; given != NULL && schedule < SBP_SCHEDULES; schedule++)
        if (sbp_timeline_delays_gradients((enum sbp_schedule)schedule) &&
            strcmp(given, sbp_timeline_schedule_name((enum sbp_schedule)schedule)) == 0)
            return given;
    return NULL;
}

/* Several chunks are an interleaved schedule, unless --set says another; all stages of a cyclic one
 * are chunks of one stage, or of each replica. */
static enum sbp_status put_chunks(struct sbp_settings *settings, int64_t chunks,
                                  struct sbp_diag *diag)
{
    const char *interleaved = sbp_timeline_schedule_name(SBP_INTERLEAVED);
    const struct cJSON *pipeline = cJSON_GetObjectItemCaseSensitive(settings->parallel, "pipeline");
    const char *cyclic = given_cyclic(settings);
    if (chunks < 2)
        return SBP_OK;
    if (cyclic != NULL && cJSON_IsNumber(pipeline) && pipeline->valuedouble > 1 &&
        (int64_t)pipeline->valuedouble != chunks)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--vpp: under schedule %s stages are a pipeline of one piece each, pieces "
                        "on the same devices, or all on each of as many replicas: legal are --vpp "
                        "1, --pp 1, --vpp %lld, or schedule %s",
                        cyclic, (long long)pipeline->valuedouble, interleaved);
    SBP_TRY(put_whole(settings, "--vpp", "chunks", chunks, diag));
    if (cJSON_GetObjectItemCaseSensitive(settings->parallel, "schedule") != NULL)
        return SBP_OK;
    return put(settings, "--vpp", "schedule", cJSON_CreateString(interleaved), diag);
}

enum sbp_status sbp_degree_options_check_micro_batch(const struct sbp_settings *settings,
                                                     struct sbp_diag *diag)
{
    if (cJSON_GetObjectItemCaseSensitive(settings->parallel, "micro_batch") == NULL)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_USAGE,
                    "--set micro_batch: counts the sequences of all replicas; beside degrees "
                    "--micro-batch N is legal, which counts those of one");
}

enum sbp_status sbp_degree_options_put(const struct sbp_arguments *arguments,
                                       struct sbp_settings *settings, struct sbp_diag *diag)
{
    const struct sbp_degrees *d = &arguments->degrees;
    if (sbp_degree_options_of_layers(arguments) || d->micro_batch > 0)
        SBP_TRY(sbp_degree_options_check_micro_batch(settings, diag));
    if (settings->micro_batch_per_replica > 0 &&
        (d->micro_batch > 0 || !sbp_degree_options_given(arguments)))
        return sbp_fail(diag, SBP_E_USAGE, "--set micro_batch_per_replica: %s",
                        d->micro_batch > 0
                            ? "--micro-batch says the same, one of them is legal"
                            : "degrees say how many replicas there are, legal beside --tp, --dp or "
                              "--pp; micro_batch counts the sequences of all replicas");
    if (d->pipeline > 0)
        SBP_TRY(put_whole(settings, "--pp", "pipeline", d->pipeline, diag));
    if (d->zero != SBP_ANY)
        SBP_TRY(put_whole(settings, "--zero", "zero", d->zero, diag));
    if (d->recompute != SBP_ANY)
        SBP_TRY(
            put(settings, "--recompute", "recompute",
                cJSON_CreateString(sbp_parallel_recompute_name((enum sbp_recompute)d->recompute)),
                diag));
    return put_chunks(settings, d->chunks, diag);
}

struct sbp_degrees sbp_degree_options_all(const struct sbp_arguments *arguments,
                                          const struct sbp_settings *settings)
{
    struct sbp_degrees degrees = arguments->degrees;
    if (settings->micro_batch_per_replica > 0)
        degrees.micro_batch = settings->micro_batch_per_replica;
    return degrees;
}

/* The option that gave a key of the step; NULL: --set did. */
static const char *option_of(const struct sbp_degrees *d, const char *key)
{
    const struct {
        const char *key, *option;
        bool given;
    } steps[] = {{"pipeline: ", "--pp", d->pipeline > 0},
                 {"chunks: ", "--vpp", d->chunks > 1},
                 {"micro_batch: schedule", "--vpp", d->chunks > 1},
                 {"zero: ", "--zero", d->zero != SBP_ANY}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].given && strncmp(key, steps[i].key, strlen(steps[i].key)) == 0)
            return steps[i].option;
    return NULL;
}

enum sbp_status sbp_degree_options_refuse(const struct sbp_arguments *arguments,
                                          enum sbp_status status, const struct sbp_diag *why,
                                          struct sbp_diag *diag)
{
    static const char DEGREES[] = "degrees: ", PARALLEL[] = "parallel: ";
    const char *option = NULL, *key = why->text + strlen(PARALLEL);
    if (strncmp(why->text, DEGREES, strlen(DEGREES)) == 0)
        return sbp_fail(diag, status, "%s%s", arguments->megatron == NULL ? "--" : "--megatron: ",
                        why->text + strlen(DEGREES));
    if (strncmp(why->text, PARALLEL, strlen(PARALLEL)) == 0)
        option = option_of(&arguments->degrees, key);
    if (option == NULL)
        return sbp_inputs_refuse(NULL, status, why, diag);
    return sbp_fail(diag, status, "%s: %s", option, strchr(key, ':') + 2);
}

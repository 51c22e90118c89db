#include <stdio.h>

#include "planner/cli/degree_options.h"
#include "planner/cli/outputs.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"
#include "planner/degrees/megatron.h"

#define NO_LIMIT (INT64_C(1) << 60)

/* ---- what is priced ------------------------------------------------------------------------- */

/* A price begins as a search of one cut. A plan that does not fit is priced as well, and the report
 * says so. */
static void begin_request(struct sbp_search_job *job)
{
    job->request = sbp_search_request(job->arguments, &job->settings);
    /* Boxing by the paper's rule exists in the AutoDDL space alone. */
    job->request.space =
        job->settings.boxing == SBP_BOXING_PAPER ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL;
    job->request.given = ~0u; /* the cut of the step is not searched */
    job->request.memory_limit_bytes = NO_LIMIT;
    job->may_be_too_large = true;
}

/* A strategy file: only where outputs rest is searched. */
static enum sbp_status take_file(struct sbp_search_job *job, struct sbp_diag *diag)
{
    const char *file = job->arguments->strategy;
    char text[256];
    SBP_TRY(sbp_inputs_read_around(&job->plan, &job->settings, file, diag));
    begin_request(job);
    (void)snprintf(text, sizeof text, "%.200s says", file);
    job->priced = sbp_arena_strdup(&job->arena, text);
    if (job->priced == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    return sbp_fixes_read(&job->plan, file, &job->arena, &job->request.fix, &job->request.fix_count,
                          diag);
}

static enum sbp_status take_degrees(struct sbp_search_job *job, struct sbp_megatron_flags *flags,
                                    struct sbp_diag *diag)
{
    const bool megatron = job->arguments->megatron != NULL;
    struct sbp_degrees degrees = sbp_degree_options_all(job->arguments, &job->settings);
    SBP_TRY(sbp_degree_options_check_micro_batch(&job->settings, diag));
    begin_request(job);
    job->priced = megatron ? "the flags of Megatron-LM say" : "the degrees say";
    if (megatron)
        SBP_TRY(sbp_megatron_check(flags, job->plan.workload.model_json, &job->plan.workload.model,
                                   diag));
    for (int i = 0; i < flags->note_count; i++)
        SBP_TRY(sbp_search_job_note(job, flags->note[i], diag));
    if (megatron)
        degrees = flags->degrees; /* with what the model's layers say */
    return sbp_search_job_take_degrees(job, &degrees, diag);
}

/* Prices what the arguments say. */
static enum sbp_status price(struct sbp_search_job *job, struct sbp_megatron_flags *flags,
                             struct sbp_diag *diag)
{
    const char *file = job->arguments->strategy;
    SBP_TRY(file != NULL ? take_file(job, diag) : take_degrees(job, flags, diag));
    struct sbp_diag why = {{0}};
    const enum sbp_status status = sbp_search_job_run(job, 1, &why);
    if (status != SBP_OK)
        return sbp_inputs_refuse(file, status, &why, diag);
    job->request.memory_limit_bytes = job->arguments->memory_limit_bytes;
    return sbp_search_answer(job, diag);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static enum sbp_status check_arguments(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const int given = (arguments->strategy != NULL) + (arguments->megatron != NULL) +
                      sbp_degree_options_given(arguments);
    if (given == 0)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan price: nothing says what to price: --tp, --pp, ... , --megatron "
                        "FLAGS or --strategy FILE is needed, see sbplan price --help");
    if (given > 1)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan price: degrees, --megatron and --strategy each say what to price, "
                        "one of them is legal");
    if (arguments->degrees.chunks > 1 && arguments->degrees.pipeline == 0)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan price: --vpp: several pieces a stage take turns with other "
                        "stages, legal with --pp 2 and more");
    return arguments->strategy == NULL
               ? SBP_OK
               : sbp_outputs_check_input(arguments, arguments->strategy, diag);
}

/* Reads the flags of Megatron-LM and makes them arguments: degrees, and the batch as a --set before
 * the others. */
static enum sbp_status read_flags(struct sbp_arguments *arguments, struct sbp_arena *arena,
                                  struct sbp_megatron_flags *flags, struct sbp_diag *diag)
{
    char word[64];
    SBP_TRY(sbp_megatron_read(arguments->megatron, flags, diag));
    arguments->degrees = flags->degrees;
    if (flags->global_batch == 0)
        return SBP_OK;
    const char **words = SBP_NEW(arena, const char *, arguments->set.count + 1);
    (void)snprintf(word, sizeof word, "global_batch=%lld", (long long)flags->global_batch);
    const char *copy = sbp_arena_strdup(arena, word);
    if (words == NULL || copy == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    words[0] = copy;
    for (int i = 0; i < arguments->set.count; i++)
        words[i + 1] = arguments->set.word[i];
    arguments->set.word = words;
    arguments->set.count++;
    return SBP_OK;
}

enum sbp_status sbp_command_price(const struct sbp_arguments *given, struct sbp_diag *diag)
{
    struct sbp_arguments arguments = *given; /* its arena stays the caller's */
    struct sbp_search_job job = {.arguments = &arguments};
    struct sbp_megatron_flags flags = {.note_count = 0};
    SBP_TRY(check_arguments(given, diag));
    enum sbp_status status =
        given->megatron == NULL ? SBP_OK : read_flags(&arguments, &job.arena, &flags, diag);
    if (status == SBP_OK)
        status =
            sbp_inputs_read(&arguments, SBP_SPACE_FULL, &job.arena, &job.settings, &job.plan, diag);
    if (status == SBP_OK)
        status = price(&job, &flags, diag);
    sbp_search_job_free(&job);
    return status;
}

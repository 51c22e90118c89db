#include "planner/cli/outputs.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"

#define NO_LIMIT (INT64_C(1) << 60)

/* Prices a strategy: only where outputs rest is searched. A plan that does not fit is priced as
 * well, and the report says so. */
static enum sbp_status price(struct sbp_search_job *job, struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = job->arguments;
    SBP_TRY(sbp_inputs_read_around(&job->plan, &job->settings, arguments->strategy, diag));
    job->request = sbp_search_request(arguments, &job->settings);
    /* Boxing by the paper's rule exists in the AutoDDL space alone. */
    job->request.space =
        job->settings.boxing == SBP_BOXING_PAPER ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL;
    job->request.given = ~0u; /* the cut of the step is not searched */
    job->request.memory_limit_bytes = NO_LIMIT;
    job->may_be_too_large = true;
    SBP_TRY(sbp_fixes_read(&job->plan, arguments->strategy, &job->arena, &job->request.fix,
                           &job->request.fix_count, diag));
    struct sbp_diag why = {{0}};
    const enum sbp_status status = sbp_search_job_run(job, 1, &why);
    if (status != SBP_OK)
        return sbp_inputs_refuse(arguments->strategy, status, &why, diag);
    job->request.memory_limit_bytes = arguments->memory_limit_bytes;
    return sbp_search_answer(job, diag);
}

enum sbp_status sbp_command_price(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_search_job job = {.arguments = arguments};
    if (arguments->strategy == NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan price: --strategy FILE is needed, see sbplan price --help");
    SBP_TRY(sbp_outputs_check_input(arguments, arguments->strategy, diag));
    enum sbp_status status =
        sbp_inputs_read(arguments, SBP_SPACE_FULL, &job.arena, &job.settings, &job.plan, diag);
    if (status == SBP_OK)
        status = price(&job, diag);
    sbp_search_job_free(&job);
    return status;
}

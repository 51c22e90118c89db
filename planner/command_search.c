#include "planner/search_run.h"

static enum sbp_status search(struct sbp_search_job *job, struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = job->arguments;
    job->request = sbp_search_request(arguments, &job->settings);
    SBP_TRY(sbp_fixes_parse(&job->plan, &arguments->fix, &job->arena, &job->request.fix,
                            &job->request.fix_count, diag));
    SBP_TRY(sbp_search_run(&job->plan, &job->request, &job->outcome, diag));
    return sbp_search_answer(job, diag);
}

enum sbp_status sbp_command_search(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_search_job job = {.arguments = arguments};
    enum sbp_status status = sbp_inputs_read(arguments, &job.arena, &job.settings, &job.plan, diag);
    if (status == SBP_OK)
        status = search(&job, diag);
    sbp_search_job_free(&job);
    return status;
}

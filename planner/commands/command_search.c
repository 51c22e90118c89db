#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"

/* Writes the search as a problem for `solve` and other solvers. */
static enum sbp_status write_problem(const struct sbp_search_job *job, struct sbp_diag *diag)
{
    const struct sbp_solve_request request = {.asked = job->request};
    struct sbp_problem problem;
    enum sbp_status status = sbp_inner_problem(&job->plan.cut, &request, &problem, diag);
    if (status == SBP_STOPPED)
        return sbp_fail(diag, SBP_E_IO, "%s: interrupted before the problem was written",
                        job->arguments->problem);
    SBP_TRY(status);
    status = sbp_problem_write(&problem, job->arguments->problem, diag);
    sbp_problem_free(&problem);
    return status;
}

static enum sbp_status search(struct sbp_search_job *job, struct sbp_diag *diag)
{
    SBP_TRY(sbp_top_check_options(job->arguments, diag));
    SBP_TRY(sbp_search_job_open(job, diag));
    if (job->arguments->problem != NULL)
        SBP_TRY(write_problem(job, diag));
    const int most = job->arguments->top > 1 ? (int)job->arguments->top : 1;
    struct sbp_diag why = {{0}};
    const enum sbp_status status = sbp_search_job_run(job, most, &why);
    return status == SBP_OK ? sbp_search_answer(job, diag)
                            : sbp_inputs_refuse(NULL, status, &why, diag);
}

enum sbp_status sbp_command_search(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_search_job job = {.arguments = arguments};
    if (arguments->sweep.count > 0)
        return sbp_command_sweep(arguments, diag);
    const enum sbp_status status = search(&job, diag);
    sbp_search_job_free(&job);
    return status;
}

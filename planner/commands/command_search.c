#include <string.h>

#include "planner/cli/degree_options.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"
#include "planner/export/export.h"

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

/* A target leaves the user one key of the step, the micro-batch. */
static enum sbp_status check_keys(const struct sbp_word_list *words, struct sbp_diag *diag)
{
    for (int i = 0; i < words->count; i++)
        for (const char *const *key = sbp_parallel_keys(); *key != NULL; key++) {
            const size_t length = strlen(*key);
            if (strncmp(words->word[i], *key, length) == 0 && words->word[i][length] == '=' &&
                strcmp(*key, "micro_batch") != 0)
                return sbp_fail(diag, SBP_E_USAGE,
                                "sbplan search: --target says %s, of the step's keys micro_batch "
                                "alone is legal beside it",
                                *key);
        }
    return SBP_OK;
}

/* Layouts leave no layer to fix, have no one problem, and are ranked by the best plan alone. */
static enum sbp_status check_layouts(const struct sbp_arguments *arguments,
                                     const struct sbp_export_search *kept, struct sbp_diag *diag)
{
    const bool asks_more =
        arguments->fix.count > 0 || arguments->problem != NULL || arguments->top > 1;
    if (!kept->layouts || !asks_more)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_USAGE,
                    "sbplan search: --target %s searches layouts, in which all layers are split "
                    "alike, legal without --fix, --problem and --top",
                    sbp_export_search_name(arguments->target));
}

/* Makes what a target can express arguments: the space, and keys before those of --set. */
static enum sbp_status keep_to_target(struct sbp_arguments *arguments, struct sbp_arena *arena,
                                      struct sbp_diag *diag)
{
    if (arguments->target < 0)
        return SBP_OK;
    const struct sbp_export_search *kept =
        sbp_export_search(sbp_export_search_target(arguments->target));
    int count = 0;
    if (kept->all)
        return SBP_OK;
    SBP_TRY(check_layouts(arguments, kept, diag));
    if (arguments->space >= 0 || sbp_degree_options_given(arguments))
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan search: --target says the space of strategies, legal without "
                        "--space and without degrees");
    SBP_TRY(check_keys(&arguments->set, diag));
    SBP_TRY(check_keys(&arguments->sweep, diag));
    while (kept->set[count] != NULL)
        count++;
    const char **words = SBP_NEW(arena, const char *, count + arguments->set.count + 1);
    if (words == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < count; i++)
        words[i] = kept->set[i];
    for (int i = 0; i < arguments->set.count; i++)
        words[count + i] = arguments->set.word[i];
    arguments->set.word = words;
    arguments->set.count += count;
    arguments->space = (int)kept->space;
    return SBP_OK;
}

enum sbp_status sbp_command_search(const struct sbp_arguments *given, struct sbp_diag *diag)
{
    struct sbp_arguments arguments = *given; /* its arena stays the caller's */
    struct sbp_search_job job = {.arguments = &arguments};
    enum sbp_status status = keep_to_target(&arguments, &job.arena, diag);
    if (status == SBP_OK)
        status =
            arguments.sweep.count > 0 ? sbp_command_sweep(&arguments, diag) : search(&job, diag);
    sbp_search_job_free(&job);
    return status;
}

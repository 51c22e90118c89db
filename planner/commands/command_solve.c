#include <math.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "planner/cli/inputs.h"
#include "planner/commands/commands.h"
#include "planner/plan/input_kind.h"
#include "planner/solvers/solver.h"

struct answer {
    const struct sbp_arguments *arguments;
    const struct sbp_problem *problem;
    const struct sbp_solver *solver;
    struct sbp_solution solution;
    double peak_usage;
};

static void show_progress(void *context, int64_t evaluations, double best, double elapsed_s)
{
    char count[32];
    sbp_progress_show(context, "solving: %s evaluations, best %.9g, %.0f s",
                      sbp_format_count((double)evaluations, count), best, elapsed_s);
}

static enum sbp_status solve(struct answer *answer, struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = answer->arguments;
    struct sbp_progress progress;
    struct sbp_diag refusal = {0};
    const struct sbp_solver_options options = {.seed = (uint64_t)arguments->seed,
                                               .time_limit_s = arguments->time_limit_s.most,
                                               .max_evaluations = arguments->max_evaluations,
                                               .restarts = (int)arguments->restarts,
                                               .uses_time = true,
                                               .stop = arguments->stop,
                                               .progress = show_progress,
                                               .progress_context = &progress};
    sbp_progress_start(&progress);
    const enum sbp_status status = sbp_solver_solve_reduced(
        arguments->algorithm == 0 ? NULL : &sbp_solvers[arguments->algorithm - 1], answer->problem,
        &options, &answer->solution, &answer->solver, &refusal);
    sbp_progress_end(&progress);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s: %s", arguments->operands.word[0], refusal.text);
    if (answer->solution.choice != NULL)
        answer->peak_usage = sbp_problem_peak_usage(answer->problem, answer->solution.choice);
    return SBP_OK;
}

static enum sbp_status print_text(const struct answer *answer)
{
    const struct sbp_problem *problem = answer->problem;
    const struct sbp_solution *solution = &answer->solution;
    char count[32], wall[32];
    SBP_PRINT("problem    %d variables, %d edges", problem->variable_count, problem->edge_count);
    if (isfinite(problem->capacity))
        SBP_PRINT(", capacity %.9g", problem->capacity);
    SBP_PRINT("\nsolver     %s: %s%s, %s evaluations in %s, seed %lld\n", answer->solver->name,
              sbp_solver_status_name(solution->status), solution->stopped ? ", stopped early" : "",
              sbp_format_count((double)solution->evaluations, count),
              sbp_format_seconds(solution->wall_s, wall), (long long)answer->arguments->seed);
    if (solution->choice != NULL)
        SBP_PRINT("cost       %.12g\n", solution->cost);
    if (solution->choice != NULL && isfinite(solution->lower_bound))
        SBP_PRINT("bound      %.12g\n", solution->lower_bound);
    if (solution->choice != NULL && isfinite(problem->capacity))
        SBP_PRINT("usage      %.9g at most\n", answer->peak_usage);
    if (solution->status == SBP_PLAN_INFEASIBLE)
        SBP_PRINT("shortfall  %.9g over the capacity at least\n", solution->shortfall);
    return SBP_OK;
}

static enum sbp_status print_json(const struct answer *answer, struct sbp_diag *diag)
{
    const struct sbp_solution *solution = &answer->solution;
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    sbp_json_put_text(json, "status", sbp_solver_status_name(solution->status), &failed);
    sbp_json_put_bool(json, "stopped", solution->stopped, &failed);
    sbp_json_put_text(json, "algorithm", answer->solver->name, &failed);
    sbp_json_put_number(json, "seed", (double)answer->arguments->seed, &failed);
    sbp_json_put_number(json, "cost", solution->cost, &failed);
    sbp_json_put_number(json, "lower_bound", solution->lower_bound, &failed);
    sbp_json_put_number(json, "evaluations", (double)solution->evaluations, &failed);
    sbp_json_put_number(json, "wall_s", solution->wall_s, &failed);
    sbp_json_put_number(json, "variables", answer->problem->variable_count, &failed);
    sbp_json_put_number(json, "edges", answer->problem->edge_count, &failed);
    sbp_json_put_number(json, "capacity", answer->problem->capacity, &failed);
    sbp_json_put_number(json, "shortfall", solution->shortfall, &failed);
    if (solution->choice != NULL) {
        sbp_json_put_number(json, "peak_usage", answer->peak_usage, &failed);
        struct cJSON *choice = sbp_json_put_array(json, "choice", &failed);
        for (int i = 0; i < answer->problem->variable_count && !failed; i++)
            sbp_json_push_number(choice, solution->choice[i], &failed);
    }
    struct cJSON *curve = sbp_json_put_array(json, "curve", &failed);
    for (int i = 0; i < solution->curve_count && !failed; i++) {
        struct cJSON *point = sbp_json_push_object(curve, &failed);
        sbp_json_put_number(point, "evaluations", (double)solution->curve[i].evaluations, &failed);
        sbp_json_put_number(point, "elapsed_s", solution->curve[i].elapsed_s, &failed);
        sbp_json_put_number(point, "best", solution->curve[i].best, &failed);
    }
    return sbp_json_finish(json, failed, diag);
}

/* Reads the problem; another file of sbplan's, or a model's name, in its place is called by its
 * kind. */
static enum sbp_status read_problem(const char *path, struct sbp_problem *problem,
                                    struct sbp_diag *diag)
{
    struct sbp_diag why = {{0}};
    struct cJSON *root = NULL;
    struct sbp_json at;
    const enum sbp_status status = sbp_problem_read(path, problem, &why);
    if (status == SBP_OK)
        return SBP_OK;
    if (status == SBP_E_INPUT)
        SBP_TRY(sbp_input_kind_open(path, SBP_INPUT_PROBLEM, &root, &at, diag));
    cJSON_Delete(root);
    return sbp_inputs_refuse_name(path, "problem", "--problem FILE", status, &why, diag);
}

enum sbp_status sbp_command_solve(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_problem problem;
    SBP_TRY(read_problem(arguments->operands.word[0], &problem, diag));
    struct answer answer = {.arguments = arguments, .problem = &problem};
    enum sbp_status status = solve(&answer, diag);
    if (status == SBP_OK)
        status = arguments->json ? print_json(&answer, diag) : print_text(&answer);
    if (status == SBP_OK && answer.solution.choice == NULL)
        status = SBP_NO;
    sbp_solver_solution_free(&answer.solution);
    sbp_problem_free(&problem);
    return status;
}

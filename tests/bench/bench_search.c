/* Times whole searches: from a model and a cluster to a labelled, compiled and priced plan.
 *
 * First the paper's chain with every tuple legal (68.6 million assignments), solver by solver; then
 * shipped models on shipped clusters through solve_plan, which adds enumerating, labelling and
 * compiling to the solver's time; then chains of different layers, with all their memory and with
 * three fifths of what the plan then takes. Prints tables; checks nothing but that plans were
 * found.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "../oracle/perceptron.h"
#include "base/math/random.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/inner/cut_solve.h"
#include "tests/support/solve_plan.h"

enum { REPETITIONS = 3 };

static const char *const chain_solvers[] = {"exhaustive", "exact", "coordinate-descent",
                                            "metropolis-hastings"};

/* ---- the chain ------------------------------------------------------------------------------ */

/* The fastest of a few runs; evaluations and cost are the same in each. */
static enum sbp_status time_solver(const struct sbp_solver *solver,
                                   const struct sbp_problem *problem, struct sbp_table *table,
                                   struct sbp_diag *diag)
{
    const struct sbp_solver_options options = {.seed = 0};
    struct sbp_solution solution;
    double best_s = 0;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        SBP_TRY(solver->solve(problem, &options, &solution, diag));
        if (repetition == 0 || solution.wall_s < best_s)
            best_s = solution.wall_s;
        if (repetition + 1 < REPETITIONS)
            sbp_solver_solution_free(&solution);
    }
    sbp_table_cell(table, "%s", solver->name);
    sbp_table_cell(table, "%s", sbp_solver_status_name(solution.status));
    sbp_table_cell(table, "%.7f", solution.cost * 1e3);
    sbp_table_cell(table, "%.2f", best_s * 1e3);
    sbp_table_cell(table, "%" PRId64, solution.evaluations);
    sbp_table_cell(table, "%.3g", (double)solution.evaluations / best_s);
    sbp_solver_solution_free(&solution);
    return SBP_OK;
}

static enum sbp_status bench_chain(struct sbp_diag *diag)
{
    static const char *const titles[] = {"solver",    "status",      "cost (ms)",
                                         "time (ms)", "evaluations", "evaluations/s"};
    const size_t solvers = sizeof chain_solvers / sizeof *chain_solvers;
    struct sbp_problem problem;
    struct sbp_table table;
    sbp_table_init(&table, 6, titles);
    enum sbp_status status = perceptron_build(&problem, 12, 1024);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", sbp_status_text(status));
    for (size_t i = 0; status == SBP_OK && i < solvers; i++)
        status = time_solver(sbp_solver_find(chain_solvers[i]), &problem, &table, diag);
    if (status == SBP_OK) {
        printf("perceptron 32768-16384-4096-2048-512 on 4096 devices, all 91^4 tuples, one core\n");
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    sbp_problem_free(&problem);
    return status;
}

/* ---- whole searches ------------------------------------------------------------------------- */

struct search_case {
    const char *model, *cluster;
    enum sbp_space_kind space;
    const char *solver;
    enum sbp_objective objective;
    int64_t memory_limit_bytes; /* 0: the cluster's */
};

#define TB ((int64_t)1 << 40)
static const struct search_case cases[] = {
    {"autoddl-mlp", "flat-128", SBP_SPACE_AUTODDL, "exhaustive", SBP_COMMUNICATION, 0},
    {"autoddl-mlp", "flat-128", SBP_SPACE_AUTODDL, "exact", SBP_COMMUNICATION, 0},
    {"autoddl-mlp", "flat-4096", SBP_SPACE_AUTODDL, "exhaustive", SBP_COMMUNICATION, 0},
    {"autoddl-mlp", "flat-4096", SBP_SPACE_AUTODDL, "exact", SBP_COMMUNICATION, 0},
    {"autoddl-mlp", "flat-4096", SBP_SPACE_AUTODDL, "coordinate-descent", SBP_COMMUNICATION, 0},
    {"autoddl-mlp", "flat-4096", SBP_SPACE_AUTODDL, "metropolis-hastings", SBP_COMMUNICATION, 0},
    {"gpt2-medium", "gcp-a100-2x16", SBP_SPACE_AUTODDL, "exact", SBP_STEP_TIME, 0},
    {"gpt2-medium", "gcp-a100-2x16", SBP_SPACE_FULL, "exact", SBP_STEP_TIME, 0},
    {"gpt3-175b", "dgx-a100-8x8", SBP_SPACE_AUTODDL, "exact", SBP_STEP_TIME, 64 * TB},
    {"gpt3-175b", "dgx-a100-8x8", SBP_SPACE_FULL, "exact", SBP_STEP_TIME, 64 * TB},
};

static enum sbp_status read_config(const char *folder, const char *name, char *path, size_t size,
                                   struct cJSON **json, struct sbp_diag *diag)
{
    struct sbp_json at;
    (void)snprintf(path, size, "%s/configs/%s/%s.json", SBP_SOURCE_ROOT, folder, name);
    return sbp_json_open(path, json, &at, diag);
}

static enum sbp_status begin_plan(const struct search_case *c, struct sbp_plan *plan,
                                  struct sbp_diag *diag)
{
    char model_path[512], cluster_path[512];
    struct cJSON *model = NULL, *cluster = NULL;
    SBP_TRY(read_config("models", c->model, model_path, sizeof model_path, &model, diag));
    const enum sbp_status status =
        read_config("clusters", c->cluster, cluster_path, sizeof cluster_path, &cluster, diag);
    if (status != SBP_OK) {
        cJSON_Delete(model);
        return status;
    }
    return sbp_plan_begin(model, model_path, cluster, cluster_path, plan, diag);
}

static enum sbp_status time_search(const struct search_case *c, struct sbp_table *table,
                                   struct sbp_diag *diag)
{
    const struct sbp_request request = {.space = c->space,
                                        .solver = sbp_solver_find(c->solver),
                                        .objective = c->objective,
                                        .memory_limit_bytes = c->memory_limit_bytes};
    struct sbp_outcome outcome = {0};
    double best_s = 0;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        struct sbp_plan plan;
        SBP_TRY(begin_plan(c, &plan, diag));
        const enum sbp_status status = solve_plan(&plan, &request, &outcome, diag);
        sbp_plan_free(&plan);
        SBP_TRY(status);
        if (repetition == 0 || outcome.wall_s < best_s)
            best_s = outcome.wall_s;
    }
    sbp_table_cell(table, "%s", c->model);
    sbp_table_cell(table, "%s", c->cluster);
    sbp_table_cell(table, "%s", sbp_request_space_name(c->space));
    sbp_table_cell(table, "10^%.1f", outcome.space_size_log10);
    sbp_table_cell(table, "%s", outcome.algorithm);
    sbp_table_cell(table, "%s", sbp_solver_status_name(outcome.status));
    sbp_table_cell(table, "%.7g", outcome.objective_s * 1e3);
    sbp_table_cell(table, "%.2f", best_s * 1e3);
    sbp_table_cell(table, "%.3g", (double)outcome.evaluations / best_s);
    return SBP_OK;
}

static enum sbp_status bench_searches(struct sbp_diag *diag)
{
    static const char *const titles[] = {"model",      "cluster",   "space",
                                         "strategies", "algorithm", "status",
                                         "cost (ms)",  "time (ms)", "evaluations/s"};
    struct sbp_table table;
    sbp_table_init(&table, 9, titles);
    enum sbp_status status = SBP_OK;
    for (size_t i = 0; status == SBP_OK && i < sizeof cases / sizeof *cases; i++)
        status = time_search(&cases[i], &table, diag);
    if (status == SBP_OK) {
        printf("\nwhole searches, one core\n");
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    return status;
}

/* ---- long chains ----------------------------------------------------------------------------- */

/* Linear layers of different sizes, seeded: widths are multiples of 64, so that every split
 * divides. */
static enum sbp_status make_chain(int layers, struct sbp_plan *plan, struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    struct sbp_random random;
    char cluster_path[512];
    struct cJSON *cluster = NULL;
    sbp_random_seed(&random, 0);
    sbp_text_add(&text, "{\"name\": \"chain\", \"global_batch\": 4096, \"precision\": \"mixed\", "
                        "\"layers\": [");
    for (int i = 0, in = 1024; i < layers; i++) {
        const int out = 64 * (4 + (int)sbp_random_below(&random, 21));
        sbp_text_add(&text, "%s{\"op\": \"linear\", \"name\": \"fc%d\", \"in\": %d, \"out\": %d}",
                     i > 0 ? ", " : "", i, in, out);
        in = out;
    }
    sbp_text_add(&text, "]}");
    struct cJSON *model = text.failed ? NULL : cJSON_Parse(text.bytes);
    sbp_text_free(&text);
    if (model == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const enum sbp_status status =
        read_config("clusters", "dgx-a100-8x8", cluster_path, sizeof cluster_path, &cluster, diag);
    if (status != SBP_OK) {
        cJSON_Delete(model);
        return status;
    }
    return sbp_plan_begin(model, "chain", cluster, cluster_path, plan, diag);
}

/* One search; *device_bytes: of its plan. */
static enum sbp_status time_long_chain(int layers, int64_t limit_bytes, struct sbp_table *table,
                                       int64_t *device_bytes, struct sbp_diag *diag)
{
    const struct sbp_solve_request request = {
        .asked = {.space = SBP_SPACE_FULL, .memory_limit_bytes = limit_bytes},
        .zero_is_free = true};
    struct sbp_outcome outcome;
    struct sbp_plan plan;
    struct sbp_step step;
    SBP_TRY(make_chain(layers, &plan, diag));
    const double start_s = (double)clock() / CLOCKS_PER_SEC;
    enum sbp_status status = solve_as(&plan, &request, &outcome, diag);
    const double user_s = (double)clock() / CLOCKS_PER_SEC - start_s;
    if (status == SBP_OK && isinf(outcome.objective_s))
        status = sbp_fail(diag, SBP_E_UNSUPPORTED, "%d layers: no plan was found", layers);
    if (status == SBP_OK)
        status = sbp_cut_step(&plan.cut, &plan.strategy, false, &step, diag);
    if (status == SBP_OK) {
        *device_bytes = step.totals.device_bytes;
        sbp_table_cell(table, "%d", layers);
        sbp_table_cell(table, limit_bytes > 0 ? "3/5" : "all");
        sbp_table_cell(table, "%s", sbp_solver_status_name(outcome.status));
        sbp_table_cell(table, "%.7g", outcome.objective_s * 1e3);
        sbp_table_cell(table, "%.3g", 100 * (outcome.objective_s / outcome.lower_bound_s - 1));
        sbp_table_cell(table, "%.2f", user_s);
        sbp_step_free(&step);
    }
    sbp_plan_free(&plan);
    return status;
}

static enum sbp_status bench_long_chains(struct sbp_diag *diag)
{
    static const char *const titles[] = {"layers",    "memory",  "status",
                                         "cost (ms)", "gap (%)", "processor (s)"};
    static const int lengths[] = {10, 100, 1000};
    struct sbp_table table;
    sbp_table_init(&table, 6, titles);
    enum sbp_status status = SBP_OK;
    for (int i = 0; status == SBP_OK && i < 3; i++) {
        int64_t bytes = 0;
        status = time_long_chain(lengths[i], 0, &table, &bytes, diag);
        if (status == SBP_OK)
            status = time_long_chain(lengths[i], bytes / 5 * 3, &table, &bytes, diag);
    }
    if (status == SBP_OK) {
        printf("\nchains of different linear layers on 8 x 8 devices, one stage, one core\n");
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    return status;
}

int main(void)
{
    struct sbp_diag diag = {{0}};
    enum sbp_status status = bench_chain(&diag);
    if (status == SBP_OK)
        status = bench_searches(&diag);
    if (status == SBP_OK)
        status = bench_long_chains(&diag);
    if (status != SBP_OK)
        fprintf(stderr, "bench_search: %s\n", diag.text);
    return sbp_status_exit_code(status);
}

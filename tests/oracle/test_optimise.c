/* The search against every labelled strategy, closed, compiled and priced one by one; against
 * closed formulas of AutoDDL; and against the numbers of its perceptron and attention layer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json.h"
#include "labelled.h"
#include "planner/optimise.h"
#include "small_models.h"

/* Sums in another order differ by this share. */
#define CLOSE 1e-9

static bool is_close(double a, double b)
{
    return fabs(a - b) <= CLOSE * fmax(fabs(a), fabs(b));
}

/* --- plans from text and from shipped files --- */

static void begin(cJSON *model, cJSON *cluster, struct sbp_plan *plan)
{
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(model, "model", cluster, "cluster", plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

static cJSON *parse(const char *text)
{
    cJSON *root = cJSON_Parse(text);
    if (root == NULL)
        fail_msg("no JSON: %s", text);
    return root;
}

static cJSON *shipped(const char *folder, const char *name)
{
    const char *const source = getenv("SBP_SOURCE_ROOT");
    char path[1024];
    snprintf(path, sizeof path, "%s/configs/%s/%s.json", source != NULL ? source : ".", folder,
             name);
    struct sbp_diag diag = {{0}};
    struct sbp_json at;
    cJSON *root = NULL;
    if (sbp_json_open(path, &root, &at, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return root;
}

static void set_number(cJSON *object, const char *key, double value)
{
    cJSON_DeleteItemFromObject(object, key);
    assert_non_null(cJSON_AddNumberToObject(object, key, value));
}

static struct sbp_totals totals_of(const struct sbp_plan *plan)
{
    struct sbp_program program;
    struct sbp_diag diag = {{0}};
    if (sbp_plan_compile(plan, &program, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_totals totals = sbp_program_totals(&program, &plan->cluster);
    sbp_program_free(&program);
    return totals;
}

/* --- one instance against all its labelled strategies --- */

struct instance {
    uint64_t seed;
    int outer, inner;
    struct small_model model;
    struct sbp_request request;
    struct sbp_plan plan;
};

struct tally {
    int run, optimal, loose, infeasible, refused, skipped;
    int64_t strategies;
    double plan_gap, bound_gap; /* largest, as shares of the brute force's least */
    int plans_off, bounds_off;
};

static void describe(const struct instance *instance, char *text, int size)
{
    snprintf(text, (size_t)size,
             "seed %" PRIu64 ", space %s, boxing %s, objective %s, memory %" PRId64
             ", batch split %" PRId64 "\n%s\n%s\n",
             instance->seed, sbp_space_name(instance->request.space),
             instance->request.boxing == SBP_BOXING_FULL ? "full" : "paper",
             instance->request.objective == SBP_STEP_TIME ? "step time" : "communication",
             instance->request.memory_limit_bytes, instance->request.max_batch_split,
             instance->model.model.text, instance->model.cluster.text);
}

#define COMPLAIN(instance, ...)                                                                    \
    do {                                                                                           \
        char what_[9000], why_[1200];                                                              \
        describe((instance), what_, sizeof what_);                                                 \
        snprintf(why_, sizeof why_, __VA_ARGS__);                                                  \
        fail_msg("%s\n%s", why_, what_);                                                           \
    } while (0)

/* The plan found is legal, in the space, fits, and costs what the outcome says. */
static void check_plan(struct instance *instance, const struct sbp_outcome *outcome)
{
    struct sbp_plan *const plan = &instance->plan;
    struct sbp_diag diag = {{0}};
    if (sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) != SBP_OK)
        COMPLAIN(instance, "illegal plan: %s", diag.text);
    if (labelled_check(plan, &instance->request, &plan->strategy, &diag) != SBP_OK)
        COMPLAIN(instance, "%s", diag.text);
    const struct sbp_totals totals = totals_of(plan);
    const bool time = instance->request.objective == SBP_STEP_TIME;
    const double objective = time ? totals.step_s : totals.communication_s;
    if (!is_close(objective, outcome->objective_s))
        COMPLAIN(instance, "plan costs %.17g, outcome says %.17g", objective, outcome->objective_s);
    const int64_t limit = instance->request.memory_limit_bytes;
    if (limit > 0 && totals.device_bytes > limit)
        COMPLAIN(instance, "plan needs %" PRId64 " bytes of %" PRId64, totals.device_bytes, limit);
}

static void compare(struct instance *instance, const struct labelled_best *best,
                    const struct sbp_outcome *outcome, struct tally *tally)
{
    const double least = best->objective_s, found = outcome->objective_s;
    const double bound = outcome->lower_bound_s, slack = CLOSE * least;
    if (outcome->status == SBP_PLAN_INFEASIBLE || isinf(found)) {
        if (!isinf(least))
            COMPLAIN(instance, "%s, but %.17g in %" PRId64 " bytes exists",
                     sbp_plan_status_name(outcome->status), least, best->device_bytes);
        tally->infeasible++;
        return;
    }
    check_plan(instance, outcome);
    if (found < least - slack)
        COMPLAIN(instance, "found %.17g below the least of all, %.17g", found, least);
    if (bound > least + slack)
        COMPLAIN(instance, "bound %.17g above the least of all, %.17g", bound, least);
    if (outcome->status == SBP_PLAN_OPTIMAL && found > least + slack)
        COMPLAIN(instance, "`optimal` %.17g, but %.17g exists", found, least);
    if (outcome->status == SBP_PLAN_OPTIMAL)
        tally->optimal++;
    else
        tally->loose++;
    tally->plans_off += found > least + slack;
    tally->bounds_off += bound < least - slack;
    tally->plan_gap = fmax(tally->plan_gap, found / least - 1);
    tally->bound_gap = fmax(tally->bound_gap, 1 - bound / least);
}

/* The bound without a search, and searches below what was found and just above it. */
static void check_goals(struct instance *instance, const struct labelled_best *best,
                        const struct sbp_outcome *outcome)
{
    struct sbp_optimise_bound bound;
    struct sbp_outcome below, above;
    struct sbp_diag diag = {{0}};
    struct sbp_request request = instance->request;
    if (sbp_optimise_bound(&instance->plan, &request, &bound, &diag) != SBP_OK)
        COMPLAIN(instance, "no bound: %s", diag.text);
    if (bound.time_s > bound.bound_s || bound.bound_s > best->objective_s * (1 + CLOSE))
        COMPLAIN(instance, "bounds %.17g and, with memory, %.17g, the least of all %.17g",
                 bound.time_s, bound.bound_s, best->objective_s);
    if (bound.least_bytes > (double)best->least_device_bytes)
        COMPLAIN(instance, "bound of %.17g bytes, %" PRId64 " do", bound.least_bytes,
                 best->least_device_bytes);
    if (isinf(outcome->objective_s) || !(outcome->objective_s > 0))
        return;
    request.upper_bound_s = outcome->objective_s;
    if (sbp_optimise(&instance->plan, &request, &below, &diag) != SBP_OK)
        COMPLAIN(instance, "below %.17g: %s", request.upper_bound_s, diag.text);
    if (outcome->status == SBP_PLAN_OPTIMAL &&
        (isfinite(below.objective_s) || below.status != SBP_PLAN_NONE_CHEAPER ||
         below.lower_bound_s < outcome->objective_s * (1 - CLOSE)))
        COMPLAIN(instance, "below the optimum %.17g: %s, %.17g, bound %.17g", outcome->objective_s,
                 sbp_plan_status_name(below.status), below.objective_s, below.lower_bound_s);
    request.upper_bound_s *= 1 + 1e-6;
    if (sbp_optimise(&instance->plan, &request, &above, &diag) != SBP_OK)
        COMPLAIN(instance, "below %.17g: %s", request.upper_bound_s, diag.text);
    if (outcome->status == SBP_PLAN_OPTIMAL && !is_close(above.objective_s, outcome->objective_s))
        COMPLAIN(instance, "just above the optimum %.17g: %s, %.17g", outcome->objective_s,
                 sbp_plan_status_name(above.status), above.objective_s);
}

static void open_instance(struct instance *instance, enum small_kind kind, int linears)
{
    struct sbp_random random;
    sbp_random_seed(&random, instance->seed);
    instance->model.linears = linears;
    small_model_draw(&random, kind, &instance->model);
    small_cluster_draw(&random, instance->outer, instance->inner, &instance->model.cluster);
    begin(parse(instance->model.model.text), parse(instance->model.cluster.text), &instance->plan);
    instance->request.solver = sbp_solver_find("exact");
    instance->request.solver_options.seed = instance->seed;
}

/* 0: too many strategies to price, 1: compared. */
static int run_instance(struct instance *instance, int64_t most, struct tally *tally)
{
    struct sbp_plan *const plan = &instance->plan;
    struct sbp_diag diag = {{0}}, refusal = {{0}};
    const int64_t count = labelled_count(plan, &instance->request, most);
    assert_true(count >= 0);
    if (count > most) {
        tally->skipped++;
        return 0;
    }
    struct labelled_best best;
    if (labelled_search(plan, &instance->request, most, &best, &diag) != SBP_OK)
        COMPLAIN(instance, "a labelled strategy is refused: %s", diag.text);
    struct sbp_outcome outcome;
    const enum sbp_status status = sbp_optimise(plan, &instance->request, &outcome, &refusal);
    tally->run++;
    tally->strategies += best.visited;
    if (status == SBP_E_INPUT && best.visited == 0)
        tally->refused++;
    else if (status != SBP_OK)
        COMPLAIN(instance, "%s: %s, %" PRId64 " strategies exist", sbp_status_name(status),
                 refusal.text, best.visited);
    else
        compare(instance, &best, &outcome, tally);
    if (status == SBP_OK && best.visited > 0)
        check_goals(instance, &best, &outcome);
    return 1;
}

static void print_tally(const char *what, const struct tally *tally)
{
    print_message("%-34s %4d run, %3d too large, %7" PRId64
                  " strategies: %4d optimal, %3d feasible, "
                  "%3d infeasible, %3d refused; plans off %d (most %.3g %%), bounds off %d "
                  "(most %.3g %%)\n",
                  what, tally->run, tally->skipped, tally->strategies, tally->optimal, tally->loose,
                  tally->infeasible, tally->refused, tally->plans_off, 100 * tally->plan_gap,
                  tally->bounds_off, 100 * tally->bound_gap);
}

/* --- random instances --- */

/* Of one instance: some 50 ms of compiling and pricing. */
enum { MOST_STRATEGIES = 3000 };

struct sweep {
    enum small_kind kind;
    int linears, outer, inner;
    int instances;
};

/* The same space and boxing for a list of sweeps. */
struct ground {
    enum sbp_space_kind space;
    enum sbp_boxing_mode boxing;
};

static void run_sweep(const struct sweep *sweep, struct ground ground, uint64_t seed)
{
    struct tally tally = {0};
    for (int draw = 0; tally.run < sweep->instances && draw < 40 * sweep->instances; draw++) {
        struct instance instance = {.seed = seed + (uint64_t)draw * 1000003,
                                    .outer = sweep->outer,
                                    .inner = sweep->inner,
                                    .request = {.space = ground.space, .boxing = ground.boxing}};
        instance.request.objective = draw % 2 == 0 ? SBP_STEP_TIME : SBP_COMMUNICATION;
        open_instance(&instance, sweep->kind, sweep->linears);
        run_instance(&instance, MOST_STRATEGIES, &tally);
        sbp_plan_free(&instance.plan);
    }
    char what[64];
    snprintf(what, sizeof what, "%s %s on %dx%d", sbp_space_name(ground.space),
             small_kind_name(sweep->kind), sweep->outer, sweep->inner);
    print_tally(what, &tally);
}

static void run_sweeps(const struct sweep *sweeps, size_t count, struct ground ground,
                       uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        run_sweep(&sweeps[i], ground, seed + 1000 * i);
}
#define RUN_SWEEPS(sweeps, ground, seed)                                                           \
    run_sweeps((sweeps), sizeof(sweeps) / sizeof *(sweeps), (ground), (seed))

static void test_full(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 2, 2, 1, 20},       {SMALL_CHAIN, 3, 2, 1, 20},
        {SMALL_CHAIN, 4, 2, 1, 20},       {SMALL_CHAIN, 3, 3, 1, 20},
        {SMALL_CHAIN, 2, 4, 1, 20},       {SMALL_CHAIN, 2, 2, 2, 20},
        {SMALL_CHAIN, 3, 4, 1, 15},       {SMALL_CHAIN, 2, 6, 1, 20},
        {SMALL_CHAIN, 2, 8, 1, 10},       {SMALL_CHAIN, 2, 3, 2, 15},
        {SMALL_RESIDUAL, 0, 2, 1, 30},    {SMALL_RESIDUAL, 0, 3, 1, 20},
        {SMALL_RESIDUAL, 0, 4, 1, 30},    {SMALL_RESIDUAL, 0, 2, 2, 30},
        {SMALL_NORMED, 0, 2, 1, 20},      {SMALL_NORMED, 0, 4, 1, 20},
        {SMALL_TRANSFORMER, 0, 2, 1, 20}, {SMALL_TRANSFORMER, 0, 3, 1, 20},
        {SMALL_TRANSFORMER, 0, 4, 1, 15}, {SMALL_TRANSFORMER, 0, 2, 2, 15},
        {SMALL_LANGUAGE, 0, 2, 1, 20},    {SMALL_LANGUAGE, 0, 3, 1, 15},
        {SMALL_LANGUAGE, 0, 4, 1, 15},    {SMALL_GPT, 0, 2, 1, 10},
        {SMALL_GPT, 0, 3, 1, 10},
    };
    RUN_SWEEPS(sweeps, ((struct ground){SBP_SPACE_FULL, SBP_BOXING_FULL}), 7);
}

static void test_autoddl(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 3, 2, 2, 15},       {SMALL_CHAIN, 4, 2, 1, 15},
        {SMALL_CHAIN, 3, 6, 1, 15},       {SMALL_CHAIN, 2, 8, 1, 15},
        {SMALL_RESIDUAL, 0, 4, 1, 15},    {SMALL_RESIDUAL, 0, 2, 2, 15},
        {SMALL_NORMED, 0, 4, 1, 15},      {SMALL_TRANSFORMER, 0, 4, 1, 15},
        {SMALL_TRANSFORMER, 0, 6, 1, 15}, {SMALL_LANGUAGE, 0, 2, 2, 15},
        {SMALL_GPT, 0, 2, 1, 15},
    };
    RUN_SWEEPS(sweeps, ((struct ground){SBP_SPACE_AUTODDL, SBP_BOXING_FULL}), 100007);
}

/* --- plans whose layers all split the batch alike --- */

struct aligned {
    const struct sbp_plan *plan;
    int batch[SBP_MAX_AXES]; /* (family) axes that split it */
    double least_s;
};

/* As many axes as divide a micro-batch, the outermost first. */
static void align(struct aligned *aligned, const struct sbp_plan *plan)
{
    int64_t parts = 1;
    *aligned = (struct aligned){.plan = plan, .least_s = INFINITY};
    for (int f = 0; f < plan->mesh.family_count; f++)
        while (aligned->batch[f] < plan->mesh.family[f].count &&
               plan->graph.micro_batch % (parts * plan->mesh.family[f].prime) == 0) {
            parts *= plan->mesh.family[f].prime;
            aligned->batch[f]++;
        }
}

static bool is_aligned(const struct aligned *aligned, const struct sbp_strategy *strategy)
{
    const struct sbp_graph *graph = &aligned->plan->graph;
    for (int f = 0; f < aligned->plan->mesh.family_count; f++) {
        const struct sbp_family *family = &aligned->plan->mesh.family[f];
        for (int op = 0; op < graph->op_count; op++) {
            int played = 0, rests = 0;
            for (int axis = family->first; axis < family->first + family->count; axis++) {
                played += strategy->op[op].role[axis] == 0; /* batch comes first */
                rests += sbp_state_equal(strategy->rest[graph->op[op].output].axis[axis],
                                         SBP_STATE_S(SBP_DIM_BATCH));
            }
            if (!graph->op[op].entry->follows &&
                (played != aligned->batch[f] || rests != aligned->batch[f]))
                return false;
        }
    }
    return true;
}

static void keep_aligned(void *context, const struct sbp_strategy *strategy,
                         const struct sbp_step_totals *totals)
{
    struct aligned *const aligned = context;
    if (is_aligned(aligned, strategy))
        aligned->least_s = fmin(aligned->least_s, totals->step_s);
}

/* Whether there is such a plan. */
static bool check_aligned(struct instance *instance)
{
    struct aligned aligned;
    struct labelled_best best;
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    align(&aligned, &instance->plan);
    if (labelled_each(&instance->plan, &instance->request, 200000, keep_aligned, &aligned, &best,
                      &diag) != SBP_OK ||
        sbp_optimise_aligned(&instance->plan, &instance->request, &outcome, &diag) != SBP_OK)
        COMPLAIN(instance, "%s", diag.text);
    if (best.gave_up)
        return false;
    if (isinf(outcome.lower_bound_s) == 0 || outcome.status == SBP_PLAN_OPTIMAL)
        COMPLAIN(instance, "aligned plans bound nothing, but %.17g", outcome.lower_bound_s);
    if (isinf(aligned.least_s) && isinf(outcome.objective_s))
        return false;
    check_plan(instance, &outcome);
    if (!is_aligned(&aligned, &instance->plan.strategy))
        COMPLAIN(instance, "layers split the batch differently");
    if (!is_close(outcome.objective_s, aligned.least_s))
        COMPLAIN(instance, "aligned: found %.17g, least %.17g", outcome.objective_s,
                 aligned.least_s);
    return true;
}

static void test_aligned(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 3, 2, 2, 60}, {SMALL_CHAIN, 3, 6, 1, 60}, {SMALL_RESIDUAL, 0, 2, 2, 30}};
    int found = 0;
    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++)
        for (int k = 0; k < sweeps[i].instances; k++) {
            struct instance instance = {.seed = 1000 * i + (uint64_t)k,
                                        .outer = sweeps[i].outer,
                                        .inner = sweeps[i].inner,
                                        .request = {.space = SBP_SPACE_AUTODDL}};
            open_instance(&instance, sweeps[i].kind, sweeps[i].linears);
            found += check_aligned(&instance);
            sbp_plan_free(&instance.plan);
        }
    assert_true(found > 50);
}

static void test_baselines(void **state)
{
    (void)state;
    static const enum sbp_space_kind spaces[] = {SBP_SPACE_DATA_PARALLEL, SBP_SPACE_MEGATRON,
                                                 SBP_SPACE_MEGATRON_3D};
    static const int meshes[][2] = {{2, 1}, {4, 1}, {2, 2}, {6, 1}, {8, 1}};
    for (uint64_t s = 0; s < 3; s++)
        for (uint64_t m = 0; m < 5; m++)
            for (enum small_kind kind = 0; kind < SMALL_KINDS; kind++) {
                const struct sweep sweep = {kind, 3, meshes[m][0], meshes[m][1], 5};
                run_sweep(&sweep, (struct ground){spaces[s], SBP_BOXING_FULL},
                          200007 + 10000 * s + 1000 * m + 100 * (uint64_t)kind);
            }
}

static void test_node_mesh(void **state)
{
    (void)state;
    static const int meshes[][2] = {{2, 1}, {2, 2}, {3, 2}, {2, 4}};
    for (uint64_t m = 0; m < 4; m++)
        for (enum small_kind kind = 0; kind < SMALL_KINDS; kind++) {
            const struct sweep sweep = {kind, 3, meshes[m][0], meshes[m][1], 5};
            run_sweep(&sweep, (struct ground){SBP_SPACE_MEGATRON_NODE, SBP_BOXING_FULL},
                      240007 + 1000 * m + 100 * (uint64_t)kind);
        }
}

static void test_gshard(void **state)
{
    (void)state;
    static const int meshes[][2] = {{2, 1}, {4, 1}, {2, 2}, {6, 1}};
    for (uint64_t m = 0; m < 4; m++)
        for (enum small_kind kind = 0; kind < SMALL_KINDS; kind++) {
            const struct sweep sweep = {kind, 3, meshes[m][0], meshes[m][1], 4};
            run_sweep(&sweep, (struct ground){SBP_SPACE_GSHARD, SBP_BOXING_FULL},
                      250007 + 1000 * m + 100 * (uint64_t)kind);
        }
}

/* Where sizes bind, the paper's ways between layers bind too. */
static void test_paper_sizes(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 3, 4, 1, 15},
        {SMALL_CHAIN, 2, 8, 1, 15},
        {SMALL_CHAIN, 3, 6, 1, 15},
        {SMALL_CHAIN, 3, 2, 2, 15},
    };
    RUN_SWEEPS(sweeps, ((struct ground){SBP_SPACE_AUTODDL, SBP_BOXING_PAPER}), 300007);
}

/* --- memory limits, against all labelled strategies --- */

/* A limit on the way from what every strategy needs to what the best takes; below the least of all
 * nothing fits. */
static void run_limited(struct instance *instance, double share, struct tally *tally)
{
    struct labelled_best best;
    struct sbp_diag diag = {{0}};
    if (labelled_count(&instance->plan, &instance->request, MOST_STRATEGIES) > MOST_STRATEGIES)
        return;
    if (labelled_search(&instance->plan, &instance->request, MOST_STRATEGIES, &best, &diag) !=
        SBP_OK)
        COMPLAIN(instance, "a labelled strategy is refused: %s", diag.text);
    if (best.visited == 0)
        return;
    const double room = (double)(best.device_bytes - best.least_device_bytes);
    instance->request.memory_limit_bytes =
        share < 0 ? best.least_device_bytes - 1
                  : best.least_device_bytes + (int64_t)floor(share * room);
    run_instance(instance, MOST_STRATEGIES, tally);
}

static void run_limits(const struct sweep *sweep, enum sbp_space_kind space, uint64_t seed)
{
    static const double shares[] = {-1, 0, 0.3, 0.7, 0.99};
    struct tally tally = {0};
    for (int draw = 0; draw < sweep->instances; draw++) {
        struct instance instance = {.seed = seed + (uint64_t)draw * 999983,
                                    .outer = sweep->outer,
                                    .inner = sweep->inner,
                                    .request = {.space = space}};
        open_instance(&instance, sweep->kind, sweep->linears);
        run_limited(&instance, shares[draw % 5], &tally);
        sbp_plan_free(&instance.plan);
    }
    char what[64];
    snprintf(what, sizeof what, "memory %s %s on %dx%d", sbp_space_name(space),
             small_kind_name(sweep->kind), sweep->outer, sweep->inner);
    print_tally(what, &tally);
}

static void test_memory(void **state)
{
    (void)state;
    static const struct sweep full[] = {{SMALL_CHAIN, 3, 2, 1, 30},
                                        {SMALL_RESIDUAL, 0, 2, 1, 30},
                                        {SMALL_TRANSFORMER, 0, 2, 1, 30},
                                        {SMALL_LANGUAGE, 0, 4, 1, 30}};
    static const struct sweep paper[] = {{SMALL_CHAIN, 3, 4, 1, 30}, {SMALL_GPT, 0, 2, 1, 30}};
    for (uint64_t i = 0; i < 4; i++)
        run_limits(&full[i], SBP_SPACE_FULL, 77 + 1000 * i);
    for (uint64_t i = 0; i < 2; i++)
        run_limits(&paper[i], SBP_SPACE_AUTODDL, 50077 + 1000 * i);
}

/* --- boxing=paper: closed formulas of AutoDDL on unlabelled tuples --- */

struct tuple {
    double p[3]; /* batch, column, row */
};

/* One flat level; seconds of ring collectives over g members (AutoDDL, table 2). */
struct link {
    double alpha_s, beta_s_per_byte;
};

static double one_way_s(const struct link *link, double g, double bytes)
{
    return g <= 1 ? 0 : (g - 1) * link->alpha_s + (g - 1) / g * bytes * link->beta_s_per_byte;
}

struct paper_chain {
    int layers, tuples;
    double devices, tokens;
    double size[6]; /* size[i], size[i + 1]: input and output features of layer i */
    bool bias[5], input_split;
    struct link link;
    struct tuple tuple[256];
};

static int64_t whole_gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : whole_gcd(b, a % b);
}

/* Within a layer: reduce-scatter of the output over p2, all-gather of the input over p1, each
 * answered by its dual in backward; gradients of weight and bias are all-reduced over p0. */
static double paper_layer_s(const struct paper_chain *chain, int layer, const struct tuple *t)
{
    const double fp32 = 4, in = chain->size[layer], out = chain->size[layer + 1];
    double total =
        2 * one_way_s(&chain->link, t->p[2], fp32 * chain->tokens * out / (t->p[0] * t->p[1]));
    if (layer > 0 || chain->input_split)
        total +=
            2 * one_way_s(&chain->link, t->p[1], fp32 * chain->tokens * in / (t->p[0] * t->p[2]));
    total += 2 * one_way_s(&chain->link, t->p[0], fp32 * in * out / (t->p[1] * t->p[2]));
    if (chain->bias[layer])
        total += 2 * one_way_s(&chain->link, t->p[0], fp32 * out / t->p[1]);
    return total;
}

/* Between two layers: nothing where p0 = p0' or p1 = p2', else an all-to-all, forward and back. */
static double paper_edge_s(const struct paper_chain *chain, int layer, const struct tuple *a,
                           const struct tuple *b)
{
    if (a->p[0] == b->p[0] || a->p[1] == b->p[2])
        return 0;
    const int64_t p = (int64_t)a->p[0], q = (int64_t)b->p[0], gcd = whole_gcd(p, q);
    const double members = (double)(p / gcd * (q / gcd));
    return 2 * one_way_s(&chain->link, members,
                         4 * chain->tokens * chain->size[layer + 1] / chain->devices);
}

static double paper_least(const struct paper_chain *chain, int layer, const struct tuple *last)
{
    if (layer == chain->layers)
        return 0;
    double least = INFINITY;
    for (int t = 0; t < chain->tuples; t++) {
        const struct tuple *const here = &chain->tuple[t];
        double cost = paper_layer_s(chain, layer, here);
        if (last != NULL)
            cost += paper_edge_s(chain, layer - 1, last, here);
        least = fmin(least, cost + paper_least(chain, layer + 1, here));
    }
    return least;
}

static void draw_paper_chain(struct sbp_random *random, int devices, struct paper_chain *chain,
                             struct small_text *model, struct small_text *cluster)
{
    static const int sizes[] = {144, 288, 576, 1152, 4608};
    *chain = (struct paper_chain){.layers = 2 + (int)sbp_random_below(random, 3),
                                  .devices = devices,
                                  .tokens = sizes[sbp_random_below(random, 5)],
                                  .input_split = sbp_random_below(random, 2) == 0,
                                  .link = {1e-8 * (double)(1 + sbp_random_below(random, 1000)),
                                           1e-11 * (double)(1 + sbp_random_below(random, 50))}};
    for (int p0 = 1; p0 <= devices; p0++)
        for (int p1 = 1; p0 * p1 <= devices; p1++)
            if (devices % (p0 * p1) == 0)
                chain->tuple[chain->tuples++] =
                    (struct tuple){{p0, p1, devices / (double)(p0 * p1)}};
    for (int i = 0; i <= chain->layers; i++)
        chain->size[i] = sizes[sbp_random_below(random, 5)];
    *model = *cluster = (struct small_text){.length = 0};
    int at = snprintf(model->text, sizeof model->text,
                      "{\"name\": \"chain\", \"global_batch\": %.0f, \"input\": \"%s\", "
                      "\"layers\": [",
                      chain->tokens, chain->input_split ? "split" : "free");
    for (int i = 0; i < chain->layers; i++) {
        chain->bias[i] = sbp_random_below(random, 3) == 0;
        at += snprintf(model->text + at, sizeof model->text - (size_t)at,
                       "%s{\"op\": \"linear\", \"in\": %.0f, \"out\": %.0f, \"bias\": %s}",
                       i > 0 ? ", {\"op\": \"relu\"}, " : "", chain->size[i], chain->size[i + 1],
                       chain->bias[i] ? "true" : "false");
    }
    snprintf(model->text + at, sizeof model->text - (size_t)at, "]}");
    snprintf(cluster->text, sizeof cluster->text,
             "{\"name\": \"flat\", \"levels\": [{\"name\": \"node\", \"size\": %d, \"alpha_s\": "
             "%.17g, \"beta_s_per_byte\": %.17g}], \"device\": {\"memory_bytes\": 1e15, "
             "\"flops\": {\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e12}}",
             devices, chain->link.alpha_s, chain->link.beta_s_per_byte);
}

static void test_paper_chains(void **state)
{
    (void)state;
    static const int devices[] = {2, 3, 4, 6, 8, 12, 16};
    int full_cheaper = 0, run = 0;
    for (uint64_t seed = 0; seed < 140; seed++) {
        struct sbp_random random;
        sbp_random_seed(&random, seed);
        struct instance instance = {.seed = seed,
                                    .request = {.space = SBP_SPACE_AUTODDL,
                                                .objective = SBP_COMMUNICATION,
                                                .boxing = SBP_BOXING_PAPER}};
        struct paper_chain chain;
        draw_paper_chain(&random, devices[seed % 7], &chain, &instance.model.model,
                         &instance.model.cluster);
        begin(parse(instance.model.model.text), parse(instance.model.cluster.text), &instance.plan);
        instance.request.solver = sbp_solver_find("exact");
        struct sbp_outcome outcome;
        struct sbp_diag diag = {{0}};
        if (sbp_optimise(&instance.plan, &instance.request, &outcome, &diag) != SBP_OK)
            COMPLAIN(&instance, "%s", diag.text);
        const double least = paper_least(&chain, 0, NULL);
        if (!is_close(outcome.objective_s, least) || outcome.status != SBP_PLAN_OPTIMAL)
            COMPLAIN(&instance, "%s %.17g, closed formula %.17g",
                     sbp_plan_status_name(outcome.status), outcome.objective_s, least);
        check_plan(&instance, &outcome);
        instance.request.boxing = SBP_BOXING_FULL;
        if (sbp_optimise(&instance.plan, &instance.request, &outcome, &diag) != SBP_OK)
            COMPLAIN(&instance, "%s", diag.text);
        if (outcome.objective_s > least * (1 + CLOSE))
            COMPLAIN(&instance, "boxing=full %.17g above boxing=paper %.17g", outcome.objective_s,
                     least);
        full_cheaper += outcome.objective_s < least * (1 - CLOSE);
        run++;
        sbp_plan_free(&instance.plan);
    }
    print_message(
        "paper boxing: %d chains equal the closed formula; full boxing is cheaper for %d\n", run,
        full_cheaper);
}

/* --- the perceptron of AutoDDL, figure 8 --- */

static void open_perceptron(const char *cluster, double batch, struct sbp_plan *plan)
{
    cJSON *const model = shipped("models", "autoddl-mlp");
    set_number(model, "global_batch", batch);
    begin(model, shipped("clusters", cluster), plan);
}

static struct sbp_request paper_request(const char *solver, uint64_t seed)
{
    struct sbp_request request = {.space = SBP_SPACE_AUTODDL,
                                  .objective = SBP_COMMUNICATION,
                                  .solver = sbp_solver_find(solver)};
    request.solver_options.seed = seed;
    return request;
}

static struct sbp_outcome search(struct sbp_plan *plan, const struct sbp_request *request)
{
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    if (sbp_optimise(plan, request, &outcome, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return outcome;
}

static void assert_ms(double objective_s, double expected_ms)
{
    if (!is_close(objective_s, expected_ms * 1e-3))
        fail_msg("%.12g ms, expected %.12g ms", objective_s * 1e3, expected_ms);
}

static void test_perceptron_128(void **state)
{
    (void)state;
    static const struct {
        double batch;
        enum sbp_boxing_mode boxing;
        double expected_ms;
    } cases[] = {
        {1024, SBP_BOXING_FULL, 2.4968192},
        {32768, SBP_BOXING_FULL, 20.0008128},
        {32768, SBP_BOXING_PAPER, 20.2808128},
    };
    static const char *const solvers[] = {"exact", "exhaustive", "coordinate-descent"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_plan plan;
        open_perceptron("flat-128", cases[i].batch, &plan);
        for (int s = 0; s < 3; s++) {
            struct sbp_request request = paper_request(solvers[s], 1);
            request.boxing = cases[i].boxing;
            const struct sbp_outcome outcome = search(&plan, &request);
            assert_ms(outcome.objective_s, cases[i].expected_ms);
            assert_ms(totals_of(&plan).communication_s, cases[i].expected_ms);
            if (s < 2)
                assert_string_equal(sbp_plan_status_name(outcome.status), "optimal");
        }
        sbp_plan_free(&plan);
    }
}

static void test_perceptron_4096(void **state)
{
    (void)state;
    struct sbp_plan plan;
    open_perceptron("flat-4096", 1024, &plan);
    struct sbp_request request = paper_request("exact", 0);
    const double exact = search(&plan, &request).objective_s;
    request = paper_request("exhaustive", 0);
    const struct sbp_outcome all = search(&plan, &request);
    if (!is_close(all.objective_s, exact))
        fail_msg("exhaustive %.17g, exact %.17g", all.objective_s, exact);
    for (uint64_t seed = 0; seed < 5; seed++) {
        request = paper_request("coordinate-descent", seed);
        const double descent = search(&plan, &request).objective_s;
        if (!is_close(descent, exact))
            fail_msg("seed %" PRIu64 ": coordinate descent %.17g, exact %.17g", seed, descent,
                     exact);
        request = paper_request("metropolis-hastings", seed);
        const double metropolis = search(&plan, &request).objective_s;
        if (metropolis > 1.01 * exact || metropolis < exact * (1 - CLOSE))
            fail_msg("seed %" PRIu64 ": metropolis-hastings %.17g, exact %.17g", seed, metropolis,
                     exact);
    }
    print_message("4096 devices: %.10g ms, %" PRId64 " strategies priced by exhaustive search\n",
                  exact * 1e3, all.evaluations);
    sbp_plan_free(&plan);
}

/* Two searches with one seed leave the same bytes behind. */
static void assert_same_strategy(const struct sbp_plan *a, const struct sbp_plan *b)
{
    assert_int_equal(a->strategy.boxing, b->strategy.boxing);
    for (int op = 0; op < a->graph.op_count; op++)
        assert_memory_equal(&a->strategy.op[op], &b->strategy.op[op], sizeof a->strategy.op[op]);
    for (int t = 0; t < a->graph.tensor_count; t++)
        assert_memory_equal(&a->strategy.rest[t], &b->strategy.rest[t], sizeof a->strategy.rest[t]);
    for (int c = 0; c < a->graph.class_count; c++)
        assert_int_equal(a->strategy.split[c], b->strategy.split[c]);
}

static void test_same_seed(void **state)
{
    (void)state;
    static const char *const solvers[] = {"exact", "coordinate-descent", "metropolis-hastings",
                                          "random"};
    static const char *const models[] = {"autoddl-mlp", "tiny-gpt"};
    for (int s = 0; s < 4; s++)
        for (int m = 0; m < 2; m++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                struct sbp_plan plan[2];
                struct sbp_outcome outcome[2];
                for (int i = 0; i < 2; i++) {
                    begin(shipped("models", models[m]),
                          shipped("clusters", m == 0 ? "flat-128" : "laptop-4"), &plan[i]);
                    struct sbp_request request = paper_request(solvers[s], seed);
                    request.space = m == 0 ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL;
                    outcome[i] = search(&plan[i], &request);
                    assert_true(outcome[i].objective_s < INFINITY);
                }
                assert_true(outcome[0].objective_s == outcome[1].objective_s);
                assert_true(outcome[0].lower_bound_s == outcome[1].lower_bound_s);
                assert_int_equal(outcome[0].evaluations, outcome[1].evaluations);
                assert_same_strategy(&plan[0], &plan[1]);
                sbp_plan_free(&plan[0]);
                sbp_plan_free(&plan[1]);
            }
}

/* --- the attention layer of AutoDDL, figure 3 --- */

static int role_named(enum sbp_op_kind kind, const char *name)
{
    for (int role = 0; role < sbp_op(kind)->role_count; role++)
        if (strcmp(sbp_op(kind)->role[role].name, name) == 0)
            return role;
    fail_msg("no role %s", name);
    return -1;
}

static void fix_linear(struct sbp_fix *fix, const char *layer, int64_t batch, int64_t column,
                       int64_t row)
{
    memset(fix, 0, sizeof *fix);
    snprintf(fix->layer, sizeof fix->layer, "%s", layer);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->factor[role][level] = SBP_ANY;
    fix->factor[role_named(SBP_OP_LINEAR, "batch")][0] = batch;
    fix->factor[role_named(SBP_OP_LINEAR, "column")][0] = column;
    fix->factor[role_named(SBP_OP_LINEAR, "row")][0] = row;
}

static int64_t factor_of(const struct sbp_plan *plan, const char *layer, const char *role)
{
    for (int op = 0; op < plan->graph.op_count; op++)
        if (strcmp(plan->graph.op[op].name, layer) == 0) {
            int64_t factor = 1;
            for (int axis = 0; axis < plan->mesh.axis_count; axis++)
                if (plan->strategy.op[op].role[axis] == role_named(plan->graph.op[op].kind, role))
                    factor *= plan->mesh.axis[axis].size;
            return factor;
        }
    fail_msg("no layer %s", layer);
    return 0;
}

static void check_linear(const struct sbp_plan *plan, const char *layer, int64_t batch,
                         int64_t column, int64_t row)
{
    const int64_t b = factor_of(plan, layer, "batch"), c = factor_of(plan, layer, "column"),
                  r = factor_of(plan, layer, "row");
    if (b != batch || c != column || r != row)
        fail_msg("%s: (%" PRId64 ", %" PRId64 ", %" PRId64 "), expected (%" PRId64 ", %" PRId64
                 ", %" PRId64 ")",
                 layer, b, c, r, batch, column, row);
}

static void check_elements(const struct sbp_plan *plan, double expected)
{
    const double elements = totals_of(plan).forward_activation_elements / 1073741824.0;
    if (!is_close(elements, expected))
        fail_msg("%.12g x 2^30 elements, expected %.12g", elements, expected);
}

static void test_figure_3(void **state)
{
    (void)state;
    struct sbp_plan plan;
    begin(shipped("models", "autoddl-attention"), shipped("clusters", "flat-64"), &plan);
    struct sbp_request request = paper_request("exact", 0);
    request.max_batch_split = 4;
    request.memory_limit_bytes = INT64_C(1) << 50;
    struct sbp_fix fix[2];
    fix_linear(&fix[0], "qkv", 4, 16, 1);
    fix_linear(&fix[1], "projection", 4, 1, 16);
    request.fix = fix;
    request.fix_count = 2;
    const struct sbp_outcome megatron = search(&plan, &request);
    check_linear(&plan, "qkv", 4, 16, 1);
    check_linear(&plan, "projection", 4, 1, 16);
    check_elements(&plan, 3.75);
    request.fix_count = 0;
    const struct sbp_outcome best = search(&plan, &request);
    check_linear(&plan, "qkv", 4, 8, 2);
    check_linear(&plan, "projection", 4, 4, 4);
    check_elements(&plan, 2.0);
    assert_true(best.objective_s < megatron.objective_s);
    assert_string_equal(sbp_plan_status_name(best.status), "optimal");
    request.space = SBP_SPACE_MEGATRON;
    const struct sbp_outcome restricted = search(&plan, &request);
    if (!is_close(restricted.objective_s, megatron.objective_s))
        fail_msg("space megatron %.17g, its strategy fixed by hand %.17g", restricted.objective_s,
                 megatron.objective_s);
    check_elements(&plan, 3.75);
    sbp_plan_free(&plan);
}

/* --- requests: limits, bounds and fixes on shipped models --- */

static void test_memory_limit(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"tiny-gpt", "laptop-4"}, {"autoddl-mlp", "flat-64"}, {"gpt2-small", "laptop-4"}};
    for (int i = 0; i < 3; i++) {
        struct sbp_plan plan;
        begin(shipped("models", pairs[i][0]), shipped("clusters", pairs[i][1]), &plan);
        struct sbp_request request = {.space = SBP_SPACE_FULL,
                                      .memory_limit_bytes = INT64_C(1) << 50};
        const double free_s = search(&plan, &request).objective_s;
        const int64_t most = totals_of(&plan).device_bytes;
        double last_s = free_s;
        for (int percent = 99; percent >= 40; percent -= 8) {
            request.memory_limit_bytes = most / 100 * percent;
            const struct sbp_outcome outcome = search(&plan, &request);
            if (isinf(outcome.objective_s))
                break;
            const int64_t bytes = totals_of(&plan).device_bytes;
            if (bytes > request.memory_limit_bytes)
                fail_msg("%s: %" PRId64 " bytes over the limit %" PRId64, pairs[i][0], bytes,
                         request.memory_limit_bytes);
            if (outcome.objective_s < free_s * (1 - CLOSE) ||
                (outcome.status == SBP_PLAN_OPTIMAL && outcome.objective_s < last_s * (1 - CLOSE)))
                fail_msg("%s: cheaper with less memory: %.17g, %.17g before", pairs[i][0],
                         outcome.objective_s, last_s);
            print_message("%s at %d %% of %" PRId64 " bytes: %s, %.4g x, bound %.4g x\n",
                          pairs[i][0], percent, most, sbp_plan_status_name(outcome.status),
                          outcome.objective_s / free_s, outcome.lower_bound_s / free_s);
            if (outcome.status == SBP_PLAN_OPTIMAL)
                last_s = outcome.objective_s;
        }
        request.memory_limit_bytes = most / 1000;
        const struct sbp_outcome none = search(&plan, &request);
        assert_string_equal(sbp_plan_status_name(none.status), "infeasible");
        assert_true(none.needed_bytes > request.memory_limit_bytes);
        request.memory_limit_bytes = none.needed_bytes;
        const struct sbp_outcome again = search(&plan, &request);
        print_message("%s: infeasible, %" PRId64 " bytes needed; with them: %s\n", pairs[i][0],
                      none.needed_bytes, sbp_plan_status_name(again.status));
        assert_true(again.objective_s < INFINITY);
        sbp_plan_free(&plan);
    }
}

static void test_batch_bound(void **state)
{
    (void)state;
    static const char *const layers[] = {"fc1", "fc2", "fc3", "fc4"};
    double last_s = INFINITY;
    for (int64_t most = 1; most <= 128; most *= 2) {
        struct sbp_plan plan;
        open_perceptron("flat-128", 32768, &plan);
        struct sbp_request request = paper_request("exact", 0);
        request.max_batch_split = most;
        const struct sbp_outcome outcome = search(&plan, &request);
        for (int i = 0; i < 4; i++)
            if (factor_of(&plan, layers[i], "batch") > most)
                fail_msg("%s splits the batch %" PRId64 " ways, most %" PRId64, layers[i],
                         factor_of(&plan, layers[i], "batch"), most);
        if (outcome.objective_s > last_s * (1 + CLOSE))
            fail_msg("batch split %" PRId64 ": %.17g, %.17g with less freedom", most,
                     outcome.objective_s, last_s);
        last_s = outcome.objective_s;
        sbp_plan_free(&plan);
    }
    assert_ms(last_s, 20.0008128);
}

static void expect_refusal(const struct sbp_request *request, const char *names)
{
    struct sbp_plan plan;
    open_perceptron("flat-128", 1024, &plan);
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    const enum sbp_status status = sbp_optimise(&plan, request, &outcome, &diag);
    if (status != SBP_E_INPUT || strstr(diag.text, names) == NULL)
        fail_msg("%s, expected E_INPUT that names %s: %s", sbp_status_name(status), names,
                 diag.text);
    sbp_plan_free(&plan);
}

static void test_fixes(void **state)
{
    (void)state;
    struct sbp_fix fix;
    struct sbp_request request = paper_request("exact", 0);
    request.fix = &fix;
    request.fix_count = 1;
    struct sbp_plan plan;
    open_perceptron("flat-128", 1024, &plan);
    fix_linear(&fix, "fc2", 2, 32, 2);
    const struct sbp_outcome fixed = search(&plan, &request);
    check_linear(&plan, "fc2", 2, 32, 2);
    assert_true(fixed.objective_s > 2.4968192e-3 * (1 - CLOSE));
    fix_linear(&fix, "fc3", SBP_ANY, SBP_ANY, 16);
    search(&plan, &request);
    assert_int_equal(factor_of(&plan, "fc3", "row"), 16);
    sbp_plan_free(&plan);

    fix_linear(&fix, "fc9", 128, 1, 1);
    expect_refusal(&request, "fc9");
    fix_linear(&fix, "relu1", 128, 1, 1);
    expect_refusal(&request, "relu1");
    fix_linear(&fix, "fc2", 3, SBP_ANY, SBP_ANY);
    expect_refusal(&request, "fc2");
    fix_linear(&fix, "fc2", 64, 64, 1);
    expect_refusal(&request, "fc2");
    fix_linear(&fix, "fc4", 1, 1024, 1);
    expect_refusal(&request, "fc4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),           cmocka_unit_test(test_autoddl),
        cmocka_unit_test(test_baselines),      cmocka_unit_test(test_node_mesh),
        cmocka_unit_test(test_gshard),         cmocka_unit_test(test_memory),
        cmocka_unit_test(test_paper_sizes),    cmocka_unit_test(test_paper_chains),
        cmocka_unit_test(test_perceptron_128), cmocka_unit_test(test_perceptron_4096),
        cmocka_unit_test(test_same_seed),      cmocka_unit_test(test_figure_3),
        cmocka_unit_test(test_memory_limit),   cmocka_unit_test(test_batch_bound),
        cmocka_unit_test(test_fixes),          cmocka_unit_test(test_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

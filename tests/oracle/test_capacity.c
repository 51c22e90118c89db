/* Where memory binds: bounds by prices of memory, plans out of them and answers of a search that is
 * cut short, against every full choice of small spaces; and long chains, which need a plan near
 * their bound. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "base/math/random.h"
#include "oracle_plan.h"
#include "planner/inner/cut_solve.h"
#include "planner/bounds/lagrangian.h"
#include "planner/bounds/message_passing.h"
#include "small_models.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

/* Full choices that are looked at one by one. */
#define MOST_CHOICES 4e6

/* --- small spaces against every choice --- */

struct instance {
    uint64_t seed;
    enum small_kind kind;
    int outer, inner, pipeline, capacities;
    struct sbp_plan plan;
    struct sbp_solve_request request;
    struct sbp_space space;
    double capacity, best_s; /* INFINITY: nothing fits */
};

#define COMPLAIN(instance, ...)                                                                    \
    do {                                                                                           \
        char why_[512];                                                                            \
        snprintf(why_, sizeof why_, __VA_ARGS__);                                                  \
        fail_msg("seed %" PRIu64 ", %s on %dx%d, %d stages, capacity %.17g, optimum %.17g: %s",    \
                 (instance)->seed, small_kind_name((instance)->kind), (instance)->outer,           \
                 (instance)->inner, (instance)->pipeline, (instance)->capacity,                    \
                 (instance)->best_s, why_);                                                        \
    } while (0)

static struct sbp_problem problem_of(const struct instance *instance)
{
    struct sbp_problem problem;
    struct sbp_diag diag = {{0}};
    if (sbp_pricing_problem(&instance->space, instance->capacity, &problem, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return problem;
}

/* Every choice, one after the other, by nothing but the problem's own sums. */
static double brute_force(const struct sbp_problem *problem)
{
    int *const choice = calloc((size_t)problem->variable_count, sizeof *choice);
    double best = INFINITY;
    assert_non_null(choice);
    for (int v = 0; v < problem->variable_count;) {
        const double cost = sbp_problem_cost(problem, choice);
        if (cost < best && cost < SBP_FORBIDDEN &&
            sbp_problem_fits(problem, sbp_problem_peak_usage(problem, choice)))
            best = cost;
        for (v = 0; v < problem->variable_count && ++choice[v] == problem->variable[v].domain; v++)
            choice[v] = 0;
    }
    free(choice);
    return best;
}

static void check_choice(const struct instance *instance, const int *choice, double claimed_s)
{
    struct sbp_problem problem = problem_of(instance);
    const double cost = sbp_problem_cost(&problem, choice);
    if (fabs(cost - claimed_s) > CLOSE * cost)
        COMPLAIN(instance, "a choice of %.17g costs %.17g", claimed_s, cost);
    if (!sbp_problem_fits(&problem, sbp_problem_peak_usage(&problem, choice)))
        COMPLAIN(instance, "a choice takes %.17g", sbp_problem_peak_usage(&problem, choice));
    if (cost < instance->best_s * (1 - CLOSE))
        COMPLAIN(instance, "a choice costs %.17g", cost);
    sbp_problem_free(&problem);
}

static void check_reduction(const struct instance *instance)
{
    struct sbp_arena arena;
    struct sbp_message_reduction reduced;
    sbp_arena_init(&arena);
    assert_int_equal(
        sbp_message_reduce(&instance->space, instance->capacity, INFINITY, &arena, &reduced),
        SBP_OK);
    if (reduced.lower_s > instance->best_s * (1 + CLOSE))
        COMPLAIN(instance, "bound %.17g", reduced.lower_s);
    if (isfinite(reduced.upper_s))
        check_choice(instance, reduced.choice, reduced.upper_s);
    sbp_arena_free(&arena);
}

/* To the end, and cut short: then what is said must hold all the same. */
static void check_exact(const struct instance *instance, int64_t evaluations)
{
    const struct sbp_solver_options options = {.max_evaluations = evaluations};
    struct sbp_problem problem = problem_of(instance);
    struct sbp_solution solution;
    struct sbp_diag diag = {{0}};
    if (sbp_solver_find("exact")->solve(&problem, &options, &solution, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    if (solution.lower_bound > instance->best_s * (1 + CLOSE))
        COMPLAIN(instance, "exact, %" PRId64 " evaluations: bound %.17g", evaluations,
                 solution.lower_bound);
    if (solution.status == SBP_PLAN_INFEASIBLE && isfinite(instance->best_s))
        COMPLAIN(instance, "exact, %" PRId64 " evaluations: infeasible", evaluations);
    if (solution.choice != NULL)
        check_choice(instance, solution.choice, solution.cost);
    const bool optimal = solution.status == SBP_PLAN_OPTIMAL;
    if (optimal && solution.cost > instance->best_s * (1 + CLOSE))
        COMPLAIN(instance, "exact, %" PRId64 " evaluations: optimal %.17g", evaluations,
                 solution.cost);
    if (evaluations == 0 && !optimal && solution.status != SBP_PLAN_INFEASIBLE)
        COMPLAIN(instance, "exact: %s", sbp_solver_status_name(solution.status));
    sbp_solver_solution_free(&solution);
    sbp_problem_free(&problem);
}

static void check_capacity(struct instance *instance)
{
    struct sbp_problem problem = problem_of(instance);
    struct sbp_lagrangian_bound bound;
    instance->best_s = brute_force(&problem);
    sbp_problem_free(&problem);
    assert_int_equal(
        sbp_lagrangian_bound(&instance->space, instance->capacity, &instance->space.arena, &bound),
        SBP_OK);
    if (bound.bound_s > instance->best_s * (1 + CLOSE))
        COMPLAIN(instance, "bound without pairs %.17g", bound.bound_s);
    check_reduction(instance);
    check_exact(instance, 0);
    check_exact(instance, 20);
    check_exact(instance, 400);
}

/* From what nothing fits to nearly what the cheapest choice takes. */
static void check_capacities(struct instance *instance, double least, struct sbp_random *random)
{
    struct sbp_arena arena;
    struct sbp_message_reduction reduced;
    sbp_arena_init(&arena);
    assert_int_equal(sbp_message_reduce(&instance->space, INFINITY, INFINITY, &arena, &reduced),
                     SBP_OK);
    const double most = sbp_pricing_bytes(&instance->space, reduced.choice);
    sbp_arena_free(&arena);
    for (int i = 0; i < 4 && most > least; i++) {
        instance->capacity = least + (i == 0 ? -0.05 : sbp_random_unit(random)) * (most - least);
        check_capacity(instance);
        instance->capacities++;
    }
}

static bool cut(struct sbp_plan *plan, int pipeline)
{
    struct sbp_diag unsaid = {{0}};
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = pipeline;
    if (pipeline > 1 && parallel.micro_batch % 2 == 0)
        parallel.micro_batch /= 2;
    return sbp_parallel_check(&parallel, &plan->cut.graph, &plan->workload.cluster, &unsaid) ==
               SBP_OK &&
           sbp_plan_cut(plan, &parallel, &unsaid) == SBP_OK;
}

static double choices_of(const struct sbp_space *space)
{
    double choices = 1;
    for (int v = 0; v < space->variable_count; v++)
        choices *= space->variable[v].choice_count;
    return choices;
}

static void run(struct instance *instance)
{
    struct small_model model = {.linears = 3};
    struct small_text cluster_text;
    struct sbp_random random;
    struct sbp_lagrangian_bound bound;
    struct sbp_diag unsaid = {{0}};
    sbp_random_seed(&random, instance->seed);
    small_model_draw(&random, instance->kind, &model);
    small_cluster_draw(&random, instance->outer, instance->inner, false, &cluster_text);
    begin_plan(parsed(model.text.text), parsed(cluster_text.text), &instance->plan);
    instance->request =
        (struct sbp_solve_request){.asked.space = SBP_SPACE_FULL,
                                   .asked.quick = true,
                                   .zero_is_free = sbp_random_below(&random, 2) == 0};
    if (cut(&instance->plan, instance->pipeline) &&
        sbp_space_make(&instance->plan.cut, &instance->request, NULL, NULL, &instance->space,
                       &unsaid) == SBP_OK) {
        instance->capacity = INFINITY;
        assert_int_equal(sbp_lagrangian_bound(&instance->space, 1, &instance->space.arena, &bound),
                         SBP_OK);
        if (choices_of(&instance->space) <= MOST_CHOICES)
            check_capacities(instance, bound.least_bytes, &random);
        sbp_space_free(&instance->space);
    }
    sbp_plan_free(&instance->plan);
}

static void test_small_spaces(void **state)
{
    (void)state;
    static const struct instance kinds[] = {
        {.seed = 11, .kind = SMALL_CHAIN, .outer = 4, .inner = 1, .pipeline = 1},
        {.seed = 22, .kind = SMALL_CHAIN, .outer = 2, .inner = 2, .pipeline = 2},
        {.seed = 33, .kind = SMALL_RESIDUAL, .outer = 4, .inner = 1, .pipeline = 1},
        {.seed = 44, .kind = SMALL_NORMED, .outer = 2, .inner = 1, .pipeline = 1},
        {.seed = 55, .kind = SMALL_TRANSFORMER, .outer = 2, .inner = 1, .pipeline = 1},
        {.seed = 66, .kind = SMALL_LANGUAGE, .outer = 2, .inner = 2, .pipeline = 2}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int capacities = 0;
        for (uint64_t draw = 0; draw < 30; draw++) {
            struct instance instance = kinds[k];
            instance.seed += draw * 999983;
            run(&instance);
            capacities += instance.capacities;
        }
        printf("%s on %dx%d, %d stages: %d capacities\n", small_kind_name(kinds[k].kind),
               kinds[k].outer, kinds[k].inner, kinds[k].pipeline, capacities);
        assert_true(capacities >= 20);
    }
}

/* --- long chains --- */

/* Layers of different sizes, all multiples of 64. */
static char *chain(int layers, uint64_t seed)
{
    const size_t size = 128 + 96 * (size_t)layers;
    char *const text = malloc(size);
    struct sbp_random random;
    assert_non_null(text);
    sbp_random_seed(&random, seed);
    int used = snprintf(text, size,
                        "{\"name\": \"chain\", \"global_batch\": 1024, \"precision\": "
                        "\"mixed\", \"layers\": [");
    int in = 1024;
    for (int i = 0; i < layers; i++) {
        const int out = 64 * (4 + (int)sbp_random_below(&random, 21));
        used += snprintf(text + used, size - (size_t)used,
                         "%s{\"op\": \"linear\", \"name\": \"fc%d\", \"in\": %d, \"out\": %d}",
                         i > 0 ? ", " : "", i, in, out);
        in = out;
    }
    snprintf(text + used, size - (size_t)used, "]}");
    return text;
}

static const char cluster[] =
    "{\"name\": \"c\", \"levels\": [{\"name\": \"node\", \"size\": 8, \"alpha_s\": 1e-5, "
    "\"beta_s_per_byte\": 1e-10}, {\"name\": \"gpu\", \"size\": 8, \"alpha_s\": 3e-6, "
    "\"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 80000000000, \"flops\": "
    "{\"bf16\": 3e14}, \"memory_bytes_per_s\": 2e12}}";

/* Within a share of the least and the most memory that the memory model has a use for, messages
 * alone give a plan near their bound. */
static void check_gap(const struct sbp_plan *plan, double share, double most_gap)
{
    const struct sbp_solve_request request = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .zero_is_free = true};
    struct sbp_space space;
    struct sbp_lagrangian_bound bound;
    struct sbp_message_reduction free_of, reduced;
    struct sbp_diag diag = {{0}};
    if (sbp_space_make(&plan->cut, &request, NULL, NULL, &space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(sbp_lagrangian_bound(&space, 1, &space.arena, &bound), SBP_OK);
    assert_int_equal(sbp_message_reduce(&space, INFINITY, INFINITY, &space.arena, &free_of),
                     SBP_OK);
    const double most = sbp_pricing_bytes(&space, free_of.choice);
    const double capacity = bound.least_bytes + share * (most - bound.least_bytes);
    assert_int_equal(sbp_message_reduce(&space, capacity, INFINITY, &space.arena, &reduced),
                     SBP_OK);
    const double gap = reduced.upper_s / reduced.lower_s - 1;
    printf("share %.2f of the memory: gap %.3g %%\n", share, 100 * gap);
    assert_true(gap >= -CLOSE && gap <= most_gap);
    assert_true(sbp_pricing_bytes(&space, reduced.choice) <= capacity);
    sbp_space_free(&space);
}

/* A whole search within four fifths of the memory that the free plan takes. */
static void check_search(struct sbp_plan *plan)
{
    struct sbp_solve_request request = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .zero_is_free = true};
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    struct sbp_step step;
    if (solve_as(plan, &request, &outcome, &diag) != SBP_OK ||
        sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const double free_s = outcome.objective_s;
    request.asked.memory_limit_bytes = step.totals.device_bytes / 5 * 4;
    sbp_step_free(&step);
    if (solve_as(plan, &request, &outcome, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(outcome.status == SBP_PLAN_FEASIBLE || outcome.status == SBP_PLAN_OPTIMAL);
    assert_true(!outcome.stopped && outcome.lower_bound_s >= free_s * (1 - CLOSE));
    assert_true(outcome.objective_s >= outcome.lower_bound_s * (1 - CLOSE));
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(step.totals.device_bytes <= request.asked.memory_limit_bytes);
    printf("four fifths of the memory: %.3g %% above the bound\n",
           100 * (outcome.objective_s / outcome.lower_bound_s - 1));
    sbp_step_free(&step);
}

static void check_chain(int layers, double most_gap)
{
    static const double shares[] = {0.1, 0.4, 0.8};
    char *const model = chain(layers, 7);
    struct sbp_plan plan;
    begin_plan(parsed(model), parsed(cluster), &plan);
    for (int i = 0; i < 3; i++)
        check_gap(&plan, shares[i], most_gap);
    if (layers >= 100)
        check_search(&plan);
    sbp_plan_free(&plan);
    free(model);
}

static void test_chains(void **state)
{
    (void)state;
    check_chain(10, 2e-2);
    check_chain(100, 1e-3);
    check_chain(300, 5e-4);
}

/* --- why nothing cheaper is found --- */

/* A model whose memory is limited to some twentieths of what its cheapest plan takes, and what the
 * cheapest plan costs without and within the limit. */
struct limited {
    struct sbp_plan plan;
    struct sbp_solve_request request;
    struct sbp_outcome free_of, within;
    bool fits; /* the plan that is cheapest without */
    int twentieths;
};

static void search(struct limited *limited, struct sbp_outcome *outcome)
{
    struct sbp_diag diag = {{0}};
    if (solve_as(&limited->plan, &limited->request, outcome, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

static void limited_open(struct limited *limited, uint64_t seed, int twentieths)
{
    struct sbp_diag diag = {{0}};
    struct sbp_step step;
    char *const model = chain(1 + (int)seed % 3, seed);
    limited->request = (struct sbp_solve_request){
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .zero_is_free = true};
    limited->twentieths = twentieths;
    begin_plan(parsed(model), parsed(cluster), &limited->plan);
    free(model);
    search(limited, &limited->free_of);
    if (sbp_cut_step(&limited->plan.cut, &limited->plan.strategy, false, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    limited->request.asked.memory_limit_bytes = step.totals.device_bytes / 20 * twentieths;
    limited->fits = step.totals.device_bytes <= limited->request.asked.memory_limit_bytes;
    sbp_step_free(&step);
    search(limited, &limited->within);
}

/* Runs a check on chains of some seeds, with limits at every `step` twentieths of the memory.
 * Returns the sum of the counts that the checks return. */
static int limit_chains(uint64_t seeds, int step, int last, int (*check)(struct limited *limited))
{
    int counted = 0;
    for (uint64_t seed = 0; seed < seeds; seed++)
        for (int twentieths = step; twentieths <= last; twentieths += step) {
            struct limited limited;
            limited_open(&limited, seed, twentieths);
            counted += check(&limited);
            sbp_plan_free(&limited.plan);
        }
    return counted;
}

/* Between what plans cost without a limit and within it memory is why there is none, however soon
 * the search knows that there is none: others, which keep less, must be looked at. */
static int check_reason(struct limited *limited)
{
    int goals = 0;
    const double free_s = limited->free_of.objective_s, within_s = limited->within.lower_bound_s;
    const double gap_s = within_s - free_s;
    for (int i = 1; i < 10 && isfinite(gap_s) && gap_s > 1e-6 * free_s; i++) {
        struct sbp_outcome outcome;
        limited->request.upper_bound_s = free_s + gap_s * i / 10;
        search(limited, &outcome);
        if (isfinite(outcome.objective_s) || !outcome.memory_binds)
            fail_msg("%d twentieths: without a limit %.12g, within it %.12g: below %.12g found "
                     "%.12g, memory binds %d",
                     limited->twentieths, free_s, within_s, limited->request.upper_bound_s,
                     outcome.objective_s, outcome.memory_binds);
        goals++;
    }
    return goals;
}

static void test_reasons(void **state)
{
    (void)state;
    const int goals = limit_chains(6, 3, 18, check_reason);
    printf("%d goals between what plans cost without a limit and within it\n", goals);
    assert_true(goals >= 50);
}

/* Put off, a limit of memory changes nothing but what is said of the plan that is found without
 * one; the bound holds without one, too. */
static int check_put_off(struct limited *limited)
{
    const double free_s = limited->free_of.objective_s, within_s = limited->within.objective_s;
    struct sbp_outcome outcome;
    limited->request.puts_memory_off = true;
    search(limited, &outcome);
    if (outcome.is_too_large == limited->fits || isfinite(outcome.objective_s) != limited->fits ||
        outcome.strategy_s > limited->free_of.strategy_s * (1 + CLOSE) ||
        outcome.lower_bound_s > free_s * (1 + CLOSE) ||
        outcome.lower_bound_s > within_s * (1 + CLOSE))
        fail_msg("%d twentieths: too large %d, objective %.12g, strategy %.12g, bound %.12g; "
                 "without a limit %.12g, within it %.12g",
                 limited->twentieths, outcome.is_too_large, outcome.objective_s, outcome.strategy_s,
                 outcome.lower_bound_s, free_s, within_s);
    return outcome.is_too_large;
}

static void test_put_off(void **state)
{
    (void)state;
    assert_true(limit_chains(4, 6, 24, check_put_off) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_spaces), cmocka_unit_test(test_chains),
        cmocka_unit_test(test_reasons), cmocka_unit_test(test_put_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

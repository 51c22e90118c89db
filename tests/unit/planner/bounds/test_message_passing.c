/* Edge costs without tables over pairs, against the same costs pair by pair; and reduced spaces
 * against the exact solver on the whole space. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "base/math/random.h"
#include "planner/bounds/lagrangian.h"
#include "planner/bounds/message_passing.h"
#include "planner/limits.h"
#include "tests/support/unit.h"

#define CLOSE 1e-9

#define LEVEL(name, size, beta)                                                                    \
    "{\"name\": \"" name "\", \"size\": " #size ", \"alpha_s\": 1e-6, \"beta_s_per_byte\": " #beta \
    "}"

static void open_plan(const char *model, const char *levels, struct sbp_plan *plan)
{
    char cluster[1024];
    snprintf(cluster, sizeof cluster,
             "{\"name\": \"c\", \"levels\": [%s], \"device\": {\"memory_bytes\": 1e15, \"flops\": "
             "{\"fp32\": 1e13}, \"memory_bytes_per_s\": 1e11}}",
             levels);
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", plan, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
}

static void make(const struct sbp_plan *plan, const struct sbp_solve_request *request,
                 struct sbp_space *space)
{
    struct sbp_diag diag = {{0}};
    if (sbp_space_make(&plan->cut, request, NULL, NULL, space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

#define GPT                                                                                        \
    "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 3, \"hidden\": 144, \"heads\": 36, " \
    "\"sequence\": 36, \"vocab\": 144, \"global_batch\": 36}"
#define LLAMA                                                                                      \
    "{\"name\": \"l\", \"architecture\": \"llama\", \"layers\": 2, \"hidden\": 96, \"heads\": "    \
    "48, \"kv_heads\": 24, \"ffn\": 192, \"sequence\": 48, \"vocab\": 96, \"global_batch\": 48}"
#define CHAIN                                                                                      \
    "{\"name\": \"m\", \"global_batch\": 144, \"input\": \"split\", \"features\": 144, "           \
    "\"layers\": [{\"op\": \"linear\", \"out\": 288}, {\"op\": \"relu\"}, {\"op\": \"linear\", "   \
    "\"out\": 144}, {\"op\": \"linear\", \"out\": 144}]}"
/* Nothing divides the first layer: its output rests whole. */
#define ODD                                                                                        \
    "{\"name\": \"o\", \"global_batch\": 5, \"layers\": [{\"op\": \"linear\", \"name\": "          \
    "\"odd\", \"in\": 25, \"out\": 35}, {\"op\": \"linear\", \"out\": 72}, {\"op\": \"linear\", "  \
    "\"out\": 144}]}"

/* Two linears alike, of which one is gathered again for its readers under regather: backward, gelu
 * reads what it was given and tanh what it gave. */
#define TWINS                                                                                      \
    "{\"name\": \"t\", \"global_batch\": 144, \"features\": 144, \"layers\": [{\"op\": "           \
    "\"linear\", \"name\": \"a\", \"out\": 144}, {\"op\": \"linear\", \"name\": \"q\", "           \
    "\"inputs\": [\"a\"], \"out\": 144}, {\"op\": \"linear\", \"name\": \"k\", \"inputs\": "       \
    "[\"a\"], \"out\": 144}, {\"op\": \"gelu\", \"name\": \"g\", \"inputs\": [\"a\"]}, {\"op\": "  \
    "\"add\", \"name\": \"r\", \"inputs\": [\"q\", \"k\"]}, {\"op\": \"add\", \"name\": \"s\", "   \
    "\"inputs\": [\"r\", \"g\"]}, {\"op\": \"linear\", \"name\": \"b\", \"inputs\": [\"s\"], "     \
    "\"out\": 144}, {\"op\": \"linear\", \"name\": \"u\", \"inputs\": [\"b\"], \"out\": 144}, "    \
    "{\"op\": \"linear\", \"name\": \"v\", \"inputs\": [\"b\"], \"out\": 144}, {\"op\": "          \
    "\"tanh\", \"name\": \"h\", \"inputs\": [\"b\"]}, {\"op\": \"add\", \"name\": \"w\", "         \
    "\"inputs\": [\"u\", \"v\"]}, {\"op\": \"add\", \"name\": \"x\", \"inputs\": [\"w\", "         \
    "\"h\"]}]}"

/* Threes divide nothing; what two readers want may rest whole. */
#define FAN                                                                                        \
    "{\"name\": \"f\", \"global_batch\": 16, \"sequence\": 16, \"features\": 16, \"layers\": ["    \
    "{\"op\": \"linear\", \"name\": \"a\", \"out\": 16}, "                                         \
    "{\"op\": \"linear\", \"name\": \"b\", \"inputs\": [\"a\"], \"out\": 16}, "                    \
    "{\"op\": \"linear\", \"name\": \"c\", \"inputs\": [\"a\"], \"out\": 16}, "                    \
    "{\"op\": \"add\", \"inputs\": [\"b\", \"c\"]}]}"

static const char *const flat = LEVEL("l", 12, 1e-9);
static const char *const two = LEVEL("o", 4, 4e-10) ", " LEVEL("i", 6, 1e-10);
static const char *const three =
    LEVEL("a", 2, 4e-9) ", " LEVEL("b", 6, 1e-9) ", " LEVEL("c", 2, 1e-10);
static const char *const four = LEVEL("a", 12, 4e-9) ", " LEVEL("b", 12, 1e-9) ", " LEVEL(
    "c", 6, 4e-10) ", " LEVEL("d", 6, 1e-10);

/* --- spreading --- */

static void draw_tuples(struct sbp_random *random, int count, uint64_t share,
                        struct sbp_tuples *tuples)
{
    tuples->count = 0;
    for (int t = 0; t < count; t++)
        if (sbp_random_below(random, 8) < share)
            tuples->tuple[tuples->count++] = t;
}

static double least_over(const struct sbp_space_edge *edge, bool forward,
                         const struct sbp_tuples *sources, const double *from, int target)
{
    double least = INFINITY;
    for (int i = 0; i < sources->count; i++) {
        const int source = sources->tuple[i];
        const double price = forward ? sbp_edge_price_s(edge, source, target)
                                     : sbp_edge_price_s(edge, target, source);
        if (price < SBP_FORBIDDEN)
            least = fmin(least, from[source] + price);
    }
    return least;
}

static void check_spread(const struct sbp_space_edge *edge, bool forward, int sources, int targets,
                         struct sbp_random *random, uint64_t seed)
{
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    struct sbp_tuples source = {.tuple = SBP_NEW(&arena, int, sources)};
    struct sbp_tuples target = {.tuple = SBP_NEW(&arena, int, targets)};
    double *const from = SBP_NEW(&arena, double, sources), *const to =
                                                               SBP_NEW(&arena, double, targets);
    draw_tuples(random, sources, 1 + sbp_random_below(random, 8), &source);
    draw_tuples(random, targets, 1 + sbp_random_below(random, 8), &target);
    for (int s = 0; s < sources; s++)
        from[s] = 1e-3 * sbp_random_unit(random);
    assert_int_equal(sbp_edge_spread(edge, forward, &source, from, &target, to, &arena), SBP_OK);
    for (int i = 0; i < target.count; i++) {
        const double expected = least_over(edge, forward, &source, from, target.tuple[i]);
        if (fabs(to[target.tuple[i]] - expected) > 1e-15 &&
            !(isinf(expected) && isinf(to[target.tuple[i]])))
            fail_msg("seed %" PRIu64 ": tuple %d: %.17g, expected %.17g", seed, target.tuple[i],
                     to[target.tuple[i]], expected);
    }
    sbp_arena_free(&arena);
}

/* Prices of edges are those of pairs of choices, and are spread as they stand. */
static void check_edges(const char *model, const char *levels, struct sbp_solve_request request,
                        uint64_t seed)
{
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_space_edges edges;
    struct sbp_arena arena;
    struct sbp_random random;
    struct sbp_diag diag = {{0}};
    sbp_arena_init(&arena);
    sbp_random_seed(&random, seed);
    open_plan(model, levels, &plan);
    struct sbp_parallel parallel = plan.cut.parallel;
    parallel.regather = seed % 2 == 1;
    assert_int_equal(sbp_plan_cut(&plan, &parallel, &diag), SBP_OK);
    make(&plan, &request, &space);
    assert_int_equal(sbp_pricing_make_edges(&space, &arena, &edges), SBP_OK);
    assert_int_equal(edges.count, space.output_edge_count + space.input_edge_count);
    for (int e = 0; e < edges.count; e++) {
        const struct sbp_space_edge *const edge = &edges.edge[e];
        const int a = edge->ends.from.variable, b = edge->ends.to.variable;
        const struct sbp_space_variable *const from = &space.variable[a], *const to =
                                                                              &space.variable[b];
        for (int i = 0; i < 200; i++) {
            const int c = (int)sbp_random_below(&random, (uint64_t)from->choice_count);
            const int d = (int)sbp_random_below(&random, (uint64_t)to->choice_count);
            const double expected =
                e < space.output_edge_count
                    ? sbp_pricing_output_edge_s(&space, &space.output_edge[e], c, d)
                    : sbp_pricing_input_edge_s(
                          &space, &space.input_edge[e - space.output_edge_count], c, d);
            assert_true(sbp_edge_price_s(edge, from->tuple[c], to->tuple[d]) == expected);
        }
        for (int i = 0; i < 6 && a != b; i++) {
            check_spread(edge, true, from->tuple_count, to->tuple_count, &random, seed);
            check_spread(edge, false, to->tuple_count, from->tuple_count, &random, seed);
        }
    }
    sbp_arena_free(&arena);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void test_edges(void **state)
{
    (void)state;
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    const struct sbp_solve_request paper = {.asked.space = SBP_SPACE_AUTODDL,
                                            .asked.boxing = SBP_BOXING_PAPER};
    static const char *const models[] = {GPT, LLAMA, CHAIN, ODD, TWINS};
    static const char *const meshes[] = {flat, two, three};
    for (uint64_t m = 0; m < 5; m++)
        for (uint64_t l = 0; l < 6; l++)
            check_edges(models[m], meshes[l % 3], full, 10 * m + l);
    for (uint64_t l = 0; l < 3; l++)
        check_edges(CHAIN, meshes[l], paper, 100 + l);
}

/* The edges of a model's space on four levels. */
struct opened {
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_space_edges edges;
    struct sbp_arena arena;
};

static void open_edges(const char *model, const struct sbp_solve_request *request,
                       struct opened *opened)
{
    sbp_arena_init(&opened->arena);
    open_plan(model, four, &opened->plan);
    make(&opened->plan, request, &opened->space);
    assert_int_equal(sbp_pricing_make_edges(&opened->space, &opened->arena, &opened->edges),
                     SBP_OK);
}

static void close_edges(struct opened *opened)
{
    sbp_arena_free(&opened->arena);
    sbp_space_free(&opened->space);
    sbp_plan_free(&opened->plan);
}

/* Places that share a slot are told apart. */
static void test_large_tables(void **state)
{
    (void)state;
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    struct opened o;
    int told = 0;
    open_edges(FAN, &full, &o);
    for (int e = 0; e < o.edges.count; e++) {
        const struct sbp_space_edge *const edge = &o.edges.edge[e];
        const int64_t places = edge->stride[0] * edge->kinds[0];
        for (int64_t place = 0; place + edge->slots < places; place += 997) {
            const double one = sbp_edge_price_at(edge, place);
            const double other = sbp_edge_price_at(edge, place + edge->slots);
            assert_true(sbp_edge_price_at(edge, place) == one);
            told += one != other;
        }
    }
    assert_true(told > 100);
    close_edges(&o);
}

/* Prices that are kept take 128 MiB at most, of however many edges. */
static void test_many_tables(void **state)
{
    (void)state;
    enum { FANS = 8 };
    char model[128 + 160 * FANS];
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    struct opened o;
    size_t bytes = 0;
    int used = snprintf(model, sizeof model,
                        "{\"name\": \"m\", \"global_batch\": 16, \"sequence\": 16, "
                        "\"features\": 16, \"layers\": [");
    for (int i = 0; i < FANS; i++)
        used += snprintf(model + used, sizeof model - (size_t)used,
                         "{\"op\": \"linear\", \"name\": \"a%d\", \"out\": 16}, "
                         "{\"op\": \"linear\", \"name\": \"b%d\", \"out\": 16}, "
                         "{\"op\": \"add\", \"inputs\": [\"a%d\", \"b%d\"]}%s",
                         i, i, i, i, i + 1 < FANS ? ", " : "]}");
    open_edges(model, &full, &o);
    for (int e = 0; e < o.edges.count; e++)
        bytes += (size_t)o.edges.edge[e].slots * sizeof(struct sbp_edge_price);
    print_message("%d edges, %zu bytes\n", o.edges.count, bytes);
    assert_true(bytes <= (size_t)128 << 20);
    close_edges(&o);
}

static int prices_known(const struct sbp_space_edge *edge)
{
    int known = 0;
    for (int64_t i = 0; i < edge->slots; i++)
        known += edge->price[i].place >= 0;
    return known;
}

static enum sbp_status spread_all(const struct sbp_space_edge *edge, int sources, int targets,
                                  struct sbp_arena *arena)
{
    struct sbp_tuples source = {.tuple = SBP_NEW(arena, int, sources)};
    struct sbp_tuples target = {.tuple = SBP_NEW(arena, int, targets)};
    double *const from = SBP_NEW(arena, double, sources);
    double *const to = SBP_NEW(arena, double, targets);
    while (source.count < sources)
        source.tuple[source.count] = source.count, source.count++;
    while (target.count < targets)
        target.tuple[target.count] = target.count, target.count++;
    return sbp_edge_spread(edge, true, &source, from, &target, to, arena);
}

/* Who stops does not wait for an edge of a million prices. */
static void test_stop(void **state)
{
    (void)state;
    atomic_int stop = 0;
    const struct sbp_solve_request full = {
        .asked = {.space = SBP_SPACE_FULL, .quick = true, .solver_options.stop = &stop}};
    struct opened o;
    int stopped = 0;
    open_edges(FAN, &full, &o);
    for (int e = 0; e < o.edges.count; e++) {
        const struct sbp_space_edge *const edge = &o.edges.edge[e];
        const int sources = o.space.variable[edge->ends.from.variable].tuple_count;
        const int targets = o.space.variable[edge->ends.to.variable].tuple_count;
        const int before = prices_known(edge);
        stop = 1;
        stopped += spread_all(edge, sources, targets, &o.arena) == SBP_STOPPED;
        const int looked_at = prices_known(edge) - before;
        assert_true(looked_at <= SBP_PRICING_CLOCK_ENTRIES);
        stop = 0;
        assert_int_equal(spread_all(edge, sources, targets, &o.arena), SBP_OK);
        print_message("edge %d: %d prices after a stop, %d of all\n", e, looked_at,
                      prices_known(edge));
    }
    assert_true(stopped > 0);
    close_edges(&o);
}

/* --- reducing --- */

static double optimum(const struct sbp_space *space, double capacity)
{
    struct sbp_problem problem;
    struct sbp_solution solution;
    struct sbp_diag diag = {{0}};
    const struct sbp_solver_options options = {.seed = 0};
    assert_int_equal(sbp_pricing_problem(space, capacity, &problem, &diag), SBP_OK);
    if (sbp_solver_find("exact")->solve(&problem, &options, &solution, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(solution.status == SBP_PLAN_OPTIMAL || solution.status == SBP_PLAN_INFEASIBLE);
    const double cost = solution.cost;
    sbp_solver_solution_free(&solution);
    sbp_problem_free(&problem);
    return cost;
}

static double cost_of(const struct sbp_space *space, const int *choice)
{
    struct sbp_problem problem;
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_pricing_problem(space, INFINITY, &problem, &diag), SBP_OK);
    const double cost = sbp_problem_cost(&problem, choice);
    sbp_problem_free(&problem);
    return cost;
}

static bool is_left(const struct sbp_message_reduction *reduction, int variable, int choice)
{
    for (int i = 0; i < reduction->count[variable]; i++)
        if (reduction->original[variable][i] == choice)
            return true;
    return false;
}

/* Bounds hold, the known choice is one and is left, and what is left holds the optimum where it is
 * below the goal. */
static void check_reduced(const struct sbp_space *space, double capacity, double goal,
                          const char *what)
{
    struct sbp_arena arena;
    struct sbp_message_reduction reduced;
    sbp_arena_init(&arena);
    assert_int_equal(sbp_message_reduce(space, capacity, goal, &arena, &reduced), SBP_OK);
    const double best = optimum(space, capacity), wanted = fmin(best, goal);
    if (reduced.lower_s > wanted * (1 + CLOSE) || (isinf(wanted) && isfinite(reduced.upper_s)))
        fail_msg("%s: bound %.17g, optimum %.17g, goal %.17g", what, reduced.lower_s, best, goal);
    if (isfinite(reduced.upper_s)) {
        const double cost = cost_of(space, reduced.choice);
        if (fabs(cost - reduced.upper_s) > CLOSE * cost || cost < best * (1 - CLOSE))
            fail_msg("%s: a choice of %.17g costs %.17g, optimum %.17g", what, reduced.upper_s,
                     cost, best);
        if (isfinite(capacity))
            assert_true(sbp_pricing_bytes(space, reduced.choice) <= capacity * (1 + CLOSE));
    }
    for (int v = 0; v < space->variable_count; v++)
        assert_true(isinf(reduced.upper_s) || is_left(&reduced, v, reduced.choice[v]));
    for (int v = 0; v < space->variable_count; v++)
        for (int c = 0; c < reduced.space.variable[v].choice_count && !reduced.is_settled; c++)
            assert_true(reduced.space.variable[v].cost_s[c] ==
                        space->variable[v].cost_s[reduced.original[v][c]]);
    if (best < goal * (1 - CLOSE)) {
        const double left =
            reduced.is_settled ? reduced.upper_s : optimum(&reduced.space, capacity);
        if (fabs(left - best) > CLOSE * best)
            fail_msg("%s: %.17g is left, optimum %.17g", what, left, best);
    }
    sbp_arena_free(&arena);
}

/* Checks that all choices stay that cost less than the goal, cheaper ones or not: one change from
 * the cheapest choice and all that goes with it. Returns how many there are beside it. */
static int check_narrowed(const struct sbp_space *space, double share)
{
    int kept = 0;
    struct sbp_arena arena;
    struct sbp_message_reduction best, narrowed;
    struct sbp_problem problem;
    struct sbp_diag diag = {{0}};
    sbp_arena_init(&arena);
    assert_int_equal(sbp_pricing_problem(space, INFINITY, &problem, &diag), SBP_OK);
    assert_int_equal(sbp_message_reduce(space, INFINITY, INFINITY, &arena, &best), SBP_OK);
    const double goal = best.upper_s * (1 + share);
    assert_int_equal(sbp_message_narrow(space, goal, &arena, &narrowed), SBP_OK);
    assert_true(!narrowed.is_settled && narrowed.lower_s <= best.upper_s * (1 + CLOSE));
    for (int v = 0; v < space->variable_count; v++) {
        const int chosen = best.choice[v];
        for (int c = 0; c < space->variable[v].choice_count; c++) {
            best.choice[v] = c;
            if (sbp_problem_cost(&problem, best.choice) >= goal * (1 - CLOSE))
                continue;
            for (int other = 0; other < space->variable_count; other++)
                assert_true(is_left(&narrowed, other, best.choice[other]));
            kept += c != chosen;
        }
        best.choice[v] = chosen;
    }
    sbp_problem_free(&problem);
    sbp_arena_free(&arena);
    return kept;
}

static double bytes_of_free_optimum(const struct sbp_space *space)
{
    struct sbp_arena arena;
    struct sbp_message_reduction reduced;
    sbp_arena_init(&arena);
    assert_int_equal(sbp_message_reduce(space, INFINITY, INFINITY, &arena, &reduced), SBP_OK);
    const double bytes = sbp_pricing_bytes(space, reduced.choice);
    sbp_arena_free(&arena);
    return bytes;
}

static void check_reductions(const char *model, const char *levels,
                             struct sbp_solve_request request, int micro_batches)
{
    static const double shares[] = {-0.1, 0.02, 0.2, 0.5, 0.9};
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_lagrangian_bound bound;
    struct sbp_diag diag = {{0}};
    open_plan(model, levels, &plan);
    struct sbp_parallel parallel = plan.cut.parallel;
    parallel.micro_batch /= micro_batches;
    if (sbp_plan_cut(&plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    make(&plan, &request, &space);
    const double free_s = optimum(&space, INFINITY);
    check_reduced(&space, INFINITY, INFINITY, "free");
    assert_true(check_narrowed(&space, 0.3) > 0);
    (void)check_narrowed(&space, 0.01);
    check_reduced(&space, INFINITY, 0.99 * free_s, "free, below the optimum");
    check_reduced(&space, INFINITY, 1.01 * free_s, "free, above the optimum");
    assert_int_equal(sbp_lagrangian_bound(&space, 1, &space.arena, &bound), SBP_OK);
    assert_true(isinf(bound.bound_s));
    const double most = bytes_of_free_optimum(&space), least = bound.least_bytes;
    for (int i = 0; i < 5 && most > least; i++) {
        const double capacity = least + shares[i] * (most - least);
        const double best = optimum(&space, capacity);
        assert_int_equal(sbp_lagrangian_bound(&space, capacity, &space.arena, &bound), SBP_OK);
        assert_true(bound.bound_s <= best * (1 + CLOSE) && bound.bound_s >= bound.time_s);
        check_reduced(&space, capacity, INFINITY, "with little memory");
        check_reduced(&space, capacity, isfinite(best) ? 1.001 * best : 2 * free_s,
                      "with little memory, just above the optimum");
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void test_reductions(void **state)
{
    (void)state;
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    const struct sbp_solve_request levels = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .zero_is_free = true};
    const struct sbp_solve_request paper = {.asked.space = SBP_SPACE_AUTODDL,
                                            .asked.boxing = SBP_BOXING_PAPER};
    static const char *const models[] = {GPT, LLAMA, CHAIN, ODD, TWINS};
    /* Tensors that may rest whole take tables over pairs to solve by themselves. */
    for (int m = 0; m < 4; m++) {
        const char *const mesh = m == 1 ? LEVEL("l", 6, 1e-9) : flat;
        check_reductions(models[m], mesh, full, 1);
        check_reductions(models[m], mesh, levels, m < 3 ? 3 : 1);
    }
    check_reductions(CHAIN, two, full, 1);
    check_reductions(CHAIN, two, levels, 2);
    check_reductions(CHAIN, three, paper, 1);
    check_reductions(GPT, LEVEL("o", 2, 4e-9) ", " LEVEL("i", 4, 1e-10), full, 1);
}

/* --- goals --- */

/* A table that two ways lead out of: one suits layers that split the batch, the other those that
 * split the sequence. */
#define TIED                                                                                       \
    "{\"name\": \"t\", \"global_batch\": 64, \"sequence\": 64, \"layers\": [{\"op\": "             \
    "\"embedding\", \"name\": \"table\", \"vocab\": 64, \"hidden\": 64}, {\"op\": \"linear\", "    \
    "\"name\": \"middle\", \"out\": 64}, {\"op\": \"linear\", \"tied\": \"table\"}, {\"op\": "     \
    "\"linear\", \"name\": \"last\", \"out\": 64}]}"

/* All of a flat cluster's devices to one role of a layer. */
static struct sbp_fix all_to(const struct sbp_plan *plan, const char *layer, const char *role)
{
    struct sbp_fix fix = {.zero = SBP_ANY};
    int op = 0;
    while (strcmp(plan->cut.graph.op[op].name, layer) != 0)
        op++;
    snprintf(fix.layer, sizeof fix.layer, "%s", layer);
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        fix.factor[r][0] = 1;
    fix.factor[sbp_op_role(plan->cut.graph.op[op].entry, role)][0] = plan->cut.mesh.devices;
    return fix;
}

/* Under a goal between the messages' first bound and the optimum, one way out of the table keeps
 * what the other rules out: nothing is left, which proves the goal and no more. */
static void test_goals(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    open_plan(TIED, LEVEL("l", 2, 1e-9), &plan);
    const struct sbp_fix fixes[] = {all_to(&plan, "middle", "batch"),
                                    all_to(&plan, "last", "sequence")};
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                              .asked.quick = true,
                                              .asked.fix_count = 2,
                                              .asked.fix = fixes,
                                              .zero_is_free = true};
    make(&plan, &request, &space);
    const double best = optimum(&space, INFINITY), room = 1e15;
    for (int percent = 5; percent <= 105; percent += 5) {
        char what[32];
        snprintf(what, sizeof what, "a goal of %d %%", percent);
        check_reduced(&space, room, best * percent / 100, what);
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),       cmocka_unit_test(test_large_tables),
        cmocka_unit_test(test_many_tables), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_reductions),  cmocka_unit_test(test_goals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

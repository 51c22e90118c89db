#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/math/random.h"
#include "planner/problem/problem.h"
#include "tests/support/unit.h"

/* --- files --- */

static void temporary(char *path)
{
    strcpy(path, "/tmp/sbp_test_problem_XXXXXX");
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(close(descriptor), 0);
}

static void write_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    assert_int_equal(fclose(out), 0);
}

/* --- building and pricing --- */

static void test_edges_are_shared(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 0, 0), SBP_OK);
    enum { COUNT = 60 }; /* past the room of the first arrays */
    for (int v = 0; v < COUNT; v++)
        assert_int_equal(sbp_problem_add_variable(&problem, "v", 1 + v % 3, 0, NULL), v);
    for (int a = 0; a < COUNT; a++)
        for (int b = a + 1; b < COUNT; b++) {
            bool forward, backward;
            const double *table = sbp_problem_edge_table(&problem, a, b, &forward);
            assert_non_null(table);
            assert_ptr_equal(table, sbp_problem_edge_table(&problem, b, a, &backward));
            assert_false(forward);
            assert_true(backward);
        }
    assert_int_equal(problem.edge_count, COUNT * (COUNT - 1) / 2);
    sbp_problem_free(&problem);
    sbp_problem_free(&problem);
    sbp_problem_free(NULL);
}

static void test_long_names_are_cut(void **state)
{
    (void)state;
    struct sbp_problem problem;
    char name[200];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(sbp_problem_init(&problem, 1, 0), SBP_OK);
    assert_int_equal(sbp_problem_add_variable(&problem, name, 1, 0, NULL), 0);
    assert_int_equal(strlen(problem.variable[0].name), sizeof problem.variable[0].name - 1);
    sbp_problem_free(&problem);
}

static void test_cost_and_peak(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 2, 1), SBP_OK);
    const struct sbp_interval first[] = {{0, 4}, {6, 8}}, second[] = {{4, 7}};
    assert_int_equal(sbp_problem_add_variable(&problem, "a", 2, 2, first), 0);
    assert_int_equal(sbp_problem_add_variable(&problem, "b", 2, 1, second), 1);
    memcpy(problem.variable[0].cost, (double[]){1, 2}, 2 * sizeof(double));
    memcpy(problem.variable[0].usage, (double[]){5, 7, 1, 2}, 4 * sizeof(double));
    memcpy(problem.variable[1].cost, (double[]){10, 20}, 2 * sizeof(double));
    memcpy(problem.variable[1].usage, (double[]){3, 6}, 2 * sizeof(double));
    bool transposed;
    double *table = sbp_problem_edge_table(&problem, 0, 1, &transposed);
    assert_non_null(table);
    memcpy(table, (double[]){100, 200, 300, SBP_FORBIDDEN}, 4 * sizeof(double));
    const int choices[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    const double costs[4] = {111, 221, 312, SBP_FORBIDDEN};
    const double peaks[4] = {5, 7, 7, 8}; /* at [0, 4) the one, at [6, 7) both */
    for (int i = 0; i < 4; i++) {
        assert_true(sbp_problem_cost(&problem, choices[i]) == costs[i]);
        assert_true(sbp_problem_peak_usage(&problem, choices[i]) == peaks[i]);
    }
    assert_true(sbp_problem_fits(&problem, 1e300));
    problem.capacity = 7;
    assert_true(sbp_problem_fits(&problem, 7));
    assert_false(sbp_problem_fits(&problem, 7.0001));
    sbp_problem_free(&problem);
}

/* --- random problems, elimination --- */

static double draw_cost(struct sbp_random *random)
{
    return sbp_random_below(random, 6) == 0 ? SBP_FORBIDDEN : sbp_random_unit(random) - 0.25;
}

/* A connected problem with some variables that use nothing. */
static void build_random(struct sbp_problem *problem, uint64_t seed, bool with_usages)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    assert_int_equal(sbp_problem_init(problem, 0, 0), SBP_OK);
    const int count = 2 + (int)sbp_random_below(&random, 5);
    for (int v = 0; v < count; v++) {
        const struct sbp_interval intervals[] = {{v, v + 3}, {v + 4, v + 6}, {1, 20}};
        const int domain = 1 + (int)sbp_random_below(&random, 4);
        const int used = with_usages ? (int)sbp_random_below(&random, 4) : 0;
        assert_int_equal(sbp_problem_add_variable(problem, "v", domain, used, intervals), v);
        for (int k = 0; k < domain; k++)
            problem->variable[v].cost[k] = draw_cost(&random);
        for (int i = 0; i < used * domain; i++)
            problem->variable[v].usage[i] = (double)sbp_random_below(&random, 9);
    }
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++) {
            bool transposed;
            if (a - b != 1 && sbp_random_below(&random, 3) > 0)
                continue;
            double *table = sbp_problem_edge_table(problem, a, b, &transposed);
            assert_non_null(table);
            const int entries = problem->variable[a].domain * problem->variable[b].domain;
            for (int i = 0; i < entries; i++)
                table[i] = draw_cost(&random);
        }
    if (with_usages)
        problem->capacity = 10.5;
}

/* Steps to the next assignment; false after the last. */
static bool next_choice(const struct sbp_problem *problem, int *choice)
{
    for (int v = 0; v < problem->variable_count; v++) {
        if (++choice[v] < problem->variable[v].domain)
            return true;
        choice[v] = 0;
    }
    return false;
}

static double least_cost(const struct sbp_problem *problem, int *best)
{
    int choice[16] = {0};
    double least = INFINITY;
    do {
        const double cost = sbp_problem_cost(problem, choice);
        if (cost < least) {
            least = cost;
            memcpy(best, choice, sizeof choice);
        }
    } while (next_choice(problem, choice));
    return least;
}

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (1 + fabs(a) + fabs(b));
}

/* Eliminates variables while it can; then every assignment of the rest, completed, costs in the
 * original what it costs in the rest, and the least cost is the same. Returns how many went. */
static int check_elimination(uint64_t seed)
{
    struct sbp_problem original, reduced;
    build_random(&original, seed, false);
    build_random(&reduced, seed, false);
    struct sbp_elimination steps[16];
    int count = 0, choice[16] = {0}, best[16];
    for (int v = 0; v < reduced.variable_count; v++)
        if (sbp_problem_eliminate(&reduced, v, &steps[count]) == SBP_OK) {
            assert_int_equal(reduced.variable[v].domain, 1);
            count++;
        }
    do {
        int complete[16];
        memcpy(complete, choice, sizeof choice);
        for (int i = count; i-- > 0;)
            sbp_problem_recover(&reduced, &steps[i], complete);
        const double expected = sbp_problem_cost(&reduced, choice);
        const double cost = sbp_problem_cost(&original, complete);
        if (!is_close(cost, expected))
            fail_msg("seed %" PRIu64 ": completed %.17g, reduced %.17g", seed, cost, expected);
    } while (next_choice(&reduced, choice));
    const double whole = least_cost(&original, best), rest = least_cost(&reduced, best);
    if (!is_close(whole, rest))
        fail_msg("seed %" PRIu64 ": least cost %.17g, after elimination %.17g", seed, whole, rest);
    sbp_problem_free(&original);
    sbp_problem_free(&reduced);
    return count;
}

static void test_elimination(void **state)
{
    (void)state;
    int eliminated = 0;
    for (uint64_t seed = 0; seed < 500; seed++)
        eliminated += check_elimination(seed);
    printf("%d variables eliminated\n", eliminated);
    assert_true(eliminated > 500);
}

static void test_elimination_refuses(void **state)
{
    (void)state;
    struct sbp_problem problem;
    struct sbp_elimination step;
    assert_int_equal(sbp_problem_init(&problem, 4, 3), SBP_OK);
    const struct sbp_interval always = {0, 1};
    for (int v = 0; v < 4; v++)
        assert_int_equal(sbp_problem_add_variable(&problem, "v", 2, 1, &always), v);
    bool transposed;
    for (int v = 1; v < 4; v++)
        assert_non_null(sbp_problem_edge_table(&problem, 0, v, &transposed));
    problem.variable[1].usage[1] = 1;
    assert_int_equal(sbp_problem_eliminate(&problem, 0, &step), SBP_E_UNSUPPORTED); /* degree 3 */
    assert_int_equal(sbp_problem_eliminate(&problem, 1, &step), SBP_E_UNSUPPORTED); /* a usage */
    assert_int_equal(problem.edge_count, 3);
    assert_int_equal(sbp_problem_eliminate(&problem, 2, &step), SBP_OK); /* all usages are 0 */
    sbp_problem_free(&problem);
}

/* --- JSON --- */

/* A choice of the written problem: helpers, which follow the variables, choose as theirs. */
static void choose_helpers(const struct sbp_problem *problem, int *choice)
{
    int helper = problem->variable_count;
    for (int v = 0; v < problem->variable_count; v++)
        for (int i = 1; i < problem->variable[v].interval_count; i++)
            choice[helper++] = choice[v];
}

static void check_round_trip(uint64_t seed, const char *path)
{
    struct sbp_problem problem, copy;
    struct sbp_diag diag = {0};
    build_random(&problem, seed, true);
    if (sbp_problem_write(&problem, path, &diag) != SBP_OK ||
        sbp_problem_read(path, &copy, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    assert_true(copy.capacity == problem.capacity);
    int choice[64] = {0};
    do {
        choose_helpers(&problem, choice);
        const double cost = sbp_problem_cost(&problem, choice);
        const double again = sbp_problem_cost(&copy, choice);
        const double peak = sbp_problem_peak_usage(&problem, choice);
        const double peak_again = sbp_problem_peak_usage(&copy, choice);
        if (!is_close(cost, again) || peak != peak_again)
            fail_msg("seed %" PRIu64 ": cost %.17g, read back %.17g; peak %.17g, read back %.17g",
                     seed, cost, again, peak, peak_again);
    } while (next_choice(&problem, choice));
    sbp_problem_free(&problem);
    sbp_problem_free(&copy);
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[64];
    temporary(path);
    for (uint64_t seed = 0; seed < 200; seed++)
        check_round_trip(seed, path);
    assert_int_equal(unlink(path), 0);
}

static void test_helpers_must_choose_alike(void **state)
{
    (void)state;
    char path[64];
    temporary(path);
    struct sbp_problem problem, copy;
    const struct sbp_interval intervals[] = {{0, 1}, {2, 3}};
    assert_int_equal(sbp_problem_init(&problem, 1, 0), SBP_OK);
    assert_int_equal(sbp_problem_add_variable(&problem, "v", 2, 2, intervals), 0);
    assert_int_equal(sbp_problem_write(&problem, path, NULL), SBP_OK);
    assert_int_equal(sbp_problem_read(path, &copy, NULL), SBP_OK);
    assert_int_equal(copy.variable_count, 2);
    assert_true(isinf(copy.capacity));
    assert_true(sbp_problem_cost(&copy, (int[]){1, 1}) == 0);
    assert_true(sbp_problem_cost(&copy, (int[]){1, 0}) >= SBP_FORBIDDEN);
    sbp_problem_free(&problem);
    sbp_problem_free(&copy);
    assert_int_equal(unlink(path), 0);
}

#define NODES            "\"nodes\":{\"intervals\":[[0,2],[0,0]],\"costs\":[[1,2],[3]],\"usages\":[[4,5],[0]]}"
#define EDGES            "\"edges\":{\"nodes\":[[0,1]],\"costs\":[[6,7]]}"
#define PROBLEM(members) "{\"problem\":{" members "}}"

static void test_reads_any_order_and_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {
        PROBLEM(NODES "," EDGES ",\"usage_limit\":9"),
        PROBLEM(EDGES "," NODES ",\"usage_limit\":9, \"name\": \"a \\\"b\\\"\""),
        " { \"problem\" : {" NODES ",\n" EDGES ", \"usage_limit\" : 0.9e1 } }\n\n",
        PROBLEM("\"usage_limit\":90.0e-1,\"edges\":{\"costs\":[[2,3],[4 , 4]],\"nodes\":[[1,0],[0"
                ",1]]}," NODES),
    };
    char path[64];
    temporary(path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sbp_problem problem;
        struct sbp_diag diag = {0};
        write_text(path, texts[i]);
        if (sbp_problem_read(path, &problem, &diag) != SBP_OK)
            fail_msg("text %zu: %s", i, diag.text);
        assert_int_equal(problem.variable_count, 2);
        assert_int_equal(problem.edge_count, 1); /* listed twice in the last text: added up */
        assert_true(sbp_problem_cost(&problem, (int[]){1, 0}) == 2 + 3 + 7);
        assert_true(sbp_problem_peak_usage(&problem, (int[]){1, 0}) == 5);
        assert_true(problem.capacity == 9);
        sbp_problem_free(&problem);
    }
    assert_int_equal(unlink(path), 0);
}

static void test_bad_input_is_refused(void **state)
{
    (void)state;
#define NODES_WITH(intervals, costs, usages)                                                       \
    PROBLEM("\"nodes\":{\"intervals\":" intervals ",\"costs\":" costs ",\"usages\":" usages        \
            "}," EDGES)
#define EDGES_WITH(nodes, costs)                                                                   \
    PROBLEM(NODES ",\"edges\":{\"nodes\":" nodes ",\"costs\":" costs "}")
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "expected an object"},
        {"[]", "expected an object"},
        {"{}", "\"problem\" is missing"},
        {PROBLEM(NODES), "problem: key \"edges\" is missing"},
        {PROBLEM(NODES "," EDGES) "x", "unexpected text"},
        {PROBLEM(NODES "," EDGES ",\"usage_limt\":1"), "did you mean \"usage_limit\"?"},
        {PROBLEM(NODES "," NODES "," EDGES), "\"nodes\" stands twice"},
        {PROBLEM(NODES "," EDGES ",\"usage_limit\":-1"), "must be 0 or more"},
        {PROBLEM(NODES "," EDGES ",\"usage_limit\":nan"), "expected a number"},
        {PROBLEM(NODES "," EDGES ",\"usage_limit\":1e999"), "beyond double precision"},
        {PROBLEM(NODES "," EDGES ",\"usage_limit\":012"), "expected a number"},
        {PROBLEM(NODES "," EDGES ",\"usage_limit\":\"9\""), "expected a number"},
        {PROBLEM(NODES "," EDGES ",\"name\":\"x"), "does not end"},
        {NODES_WITH("[[0,2]]", "[[1,2],[3]]", "[[4,5],[0]]"), "problem.nodes.intervals: has 1"},
        {NODES_WITH("[[0,2],[1,0]]", "[[1,2],[3]]", "[[4,5],[0]]"), "problem.nodes.intervals[1]"},
        {NODES_WITH("[[0,2],[0,0.5]]", "[[1,2],[3]]", "[[4,5],[0]]"), "problem.nodes.intervals[1]"},
        {NODES_WITH("[[0,2],[0]]", "[[1,2],[3]]", "[[4,5],[0]]"), "problem.nodes.intervals[1]"},
        {NODES_WITH("[[0,2],[0,0]]", "[[1,2],[]]", "[[4,5],[]]"), "problem.nodes.costs[1]"},
        {NODES_WITH("[[0,2],[0,0]]", "[[1,2],[3]]", "[[4],[0]]"), "problem.nodes.usages[0]"},
        {NODES_WITH("[[0,2],[0,0]]", "[[1,2],[3]]", "[[4,-5],[0]]"), "problem.nodes.usages[0]"},
        {NODES_WITH("[[0,2],[0,0]]", "[[1,2],[3]", "[[4,5],[0]]"), "problem.nodes.costs"},
        {NODES_WITH("[[0,2],[0,0]]", "[[1,0x2],[3]]", "[[4,5],[0]]"), "expected ',' or ']'"},
        {NODES_WITH("[[0,2],[0,0]]", "[[1,],[3]]", "[[4,5],[0]]"), "expected a number"},
        {EDGES_WITH("[[0,2]]", "[[6,7]]"), "problem.edges.nodes[0]"},
        {EDGES_WITH("[[0,-1]]", "[[6,7]]"), "problem.edges.nodes[0]"},
        {EDGES_WITH("[[0,0]]", "[[6,7]]"), "two different nodes"},
        {EDGES_WITH("[[0,1,1]]", "[[6,7]]"), "problem.edges.nodes[0]"},
        {EDGES_WITH("[[0,1]]", "[[6,7,8]]"), "problem.edges.costs[0]"},
        {EDGES_WITH("[[0,1]]", "[]"), "problem.edges.costs: has 0"},
    };
    char path[64];
    temporary(path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_problem problem;
        struct sbp_diag diag = {0};
        write_text(path, cases[i].text);
        const enum sbp_status status = sbp_problem_read(path, &problem, &diag);
        if (status != SBP_E_INPUT || strstr(diag.text, cases[i].said) == NULL ||
            strncmp(diag.text, path, strlen(path)) != 0)
            fail_msg("case %zu: status %d, said \"%s\", expected \"...%s...\"", i, status,
                     diag.text, cases[i].said);
        assert_int_equal(problem.variable_count, 0);
    }
    assert_int_equal(unlink(path), 0);
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_read("/nonexistent/problem.json", &problem, NULL), SBP_E_IO);
}

/* Every prefix of a good file is refused: nothing is read past the end. */
static void test_truncation_is_refused(void **state)
{
    (void)state;
    const char *text = PROBLEM(NODES "," EDGES ",\"usage_limit\":9,\"name\":\"x\"");
    char path[64], part[512];
    temporary(path);
    for (size_t length = 0; length < strlen(text); length++) {
        struct sbp_problem problem;
        struct sbp_diag diag = {0};
        memcpy(part, text, length);
        part[length] = '\0';
        write_text(path, part);
        assert_int_equal(sbp_problem_read(path, &problem, &diag), SBP_E_INPUT);
    }
    assert_int_equal(unlink(path), 0);
}

/* --- a public problem, when it lies beside the checkout --- */

/* The file beside the checkout, which the test run names or this source file's place tells. */
static void shared_path(char *path, size_t size, const char *name)
{
    const char *root = getenv("SBP_SOURCE_ROOT"), *slash = strrchr(__FILE__, '/');
    if (root != NULL)
        snprintf(path, size, "%s/../shared/data/iopddl/%s", root, name);
    else
        snprintf(path, size, "%.*s/../../../shared/data/iopddl/%s",
                 slash == NULL ? 0 : (int)(slash - __FILE__), __FILE__, name);
}

static char *unpack(const char *archive)
{
    char command[1024];
    snprintf(command, sizeof command, "gunzip -c '%s'", archive);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    size_t length = 0, room = 1 << 20;
    char *text = malloc(room);
    assert_non_null(text);
    for (size_t got = 1; got > 0; length += got) {
        if (room - length < 1 << 16) {
            room *= 2;
            text = realloc(text, room);
            assert_non_null(text);
        }
        got = fread(text + length, 1, room - length - 1, in);
    }
    text[length] = '\0';
    assert_int_equal(pclose(in), 0);
    return text;
}

static double number_at(const cJSON *rows, int row, int column)
{
    return cJSON_GetArrayItem(cJSON_GetArrayItem(rows, row), column)->valuedouble;
}

/* The cost of choosing `value` modulo each domain, summed straight from the JSON tree. */
static double tree_cost(const cJSON *problem, int value)
{
    const cJSON *costs = cJSON_GetObjectItem(cJSON_GetObjectItem(problem, "nodes"), "costs");
    const cJSON *edges = cJSON_GetObjectItem(problem, "edges");
    double sum = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, costs) sum +=
        cJSON_GetArrayItem(row, value % cJSON_GetArraySize(row))->valuedouble;
    const cJSON *tables = cJSON_GetObjectItem(edges, "costs")->child;
    const cJSON *ends;
    cJSON_ArrayForEach(ends, cJSON_GetObjectItem(edges, "nodes"))
    {
        const cJSON *pair[2];
        for (int i = 0; i < 2; i++)
            pair[i] = cJSON_GetArrayItem(costs, cJSON_GetArrayItem(ends, i)->valueint);
        const int rows = cJSON_GetArraySize(pair[0]), columns = cJSON_GetArraySize(pair[1]);
        sum += cJSON_GetArrayItem(tables, value % rows * columns + value % columns)->valuedouble;
        tables = tables->next;
    }
    return sum;
}

static void test_public_problem(void **state)
{
    (void)state;
    char archive[512], path[64];
    shared_path(archive, sizeof archive, "B.json.gz");
    if (access(archive, R_OK) != 0) {
        printf("skipped: no %s\n", archive);
        skip();
    }
    char *text = unpack(archive);
    temporary(path);
    write_text(path, text);
    struct sbp_problem problem;
    struct sbp_diag diag = {0};
    if (sbp_problem_read(path, &problem, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(unlink(path), 0);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    free(text);
    const cJSON *tree = cJSON_GetObjectItem(root, "problem");
    assert_int_equal(problem.variable_count, 816);
    assert_int_equal(problem.edge_count, 1096 - 5); /* five pairs are listed twice */
    assert_true(problem.capacity == cJSON_GetObjectItem(tree, "usage_limit")->valuedouble);
    const cJSON *intervals = cJSON_GetObjectItem(cJSON_GetObjectItem(tree, "nodes"), "intervals");
    for (int v = 0; v < problem.variable_count; v++) {
        const bool is_used = number_at(intervals, v, 0) < number_at(intervals, v, 1);
        assert_int_equal(problem.variable[v].interval_count, is_used);
    }
    int *choice = calloc((size_t)problem.variable_count, sizeof *choice);
    assert_non_null(choice);
    for (int value = 0; value < 40; value++) {
        for (int v = 0; v < problem.variable_count; v++)
            choice[v] = value % problem.variable[v].domain;
        const double expected = tree_cost(tree, value), cost = sbp_problem_cost(&problem, choice);
        if (expected >= SBP_FORBIDDEN ? cost != SBP_FORBIDDEN : cost != expected)
            fail_msg("choice %d: cost %.17g, from the tree %.17g", value, cost, expected);
    }
    free(choice);
    cJSON_Delete(root);
    sbp_problem_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges_are_shared),
        cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_cost_and_peak),
        cmocka_unit_test(test_elimination),
        cmocka_unit_test(test_elimination_refuses),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_helpers_must_choose_alike),
        cmocka_unit_test(test_reads_any_order_and_numbers),
        cmocka_unit_test(test_bad_input_is_refused),
        cmocka_unit_test(test_truncation_is_refused),
        cmocka_unit_test(test_public_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The strategy space: how many tuples a variable has, which of them sizes and requests leave, and
 * where tensors rest. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

/* Two linear layers whose sizes are multiples of everything below. */
#define WIDE                                                                                       \
    "{\"name\": \"m\", \"global_batch\": 20736, \"sequence\": 20736, \"layers\": ["                \
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 20736, \"out\": 20736}, "                       \
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 20736, \"out\": 20736}]}"

static const struct sbp_space_variable *variable_of(const struct sbp_space *space, const char *name)
{
    for (int v = 0; v < space->variable_count; v++)
        if (space->variable[v].op >= 0 &&
            strcmp(space->graph->op[space->variable[v].op].name, name) == 0)
            return &space->variable[v];
    fail_msg("no variable %s", name);
    return NULL;
}

/* --- numbers of tuples --- */

/* Ways to hand `axes` equal axes to `roles` roles: (axes + roles - 1 choose roles - 1). */
static int64_t tuples(int axes, int roles)
{
    int64_t ways = 1;
    for (int i = 1; i < roles; i++)
        ways = ways * (axes + i) / i;
    return ways;
}

static void check_count(const char *levels, enum sbp_space_kind kind, int64_t expected)
{
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {.asked.space = kind, .asked.quick = true};
    open_plan(WIDE, levels, &plan);
    make_space(&plan, &request, &space);
    if (variable_of(&space, "a")->choice_count != expected)
        fail_msg("%s, space %s: %d choices, expected %" PRId64, levels,
                 sbp_request_space_name(kind), variable_of(&space, "a")->choice_count, expected);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void test_counts(void **state)
{
    (void)state;
    check_count(LEVEL("l", 128), SBP_SPACE_AUTODDL, tuples(7, 3));
    check_count(LEVEL("l", 128), SBP_SPACE_AUTODDL, 36);
    check_count(LEVEL("l", 128), SBP_SPACE_FULL, tuples(7, 4));
    check_count(LEVEL("l", 12), SBP_SPACE_AUTODDL, tuples(2, 3) * tuples(1, 3));
    check_count(LEVEL("o", 6) ", " LEVEL("i", 4), SBP_SPACE_FULL,
                tuples(1, 4) * tuples(1, 4) * tuples(2, 4));
    check_count(LEVEL("o", 16) ", " LEVEL("i", 8), SBP_SPACE_AUTODDL, tuples(4, 3) * tuples(3, 3));
    check_count(LEVEL("l", 64), SBP_SPACE_DATA_PARALLEL, 1);
    check_count(LEVEL("l", 1), SBP_SPACE_FULL, 1);
}

/* The paper's 91 tuples a layer on 4096 devices, when sizes allow all of them. */
static void test_paper_count(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_AUTODDL};
    open_plan("{\"name\": \"m\", \"global_batch\": 4096, \"layers\": [{\"op\": \"linear\", "
              "\"name\": \"a\", \"in\": 4096, \"out\": 4096}]}",
              LEVEL("l", 4096), &plan);
    make_space(&plan, &request, &space);
    assert_int_equal(variable_of(&space, "a")->choice_count, 91);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* Every choice hands out exactly the axes there are, and no two are alike. */
static void test_choices_are_tuples(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    open_plan(WIDE, LEVEL("o", 6) ", " LEVEL("i", 4), &plan);
    make_space(&plan, &request, &space);
    const size_t row = (size_t)plan.cut.mesh.family_count * SBP_MAX_ROLES;
    for (int v = 0; v < space.variable_count; v++)
        for (int c = 0; c < space.variable[v].choice_count; c++) {
            for (int f = 0; f < plan.cut.mesh.family_count; f++) {
                int axes = 0;
                for (int r = 0; r < SBP_MAX_ROLES; r++)
                    axes += sbp_space_count(&space, v, c, f)[r];
                assert_int_equal(axes, plan.cut.mesh.family[f].count);
            }
            for (int other = 0; other < c; other++)
                assert_memory_not_equal(sbp_space_count(&space, v, c, 0),
                                        sbp_space_count(&space, v, other, 0), row);
        }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* --- what sizes and requests leave --- */

/* How many ways a role of the variable's first operator takes, or a rest's own. */
static int64_t factor(const struct sbp_space *space, int variable, int choice, int role)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    int64_t ways = 1;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_space_count(space, variable, choice, f);
        for (int own = 0; own < v->role_count; own++) {
            const bool is_it = (v->op < 0 ? own : space->op_role[v->op][own]) == role;
            for (int k = 0; k < count[own] && is_it; k++)
                ways *= space->mesh->family[f].prime;
        }
    }
    return ways;
}

enum { BATCH, SEQUENCE, COLUMN, ROW };

/* Batch 6, sequence 1, 8 -> 12 features on 2 x 3: counted by hand over the factor tuples. */
static void test_sizes(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    open_plan("{\"name\": \"m\", \"global_batch\": 6, \"layers\": [{\"op\": \"linear\", \"name\": "
              "\"a\", \"in\": 8, \"out\": 12}]}",
              LEVEL("o", 2) ", " LEVEL("i", 3), &plan);
    make_space(&plan, &request, &space);
    const struct sbp_space_variable *const v = variable_of(&space, "a");
    /* The 2 may be batch, column or row, the 3 batch or column alone: 3 does not divide 8. */
    assert_int_equal(v->choice_count, 6);
    for (int c = 0; c < v->choice_count; c++) {
        const int at = (int)(v - space.variable);
        assert_int_equal(6 % factor(&space, at, c, BATCH), 0);
        assert_int_equal(factor(&space, at, c, SEQUENCE), 1);
        assert_int_equal(12 % factor(&space, at, c, COLUMN), 0);
        assert_int_equal(8 % factor(&space, at, c, ROW), 0);
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void test_class_limit(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_diag diag = {{0}};
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_AUTODDL};
    open_plan(WIDE, LEVEL("l", 16), &plan);
    struct sbp_class_limit limit[8];
    assert_true(plan.cut.graph.class_count <= 8);
    for (int c = 0; c < plan.cut.graph.class_count; c++)
        limit[c] = sbp_space_class_unlimited(
            strcmp(plan.cut.graph.dim_class[c].name, "batch") == 0 ? 4 : 20736);
    assert_int_equal(sbp_space_make(&plan.cut, &request, limit, NULL, &space, &diag), SBP_OK);
    for (int v = 0; v < space.variable_count; v++)
        for (int c = 0; c < space.variable[v].choice_count; c++)
            assert_true(factor(&space, v, c, BATCH) <= 4);
    /* 4 axes over three roles, at most two of them on batch. */
    assert_int_equal(variable_of(&space, "a")->choice_count,
                     tuples(4, 2) + tuples(3, 2) + tuples(2, 2));
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* An axis of each level for the batch, whatever it divides. */
static void test_axes_limit(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_diag diag = {{0}};
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_AUTODDL};
    struct sbp_class_limit limit[8];
    open_plan(WIDE, LEVEL("o", 4) ", " LEVEL("i", 4), &plan);
    assert_true(plan.cut.graph.class_count <= 8);
    for (int c = 0; c < plan.cut.graph.class_count; c++) {
        limit[c] = sbp_space_class_unlimited(plan.cut.graph.dim_class[c].size);
        if (strcmp(plan.cut.graph.dim_class[c].name, "batch") == 0)
            limit[c].axes[0] = limit[c].axes[1] = 1;
    }
    assert_int_equal(sbp_space_make(&plan.cut, &request, limit, NULL, &space, &diag), SBP_OK);
    /* None or one of each level's two axes splits the batch, two roles share the others. */
    assert_int_equal(variable_of(&space, "a")->choice_count, (3 + 2) * (3 + 2));
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* Choices of a site's variable where a class is split in one part at most. */
static int choices_within(const struct sbp_plan *plan, int op, int dim_class)
{
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    struct sbp_space space;
    struct sbp_diag diag = {{0}};
    struct sbp_class_limit *const limit =
        calloc((size_t)plan->cut.graph.class_count, sizeof *limit);
    assert_non_null(limit);
    for (int c = 0; c < plan->cut.graph.class_count; c++)
        limit[c] =
            sbp_space_class_unlimited(c == dim_class ? 1 : plan->cut.graph.dim_class[c].size);
    if (sbp_space_make(&plan->cut, &request, limit, NULL, &space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const int choices = space.variable[space.op_variable[op]].choice_count;
    sbp_space_free(&space);
    free(limit);
    return choices;
}

/* A class of a repeat alone limits its site as the site's own does. */
static void test_class_limit_of_repeats(void **state)
{
    (void)state;
    struct sbp_plan plan;
    int compared = 0;
    open_plan("{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 3, \"hidden\": 64, "
              "\"heads\": 8, \"sequence\": 64, \"vocab\": 64, \"global_batch\": 64}",
              LEVEL("l", 8), &plan);
    for (int op = 0; op < plan.cut.graph.op_count; op++) {
        const struct sbp_op_node *const node = &plan.cut.graph.op[op];
        const int site = node->site;
        if (site == op || node->kind != SBP_OP_LINEAR)
            continue;
        const struct sbp_tensor *const tensor = plan.cut.graph.tensor;
        const int own = tensor[node->weight[0]].shape.dim_class[SBP_DIM_OUT];
        const int of_site = tensor[plan.cut.graph.op[site].weight[0]].shape.dim_class[SBP_DIM_OUT];
        if (own == of_site)
            continue;
        assert_int_equal(choices_within(&plan, site, own), choices_within(&plan, site, of_site));
        assert_true(choices_within(&plan, site, own) < choices_within(&plan, site, -1));
        compared++;
    }
    assert_true(compared > 0);
    sbp_plan_free(&plan);
}

static void test_batch_split(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_AUTODDL,
                                              .asked.max_batch_split = 2};
    open_plan(WIDE, LEVEL("o", 4) ", " LEVEL("i", 4), &plan);
    make_space(&plan, &request, &space);
    const struct sbp_space_variable *const v = variable_of(&space, "a");
    /* No axis on batch, or one of either level. */
    assert_int_equal(v->choice_count,
                     tuples(2, 2) * tuples(2, 2) + 2 * tuples(1, 2) * tuples(2, 2));
    for (int c = 0; c < v->choice_count; c++)
        assert_true(factor(&space, (int)(v - space.variable), c, BATCH) <= 2);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

#define SCAN                                                                                       \
    "{\"name\": \"m\", \"global_batch\": 64, \"input\": \"split\", \"features\": 64, \"layers\": " \
    "[{\"op\": \"custom\", \"name\": \"scan\", \"parameters\": 64, \"roles\": [{\"name\": "        \
    "\"channel\", \"input\": \"S2\", \"weight\": \"S2\", \"output\": \"S2\"}, {\"name\": "         \
    "\"sample\", \"input\": \"S0\", \"weight\": \"B\", \"output\": \"S0\"}], \"flops\": "          \
    "{\"forward\": 1e6, \"input_gradient\": 1e6, \"weight_gradient\": 1e6}}, "                     \
    "{\"op\": \"linear\", \"name\": \"b\", \"out\": 64}]}"

/* A bound on the batch's split goes by what roles do, wherever they stand and whatever their
 * names. */
static void test_batch_split_of_custom(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .asked.max_batch_split = 2};
    open_plan(SCAN, LEVEL("l", 8), &plan);
    make_space(&plan, &request, &space);
    const struct sbp_space_variable *const v = variable_of(&space, "scan");
    assert_int_equal(v->choice_count, 2); /* one axis, or none, to the samples */
    for (int c = 0; c < v->choice_count; c++)
        assert_true(factor(&space, (int)(v - space.variable), c, 1) <= 2);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void any_fix(struct sbp_fix *fix, const char *layer)
{
    memset(fix, 0, sizeof *fix);
    snprintf(fix->layer, sizeof fix->layer, "%s", layer);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->factor[role][level] = SBP_ANY;
}

static void test_fix(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_fix fix;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                              .asked.quick = true,
                                              .asked.fix = &fix,
                                              .asked.fix_count = 1};
    open_plan(WIDE, LEVEL("o", 4) ", " LEVEL("i", 4), &plan);
    any_fix(&fix, "b");
    fix.factor[COLUMN][0] = 4;
    fix.factor[ROW][1] = 2;
    make_space(&plan, &request, &space);
    /* The outer level is given away; of the inner one, one axis of four other roles is left: its
     * input may be a sum that lives on. */
    assert_int_equal(variable_of(&space, "b")->choice_count, 4);
    assert_int_equal(variable_of(&space, "a")->choice_count, tuples(2, 4) * tuples(2, 4));
    sbp_space_free(&space);

    struct sbp_diag diag = {{0}};
    fix.factor[ROW][1] = 3;
    assert_int_equal(sbp_space_make(&plan.cut, &request, NULL, NULL, &space, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "b"));
    diag.text[0] = '\0';
    any_fix(&fix, "nobody");
    assert_int_equal(sbp_space_make(&plan.cut, &request, NULL, NULL, &space, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "nobody"));
    sbp_plan_free(&plan);
}

/* Where nothing divides, the work is repeated and rests whole: in the full space alone. */
static void test_last_resort(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_diag diag = {{0}};
    struct sbp_solve_request request = {.asked.space = SBP_SPACE_AUTODDL};
    open_plan(
        "{\"name\": \"m\", \"global_batch\": 3, \"layers\": [{\"op\": \"linear\", \"name\": "
        "\"odd\", \"in\": 5, \"out\": 7}, {\"op\": \"linear\", \"name\": \"even\", \"out\": 8}]}",
        LEVEL("l", 2), &plan);
    assert_int_equal(sbp_space_make(&plan.cut, &request, NULL, NULL, &space, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "odd"));
    request.asked.space = SBP_SPACE_FULL;
    request.asked.quick = true;
    make_space(&plan, &request, &space);
    const int replicate = sbp_op_role(sbp_op(SBP_OP_LINEAR), "replicate");
    const int partial = sbp_op_role(sbp_op(SBP_OP_LINEAR), "partial");
    const struct sbp_space_variable *const odd = variable_of(&space, "odd");
    const struct sbp_space_variable *const even = variable_of(&space, "even");
    assert_int_equal(odd->choice_count, 1);
    assert_int_equal(factor(&space, (int)(odd - space.variable), 0, replicate), 2);
    /* "odd" has a role that leaves a sum, whether its sizes let it play it or not. */
    assert_int_equal(even->choice_count, 2);
    assert_int_equal(factor(&space, (int)(even - space.variable), 0, partial), 2);
    assert_int_equal(factor(&space, (int)(even - space.variable), 1, COLUMN), 2);
    for (int k = 0; k < space.output_edge_count; k++) {
        const struct sbp_space_variable *const rest =
            &space.variable[space.output_edge[k].rest_variable];
        const bool whole = space.output_edge[k].op_variable == (int)(odd - space.variable);
        assert_int_equal(rest->choice_count, 1 + whole);
        assert_int_equal(rest->rests_whole, whole);
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* Only what an operator leaves split binds where it rests. */
static void test_rests(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    open_plan(WIDE, LEVEL("l", 16), &plan);
    make_space(&plan, &request, &space);
    assert_int_equal(space.output_edge_count, 2);
    for (int k = 0; k < space.output_edge_count; k++) {
        const struct sbp_output_edge *const edge = &space.output_edge[k];
        for (int c = 0; c < space.variable[edge->op_variable].choice_count; c++)
            for (int rest = 0; rest < space.variable[edge->rest_variable].choice_count; rest++) {
                const uint8_t *const op = sbp_space_count(&space, edge->op_variable, c, 0);
                const uint8_t *const at = sbp_space_count(&space, edge->rest_variable, rest, 0);
                const bool expected = op[BATCH] <= at[SBP_DIM_BATCH] &&
                                      op[SEQUENCE] <= at[SBP_DIM_SEQUENCE] &&
                                      op[COLUMN] <= at[SBP_DIM_FEATURE];
                assert_int_equal(sbp_pricing_can_rest(&space, edge, c, rest), expected);
            }
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_paper_count),
        cmocka_unit_test(test_choices_are_tuples),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_class_limit),
        cmocka_unit_test(test_axes_limit),
        cmocka_unit_test(test_class_limit_of_repeats),
        cmocka_unit_test(test_batch_split),
        cmocka_unit_test(test_batch_split_of_custom),
        cmocka_unit_test(test_fix),
        cmocka_unit_test(test_last_resort),
        cmocka_unit_test(test_rests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

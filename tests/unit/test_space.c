/* The strategy space: how many tuples a variable has, what sizes and requests leave of them, and
 * that its prices are what compiled plans cost. */
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

#include "base/random.h"
#include "planner/label.h"
#include "planner/space.h"

static void open_plan(const char *model, const char *levels, struct sbp_plan *plan)
{
    char cluster[1024];
    snprintf(cluster, sizeof cluster,
             "{\"name\": \"c\", \"levels\": [%s], \"device\": {\"memory_bytes\": 1e15, \"flops\": "
             "{\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e11, \"kernel_launch_s\": 3e-6, "
             "\"host_link_bytes_per_s\": 1e10}}",
             levels);
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", plan, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
}

#define LEVEL(name, size)                                                                          \
    "{\"name\": \"" name "\", \"size\": " #size ", \"alpha_s\": 1e-6, \"beta_s_per_byte\": 1e-9}"

/* Two linear layers whose sizes are multiples of everything below. */
#define WIDE                                                                                       \
    "{\"name\": \"m\", \"global_batch\": 20736, \"sequence\": 20736, \"layers\": ["                \
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 20736, \"out\": 20736}, "                       \
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 20736, \"out\": 20736}]}"

static void make(const struct sbp_plan *plan, const struct sbp_request *request,
                 struct sbp_space *space)
{
    struct sbp_diag diag = {{0}};
    if (sbp_space_make(plan, request, NULL, NULL, space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

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
    const struct sbp_request request = {.space = kind};
    open_plan(WIDE, levels, &plan);
    make(&plan, &request, &space);
    if (variable_of(&space, "a")->choice_count != expected)
        fail_msg("%s, space %s: %d choices, expected %" PRId64, levels, sbp_space_name(kind),
                 variable_of(&space, "a")->choice_count, expected);
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
    const struct sbp_request request = {.space = SBP_SPACE_AUTODDL};
    open_plan("{\"name\": \"m\", \"global_batch\": 4096, \"layers\": [{\"op\": \"linear\", "
              "\"name\": \"a\", \"in\": 4096, \"out\": 4096}]}",
              LEVEL("l", 4096), &plan);
    make(&plan, &request, &space);
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
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    open_plan(WIDE, LEVEL("o", 6) ", " LEVEL("i", 4), &plan);
    make(&plan, &request, &space);
    const size_t row = (size_t)plan.mesh.family_count * SBP_MAX_ROLES;
    for (int v = 0; v < space.variable_count; v++)
        for (int c = 0; c < space.variable[v].choice_count; c++) {
            for (int f = 0; f < plan.mesh.family_count; f++) {
                int axes = 0;
                for (int r = 0; r < SBP_MAX_ROLES; r++)
                    axes += sbp_space_count(&space, v, c, f)[r];
                assert_int_equal(axes, plan.mesh.family[f].count);
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
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    open_plan("{\"name\": \"m\", \"global_batch\": 6, \"layers\": [{\"op\": \"linear\", \"name\": "
              "\"a\", \"in\": 8, \"out\": 12}]}",
              LEVEL("o", 2) ", " LEVEL("i", 3), &plan);
    make(&plan, &request, &space);
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
    const struct sbp_request request = {.space = SBP_SPACE_AUTODDL};
    open_plan(WIDE, LEVEL("l", 16), &plan);
    int64_t limit[8];
    assert_true(plan.graph.class_count <= 8);
    for (int c = 0; c < plan.graph.class_count; c++)
        limit[c] = strcmp(plan.graph.dim_class[c].name, "batch") == 0 ? 4 : 20736;
    assert_int_equal(sbp_space_make(&plan, &request, limit, NULL, &space, &diag), SBP_OK);
    for (int v = 0; v < space.variable_count; v++)
        for (int c = 0; c < space.variable[v].choice_count; c++)
            assert_true(factor(&space, v, c, BATCH) <= 4);
    /* 4 axes over three roles, at most two of them on batch. */
    assert_int_equal(variable_of(&space, "a")->choice_count,
                     tuples(4, 2) + tuples(3, 2) + tuples(2, 2));
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* Choices of a site's variable where a class is split in one part at most. */
static int choices_within(const struct sbp_plan *plan, int op, int dim_class)
{
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    struct sbp_space space;
    struct sbp_diag diag = {{0}};
    int64_t *const limit = calloc((size_t)plan->graph.class_count, sizeof *limit);
    assert_non_null(limit);
    for (int c = 0; c < plan->graph.class_count; c++)
        limit[c] = c == dim_class ? 1 : plan->graph.dim_class[c].size;
    if (sbp_space_make(plan, &request, limit, NULL, &space, &diag) != SBP_OK)
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
    for (int op = 0; op < plan.graph.op_count; op++) {
        const struct sbp_op_node *const node = &plan.graph.op[op];
        const int site = node->site;
        if (site == op || node->kind != SBP_OP_LINEAR)
            continue;
        const struct sbp_tensor *const tensor = plan.graph.tensor;
        const int own = tensor[node->weight[0]].shape.dim_class[SBP_DIM_OUT];
        const int of_site = tensor[plan.graph.op[site].weight[0]].shape.dim_class[SBP_DIM_OUT];
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
    const struct sbp_request request = {.space = SBP_SPACE_AUTODDL, .max_batch_split = 2};
    open_plan(WIDE, LEVEL("o", 4) ", " LEVEL("i", 4), &plan);
    make(&plan, &request, &space);
    const struct sbp_space_variable *const v = variable_of(&space, "a");
    /* No axis on batch, or one of either level. */
    assert_int_equal(v->choice_count,
                     tuples(2, 2) * tuples(2, 2) + 2 * tuples(1, 2) * tuples(2, 2));
    for (int c = 0; c < v->choice_count; c++)
        assert_true(factor(&space, (int)(v - space.variable), c, BATCH) <= 2);
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
    const struct sbp_request request = {.space = SBP_SPACE_FULL, .fix = &fix, .fix_count = 1};
    open_plan(WIDE, LEVEL("o", 4) ", " LEVEL("i", 4), &plan);
    any_fix(&fix, "b");
    fix.factor[COLUMN][0] = 4;
    fix.factor[ROW][1] = 2;
    make(&plan, &request, &space);
    /* The outer level is given away; of the inner one, one axis of four other roles is left: its
     * input may be a sum that lives on. */
    assert_int_equal(variable_of(&space, "b")->choice_count, 4);
    assert_int_equal(variable_of(&space, "a")->choice_count, tuples(2, 4) * tuples(2, 4));
    sbp_space_free(&space);

    struct sbp_diag diag = {{0}};
    fix.factor[ROW][1] = 3;
    assert_int_equal(sbp_space_make(&plan, &request, NULL, NULL, &space, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "b"));
    diag.text[0] = '\0';
    any_fix(&fix, "nobody");
    assert_int_equal(sbp_space_make(&plan, &request, NULL, NULL, &space, &diag), SBP_E_INPUT);
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
    struct sbp_request request = {.space = SBP_SPACE_AUTODDL};
    open_plan(
        "{\"name\": \"m\", \"global_batch\": 3, \"layers\": [{\"op\": \"linear\", \"name\": "
        "\"odd\", \"in\": 5, \"out\": 7}, {\"op\": \"linear\", \"name\": \"even\", \"out\": 8}]}",
        LEVEL("l", 2), &plan);
    assert_int_equal(sbp_space_make(&plan, &request, NULL, NULL, &space, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "odd"));
    request.space = SBP_SPACE_FULL;
    make(&plan, &request, &space);
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
    for (int k = 0; k < space.keep_count; k++) {
        const struct sbp_space_variable *const rest = &space.variable[space.keep[k].rest_variable];
        const bool whole = space.keep[k].op_variable == (int)(odd - space.variable);
        assert_int_equal(rest->choice_count, 1 + whole);
        assert_int_equal(rest->rests_whole, whole);
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* --- prices --- */

/* Draws a choice of every operator; rests follow where the operator leaves them, else at random. */
static bool draw_choice(struct sbp_random *random, const struct sbp_space *space,
                        const struct sbp_problem *problem, int *choice)
{
    for (int tries = 0; tries < 200; tries++) {
        for (int v = 0; v < space->variable_count; v++)
            choice[v] = (int)sbp_random_below(random, (uint64_t)space->variable[v].choice_count);
        for (int k = 0; k < space->keep_count; k++) {
            const struct sbp_keep *const keep = &space->keep[k];
            const int rests = space->variable[keep->rest_variable].choice_count;
            const int from = (int)sbp_random_below(random, (uint64_t)rests);
            for (int i = 0; i < rests; i++)
                if (sbp_space_can_rest(space, keep, choice[keep->op_variable],
                                       (from + i) % rests)) {
                    choice[keep->rest_variable] = (from + i) % rests;
                    break;
                }
        }
        if (sbp_problem_cost(problem, choice) < SBP_FORBIDDEN)
            return true;
    }
    return false;
}

struct prices {
    int run, equal, not_labelled;
    double largest_gap; /* of labels, as a share */
    double loosest;     /* of the sum below the step */
    double least_bytes; /* modelled, as a share of the fullest device's, at the least */
};

/* Whether a sum over operators is the step, not a bound of it: with one stage whose works follow
 * each other, what is hidden known, and each weight updated by itself. */
static bool sums_exactly(const struct sbp_space *space)
{
    const struct sbp_parallel *parallel = space->parallel;
    return (parallel->pipeline == 1 || space->request->objective == SBP_COMMUNICATION) &&
           !sbp_schedule_delays_gradients(parallel->schedule) && !parallel->offload &&
           !(space->hidden_share > 0) &&
           !(parallel->gather_blocks && parallel->recompute_every > 1);
}

/* Of every stage that memory is checked on, the model's bytes are no more than its devices take. */
static void check_bytes(const struct sbp_space *space, const int *choice,
                        const struct sbp_step *step, uint64_t seed, struct prices *prices)
{
    double most_bytes = 0;
    for (int point = 0; point < space->view->points; point++) {
        const struct sbp_stage_memory *const memory = &step->memory[space->view->stage[point]];
        const int64_t device_bytes = memory->device_bytes - memory->reserve_bytes;
        double bytes = sbp_space_constant_bytes(space, point);
        for (int v = 0; v < space->variable_count; v++)
            bytes += sbp_space_unary_bytes(space, v, choice[v], point);
        if (bytes > (double)device_bytes * (1 + 1e-9))
            fail_msg("seed %" PRIu64 ": stage %d: modelled %.17g bytes, the plan takes %" PRId64,
                     seed, space->view->stage[point], bytes, device_bytes);
        most_bytes = fmax(most_bytes, bytes);
    }
    prices->least_bytes = fmin(prices->least_bytes, most_bytes / (double)step->totals.device_bytes);
}

/* The problem's cost and memory are lower bounds of the labelled, compiled plan's; the cost of one
 * stage is equal where every transfer is labelled as well as it was priced. */
static void check_price(struct sbp_plan *plan, const struct sbp_space *space, const int *choice,
                        double priced_s, uint64_t seed, struct prices *prices)
{
    struct sbp_diag diag = {{0}};
    struct sbp_labelling labelling;
    assert_int_equal(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), SBP_OK);
    assert_int_equal(sbp_label(space, choice, seed, &plan->strategy, &labelling), SBP_OK);
    if (labelling.broken_class >= 0 || labelling.broken_rests > 0) {
        prices->not_labelled++;
        return;
    }
    if (sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) != SBP_OK) {
        /* A sum over an axis that splits nothing of its tensor, next to other changes. */
        if (strstr(diag.text, "no dimension of the tensor has a digit") == NULL)
            fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
        prices->not_labelled++;
        return;
    }
    struct sbp_step step;
    if (sbp_plan_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    const struct sbp_step_totals totals = step.totals;
    check_bytes(space, choice, &step, seed, prices);
    sbp_step_free(&step);
    const double cost_s =
        space->request->objective == SBP_STEP_TIME ? totals.step_s : totals.communication_s;
    double promised_s = 0;
    for (int i = 0; i < space->transfer_count; i++)
        promised_s +=
            sbp_space_transfer_s(space, &space->transfer[i], choice[space->transfer[i].from],
                                 choice[space->transfer[i].to]);
    for (int k = 0; k < space->keep_count; k++)
        promised_s += sbp_space_keep_s(space, &space->keep[k], choice[space->keep[k].op_variable],
                                       choice[space->keep[k].rest_variable]);
    const double gap_s = labelling.transfer_s - promised_s;
    const double labelled_s = priced_s + gap_s;
    if (gap_s < -1e-9 * cost_s ||
        (!sbp_schedule_delays_gradients(plan->parallel.schedule) &&
         labelled_s > cost_s * (1 + 1e-9)) ||
        (sums_exactly(space) && labelled_s < cost_s * (1 - 1e-9)))
        fail_msg("seed %" PRIu64 ": plan %.17g, problem %.17g, labels add %.17g", seed, cost_s,
                 priced_s, gap_s);
    prices->run++;
    prices->equal += gap_s <= 1e-12 * cost_s;
    prices->largest_gap = fmax(prices->largest_gap, gap_s / cost_s);
    prices->loosest = fmax(prices->loosest, 1 - labelled_s / cost_s);
}

/* how->micro_batch: so many micro-batches. Returns prices.least_bytes. */
static double check_parallel_prices(const char *name, const char *model, const char *levels,
                                    struct sbp_request request, const struct sbp_parallel *how)
{
    struct prices prices = {.least_bytes = 1};
    struct sbp_plan plan;
    struct sbp_diag why = {{0}};
    open_plan(model, levels, &plan);
    struct sbp_parallel parallel = *how;
    parallel.micro_batch = plan.parallel.micro_batch / how->micro_batch;
    if (sbp_plan_set_parallel(&plan, &parallel, &why) != SBP_OK)
        fail_msg("%s", why.text);
    for (int objective = 0; objective < 2; objective++) {
        request.objective = objective == 0 ? SBP_STEP_TIME : SBP_COMMUNICATION;
        struct sbp_space space;
        struct sbp_problem problem;
        struct sbp_diag diag = {{0}};
        make(&plan, &request, &space);
        assert_int_equal(sbp_space_problem(&space, INFINITY, &problem, &diag), SBP_OK);
        int *const choice = calloc((size_t)space.variable_count + 1, sizeof *choice);
        assert_non_null(choice);
        for (uint64_t seed = 0; seed < 60; seed++) {
            struct sbp_random random;
            sbp_random_seed(&random, seed);
            if (draw_choice(&random, &space, &problem, choice))
                check_price(&plan, &space, choice, sbp_problem_cost(&problem, choice), seed,
                            &prices);
        }
        free(choice);
        sbp_problem_free(&problem);
        sbp_space_free(&space);
    }
    sbp_plan_free(&plan);
    print_message("%-12s %3d plans, %3d at the unlabelled price, largest gap %.3g %%, sums at most "
                  "%.3g %% below the step, bytes at least %.3g %%, %d without labels\n",
                  name, prices.run, prices.equal, 100 * prices.largest_gap, 100 * prices.loosest,
                  100 * prices.least_bytes, prices.not_labelled);
    assert_true(prices.run > 0);
    return prices.least_bytes;
}

/* Plain but for a number of micro-batches and ZeRO, as check_parallel_prices takes it. */
static struct sbp_parallel cut(int micro_batches, int zero)
{
    const struct sbp_graph graph = {.global_batch = micro_batches};
    struct sbp_parallel parallel = sbp_parallel_default(&graph);
    parallel.zero = zero;
    return parallel;
}

static void check_cut_prices(const char *name, const char *model, const char *levels,
                             struct sbp_request request, int micro_batches, int zero)
{
    const struct sbp_parallel parallel = cut(micro_batches, zero);
    (void)check_parallel_prices(name, model, levels, request, &parallel);
}

static void check_prices(const char *name, const char *model, const char *levels,
                         struct sbp_request request)
{
    check_cut_prices(name, model, levels, request, 1, 0);
}

#define GPT(layers, more)                                                                          \
    "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": " #layers ", \"hidden\": 144, "      \
    "\"heads\": 36, \"sequence\": 36, \"vocab\": 144, \"global_batch\": 36" more "}"

#define HEAD(name, batch, more)                                                                    \
    "{\"name\": \"" name "\", \"global_batch\": " #batch ", " more " \"layers\": ["

/* Between them, every operator of the catalogue but those of the chains above. */
static const char *const decoder = HEAD(
    "decoder", 48,
    "\"sequence\": 48, \"precision\": \"mixed\",") "{\"op\": \"embedding\", \"name\": \"e\", "
                                                   "\"vocab\": 96, \"hidden\": 48, \"types\": 2}, "
                                                   "{\"op\": \"rmsnorm\", \"name\": \"n\"}, "
                                                   "{\"op\": \"linear\", \"name\": \"q\", \"out\": "
                                                   "96, \"out_heads\": 48}, "
                                                   "{\"op\": \"head_norm\", \"name\": \"h\"}, "
                                                   "{\"op\": \"rotary\", \"name\": \"r\"}, "
                                                   "{\"op\": \"linear\", \"name\": \"kv\", "
                                                   "\"inputs\": [\"n\"], \"out\": 48, "
                                                   "\"out_heads\": 12}, "
                                                   "{\"op\": \"grouped_attention\", \"name\": "
                                                   "\"a\", \"inputs\": [\"r\", \"kv\"], \"heads\": "
                                                   "48, "
                                                   "\"kv_heads\": 12, \"head_dim\": 2}, "
                                                   "{\"op\": \"linear\", \"name\": \"gu\", "
                                                   "\"out\": 96, \"out_heads\": 48}, {\"op\": "
                                                   "\"swiglu\"}, "
                                                   "{\"op\": \"linear\", \"name\": \"d\", \"out\": "
                                                   "48}, "
                                                   "{\"op\": \"moe\", \"experts\": 24, \"top_k\": "
                                                   "2, \"ffn\": 48, \"capacity\": 1.25, \"gated\": "
                                                   "true, "
                                                   "\"router_bias\": true}]}";
static const char *const latent = HEAD(
    "latent", 48,
    "\"sequence\": 48, \"features\": 48, \"input\": \"split\",") "{\"op\": \"summa_linear\", "
                                                                 "\"name\": \"s\", \"out\": 48}, "
                                                                 "{\"op\": \"linear\", \"name\": "
                                                                 "\"lq\", \"out\": 144, "
                                                                 "\"out_heads\": 48}, "
                                                                 "{\"op\": \"linear\", \"name\": "
                                                                 "\"lk\", \"inputs\": [\"s\"], "
                                                                 "\"out\": 192, \"out_heads\": "
                                                                 "48}, "
                                                                 "{\"op\": \"linear\", \"name\": "
                                                                 "\"lr\", \"inputs\": [\"s\"], "
                                                                 "\"out\": 1}, "
                                                                 "{\"op\": \"latent_attention\", "
                                                                 "\"inputs\": [\"lq\", \"lk\", "
                                                                 "\"lr\"], \"heads\": 48, "
                                                                 "\"nope\": 2, "
                                                                 "\"rope\": 1, \"value\": 2}]}";
static const char *const images =
    HEAD("images", 48,
         "\"input\": {\"height\": 48, \"width\": 10, \"channels\": 48, \"split\": "
         "true},") "{\"op\": \"conv2d\", \"name\": \"c\", \"out\": 48, \"kernel\": "
                   "[3, 5], \"padding\": [1, 2], "
                   "\"bias\": true}, {\"op\": \"batchnorm\"}, {\"op\": \"relu\", "
                   "\"name\": \"r\"}, "
                   "{\"op\": \"conv2d\", \"name\": \"d\", \"out\": 48, \"kernel\": "
                   "1}, "
                   "{\"op\": \"add\", \"inputs\": [\"r\", \"d\"]}, {\"op\": "
                   "\"maxpool\", \"kernel\": 2}, "
                   "{\"op\": \"avgpool\", \"global\": true}, {\"op\": "
                   "\"flatten\"}, {\"op\": \"linear\", \"out\": 48}, "
                   "{\"op\": \"tanh\"}]}";
static const char *const patches = HEAD("patches", 48,
                                        "\"input\": {\"height\": 48, \"width\": 48, \"channels\": "
                                        "3},") "{\"op\": \"patch_embedding\", \"patch\": 4, "
                                               "\"hidden\": 48, \"positions\": true}, "
                                               "{\"op\": \"layernorm\"}, {\"op\": \"linear\", "
                                               "\"out\": 48}]}";
static const char *const own = HEAD(
    "own", 48,
    "\"sequence\": 2, \"features\": 48,") "{\"op\": \"custom\", \"name\": \"u\", \"inputs\": "
                                          "[\"input\"], \"out\": 96, \"out_heads\": 48, "
                                          "\"weights\": [[48, 96], [96]], \"saved_bytes\": 3, "
                                          "\"roles\": ["
                                          "{\"name\": \"batch\", \"input\": \"S0\", \"weight\": "
                                          "\"B\", \"output\": \"S0\"}, "
                                          "{\"name\": \"sum\", \"input\": [\"S2\"], \"weight\": "
                                          "[\"S0\", \"B\"], \"gradient\": [\"S0\", \"B\"], "
                                          "\"output\": \"P\"}], \"flops\": {\"forward\": 1e9, "
                                          "\"input_gradient\": 1e9, "
                                          "\"weight_gradient\": 1e9}, \"bytes\": {\"forward\": 5}, "
                                          "\"collectives\": [{\"pass\": \"forward\", "
                                          "\"role\": \"sum\", \"kind\": \"all-to-all\", \"bytes\": "
                                          "99, \"divided\": false}]}, "
                                          "{\"op\": \"linear\", \"out\": 48}]}";

static void test_operators(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12), *const two = LEVEL("o", 2) ", " LEVEL("i", 6);
    const struct sbp_request full = {.space = SBP_SPACE_FULL}, paper = {.space = SBP_SPACE_AUTODDL};
    check_prices("decoder", decoder, flat, full);
    check_prices("decoder", decoder, two, full);
    check_prices("latent", latent, flat, full);
    check_prices("latent", latent, two, paper);
    check_prices("images", images, flat, full);
    check_prices("images", images, two, full);
    check_prices("patches", patches, two, full);
    check_prices("own", own, flat, full);
}

/* Weights that are converted before use, gradients summed in a type of their own, a wide loss. */
#define COPIES                                                                                     \
    "{\"param\": \"fp32\", \"compute\": \"bf16\", \"activation\": \"bf16\", \"grad\": "            \
    "\"bf16\", \"accumulate\": \"fp32\", \"loss\": \"fp32\"}"

/* One stage: micro-batches and ZeRO are sums, too, and the space's own. */
static void test_cuts(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    const struct sbp_request full = {.space = SBP_SPACE_FULL};
    for (int zero = 0; zero <= 3; zero++) {
        check_cut_prices("zero", GPT(2, ", \"clip_norm\": 1"), flat, full, 1, zero);
        check_cut_prices("zero of 3", GPT(2, ", \"precision\": \"mixed\""), flat, full, 3, zero);
        check_cut_prices("decoder of 4", decoder, flat, full, 4, zero);
        check_cut_prices("copies of 2", GPT(2, ", \"precision\": " COPIES), flat, full, 2, zero);
    }
}

/* However little a step keeps, the space takes no more for it than the program does. */
static void test_kept_again(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    const struct sbp_request full = {.space = SBP_SPACE_FULL};
    const enum sbp_recompute all[] = {SBP_RECOMPUTE_NONE, SBP_RECOMPUTE_SELECTIVE,
                                      SBP_RECOMPUTE_FULL};
    for (int i = 0; i < 3; i++) {
        struct sbp_parallel parallel = cut(2, 0);
        parallel.recompute = all[i];
        parallel.regather = true;
        (void)check_parallel_prices("kept again", GPT(3, ""), flat, full, &parallel);
    }
}

/* Where many micro-batches are kept, they are most of what a device holds, and the space knows of
 * most of them. */
static void test_kept_in_flight(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    const struct sbp_request full = {.space = SBP_SPACE_FULL};
    for (int again = 0; again < SBP_RECOMPUTES; again++) {
        struct sbp_parallel parallel = cut(36, 3);
        parallel.schedule = SBP_GPIPE;
        parallel.recompute = (enum sbp_recompute)again;
        const double share =
            check_parallel_prices(sbp_recompute_name(parallel.recompute),
                                  GPT(3, ", \"precision\": \"mixed\""), flat, full, &parallel);
        assert_true(share > 0.7);
    }
}

/* One stage under every schedule but that of several: what it keeps in flight is never less than
 * the space takes. */
static void test_schedules(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    const struct sbp_request full = {.space = SBP_SPACE_FULL};
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++)
        for (int limit = 0; limit <= 3; limit += 3) {
            struct sbp_parallel parallel = cut(6, 1);
            parallel.schedule = (enum sbp_schedule)schedule;
            if (parallel.schedule == SBP_INTERLEAVED)
                continue;
            parallel.allow_delayed_gradients = sbp_schedule_delays_gradients(parallel.schedule);
            if (schedule == SBP_MESSAGE_DRIVEN || schedule == SBP_ZERO_BUBBLE)
                parallel.pipeline_limit = limit;
            (void)check_parallel_prices(sbp_schedule_name(parallel.schedule), GPT(2, ""), flat,
                                        full, &parallel);
        }
}

static void test_prices(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12), *const two = LEVEL("o", 4) ", " LEVEL("i", 6);
    const struct sbp_request full = {.space = SBP_SPACE_FULL}, paper = {.space = SBP_SPACE_AUTODDL};
    static const char *const chain =
        "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 144, \"input\": \"split\", "
        "\"features\": 144, \"layers\": [{\"op\": \"linear\", \"out\": 288, \"bias\": true}, "
        "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"out\": 144}, {\"op\": \"layernorm\"}, "
        "{\"op\": \"linear\", \"out\": 144, \"bias\": true}, {\"op\": \"cross_entropy\"}]}";
    check_prices("chain", chain, flat, full);
    check_prices("chain", chain, two, full);
    check_prices("chain", chain, two, paper);
    check_prices("gpt", GPT(1, ""), flat, full);
    check_prices("gpt", GPT(3, ""), two, full);
    check_prices("gpt", GPT(2, ", \"tied\": false, \"dropout\": 0.1"), two, paper);
    check_prices("gpt mixed", GPT(2, ", \"precision\": \"mixed\", \"clip_norm\": 1"), flat, full);
}

/* --- stages --- */

/* A cut of a step at random; refused where it does not fit the model. */
static bool draw_parallel(struct sbp_random *random, struct sbp_plan *plan)
{
    static const int64_t stages[] = {1, 2, 2, 3, 4, 4};
    struct sbp_parallel parallel = sbp_parallel_default(&plan->graph);
    struct sbp_diag refusal = {{0}};
    parallel.pipeline = stages[sbp_random_below(random, 6)];
    parallel.micro_batch = plan->graph.global_batch / (1 + (int64_t)sbp_random_below(random, 12));
    parallel.schedule = (enum sbp_schedule)sbp_random_below(random, SBP_MESSAGE_DRIVEN + 1);
    parallel.stage_cut = (enum sbp_stage_cut)sbp_random_below(random, SBP_STAGE_CUTS);
    if (parallel.schedule == SBP_INTERLEAVED)
        parallel.chunks = 2 + (int64_t)sbp_random_below(random, 2);
    if (parallel.schedule == SBP_ZERO_BUBBLE || parallel.schedule == SBP_MESSAGE_DRIVEN)
        parallel.pipeline_limit = (int64_t)sbp_random_below(random, 7);
    parallel.zero = (int64_t)sbp_random_below(random, 4);
    parallel.recompute = (enum sbp_recompute)sbp_random_below(random, SBP_RECOMPUTES);
    parallel.recompute_every = 1 + (int64_t)sbp_random_below(random, 2);
    parallel.offload = sbp_random_below(random, 3) == 0;
    parallel.bucket_parameters = INT64_C(1) << (4 + sbp_random_below(random, 12));
    parallel.gather_blocks = sbp_random_below(random, 4) == 0;
    parallel.regather = sbp_random_below(random, 4) == 0;
    parallel.keep_sent = sbp_random_below(random, 4) == 0;
    parallel.gradient_overlap = 0.25 * (double)sbp_random_below(random, 4);
    if (parallel.offload && sbp_random_below(random, 2) == 0) {
        parallel.chunk_factor = 1 + (int64_t)sbp_random_below(random, 4);
        parallel.gradient_overlap = 0;
    }
    return sbp_plan_set_parallel(plan, &parallel, &refusal) == SBP_OK;
}

/* Some choices along one path. */
static void check_path(struct sbp_plan *plan, const struct sbp_path *path,
                       struct sbp_request request, uint64_t seed, struct prices *prices)
{
    struct sbp_space space;
    struct sbp_problem problem;
    struct sbp_diag diag = {{0}};
    struct sbp_random random;
    struct sbp_arena arena;
    struct sbp_view view;
    sbp_arena_init(&arena);
    sbp_random_seed(&random, seed);
    if (sbp_view_make(plan, path, &arena, &view, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    request.view = &view;
    make(plan, &request, &space);
    assert_int_equal(sbp_space_problem(&space, INFINITY, &problem, &diag), SBP_OK);
    int *const choice = calloc((size_t)space.variable_count + 1, sizeof *choice);
    assert_non_null(choice);
    for (int i = 0; i < 3; i++)
        if (draw_choice(&random, &space, &problem, choice))
            check_price(plan, &space, choice, sbp_problem_cost(&problem, choice), seed, prices);
    free(choice);
    sbp_problem_free(&problem);
    sbp_space_free(&space);
    sbp_arena_free(&arena);
}

/* Forward over the stages before `turn`, all works of that one, and back to `end`. */
static struct sbp_path turn_at(const struct sbp_plan *plan, int turn, int end,
                               struct sbp_arena *arena)
{
    const struct sbp_parallel *const parallel = &plan->parallel;
    const int stages = (int)parallel->pipeline;
    const double all = (double)sbp_parallel_micro_batches(parallel, &plan->graph);
    struct sbp_path path;
    assert_int_equal(sbp_path_longest(plan, arena, &path), SBP_OK);
    memset(path.end, 0, (size_t)stages * sizeof *path.end);
    path.end[end] = 1;
    for (int piece = 0; piece < path.pieces; piece++) {
        const int stage = piece % stages;
        const bool passed = stage < turn && piece < stages;
        const bool late = parallel->schedule == SBP_ZERO_BUBBLE;
        path.forward[piece] = stage == turn ? all : passed;
        path.backward[piece] = stage == turn ? all : passed && stage >= end;
        path.weight[piece] = late && end < turn ? stage == end : path.backward[piece];
        path.sent[piece] = passed;
        path.returned[piece] = piece < stages && stage > end && stage <= turn;
    }
    return path;
}

/* What the messages of a path take in a compiled step. */
static double messages_of(const struct sbp_path *path, const struct sbp_step *step)
{
    const int chunks = step->pieces / step->stages;
    double seconds = 0;
    for (int piece = 0; piece < path->pieces; piece++) {
        const struct sbp_stage_cost *const cost =
            &step->cost[piece % step->stages * chunks + piece / step->stages];
        seconds += path->sent[piece] * cost->send_forward_s +
                   path->returned[piece] * cost->send_backward_s;
    }
    return seconds;
}

struct criticals {
    int run, exact; /* of exact ones the path is the step, and the sum over operators the path */
    double loosest; /* of the others */
};

/* The sum along a plan's own critical path is its step, but for labels and messages that cost more
 * than the least; the longest path that is known is never above it. */
static void check_critical(struct sbp_plan *plan, const struct sbp_request *request,
                           const struct sbp_space *space, const int *choice, uint64_t seed,
                           struct criticals *criticals)
{
    struct sbp_diag diag = {{0}};
    struct sbp_labelling labelling;
    struct sbp_path path, times;
    struct sbp_view view;
    struct sbp_space along;
    struct sbp_problem problem;
    struct sbp_step step;
    double promised_s = 0;
    assert_int_equal(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), SBP_OK);
    assert_int_equal(sbp_label(space, choice, seed, &plan->strategy, &labelling), SBP_OK);
    if (labelling.broken_class >= 0 || labelling.broken_rests > 0)
        return;
    if (sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) != SBP_OK ||
        sbp_plan_step(plan, &plan->strategy, &step, &diag) != SBP_OK ||
        sbp_path_of_step(plan, &plan->strategy, &plan->arena, &path, &times, &diag) != SBP_OK ||
        sbp_view_make(plan, &path, &plan->arena, &view, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    const double length_s = sbp_path_length_s(&path, &times), step_s = step.totals.step_s;
    const double messages_s = messages_of(&path, &step);
    sbp_step_free(&step);
    criticals->run++;
    criticals->loosest = fmax(criticals->loosest, 1 - length_s / step_s);
    if (length_s > step_s * (1 + 1e-9))
        fail_msg("seed %" PRIu64 ", %s: path %.15g, step %.15g", seed,
                 sbp_schedule_name(plan->parallel.schedule), length_s, step_s);
    if (fabs(length_s - step_s) > 1e-9 * step_s)
        return; /* works that take no time leave gaps: the longest path instead */
    struct sbp_request asked = *request;
    asked.view = &view;
    make(plan, &asked, &along);
    assert_int_equal(sbp_space_problem(&along, INFINITY, &problem, &diag), SBP_OK);
    for (int i = 0; i < along.transfer_count; i++)
        promised_s +=
            sbp_space_transfer_s(&along, &along.transfer[i], choice[along.transfer[i].from],
                                 choice[along.transfer[i].to]);
    for (int k = 0; k < along.keep_count; k++)
        promised_s += sbp_space_keep_s(&along, &along.keep[k], choice[along.keep[k].op_variable],
                                       choice[along.keep[k].rest_variable]);
    assert_int_equal(sbp_label(&along, choice, seed, &plan->strategy, &labelling), SBP_OK);
    const double sum_s = sbp_problem_cost(&problem, choice) + labelling.transfer_s - promised_s +
                         messages_s - view.message_s;
    if (fabs(sum_s - step_s) > 1e-9 * step_s)
        fail_msg("seed %" PRIu64 ", %s: sum along the critical path %.15g, step %.15g", seed,
                 sbp_schedule_name(plan->parallel.schedule), sum_s, step_s);
    criticals->exact++;
    sbp_problem_free(&problem);
    sbp_space_free(&along);
}

static void check_criticals(const char *name, const char *model, enum sbp_schedule schedule,
                            int draws)
{
    struct criticals criticals = {0, 0, 0};
    for (uint64_t seed = 1; seed <= (uint64_t)draws; seed++) {
        struct sbp_plan plan;
        struct sbp_random random;
        struct sbp_diag diag = {{0}};
        struct sbp_space space;
        struct sbp_problem problem;
        const struct sbp_request request = {.space = SBP_SPACE_FULL};
        open_plan(model, LEVEL("o", 12) ", " LEVEL("i", 2), &plan);
        sbp_random_seed(&random, seed);
        if (draw_parallel(&random, &plan)) {
            struct sbp_parallel parallel = plan.parallel;
            parallel.schedule = schedule;
            parallel.pipeline = parallel.pipeline > 1 ? parallel.pipeline : 2;
            parallel.chunks = schedule == SBP_INTERLEAVED ? 2 : 1;
            parallel.pipeline_limit = schedule == SBP_ZERO_BUBBLE && sbp_random_below(&random, 2)
                                          ? 2 * parallel.pipeline - 1
                                      : schedule == SBP_MESSAGE_DRIVEN
                                          ? (int64_t)sbp_random_below(&random, 7)
                                          : 0;
            parallel.offload = parallel.gather_blocks = false;
            parallel.chunk_factor = 0;
            parallel.gradient_overlap = 0;
            if (sbp_plan_set_parallel(&plan, &parallel, &diag) == SBP_OK) {
                make(&plan, &request, &space);
                assert_int_equal(sbp_space_problem(&space, INFINITY, &problem, &diag), SBP_OK);
                int *const choice = calloc((size_t)space.variable_count + 1, sizeof *choice);
                assert_non_null(choice);
                if (draw_choice(&random, &space, &problem, choice))
                    check_critical(&plan, &request, &space, choice, seed, &criticals);
                free(choice);
                sbp_problem_free(&problem);
                sbp_space_free(&space);
            }
        }
        sbp_plan_free(&plan);
    }
    print_message("%-12s %-14s %d plans, %d as long as the sum along their critical path, the path "
                  "at most %.3g %% below the step\n",
                  name, sbp_schedule_name(schedule), criticals.run, criticals.exact,
                  100 * criticals.loosest);
    assert_true(criticals.run > draws / 8);
    if (schedule != SBP_MESSAGE_DRIVEN)
        assert_int_equal(criticals.exact, criticals.run);
}

static void test_criticals(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE, SBP_MESSAGE_DRIVEN};
    for (int i = 0; i < 5; i++) {
        check_criticals("gpt", GPT(4, ", \"clip_norm\": 1"), schedules[i], 40);
        check_criticals("gpt untied", GPT(6, ", \"tied\": false, \"precision\": \"mixed\""),
                        schedules[i], 40);
    }
}

/* The sum along any path bounds the step, and the model's bytes those of every stage. */
static void check_cut(struct sbp_plan *plan, struct sbp_request request, uint64_t seed,
                      struct prices *prices)
{
    struct sbp_diag diag = {{0}};
    struct sbp_path path, times;
    const int stages = (int)plan->parallel.pipeline;
    for (int turn = 0; turn < stages; turn++)
        for (int end = 0; end <= turn; end++) {
            path = turn_at(plan, turn, end, &plan->arena);
            check_path(plan, &path, request, seed, prices);
        }
    assert_int_equal(sbp_path_expected(plan, &plan->arena, &path, &diag), SBP_OK);
    check_path(plan, &path, request, seed, prices);
    if (sbp_path_of_step(plan, &plan->strategy, &plan->arena, &path, &times, &diag) == SBP_OK)
        check_path(plan, &path, request, seed, prices);
    request.objective = SBP_COMMUNICATION;
    check_path(plan, &path, request, seed, prices);
}

static void check_stages(const char *name, const char *model, uint64_t first_seed, int draws)
{
    struct prices prices = {0};
    int cuts = 0;
    for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)draws; seed++) {
        struct sbp_plan plan;
        struct sbp_random random;
        struct sbp_diag diag = {{0}};
        struct sbp_view view;
        open_plan(model, LEVEL("o", 12) ", " LEVEL("i", 2), &plan);
        sbp_random_seed(&random, seed);
        const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                            .zero_is_free = sbp_random_below(&random, 2) == 0};
        if (draw_parallel(&random, &plan) &&
            sbp_view_mean(&plan, &plan.arena, &view, &diag) == SBP_OK) {
            check_cut(&plan, request, seed, &prices);
            cuts++;
        }
        sbp_plan_free(&plan);
    }
    print_message("%-12s %d cuts, %d plans, sums at most %.3g %% below the step\n", name, cuts,
                  prices.run, 100 * prices.loosest);
    assert_true(prices.run > draws);
}

static void test_stages(void **state)
{
    (void)state;
    static const char *const mlp =
        "{\"name\": \"m\", \"global_batch\": 144, \"features\": 144, \"layers\": [{\"op\": "
        "\"linear\", \"out\": 288, \"bias\": true}, {\"op\": \"gelu\"}, {\"op\": \"linear\", "
        "\"out\": 144}, {\"op\": \"layernorm\"}, {\"op\": \"linear\", \"out\": 144, \"bias\": "
        "true}, "
        "{\"op\": \"dropout\", \"p\": 0.1}, {\"op\": \"linear\", \"out\": 288}, {\"op\": "
        "\"cross_entropy\"}]}";
    check_stages("gpt", GPT(4, ", \"clip_norm\": 1"), 1, 15);
    check_stages("gpt mixed", GPT(6, ", \"precision\": \"mixed\", \"dropout\": 0.1"), 1001, 15);
    check_stages("gpt untied", GPT(5, ", \"tied\": false, \"attention\": \"flash\""), 2001, 15);
    check_stages("mlp", mlp, 3001, 15);
}

/* Only what an operator leaves split binds where it rests. */
static void test_rests(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    open_plan(WIDE, LEVEL("l", 16), &plan);
    make(&plan, &request, &space);
    assert_int_equal(space.keep_count, 2);
    for (int k = 0; k < space.keep_count; k++) {
        const struct sbp_keep *const keep = &space.keep[k];
        for (int c = 0; c < space.variable[keep->op_variable].choice_count; c++)
            for (int rest = 0; rest < space.variable[keep->rest_variable].choice_count; rest++) {
                const uint8_t *const op = sbp_space_count(&space, keep->op_variable, c, 0);
                const uint8_t *const at = sbp_space_count(&space, keep->rest_variable, rest, 0);
                const bool expected = op[BATCH] <= at[SBP_DIM_BATCH] &&
                                      op[SEQUENCE] <= at[SBP_DIM_SEQUENCE] &&
                                      op[COLUMN] <= at[SBP_DIM_FEATURE];
                assert_int_equal(sbp_space_can_rest(&space, keep, c, rest), expected);
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
        cmocka_unit_test(test_class_limit_of_repeats),
        cmocka_unit_test(test_batch_split),
        cmocka_unit_test(test_fix),
        cmocka_unit_test(test_last_resort),
        cmocka_unit_test(test_rests),
        cmocka_unit_test(test_prices),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_kept_again),
        cmocka_unit_test(test_kept_in_flight),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_criticals),
        cmocka_unit_test(test_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

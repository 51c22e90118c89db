/* Labelled strategies: states of operands, which axes split which class, and what is refused. */
#include <stdio.h>
#include <string.h>

#include "costmodel/program/strategy.h"
#include "tests/support/strategy_oracle.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED   UINT64_C(4209)
#define ROUNDS 4000

struct setting {
    struct oracle_model model;
    struct sbp_mesh mesh;
    struct sbp_arena arena;
    struct sbp_strategy strategy;
};

static void set_mesh(struct setting *s, int levels, const int64_t *size)
{
    const struct sbp_cluster cluster = oracle_cluster(levels, size);
    struct sbp_diag diag = {{0}};
    if (sbp_mesh_make(&cluster, &s->mesh, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_init(&s->arena);
    assert_int_equal(sbp_strategy_alloc(&s->model.graph, &s->arena, &s->strategy), SBP_OK);
}

static void drop(struct setting *s)
{
    sbp_arena_free(&s->arena);
    oracle_model_drop(&s->model);
}

/* --- operands --- */

static void check_state(const char *what, const struct setting *s, int op, int axis,
                        struct sbp_state have, struct sbp_state expected)
{
    if (!sbp_state_equal(have, expected))
        fail_msg("%s of %s on axis %d: %d(%d), expected %d(%d)", what, s->model.graph.op[op].name,
                 axis, have.kind, have.dim, expected.kind, expected.dim);
}

static void check_operands(const struct setting *s, int op)
{
    const struct sbp_graph *graph = &s->model.graph;
    const struct sbp_op_node *node = &graph->op[op];
    for (int axis = 0; axis < s->mesh.axis_count; axis++) {
        const struct sbp_role *role = oracle_role(graph, &s->strategy, op, axis);
        assert_non_null(role);
        for (int i = 0; i < node->input_count; i++)
            check_state("input", s, op, axis,
                        sbp_strategy_input(graph, &s->mesh, &s->strategy, op, i).axis[axis],
                        role->input[i]);
        for (int i = 0; i < node->weight_count; i++) {
            check_state("weight", s, op, axis,
                        sbp_strategy_weight(graph, &s->mesh, &s->strategy, op, i).axis[axis],
                        oracle_stored(node, i, role->weight[i]));
            check_state("gradient", s, op, axis,
                        sbp_strategy_gradient(graph, &s->mesh, &s->strategy, op, i).axis[axis],
                        oracle_stored(node, i, role->gradient[i]));
        }
        if (node->output >= 0)
            check_state("output", s, op, axis,
                        sbp_strategy_output(graph, &s->mesh, &s->strategy, op).axis[axis],
                        role->output);
    }
}

/* --- legality --- */

/* Now and then something is wrong: a role that is none, a rest that is no split or another one. */
static void spoil(struct sbp_random *random, struct setting *s)
{
    const struct sbp_graph *graph = &s->model.graph;
    if (s->mesh.axis_count == 0 || oracle_below(random, 4) != 0)
        return;
    const int op = (int)oracle_below(random, graph->op_count);
    const int axis = (int)oracle_below(random, s->mesh.axis_count);
    const struct sbp_op_node *node = &graph->op[op];
    switch (oracle_below(random, 5)) {
    case 4:
        if (graph->input >= 0)
            s->strategy.rest[graph->input].axis[axis] = SBP_STATE_P;
        break;
    case 0:
        s->strategy.op[op].role[axis] =
            (uint8_t)(node->entry->role_count + (int)oracle_below(random, 200));
        break;
    case 1:
        if (node->output >= 0)
            s->strategy.rest[node->output].axis[axis] =
                oracle_below(random, 2) == 0 ? SBP_STATE_B : SBP_STATE_P;
        break;
    case 2:
        if (node->output >= 0)
            s->strategy.rest[node->output].axis[axis] =
                SBP_STATE_S((uint8_t)oracle_below(random, 4));
        break;
    default:
        s->strategy.op[op].role[axis] = (uint8_t)oracle_below(random, searched_roles(node->entry));
    }
}

static bool check_verdict(struct setting *s, int round)
{
    static struct oracle_legality legality;
    struct sbp_diag diag = {{0}};
    const struct sbp_graph *graph = &s->model.graph;
    oracle_judge(graph, &s->mesh, &s->strategy, &legality);
    const enum sbp_status status = sbp_strategy_close(graph, &s->mesh, &s->strategy, &diag);
    if (status != (legality.legal ? SBP_OK : SBP_E_INPUT))
        fail_msg("round %d, %s on %lld ranks is %s, and close says %s: %s", round, graph->name,
                 (long long)s->mesh.devices, legality.legal ? "legal" : "illegal",
                 sbp_status_name(status), diag.text);
    if (!legality.legal) {
        assert_true(diag.text[0] != '\0');
        return false;
    }
    for (int i = 0; i < graph->class_count; i++)
        if (s->strategy.split[i] != legality.split[i])
            fail_msg("round %d: class %s is split by %#x, expected %#x", round,
                     graph->dim_class[i].name, s->strategy.split[i], legality.split[i]);
    for (int op = 0; op < graph->op_count; op++)
        check_operands(s, op);
    return true;
}

static void test_random_strategies(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    int legal[ORACLE_MODELS] = {0}, illegal[ORACLE_MODELS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        struct setting s = {0};
        const int model = round % ORACLE_MODELS;
        oracle_model_read(&s.model, oracle_models[model]);
        set_mesh(&s, 3, oracle_meshes[oracle_below(&random, ORACLE_MESHES)]);
        oracle_draw(&random, &s.model.graph, &s.mesh, &s.strategy);
        s.strategy.boxing = oracle_below(&random, 3) == 0 ? SBP_BOXING_PAPER : SBP_BOXING_FULL;
        spoil(&random, &s);
        if (check_verdict(&s, round))
            legal[model]++;
        else
            illegal[model]++;
        drop(&s);
    }
    for (int i = 0; i < ORACLE_MODELS; i++) {
        print_message("model %d: %d legal, %d not\n", i, legal[i], illegal[i]);
        assert_true(legal[i] > ROUNDS / 80 && illegal[i] > ROUNDS / 80);
    }
}

/* --- by hand --- */

#define PERCEPTRON(in, batch, more)                                                                \
    "{\"name\": \"m\", \"global_batch\": " batch ", \"precision\": \"fp32\"" more                  \
    ", \"layers\": ["                                                                              \
    "{\"op\": \"linear\", \"name\": \"one\", \"in\": " in ", \"out\": 8},"                         \
    "{\"op\": \"relu\", \"name\": \"act\"},"                                                       \
    "{\"op\": \"linear\", \"name\": \"two\", \"in\": 8, \"out\": 6}]}"

/* Every axis plays the same role in both layers; rests follow outputs, else split features. */
static void label_all(struct setting *s, const char *role)
{
    const struct sbp_graph *graph = &s->model.graph;
    for (int axis = 0; axis < s->mesh.axis_count; axis++) {
        if (graph->input >= 0)
            s->strategy.rest[graph->input].axis[axis] = SBP_STATE_S(SBP_DIM_BATCH);
        for (int op = 0; op < graph->op_count; op++) {
            const struct sbp_op_node *node = &graph->op[op];
            if (!node->entry->follows)
                s->strategy.op[op].role[axis] = (uint8_t)oracle_role_named(
                    node->kind, node->kind == SBP_OP_LINEAR ? role : "batch");
            const struct sbp_role *plays = oracle_role(graph, &s->strategy, op, axis);
            if (node->output >= 0)
                s->strategy.rest[node->output].axis[axis] =
                    plays->output.kind == SBP_SPLIT ? plays->output : SBP_STATE_S(SBP_DIM_FEATURE);
        }
    }
}

static void refused(struct setting *s, const char *const *words)
{
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_strategy_close(&s->model.graph, &s->mesh, &s->strategy, &diag),
                     SBP_E_INPUT);
    for (int i = 0; words[i] != NULL; i++)
        if (strstr(diag.text, words[i]) == NULL)
            fail_msg("no word of %s in: %s", words[i], diag.text);
}

static void accepted(struct setting *s)
{
    struct sbp_diag diag = {{0}};
    if (sbp_strategy_close(&s->model.graph, &s->mesh, &s->strategy, &diag) != SBP_OK)
        fail_msg("a legal strategy was refused: %s", diag.text);
}

/* The product over the plan has to divide: six outputs do not make four shards, though each layer
 * alone splits them in two. */
static void test_what_does_not_divide(void **state)
{
    (void)state;
    struct setting s = {0};
    oracle_model_read(&s.model, PERCEPTRON("4", "4", ""));
    set_mesh(&s, 1, (int64_t[]){4});
    label_all(&s, "batch");
    accepted(&s);
    label_all(&s, "column");
    refused(&s, (const char *[]){"4 parts", "6", NULL});
    label_all(&s, "row");
    refused(&s, (const char *[]){"4 parts", "6", NULL}); /* its output rests split */
    drop(&s);

    oracle_model_read(&s.model, PERCEPTRON("4", "3", ""));
    set_mesh(&s, 1, (int64_t[]){2});
    label_all(&s, "batch");
    refused(&s, (const char *[]){"batch", "2 parts", "3", NULL});
    label_all(&s, "column");
    accepted(&s);
    drop(&s);
}

/* Different axes in different layers add up to one product. */
static void test_product_over_the_plan(void **state)
{
    (void)state;
    struct setting s = {0};
    oracle_model_read(&s.model, PERCEPTRON("4", "2", ""));
    set_mesh(&s, 1, (int64_t[]){4});
    const uint8_t batch = (uint8_t)oracle_role_named(SBP_OP_LINEAR, "batch");
    const uint8_t column = (uint8_t)oracle_role_named(SBP_OP_LINEAR, "column");
    const struct sbp_state b = SBP_STATE_S(SBP_DIM_BATCH), f = SBP_STATE_S(SBP_DIM_FEATURE);
    const int one = oracle_op_named(&s.model.graph, "one");
    const int act = oracle_op_named(&s.model.graph, "act");
    const int two = oracle_op_named(&s.model.graph, "two");
    const int after[] = {s.model.graph.op[one].output, s.model.graph.op[act].output,
                         s.model.graph.op[two].output};
    for (int crossed = 0; crossed < 2; crossed++) {
        s.strategy.op[one] = (struct sbp_labels){{batch, column}};
        s.strategy.op[two] =
            crossed ? (struct sbp_labels){{column, batch}} : (struct sbp_labels){{batch, column}};
        s.strategy.rest[after[0]] = s.strategy.rest[after[1]] = (struct sbp_dist){{b, f}};
        s.strategy.rest[after[2]] = crossed ? (struct sbp_dist){{f, b}} : (struct sbp_dist){{b, f}};
        if (crossed)
            refused(&s, (const char *[]){"batch", "4 parts", "2", NULL});
        else
            accepted(&s);
    }
    drop(&s);
}

static void test_rests(void **state)
{
    (void)state;
    struct setting s = {0};
    oracle_model_read(&s.model, PERCEPTRON("4", "4", ", \"input\": \"split\""));
    set_mesh(&s, 1, (int64_t[]){2});
    const int one = s.model.graph.op[oracle_op_named(&s.model.graph, "one")].output;
    const int act = s.model.graph.op[oracle_op_named(&s.model.graph, "act")].output;
    label_all(&s, "row");
    accepted(&s);
    s.strategy.rest[one].axis[0] = SBP_STATE_S(SBP_DIM_BATCH); /* a partial sum may rest anywhere */
    s.strategy.rest[act].axis[0] = SBP_STATE_S(SBP_DIM_BATCH);
    accepted(&s);
    s.strategy.rest[act].axis[0] = SBP_STATE_S(SBP_DIM_FEATURE); /* a follower stays */
    refused(&s, (const char *[]){"act", NULL});
    label_all(&s, "row");
    s.strategy.rest[one].axis[0] = SBP_STATE_P; /* a sum of squares is not a square of sums */
    refused(&s, (const char *[]){"act", "role", NULL});
    label_all(&s, "column");
    s.strategy.rest[one].axis[0] = SBP_STATE_P;
    refused(&s, (const char *[]){"one", "partial", "split", NULL});
    s.strategy.rest[one].axis[0] = SBP_STATE_B; /* gathered, and the follower repeats its work */
    s.strategy.rest[act].axis[0] = SBP_STATE_B;
    accepted(&s);
    s.strategy.rest[act].axis[0] = SBP_STATE_S(SBP_DIM_FEATURE); /* or sliced again */
    accepted(&s);
    s.strategy.rest[act].axis[0] = SBP_STATE_P;
    refused(&s, (const char *[]){"act", "partial", "B", NULL});
    label_all(&s, "column");
    s.strategy.rest[one].axis[0] = SBP_STATE_S(SBP_DIM_BATCH);
    refused(&s, (const char *[]){"one", NULL});
    label_all(&s, "row");
    s.strategy.rest[s.model.graph.input].axis[0] = SBP_STATE_B; /* out of an earlier layer */
    refused(&s, (const char *[]){"input", "split", NULL});
    label_all(&s, "row");
    s.strategy.op[0].role[0] = 77;
    refused(&s, (const char *[]){"one", "role", NULL});
    drop(&s);
}

/* What is mirrored is so on whole levels: operators, what they leave, and a table with its head. */
static void test_mirrored(void **state)
{
    (void)state;
    struct setting s = {0};
    oracle_model_read(&s.model, PERCEPTRON("4", "4", ""));
    set_mesh(&s, 2, (int64_t[]){2, 4});
    const int one = oracle_op_named(&s.model.graph, "one");
    const int act = s.model.graph.op[oracle_op_named(&s.model.graph, "act")].output;
    const uint8_t mirror = (uint8_t)oracle_role_named(SBP_OP_LINEAR, "mirror");
    struct sbp_dist *const rest = &s.strategy.rest[s.model.graph.op[one].output];
    label_all(&s, "replicate");
    for (int tensor = 0; tensor < s.model.graph.tensor_count; tensor++)
        s.strategy.rest[tensor] = sbp_dist_all(SBP_STATE_B);
    accepted(&s);
    rest->axis[0] = s.strategy.rest[act].axis[0] = SBP_STATE_M; /* the outer level has one axis */
    s.strategy.op[one].role[0] = mirror;
    accepted(&s);
    s.strategy.op[one].role[1] = mirror; /* the inner one has two */
    refused(&s, (const char *[]){"one", "mirrored", "all or none", NULL});
    s.strategy.op[one].role[2] = mirror;
    accepted(&s);
    rest->axis[2] = s.strategy.rest[act].axis[2] = SBP_STATE_M;
    refused(&s, (const char *[]){"one", "mirrored", "all or none", NULL});
    rest->axis[1] = s.strategy.rest[act].axis[1] = SBP_STATE_M;
    accepted(&s);
    drop(&s);
}

/* A free input rests nowhere: what stands there decides nothing, in either mode. */
static void test_free_input(void **state)
{
    (void)state;
    struct setting s;
    memset(&s, 0xff, sizeof s); /* an allocated strategy needs no preparation */
    oracle_model_read(&s.model, PERCEPTRON("5", "6", ""));
    set_mesh(&s, 1, (int64_t[]){2});
    assert_int_equal(s.strategy.boxing, SBP_BOXING_FULL);
    const struct sbp_state odd[] = {SBP_STATE_B, SBP_STATE_P, SBP_STATE_S(1), SBP_STATE_S(2)};
    for (int mode = 0; mode < 2; mode++)
        for (int i = 0; i < 4; i++) {
            label_all(&s, "column"); /* five inputs, whole on both ranks */
            s.strategy.boxing = mode == 0 ? SBP_BOXING_FULL : SBP_BOXING_PAPER;
            s.strategy.rest[s.model.graph.input].axis[0] = odd[i];
            accepted(&s);
        }
    drop(&s);
}

static void test_tied_weight(void **state)
{
    (void)state;
    static const struct {
        const char *table, *head;
        bool legal;
    } rows[] = {
        {"batch", "batch", true},       {"column", "row", true},     {"vocab", "column", true},
        {"sequence", "batch", true},    {"column", "column", false}, {"vocab", "row", false},
        {"batch", "column", false},     {"vocab", "batch", false},   {"mirror", "mirror", true},
        {"mirror", "replicate", false}, {"batch", "mirror", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct setting s = {0};
        oracle_model_read(&s.model,
                          "{\"name\": \"t\", \"global_batch\": 4, \"sequence\": 4, \"precision\": "
                          "\"fp32\", \"layers\": [{\"op\": \"embedding\", \"name\": \"emb\", "
                          "\"vocab\": 8, \"hidden\": 4}, {\"op\": \"linear\", \"name\": \"head\","
                          "\"tied\": \"emb\"}, {\"op\": \"cross_entropy\", \"name\": \"loss\"}]}");
        set_mesh(&s, 1, (int64_t[]){2});
        const struct sbp_graph *graph = &s.model.graph;
        const int emb = oracle_op_named(graph, "emb"), head = oracle_op_named(graph, "head");
        s.strategy.op[emb].role[0] = (uint8_t)oracle_role_named(SBP_OP_EMBEDDING, rows[i].table);
        s.strategy.op[head].role[0] = (uint8_t)oracle_role_named(SBP_OP_LINEAR, rows[i].head);
        const int ops[] = {emb, head};
        for (int j = 0; j < 2; j++) {
            const struct sbp_state out = oracle_role(graph, &s.strategy, ops[j], 0)->output;
            s.strategy.rest[graph->op[ops[j]].output].axis[0] =
                out.kind == SBP_SPLIT ? out : SBP_STATE_S(SBP_DIM_BATCH);
        }
        if (rows[i].legal)
            accepted(&s);
        else
            refused(&s, (const char *[]){"head", "emb", NULL});
        drop(&s);
    }
}

/* AutoDDL, section 4.3: p0 = p0' or p1 = p2' goes straight; else everything is split on the way. */
static void test_waypoints(void **state)
{
    (void)state;
    struct setting s = {0};
    oracle_model_read(&s.model, PERCEPTRON("64", "64", ", \"input\": \"split\""));
    set_mesh(&s, 1, (int64_t[]){8});
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    int ways = 0;
    for (int round = 0; round < 500; round++) {
        struct sbp_dist via;
        oracle_draw(&random, &s.model.graph, &s.mesh, &s.strategy);
        const struct sbp_dist rest = s.strategy.rest[s.model.graph.input];
        const struct sbp_dist want = sbp_strategy_input(&s.model.graph, &s.mesh, &s.strategy, 0, 0);
        sbp_axes batch[2] = {0}, features[2] = {0};
        struct sbp_dist expected = want;
        for (int i = 0; i < s.mesh.axis_count; i++) {
            for (int j = 0; j < 2; j++) {
                const struct sbp_state at = j == 0 ? rest.axis[i] : want.axis[i];
                if (at.kind == SBP_SPLIT)
                    *(at.dim == SBP_DIM_BATCH ? &batch[j] : &features[j]) |= (sbp_axes)1 << i;
            }
            if (want.axis[i].kind == SBP_BROADCAST)
                expected.axis[i] = SBP_STATE_S(SBP_DIM_FEATURE);
        }
        s.strategy.boxing = SBP_BOXING_FULL;
        assert_false(sbp_strategy_waypoint(&s.model.graph, &s.mesh, &s.strategy, 0, 0, &via));
        s.strategy.boxing = SBP_BOXING_PAPER;
        const bool way = sbp_strategy_waypoint(&s.model.graph, &s.mesh, &s.strategy, 0, 0, &via);
        assert_int_equal(way, batch[0] != batch[1] && features[0] != features[1]);
        assert_true(!way || sbp_dist_equal(&s.mesh, &via, &expected));
        ways += way;
    }
    assert_in_range(ways, 50, 450);
    drop(&s);
}

/* --- misplaced axes --- */

/* An operator of two inputs by itself, on a mesh of 2 x 3 x 2; classes 0: queries, or rows in; 1:
 * keys, or rows out. */
struct alone {
    struct sbp_mesh mesh;
    sbp_axes split[2];
    struct sbp_op_node node;
    struct sbp_tensor tensor[3];
    struct sbp_graph graph;
};

static void alone_make(struct alone *a, enum sbp_op_kind kind, int dim, int64_t first,
                       int64_t second)
{
    const struct sbp_cluster cluster = oracle_cluster(3, (const int64_t[]){2, 3, 2});
    struct sbp_diag diag = {{0}};
    memset(a, 0, sizeof *a);
    assert_int_equal(sbp_mesh_make(&cluster, &a->mesh, &diag), SBP_OK);
    a->node = (struct sbp_op_node){.kind = kind,
                                   .entry = sbp_op(kind),
                                   .input_count = sbp_op(kind)->inputs,
                                   .input = {0, 1},
                                   .output = kind == SBP_OP_CONV2D ? 1 : 2};
    for (int t = 0; t < 3; t++)
        for (int d = 0; d < SBP_MAX_DIMS; d++) {
            a->tensor[t].shape.size[d] = d == dim ? (t == 1 ? second : first) : 1;
            a->tensor[t].shape.dim_class[d] = d == dim ? t == 1 : SBP_NO_CLASS;
        }
    a->graph = (struct sbp_graph){.op = &a->node, .op_count = 1, .tensor = a->tensor};
}

static struct sbp_dist split_by(const struct alone *a, const uint8_t *role, int own, int dim)
{
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < a->mesh.axis_count; axis++)
        if (role[axis] == own)
            dist.axis[axis] = SBP_STATE_S((uint8_t)dim);
    return dist;
}

/* Whether each device holds the key head of every query head that it holds, by the digit rule. */
static bool keys_are_there(const struct alone *a, const uint8_t *role, int head, int query)
{
    const struct sbp_layout layout = {&a->mesh, 2, a->split};
    const int64_t heads = a->tensor[0].shape.size[2], keys = a->tensor[1].shape.size[2];
    struct sbp_dist queries = split_by(a, role, head, SBP_DIM_FEATURE);
    const struct sbp_dist held = queries;
    for (int axis = 0; axis < a->mesh.axis_count; axis++)
        if (role[axis] == query)
            queries.axis[axis] = SBP_STATE_S(SBP_DIM_FEATURE);
    for (int64_t rank = 0; rank < a->mesh.devices; rank++)
        for (int64_t h = 0; h < heads; h++)
            if (oracle_owns_index(&layout, &a->tensor[0].shape, &queries, rank, 2, h) &&
                !oracle_owns_index(&layout, &a->tensor[1].shape, &held, rank, 2, h * keys / heads))
                return false;
    return true;
}

/* Whether each device's rows lie one behind the other, of both images. */
static bool rows_are_runs(const struct alone *a, const uint8_t *role, int height)
{
    const struct sbp_layout layout = {&a->mesh, 2, a->split};
    const struct sbp_dist dist = split_by(a, role, height, SBP_DIM_SEQUENCE);
    for (int t = 0; t < 2; t++)
        for (int64_t rank = 0; rank < a->mesh.devices; rank++) {
            int runs = 0;
            bool before = false;
            for (int64_t row = 0; row < a->tensor[t].shape.size[1]; row++) {
                const bool own =
                    oracle_owns_index(&layout, &a->tensor[t].shape, &dist, rank, 1, row);
                runs += own && !before;
                before = own;
            }
            if (runs > 1)
                return false;
        }
    return true;
}

/* All roles of three axes, each class split by their axes and, elsewhere, by any others. */
static void test_misplaced(void **state)
{
    (void)state;
    const struct sbp_op_entry *grouped = sbp_op(SBP_OP_GROUPED_ATTENTION);
    const int head = sbp_op_role(grouped, "head"), query = sbp_op_role(grouped, "query");
    const int height = sbp_op_role(sbp_op(SBP_OP_CONV2D), "height");
    struct alone attention, conv;
    int seen[2][2] = {{0}};
    alone_make(&attention, SBP_OP_GROUPED_ATTENTION, SBP_DIM_FEATURE, 24, 12);
    alone_make(&conv, SBP_OP_CONV2D, SBP_DIM_SEQUENCE, 24, 12);
    for (int roles = 0; roles < 27; roles++)
        for (int others = 0; others < 64; others++) {
            uint8_t role[2][SBP_MAX_AXES] = {{0}};
            for (int axis = 0, rest = roles; axis < 3; axis++, rest /= 3) {
                role[0][axis] = (uint8_t)(rest % 3 == 0 ? 0 : rest % 3 == 1 ? head : query);
                role[1][axis] = (uint8_t)(rest % 3 == 0 ? 0 : height);
            }
            for (int c = 0; c < 2; c++) {
                attention.split[c] = conv.split[c] = (sbp_axes)(others >> (3 * c) & 7);
                for (int axis = 0; axis < 3; axis++) {
                    if (role[0][axis] == head || (role[0][axis] == query && c == 0))
                        attention.split[c] |= (sbp_axes)1 << axis;
                    if (role[1][axis] == height)
                        conv.split[c] |= (sbp_axes)1 << axis;
                }
            }
            const bool met = keys_are_there(&attention, role[0], head, query);
            const bool runs = rows_are_runs(&conv, role[1], height);
            assert_int_equal(sbp_strategy_misplaced(&attention.graph, &attention.mesh, 0, role[0],
                                                    attention.split) == 0,
                             met);
            assert_int_equal(
                sbp_strategy_misplaced(&conv.graph, &conv.mesh, 0, role[1], conv.split) == 0, runs);
            seen[0][met]++;
            seen[1][runs]++;
        }
    for (int i = 0; i < 4; i++)
        assert_in_range(seen[i / 2][i % 2], 100, 27 * 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_does_not_divide),
        cmocka_unit_test(test_product_over_the_plan),
        cmocka_unit_test(test_rests),
        cmocka_unit_test(test_mirrored),
        cmocka_unit_test(test_free_input),
        cmocka_unit_test(test_tied_weight),
        cmocka_unit_test(test_waypoints),
        cmocka_unit_test(test_misplaced),
        cmocka_unit_test(test_random_strategies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

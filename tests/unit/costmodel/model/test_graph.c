/* Model graphs: parameters, shapes, dimension classes, sites, flops, and every refusal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "base/math/random.h"
#include "base/text.h"
#include "costmodel/model/graph.h"
#include "costmodel/model/op_cost.h"
#include "tests/support/model_reader.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(77001)

/* --- parameters --- */

/* From the published description, term by term: per block two norms, four linears with biases. */
static int64_t gpt_parameters(int64_t layers, int64_t hidden, int64_t ffn, int64_t vocab,
                              int64_t positions)
{
    const int64_t block = 2 * 2 * hidden + (hidden * 3 * hidden + 3 * hidden) +
                          (hidden * hidden + hidden) + (hidden * ffn + ffn) +
                          (ffn * hidden + hidden);
    return vocab * hidden + positions * hidden + layers * block + 2 * hidden;
}

/* --- the gpt architecture --- */

#define GPT(more)                                                                                  \
    "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 3, \"hidden\": 24, \"heads\": 4, "   \
    "\"sequence\": 10, \"vocab\": 50, \"global_batch\": 6" more "}"

static void test_gpt_shapes(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, GPT(", \"vocab_multiple\": 16, \"positions\": 12, \"ffn\": 100"));
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *embedding = op_named(graph, "embedding");
    const struct sbp_op_node *qkv = op_named(graph, "block1.qkv");
    const struct sbp_op_node *attention = op_named(graph, "block1.attention");
    const struct sbp_op_node *projection = op_named(graph, "block1.projection");
    const struct sbp_op_node *up = op_named(graph, "block2.up");
    const struct sbp_op_node *head = op_named(graph, "head");
    const struct sbp_op_node *loss = op_named(graph, "loss");
    assert_shape(shape_of(graph, embedding->weight[0]), 64, 1, 24, 1);
    assert_shape(shape_of(graph, embedding->weight[1]), 12, 1, 24, 1);
    assert_int_equal(shape_of(graph, embedding->weight[1])->dim_class[0], SBP_NO_CLASS);
    assert_shape(shape_of(graph, qkv->weight[0]), 24, 1, 4, 18);
    assert_shape(shape_of(graph, qkv->weight[1]), 1, 1, 4, 18);
    assert_shape(shape_of(graph, qkv->output), 6, 10, 4, 18);
    assert_shape(shape_of(graph, attention->output), 6, 10, 4, 6);
    assert_shape(shape_of(graph, projection->weight[0]), 4, 6, 24, 1);
    assert_shape(shape_of(graph, up->weight[0]), 24, 1, 100, 1);
    assert_shape(shape_of(graph, head->output), 6, 10, 64, 1);
    assert_int_equal(head->weight[0], embedding->weight[0]);
    assert_true(head->transposed_weight);
    assert_int_equal(head->weight_count, 1);
    assert_int_equal(loss->valid_vocabulary, 50);
    assert_int_equal(loss->output, -1);
    assert_int_equal(graph->loss, (int)(loss - graph->op));
    assert_int_equal(graph->input, -1);
    assert_int_equal(graph->tensor[head->weight[0]].valid_dim, 0);
    assert_int_equal(graph->tensor[head->weight[0]].valid_rows, 50);
    assert_int_equal(sbp_graph_tensor_parameters(&graph->tensor[head->weight[0]]), 50 * 24);
    assert_int_equal(graph->parameters, gpt_parameters(3, 24, 100, 50, 12));
    drop(&model);
}

/* Everything that the residual stream passes is one class; heads and ffn are a block's own. */
static void test_gpt_classes(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, GPT(", \"dropout\": 0.1"));
    const struct sbp_graph *graph = &model.graph;
    const int hidden = shape_of(graph, graph->op[0].output)->dim_class[SBP_DIM_FEATURE];
    assert_int_equal(graph->class_count, 4 + 2 * 3);
    assert_string_equal(graph->dim_class[hidden].name, "hidden");
    for (int i = 0; i < graph->op_count; i++) {
        const struct sbp_op_node *op = &graph->op[i];
        if (op->output < 0)
            continue;
        const struct sbp_shape *shape = shape_of(graph, op->output);
        assert_int_equal(shape->dim_class[0], 0);
        assert_int_equal(shape->dim_class[1], 1);
        assert_int_equal(shape->dim_class[3], SBP_NO_CLASS);
        if (shape->size[2] == 24)
            assert_int_equal(shape->dim_class[2], hidden);
        else
            assert_int_not_equal(shape->dim_class[2], hidden);
        assert_int_equal(graph->dim_class[shape->dim_class[2]].size, shape->size[2]);
    }
    const int heads0 = shape_of(graph, op_named(graph, "block0.qkv")->output)->dim_class[2];
    const int heads1 = shape_of(graph, op_named(graph, "block1.qkv")->output)->dim_class[2];
    assert_int_not_equal(heads0, heads1);
    assert_string_equal(graph->dim_class[heads0].name, "block0.attention.heads");
    drop(&model);
}

static void test_gpt_sites(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, GPT(", \"dropout\": 0.1, \"tied\": false, \"bias\": false"));
    const struct sbp_graph *graph = &model.graph;
    int counted = 0;
    for (int i = 0; i < graph->op_count; i++) {
        const struct sbp_op_node *op = &graph->op[i];
        const struct sbp_op_node *site = &graph->op[op->site];
        const bool block = strncmp(op->name, "block", 5) == 0;
        counted += op->repeats;
        assert_int_equal(op->kind, site->kind);
        assert_int_equal(op->repeats, op->site != i ? 0 : block ? 3 : 1);
        if (block) { /* block2.qkv stands on block0.qkv */
            assert_string_equal(strchr(op->name, '.'), strchr(site->name, '.'));
            assert_int_equal(site->name[5], '0');
        } else {
            assert_int_equal(op->site, i);
        }
    }
    assert_int_equal(counted, graph->op_count);
    assert_int_equal(graph->op_count, 3 * 12 + 5);
    assert_false(op_named(graph, "head")->transposed_weight);
    assert_int_equal(op_named(graph, "block0.up")->weight_count, 1);
    assert_true(op_named(graph, "block0.dropout1")->probability == 0.1);
    drop(&model);
}

static void test_initial_values(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, GPT(""));
    const struct sbp_tensor *tensor = model.graph.tensor;
    const struct sbp_op_node *norm = op_named(&model.graph, "block0.norm1");
    const struct sbp_op_node *up = op_named(&model.graph, "block0.up");
    assert_true(tensor[norm->weight[0]].init_mean == 1);
    assert_true(tensor[norm->weight[1]].init_mean == 0);
    assert_true(tensor[up->weight[0]].init_spread == 0.02);
    assert_true(tensor[up->weight[1]].init_spread == 0.02);
    drop(&model);
    must_open(&model, "tiny-mlp");
    tensor = model.graph.tensor;
    const struct sbp_op_node *fc1 = op_named(&model.graph, "fc1");
    assert_true(tensor[fc1->weight[0]].init_spread == 1 / sqrt(48.0));
    assert_true(tensor[fc1->weight[1]].init_spread == 0.02);
    drop(&model);
}

/* --- random layer lists against a slow, different reading --- */

#define MOST_LAYERS 14

/* The test's own view of a layer while it writes it. */
struct written {
    int64_t features, inner; /* of the output */
    bool read;
};

/* A partition by fixpoint: every (tensor, dimension) starts with a label of its own and takes the
 * smallest label of those that the operators say it equals. */
struct partition {
    int label[4 * (3 * MOST_LAYERS + 1)];
    bool changed;
};

static void same(struct partition *partition, int tensor_a, int dim_a, int tensor_b, int dim_b)
{
    int *a = &partition->label[4 * tensor_a + dim_a], *b = &partition->label[4 * tensor_b + dim_b];
    if (*a != *b)
        partition->changed = true;
    *a = *b = *a < *b ? *a : *b;
}

static void relate_linear(struct partition *partition, const struct sbp_op_node *op)
{
    const int w = op->weight[0];
    same(partition, op->input[0], 2, w, op->transposed_weight ? 2 : 0);
    same(partition, op->output, 2, w, op->transposed_weight ? 0 : 2);
    if (op->weight_count > 1)
        same(partition, op->output, 2, op->weight[1], 2);
}

static void relate(struct partition *partition, const struct sbp_op_node *op)
{
    if (op->output >= 0)
        for (int i = 0; i < op->input_count; i++)
            for (int dim = 0; dim < 2; dim++)
                same(partition, op->input[i], dim, op->output, dim);
    switch (op->kind) {
    case SBP_OP_LINEAR:
        relate_linear(partition, op);
        break;
    case SBP_OP_EMBEDDING:
    case SBP_OP_CROSS_ENTROPY:
        for (int i = 0; i < op->weight_count; i++)
            same(partition, op->weight[i], 2, op->output, 2);
        break;
    default:
        for (int i = 0; i < op->input_count; i++)
            same(partition, op->input[i], 2, op->output, 2);
        for (int i = 0; i < op->weight_count; i++)
            same(partition, op->input[0], 2, op->weight[i], 2);
    }
}

static void check_classes(const struct sbp_graph *graph)
{
    struct partition partition;
    const int count = 4 * graph->tensor_count;
    for (int i = 0; i < count; i++)
        partition.label[i] = i;
    do {
        partition.changed = false;
        for (int i = 0; i < graph->op_count; i++)
            relate(&partition, &graph->op[i]);
    } while (partition.changed);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const int a = graph->tensor[i / 4].shape.dim_class[i % 4];
            const int b = graph->tensor[j / 4].shape.dim_class[j % 4];
            if (a == SBP_NO_CLASS || b == SBP_NO_CLASS)
                continue;
            if ((a == b) != (partition.label[i] == partition.label[j]))
                fail_msg("%s dim %d and %s dim %d: classes %d and %d, expected %s",
                         graph->tensor[i / 4].name, i % 4, graph->tensor[j / 4].name, j % 4, a, b,
                         partition.label[i] == partition.label[j] ? "one" : "two");
        }
}

/* Writes layer i, which reads layer `from` (-1: the input); returns its parameters. */
static int64_t write_layer(struct sbp_text *text, struct sbp_random *random, struct written *layer,
                           int i, int from, int twin)
{
    const struct written source = layer[from];
    const int64_t features = source.features * source.inner;
    char name[24] = "input", other[24] = "input";
    if (from >= 0)
        (void)snprintf(name, sizeof name, "l%d", from);
    if (twin >= 0)
        (void)snprintf(other, sizeof other, "l%d", twin);
    layer[from].read = true;
    layer[i] = source;
    layer[i].read = false;
    sbp_text_add(text, "%s{\"name\": \"l%d\", \"inputs\": [\"%s\"", i == 0 ? "" : ", ", i, name);
    if (i > 0 && twin != from && layer[twin].features == source.features &&
        layer[twin].inner == source.inner) {
        layer[twin].read = true;
        sbp_text_add(text, ", \"%s\"], \"op\": \"add\"}", other);
        return 0;
    }
    if (source.inner % 3 == 0 && sbp_random_below(random, 2) == 0) {
        layer[i].inner = source.inner / 3;
        sbp_text_add(text, "], \"op\": \"attention\", \"heads\": %lld}",
                     (long long)source.features);
        return 0;
    }
    switch (i == 0 ? 3 : sbp_random_below(random, 6)) {
    case 0:
        sbp_text_add(text, "], \"op\": \"relu\"}");
        return 0;
    case 1:
        sbp_text_add(text, "], \"op\": \"layernorm\"}");
        return 2 * features;
    case 2:
        sbp_text_add(text, "], \"op\": \"dropout\", \"p\": 0.5}");
        return 0;
    default:
        break;
    }
    const bool bias = sbp_random_below(random, 2) == 0;
    layer[i].features = 2 + 2 * (int64_t)sbp_random_below(random, 2);
    layer[i].inner = sbp_random_below(random, 2) == 0 ? 1 : 6;
    const int64_t out = layer[i].features * layer[i].inner;
    sbp_text_add(text, "], \"op\": \"linear\", \"in\": %lld, \"out\": %lld, \"out_heads\": %lld%s}",
                 (long long)features, (long long)out, (long long)layer[i].features,
                 bias ? ", \"bias\": true" : "");
    return features * out + (bias ? out : 0);
}

static int unread(const struct written *layer, int count, int besides)
{
    for (int i = 0; i < count; i++)
        if (!layer[i].read && i != besides)
            return i;
    return -2;
}

static void check_random_model(struct sbp_random *random)
{
    struct written storage[MOST_LAYERS + 1], *layer = storage + 1;
    struct sbp_text text = {0};
    struct model model;
    int64_t parameters = 0;
    int count = 0;
    storage[0] = (struct written){4, 1, true}; /* the input */
    sbp_text_add(&text, "{\"name\": \"r\", \"global_batch\": 3, \"sequence\": 5, \"layers\": [");
    do { /* ends when all outputs but the last are read, which happens on chains */
        const int from = count == 0 ? -1 : count - 1;
        const int twin = count == 0 ? -1 : (int)sbp_random_below(random, (uint64_t)count + 1) - 1;
        parameters += write_layer(&text, random, layer, count, from, twin);
        count++;
    } while (count < MOST_LAYERS && sbp_random_below(random, 12) != 0);
    sbp_text_add(&text, "]}");
    assert_false(text.failed);
    assert_int_equal(unread(layer, count, count - 1), -2);
    must_read(&model, text.bytes);
    if (model.graph.parameters != parameters)
        fail_msg("%s: %lld parameters, expected %lld", text.bytes,
                 (long long)model.graph.parameters, (long long)parameters);
    assert_int_equal(model.graph.op_count, count);
    for (int i = 0; i < count; i++)
        assert_shape(shape_of(&model.graph, model.graph.op[i].output), 3, 5, layer[i].features,
                     layer[i].inner);
    check_classes(&model.graph);
    drop(&model);
    sbp_text_free(&text);
}

static void test_random_lists(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int trial = 0; trial < 500; trial++)
        check_random_model(&random);
}

static void test_classes_of_shipped_models(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny-gpt", "tiny-mlp", "autoddl-mlp", "autoddl-attention"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct model model;
        must_open(&model, names[i]);
        if (model.graph.tensor_count <= 3 * MOST_LAYERS + 1)
            check_classes(&model.graph);
        drop(&model);
    }
}

/* --- layer lists --- */

#define LIST(layers) "{\"name\": \"l\", \"global_batch\": 4, \"layers\": [" layers "]}"

static void test_list_defaults(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, LIST("{\"op\": \"linear\", \"in\": 8, \"out\": 6}, {\"op\": \"relu\"}, "
                           "{\"op\": \"linear\", \"name\": \"last\", \"out\": 2}"));
    const struct sbp_graph *graph = &model.graph;
    int ops[4] = {-1, -1, -1, -1};
    assert_string_equal(graph->op[0].name, "linear0");
    assert_string_equal(graph->op[1].name, "relu1");
    assert_string_equal(graph->tensor[graph->op[2].weight[0]].name, "last.weight");
    assert_int_equal(graph->sequence, 1);
    assert_int_equal(graph->loss, -1);
    assert_false(graph->input_split);
    assert_shape(shape_of(graph, graph->input), 4, 1, 8, 1);
    assert_int_equal(graph->op[0].input[0], graph->input);
    assert_int_equal(graph->op[0].weight_count, 1);
    assert_int_equal(graph->tensor[graph->op[1].output].producer, 1);
    assert_int_equal(graph->tensor[graph->input].producer, -1);
    assert_int_equal(sbp_graph_consumers(graph, graph->op[0].output, ops, 4), 1);
    assert_int_equal(ops[0], 1);
    assert_int_equal(sbp_graph_consumers(graph, graph->op[2].output, NULL, 0), 0);
    assert_int_equal(graph->training.update.optimizer, SBP_ADAM);
    assert_true(graph->training.update.beta2 == 0.999);
    assert_true(graph->training.clip_norm == 0);
    assert_int_equal(graph->precision.param, SBP_FP32);
    assert_false(graph->precision.has_master);
    drop(&model);
}

static void test_tied_list(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, "{\"name\": \"t\", \"global_batch\": 2, \"sequence\": 3, \"attention\": "
                      "\"flash\", \"layers\": [{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": "
                      "10, \"hidden\": 4, \"positions\": 3}, {\"op\": \"linear\", \"name\": \"h\", "
                      "\"tied\": \"e\", \"bias\": true}, {\"op\": \"cross_entropy\"}]}");
    const struct sbp_graph *graph = &model.graph;
    const int table = graph->op[0].weight[0];
    int ops[2];
    assert_int_equal(graph->op[1].weight[0], table);
    assert_int_equal(sbp_graph_consumers(graph, table, ops, 2), 2);
    assert_int_equal(ops[0], 0);
    assert_int_equal(ops[1], 1);
    assert_int_equal(graph->parameters, 10 * 4 + 3 * 4 + 10);
    assert_int_equal(graph->op[2].valid_vocabulary, 10);
    check_classes(graph);
    drop(&model);
}

static void test_training_keys(void **state)
{
    (void)state;
    struct model model;
    must_read(
        &model,
        "{\"name\": \"t\", \"global_batch\": 2, \"clip_norm\": 0.5, \"precision\": \"mixed\", "
        "\"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.25, \"momentum\": 0.5}, "
        "\"input\": \"split\", \"features\": 6, \"layers\": [{\"op\": \"layernorm\"}, "
        "{\"op\": \"linear\", \"in\": 6, \"out\": 6}]}");
    const struct sbp_graph *graph = &model.graph;
    assert_true(graph->input_split);
    assert_true(graph->training.clip_norm == 0.5);
    assert_int_equal(graph->training.update.optimizer, SBP_SGD);
    assert_true(graph->training.update.learning_rate == 0.25);
    assert_true(graph->training.update.momentum == 0.5);
    assert_true(graph->training.update.gradient_scale == 1);
    assert_int_equal(sbp_graph_training_moments(&graph->training), 1);
    assert_true(graph->precision.has_master);
    assert_int_equal(graph->precision.activation, SBP_BF16);
    drop(&model);
    must_read(&model,
              "{\"name\": \"t\", \"global_batch\": 2, \"optimizer\": \"adamw\", "
              "\"precision\": {\"param\": \"fp16\", \"master\": \"fp32\", \"grad\": \"fp32\"},"
              " \"layers\": [{\"op\": \"linear\", \"in\": 6, \"out\": 6}]}");
    assert_int_equal(model.graph.training.update.optimizer, SBP_ADAMW);
    assert_true(model.graph.training.update.weight_decay == 0.01);
    assert_int_equal(sbp_graph_training_moments(&model.graph.training), 2);
    assert_int_equal(model.graph.precision.activation, SBP_FP16);
    assert_int_equal(model.graph.precision.reduce, SBP_FP32);
    assert_int_equal(model.graph.precision.moments, SBP_FP32);
    assert_true(model.graph.precision.has_master);
    assert_false(model.graph.precision.converts_gradient);
    assert_int_equal(model.graph.precision.accumulate, SBP_FP32);
    assert_false(model.graph.precision.has_sum);
    assert_int_equal(model.graph.precision.loss, SBP_FP16);
    drop(&model);
    must_read(&model, "{\"name\": \"t\", \"global_batch\": 2, \"precision\": {\"param\": \"bf16\", "
                      "\"master\": \"fp32\", \"compute\": \"fp16\", "
                      "\"accumulate\": \"fp32\", \"loss\": \"fp32\"},"
                      " \"layers\": [{\"op\": \"linear\", \"in\": 6, \"out\": 6}]}");
    assert_int_equal(model.graph.precision.grad, SBP_BF16);
    assert_true(model.graph.precision.has_sum);
    assert_false(model.graph.precision.converts_gradient);
    assert_int_equal(model.graph.precision.loss, SBP_FP32);
    assert_int_equal(model.graph.precision.compute, SBP_FP16);
    drop(&model);
}

/* --- flops --- */

static void assert_flops(const char *what, double value, double expected)
{
    if (fabs(value - expected) > 1e-12 * expected)
        fail_msg("%s: %.17g flops, expected %.17g", what, value, expected);
}

/* PaLM, appendix B: 6 N + 12 L H Q T a token, N without the embeddings but with the head, T the keys
 * that a causal query sees in the mean. */
static void test_model_flops(void **state)
{
    (void)state;
    struct model model;
    must_open(&model, "gpt2-small");
    const double tokens = 8 * 1024, linears = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
    const double expected = tokens * (6 * linears + 12.0 * 12 * 768 * 1025 / 2);
    assert_flops("gpt2-small", sbp_op_model_flops(&model.graph), expected);
    drop(&model);
}

/* Counts the multiply-adds of small products one by one. */
static void test_operator_flops(void **state)
{
    (void)state;
    struct model model;
    double pairs = 0;
    must_read(&model, GPT(", \"attention\": \"flash\", \"vocab_multiple\": 16"));
    const struct sbp_graph *graph = &model.graph;
    const int attention = (int)(op_named(graph, "block0.attention") - graph->op);
    const int up = (int)(op_named(graph, "block0.up") - graph->op);
    const int head = (int)(op_named(graph, "head") - graph->op);
    for (int query = 0; query < 10; query++)
        for (int key = 0; key <= query; key++)
            pairs += 6 * 4; /* batch, heads */
    assert_flops("attention forward", sbp_op_forward_flops(graph, attention),
                 pairs * (2 * 2 * 6 + 6));
    assert_flops("attention backward", sbp_op_backward_flops(graph, attention),
                 pairs * (5 * 2 * 6 + 6));
    assert_flops("up forward", sbp_op_forward_flops(graph, up), 2.0 * 60 * 24 * 96);
    assert_flops("up backward", sbp_op_backward_flops(graph, up), 4.0 * 60 * 24 * 96);
    assert_flops("head forward", sbp_op_forward_flops(graph, head), 2.0 * 60 * 24 * 64);
    drop(&model);
}

/* A free input needs no gradient, one out of an earlier layer does. */
static void test_input_gradient_flops(void **state)
{
    (void)state;
    struct model model;
    must_open(&model, "autoddl-mlp");
    assert_flops("fc1", sbp_op_backward_flops(&model.graph, 0), 2.0 * 1024 * 32768 * 16384);
    assert_flops("fc2", sbp_op_backward_flops(&model.graph, 2), 4.0 * 1024 * 16384 * 4096);
    drop(&model);
    must_open(&model, "autoddl-attention");
    assert_flops("qkv", sbp_op_backward_flops(&model.graph, 0), 4.0 * 1024 * 1024 * 8192 * 24576);
    drop(&model);
}

/* --- refusals --- */

#define LINEAR "{\"op\": \"linear\", \"name\": \"fc\", \"in\": 8, \"out\": 6}"
#define EMBED  "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 10, \"hidden\": 6}"
#define HEAD   "{\"name\": \"m\", \"global_batch\": 4, "

static const struct refusal REFUSED[] = {
    /* the model */
    {"3", "m.json: expected an object"},
    {"{\"global_batch\": 4, \"layers\": [" LINEAR "]}", "m.json: key \"name\" is missing"},
    {"{\"name\": \"m\", \"layers\": [" LINEAR "]}", "m.json: key \"global_batch\" is missing"},
    {"{\"name\": \"m\", \"global_batch\": 0, \"layers\": [" LINEAR "]}", "m.json: global_batch: "},
    {"{\"name\": \"m\", \"global_batch\": 4611686018427387904, \"layers\": [" LINEAR "]}",
     "m.json: global_batch: "},
    {"{\"name\": \"m\", \"global_batch\": 9007199254740992, \"layers\": [{\"op\": \"linear\", "
     "\"in\": 1, \"out\": 1024}]}",
     "m.json: layers[0]: linear0 of 9007199254740992 x 1 x 1024 x 1 has more than 2^59 elements"},
    {HEAD "\"layers\": []}", "m.json: layers: has 0 layers, legal are 1 to 10000"},
    {HEAD "\"layers\": 5}", "m.json: layers: expected an array"},
    {HEAD "\"layer\": [" LINEAR "]}", "m.json: unknown key \"layer\", did you mean \"layers\"?"},
    {HEAD "\"precision\": \"fp31\", \"layers\": [" LINEAR "]}", "m.json: precision: "},
    {HEAD "\"precision\": {\"parm\": \"fp32\"}, \"layers\": [" LINEAR "]}",
     "m.json: precision: unknown key \"parm\", did you mean \"param\"?"},
    {HEAD "\"precision\": {\"param\": \"int8\"}, \"layers\": [" LINEAR "]}",
     "m.json: precision.param: "},
    {HEAD "\"attention\": \"fast\", \"layers\": [" LINEAR "]}", "m.json: attention: "},
    {HEAD "\"optimizer\": \"adan\", \"layers\": [" LINEAR "]}", "m.json: optimizer: "},
    {HEAD "\"optimizer\": {\"learning_rate\": 1}, \"layers\": [" LINEAR "]}",
     "m.json: optimizer: key \"name\" is missing"},
    {HEAD "\"optimizer\": {\"name\": \"adam\", \"momentum\": 0.9}, \"layers\": [" LINEAR "]}",
     "m.json: optimizer: unknown key \"momentum\""},
    {HEAD "\"optimizer\": {\"name\": \"adam\", \"beta1\": 1}, \"layers\": [" LINEAR "]}",
     "m.json: optimizer.beta1: must be at least 0 and less than 1"},
    {HEAD "\"clip_norm\": -1, \"layers\": [" LINEAR "]}", "m.json: clip_norm: "},
    {HEAD "\"input\": \"fre\", \"layers\": [" LINEAR "]}", "m.json: input: "},
    {HEAD "\"input\": \"split\", \"layers\": [" EMBED "]}",
     "m.json: input: this model's input is token ids (an embedding)"},
    {HEAD "\"layers\": [{\"op\": \"relu\"}]}",
     "m.json: layers[0]: how many features the model's input has is not said"},
    {HEAD "\"layers\": [{\"op\": \"conv2d\", \"out\": 4, \"kernel\": 3}]}",
     "m.json: layers[0]: conv2d reads images here: needs the model's \"input\": {\"height\""},
    /* what the first layer reads instead of the input is said, not that the input is unknown */
    {HEAD "\"layers\": [{\"op\": \"linear\", \"out\": 6, \"inputs\": [\"later\"]}, {\"op\": "
          "\"relu\", \"name\": \"later\"}]}",
     "m.json: layers[0].inputs[0]: \"later\" stands later: a layer reads earlier ones"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"out\": 6, \"inputs\": []}]}",
     "m.json: layers[0].inputs: names 0 inputs, linear has 1"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"out\": 6, \"inputs\": {}}]}",
     "m.json: layers[0].inputs: expected an array, found an object"},
    /* layers */
    {HEAD "\"layers\": [{\"op\": \"linar\", \"in\": 8, \"out\": 6}]}", "m.json: layers[0].op: "},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"linar\"}]}", "m.json: layers[1].op: "},
    {HEAD "\"layers\": [" LINEAR ", {\"out\": 3}]}", "m.json: layers[1]: key \"op\" is missing"},
    {HEAD "\"layers\": [" LINEAR ", 7]}", "m.json: layers[1]: expected an object"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 8, \"out\": 6, \"biass\": true}]}",
     "m.json: layers[0]: unknown key \"biass\", did you mean \"bias\"?"},
    {HEAD "\"layers\": [" LINEAR ", " LINEAR "]}",
     "m.json: layers[1].name: \"fc\" is the name of layers[0] already"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"name\": \"relu1\", \"in\": 8, \"out\": 6}, "
          "{\"op\": \"relu\"}]}",
     "m.json: layers[1]: \"relu1\" is the name of layers[0] already"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"name\": \"input\", \"in\": 8, \"out\": 6}]}",
     "m.json: layers[0].name: \"input\" is the name of the model's input"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"relu\", \"inputs\": [\"fd\"]}]}",
     "m.json: layers[1].inputs[0]: no earlier layer is called \"fd\", did you mean \"fc\"?"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"relu\", \"name\": \"r\", \"inputs\": [\"r\"]}]}",
     "m.json: layers[1].inputs[0]: \"r\" is this layer itself"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"relu\", \"inputs\": [\"last\"]}, {\"op\": \"relu\", "
          "\"name\": \"last\"}]}",
     "m.json: layers[1].inputs[0]: \"last\" stands later: a layer reads earlier ones"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"relu\", \"inputs\": [\"fc\", \"fc\"]}]}",
     "m.json: layers[1].inputs: names 2 inputs, relu has 1"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"relu\", \"inputs\": [3]}]}",
     "m.json: layers[1].inputs[0]: expected a string"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"add\"}]}",
     "m.json: layers[1]: add needs \"inputs\": the names of 2 layers"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"add\", \"inputs\": [\"fc\", \"fc\"]}]}",
     "m.json: layers[1].inputs: adds \"fc\" to itself"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"add\", \"inputs\": [\"fc\", \"input\"]}]}",
     "m.json: layers[1].inputs: \"fc\" has 6 x 1 features, \"input\" has 8 x 1"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"relu\", \"inputs\": [\"input\"]}]}",
     "m.json: layers[0]: no layer reads the output of \"fc\""},
    /* linear */
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 8}]}",
     "m.json: layers[0]: key \"out\" is missing"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": -8, \"out\": 6}]}", "m.json: layers[0].in: "},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 8, \"out\": 0}]}", "m.json: layers[0].out: "},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"linear\", \"in\": 8, \"out\": 6}]}",
     "m.json: layers[1].in: 8, but its input \"fc\" has 6 features"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 8, \"out\": 6, \"out_heads\": 4}]}",
     "m.json: layers[0].out_heads: 4 heads do not divide the 6 outputs"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 9007199254740992, \"out\": "
          "9007199254740992}]}",
     "m.json: layers[0]: linear0.weight of 9007199254740992 x 1 x 9007199254740992 x 1 has more "
     "than 2^59 elements"},
    /* embedding, head, loss */
    {HEAD "\"layers\": [{\"op\": \"embedding\", \"vocab\": 10, \"hidden\": 6, \"inputs\": []}]}",
     "m.json: layers[0]: unknown key \"inputs\""},
    {HEAD "\"layers\": [{\"op\": \"embedding\", \"vocab\": 2147483648, \"hidden\": 6}]}",
     "m.json: layers[0].vocab: "},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 1, \"out\": 2147483648}, "
          "{\"op\": \"cross_entropy\"}]}",
     "m.json: layers[1]: logits of 2147483648 features: labels are 32-bit"},
    {HEAD "\"sequence\": 4, \"layers\": [{\"op\": \"embedding\", \"vocab\": 10, \"hidden\": 6, "
          "\"positions\": 3}]}",
     "m.json: layers[0].positions: 3 positions are fewer than the sequence's 4"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"relu\", \"inputs\": [\"input\"]}]}",
     "m.json: layers[1].inputs[0]: the model's input is token ids or images, which only embeddings "
     "read"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"linear\", \"tied\": \"f\"}]}",
     "m.json: layers[1].tied: \"f\" is no embedding of this model"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"linear\", \"tied\": \"e\", \"out\": 10}]}",
     "m.json: layers[1].tied: a tied linear takes its outputs from the embedding"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"linear\", \"out\": 7}, {\"op\": \"linear\", "
          "\"tied\": \"e\"}]}",
     "m.json: layers[2]: its input has 7 x 1 features, the table's rows have 6"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"linear\", \"tied\": \"e\"}, {\"op\": \"linear\", "
          "\"out\": 6}, {\"op\": \"linear\", \"tied\": \"e\"}]}",
     "m.json: layers[3].tied: \"e\" is tied to another linear already"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"cross_entropy\"}, {\"op\": \"relu\", \"inputs\": "
          "[\"fc\"]}]}",
     "m.json: layers[2]: stands after the loss, which must be the last layer"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"cross_entropy\"}, {\"op\": \"cross_entropy\"}]}",
     "m.json: layers[2]: stands after the loss, which must be the last layer"},
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 8, \"out\": 6, \"out_heads\": 2}, {\"op\": "
          "\"cross_entropy\"}]}",
     "m.json: layers[1]: logits of 2 heads x 3: a loss needs unpacked features"},
    /* the other operators */
    {HEAD "\"layers\": [{\"op\": \"linear\", \"in\": 8, \"out\": 12, \"out_heads\": 2}, {\"op\": "
          "\"attention\", \"heads\": 4}]}",
     "m.json: layers[1].heads: 4 heads need a packed input of 4 x (3 x head size) features, this "
     "one has 2 x 6"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"attention\", \"heads\": 6}]}",
     "m.json: layers[1].heads: 6 heads need a packed input"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"attention\"}]}",
     "m.json: layers[1]: key \"heads\" is missing"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"dropout\", \"p\": 1}]}",
     "m.json: layers[1].p: must be at least 0 and less than 1"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"dropout\"}]}",
     "m.json: layers[1]: key \"p\" is missing"},
    {HEAD "\"layers\": [" LINEAR ", {\"op\": \"layernorm\", \"epsilon\": 0}]}",
     "m.json: layers[1].epsilon: "},
    /* gpt */
    {HEAD "\"architecture\": \"brt\", \"layers\": 2}", "m.json: architecture: "},
    {HEAD "\"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 8, \"heads\": 2, \"vocab\": 9}",
     "m.json: key \"sequence\" is missing"},
    {HEAD "\"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 8, \"sequence\": 4}",
     "m.json: key \"heads\" is missing"},
    {HEAD "\"architecture\": \"gpt\", \"layers\": [], \"hidden\": 8, \"sequence\": 4}",
     "m.json: layers: expected a whole number, found an array"},
    {HEAD "\"architecture\": \"gpt\", \"layers\": 1001, \"sequence\": 4}", "m.json: layers: "},
    {HEAD "\"architecture\": \"gpt\", \"hiden\": 8}",
     "m.json: unknown key \"hiden\", did you mean \"hidden\"?"},
    {HEAD "\"architecture\": \"gpt\", \"layers\": 1, \"hidden\": 1, \"heads\": 1, \"vocab\": 1, "
          "\"sequence\": 2147483648}",
     "m.json: sequence: 2147483648 is out of range"},
    {GPT(", \"positions\": 9"), "m.json: positions: 9 positions are fewer than the sequence's 10"},
    {GPT(", \"dropout\": 1"), "m.json: dropout: must be at least 0 and less than 1"},
    {GPT(", \"ffn\": 9007199254740992"), "m.json: has more than 2^59 parameters"},
    {HEAD "\"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 8, \"heads\": 3, \"sequence\": 4, "
          "\"vocab\": 9}",
     "m.json: heads: 3 heads do not divide the hidden size 8"},
};

static void test_refusals(void **state)
{
    (void)state;
    must_refuse_all(REFUSED, sizeof REFUSED / sizeof *REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt_shapes),     cmocka_unit_test(test_gpt_classes),
        cmocka_unit_test(test_gpt_sites),      cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_random_lists),   cmocka_unit_test(test_classes_of_shipped_models),
        cmocka_unit_test(test_list_defaults),  cmocka_unit_test(test_tied_list),
        cmocka_unit_test(test_training_keys),  cmocka_unit_test(test_model_flops),
        cmocka_unit_test(test_operator_flops), cmocka_unit_test(test_input_gradient_flops),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The layers of a list beyond a GPT's: shapes, parameters, dimension classes, what a custom layer
 * says, and every refusal. Expected sizes are worked out by hand beside each model.
 */
#include "costmodel/model/op_cost.h"
#include "tests/support/searched_roles.h"
#include "tests/support/model_reader.h"

#define HEAD "{\"name\": \"m\", \"global_batch\": 4, "

static int class_of(const struct sbp_graph *graph, int tensor, int dim)
{
    return shape_of(graph, tensor)->dim_class[dim];
}

static const char *class_name(const struct sbp_graph *graph, int tensor, int dim)
{
    const int dim_class = class_of(graph, tensor, dim);
    return dim_class == SBP_NO_CLASS ? "" : graph->dim_class[dim_class].name;
}

/* --- attention and feed-forward of a Llama --- */

/* hidden 24, 6 query heads of 4, 2 key heads, ffn 10. */
#define GROUPED                                                                                    \
    HEAD "\"sequence\": 5, \"attention\": \"flash\", \"layers\": ["                                \
         "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 9, \"hidden\": 24},"                 \
         "{\"op\": \"rmsnorm\", \"name\": \"n\"},"                                                 \
         "{\"op\": \"linear\", \"name\": \"q\", \"out\": 24, \"out_heads\": 6},"                   \
         "{\"op\": \"head_norm\", \"name\": \"qn\"},"                                              \
         "{\"op\": \"rotary\", \"name\": \"qr\"},"                                                 \
         "{\"op\": \"linear\", \"name\": \"kv\", \"inputs\": [\"n\"], \"out\": 16, "               \
         "\"out_heads\": 2},"                                                                      \
         "{\"op\": \"head_norm\", \"name\": \"kn\", \"size\": 4},"                                 \
         "{\"op\": \"rotary\", \"name\": \"kr\"},"                                                 \
         "{\"op\": \"grouped_attention\", \"name\": \"a\", \"inputs\": [\"qr\", \"kr\"], "         \
         "\"heads\": 6, \"kv_heads\": 2, \"head_dim\": 4, \"context\": \"ring\", "                 \
         "\"dropout\": 0.25, \"window\": 3},"                                                      \
         "{\"op\": \"linear\", \"name\": \"o\", \"out\": 24},"                                     \
         "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"e\", \"o\"]},"                         \
         "{\"op\": \"linear\", \"name\": \"gu\", \"out\": 20, \"out_heads\": 10},"                 \
         "{\"op\": \"swiglu\", \"name\": \"g\"},"                                                  \
         "{\"op\": \"linear\", \"name\": \"d\", \"out\": 24}]}"

static void test_grouped(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, GROUPED);
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *a = op_named(graph, "a"), *g = op_named(graph, "g");
    assert_shape(shape_of(graph, op_named(graph, "qr")->output), 4, 5, 6, 4);
    assert_shape(shape_of(graph, op_named(graph, "kr")->output), 4, 5, 2, 8);
    assert_shape(shape_of(graph, op_named(graph, "kn")->weight[0]), 1, 1, 1, 4);
    assert_shape(shape_of(graph, a->output), 4, 5, 6, 4);
    assert_shape(shape_of(graph, g->input[0]), 4, 5, 10, 2);
    assert_shape(shape_of(graph, g->output), 4, 5, 10, 1);
    assert_true(a->attention.causal && a->attention.ring);
    assert_true(a->attention.dropout == 0.25);
    assert_int_equal(a->attention.qk_size, 4);
    assert_int_equal(a->attention.value_size, 4);
    assert_int_equal(graph->parameters,
                     9 * 24 + 24 + 24 * 24 + 4 + 24 * 16 + 4 + 24 * 24 + 24 * 20 + 10 * 24);
    assert_int_equal(a->attention.window, 3);
    assert_true(a->attention.windowed == 1);
    /* Queries' and keys' heads are two classes, each of its projection too; features merge. */
    assert_string_equal(class_name(graph, a->input[0], 2), "a.heads");
    assert_string_equal(class_name(graph, a->input[1], 2), "a.kv_heads");
    assert_int_equal(class_of(graph, op_named(graph, "q")->weight[0], 2),
                     class_of(graph, op_named(graph, "o")->weight[0], 0));
    assert_int_equal(class_of(graph, op_named(graph, "d")->weight[0], 0),
                     class_of(graph, op_named(graph, "gu")->weight[0], 2));
    assert_int_equal(class_of(graph, op_named(graph, "e")->output, 2),
                     class_of(graph, op_named(graph, "o")->output, 2));
    assert_int_equal(class_of(graph, op_named(graph, "kn")->weight[0], 2), SBP_NO_CLASS);
    drop(&model);
}

/* DeepSeek's: 3 heads, nope 4, rope 2, value 6; ranks 7 and 5. */
static void test_latent(void **state)
{
    (void)state;
    struct model model;
    must_read(&model,
              HEAD "\"sequence\": 5, \"layers\": ["
                   "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 9, \"hidden\": 8},"
                   "{\"op\": \"linear\", \"name\": \"qa\", \"out\": 7},"
                   "{\"op\": \"linear\", \"name\": \"qb\", \"out\": 18, \"out_heads\": 3},"
                   "{\"op\": \"linear\", \"name\": \"kva\", \"inputs\": [\"e\"], \"out\": 5},"
                   "{\"op\": \"linear\", \"name\": \"kvb\", \"out\": 30, \"out_heads\": 3},"
                   "{\"op\": \"linear\", \"name\": \"kr\", \"inputs\": [\"e\"], \"out\": 2},"
                   "{\"op\": \"latent_attention\", \"name\": \"a\", \"inputs\": [\"qb\", \"kvb\", "
                   "\"kr\"], \"heads\": 3, \"nope\": 4, \"rope\": 2, \"value\": 6},"
                   "{\"op\": \"linear\", \"name\": \"o\", \"out\": 8}]}");
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *a = op_named(graph, "a");
    assert_shape(shape_of(graph, a->output), 4, 5, 3, 6);
    assert_int_equal(a->attention.qk_size, 6);
    assert_int_equal(a->attention.value_size, 6);
    assert_int_equal(class_of(graph, a->input[0], 2), class_of(graph, a->input[1], 2));
    assert_int_not_equal(class_of(graph, a->input[0], 2), class_of(graph, a->input[2], 2));
    assert_int_equal(graph->parameters, 9 * 8 + 8 * 7 + 7 * 18 + 8 * 5 + 5 * 30 + 8 * 2 + 18 * 8);
    drop(&model);
}

static void test_moe(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, HEAD "\"sequence\": 5, \"layers\": ["
                           "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 9, \"hidden\": 8},"
                           "{\"op\": \"moe\", \"name\": \"x\", \"experts\": 6, \"top_k\": 2, "
                           "\"ffn\": 7, \"capacity\": 1.5, \"router_bias\": true},"
                           "{\"op\": \"moe\", \"name\": \"y\", \"experts\": 3, \"top_k\": 1, "
                           "\"ffn\": 5, \"gated\": false},"
                           "{\"op\": \"moe\", \"name\": \"z\", \"experts\": 3, \"top_k\": 1, "
                           "\"ffn\": 5, \"router_bias\": true, \"expert_bias\": true}]}");
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *x = op_named(graph, "x"), *y = op_named(graph, "y");
    assert_shape(shape_of(graph, x->weight[0]), 8, 1, 6, 1);
    assert_shape(shape_of(graph, x->weight[1]), 6, 8, 7, 2);
    assert_shape(shape_of(graph, x->weight[2]), 6, 7, 8, 1);
    assert_shape(shape_of(graph, x->weight[3]), 1, 1, 6, 1);
    assert_shape(shape_of(graph, y->weight[1]), 3, 8, 5, 1);
    assert_shape(shape_of(graph, y->output), 4, 5, 8, 1);
    assert_int_equal(y->weight_count, 3);
    assert_shape(shape_of(graph, op_named(graph, "z")->weight[3]), 3, 1, 1 + 2 * 5 + 8, 1);
    assert_int_equal(x->moe.top_k, 2);
    assert_true(x->moe.capacity == 1.5 && y->moe.capacity == 1);
    assert_int_equal(class_of(graph, x->weight[1], 0), class_of(graph, x->weight[2], 0));
    assert_int_equal(class_of(graph, x->weight[1], 2), class_of(graph, x->weight[2], 1));
    assert_int_not_equal(class_of(graph, x->weight[1], 0), class_of(graph, y->weight[1], 0));
    assert_int_equal(graph->parameters, 9 * 8 + (8 * 6 + 6 * 8 * 7 * 3 + 6) +
                                            (8 * 3 + 3 * 8 * 5 * 2) +
                                            (8 * 3 + 3 * 8 * 5 * 3 + 3 * (1 + 2 * 5 + 8)));
    drop(&model);
}

/* --- images --- */

/* 13 x 12 images: the convolution keeps them, pools make 6 x 6 and 3 x 2. */
static void test_images(void **state)
{
    (void)state;
    struct model model;
    must_read(&model,
              HEAD "\"input\": {\"height\": 13, \"width\": 12, \"channels\": 3}, \"layers\": ["
                   "{\"op\": \"conv2d\", \"name\": \"c\", \"out\": 8, \"kernel\": 3, "
                   "\"padding\": 1, \"bias\": true},"
                   "{\"op\": \"batchnorm\", \"name\": \"b\"},"
                   "{\"op\": \"maxpool\", \"name\": \"p\", \"kernel\": 2},"
                   "{\"op\": \"conv2d\", \"name\": \"d\", \"out\": 8, \"kernel\": [3, 1], "
                   "\"padding\": [1, 0]},"
                   "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"p\", \"d\"]},"
                   "{\"op\": \"avgpool\", \"name\": \"q\", \"kernel\": [2, 3], \"stride\": [2, "
                   "2]},"
                   "{\"op\": \"flatten\", \"name\": \"f\"},"
                   "{\"op\": \"linear\", \"name\": \"fc\", \"out\": 10}, "
                   "{\"op\": \"cross_entropy\"}]}");
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *c = op_named(graph, "c"), *p = op_named(graph, "p"),
                             *f = op_named(graph, "f");
    assert_shape(shape_of(graph, graph->input), 4, 13, 3, 12);
    assert_shape(shape_of(graph, c->weight[0]), 3, 9, 8, 1);
    assert_shape(shape_of(graph, c->weight[1]), 1, 1, 8, 1);
    assert_shape(shape_of(graph, c->output), 4, 13, 8, 12);
    assert_shape(shape_of(graph, op_named(graph, "b")->weight[1]), 1, 1, 8, 1);
    assert_shape(shape_of(graph, p->output), 4, 6, 8, 6);
    assert_shape(shape_of(graph, op_named(graph, "q")->output), 4, 3, 8, 2);
    assert_shape(shape_of(graph, f->output), 4, 1, 8, 6);
    assert_shape(shape_of(graph, op_named(graph, "fc")->weight[0]), 8, 6, 10, 1);
    assert_int_equal(p->window.kernel[1], 2);
    assert_int_equal(p->window.stride[0], 2);
    assert_string_equal(class_name(graph, graph->input, 1), "height");
    assert_string_equal(class_name(graph, graph->input, 2), "channels");
    assert_int_equal(class_of(graph, c->output, 1), class_of(graph, graph->input, 1));
    assert_int_not_equal(class_of(graph, p->output, 1), class_of(graph, c->output, 1));
    assert_int_equal(class_of(graph, c->output, 2), /* through norm, pool and sum */
                     class_of(graph, op_named(graph, "d")->output, 2));
    assert_int_equal(class_of(graph, f->output, 2), class_of(graph, c->output, 2));
    assert_int_equal(graph->parameters, (27 * 8 + 8) + 16 + 24 * 8 + 480);
    drop(&model);
}

/* Counts the windows of a convolution one by one: 2 flops a term. */
static void test_conv_flops(void **state)
{
    (void)state;
    struct model model;
    double flops = 0;
    int rows = 0, columns = 0;
    must_read(&model, HEAD "\"input\": {\"height\": 11, \"width\": 9, \"channels\": 3}, "
                           "\"layers\": [{\"op\": \"conv2d\", \"out\": 5, \"kernel\": [5, 2], "
                           "\"stride\": [3, 2], \"padding\": [2, 1]}]}");
    for (int y = -2; y + 5 <= 11 + 2; y += 3)
        rows++;
    for (int x = -1; x + 2 <= 9 + 1; x += 2)
        columns++;
    for (int i = 0; i < 4 * rows * columns * 5; i++)
        flops += 2 * 5 * 2 * 3;
    assert_shape(shape_of(&model.graph, model.graph.op[0].output), 4, rows, 5, columns);
    if (sbp_op_forward_flops(&model.graph, 0) != flops)
        fail_msg("%g flops, expected %g", sbp_op_forward_flops(&model.graph, 0), flops);
    drop(&model);
}

static void test_patches(void **state)
{
    (void)state;
    struct model model;
    must_read(&model, HEAD "\"input\": {\"height\": 8, \"width\": 12, \"channels\": 3}, "
                           "\"sequence\": 7, \"layers\": ["
                           "{\"op\": \"patch_embedding\", \"name\": \"e\", \"patch\": 4, "
                           "\"hidden\": 10}, {\"op\": \"first_token\", \"name\": \"t\"}, "
                           "{\"op\": \"tanh\"}, {\"op\": \"linear\", \"out\": 2}]}");
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *e = op_named(graph, "e");
    assert_int_equal(graph->input, -1);
    assert_shape(shape_of(graph, e->output), 4, 7, 10, 1);
    assert_string_equal(class_name(graph, e->output, 1), "sequence");
    assert_shape(shape_of(graph, e->weight[0]), 48, 1, 10, 1);
    assert_shape(shape_of(graph, e->weight[3]), 7, 1, 10, 1);
    assert_shape(shape_of(graph, op_named(graph, "t")->output), 4, 1, 10, 1);
    assert_int_equal(graph->parameters, 480 + 10 + 10 + 70 + 20);
    drop(&model);
}

/* --- several tables, features beside --- */

static void test_tables(void **state)
{
    (void)state;
    struct model model;
    must_read(&model,
              HEAD "\"sequence\": 6, \"input\": {\"features\": 3, \"sequence\": 1}, \"layers\": ["
                   "{\"op\": \"embedding\", \"name\": \"wide\", \"vocab\": 50, \"hidden\": 2},"
                   "{\"op\": \"avgpool\", \"name\": \"sum\", \"global\": true},"
                   "{\"op\": \"embedding\", \"name\": \"deep\", \"vocab\": 50, \"hidden\": 4, "
                   "\"types\": 2}, {\"op\": \"flatten\"},"
                   "{\"op\": \"linear\", \"name\": \"a\", \"out\": 2},"
                   "{\"op\": \"linear\", \"name\": \"b\", \"inputs\": [\"input\"], \"out\": 2},"
                   "{\"op\": \"add\", \"name\": \"c\", \"inputs\": [\"a\", \"b\"]},"
                   "{\"op\": \"add\", \"inputs\": [\"c\", \"sum\"]}]}");
    const struct sbp_graph *graph = &model.graph;
    const struct sbp_op_node *wide = op_named(graph, "wide"), *deep = op_named(graph, "deep");
    assert_shape(shape_of(graph, graph->input), 4, 1, 3, 1);
    assert_shape(shape_of(graph, op_named(graph, "sum")->output), 4, 1, 2, 1);
    assert_int_equal(op_named(graph, "sum")->window.kernel[0], 6);
    assert_shape(shape_of(graph, op_named(graph, "a")->weight[0]), 4, 6, 2, 1);
    assert_int_equal(deep->weight_count, 2);
    assert_shape(shape_of(graph, deep->weight[1]), 2, 1, 4, 1);
    assert_string_equal(class_name(graph, wide->weight[0], 0), "vocab");
    assert_string_equal(class_name(graph, deep->weight[0], 0), "deep.vocab");
    assert_int_equal(graph->parameters, 100 + 200 + 8 + 48 + 6);
    drop(&model);
}

static void test_summa(void **state)
{
    (void)state;
    struct model model;
    must_read(&model,
              HEAD "\"features\": 8, \"layers\": [{\"op\": \"summa_linear\", \"out\": 6}]}");
    assert_int_equal(model.graph.op[0].weight_count, 1);
    assert_shape(shape_of(&model.graph, model.graph.op[0].weight[0]), 8, 1, 6, 1);
    drop(&model);
}

static void must_be_alike(const struct sbp_graph *a, const struct sbp_graph *b)
{
    assert_int_equal(a->op_count, b->op_count);
    assert_int_equal(a->tensor_count, b->tensor_count);
    assert_int_equal(a->class_count, b->class_count);
    assert_int_equal(a->parameters, b->parameters);
    for (int op = 0; op < a->op_count; op++) {
        assert_int_equal(a->op[op].kind, b->op[op].kind);
        assert_ptr_equal(a->op[op].entry, b->op[op].entry);
        assert_int_equal(a->op[op].site, b->op[op].site);
        assert_memory_equal(a->op[op].input, b->op[op].input, sizeof a->op[op].input);
        assert_int_equal(a->op[op].weight_count, b->op[op].weight_count);
        assert_memory_equal(a->op[op].weight, b->op[op].weight, sizeof a->op[op].weight);
    }
    for (int t = 0; t < a->tensor_count; t++) {
        assert_string_equal(a->tensor[t].name, b->tensor[t].name);
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
            assert_int_equal(a->tensor[t].shape.size[dim], b->tensor[t].shape.size[dim]);
            assert_int_equal(a->tensor[t].shape.dim_class[dim], b->tensor[t].shape.dim_class[dim]);
        }
    }
}

/* A model whose linears are SUMMA's is the one that says so layer by layer; a tied head stays. */
#define GRID_LAYERS(linear)                                                                        \
    "\"layers\": [{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 9, \"hidden\": 8},"          \
    "{\"op\": \"" linear "\", \"name\": \"a\", \"out\": 24, \"out_heads\": 2, \"bias\": true},"    \
    "{\"op\": \"attention\", \"heads\": 2},"                                                       \
    "{\"op\": \"" linear "\", \"name\": \"b\", \"out\": 8},"                                       \
    "{\"op\": \"linear\", \"tied\": \"e\", \"bias\": true}]}"

static void test_linears_on_grid(void **state)
{
    (void)state;
    struct model said, by_hand, plain;
    must_read(&said, HEAD "\"sequence\": 4, \"linears\": \"summa\", " GRID_LAYERS("linear"));
    must_read(&by_hand, HEAD "\"sequence\": 4, " GRID_LAYERS("summa_linear"));
    must_read(&plain, HEAD "\"sequence\": 4, \"linears\": \"plain\", " GRID_LAYERS("linear"));
    must_be_alike(&said.graph, &by_hand.graph);
    assert_int_equal(said.graph.op[1].kind, SBP_OP_SUMMA_LINEAR);
    assert_int_equal(said.graph.op[1].weight_count, 2);
    assert_int_equal(said.graph.op[4].kind, SBP_OP_LINEAR);
    assert_int_equal(plain.graph.op[1].kind, SBP_OP_LINEAR);
    assert_int_equal(said.graph.parameters, plain.graph.parameters);
    drop(&said);
    drop(&by_hand);
    drop(&plain);
}

/* --- custom --- */

#define CUSTOM(more)                                                                               \
    HEAD                                                                                           \
        "\"features\": 8, \"sequence\": 4, \"layers\": [{\"op\": \"custom\", \"name\": \"u\"" more \
        "}]}"
#define WORK       ", \"flops\": {\"forward\": 80, \"input_gradient\": 60}"
#define BATCHES    ", \"roles\": [{\"name\": \"batch\", \"input\": \"S0\", \"output\": \"S0\"}]"
#define ROLE(text) ", \"roles\": [{\"name\": \"r\", " text "}]"

static void test_custom(void **state)
{
    (void)state;
    struct model model;
    must_read(&model,
              CUSTOM(", \"inputs\": [\"input\"], \"out\": 12, \"out_heads\": 6, "
                     "\"weights\": [[8, 6], [5]], \"roles\": ["
                     "{\"name\": \"batch\", \"input\": [\"S0\"], \"weight\": \"B\", \"output\": "
                     "\"S0\"}, {\"name\": \"row\", \"input\": \"S2\", \"weight\": [\"S0\", \"B\"], "
                     "\"gradient\": [\"S0\", \"B\"], \"output\": \"P\"}, {\"name\": \"norm\", "
                     "\"input\": \"S2\", \"weight\": \"S2\", \"output\": \"B\"}], "
                     "\"flops\": {\"forward\": 80, \"weight_gradient\": 40}, "
                     "\"bytes\": {\"input_gradient\": 7}, \"time_s\": {\"forward\": 0.5}, "
                     "\"saved_bytes\": 33, \"collectives\": [{\"pass\": \"forward\", \"role\": "
                     "\"norm\", \"kind\": \"all-reduce\", \"bytes\": 64, \"divided\": false}]"));
    const struct sbp_op_node *u = op_named(&model.graph, "u");
    const struct sbp_op_entry *entry = u->entry;
    assert_ptr_equal(entry, &u->custom->entry);
    assert_shape(shape_of(&model.graph, u->output), 4, 4, 6, 2);
    assert_int_equal(model.graph.parameters, 48 + 5);
    assert_int_equal(entry->role_count, 5);
    assert_string_equal(entry->role[3].name, "replicate");
    assert_string_equal(entry->role[4].name, "mirror");
    assert_true(entry->role[3].spare && entry->role[4].spare);
    assert_int_equal(searched_roles(entry), 3);
    assert_int_equal(entry->role[0].gradient[1].kind, SBP_PARTIAL); /* by duality */
    assert_int_equal(entry->role[1].gradient[1].kind, SBP_BROADCAST);
    assert_int_equal(entry->role[1].weight[0].kind, SBP_SPLIT);
    assert_int_equal(entry->role[1].weight[0].dim, 0);
    assert_int_equal(entry->role[1].output.kind, SBP_PARTIAL);
    assert_true(u->custom->flops[SBP_PASS_WEIGHT_GRADIENT] == 40);
    assert_true(u->custom->bytes[SBP_PASS_INPUT_GRADIENT] == 7);
    assert_true(u->custom->time_s[SBP_PASS_FORWARD] == 0.5);
    assert_true(u->custom->saved_bytes == 33);
    assert_int_equal(u->custom->collective_count, 1);
    assert_int_equal(u->custom->collective[0].role, 2);
    assert_int_equal(u->custom->collective[0].kind, SBP_ALL_REDUCE);
    assert_false(u->custom->collective[0].divided);
    drop(&model);
    must_read(&model, CUSTOM(", \"parameters\": 21" WORK ROLE(
                          "\"input\": \"S0\", \"weight\": \"B\", \"output\": \"S0\"")));
    assert_shape(shape_of(&model.graph, model.graph.op[0].weight[0]), 1, 1, 21, 1);
    assert_shape(shape_of(&model.graph, model.graph.op[0].output), 4, 4, 8, 1);
    drop(&model);
}

/* --- refusals --- */

#define EMBED  "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 10, \"hidden\": 6}"
#define IMAGES HEAD "\"input\": {\"height\": 6, \"width\": 5, \"channels\": 3}, \"layers\": "
#define QUERIES                                                                                    \
    "{\"op\": \"linear\", \"name\": \"q\", \"inputs\": [\"e\"], \"out\": 8, \"out_heads\": 4}, "   \
    "{\"op\": \"linear\", \"name\": \"k\", \"inputs\": [\"e\"], \"out\": 8, \"out_heads\": 2}"
/* Up to how many groups. */
#define GROUPS "{\"op\": \"moe\", \"experts\": 8, \"top_k\": 3, \"ffn\": 3, \"expert_groups\": "

static const struct refusal REFUSED[] = {
    /* the model's input */
    {HEAD "\"input\": {\"height\": 6, \"width\": 5}, \"layers\": [{\"op\": \"relu\"}]}",
     "m.json: input: key \"channels\" is missing"},
    {HEAD "\"input\": {\"height\": 6, \"features\": 5}, \"layers\": [{\"op\": \"relu\"}]}",
     "m.json: input: unknown key \"features\""},
    {HEAD "\"input\": {\"feature\": 6}, \"layers\": [{\"op\": \"relu\"}]}",
     "m.json: input: unknown key \"feature\", did you mean \"features\"?"},
    {HEAD "\"input\": {\"height\": 1048577, \"width\": 5, \"channels\": 3}, \"layers\": []}",
     "m.json: layers: has 0 layers"},
    {HEAD "\"input\": {\"height\": 1048577, \"width\": 5, \"channels\": 3}, \"layers\": [{\"op\": "
          "\"relu\"}]}",
     "m.json: input.height: "},
    {HEAD "\"input\": {\"features\": 6}, \"features\": 6, \"layers\": [{\"op\": \"relu\"}]}",
     "m.json: features: \"input\" says the model's features already"},
    {HEAD "\"features\": 3, \"layers\": [" EMBED "]}",
     "m.json: no layer reads \"input\", the model's features"},
    {HEAD "\"layers\": [{\"op\": \"patch_embedding\", \"patch\": 4, \"hidden\": 8}]}",
     "m.json: this model's input is images: needs \"input\": {\"height\", \"width\", "
     "\"channels\"}"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"patch_embedding\", \"patch\": 4, \"hidden\": 8}]}",
     "m.json: layers[1]: reads the model's images: needs the model's \"input\""},
    {IMAGES "[{\"op\": \"patch_embedding\", \"patch\": 4, \"hidden\": 8}]}",
     "m.json: layers[0].patch: patches of 4 do not divide images of 6 x 5"},
    /* images */
    {IMAGES "[{\"op\": \"conv2d\", \"kernel\": 3}]}", "m.json: layers[0]: key \"out\" is missing"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4}]}", "m.json: layers[0]: key \"kernel\" is missing"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4, \"kernel\": 7}]}",
     "m.json: layers[0].kernel: 7 on a height of 6 with padding 0, legal are 1 to 6"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 6]}]}",
     "m.json: layers[0].kernel: 6 on a width of 5 with padding 0, legal are 1 to 5"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 2, 1]}]}",
     "m.json: layers[0].kernel: has 3 sides, legal are one number or [height, width]"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 3}]}",
     "m.json: layers[0].padding: 3, but must be less than the kernel's 3"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"stride\": 0}]}",
     "m.json: layers[0].stride: "},
    {IMAGES "[{\"op\": \"maxpool\", \"global\": true, \"stride\": 2}]}",
     "m.json: layers[0].stride: a global pool covers its whole input: leave it away"},
    {IMAGES "[{\"op\": \"conv2d\", \"name\": \"a\", \"out\": 3, \"kernel\": 2}, {\"op\": \"add\", "
            "\"inputs\": [\"a\", \"input\"]}]}",
     "m.json: layers[1].inputs: \"a\" has 5 rows a sample, \"input\" has 6"},
    {IMAGES "[{\"op\": \"conv2d\", \"out\": 4, \"kernel\": 3}, {\"op\": \"cross_entropy\"}]}",
     "m.json: layers[1]: logits of 4 heads x 3: a loss needs unpacked features"},
    /* attention, feed-forward */
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"swiglu\"}]}",
     "m.json: layers[1]: swiglu needs an input of ffn x {gate, up}, this one has 6 x 1"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"rotary\"}]}",
     "m.json: layers[1]: rotary needs heads of an even size, this input has 6 x 1"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"linear\", \"name\": \"l\", \"out\": 8, "
          "\"out_heads\": 2}, {\"op\": \"rotary\", \"size\": 3}]}",
     "m.json: layers[2].size: 3 features of each head are turned in pairs, legal is an even "
     "number"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"linear\", \"name\": \"l\", \"out\": 8, "
          "\"out_heads\": 4}, {\"op\": \"rotary\", \"name\": \"r\"}, {\"op\": \"add\", \"inputs\": "
          "[\"l\", \"r\"]}]}",
     "m.json: layers[2]: rotary works in place: no other layer may read \"l\""},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"head_norm\", \"size\": 2}]}",
     "m.json: layers[1].size: 2 features of heads that have 1, legal are 1 to 1"},
    {HEAD "\"layers\": [" EMBED
          ", {\"op\": \"linear\", \"name\": \"q\", \"out\": 8, \"out_heads\": 4}, {\"op\": "
          "\"linear\", \"name\": \"k\", \"out\": 16, \"out_heads\": 4}, {\"op\": "
          "\"grouped_attention\", \"inputs\": [\"q\", \"k\"], \"heads\": 4, \"head_dim\": 2, "
          "\"causal\": false, \"window\": 2}]}",
     "m.json: layers[3].window: attention over a window is causal"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"grouped_attention\", \"heads\": 2, \"head_dim\": "
          "4}]}",
     "m.json: layers[1]: grouped_attention needs \"inputs\": the names of 2 layers"},
    {HEAD "\"layers\": [" EMBED ", " QUERIES
          ", {\"op\": \"grouped_attention\", \"inputs\": [\"q\", "
          "\"k\"], \"heads\": 4, \"kv_heads\": 3, \"head_dim\": 2}]}",
     "m.json: layers[3].kv_heads: 3 key and value heads do not divide the 4 heads"},
    {HEAD "\"layers\": [" EMBED ", " QUERIES
          ", {\"op\": \"grouped_attention\", \"inputs\": [\"q\", "
          "\"k\"], \"heads\": 4, \"head_dim\": 2}]}",
     "m.json: layers[3].inputs: the keys and values need 4 x 4 features, \"k\" has 2 x 4"},
    {HEAD "\"layers\": [" EMBED ", " QUERIES
          ", {\"op\": \"grouped_attention\", \"inputs\": [\"k\", "
          "\"k\"], \"heads\": 2, \"kv_heads\": 2, \"head_dim\": 4}]}",
     "m.json: layers[3].inputs: the keys and values need 2 x 8 features"},
    {HEAD "\"layers\": [" EMBED ", " QUERIES
          ", {\"op\": \"grouped_attention\", \"inputs\": [\"q\", "
          "\"k\"], \"heads\": 4, \"kv_heads\": 2, \"head_dim\": 2, \"context\": \"rings\"}]}",
     "m.json: layers[3].context: "},
    {HEAD "\"layers\": [" EMBED ", " QUERIES
          ", {\"op\": \"grouped_attention\", \"inputs\": [\"q\", "
          "\"k\"], \"heads\": 4, \"kv_heads\": 2, \"head_dim\": 2, \"dropout\": 1}]}",
     "m.json: layers[3].dropout: must be at least 0 and less than 1"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"latent_attention\", \"inputs\": [\"e\", \"e\", "
          "\"e\"], \"heads\": 2, \"nope\": 2, \"rope\": 1}]}",
     "m.json: layers[1]: key \"value\" is missing"},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"moe\", \"experts\": 4, \"top_k\": 5, \"ffn\": 3}]}",
     "m.json: layers[1].top_k: 5 of 4 experts for a token, legal are 1 to 4"},
    {HEAD "\"layers\": [" EMBED ", " GROUPS "3, \"nodes_per_token\": 1}]}",
     "m.json: layers[1].expert_groups: 3 groups do not divide 8 experts"},
    {HEAD "\"layers\": [" EMBED ", " GROUPS "2}]}",
     "m.json: layers[1].expert_groups: 2 groups need nodes_per_token: how many a token's experts "
     "are of, legal are 1 to 2"},
    {HEAD "\"layers\": [" EMBED ", " GROUPS "2, \"nodes_per_token\": 3}]}",
     "m.json: layers[1].expert_groups: 2 groups need nodes_per_token"},
    {HEAD "\"layers\": [" EMBED ", " GROUPS "4, \"nodes_per_token\": 1}]}",
     "m.json: layers[1].expert_groups: 2 experts in each of 1 groups are fewer than the 3 that a "
     "token takes"},
    {HEAD "\"layers\": [" EMBED ", " GROUPS "2, \"nodes_per_token\": 1, \"scoring\": \"tanh\"}]}",
     "m.json: layers[1].scoring: "},
    {HEAD "\"layers\": [" EMBED ", {\"op\": \"moe\", \"experts\": 4, \"top_k\": 2, \"ffn\": 3, "
          "\"capacity\": 0.9}]}",
     "m.json: layers[1].capacity: "},
    {HEAD "\"layers\": [" EMBED ", " QUERIES ", {\"op\": \"moe\", \"experts\": 4, \"top_k\": 2, "
          "\"ffn\": 3}]}",
     "m.json: layers[3]: 2 x 4 features: experts need unpacked ones"},
    /* the model's features come from a summa_linear's `in` as well: only the key is wrong */
    {HEAD "\"layers\": [{\"op\": \"summa_linear\", \"in\": 8, \"out\": 8, \"tied\": \"e\"}]}",
     "m.json: layers[0]: unknown key \"tied\""},
    {HEAD "\"linears\": \"grid\", \"layers\": [{\"op\": \"linear\", \"in\": 8, \"out\": 8}]}",
     "m.json: linears: "},
    /* custom */
    {HEAD "\"layers\": [{\"op\": \"linear\", \"name\": \"x\", \"in\": 8, \"out\": 8}, {\"op\": "
          "\"custom\", \"inputs\": [\"x\", \"x\"], \"roles\": []}]}",
     "m.json: layers[1].inputs: names \"x\" twice"},
    {CUSTOM(WORK), "m.json: layers[0]: key \"roles\" is missing"},
    {CUSTOM(BATCHES), "m.json: layers[0]: a custom layer needs \"flops\", \"bytes\" or \"time_s\""},
    {CUSTOM(WORK ", \"roles\": []"), "m.json: layers[0].roles: has 0 roles, legal are 1 to 5"},
    {CUSTOM(BATCHES ", \"flops\": {\"backward\": 1}"),
     "m.json: layers[0].flops: unknown key \"backward\""},
    {CUSTOM(BATCHES ", \"flops\": {\"weight_gradient\": 1}"),
     "m.json: layers[0].flops.weight_gradient: this layer has no weights, legal is 0"},
    {CUSTOM(WORK BATCHES ", \"inputs\": []"), "m.json: layers[0].inputs: names 0 inputs"},
    {CUSTOM(WORK BATCHES ", \"out\": 9, \"out_heads\": 2"),
     "m.json: layers[0].out_heads: 2 heads do not divide the 9 outputs"},
    {CUSTOM(WORK BATCHES ", \"parameters\": 9, \"weights\": [[2]]"),
     "m.json: layers[0].parameters: \"weights\" says the parameters already"},
    {CUSTOM(WORK BATCHES ", \"weights\": [[2, 3, 4]]"),
     "m.json: layers[0].weights[0]: has 3 sizes, legal are [out] and [in, out]"},
    {CUSTOM(WORK BATCHES ", \"parameters\": 9"),
     "m.json: layers[0].roles[0]: key \"weight\" is missing"},
    {CUSTOM(WORK ROLE("\"input\": \"S4\", \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].input: "},
    {CUSTOM(WORK ROLE("\"input\": [\"S0\", \"B\"], \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].input: has 2 states, the layer has 1 operands of that kind"},
    {CUSTOM(WORK ROLE("\"input\": \"S3\", \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].input: S3: dimension 3 of this operand cannot be split"},
    {CUSTOM(WORK ROLE("\"input\": \"P\", \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].input: P: a partial sum's output is P, unless"},
    {CUSTOM(WORK ROLE("\"input\": \"S2\", \"output\": \"B\"")),
     "m.json: layers[0].roles[0].output: B: of split operands every member has a part"},
    {CUSTOM(WORK ", \"parameters\": 8" ROLE("\"input\": \"S0\", \"weight\": \"P\", \"output\": "
                                            "\"S0\"")),
     "m.json: layers[0].roles[0].weight: a weight is held split or whole"},
    {CUSTOM(WORK ", \"parameters\": 8" ROLE("\"input\": \"S0\", \"weight\": \"S0\", \"output\": "
                                            "\"S0\"")),
     "m.json: layers[0].roles[0].weight: S0: dimension 0 of this operand cannot be split"},
    {CUSTOM(WORK ", \"parameters\": 8" ROLE("\"input\": \"S0\", \"weight\": \"S2\", \"gradient\": "
                                            "\"P\", \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].gradient: the gradient of a weight in S2 is in S2 too"},
    {CUSTOM(WORK ", \"parameters\": 8" ROLE("\"input\": \"S0\", \"weight\": \"B\", \"gradient\": "
                                            "\"S2\", \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].gradient: the gradient of a whole weight is P (or B), not split"},
    {CUSTOM(WORK ", \"parameters\": 8" ROLE("\"input\": \"S0\", \"weight\": \"B\", \"gradient\": "
                                            "\"B\", \"output\": \"S0\"")),
     "m.json: layers[0].roles[0].gradient: a gradient is whole on every member (B) only where"},
    {CUSTOM(WORK ", \"roles\": [{\"name\": \"replicate\", \"input\": \"B\", \"output\": \"B\"}]"),
     "m.json: layers[0].roles[0].name: \"replicate\" is every operator's spare role"},
    {CUSTOM(WORK ", \"roles\": [{\"name\": \"a\", \"input\": \"S0\", \"output\": \"S0\"}, "
                 "{\"name\": \"a\", \"input\": \"S0\", \"output\": \"S0\"}]"),
     "m.json: layers[0].roles[1].name: two roles are called \"a\""},
    {CUSTOM(WORK BATCHES ", \"collectives\": [{\"pass\": \"forward\", \"role\": \"b\", \"kind\": "
                         "\"all-reduce\", \"bytes\": 1}]"),
     "m.json: layers[0].collectives[0].role: \"b\" is no role of this layer"},
    {CUSTOM(WORK BATCHES ", \"collectives\": [{\"pass\": \"weight_gradient\", \"role\": \"batch\", "
                         "\"kind\": \"all-reduce\", \"bytes\": 1}]"),
     "m.json: layers[0].collectives[0].pass: this layer has no weights"},
    {CUSTOM(WORK BATCHES ", \"collectives\": [{\"pass\": \"forward\", \"role\": \"batch\", "
                         "\"kind\": \"local\", \"bytes\": 1}]"),
     "m.json: layers[0].collectives[0].kind: "},
};

static void test_refusals(void **state)
{
    (void)state;
    must_refuse_all(REFUSED, sizeof REFUSED / sizeof *REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouped),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_conv_flops),
        cmocka_unit_test(test_patches),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_summa),
        cmocka_unit_test(test_linears_on_grid),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

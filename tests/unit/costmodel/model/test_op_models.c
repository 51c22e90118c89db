/* Operations of whole models against what is published of them. */
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "costmodel/model/graph.h"
#include "costmodel/model/op_cost.h"
#include "tests/support/op_bench.h"
#include "tests/support/unit.h"

/* --- whole models --- */

/* Published counts form all S^2 scores of causal attention. */
static double model_flops(const char *text)
{
    struct cJSON *tree = NULL;
    struct sbp_json root;
    struct sbp_diag diag = {{0}};
    struct sbp_graph graph;
    if (sbp_json_parse(text, "m.json", &tree, &root, &diag) != SBP_OK ||
        sbp_graph_read(&root, &graph) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int op = 0; op < graph.op_count; op++)
        graph.op[op].attention.causal = false;
    const double flops = sbp_op_model_flops(&graph);
    sbp_graph_free(&graph);
    cJSON_Delete(tree);
    return flops;
}

/* Narayanan et al., 2021, section 5.1: a step with recomputation does 96 B s l h^2 (1 + s / 6h +
 * V / 16lh): four forward passes of the layers, three of the head, whose term is 6 B s h V. The
 * model's own flops are three of both. */
static void test_narayanan(void **state)
{
    (void)state;
    const struct {
        int layers, hidden, heads, sequence, vocab, batch;
    } rows[] = {{24, 2304, 24, 2048, 51200, 512},   /* 1.7 B */
                {96, 12288, 96, 2048, 51200, 1536}, /* 175 B */
                {128, 25600, 160, 2048, 51200, 3072}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        (void)snprintf(
            text, sizeof text,
            "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": %d, \"hidden\": %d, "
            "\"heads\": %d, \"sequence\": %d, \"vocab\": %d, \"global_batch\": %d}",
            rows[i].layers, rows[i].hidden, rows[i].heads, rows[i].sequence, rows[i].vocab,
            rows[i].batch);
        const double l = rows[i].layers, h = rows[i].hidden, s = rows[i].sequence;
        const double published =
            96.0 * rows[i].batch * s * l * h * h * (1 + s / (6 * h) + rows[i].vocab / (16 * l * h));
        const double again = 24.0 * rows[i].batch * s * l * h * h * (1 + s / (6 * h));
        must_equal("Narayanan et al.", model_flops(text) + again, published);
    }
}

/* --- published counts of whole models --- */

/* A model file that grows. */
struct text {
    char at[1 << 16];
    size_t length;
};

static void SBP_PRINTF(2, 3) say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(text->at + text->length, sizeof text->at - text->length, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && text->length + (size_t)length < sizeof text->at);
    text->length += (size_t)length;
}

/* Multiply-adds of one forward pass. */
static double forward_macs(const struct text *text)
{
    struct cJSON *tree = NULL;
    struct sbp_json root;
    struct sbp_diag diag = {{0}};
    struct sbp_graph graph;
    const struct sbp_factor whole = sbp_op_factor_one();
    double flops = 0;
    if (sbp_json_parse(text->at, "m.json", &tree, &root, &diag) != SBP_OK ||
        sbp_graph_read(&root, &graph) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int op = 0; op < graph.op_count; op++)
        flops += sbp_op_work(&graph, op, &whole, SBP_PASS_FORWARD).model_flops;
    sbp_graph_free(&graph);
    cJSON_Delete(tree);
    return flops / 2;
}

static void open_images(struct text *text, int sequence)
{
    text->length = 0;
    say(text,
        "{\"name\": \"m\", \"global_batch\": 1, \"sequence\": %d, \"input\": {\"height\": 224, "
        "\"width\": 224, \"channels\": 3}, \"layers\": [",
        sequence);
}

/* Simonyan and Zisserman, 2015, table 1, column B: 11.3 G multiply-adds (torchvision: 11.31). */
static void test_vgg13(void **state)
{
    (void)state;
    struct text text;
    open_images(&text, 1);
    const int channels[] = {64, 128, 256, 512, 512};
    for (int stage = 0; stage < 5; stage++) {
        for (int i = 0; i < 2; i++)
            say(&text,
                "{\"op\": \"conv2d\", \"out\": %d, \"kernel\": 3, \"padding\": 1, \"bias\": true},"
                "{\"op\": \"relu\"},",
                channels[stage]);
        say(&text, "{\"op\": \"maxpool\", \"kernel\": 2},");
    }
    say(&text, "{\"op\": \"flatten\"}, {\"op\": \"linear\", \"out\": 4096}, {\"op\": \"relu\"},"
               "{\"op\": \"linear\", \"out\": 4096}, {\"op\": \"relu\"},"
               "{\"op\": \"linear\", \"out\": 1000}]}");
    assert_true(fabs(forward_macs(&text) - 11.31e9) < 0.01e9);
}

static void say_conv(struct text *text, const char *name, const char *input, int out, int kernel,
                     int stride)
{
    say(text,
        "{\"op\": \"conv2d\", \"name\": \"%s\", \"inputs\": [\"%s\"], \"out\": %d, \"kernel\": %d, "
        "\"stride\": %d, \"padding\": %d},",
        name, input, out, kernel, stride, kernel / 2);
}

/* He et al., 2016, table 1, stride in the 3 x 3 convolution (torchvision): 4.09 G multiply-adds. */
static void test_resnet50(void **state)
{
    (void)state;
    const int blocks[] = {3, 4, 6, 3};
    struct text text;
    char in[16] = "pool", name[5][16];
    open_images(&text, 1);
    say_conv(&text, "stem", "input", 64, 7, 2);
    say(&text, "{\"op\": \"maxpool\", \"name\": \"pool\", \"kernel\": 3, \"stride\": 2, "
               "\"padding\": 1},");
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++) {
            const int width = 64 << stage, stride = stage > 0 && i == 0 ? 2 : 1;
            for (int j = 0; j < 5; j++)
                (void)snprintf(name[j], sizeof name[j], "b%d_%d_%d", stage, i, j);
            say_conv(&text, name[0], in, width, 1, 1);
            say_conv(&text, name[1], name[0], width, 3, stride);
            say_conv(&text, name[2], name[1], 4 * width, 1, 1);
            if (i == 0)
                say_conv(&text, name[3], in, 4 * width, 1, stride);
            say(&text, "{\"op\": \"add\", \"name\": \"%s\", \"inputs\": [\"%s\", \"%s\"]},",
                name[4], name[2], i == 0 ? name[3] : in);
            (void)snprintf(in, sizeof in, "%s", name[4]);
        }
    say(&text, "{\"op\": \"avgpool\", \"global\": true}, {\"op\": \"flatten\"},"
               "{\"op\": \"linear\", \"out\": 1000}]}");
    assert_true(fabs(forward_macs(&text) - 4.09e9) < 0.01e9);
}

/* Dosovitskiy et al., 2021: ViT-B/16 at 224 x 224; 17.58 G with attention's products (timm). */
static void test_vit(void **state)
{
    (void)state;
    struct text text;
    open_images(&text, 197);
    say(&text, "{\"op\": \"patch_embedding\", \"patch\": 16, \"hidden\": 768},");
    for (int block = 0; block < 12; block++)
        say(&text, "{\"op\": \"linear\", \"out\": 2304, \"out_heads\": 12},"
                   "{\"op\": \"attention\", \"heads\": 12, \"causal\": false},"
                   "{\"op\": \"linear\", \"out\": 768}, {\"op\": \"linear\", \"out\": 3072},"
                   "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"out\": 768},");
    say(&text, "{\"op\": \"first_token\"}, {\"op\": \"linear\", \"out\": 1000}]}");
    assert_true(fabs(forward_macs(&text) - 17.58e9) < 0.02e9);
}

/* Chowdhery et al., PaLM, 2022, appendix B: 6 N + 12 L H Q T flops a token, N the parameters of
 * products; with multi-query attention N is less and the second term is not. */
static void test_palm(void **state)
{
    (void)state;
    const double layers = 3, hidden = 256, heads = 8, size = 64, tokens = 4 * 128, vocab = 1000;
    struct text text = {.length = 0};
    say(&text, "{\"name\": \"m\", \"global_batch\": 4, \"sequence\": 128, \"layers\": ["
               "{\"op\": \"embedding\", \"name\": \"x0\", \"vocab\": 1000, \"hidden\": 256},");
    for (int i = 0; i < 3; i++)
        say(&text,
            "{\"op\": \"linear\", \"name\": \"q%d\", \"inputs\": [\"x%d\"], \"out\": 512, "
            "\"out_heads\": 8},"
            "{\"op\": \"linear\", \"name\": \"kv%d\", \"inputs\": [\"x%d\"], \"out\": 128, "
            "\"out_heads\": 1},"
            "{\"op\": \"grouped_attention\", \"inputs\": [\"q%d\", \"kv%d\"], \"heads\": 8, "
            "\"kv_heads\": 1, \"head_dim\": 64}, {\"op\": \"linear\", \"out\": 256},"
            "{\"op\": \"linear\", \"out\": 2048, \"out_heads\": 1024}, {\"op\": \"swiglu\"},"
            "{\"op\": \"linear\", \"name\": \"x%d\", \"out\": 256},",
            i, i, i, i, i, i, i + 1);
    say(&text, "{\"op\": \"linear\", \"tied\": \"x0\"}, {\"op\": \"cross_entropy\"}]}");
    const double weights =
        layers * (hidden * heads * size * 2 + hidden * 2 * size + hidden * 1024 * 3) +
        vocab * hidden;
    must_equal("PaLM", model_flops(text.at),
               tokens * (6 * weights + 12 * layers * heads * size * 128));
}

/* A grid computes what a plain linear does; rows of a padded vocabulary are no model flops. */
#define PADDED(linears)                                                                            \
    "{\"name\": \"padded\", \"architecture\": \"llama\", \"layers\": 1, \"hidden\": 8, "           \
    "\"heads\": 2, "                                                                               \
    "\"ffn\": 16, \"sequence\": 4, \"vocab\": 100, \"vocab_multiple\": 128, \"tied\": false, "     \
    "\"global_batch\": 2, \"linears\": \"" linears "\"}"

static void test_padded_grid(void **state)
{
    (void)state;
    must_equal("padded", model_flops(PADDED("summa")), model_flops(PADDED("plain")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padded_grid), cmocka_unit_test(test_narayanan),
        cmocka_unit_test(test_vgg13),       cmocka_unit_test(test_resnet50),
        cmocka_unit_test(test_vit),         cmocka_unit_test(test_palm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

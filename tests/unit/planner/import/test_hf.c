/* Import of Hugging Face configs: the shipped model file, notes, and every refusal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "costmodel/model/graph.h"
#include "planner/import/hf.h"
#include "tests/support/unit.h"

#define TINY                                                                                       \
    "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, "                    \
    "\"n_positions\": 32, \"vocab_size\": 300"

static const struct sbp_import_options SMALL = {.global_batch = 8, .sequence = 16};

static enum sbp_status import_text(const char *text, const struct sbp_import_options *options,
                                   struct cJSON **model, struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json root;
    *diag = (struct sbp_diag){{0}};
    *model = NULL;
    enum sbp_status status = sbp_json_parse(text, "hf.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_import_hf(&root, options, model, diag);
    cJSON_Delete(tree);
    return status;
}

static struct cJSON *must_import(const char *text)
{
    struct sbp_diag diag;
    struct cJSON *model;
    if (import_text(text, &SMALL, &model, &diag) != SBP_OK)
        fail_msg("%s was refused: %s", text, diag.text);
    return model;
}

static void must_refuse(const char *text, const struct sbp_import_options *options,
                        const char *expected)
{
    struct sbp_diag diag;
    struct cJSON *model;
    assert_int_equal(import_text(text, options, &model, &diag), SBP_E_INPUT);
    assert_null(model);
    if (strncmp(diag.text, expected, strlen(expected)) != 0)
        fail_msg("%s: said \"%s\", expected \"%s...\"", text, diag.text, expected);
}

static double number(const struct cJSON *model, const char *key)
{
    const struct cJSON *member = cJSON_GetObjectItemCaseSensitive(model, key);
    assert_true(cJSON_IsNumber(member));
    return member->valuedouble;
}

static void test_sizes(void **state)
{
    (void)state;
    struct cJSON *model = must_import("{" TINY "}");
    struct sbp_graph graph;
    struct sbp_diag diag = {{0}};
    struct sbp_json at;
    assert_true(number(model, "layers") == 2);
    assert_true(number(model, "hidden") == 64);
    assert_true(number(model, "heads") == 4);
    assert_true(number(model, "ffn") == 256);
    assert_true(number(model, "vocab") == 300);
    assert_true(number(model, "vocab_multiple") == 128);
    assert_true(number(model, "positions") == 32); /* the file's */
    assert_true(number(model, "sequence") == 16);  /* the options' */
    assert_true(number(model, "global_batch") == 8);
    assert_string_equal(cJSON_GetObjectItem(model, "name")->valuestring, "gpt2-2x64");
    sbp_json_at(model, "model", &diag, &at);
    assert_int_equal(sbp_graph_read(&at, &graph), SBP_OK);
    assert_int_equal(graph.op[0].weight_count, 2);
    assert_int_equal(graph.tensor[graph.op[0].weight[0]].shape.size[0], 384);
    sbp_graph_free(&graph);
    cJSON_Delete(model);
}

/* The first note names the source and the last what was assumed; `expected` is the one between, or
 * NULL: there is none. */
static void assert_note(const char *text, const char *expected)
{
    struct cJSON *model = must_import(text);
    const struct cJSON *notes = cJSON_GetObjectItem(model, "notes");
    const int count = expected == NULL ? 2 : 3;
    assert_int_equal(cJSON_GetArraySize(notes), count);
    assert_string_equal(cJSON_GetArrayItem(notes, 0)->valuestring,
                        "Hugging Face model_type gpt2, hf.json");
    if (expected != NULL)
        assert_string_equal(cJSON_GetArrayItem(notes, 1)->valuestring, expected);
    assert_string_equal(cJSON_GetArrayItem(notes, count - 1)->valuestring,
                        "assumed: precision fp32 (no torch_dtype), attention flash, vocabulary 300 "
                        "padded to 384, 8 sequences of 16 tokens a step");
    cJSON_Delete(model);
}

static void test_notes(void **state)
{
    (void)state;
    assert_note("{" TINY "}", NULL);
    assert_note("{" TINY ", \"embd_pdrop\": 0.25}", "embd_pdrop 0.25: taken as resid_pdrop, 0.1");
    assert_note("{" TINY ", \"activation_function\": \"gelu\"}",
                "activation gelu: its tanh form is used");
    assert_note("{" TINY ", \"architectures\": [\"GPT2LMHeadModel\"]}", NULL);
    assert_note("{" TINY ", \"architectures\": [\"GPT2ForSequenceClassification\"]}",
                "GPT2ForSequenceClassification: taken as a language model, with the head over its "
                "vocabulary");
}

/* The type of the weights decides, unless the options do; of a quantized file that names none, half
 * precision. */
static void test_precision(void **state)
{
    (void)state;
    static const struct {
        const char *more, *asked, *precision, *said;
    } rows[] = {
        {"", NULL, "fp32", "precision fp32 (no torch_dtype)"},
        {", \"torch_dtype\": \"bfloat16\"", NULL, "mixed", "mixed (torch_dtype bfloat16)"},
        {", \"dtype\": \"float16\"", NULL, "fp16", "fp16 (dtype float16)"},
        {", \"torch_dtype\": \"float32\"", NULL, "fp32", "fp32 (torch_dtype float32)"},
        {", \"torch_dtype\": null", NULL, "fp32", "fp32 (no torch_dtype)"},
        {", \"quantization_config\": {\"bits\": 8}", NULL, "mixed",
         "mixed (no torch_dtype, but quantized)"},
        {", \"torch_dtype\": \"bfloat16\"", "fp32", "fp32", "fp32 (as asked)"},
        {", \"torch_dtype\": \"int8\"", "mixed", "mixed", "mixed (as asked)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sbp_import_options options = {
            .precision = rows[i].asked, .global_batch = 8, .sequence = 16};
        char text[512];
        struct sbp_diag diag;
        struct cJSON *model;
        (void)snprintf(text, sizeof text, "{" TINY "%s}", rows[i].more);
        assert_int_equal(import_text(text, &options, &model, &diag), SBP_OK);
        const struct cJSON *notes = cJSON_GetObjectItem(model, "notes");
        const struct cJSON *last = cJSON_GetArrayItem(notes, cJSON_GetArraySize(notes) - 1);
        assert_string_equal(cJSON_GetObjectItem(model, "precision")->valuestring,
                            rows[i].precision);
        if (strstr(last->valuestring, rows[i].said) == NULL)
            fail_msg("said \"%s\", expected \"%s\"", last->valuestring, rows[i].said);
        cJSON_Delete(model);
    }
}

static void test_switches(void **state)
{
    (void)state;
    struct cJSON *model = must_import(
        "{" TINY ", \"n_inner\": 100, \"tie_word_embeddings\": false, \"resid_pdrop\": 0.5, "
        "\"embd_pdrop\": 0.5, \"layer_norm_epsilon\": 1e-6, \"n_ctx\": 7, \"bos_token_id\": null, "
        "\"reorder_and_upcast_attn\": true, \"task_specific_params\": {}}");
    assert_true(number(model, "ffn") == 100);
    assert_true(number(model, "dropout") == 0.5);
    assert_true(number(model, "attention_dropout") == 0.1);
    assert_true(number(model, "epsilon") == 1e-6);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(model, "tied")));
    cJSON_Delete(model);
}

static void test_options(void **state)
{
    (void)state;
    const struct sbp_import_options options = {.name = "mine",
                                               .precision = "mixed",
                                               .global_batch = 3,
                                               .sequence = 32,
                                               .vocab_multiple = 1};
    struct sbp_diag diag;
    struct cJSON *model;
    assert_int_equal(import_text("{" TINY "}", &options, &model, &diag), SBP_OK);
    assert_string_equal(cJSON_GetObjectItem(model, "name")->valuestring, "mine");
    assert_string_equal(cJSON_GetObjectItem(model, "precision")->valuestring, "mixed");
    assert_true(number(model, "vocab_multiple") == 1);
    cJSON_Delete(model);
}

static void test_refused_configs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"[]", "hf.json: expected an object"},
        {"{\"n_layer\": 2}", "hf.json: key \"model_type\" is missing, supported are gpt2, llama, "},
        {"{\"model_type\": \"gemma\"}",
         "hf.json: model_type: \"gemma\" is not supported, supported are gpt2, llama, mistral, "
         "qwen2, qwen3, phi3, gemma2, gemma3_text, mixtral, qwen3_moe, gpt_oss, glm4_moe, "
         "llama4_text, deepseek_v2, deepseek_v3, kimi_k2, bert, vit and resnet"},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"opt\"}}",
         "hf.json: text_config.model_type: \"opt\" is not supported, supported are gpt2"},
        {"{\"model_type\": \"llava\", \"text_config\": {\"hidden_size\": 8}}",
         "hf.json: text_config: key \"model_type\" is missing"},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llava\", "
         "\"text_config\": {\"model_type\": \"gpt2\"}}}",
         "hf.json: text_config.model_type: \"llava\" is not supported"},
        {"{" TINY ", \"torch_dtype\": \"int8\"}", "hf.json: torch_dtype: unknown value \"int8\""},
        {"{" TINY ", \"dtype\": 16}", "hf.json: dtype: "},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2}",
         "hf.json: key \"n_embd\" (or \"hidden_size\") is missing: gpt2 needs it"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 0}", "hf.json: n_layer: "},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 5, "
         "\"n_positions\": 16, \"vocab_size\": 9}",
         "hf.json: n_head: 5 heads do not divide the hidden size 64"},
        {"{" TINY ", \"n_inner\": \"big\"}", "hf.json: n_inner: "},
        {"{" TINY ", \"activation_function\": \"silu\"}",
         "hf.json: activation_function: \"silu\" is not supported for gpt2, supported: gelu_new, "
         "gelu_pytorch_tanh, gelu"},
        {"{" TINY ", \"scale_attn_weights\": false}",
         "hf.json: scale_attn_weights: false is not supported, supported is true"},
        {"{" TINY ", \"scale_attn_by_inverse_layer_idx\": true}",
         "hf.json: scale_attn_by_inverse_layer_idx: true is not supported"},
        {"{" TINY ", \"add_cross_attention\": true}",
         "hf.json: add_cross_attention: true is not supported"},
        {"{" TINY ", \"resid_pdrop\": 1}",
         "hf.json: resid_pdrop: must be at least 0 and less than 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        must_refuse(rows[i].text, &SMALL, rows[i].expected);
}

static void test_refused_options(void **state)
{
    (void)state;
    static const struct {
        struct sbp_import_options options;
        const char *expected;
    } rows[] = {
        {{.global_batch = 0, .sequence = 16}, "global batch 0, legal are 1 to 2^31"},
        {{.global_batch = 8, .sequence = 0},
         "hf.json: gpt2 needs --sequence N: the training decides"},
        {{.global_batch = 8, .sequence = 33},
         "hf.json: n_positions: a sequence of 33 tokens, legal are 1 to 32"},
        {{.global_batch = 8, .sequence = 16, .vocab_multiple = -1}, "vocabulary multiple -1"},
        {{.global_batch = 8, .sequence = 16, .precision = "fp4"},
         "model imported from hf.json: precision: "},
        {{.global_batch = 8, .sequence = 16, .name = ""}, "model imported from hf.json: name: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        must_refuse("{" TINY "}", &rows[i].options, rows[i].expected);
}

/* The shipped GPT-2 small is what import makes of the real config, but for the dropout inside
 * attention, which would not run, and the words. */
static void test_shipped_gpt2(void **state)
{
    (void)state;
    const struct sbp_import_options options = {.global_batch = 8, .sequence = 1024};
    const char *root = getenv("SBP_SOURCE_ROOT");
    char config[4096], shipped[4096];
    (void)snprintf(config, sizeof config, "%s/../shared/data/hf/gpt2_config.json",
                   root == NULL ? "." : root);
    (void)snprintf(shipped, sizeof shipped, "%s/configs/models/gpt2-small.json",
                   root == NULL ? "." : root);
    if (access(config, R_OK) != 0) {
        print_message("skipped: %s is not there\n", config);
        skip();
        return;
    }
    struct sbp_diag diag = {{0}};
    struct cJSON *tree = NULL, *model = NULL, *expected = NULL;
    struct sbp_json at, other;
    if (sbp_json_open(config, &tree, &at, &diag) != SBP_OK ||
        sbp_import_hf(&at, &options, &model, &diag) != SBP_OK ||
        sbp_json_open(shipped, &expected, &other, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(number(model, "attention_dropout") == 0.1);
    cJSON_DeleteItemFromObject(model, "attention_dropout");
    cJSON_DeleteItemFromObject(model, "attention"); /* the shipped one takes the default */
    cJSON_DeleteItemFromObject(model, "notes");
    cJSON_DeleteItemFromObject(expected, "notes");
    assert_true(cJSON_Compare(model, expected, true));
    cJSON_Delete(expected);
    cJSON_Delete(model);
    cJSON_Delete(tree);
}

/* --- the other families: what a config of each becomes, in parameters worked out by hand --- */

#define LLAMA_SIZES                                                                                \
    "\"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, "                  \
    "\"intermediate_size\": 20, \"vocab_size\": 50"
#define MLA                                                                                        \
    "\"kv_lora_rank\": 3, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, "                      \
    "\"v_head_dim\": 5, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "                     \
    "\"moe_intermediate_size\": 7"
#define VIT                                                                                        \
    "\"model_type\": \"vit\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "                      \
    "\"num_attention_heads\": 2, \"intermediate_size\": 10, \"image_size\": 32"
#define BERT                                                                                       \
    "\"type_vocab_size\": 2, \"num_hidden_layers\": 1, \"hidden_size\": 8, "                       \
    "\"num_attention_heads\": 2, \"intermediate_size\": 10, \"vocab_size\": 50, "                  \
    "\"max_position_embeddings\": 16"

enum {
    H = 16,
    /* two tables and the last norm; q, k, v, o of 4 heads and their two norms; swiglu */
    ENDS = 2 * 50 * H + H,
    FULL = 4 * H * H + 2 * H,
    SWIGLU = 3 * H * 20,
    /* latent: k down, norm, up, o; experts of width 7 and a router */
    KEYS = H * (3 + 2) + 3 + 3 * 4 * (4 + 5) + 4 * 5 * H + 2 * H,
    EXPERTS = 4 * 3 * H * 7 + H * 4,
    BERT_BODY = (50 + 16 + 2) * 8 + 16 + 4 * (64 + 8) + 2 * 80 + 18 + 32,
};

static const struct {
    const char *text, *name;
    int64_t parameters;
} FAMILIES[] = {
    {"{\"model_type\": \"llama\", " LLAMA_SIZES "}", "llama-2x16", ENDS + 2 * (FULL + SWIGLU)},
    {"{\"model_type\": \"llama\", " LLAMA_SIZES ", \"num_key_value_heads\": 2, \"head_dim\": 6, "
     "\"attention_bias\": true, \"mlp_bias\": true, \"tie_word_embeddings\": true}",
     "llama-2x16",
     ENDS - 50 * H + 2 * (2 * H * 24 + 2 * H * 12 + 24 + 24 + H + 2 * H + SWIGLU + 2 * 20 + H)},
    {"{\"model_type\": \"mistral\", " LLAMA_SIZES ", \"num_key_value_heads\": 1, \"head_dim\": "
     "null, \"sliding_window\": null, \"rope_scaling\": {\"type\": \"yarn\"}}",
     "mistral-2x16", ENDS + 2 * (FULL - 2 * H * 12 + SWIGLU)},
    {"{\"model_type\": \"qwen2\", " LLAMA_SIZES ", \"num_key_value_heads\": null}", "qwen2-2x16",
     ENDS + 2 * (FULL + 3 * H + SWIGLU)},
    {"{\"model_type\": \"qwen3\", " LLAMA_SIZES ", \"num_key_value_heads\": 4}",
     "qwen3-2x16", /* heads of 128 */
     ENDS + 2 * (4 * H * 512 + 256 + 2 * H + SWIGLU)},
    {"{\"model_type\": \"mixtral\", " LLAMA_SIZES ", \"num_key_value_heads\": 4, "
     "\"num_local_experts\": 3, \"num_experts_per_tok\": 2}",
     "mixtral-2x16", ENDS + 2 * (FULL + 3 * SWIGLU + 3 * H)},
    {"{\"model_type\": \"qwen3_moe\", " LLAMA_SIZES ", \"num_experts\": 3, "
     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 5, \"head_dim\": 2, "
     "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []}",
     "qwen3_moe-2x16", ENDS + 2 * (4 * H * 8 + 4 + 2 * H + 3 * 3 * H * 5 + 3 * H)},
    {"{\"model_type\": \"phi3\", " LLAMA_SIZES
     ", \"num_key_value_heads\": 2, \"resid_pdrop\": 0.1}",
     "phi3-2x16", ENDS + 2 * (FULL - 2 * H * 8 + SWIGLU)},
    /* four norms a layer; tied; what is left out: 4 heads for keys, heads of 256 */
    {"{\"model_type\": \"gemma2\", " LLAMA_SIZES "}", "gemma2-2x16",
     ENDS - 50 * H + 2 * (4 * H * 1024 + 4 * H + SWIGLU)},
    {"{\"model_type\": \"gemma3\", \"vision_config\": {}, \"text_config\": {\"model_type\": "
     "\"gemma3_text\", " LLAMA_SIZES ", \"head_dim\": 6, \"attention_bias\": true}}",
     "gemma3_text-2x16", ENDS - 50 * H + 2 * (4 * H * 24 + 3 * 24 + H + 2 * 6 + 4 * H + SWIGLU)},
    {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", "
     "\"num_hidden_layers\": 1, \"hidden_size\": 16}}",
     "gemma3_text-1x16", /* heads 8, of keys 4, of 256; 9216; 262208 tokens */
     262208 * H + H + H * 2048 * 2 + H * 1024 * 2 + 2 * 256 + 4 * H + 3 * H * 9216},
    {"{\"model_type\": \"gpt_oss\", " LLAMA_SIZES ", \"num_key_value_heads\": 4, \"head_dim\": 2, "
     "\"num_local_experts\": 3, \"num_experts_per_tok\": 2}",
     "gpt_oss-2x16", /* biases everywhere, a sink for each head */
     ENDS + 2 * (4 * H * 8 + 3 * 8 + H + 4 + 2 * H + 3 * (SWIGLU + 2 * 20 + H) + 3 * (H + 1))},
    {"{\"model_type\": \"glm4_moe\", " LLAMA_SIZES ", \"num_key_value_heads\": 2, \"head_dim\": 2, "
     "\"moe_intermediate_size\": 5, \"n_routed_experts\": 3, \"num_experts_per_tok\": 2, "
     "\"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"use_qk_norm\": true, "
     "\"attention_bias\": true, \"num_nextn_predict_layers\": 1}",
     "glm4_moe-2x16", /* the projection has no bias */
     ENDS + 2 * (2 * H * 8 + 2 * H * 4 + 16 + 2 * 2 + 2 * H) + SWIGLU + 5 * 3 * H * 5 + 3 * H + 3},
    {"{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", " LLAMA_SIZES
     ", \"num_key_value_heads\": 2, \"head_dim\": 2, \"intermediate_size_mlp\": 9, "
     "\"num_local_experts\": 3, \"interleave_moe_layer_step\": 2}}",
     "llama4_text-2x16", /* a dense layer, then one with experts and a shared one */
     ENDS + 2 * (2 * H * 8 + 2 * H * 4 + 2 * H) + 3 * H * 9 + 4 * SWIGLU + 3 * H},
    {"{\"model_type\": \"kimi_k2\", " LLAMA_SIZES ", " MLA ", \"q_lora_rank\": 6, "
     "\"first_k_dense_replace\": 1, \"n_shared_experts\": 1}",
     "kimi_k2-2x16", ENDS + 2 * (KEYS + H * 6 + 6 + 6 * 24) + SWIGLU + EXPERTS + 4 + 3 * H * 7},
    {"{\"model_type\": \"deepseek_v2\", " LLAMA_SIZES ", " MLA ", \"q_lora_rank\": null, "
     "\"first_k_dense_replace\": 1, \"n_shared_experts\": 2}",
     "deepseek_v2-2x16", ENDS + 2 * (KEYS + H * 24) + SWIGLU + EXPERTS + 2 * 3 * H * 7},
    {"{\"model_type\": \"deepseek_v3\", " LLAMA_SIZES ", " MLA ", \"q_lora_rank\": 6, "
     "\"first_k_dense_replace\": 0, \"n_shared_experts\": null, \"num_nextn_predict_layers\": 1}",
     "deepseek_v3-2x16", ENDS + 2 * (KEYS + H * 6 + 6 + 6 * 24 + EXPERTS + 4 + 3 * H * 7)},
    {"{" BERT "}", "bert-1x8", BERT_BODY + 72},
    {"{\"model_type\": \"bert\", " BERT ", \"architectures\": [\"BertForMaskedLM\"]}", "bert-1x8",
     BERT_BODY + 72 + 16 + 50},
    {"{" VIT ", \"id2label\": {\"0\": \"cat\", \"1\": \"dog\", \"2\": \"cow\"}}", "vit-1x8",
     768 * 8 + 8 + 8 + 5 * 8 + 4 * 72 + 2 * 80 + 18 + 32 + 16 + 27},
    {"{\"model_type\": \"resnet\", \"depths\": [3, 4, 6, 3], \"hidden_sizes\": [256, 512, 1024, "
     "2048], \"num_labels\": 1000}",
     "resnet-50", 25557032},
    {"{\"model_type\": \"resnet\", \"depths\": [2, 2, 2, 2], \"hidden_sizes\": [64, 128, 256, "
     "512], \"layer_type\": \"basic\", \"num_labels\": 1000}",
     "resnet-18", 11689512},
};

/* How many layers have which window: of the library's default, of a pattern or a list. */
static void test_windows(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more;
        int window, layers; /* 0: none; all */
    } rows[] = {
        {"mistral", "", 4096, 0},
        {"mistral", ", \"sliding_window\": null", 0, 0},
        {"mixtral", "", 0, 0},
        {"mixtral", ", \"sliding_window\": 9", 9, 0},
        {"phi3", "", 0, 0},
        {"phi3", ", \"sliding_window\": 2047", 2047, 0},
        {"qwen2", ", \"sliding_window\": 9, \"use_sliding_window\": false", 0, 0},
        {"qwen2", ", \"sliding_window\": 9, \"use_sliding_window\": true", 0, 0},
        {"qwen3", ", \"use_sliding_window\": true, \"max_window_layers\": 4", 4096, 3},
        {"gemma2", "", 4096, 4},
        {"gemma3_text", "", 4096, 6},
        {"gemma3_text", ", \"sliding_window\": 512, \"sliding_window_pattern\": 3", 512, 5},
        {"gpt_oss", "", 128, 4},
        {"gpt_oss",
         ", \"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
         "\"full_attention\", \"full_attention\", \"full_attention\", \"sliding_attention\"]",
         128, 1},
        {"llama", ", \"sliding_window\": 9", 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        (void)snprintf(text, sizeof text,
                       "{\"model_type\": \"%s\", \"num_hidden_layers\": 7, \"hidden_size\": 16, "
                       "\"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
                       "\"intermediate_size\": 20, \"vocab_size\": 50, \"num_local_experts\": 3, "
                       "\"num_experts_per_tok\": 2%s}",
                       rows[i].type, rows[i].more);
        struct cJSON *model = must_import(text);
        if (rows[i].window == 0)
            assert_null(cJSON_GetObjectItem(model, "window"));
        else
            assert_true(number(model, "window") == rows[i].window);
        if (rows[i].layers == 0)
            assert_null(cJSON_GetObjectItem(model, "window_layers"));
        else
            assert_true(number(model, "window_layers") == rows[i].layers);
        cJSON_Delete(model);
    }
}

static void assert_parameters(const char *what, const struct cJSON *model, int64_t expected)
{
    struct sbp_graph graph;
    struct sbp_diag diag = {{0}};
    struct sbp_json at;
    sbp_json_at(model, what, &diag, &at);
    if (sbp_graph_read(&at, &graph) != SBP_OK)
        fail_msg("%s", diag.text);
    if (graph.parameters != expected)
        fail_msg("%s: %lld parameters, expected %lld", what, (long long)graph.parameters,
                 (long long)expected);
    sbp_graph_free(&graph);
}

static void test_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FAMILIES / sizeof FAMILIES[0]; i++) {
        const bool images =
            strstr(FAMILIES[i].name, "vit") != NULL || strstr(FAMILIES[i].name, "resnet") != NULL;
        const struct sbp_import_options options = {.global_batch = 8, .sequence = images ? 0 : 16};
        struct sbp_diag diag;
        struct cJSON *model;
        if (import_text(FAMILIES[i].text, &options, &model, &diag) != SBP_OK)
            fail_msg("%s was refused: %s", FAMILIES[i].text, diag.text);
        assert_string_equal(cJSON_GetObjectItem(model, "name")->valuestring, FAMILIES[i].name);
        assert_parameters(FAMILIES[i].text, model, FAMILIES[i].parameters);
        cJSON_Delete(model);
    }
}

static void test_refused_families(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{\"model_type\": \"llama\", \"hidden_size\": 12}",
         "hf.json: key \"num_hidden_layers\" (or \"n_layer\") is missing: llama needs it"},
        {"{\"model_type\": \"llama\", " LLAMA_SIZES ", \"hidden_act\": \"gelu\"}",
         "hf.json: hidden_act: \"gelu\" is not supported for llama, supported: silu, swish"},
        {"{\"model_type\": \"llama\", " LLAMA_SIZES ", \"num_key_value_heads\": 3}",
         "hf.json: num_key_value_heads: 3 key and value heads do not divide the 4 heads"},
        {"{\"model_type\": \"mixtral\", " LLAMA_SIZES "}",
         "hf.json: key \"num_local_experts\" (or \"num_experts\") is missing: mixtral needs it"},
        {"{\"model_type\": \"qwen3_moe\", " LLAMA_SIZES ", \"num_experts\": 3, "
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 5, \"decoder_sparse_step\": 2}",
         "hf.json: decoder_sparse_step: 2 is not supported, supported is 1: experts in every"},
        {"{\"model_type\": \"qwen3_moe\", " LLAMA_SIZES ", \"num_experts\": 3, "
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 5, \"mlp_only_layers\": [0]}",
         "hf.json: mlp_only_layers: only [] is supported"},
        {"{\"model_type\": \"deepseek_v3\", " LLAMA_SIZES "}",
         "hf.json: key \"kv_lora_rank\" is missing: deepseek_v3 needs it"},
        {"{\"model_type\": \"deepseek_v3\", " LLAMA_SIZES ", " MLA ", \"moe_layer_freq\": 2}",
         "hf.json: moe_layer_freq: 2 is not supported"},
        {"{\"model_type\": \"kimi_k2\", " LLAMA_SIZES ", " MLA ", \"n_shared_experts\": 1}",
         "hf.json: key \"first_k_dense_replace\" is missing: kimi_k2 needs it"},
        {"{\"model_type\": \"gemma2\", " LLAMA_SIZES ", \"layer_types\": [\"full_attention\"]}",
         "hf.json: layer_types: names 1 layers, num_hidden_layers is 2"},
        {"{\"model_type\": \"gemma2\", " LLAMA_SIZES ", \"layer_types\": [\"full_attention\", "
         "\"mamba\"]}",
         "hf.json: layer_types[1]: unknown value \"mamba\""},
        {"{\"model_type\": \"gemma2\", " LLAMA_SIZES ", \"hidden_activation\": \"silu\"}",
         "hf.json: hidden_activation: \"silu\" is not supported for gemma2"},
        {"{\"model_type\": \"gemma3_text\", " LLAMA_SIZES
         ", \"use_bidirectional_attention\": true}",
         "hf.json: use_bidirectional_attention: true is not supported"},
        {"{\"model_type\": \"llama4_text\", " LLAMA_SIZES ", \"moe_layers\": [0]}",
         "hf.json: moe_layers: names 1 of 2 layers, supported is every Nth"},
        {"{\"model_type\": \"llama4_text\", " LLAMA_SIZES ", \"moe_layers\": []}",
         "hf.json: moe_layers: names 0 of 2 layers, supported is every Nth"},
        {"{\"model_type\": \"llama4_text\", \"num_hidden_layers\": 4, \"hidden_size\": 16, "
         "\"num_attention_heads\": 4, \"intermediate_size\": 20, \"vocab_size\": 50, "
         "\"moe_layers\": [1, 2]}",
         "hf.json: moe_layers[1]: 2 is not supported, supported is 3"},
        {"{" BERT ", \"position_embedding_type\": \"relative_key\"}",
         "hf.json: position_embedding_type: \"relative_key\" is not supported"},
        {"{\"model_type\": \"bert\", " BERT ", \"is_decoder\": true}",
         "hf.json: is_decoder: true is not supported"},
        {"{\"model_type\": \"mixtral\", " LLAMA_SIZES ", \"num_key_value_heads\": 2, "
         "\"num_local_experts\": 3, \"num_experts_per_tok\": 4}",
         "hf.json: num_experts_per_tok: 4 of 3 experts for a token, legal are 1 to 3"},
        /* what the library takes where the file says nothing, which these heads do not fit */
        {"{\"model_type\": \"mistral\", " LLAMA_SIZES "}",
         "model imported from hf.json: kv_heads: 8 key and value heads do not divide the 4"},
        {"{" BERT ", \"embedding_size\": 4}", "hf.json: key \"model_type\" is missing"},
        {"{\"model_type\": \"bert\", " BERT ", \"architectures\": [\"BertForMaskedLM\"], "
         "\"tie_word_embeddings\": false}",
         "hf.json: tie_word_embeddings: false is not supported for a masked language model"},
        {"{" VIT "}", "hf.json: key \"id2label\" (or \"num_labels\") is missing"},
        {"{" VIT ", \"num_labels\": 3}",
         "model imported from hf.json: sequence: 16, but the images make 5 (leave it away)"},
        {"{\"model_type\": \"resnet\", \"depths\": [3, 4, 6, 4], \"hidden_sizes\": [256, 512, "
         "1024, 2048], \"num_labels\": 10}",
         "hf.json: depths: no published depth of bottleneck layers, supported are those of"},
        {"{\"model_type\": \"resnet\", \"depths\": [3, 4, 6, 3], \"hidden_sizes\": [64], "
         "\"num_labels\": 10}",
         "hf.json: hidden_sizes: supported are the published widths of bottleneck layers"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        must_refuse(rows[i].text, &SMALL, rows[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_shipped_gpt2),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_refused_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

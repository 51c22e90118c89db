/* Import of Hugging Face configs: the shipped model file, notes, and every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "costmodel/graph.h"
#include "planner/import_hf.h"

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

static void assert_note(const char *text, const char *expected)
{
    struct cJSON *model = must_import(text);
    const struct cJSON *notes = cJSON_GetObjectItem(model, "notes");
    if (expected == NULL) {
        assert_null(notes);
    } else {
        assert_int_equal(cJSON_GetArraySize(notes), 1);
        assert_string_equal(cJSON_GetArrayItem(notes, 0)->valuestring, expected);
    }
    cJSON_Delete(model);
}

static void test_notes(void **state)
{
    (void)state;
    assert_note("{" TINY ", \"attn_pdrop\": 0}", NULL);
    assert_note("{" TINY "}", "attn_pdrop 0.1: dropout inside attention is not modelled");
    assert_note("{" TINY ", \"attn_pdrop\": 0, \"embd_pdrop\": 0.25}",
                "embd_pdrop 0.25: taken as resid_pdrop, 0.1");
    assert_note("{" TINY ", \"attn_pdrop\": 0, \"activation_function\": \"gelu\"}",
                "activation gelu: its tanh form is used");
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
        {"{\"n_layer\": 2}", "hf.json: key \"model_type\" is missing"},
        {"{\"model_type\": \"llama\"}",
         "hf.json: model_type: \"llama\" is not supported, supported is gpt2 so far"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2}", "hf.json: key \"n_embd\" is missing"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 0}", "hf.json: n_layer: "},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 5, "
         "\"n_positions\": 8, \"vocab_size\": 9}",
         "hf.json: n_head: 5 heads do not divide n_embd 64"},
        {"{" TINY ", \"n_inner\": \"big\"}", "hf.json: n_inner: "},
        {"{" TINY ", \"activation_function\": \"silu\"}",
         "hf.json: activation_function: \"silu\" is not supported, supported are gelu_new, "
         "gelu_pytorch_tanh and gelu"},
        {"{" TINY ", \"scale_attn_weights\": false}",
         "hf.json: scale_attn_weights: false is not supported"},
        {"{" TINY ", \"scale_attn_by_inverse_layer_idx\": true}",
         "hf.json: scale_attn_by_inverse_layer_idx: true is not supported"},
        {"{" TINY ", \"add_cross_attention\": true}",
         "hf.json: add_cross_attention: true is not supported"},
        {"{" TINY ", \"resid_pdrop\": 1}",
         "hf.json: resid_pdrop: must be at least 0 and less than 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_diag diag;
        struct cJSON *model;
        assert_int_equal(import_text(rows[i].text, &SMALL, &model, &diag), SBP_E_INPUT);
        assert_null(model);
        if (strncmp(diag.text, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("row %zu: said \"%s\", expected \"%s...\"", i, diag.text, rows[i].expected);
    }
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
         "hf.json: n_positions: a sequence of 0 tokens, legal are 1 to 32"},
        {{.global_batch = 8, .sequence = 33},
         "hf.json: n_positions: a sequence of 33 tokens, legal are 1 to 32"},
        {{.global_batch = 8, .sequence = 16, .vocab_multiple = -1}, "vocabulary multiple -1"},
        {{.global_batch = 8, .sequence = 16, .precision = "fp8"},
         "model imported from hf.json: precision: "},
        {{.global_batch = 8, .sequence = 16, .name = ""}, "model imported from hf.json: name: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_diag diag;
        struct cJSON *model;
        assert_int_equal(import_text("{" TINY "}", &rows[i].options, &model, &diag), SBP_E_INPUT);
        assert_null(model);
        if (strncmp(diag.text, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("row %zu: said \"%s\", expected \"%s...\"", i, diag.text, rows[i].expected);
    }
}

/* The shipped GPT-2 small is what import makes of the real config. */
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
    struct cJSON *tree = NULL, *model = NULL;
    struct sbp_json at;
    char *text = NULL;
    size_t length = 0;
    if (sbp_json_open(config, &tree, &at, &diag) != SBP_OK ||
        sbp_import_hf(&at, &options, &model, &diag) != SBP_OK ||
        sbp_file_read(shipped, &text, &length, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    char *printed = cJSON_Print(model);
    assert_non_null(printed);
    assert_int_equal(length, strlen(printed) + 1);
    assert_int_equal(text[length - 1], '\n');
    text[length - 1] = '\0';
    assert_string_equal(printed, text);
    cJSON_free(printed);
    free(text);
    cJSON_Delete(model);
    cJSON_Delete(tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),           cmocka_unit_test(test_notes),
        cmocka_unit_test(test_switches),        cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused_configs), cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_shipped_gpt2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

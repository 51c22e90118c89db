/* Parameters of published models, imported from their configs: those that transformers' classes
 * have, which are the published totals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "costmodel/model/graph.h"
#include "costmodel/model/op_cost.h"
#include "planner/import/hf.h"
#include "tests/support/unit.h"

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

/* The keys of the published configs that decide sizes. The totals are those of transformers 5.24's
 * modules, built without memory; of models with a vision part (gemma-3-4b and up, llama-4) without
 * it and its projector: 27,432,406,640 and 401,583,781,376 are published of gemma-3-27b and
 * llama-4-maverick with them. The biases of sigmoid routers are counted, as in the published
 * weights (glm-4.5, kimi-k2); a layer that predicts further tokens is not (glm-4.5). */
static const struct {
    const char *name;
    int64_t parameters;
    const char *config;
} MODELS[] = {
    {"gemma-2-2b", INT64_C(2614341888),
     "{\"model_type\": \"gemma2\", \"attention_bias\": false, \"head_dim\": 256, "
     "\"hidden_size\": 2304, \"intermediate_size\": 9216, \"num_attention_heads\": 8, "
     "\"num_hidden_layers\": 26, \"num_key_value_heads\": 4, \"sliding_window\": 4096, "
     "\"vocab_size\": 256000}"},
    {"gemma-2-9b", INT64_C(9241705984),
     "{\"model_type\": \"gemma2\", \"attention_bias\": false, \"head_dim\": 256, "
     "\"hidden_size\": 3584, \"intermediate_size\": 14336, \"num_attention_heads\": 16, "
     "\"num_hidden_layers\": 42, \"num_key_value_heads\": 8, \"sliding_window\": 4096, "
     "\"vocab_size\": 256000}"},
    {"gemma-2-27b", INT64_C(27227128320),
     "{\"model_type\": \"gemma2\", \"attention_bias\": false, \"head_dim\": 128, "
     "\"hidden_size\": 4608, \"intermediate_size\": 36864, \"num_attention_heads\": 32, "
     "\"num_hidden_layers\": 46, \"num_key_value_heads\": 16, \"sliding_window\": 4096, "
     "\"vocab_size\": 256000}"},
    {"gemma-3-1b", INT64_C(999885952),
     "{\"model_type\": \"gemma3_text\", \"head_dim\": 256, \"hidden_size\": 1152, "
     "\"intermediate_size\": 6912, \"num_attention_heads\": 4, \"num_hidden_layers\": "
     "26, \"num_key_value_heads\": 1, \"sliding_window\": 512, "
     "\"sliding_window_pattern\": 6, \"vocab_size\": 262144}"},
    {"gemma-3-4b", INT64_C(3880263168),
     "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", "
     "\"hidden_size\": 2560, \"intermediate_size\": 10240, \"num_hidden_layers\": 34, "
     "\"sliding_window\": 1024}}"},
    {"gemma-3-12b", INT64_C(11766034176),
     "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", "
     "\"hidden_size\": 3840, \"intermediate_size\": 15360, \"num_attention_heads\": 16, "
     "\"num_hidden_layers\": 48, \"num_key_value_heads\": 8, \"sliding_window\": 1024}}"},
    {"gemma-3-27b", INT64_C(27009346304),
     "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", "
     "\"head_dim\": 128, \"hidden_size\": 5376, \"intermediate_size\": 21504, "
     "\"num_attention_heads\": 32, \"num_hidden_layers\": 62, \"num_key_value_heads\": "
     "16, \"sliding_window\": 1024}}"},
    {"phi-3-mini", INT64_C(3821079552),
     "{\"model_type\": \"phi3\", \"hidden_size\": 3072, \"intermediate_size\": 8192, "
     "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": "
     "32, \"vocab_size\": 32064, \"sliding_window\": 2047, \"tie_word_embeddings\": "
     "false}"},
    {"phi-4", INT64_C(14659507200),
     "{\"model_type\": \"phi3\", \"hidden_size\": 5120, \"intermediate_size\": 17920, "
     "\"num_attention_heads\": 40, \"num_hidden_layers\": 40, \"num_key_value_heads\": "
     "10, \"vocab_size\": 100352, \"tie_word_embeddings\": false}"},
    {"gpt-oss-20b", INT64_C(20914757184),
     "{\"model_type\": \"gpt_oss\", \"attention_bias\": true, \"head_dim\": 64, "
     "\"hidden_size\": 2880, \"intermediate_size\": 2880, \"num_attention_heads\": 64, "
     "\"num_key_value_heads\": 8, \"sliding_window\": 128, \"vocab_size\": 201088, "
     "\"num_experts_per_tok\": 4, \"tie_word_embeddings\": false, "
     "\"num_hidden_layers\": 24, \"num_local_experts\": 32}"},
    {"gpt-oss-120b", INT64_C(116829156672),
     "{\"model_type\": \"gpt_oss\", \"attention_bias\": true, \"head_dim\": 64, "
     "\"hidden_size\": 2880, \"intermediate_size\": 2880, \"num_attention_heads\": 64, "
     "\"num_key_value_heads\": 8, \"sliding_window\": 128, \"vocab_size\": 201088, "
     "\"num_experts_per_tok\": 4, \"tie_word_embeddings\": false, "
     "\"num_hidden_layers\": 36, \"num_local_experts\": 128}"},
    {"llama-4-scout", INT64_C(107769861120),
     "{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", "
     "\"attention_bias\": false, \"head_dim\": 128, \"hidden_size\": 5120, "
     "\"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, "
     "\"num_attention_heads\": 40, \"num_hidden_layers\": 48, \"num_key_value_heads\": "
     "8, \"num_experts_per_tok\": 1, \"vocab_size\": 202048, "
     "\"interleave_moe_layer_step\": 1, \"num_local_experts\": 16, \"use_qk_norm\": "
     "true}}"},
    {"llama-4-maverick", INT64_C(400711848960),
     "{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", "
     "\"attention_bias\": false, \"head_dim\": 128, \"hidden_size\": 5120, "
     "\"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, "
     "\"num_attention_heads\": 40, \"num_hidden_layers\": 48, \"num_key_value_heads\": "
     "8, \"num_experts_per_tok\": 1, \"vocab_size\": 202048, "
     "\"interleave_moe_layer_step\": 2, \"num_local_experts\": 128, \"use_qk_norm\": "
     "false}}"},
    {"glm-4.5-air", INT64_C(106852251264),
     "{\"model_type\": \"glm4_moe\", \"attention_bias\": true, \"head_dim\": 128, "
     "\"n_shared_experts\": 1, \"num_attention_heads\": 96, \"num_experts_per_tok\": 8, "
     "\"num_key_value_heads\": 8, \"vocab_size\": 151552, \"tie_word_embeddings\": "
     "false, \"first_k_dense_replace\": 1, \"hidden_size\": 4096, "
     "\"intermediate_size\": 10944, \"moe_intermediate_size\": 1408, "
     "\"n_routed_experts\": 128, \"num_hidden_layers\": 46, \"use_qk_norm\": false}"},
    {"glm-4.5", INT64_C(352797829024),
     "{\"model_type\": \"glm4_moe\", \"attention_bias\": true, \"head_dim\": 128, "
     "\"n_shared_experts\": 1, \"num_attention_heads\": 96, \"num_experts_per_tok\": 8, "
     "\"num_key_value_heads\": 8, \"vocab_size\": 151552, \"tie_word_embeddings\": "
     "false, \"first_k_dense_replace\": 3, \"hidden_size\": 5120, "
     "\"intermediate_size\": 12288, \"moe_intermediate_size\": 1536, "
     "\"n_routed_experts\": 160, \"num_hidden_layers\": 92, \"use_qk_norm\": true}"},
    {"kimi-k2", INT64_C(1026408232448),
     "{\"model_type\": \"kimi_k2\", \"attention_bias\": false, "
     "\"first_k_dense_replace\": 1, \"hidden_size\": 7168, \"intermediate_size\": "
     "18432, \"kv_lora_rank\": 512, \"moe_intermediate_size\": 2048, "
     "\"n_routed_experts\": 384, \"n_shared_experts\": 1, \"num_attention_heads\": 64, "
     "\"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, \"num_key_value_heads\": "
     "64, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "
     "\"tie_word_embeddings\": false, \"v_head_dim\": 128, \"vocab_size\": 163840}"},
    {"qwen3-30b-a3b", INT64_C(30532122624),
     "{\"model_type\": \"qwen3_moe\", \"attention_bias\": false, \"head_dim\": 128, "
     "\"hidden_size\": 2048, \"intermediate_size\": 6144, \"moe_intermediate_size\": "
     "768, \"num_attention_heads\": 32, \"num_experts\": 128, \"num_experts_per_tok\": "
     "8, \"num_hidden_layers\": 48, \"num_key_value_heads\": 4, "
     "\"tie_word_embeddings\": false, \"vocab_size\": 151936}"},
    {"qwen3-235b-a22b", INT64_C(235093634560),
     "{\"model_type\": \"qwen3_moe\", \"attention_bias\": false, \"head_dim\": 128, "
     "\"hidden_size\": 4096, \"intermediate_size\": 12288, \"moe_intermediate_size\": "
     "1536, \"num_attention_heads\": 64, \"num_experts\": 128, \"num_experts_per_tok\": "
     "8, \"num_hidden_layers\": 94, \"num_key_value_heads\": 4, "
     "\"tie_word_embeddings\": false, \"vocab_size\": 151936}"},
};

static void test_totals(void **state)
{
    (void)state;
    const struct sbp_import_options options = {.global_batch = 64, .sequence = 4096};
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        struct sbp_diag diag = {{0}};
        struct cJSON *tree = NULL, *model = NULL;
        struct sbp_json at;
        if (sbp_json_parse(MODELS[i].config, MODELS[i].name, &tree, &at, &diag) != SBP_OK ||
            sbp_import_hf(&at, &options, &model, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        assert_parameters(MODELS[i].name, model, MODELS[i].parameters);
        cJSON_Delete(model);
        cJSON_Delete(tree);
    }
}

/* The shipped file of a model, with the same batch. */
static bool open_shipped(const char *name, struct cJSON **tree, struct sbp_json *at,
                         struct sbp_diag *diag)
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/configs/models/%s.json", root == NULL ? "." : root, name);
    if (access(path, R_OK) != 0)
        return false;
    if (sbp_json_open(path, tree, at, diag) != SBP_OK)
        fail_msg("%s", diag->text);
    (void)cJSON_SetNumberHelper(cJSON_GetObjectItem(*tree, "global_batch"), 64);
    (void)cJSON_SetNumberHelper(cJSON_GetObjectItem(*tree, "sequence"), 4096);
    return true;
}

/* What is shipped is what is imported: operators, parameters and flops. */
static void test_shipped(void **state)
{
    (void)state;
    const struct sbp_import_options options = {.global_batch = 64, .sequence = 4096};
    int count = 0;
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        struct sbp_diag diag = {{0}};
        struct cJSON *tree = NULL, *model = NULL, *file = NULL;
        struct sbp_json at, imported, shipped;
        struct sbp_graph graph, other;
        if (!open_shipped(MODELS[i].name, &file, &shipped, &diag))
            continue;
        if (sbp_json_parse(MODELS[i].config, MODELS[i].name, &tree, &at, &diag) != SBP_OK ||
            sbp_import_hf(&at, &options, &model, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        sbp_json_at(model, MODELS[i].name, &diag, &imported);
        if (sbp_graph_read(&imported, &graph) != SBP_OK ||
            sbp_graph_read(&shipped, &other) != SBP_OK)
            fail_msg("%s", diag.text);
        assert_int_equal(graph.op_count, other.op_count);
        for (int op = 0; op < graph.op_count; op++) {
            assert_int_equal(graph.op[op].kind, other.op[op].kind);
            assert_int_equal(graph.op[op].attention.window, other.op[op].attention.window);
        }
        assert_int_equal(graph.parameters, other.parameters);
        assert_true(sbp_op_model_flops(&graph) == sbp_op_model_flops(&other));
        sbp_graph_free(&graph);
        sbp_graph_free(&other);
        cJSON_Delete(model);
        cJSON_Delete(tree);
        cJSON_Delete(file);
        count++;
    }
    assert_int_equal(count, 5);
}

/* Published files, where they are: their models' published totals. */
static void test_published_configs(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int64_t sequence, parameters;
    } rows[] = {
        {"gpt2_config.json", 1024, INT64_C(124439808)},
        /* GPT-2 medium's 354,823,168 with a vocabulary of 32000 in place of 50257 */
        {"gpt2-medium_vocab32000_config.json", 1024, INT64_C(354823168) - 1024 * 18257},
        {"meta-llama--Llama-2-7b-chat-hf_config.json", 4096, INT64_C(6738415616)},
        {"meta-llama--Meta-Llama-3.1-8B_config.json", 8192, INT64_C(8030261248)},
        {"meta-llama--Meta-Llama-3.1-70B_config.json", 8192, INT64_C(70553706496)},
        {"mistralai--Mixtral-8x7B-v0.1_config.json", 4096, INT64_C(46702792704)},
        {"Qwen--Qwen3-8B_config.json", 4096, INT64_C(8190735360)},
        {"deepseek-ai--DeepSeek-V3_config.json", 4096, INT64_C(671026419200)},
        {"bert-large-uncased_nvidia_config.json", 512, INT64_C(335141888)},
        {"google--vit-base-patch16-224_config.json", 0, INT64_C(86567656)},
    };
    const char *root = getenv("SBP_SOURCE_ROOT");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sbp_import_options options = {
            .global_batch = 64, .sequence = rows[i].sequence, .precision = "mixed"};
        struct sbp_diag diag = {{0}};
        struct cJSON *tree = NULL, *model = NULL;
        struct sbp_json at;
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/../shared/data/hf/%s", root == NULL ? "." : root,
                       rows[i].file);
        if (access(path, R_OK) != 0) {
            print_message("skipped: %s is not there\n", path);
            skip();
            return;
        }
        if (sbp_json_open(path, &tree, &at, &diag) != SBP_OK ||
            sbp_import_hf(&at, &options, &model, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        assert_parameters(rows[i].file, model, rows[i].parameters);
        cJSON_Delete(model);
        cJSON_Delete(tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_published_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

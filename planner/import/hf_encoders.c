/* Encoders and models of images: bert, vit, resnet. */
#include "planner/import/hf_families_priv.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

static const char *const GELU[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
static const char *const RELU[] = {"relu", NULL};

/* ---- bert ---- */

static const struct sbp_import_field BERT[] = {
    SIZE("layers", "num_hidden_layers"),
    SIZE("hidden", "hidden_size"),
    SIZE("heads", "num_attention_heads"),
    SIZE("ffn", "intermediate_size"),
    SIZE("vocab", "vocab_size"),
    SIZE("positions", "max_position_embeddings"),
    MAYBE("types", "type_vocab_size", 2),
    NUMBER("epsilon", "layer_norm_eps", 1e-12),
    CHANCE("dropout", "hidden_dropout_prob", 0.1),
    CHANCE("attention_dropout", "attention_probs_dropout_prob", 0.1),
    END};
static const struct sbp_import_switch BERT_SWITCHES[] = {
    {"is_decoder", false}, {"add_cross_attention", false}, {NULL, false}};

/* In model files the last layer of a masked language model shares the embedding's table. */
static enum sbp_status must_be_tied(const struct sbp_import *import)
{
    struct sbp_json member;
    bool tied = true;
    if (sbp_import_given(&import->config, "tie_word_embeddings", &member))
        SBP_TRY(sbp_json_bool(&member, &tied));
    return tied ? SBP_OK
                : sbp_json_refuse(&member, "false is not supported for a masked language model, "
                                           "supported is true");
}

/* Takes the head of the published weights; where none is named, the encoder and its pooler. */
static enum sbp_status rest_of_bert(struct sbp_import *import)
{
    struct sbp_json member;
    const char *head = "pooler";
    if (sbp_import_given(&import->config, "position_embedding_type", &member)) {
        const char *type;
        SBP_TRY(sbp_json_string(&member, &type));
        if (strcmp(type, "absolute") != 0)
            return sbp_json_refuse(&member, "\"%.40s\" is not supported, supported is absolute",
                                   type);
    }
    const char *name = sbp_import_class_of(import);
    if (strcmp(name, "BertForPreTraining") == 0)
        sbp_import_note(import, "BertForPreTraining: next sentence prediction is left out");
    else if (strcmp(name, "BertForMaskedLM") != 0 && strcmp(name, "BertModel") != 0)
        sbp_import_note_other_head(import, "the encoder and its pooler");
    if (strcmp(name, "BertForMaskedLM") == 0 || strcmp(name, "BertForPreTraining") == 0) {
        head = "mlm";
        SBP_TRY(must_be_tied(import));
    }
    sbp_import_put_text(import, "head", head);
    return SBP_OK;
}

/* ---- images ---- */

/* The number of classes of the head, from their names or from their count. */
static enum sbp_status put_classes(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t classes;
    if (sbp_import_given(&import->config, "id2label", &member)) {
        if (!cJSON_IsObject(member.node) || member.node->child == NULL)
            return sbp_json_refuse(&member, "expected an object with a name for each class");
        classes = cJSON_GetArraySize(member.node);
    } else if (sbp_import_given(&import->config, "num_labels", &member)) {
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &classes));
    } else {
        return sbp_json_refuse(&import->config,
                               "key \"id2label\" (or \"num_labels\") is missing: the classes of "
                               "the head; supported are models with one");
    }
    sbp_import_put_number(import, "classes", (double)classes);
    return SBP_OK;
}

static const struct sbp_import_field VIT[] = {
    SIZE("layers", "num_hidden_layers"),
    SIZE("hidden", "hidden_size"),
    SIZE("heads", "num_attention_heads"),
    SIZE("ffn", "intermediate_size"),
    MAYBE("image", "image_size", 224),
    MAYBE("patch", "patch_size", 16),
    MAYBE("channels", "num_channels", 3),
    NUMBER("epsilon", "layer_norm_eps", 1e-12),
    CHANCE("dropout", "hidden_dropout_prob", 0),
    CHANCE("attention_dropout", "attention_probs_dropout_prob", 0),
    FLAG("qkv_bias", "qkv_bias", 1),
    END};

static const struct sbp_import_field RESNET[] = {MAYBE("channels", "num_channels", 3), END};
static const struct sbp_import_switch RESNET_SWITCHES[] = {
    {"downsample_in_first_stage", false}, {"downsample_in_bottleneck", false}, {NULL, false}};

static bool same_list(const struct cJSON *list, const int *values, int count)
{
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != count)
        return false;
    for (int i = 0; i < count; i++) {
        const struct cJSON *element = cJSON_GetArrayItem(list, i);
        if (!cJSON_IsNumber(element) || element->valuedouble != values[i])
            return false;
    }
    return true;
}

/* Finds the published depth with these blocks, their kind and their widths. */
static enum sbp_status rest_of_resnet(struct sbp_import *import)
{
    static const struct {
        int depth, blocks[4];
        bool basic;
    } DEPTHS[] = {{18, {2, 2, 2, 2}, true},
                  {34, {3, 4, 6, 3}, true},
                  {50, {3, 4, 6, 3}, false},
                  {101, {3, 4, 23, 3}, false},
                  {152, {3, 8, 36, 3}, false}};
    static const int WIDTHS[2][4] = {{256, 512, 1024, 2048}, {64, 128, 256, 512}};
    struct sbp_json depths, widths, type;
    const char *layer = "bottleneck";
    SBP_TRY(sbp_json_member(&import->config, "depths", &depths));
    SBP_TRY(sbp_json_member(&import->config, "hidden_sizes", &widths));
    if (sbp_import_given(&import->config, "layer_type", &type))
        SBP_TRY(sbp_json_string(&type, &layer));
    SBP_TRY(sbp_import_must_be(import, "embedding_size", 64, "a published size"));
    const bool basic = strcmp(layer, "basic") == 0;
    if (!basic && strcmp(layer, "bottleneck") != 0)
        return sbp_json_refuse(&type,
                               "\"%.40s\" is not supported, supported are basic and "
                               "bottleneck",
                               layer);
    if (!same_list(widths.node, WIDTHS[basic ? 1 : 0], 4))
        return sbp_json_refuse(&widths, "supported are the published widths of %s layers", layer);
    for (size_t i = 0; i < sizeof DEPTHS / sizeof DEPTHS[0]; i++)
        if (DEPTHS[i].basic == basic && same_list(depths.node, DEPTHS[i].blocks, 4)) {
            sbp_import_put_number(import, "depth", DEPTHS[i].depth);
            return put_classes(import);
        }
    return sbp_json_refuse(&depths,
                           "no published depth of %s layers, supported are those of "
                           "ResNet-18, 34, 50, 101 and 152",
                           layer);
}

const struct sbp_import_family sbp_import_encoders[] = {
    {"bert", "bert", BERT, BERT_SWITCHES, GELU, false, false, rest_of_bert},
    {"vit", "vit", VIT, NULL, GELU, true, false, put_classes},
    {"resnet", "resnet", RESNET, RESNET_SWITCHES, RELU, true, true, rest_of_resnet},
    {.name = NULL},
};

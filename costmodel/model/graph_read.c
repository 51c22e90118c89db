/* Reads a model file: the common keys, then the form that it has. */
#include "costmodel/model/graph_read_priv.h"

static enum sbp_status read_sizes(const struct sbp_json *at, struct sbp_graph *graph)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, "name", &member));
    SBP_TRY(sbp_json_name(&member, graph->name, (int)sizeof graph->name));
    SBP_TRY(sbp_build_require(at, "global_batch", SBP_MOST_SIZE, &graph->global_batch));
    graph->sequence = 1;
    graph->micro_batch = graph->global_batch;
    return sbp_json_get_int64(at, "sequence", 1, SBP_MOST_SIZE, &graph->sequence);
}

static enum sbp_status read_attention(const struct sbp_json *at, enum sbp_attention_kind *kind)
{
    static const char *const NAMES[] = {"materialised", "flash", NULL};
    static const enum sbp_attention_kind KINDS[] = {SBP_ATTENTION_MATERIALISED,
                                                    SBP_ATTENTION_FLASH};
    int choice = 0;
    SBP_TRY(sbp_json_get_choice(at, "attention", NAMES, &choice));
    *kind = KINDS[choice];
    return SBP_OK;
}

static const struct sbp_architecture *const ARCHITECTURES[] = {
    &sbp_graph_gpt,  &sbp_graph_llama, &sbp_graph_mixtral,  &sbp_graph_deepseek,
    &sbp_graph_bert, &sbp_graph_vit,   &sbp_graph_vgg,      &sbp_graph_resnet,
    &sbp_graph_face, &sbp_graph_mlp,   &sbp_graph_wide_deep};
#define ARCHITECTURE_COUNT ((int)(sizeof ARCHITECTURES / sizeof ARCHITECTURES[0]))

static enum sbp_status read_architecture(const struct sbp_json *at, struct sbp_graph *graph,
                                         enum sbp_attention_kind attention)
{
    const char *names[ARCHITECTURE_COUNT + 1] = {0};
    struct sbp_blocks blocks = {.at = *at};
    struct sbp_json member;
    int choice;
    for (int i = 0; i < ARCHITECTURE_COUNT; i++)
        names[i] = ARCHITECTURES[i]->name;
    SBP_TRY(sbp_json_member(at, "architecture", &member));
    SBP_TRY(sbp_json_choice(&member, names, &choice));
    SBP_TRY(sbp_graph_check_keys(at, ARCHITECTURES[choice]->keys));
    return ARCHITECTURES[choice]->read(&blocks, graph, attention);
}

static enum sbp_status read_model(const struct sbp_json *at, struct sbp_graph *graph)
{
    enum sbp_attention_kind attention = SBP_ATTENTION_MATERIALISED;
    SBP_TRY(read_sizes(at, graph));
    SBP_TRY(sbp_graph_read_training(at, graph));
    SBP_TRY(read_attention(at, &attention));
    return sbp_json_has(at, "architecture") ? read_architecture(at, graph, attention)
                                            : sbp_graph_read_layers(at, graph, attention);
}

enum sbp_status sbp_graph_read(const struct sbp_json *at, struct sbp_graph *graph)
{
    *graph = (struct sbp_graph){.input = -1, .loss = -1};
    const enum sbp_status status = read_model(at, graph);
    if (status != SBP_OK)
        sbp_graph_free(graph);
    return status;
}

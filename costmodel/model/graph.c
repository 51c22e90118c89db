#include "costmodel/model/graph.h"

#include <assert.h>
#include <string.h>

#include "costmodel/model/graph_blocks.h"
#include "costmodel/model/op_cost.h"

/* --- reading --- */

enum sbp_status sbp_graph_check_keys(const struct sbp_json *at, const char *const *own)
{
    static const char *const COMMON[] = {"name",      "global_batch", "sequence",  "precision",
                                         "optimizer", "clip_norm",    "attention", "linears",
                                         "notes",     "architecture"};
    const char *known[SBP_MODEL_MOST_KEYS + 1] = {0};
    int count = 0;
    for (size_t i = 0; i < sizeof COMMON / sizeof COMMON[0]; i++)
        known[count++] = COMMON[i];
    for (int i = 0; own[i] != NULL; i++) {
        assert(count < SBP_MODEL_MOST_KEYS);
        known[count++] = own[i];
    }
    return sbp_json_keys(at, known);
}

static enum sbp_status read_sizes(const struct sbp_json *at, struct sbp_graph *graph)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, "name", &member));
    SBP_TRY(sbp_json_name(&member, graph->name, (int)sizeof graph->name));
    SBP_TRY(sbp_json_member(at, "global_batch", &member));
    SBP_TRY(sbp_json_int64(&member, 1, SBP_MOST_SIZE, &graph->global_batch));
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
    &sbp_gpt, &sbp_llama,  &sbp_mixtral, &sbp_deepseek, &sbp_bert,     &sbp_vit,
    &sbp_vgg, &sbp_resnet, &sbp_face,    &sbp_mlp,      &sbp_wide_deep};
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

void sbp_graph_free(struct sbp_graph *graph)
{
    if (graph == NULL)
        return;
    sbp_arena_free(&graph->arena);
    *graph = (struct sbp_graph){.input = -1, .loss = -1};
}

enum sbp_status sbp_graph_set_micro_batch(struct sbp_graph *graph, int64_t sequences,
                                          struct sbp_diag *diag)
{
    int batch = SBP_NO_CLASS;
    if (sequences < 1 || graph->global_batch % sequences != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: %lld, divisors of the global batch of %lld are "
                        "legal",
                        (long long)sequences, (long long)graph->global_batch);
    for (int t = 0; t < graph->tensor_count; t++) {
        if (graph->tensor[t].kind != SBP_ACTIVATION)
            continue;
        assert(graph->tensor[t].shape.size[SBP_DIM_BATCH] == graph->micro_batch);
        batch = graph->tensor[t].shape.dim_class[SBP_DIM_BATCH];
        graph->tensor[t].shape.size[SBP_DIM_BATCH] = sequences;
        if (batch != SBP_NO_CLASS)
            graph->dim_class[batch].size = sequences;
    }
    graph->micro_batch = sequences;
    return SBP_OK;
}

/* --- questions --- */

static bool reads(const struct sbp_op_node *op, int tensor)
{
    for (int i = 0; i < op->input_count; i++)
        if (op->input[i] == tensor)
            return true;
    for (int i = 0; i < op->weight_count; i++)
        if (op->weight[i] == tensor)
            return true;
    return false;
}

int sbp_graph_consumers(const struct sbp_graph *graph, int tensor, int *ops, int capacity)
{
    int count = 0;
    for (int i = 0; i < graph->op_count; i++) {
        if (!reads(&graph->op[i], tensor))
            continue;
        if (count < capacity)
            ops[count] = i;
        count++;
    }
    return count;
}

int64_t sbp_graph_tensor_parameters(const struct sbp_tensor *tensor)
{
    int64_t elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= dim == tensor->valid_dim ? tensor->valid_rows : tensor->shape.size[dim];
    return elements;
}

/* --- flops --- */

double sbp_op_forward_flops(const struct sbp_graph *graph, int op)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_work work = sbp_op_work(graph, op, &whole, SBP_PASS_FORWARD);
    return sbp_work_flops(&work);
}

double sbp_op_backward_flops(const struct sbp_graph *graph, int op)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_work input = sbp_op_work(graph, op, &whole, SBP_PASS_INPUT_GRADIENT);
    const struct sbp_work weights = sbp_op_work(graph, op, &whole, SBP_PASS_WEIGHT_GRADIENT);
    const bool skips = input.product_count > 0 && !sbp_op_forms_input_gradient(graph, op);
    return (skips ? 0 : sbp_work_flops(&input)) + sbp_work_flops(&weights);
}

double sbp_op_model_flops(const struct sbp_graph *graph)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    double flops = 0;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_work work = sbp_op_work(graph, op, &whole, SBP_PASS_FORWARD);
        const bool gradient =
            graph->op[op].weight_count == 0 || sbp_op_forms_input_gradient(graph, op);
        flops += (gradient ? 3 : 2) * work.model_flops;
    }
    return flops * (double)graph->global_batch / (double)graph->micro_batch;
}

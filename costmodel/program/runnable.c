#include "costmodel/program/runnable.h"

#include <stdio.h>

#include "costmodel/model/op_cost.h"

static enum sbp_status refuse(struct sbp_diag *diag, const char *where, const char *what,
                              const char *legal)
{
    return sbp_fail(diag, SBP_E_UNSUPPORTED, "plan: %s: %s is searched and priced, not run: %s",
                    where, what, legal);
}

/* Names of the operators that run, or of an operator's roles that do. */
static const char *operators_that_run(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int kind = 0; kind < SBP_OP_KINDS; kind++) {
        const struct sbp_op_entry *entry = sbp_op((enum sbp_op_kind)kind);
        if (entry->runs && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     entry->name);
    }
    return text;
}

/* An operator in place overwrites what nobody else reads any more: neither the gradient of its
 * input's producer, nor, of its own gradient, the other operand of a sum that shares it. */
static bool overwrites(const struct sbp_graph *graph, const struct sbp_op_node *node)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const int producer = graph->tensor[node->input[0]].producer;
    int reader[2];
    const int readers = sbp_graph_consumers(graph, node->output, reader, 2);
    return (producer >= 0 && sbp_op_kept(graph, producer, &whole).output) ||
           (readers == 1 && graph->op[reader[0]].kind == SBP_OP_ADD);
}

/* Experts with gates whose tokens choose them by scores alone; the gradient of their input is
 * formed before those of weights, which need what that leaves. */
static enum sbp_status check_mixture(const struct sbp_graph *graph, int op, struct sbp_diag *diag)
{
    const struct sbp_op_node *node = &graph->op[op];
    const int64_t *first = graph->tensor[node->weight[1]].shape.size;
    if (!sbp_op_forms_input_gradient(graph, op))
        return refuse(diag, node->name, "moe of the model's input",
                      "an operator with weights before it is legal");
    if (first[SBP_DIM_OUT_INNER] != 2)
        return refuse(diag, node->name, "a mixture of experts without gates", "gated is legal");
    if (node->moe.nodes_per_token > 0 && node->moe.groups == 0)
        return refuse(diag, node->name, "a limit of the nodes of a token's experts",
                      "expert_groups says which lie on a node");
    return SBP_OK;
}

static enum sbp_status check_op(const struct sbp_graph *graph, int op, struct sbp_diag *diag)
{
    const struct sbp_op_node *node = &graph->op[op];
    char legal[512], list[448];
    if (!node->entry->runs) {
        (void)snprintf(legal, sizeof legal, "legal are %s", operators_that_run(list, sizeof list));
        return refuse(diag, node->name, node->entry->name, legal);
    }
    if (node->kind == SBP_OP_LATENT_ATTENTION && sbp_op_latent_parts(graph, node).rope % 2 != 0)
        return refuse(diag, node->name, "an odd number of features that are turned in pairs",
                      "an even rope is legal");
    if (node->kind == SBP_OP_GROUPED_ATTENTION && node->weight_count > 0 &&
        node->attention.kind != SBP_ATTENTION_FLASH)
        return refuse(diag, node->name, "a sink of each head beside probabilities that are kept",
                      "attention \"flash\" is legal");
    if (node->entry->in_place && overwrites(graph, node))
        return refuse(diag, node->name, "rotary behind attention or tanh, or alone before add",
                      "a linear or a norm before it and attention behind it are legal");
    if (node->kind == SBP_OP_MOE)
        SBP_TRY(check_mixture(graph, op, diag));
    return SBP_OK;
}

static enum sbp_status check_parallel(const struct sbp_graph *graph,
                                      const struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    if (parallel->chunk_factor > 0 && graph->training.clip_norm > 0)
        return refuse(diag, "parallel: chunk_factor",
                      "sums of gradients beside the optimizer and a norm of all of them",
                      "0 is legal, or clip_norm 0");
    if (parallel->chunk_factor > 0 && parallel->owner != SBP_OWNER_NONE)
        return refuse(diag, "parallel: chunk_factor", "sums to an owner beside the optimizer",
                      "0 is legal, or owner none");
    if (parallel->chunk_factor > 0 && parallel->zero > 0)
        return refuse(diag, "parallel: chunk_factor", "sums over shards beside the optimizer",
                      "0 is legal, or zero 0");
    return SBP_OK;
}

enum sbp_status sbp_runnable_check(const struct sbp_graph *graph,
                                   const struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    if (parallel != NULL)
        SBP_TRY(check_parallel(graph, parallel, diag));
    for (int op = 0; op < graph->op_count; op++)
        SBP_TRY(check_op(graph, op, diag));
    return SBP_OK;
}

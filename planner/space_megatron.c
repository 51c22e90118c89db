/* The `megatron` space: on a given mesh every variable has one choice, batch and one role beside it
 * (Shoeybi et al., 2020, section 3).
 */
#include <stddef.h>

#include "planner/space_build.h"

static bool is_split_by_column(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR || node->kind == SBP_OP_CONV2D;
}

/* Operators that leave the features' split of their first input alone. */
static bool keeps_features(const struct sbp_op_node *node)
{
    switch (node->kind) {
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
    case SBP_OP_MAXPOOL:
    case SBP_OP_AVGPOOL:
    case SBP_OP_FLATTEN:
    case SBP_OP_BATCHNORM:
        return true;
    default:
        return node->entry->follows && node->weight_count == 0;
    }
}

void sbp_megatron_pair(struct sbp_space_maker *maker)
{
    const struct sbp_graph *graph = maker->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        if (!is_split_by_column(&graph->op[op]))
            continue;
        int at = graph->tensor[graph->op[op].input[0]].producer;
        while (at >= 0 && graph->op[at].input_count > 0 && keeps_features(&graph->op[at]))
            at = graph->tensor[graph->op[at].input[0]].producer;
        maker->row_linear[op] =
            at >= 0 && is_split_by_column(&graph->op[at]) && !maker->row_linear[at];
    }
}

/* The one role besides batch that a variable plays, the first of these that it has. */
static int megatron_role(const struct sbp_space_maker *maker, int variable)
{
    static const char *const NAMES[] = {"vocab",   "head",    "column",
                                        "feature", "channel", "grid_column"};
    const struct sbp_space_variable *v = &maker->space->variable[variable];
    if (v->op < 0)
        return SBP_DIM_FEATURE;
    const struct sbp_op_entry *entry = sbp_space_entry(maker->space->graph, v->op);
    if (maker->row_linear[v->op])
        return sbp_op_role(entry, "row");
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (sbp_op_role(entry, NAMES[i]) >= 0)
            return sbp_op_role(entry, NAMES[i]);
    return 0;
}

void sbp_megatron_choose(const struct sbp_space_maker *maker, int variable, uint8_t *count)
{
    const struct sbp_space *space = maker->space;
    const int op = space->variable[variable].op;
    const int named =
        op < 0 ? SBP_DIM_BATCH : sbp_op_role(sbp_space_entry(space->graph, op), "batch");
    const int batch = named < 0 ? 0 : named;
    const int role = megatron_role(maker, variable);
    for (int f = 0; f < space->mesh->family_count; f++) {
        count[f * SBP_MAX_ROLES + batch] = (uint8_t)maker->megatron->batch[f];
        count[f * SBP_MAX_ROLES + role] =
            (uint8_t)(space->mesh->family[f].count - maker->megatron->batch[f]);
    }
}

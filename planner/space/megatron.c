/* The `megatron` spaces: on a given mesh every variable has one choice, batch and one other role
 * (Shoeybi et al., 2020, section 3). */
#include <stddef.h>
#include <string.h>

#include "planner/space/domain_build.h"
#include "planner/space/space_table.h"

static bool is_split_by_column(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR || node->kind == SBP_OP_CONV2D;
}

/* Whether an operator keeps the features' split of its first input. */
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

enum sbp_status sbp_megatron_node_mesh(const struct sbp_cut *cut,
                                       struct sbp_megatron_mesh *megatron, struct sbp_diag *diag)
{
    const struct sbp_mesh *mesh = &cut->mesh;
    *megatron = (struct sbp_megatron_mesh){{0}};
    if (mesh->level_count < 2)
        return sbp_fail(diag, SBP_E_INPUT,
                        "cluster: levels: one has nothing inside, where space megatron-node splits "
                        "tensors; two and more are legal");
    for (int f = 0; f < mesh->family_count; f++)
        megatron->batch[f] = mesh->family[f].level == 0 ? mesh->family[f].count : 0;
    return SBP_OK;
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

/* Operators of the residual stream, which its split alone decides. */
static bool keeps_tokens(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_ADD || node->kind == SBP_OP_PATCH_EMBEDDING;
}

/* Convolutions and the operators between them: most of the work, few of the weights. */
static bool is_of_images(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_CONV2D || node->kind == SBP_OP_MAXPOOL ||
           node->kind == SBP_OP_AVGPOOL || node->kind == SBP_OP_FLATTEN;
}

/* The one role besides batch of an operator's variable: the first of NAMES that it has. */
static int tensor_role(const struct sbp_space_maker *maker, int op, bool tokens)
{
    static const char *const NAMES[] = {"vocab",   "head",    "column",
                                        "feature", "channel", "grid_column"};
    const struct sbp_op_entry *entry = sbp_space_entry(maker->space->graph, op);
    if (maker->row_linear[op])
        return sbp_op_role(entry, "row");
    if (tokens && keeps_tokens(&maker->space->graph->op[op]))
        return sbp_op_role(entry, "sequence");
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (sbp_op_role(entry, NAMES[i]) >= 0)
            return sbp_op_role(entry, NAMES[i]);
    return 0;
}

static void choose_roles(const struct sbp_space_maker *maker, int op, enum sbp_megatron_way way,
                         uint8_t *count)
{
    const struct sbp_mesh *mesh = maker->space->mesh;
    const int named = sbp_op_role(sbp_space_entry(maker->space->graph, op), "batch");
    const int batch = named < 0 ? 0 : named;
    const bool data_alone = way == SBP_MEGATRON_IMAGES || way == SBP_MEGATRON_DATA;
    const int role = data_alone ? batch : tensor_role(maker, op, way == SBP_MEGATRON_TOKENS);
    for (int f = 0; f < mesh->family_count; f++) {
        const int data = maker->megatron->batch[f];
        count[f * SBP_MAX_ROLES + batch] = (uint8_t)data;
        count[f * SBP_MAX_ROLES + role] += (uint8_t)(mesh->family[f].count - data);
    }
}

/* Splits stay as the operator leaves them; partial sums become the residual stream's split. */
static void choose_rest(const struct sbp_space_maker *maker, const struct sbp_output_edge *edge,
                        int dim, uint8_t *count)
{
    const struct sbp_space *space = maker->space;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *played = sbp_tuple_count(space, edge->op_variable, 0, f);
        for (int r = 0; r < space->variable[edge->op_variable].role_count; r++) {
            const struct sbp_state left = sbp_space_output_state(space, edge->op, r);
            const int to = left.kind == SBP_SPLIT ? left.dim : dim;
            count[f * SBP_MAX_ROLES + to] += played[r];
        }
    }
}

/* Splits the model's input. */
static void choose_input(const struct sbp_space_maker *maker, int dim, uint8_t *count)
{
    const struct sbp_mesh *mesh = maker->space->mesh;
    for (int f = 0; f < mesh->family_count; f++) {
        const int data = maker->megatron->batch[f];
        count[f * SBP_MAX_ROLES + SBP_DIM_BATCH] = (uint8_t)data;
        count[f * SBP_MAX_ROLES + dim] = (uint8_t)(mesh->family[f].count - data);
    }
}

bool sbp_megatron_goes(const struct sbp_space_maker *maker, int variable, enum sbp_megatron_way way)
{
    const struct sbp_space *space = maker->space;
    const int op = space->variable[variable].op;
    const struct sbp_op_node *node = op < 0 ? NULL : &space->graph->op[op];
    switch (way) {
    case SBP_MEGATRON_IMAGES:
        return node != NULL && is_of_images(node);
    case SBP_MEGATRON_TOKENS:
        return sbp_space_rule(space->request->asked.space)->splits_tokens;
    case SBP_MEGATRON_FEATURES:
        return true;
    default:
        return node != NULL && node->kind == SBP_OP_LINEAR;
    }
}

void sbp_megatron_choose(const struct sbp_space_maker *maker, int variable,
                         enum sbp_megatron_way way, uint8_t *count)
{
    const struct sbp_space *space = maker->space;
    const int op = space->variable[variable].op;
    const int dim = way == SBP_MEGATRON_TOKENS ? SBP_DIM_SEQUENCE : SBP_DIM_FEATURE;
    memset(count, 0, (size_t)space->mesh->family_count * SBP_MAX_ROLES);
    if (op >= 0) {
        choose_roles(maker, op, way, count);
        return;
    }
    for (int k = 0; k < space->output_edge_count; k++)
        if (space->output_edge[k].rest_variable == variable) {
            choose_rest(maker, &space->output_edge[k], dim, count);
            return;
        }
    choose_input(maker, dim, count);
}

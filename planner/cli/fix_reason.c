#include "planner/cli/fix_reason_priv.h"

#include <stdio.h>

#include "base/math/numeric.h"

/* Ways that a role splits the layer over all levels; a level that is not given counts as 1. */
static int64_t parts_of(const struct sbp_plan *plan, const struct sbp_fix *fix, int role)
{
    int64_t parts = 1;
    for (int level = 0; level < plan->cut.stage.level_count; level++)
        if (fix->factor[role][level] != SBP_ANY &&
            !sbp_mul_i64(parts, fix->factor[role][level], &parts))
            return INT64_MAX;
    return parts;
}

static bool level_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix, int level,
                         char *buffer)
{
    const struct sbp_level *stage = &plan->cut.stage.level[level];
    int64_t parts = 1;
    for (int role = 0; role < plan->cut.graph.op[op].entry->role_count; role++)
        if (fix->factor[role][level] != SBP_ANY &&
            !sbp_mul_i64(parts, fix->factor[role][level], &parts))
            parts = INT64_MAX;
    if (stage->size % parts == 0)
        return false;
    (void)snprintf(buffer, SBP_FIX_REASON_BYTES,
                   "the factors at level \"%s\" make %lld parts, which do not divide its %lld "
                   "members%s",
                   stage->name, (long long)parts, (long long)stage->size,
                   plan->cut.parallel.pipeline > 1 ? " in a stage" : "");
    return true;
}

static bool operand_reason(const struct sbp_plan *plan, const char *role, int tensor,
                           struct sbp_state state, int64_t parts, char *buffer)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    if (state.kind != SBP_SPLIT || tensor < 0)
        return false;
    const struct sbp_shape *shape = &graph->tensor[tensor].shape;
    const int dim_class = shape->dim_class[state.dim];
    const bool by_batch = dim_class != SBP_NO_CLASS && graph->micro_batch < graph->global_batch &&
                          shape->size[state.dim] == graph->micro_batch &&
                          state.dim == SBP_DIM_BATCH &&
                          graph->tensor[tensor].kind == SBP_ACTIVATION;
    if (dim_class != SBP_NO_CLASS && shape->size[state.dim] % parts == 0)
        return false;
    if (dim_class == SBP_NO_CLASS)
        (void)snprintf(buffer, SBP_FIX_REASON_BYTES,
                       "role %s splits %s, which nothing may split there", role,
                       graph->tensor[tensor].name);
    else
        (void)snprintf(buffer, SBP_FIX_REASON_BYTES,
                       "role %s splits %s (%lld%s) into %lld parts, which do not divide it", role,
                       graph->dim_class[dim_class].name, (long long)shape->size[state.dim],
                       by_batch ? ", a micro-batch" : "", (long long)parts);
    return true;
}

/* A tied table is stored transposed. */
static struct sbp_state stored(const struct sbp_op_node *node, int weight, struct sbp_state state)
{
    if (state.kind == SBP_SPLIT && weight == 0 && node->transposed_weight)
        state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return state;
}

static bool role_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix, int index,
                        char *buffer)
{
    const struct sbp_op_node *node = &plan->cut.graph.op[op];
    const struct sbp_role *role = &node->entry->role[index];
    const int64_t parts = parts_of(plan, fix, index);
    bool found = false;
    if (parts == 1)
        return false;
    for (int w = 0; w < node->weight_count && !found; w++)
        found = operand_reason(plan, role->name, node->weight[w], stored(node, w, role->weight[w]),
                               parts, buffer);
    for (int i = 0; i < node->input_count && !found; i++)
        found = operand_reason(plan, role->name, node->input[i], role->input[i], parts, buffer);
    return found || operand_reason(plan, role->name, node->output, role->output, parts, buffer);
}

const char *sbp_fix_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix,
                           char *buffer)
{
    buffer[0] = '\0';
    for (int level = 0; level < plan->cut.stage.level_count; level++)
        if (level_reason(plan, op, fix, level, buffer))
            return buffer;
    for (int role = 0; role < plan->cut.graph.op[op].entry->role_count; role++)
        if (role_reason(plan, op, fix, role, buffer))
            return buffer;
    return buffer;
}

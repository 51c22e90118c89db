#include "planner/report/operands.h"

#include <stdio.h>

int sbp_operands_of(const struct sbp_plan *plan, int op,
                    struct sbp_operand operand[SBP_MOST_OPERANDS])
{
    const struct sbp_graph *graph = &plan->cut.graph;
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_strategy *strategy = &plan->strategy;
    int count = 0;
    for (int i = 0; i < node->input_count; i++)
        operand[count++] = (struct sbp_operand){
            "input", node->input[i], sbp_strategy_input(graph, &plan->cut.mesh, strategy, op, i)};
    for (int w = 0; w < node->weight_count; w++) {
        operand[count++] =
            (struct sbp_operand){"weight", node->weight[w],
                                 sbp_strategy_weight(graph, &plan->cut.mesh, strategy, op, w)};
        operand[count++] =
            (struct sbp_operand){"gradient", node->weight[w],
                                 sbp_strategy_gradient(graph, &plan->cut.mesh, strategy, op, w)};
    }
    if (node->output >= 0) {
        operand[count++] = (struct sbp_operand){
            "output", node->output, sbp_strategy_output(graph, &plan->cut.mesh, strategy, op)};
        operand[count++] =
            (struct sbp_operand){"rests", node->output, strategy->rest[node->output]};
    }
    return count;
}

const char *sbp_operands_shape_text(const struct sbp_shape *shape, char text[SBP_SHAPE_BYTES])
{
    int used = 0;
    text[0] = '\0';
    for (int dim = 0; dim < SBP_MAX_DIMS && used < SBP_SHAPE_BYTES; dim++)
        used += snprintf(text + used, (size_t)(SBP_SHAPE_BYTES - used), "%s%lld",
                         dim == 0 ? "" : "x", (long long)shape->size[dim]);
    return text;
}

const char *sbp_operands_group_text(const struct sbp_plan *plan, const struct sbp_instr *instr,
                                    char text[SBP_GROUP_BYTES])
{
    const struct sbp_group group = sbp_collective_group_of(&plan->cut.mesh, instr->box.axes);
    int used = 0;
    text[0] = '\0';
    if (instr->stages > 1)
        used = snprintf(text, SBP_GROUP_BYTES, "stages %d", instr->stages);
    for (int level = 0; level < plan->cut.mesh.level_count && used < SBP_GROUP_BYTES; level++)
        if (group.members[level] > 1)
            used += snprintf(text + used, (size_t)(SBP_GROUP_BYTES - used), "%s%s %.0f",
                             used > 0 ? " x " : "", plan->workload.cluster.level[level].name,
                             group.members[level]);
    return text;
}

/* Roles and rests of the layout in memory_plan.h. */
#include "tests/papers/memory_strategy.h"

#include <string.h>

enum place { DATA, CONTEXT, TENSOR };

/* Says what an axis is used for: data axes stand outermost, tensor axes innermost. */
static enum place place_of(const struct sbp_mesh *mesh, const struct memory_case *question,
                           int axis)
{
    const int64_t stride = mesh->axis[axis].stride;
    if (stride < question->tensor)
        return TENSOR;
    return stride < question->tensor * question->context ? CONTEXT : DATA;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The role on tensor axes. Followers play what their input's rest makes them. */
static const char *tensor_role(const struct sbp_op_node *op, const struct memory_case *question)
{
    switch (op->kind) {
    case SBP_OP_EMBEDDING:
    case SBP_OP_CROSS_ENTROPY:
        return question->vocabulary_split ? "vocab" : "sequence";
    case SBP_OP_LINEAR:
        if (strcmp(op->name, "head") == 0)
            return question->vocabulary_split ? "column" : "sequence";
        return ends_with(op->name, "projection") || ends_with(op->name, "down") ? "row" : "column";
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
        return "head";
    default:
        return question->sequence_parallel ? "sequence" : "replicate";
    }
}

static const char *role_name(const struct sbp_op_node *op, const struct memory_case *question,
                             enum place place)
{
    if (place == DATA)
        return "batch";
    if (place == CONTEXT)
        return sbp_op_role(op->entry, "context") >= 0 ? "context" : "sequence";
    return tensor_role(op, question);
}

/* The state that an output rests in on an axis: split where the role leaves it split, partial sums
 * all-reduced, or reduce-scattered by sequence. */
static struct sbp_state rest_of(const struct sbp_graph *graph, const struct sbp_strategy *strategy,
                                const struct memory_case *question, int op, int axis)
{
    const struct sbp_op_node *node = &graph->op[op];
    if (node->entry->follows)
        return strategy->rest[node->input[0]].axis[axis];
    const struct sbp_state left = node->entry->role[strategy->op[op].role[axis]].output;
    if (left.kind != SBP_PARTIAL)
        return left;
    return question->sequence_parallel ? SBP_STATE_S(SBP_DIM_SEQUENCE) : SBP_STATE_B;
}

void memory_strategy_fill(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                          const struct memory_case *question, struct sbp_strategy *strategy)
{
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int axis = 0; axis < mesh->axis_count; axis++) {
            const enum place place = place_of(mesh, question, axis);
            const int role = sbp_op_role(node->entry, role_name(node, question, place));
            strategy->op[op].role[axis] = (uint8_t)(role < 0 ? 0 : role);
        }
        for (int axis = 0; node->output >= 0 && axis < mesh->axis_count; axis++)
            strategy->rest[node->output].axis[axis] = rest_of(graph, strategy, question, op, axis);
    }
}

#include "planner/owners.h"

/* What is known at a place of the program, walking through it in order. */
struct walk {
    const struct sbp_program *program;
    int *owner;
    int last_op;  /* operator of the last forward or backward instruction; -1 */
    int last_box; /* the last boxing step; -1 */
};

static int next_forward(const struct sbp_program *program, int from)
{
    for (int i = from; i < program->instr_count; i++)
        if (program->instr[i].kind == SBP_INSTR_FORWARD)
            return program->instr[i].op;
    return -1;
}

/* The reader of a tensor whose backward pass is under way: the last operator seen, or, where that
 * does not read it, the one just before it that computes nothing backward (a sum). */
static int backward_reader(const struct walk *walk, int tensor)
{
    const struct sbp_graph *graph = walk->program->graph;
    const int count = sbp_graph_consumers(graph, tensor, NULL, 0);
    int reader = -1;
    for (int op = 0; count > 0 && op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++) {
            if (node->input[i] != tensor)
                continue;
            if (op == walk->last_op)
                return op;
            if (op < walk->last_op || walk->last_op < 0 || reader < 0)
                reader = op;
        }
    }
    return reader;
}

/* A chain of steps either starts where the tensor rests or ends there. */
static int boxing_owner(const struct walk *walk, int at)
{
    const struct sbp_program *program = walk->program;
    const struct sbp_instr *instr = &program->instr[at];
    const struct sbp_dist *rest = &program->strategy.rest[instr->tensor];
    const bool from_rest = sbp_dist_equal(&program->mesh, &instr->box.from, rest);
    const bool goes_on = walk->last_box >= 0 && program->instr[walk->last_box].buffer[SBP_AT_OUT] ==
                                                    instr->buffer[SBP_AT_IN];
    const int producer = program->graph->tensor[instr->tensor].producer;
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT)
        return walk->last_op;
    if (instr->cause == SBP_CAUSE_ACTIVATION && from_rest)
        return next_forward(program, at);
    if (instr->cause == SBP_CAUSE_ACTIVATION_GRADIENT && from_rest)
        return producer;
    if (goes_on)
        return walk->owner[walk->last_box];
    return instr->cause == SBP_CAUSE_ACTIVATION ? producer : backward_reader(walk, instr->tensor);
}

static int weight_user(const struct sbp_graph *graph, int tensor)
{
    for (int op = 0; op < graph->op_count; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++)
            if (graph->op[op].weight[w] == tensor)
                return op;
    return -1;
}

void sbp_program_owners(const struct sbp_program *program, int *owner)
{
    struct walk walk = {.program = program, .owner = owner, .last_op = -1, .last_box = -1};
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        owner[i] = instr->op;
        if (instr->kind == SBP_INSTR_BOX) {
            owner[i] = boxing_owner(&walk, i);
            walk.last_box = i;
        } else if (instr->kind == SBP_INSTR_UPDATE) {
            owner[i] = weight_user(program->graph, instr->tensor);
        } else if (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) {
            walk.last_op = instr->op;
        }
    }
}

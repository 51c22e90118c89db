/* Memory of the space: what is certainly live together when the forward pass ends, weights and
 * their states, what backward reads of activations, gathered copies. A lower bound of the program's
 * arena, so that what it rules out is ruled out; the compiled program has the last word.
 */
#include "planner/space_price.h"

/* ---- activations that no choice changes ----------------------------------------------------- */

/* Operators that keep their input in a form of their own, gathered or free: linears. */
static bool keeps_own_input(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR;
}

/* Whether backward reads the tensor in the block where it rests (or in one of the same size). */
static bool kept_at_rest(const struct sbp_graph *graph, int tensor)
{
    const struct sbp_factor whole = sbp_factor_one();
    const int producer = graph->tensor[tensor].producer;
    if (producer >= 0 && sbp_op_kept(graph, producer, &whole).output)
        return true;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++)
            if (node->input[i] == tensor && !keeps_own_input(node) &&
                (sbp_op_kept(graph, op, &whole).inputs >> i & 1))
                return true;
    }
    return false;
}

/* Bytes that an operator keeps beside its operands, over all devices. What followers keep besides
 * are a norm's statistics, which are small and left out. */
static double saved_bytes(const struct sbp_graph *graph, int op, double element_bytes)
{
    const struct sbp_factor whole = sbp_factor_one();
    const struct sbp_op_kept kept = sbp_op_kept(graph, op, &whole);
    const bool follows = graph->op[op].entry->follows;
    return kept.bytes + (follows ? 0 : kept.elements * element_bytes);
}

/* The operator that reads a tensor and writes its output over it; -1. */
static int overwriter(const struct sbp_graph *graph, int tensor)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].entry->in_place && graph->op[op].input[0] == tensor)
            return op;
    return -1;
}

double sbp_space_constant_bytes(const struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    const double element = (double)space->pricing.bytes.activation;
    double bytes = 0;
    for (int t = 0; t < graph->tensor_count; t++)
        if (graph->tensor[t].kind == SBP_ACTIVATION && overwriter(graph, t) < 0 &&
            kept_at_rest(graph, t))
            bytes += sbp_space_elements(space, t) * element;
    for (int op = 0; op < graph->op_count; op++)
        if (space->parallel->recompute != SBP_RECOMPUTE_ATTENTION ||
            !sbp_space_is_attention(graph->op[op].kind))
            bytes += saved_bytes(graph, op, element);
    if (sbp_space_forms_again(space))
        bytes = 0; /* inputs of segments are kept, and more than this knows of */
    return space->kept_weight * bytes / (double)space->mesh->devices;
}

/* ---- what a choice changes ------------------------------------------------------------------ */

/* A linear keeps its input: a copy of its own when it is gathered (and not gathered once more for
 * backward) or free, else the block at rest, which is counted once for all readers. */
static double kept_input_bytes(const struct sbp_space *space, int op,
                               const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_group gather =
        sbp_space_group(node->entry, factors, SBP_COLUMN_INPUT, 0, SBP_BROADCAST);
    int reader = -1;
    const int readers = sbp_graph_consumers(space->graph, node->input[0], &reader, 1);
    const double gathered = space->parallel->regather ? sbp_group_size(&gather) : 1;
    const bool own_copy = sbp_group_size(&gather) > gathered || sbp_space_free_input(space, op, 0);
    if (!own_copy && (readers > 1 || kept_at_rest(space->graph, node->input[0])))
        return 0;
    return sbp_space_elements(space, node->input[0]) /
           sbp_space_parts(node->entry, factors, SBP_COLUMN_INPUT, 0) / gathered *
           (double)space->pricing.bytes.activation;
}

/* Parameters, gradients and optimizer states of a weight; offloaded states are on the host. */
static double state_bytes(const struct sbp_space *space, const struct sbp_replicas *replicas)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const int moments = sbp_training_moments(&space->graph->training);
    const double states =
        (double)(bytes->master + bytes->gradient_master + moments * bytes->moment);
    return (replicas->level < 3 ? replicas->local : replicas->shard) * (double)bytes->weight +
           (replicas->level < 2 ? replicas->local : replicas->shard) *
               (double)(bytes->gradient + bytes->sum) +
           (space->parallel->offload ? 0 : replicas->shard * states);
}

static double op_bytes(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    double total = 0;
    if (node->kind == SBP_OP_LINEAR && !sbp_space_forms_again(space))
        total = space->kept_weight * kept_input_bytes(space, op, factors);
    for (int w = 0; w < node->weight_count; w++) {
        const struct sbp_replicas replicas = sbp_space_replicas(space, op, w, factors);
        if (sbp_space_first_user(space, op, w) == op)
            total += space->step_weight * state_bytes(space, &replicas);
    }
    return total;
}

double sbp_space_unary_bytes(const struct sbp_space *space, int variable, int choice)
{
    return sbp_space_sum(space, variable, choice, op_bytes);
}

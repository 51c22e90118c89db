/* The memory model: bytes that certainly live together when the forward pass ends, that is,
 * weights and their states, activations that the backward pass reads, and gathered copies. It
 * bounds the program's arena from below, so that it may rule choices out; the compiled program
 * decides about the others. Slots of messages, of trainers that have them, lie beside the arena:
 * they count nothing here, which is no more than they are. */
#include <math.h>

#include "planner/pricing/pricing.h"

/* ---- activations that no choice changes ----------------------------------------------------- */

/* Whether an operator keeps its input in a form of its own, gathered or free: linears do. */
static bool keeps_own_input(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR;
}

/* Inputs, as bits, that the backward pass reads where they rest, or in a block of the same size. */
static unsigned inputs_at_rest(const struct sbp_op_node *node, const struct sbp_op_kept *kept)
{
    return keeps_own_input(node) ? 0 : kept->inputs;
}

/* Marks tensors that operators read, and those that more than one does. */
static void note_readers(const struct sbp_graph *graph, bool *read, bool *kept)
{
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++) {
            bool is_repeated = false;
            for (int k = 0; k < i; k++)
                is_repeated |= node->input[k] == node->input[i];
            kept[node->input[i]] |= !is_repeated && read[node->input[i]];
            read[node->input[i]] = true;
        }
    }
}

/* A tensor is kept at rest where several operators read it, or where the backward pass reads it as
 * it rests (or a block of the same size). */
enum sbp_status sbp_pricing_find_kept(const struct sbp_space *space, struct sbp_arena *scratch,
                                      bool *kept)
{
    const struct sbp_graph *graph = space->graph;
    bool *read = SBP_NEW(scratch, bool, graph->tensor_count);
    if (read == NULL)
        return SBP_E_MEMORY;
    note_readers(graph, read, kept);
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const struct sbp_op_kept own = sbp_pricing_kept_whole(space, op);
        for (int i = 0; i < node->input_count; i++)
            kept[node->input[i]] |= inputs_at_rest(node, &own) >> i & 1;
        if (node->output >= 0)
            kept[node->output] |= own.output;
    }
    return SBP_OK;
}

double sbp_pricing_saved_bytes(const struct sbp_space *space, const struct sbp_op_kept *kept)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    return kept->elements * (double)bytes->activation +
           kept->statistics * (double)bytes->statistic + kept->bytes;
}

/* Bytes that an operator keeps beside its operands, over all devices. Followers keep a norm's
 * statistics, which are small and left out. */
static double saved_bytes(const struct sbp_space *space, int op, const struct sbp_op_kept *kept)
{
    if (space->parallel->recompute == SBP_RECOMPUTE_ATTENTION &&
        sbp_pricing_is_attention(space->graph->op[op].kind))
        return 0;
    const bool follows = space->graph->op[op].entry->follows;
    return follows ? kept->bytes : sbp_pricing_saved_bytes(space, kept);
}

/* (tensor_count) whether an operator in place writes its output over a tensor. */
static enum sbp_status find_overwritten(const struct sbp_graph *graph, struct sbp_arena *arena,
                                        bool **overwritten)
{
    *overwritten = SBP_NEW(arena, bool, graph->tensor_count);
    if (*overwritten == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].entry->in_place)
            (*overwritten)[graph->op[op].input[0]] = true;
    return SBP_OK;
}

/* One pass over the operators. */
struct count {
    const struct sbp_space *space;
    const struct sbp_recomputed *recomputed;
    const bool *overwritten;
    int *counted;  /* (tensor_count) the last piece that counted it, + 1 */
    double *bytes; /* (op_count) kept of a micro-batch */
};

/* Counts a tensor at rest, once for each piece that keeps it. */
static void count_tensor(const struct count *c, int op, int piece, int tensor)
{
    const struct sbp_space *space = c->space;
    if (c->counted[tensor] == piece + 1)
        return;
    c->counted[tensor] = piece + 1;
    c->bytes[op] += sbp_pricing_elements(space, tensor) / (double)space->mesh->devices *
                    (double)space->pricing.bytes.activation;
}

/* A recomputed segment keeps the tensors that enter it from outside; the model's free input is
 * there anyway. */
static void count_recomputed(const struct count *c, int op, int piece)
{
    const struct sbp_op_node *node = &c->space->graph->op[op];
    for (int i = 0; i < node->input_count; i++)
        if ((c->recomputed->enters[op] >> i & 1) != 0 && !c->overwritten[node->input[i]] &&
            !sbp_pricing_free_input(c->space, op, i))
            count_tensor(c, op, piece, node->input[i]);
}

/* Counts bytes over all devices that are kept like an operator's activations. */
static void count_bytes(const struct count *c, int op, double bytes)
{
    c->bytes[op] += bytes / (double)c->space->mesh->devices;
}

/* Counts attention's output and statistics under selective recompute; products' halves depend on
 * their tuples. */
static void count_left(const struct count *c, int op, int piece)
{
    const struct sbp_op_node *node = &c->space->graph->op[op];
    if (c->space->parallel->recompute != SBP_RECOMPUTE_SELECTIVE ||
        !sbp_pricing_is_attention(node->kind))
        return;
    const struct sbp_op_kept kept = sbp_pricing_kept_whole(c->space, op);
    count_bytes(c, op, saved_bytes(c->space, op, &kept));
    if (c->recomputed->left[op] && !c->overwritten[node->output])
        count_tensor(c, op, piece, node->output);
}

bool sbp_pricing_works_back(const struct sbp_graph *graph, int op)
{
    return graph->op[op].weight_count > 0 || sbp_op_forms_input_gradient(graph, op);
}

static void count_op(const struct count *c, int op, int piece)
{
    const struct sbp_space *space = c->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    if (c->recomputed->in_segment[op]) {
        count_recomputed(c, op, piece);
        count_left(c, op, piece);
        return;
    }
    if (node->kind != SBP_OP_ADD && !node->entry->in_place &&
        !sbp_pricing_works_back(space->graph, op))
        return;
    const struct sbp_op_kept kept = sbp_pricing_kept_whole(space, op);
    count_bytes(c, op, saved_bytes(space, op, &kept));
    if (node->output >= 0 && !c->overwritten[node->output] && kept.output)
        count_tensor(c, op, piece, node->output);
    for (int i = 0; i < node->input_count; i++)
        if (!c->overwritten[node->input[i]] && (inputs_at_rest(node, &kept) >> i & 1) != 0)
            count_tensor(c, op, piece, node->input[i]);
}

/* Elements of a piece's weights that a device updates at the least: its part of those that no
 * earlier piece has. */
static double updated_elements(const struct sbp_space *space, int piece, bool *counted)
{
    double elements = 0;
    for (int op = space->weights->first[piece]; op < space->weights->first[piece + 1]; op++)
        for (int w = 0; w < space->graph->op[op].weight_count; w++) {
            const int tensor = space->graph->op[op].weight[w];
            if (!counted[tensor])
                elements += sbp_pricing_elements(space, tensor) / (double)space->mesh->devices;
            counted[tensor] = true;
        }
    return elements;
}

/* Offloaded states pass through a bucket. A stage has one, as large as its chunk with the most
 * updates needs, and no larger than this chunk's updates (costmodel/program/program_weights.c,
 * step.c). */
static enum sbp_status add_buckets(const struct sbp_space *space, struct sbp_arena *scratch,
                                   double *bytes)
{
    const struct sbp_element_bytes *element = &space->pricing.bytes;
    const struct sbp_path_weights *weights = space->weights;
    const int moments = sbp_graph_training_moments(&space->graph->training);
    const double hosted_bytes = (double)(element->master + moments * element->moment);
    bool *counted = SBP_NEW(scratch, bool, space->graph->tensor_count);
    double *largest = SBP_NEW(scratch, double, weights->memory_stages);
    if (counted == NULL || largest == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < weights->pieces; piece++) {
        const bool is_empty = weights->first[piece] == weights->first[piece + 1];
        const int stage = is_empty ? -1 : weights->point[weights->first[piece]];
        const double elements = updated_elements(space, piece, counted);
        if (stage >= 0)
            largest[stage] = fmax(largest[stage], elements);
    }
    for (int p = 0; p < weights->memory_stages && hosted_bytes > 0; p++)
        bytes[p] += (hosted_bytes + (double)element->gradient_master) *
                    fmin(largest[p], (double)space->parallel->bucket_parameters);
    return SBP_OK;
}

/* ---- what waits for weight gradients --------------------------------------------------------- */

static int root_of(int *root, int tensor)
{
    while (root[tensor] != tensor)
        tensor = root[tensor] = root[root[tensor]];
    return tensor;
}

/* (tensor_count) joins tensors whose gradients may lie in one block: those of what an operator
 * hands its output's gradient on to, unless others add theirs to it. */
static void join_gradients(const struct sbp_graph *graph, const int *readers, int *root)
{
    for (int tensor = 0; tensor < graph->tensor_count; tensor++)
        root[tensor] = tensor;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++)
            if ((node->kind == SBP_OP_ADD || node->entry->in_place) && readers[node->input[i]] == 1)
                root[root_of(root, node->input[i])] = root_of(root, node->output);
    }
}

/* Whether weight gradients of an operator read its first input, in a block that is no operator's
 * in place. */
static bool reads_late(const struct sbp_graph *graph, const bool *overwritten, int op)
{
    const int input = graph->op[op].input[0];
    const bool is_free = input == graph->input && !graph->input_split;
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_op_kept kept = sbp_op_kept(graph, op, &whole);
    return (kept.inputs & 1) != 0 && !is_free && !overwritten[input];
}

enum sbp_status sbp_pricing_count_late_readers(const struct sbp_graph *graph,
                                               struct sbp_arena *scratch, int *gradient_readers,
                                               int *input_readers)
{
    int *const readers = SBP_NEW(scratch, int, graph->tensor_count);
    int *const root = SBP_NEW(scratch, int, graph->tensor_count);
    int *const gradients = SBP_NEW(scratch, int, graph->tensor_count);
    int *const inputs = SBP_NEW(scratch, int, graph->tensor_count);
    bool *overwritten = NULL;
    SBP_TRY(find_overwritten(graph, scratch, &overwritten));
    if (readers == NULL || root == NULL || gradients == NULL || inputs == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            readers[graph->op[op].input[i]]++;
    join_gradients(graph, readers, root);
    for (int op = 0; op < graph->op_count; op++)
        if (sbp_op_has_weight_phase(graph, op)) {
            gradients[root_of(root, graph->op[op].output)]++;
            inputs[graph->op[op].input[0]]++;
        }
    for (int op = 0; op < graph->op_count; op++)
        if (sbp_op_has_weight_phase(graph, op)) {
            gradient_readers[op] = gradients[root_of(root, graph->op[op].output)];
            input_readers[op] =
                reads_late(graph, overwritten, op) ? inputs[graph->op[op].input[0]] : 0;
        }
    return SBP_OK;
}

/* Bytes that an operator's weight gradients read beside its operands. */
static double parked_beside_bytes(const struct sbp_space *space, int op)
{
    const struct sbp_op_kept kept = sbp_pricing_kept_whole(space, op);
    return sbp_op_has_weight_phase(space->graph, op)
               ? saved_bytes(space, op, &kept) / (double)space->mesh->devices
               : 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* bytes: (op_count) activations of a micro-batch that an operator keeps whatever is chosen; the
 * first of several keepers counts. */
static enum sbp_status count_kept(const struct sbp_space *space,
                                  const struct sbp_recomputed *recomputed,
                                  struct sbp_arena *scratch, double *bytes)
{
    const struct sbp_path_weights *weights = space->weights;
    bool *overwritten = NULL;
    SBP_TRY(find_overwritten(space->graph, scratch, &overwritten));
    const struct count count = {.space = space,
                                .recomputed = recomputed,
                                .overwritten = overwritten,
                                .counted = SBP_NEW(scratch, int, space->graph->tensor_count),
                                .bytes = bytes};
    if (count.counted == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < weights->pieces; piece++)
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++)
            count_op(&count, op, piece);
    return SBP_OK;
}

enum sbp_status sbp_pricing_sum_constant_bytes(const struct sbp_space *space,
                                               const struct sbp_recomputed *recomputed,
                                               struct sbp_arena *scratch, double *kept_bytes,
                                               double *bytes)
{
    const struct sbp_path_weights *weights = space->weights;
    SBP_TRY(count_kept(space, recomputed, scratch, kept_bytes));
    for (int op = 0; op < space->graph->op_count; op++)
        if (weights->point[op] >= 0)
            bytes[weights->point[op]] += weights->kept[op] * kept_bytes[op] +
                                         weights->parked[op] * parked_beside_bytes(space, op);
    return space->parallel->offload && space->parallel->owner == SBP_OWNER_NONE
               ? add_buckets(space, scratch, bytes)
               : SBP_OK;
}

double sbp_pricing_constant_bytes(const struct sbp_space *space, int stage)
{
    return space->groups->constant_bytes[stage];
}

/* ---- memory that depends on a choice -------------------------------------------------------- */

bool sbp_pricing_keeps_input(const struct sbp_space *space, const struct sbp_recomputed *recomputed,
                             int op, bool own_copy)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    if (!keeps_own_input(node) || recomputed->in_segment[op])
        return false;
    return own_copy || sbp_pricing_free_input(space, op, 0) ||
           !space->groups->kept_at_rest[node->input[0]];
}

bool sbp_pricing_keeps_saved(const struct sbp_space *space, const struct sbp_recomputed *recomputed,
                             int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const bool is_attention = sbp_pricing_is_attention(node->kind);
    if (node->entry->follows)
        return false;
    if (recomputed->in_segment[op])
        return is_attention && space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
    return sbp_pricing_works_back(space->graph, op) &&
           !(is_attention && space->parallel->recompute == SBP_RECOMPUTE_ATTENTION);
}

bool sbp_pricing_keeps_half(const struct sbp_space *space, const struct sbp_recomputed *recomputed,
                            int op)
{
    return space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE && recomputed->in_segment[op] &&
           sbp_op_has_weight_phase(space->graph, op);
}

double sbp_pricing_state_bytes(const struct sbp_space *space, int stage, int level, double local,
                               double shard)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const int moments = sbp_graph_training_moments(&space->graph->training);
    const double states =
        (double)(bytes->master + bytes->gradient_master + moments * bytes->moment);
    const int versions = sbp_parallel_versions(space->parallel, (int)space->parallel->pipeline,
                                               space->weights->stage[stage]);
    const int64_t finished = !sbp_parallel_hands_on(space->parallel) ? 0
                             : bytes->sum > 0                        ? bytes->sum
                                                                     : bytes->gradient;
    return versions * (level < 3 ? local : shard) * (double)bytes->weight +
           (level < 2 ? local : shard) * (double)(bytes->gradient + bytes->sum + finished) +
           (space->parallel->offload ? 0 : (level < 1 ? local : shard) * states);
}

double sbp_pricing_bytes(const struct sbp_space *space, const int *choice)
{
    double most = 0;
    for (int stage = 0; stage < space->weights->memory_stages; stage++) {
        double bytes = sbp_pricing_constant_bytes(space, stage);
        for (int v = 0; v < space->variable_count; v++)
            bytes += sbp_space_unary_bytes(space, v, choice[v], stage);
        most = fmax(most, bytes);
    }
    return most;
}

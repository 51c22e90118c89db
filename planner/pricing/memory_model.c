/* Memory of the space: what is certainly live together when the forward pass ends, weights and
 * their states, what backward reads of activations, gathered copies. A lower bound of the program's
 * arena, so that what it rules out is ruled out; the compiled program has the last word, also of
 * choices that take as much here.
 */
#include <math.h>

#include "planner/pricing/pricing.h"

/* ---- activations that no choice changes ----------------------------------------------------- */

/* Operators that keep their input in a form of their own, gathered or free: linears. */
static bool keeps_own_input(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR;
}

/* What backward reads of an operator that is not split. */
static struct sbp_op_kept kept_of(const struct sbp_graph *graph, int op)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    return sbp_op_kept(graph, op, &whole);
}

/* Inputs, as bits, that backward reads where they rest, or in a block of the same size. */
static unsigned inputs_at_rest(const struct sbp_op_node *node, const struct sbp_op_kept *kept)
{
    return keeps_own_input(node) ? 0 : kept->inputs;
}

/* Tensors that operators read, and those that more than one does. */
static void note_readers(const struct sbp_graph *graph, bool *read, bool *kept)
{
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++) {
            bool again = false;
            for (int k = 0; k < i; k++)
                again |= node->input[k] == node->input[i];
            kept[node->input[i]] |= !again && read[node->input[i]];
            read[node->input[i]] = true;
        }
    }
}

/* Several read it, or backward does in the block where it rests (or in one of the same size). */
enum sbp_status sbp_space_find_kept(const struct sbp_space *space, struct sbp_arena *scratch,
                                    bool *kept)
{
    const struct sbp_graph *graph = space->graph;
    bool *read = SBP_NEW(scratch, bool, graph->tensor_count);
    if (read == NULL)
        return SBP_E_MEMORY;
    note_readers(graph, read, kept);
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const struct sbp_op_kept own = kept_of(graph, op);
        for (int i = 0; i < node->input_count; i++)
            kept[node->input[i]] |= inputs_at_rest(node, &own) >> i & 1;
        if (node->output >= 0)
            kept[node->output] |= own.output;
    }
    return SBP_OK;
}

/* Bytes that an operator keeps beside its operands, over all devices. What followers keep besides
 * are a norm's statistics, which are small and left out. */
static double saved_bytes(const struct sbp_space *space, int op, const struct sbp_op_kept *kept)
{
    if (space->parallel->recompute == SBP_RECOMPUTE_ATTENTION &&
        sbp_space_is_attention(space->graph->op[op].kind))
        return 0;
    const bool follows = space->graph->op[op].entry->follows;
    return kept->bytes + (follows ? 0 : kept->elements * (double)space->pricing.bytes.activation);
}

/* Whether an operator of the model reads a tensor and writes its output over it. (tensor_count) */
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

/* One pass over the operators: which piece counted a tensor last. */
struct count {
    const struct sbp_space *space;
    const struct sbp_again *again;
    const bool *overwritten;
    int *counted;  /* (tensor_count) piece + 1 */
    double *bytes; /* (op_count) of a micro-batch */
};

/* A tensor at rest, once for each piece that keeps it. */
static void count_tensor(const struct count *c, int op, int piece, int tensor)
{
    const struct sbp_space *space = c->space;
    if (c->counted[tensor] == piece + 1)
        return;
    c->counted[tensor] = piece + 1;
    c->bytes[op] += sbp_space_elements(space, tensor) / (double)space->mesh->devices *
                    (double)space->pricing.bytes.activation;
}

/* Of what is formed again, what comes in from outside is kept; the model's free input is there
 * anyway. */
static void count_formed_again(const struct count *c, int op, int piece)
{
    const struct sbp_op_node *node = &c->space->graph->op[op];
    for (int i = 0; i < node->input_count; i++)
        if ((c->again->enters[op] >> i & 1) != 0 && !c->overwritten[node->input[i]] &&
            !sbp_space_free_input(c->space, op, i))
            count_tensor(c, op, piece, node->input[i]);
}

/* Bytes over all devices that are kept as often as an operator's activations are. */
static void count_bytes(const struct count *c, int op, double bytes)
{
    c->bytes[op] += bytes / (double)c->space->mesh->devices;
}

/* What attention left, under selective recompute; products leave what their tuples say. */
static void count_left(const struct count *c, int op, int piece)
{
    const struct sbp_op_node *node = &c->space->graph->op[op];
    if (c->space->parallel->recompute != SBP_RECOMPUTE_SELECTIVE ||
        !sbp_space_is_attention(node->kind))
        return;
    const struct sbp_op_kept kept = kept_of(c->space->graph, op);
    count_bytes(c, op, saved_bytes(c->space, op, &kept));
    if (c->again->left[op] && !c->overwritten[node->output])
        count_tensor(c, op, piece, node->output);
}

bool sbp_space_works_back(const struct sbp_graph *graph, int op)
{
    return graph->op[op].weight_count > 0 || sbp_op_forms_input_gradient(graph, op);
}

static void count_op(const struct count *c, int op, int piece)
{
    const struct sbp_space *space = c->space;
    const struct sbp_op_node *node = &space->graph->op[op];
    if (c->again->in_segment[op]) {
        count_formed_again(c, op, piece);
        count_left(c, op, piece);
        return;
    }
    if (node->kind != SBP_OP_ADD && !node->entry->in_place &&
        !sbp_space_works_back(space->graph, op))
        return;
    const struct sbp_op_kept kept = kept_of(space->graph, op);
    count_bytes(c, op, saved_bytes(space, op, &kept));
    if (node->output >= 0 && !c->overwritten[node->output] && kept.output)
        count_tensor(c, op, piece, node->output);
    for (int i = 0; i < node->input_count; i++)
        if (!c->overwritten[node->input[i]] && (inputs_at_rest(node, &kept) >> i & 1) != 0)
            count_tensor(c, op, piece, node->input[i]);
}

/* What a device updates of a piece's weights at least: its part of those that no piece before has.
 */
static double updated_elements(const struct sbp_space *space, int piece, bool *counted)
{
    double elements = 0;
    for (int op = space->view->first[piece]; op < space->view->first[piece + 1]; op++)
        for (int w = 0; w < space->graph->op[op].weight_count; w++) {
            const int tensor = space->graph->op[op].weight[w];
            if (!counted[tensor])
                elements += sbp_space_elements(space, tensor) / (double)space->mesh->devices;
            counted[tensor] = true;
        }
    return elements;
}

/* Offloaded states pass through a bucket: a stage has one, as large as that of the chunk which
 * updates most, and no larger than what that updates (costmodel/program/program_weights.c, step.c).
 */
static enum sbp_status add_buckets(const struct sbp_space *space, struct sbp_arena *scratch,
                                   double *bytes)
{
    const struct sbp_element_bytes *element = &space->pricing.bytes;
    const struct sbp_view *view = space->view;
    const int moments = sbp_graph_training_moments(&space->graph->training);
    const double hosted_bytes = (double)(element->master + moments * element->moment);
    bool *counted = SBP_NEW(scratch, bool, space->graph->tensor_count);
    double *largest = SBP_NEW(scratch, double, view->points);
    if (counted == NULL || largest == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < view->pieces; piece++) {
        const bool is_empty = view->first[piece] == view->first[piece + 1];
        const int point = is_empty ? -1 : view->point[view->first[piece]];
        const double elements = updated_elements(space, piece, counted);
        if (point >= 0)
            largest[point] = fmax(largest[point], elements);
    }
    for (int p = 0; p < view->points && hosted_bytes > 0; p++)
        bytes[p] += (hosted_bytes + (double)element->gradient_master) *
                    fmin(largest[p], (double)space->parallel->bucket_parameters);
    return SBP_OK;
}

/* (op_count) what no choice changes of the activations that an operator keeps, of a micro-batch;
 * what several keep is the first one's. */
static enum sbp_status count_kept(const struct sbp_space *space, const struct sbp_again *again,
                                  struct sbp_arena *scratch, double *bytes)
{
    const struct sbp_view *view = space->view;
    bool *overwritten = NULL;
    SBP_TRY(find_overwritten(space->graph, scratch, &overwritten));
    const struct count count = {.space = space,
                                .again = again,
                                .overwritten = overwritten,
                                .counted = SBP_NEW(scratch, int, space->graph->tensor_count),
                                .bytes = bytes};
    if (count.counted == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < view->pieces; piece++)
        for (int op = view->first[piece]; op < view->first[piece + 1]; op++)
            count_op(&count, op, piece);
    return SBP_OK;
}

enum sbp_status sbp_space_sum_constant_bytes(const struct sbp_space *space,
                                             const struct sbp_again *again,
                                             struct sbp_arena *scratch, double *kept_bytes,
                                             double *bytes)
{
    const struct sbp_view *view = space->view;
    SBP_TRY(count_kept(space, again, scratch, kept_bytes));
    for (int op = 0; op < space->graph->op_count; op++)
        if (view->point[op] >= 0)
            bytes[view->point[op]] += view->kept[op] * kept_bytes[op];
    return space->parallel->offload && space->parallel->owner == SBP_OWNER_NONE
               ? add_buckets(space, scratch, bytes)
               : SBP_OK;
}

double sbp_space_constant_bytes(const struct sbp_space *space, int point)
{
    return space->works->constant_bytes[point];
}

/* ---- what a choice changes ------------------------------------------------------------------ */

bool sbp_space_keeps_input(const struct sbp_space *space, const struct sbp_again *again, int op,
                           bool own_copy)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    if (!keeps_own_input(node) || again->in_segment[op])
        return false;
    return own_copy || sbp_space_free_input(space, op, 0) ||
           !space->works->kept_at_rest[node->input[0]];
}

bool sbp_space_keeps_saved(const struct sbp_space *space, const struct sbp_again *again, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const bool is_attention = sbp_space_is_attention(node->kind);
    if (node->entry->follows)
        return false;
    if (again->in_segment[op])
        return is_attention && space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
    return sbp_space_works_back(space->graph, op) &&
           !(is_attention && space->parallel->recompute == SBP_RECOMPUTE_ATTENTION);
}

bool sbp_space_keeps_half(const struct sbp_space *space, const struct sbp_again *again, int op)
{
    return space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE && again->in_segment[op] &&
           sbp_op_has_weight_phase(space->graph, op);
}

double sbp_space_state_bytes(const struct sbp_space *space, int level, double local, double shard)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const int moments = sbp_graph_training_moments(&space->graph->training);
    const double states =
        (double)(bytes->master + bytes->gradient_master + moments * bytes->moment);
    return (level < 3 ? local : shard) * (double)bytes->weight +
           (level < 2 ? local : shard) * (double)(bytes->gradient + bytes->sum) +
           (space->parallel->offload ? 0 : (level < 1 ? local : shard) * states);
}

double sbp_space_bytes(const struct sbp_space *space, const int *choice)
{
    double most = 0;
    for (int point = 0; point < space->view->points; point++) {
        double bytes = sbp_space_constant_bytes(space, point);
        for (int v = 0; v < space->variable_count; v++)
            bytes += sbp_space_unary_bytes(space, v, choice[v], point);
        most = fmax(most, bytes);
    }
    return most;
}

#include "costmodel/program.h"

#include <string.h>

#include "costmodel/program_layout.h"

static const char *const instr_names[] = {
#define SBP_INSTR_TEXT(name, text) text,
    SBP_INSTR_MAP(SBP_INSTR_TEXT)
#undef SBP_INSTR_TEXT
};

const char *sbp_instr_name(enum sbp_instr_kind kind)
{
    return instr_names[kind];
}

const char *sbp_cause_name(enum sbp_cause cause)
{
    static const char *const names[] = {
        "none", "activation", "activation-gradient", "weight-gradient", "operator", "scalar"};
    return names[cause];
}

struct sbp_element_bytes sbp_element_bytes_of(const struct sbp_precision *precision)
{
    return (struct sbp_element_bytes){
        .weight = sbp_type_bytes(precision->param),
        .gradient = sbp_type_bytes(precision->grad),
        .master = precision->has_master ? sbp_type_bytes(precision->master) : 0,
        .gradient_master = precision->converts_gradient ? sbp_type_bytes(precision->master) : 0,
        .sum = precision->has_sum ? sbp_type_bytes(precision->accumulate) : 0,
        .loss = precision->loss != precision->activation ? sbp_type_bytes(precision->loss) : 0,
        .moment = sbp_type_bytes(precision->moments),
        .activation = sbp_type_bytes(precision->activation),
        .reduce = sbp_type_bytes(precision->reduce)};
}

struct sbp_element_bytes sbp_element_bytes_run(enum sbp_real real)
{
    const int64_t bytes = real == SBP_F32 ? 4 : 8;
    return (struct sbp_element_bytes){
        .weight = bytes, .gradient = bytes, .moment = bytes, .activation = bytes, .reduce = bytes};
}

/* What is known while the program grows. Instructions and buffers are appended in time order. */
struct builder {
    struct sbp_program *program;
    const struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    const struct sbp_strategy *strategy;
    struct sbp_layout layout;
    struct sbp_diag *diag;
    int instr_capacity, buffer_capacity;
    int *value;     /* (tensor_count) buffer of an activation where it rests; -1 */
    int *gradient;  /* (tensor_count) buffer of its gradient there; -1 until the first one */
    int *uses_left; /* (tensor_count) of a weight: gradients still to come */
    int *owner;     /* (tensor_count) of a weight: its first user */
    int (*input)[SBP_MAX_INPUTS]; /* (op_count) buffers that the operator read, boxed */
    int *saved, *saved2;          /* (op_count) what forward kept for backward */
};

static void *grown(struct sbp_arena *arena, const void *old, int count, int capacity, size_t size)
{
    char *bytes = sbp_arena_alloc(arena, (size_t)capacity, size);
    if (bytes != NULL && count > 0)
        memcpy(bytes, old, (size_t)count * size);
    return bytes;
}

/* A new instruction with no buffers; NULL when memory is out. Valid until the next one. */
static struct sbp_instr *add_instr(struct builder *b, enum sbp_instr_kind kind, int op, int phase)
{
    struct sbp_program *program = b->program;
    if (program->instr_count == b->instr_capacity) {
        b->instr_capacity = 2 * b->instr_capacity + 64;
        struct sbp_instr *more = grown(&program->arena, program->instr, program->instr_count,
                                       b->instr_capacity, sizeof *more);
        if (more == NULL)
            return NULL;
        program->instr = more;
    }
    struct sbp_instr *instr = &program->instr[program->instr_count++];
    *instr = (struct sbp_instr){.kind = kind, .op = op, .phase = phase, .tensor = -1};
    for (int i = 0; i < SBP_INSTR_BUFFERS; i++)
        instr->buffer[i] = -1;
    return instr;
}

static enum sbp_status add_buffer(struct builder *b, enum sbp_buffer_use use,
                                  enum sbp_buffer_type type, int tensor,
                                  const struct sbp_dist *dist, int64_t elements, int *buffer)
{
    struct sbp_program *program = b->program;
    if (program->buffer_count == b->buffer_capacity) {
        b->buffer_capacity = 2 * b->buffer_capacity + 64;
        struct sbp_buffer *more = grown(&program->arena, program->buffer, program->buffer_count,
                                        b->buffer_capacity, sizeof *more);
        if (more == NULL)
            return SBP_E_MEMORY;
        program->buffer = more;
    }
    *buffer = program->buffer_count++;
    program->buffer[*buffer] = (struct sbp_buffer){
        .use = use, .type = type, .tensor = tensor, .elements = elements, .first = -1, .last = -1};
    if (dist != NULL)
        program->buffer[*buffer].dist = *dist;
    return SBP_OK;
}

/* A buffer for this rank's block of a tensor (or of its gradient). */
static enum sbp_status add_block(struct builder *b, enum sbp_buffer_use use, int tensor,
                                 const struct sbp_dist *dist, int *buffer)
{
    const int64_t elements = sbp_local_elements(b->mesh, &b->graph->tensor[tensor].shape, dist);
    return add_buffer(b, use, SBP_BUFFER_REAL, tensor, dist, elements, buffer);
}

static enum sbp_status add_work(struct builder *b, int64_t elements, int *buffer)
{
    return add_buffer(b, SBP_USE_WORK, SBP_BUFFER_REAL, -1, NULL, elements, buffer);
}

/* Boxes `*buffer`, the tensor's block in `from`, into `to`; *buffer becomes the result. With
 * `in_place` (weight gradients) a single all-reduce works on the buffer itself. `op`: the operator
 * whose strategy asks for it. */
static enum sbp_status add_boxing(struct builder *b, int op, int tensor,
                                  const struct sbp_dist *from, const struct sbp_dist *to,
                                  enum sbp_cause cause, bool in_place, int *buffer)
{
    const struct sbp_shape *shape = &b->graph->tensor[tensor].shape;
    struct sbp_boxing boxing;
    SBP_TRY(sbp_boxing_make(&b->layout, shape, from, to, &boxing, b->diag));
    for (int i = 0; i < boxing.count; i++) {
        const struct sbp_boxing_step *step = &boxing.step[i];
        struct sbp_permutation pack, unpack;
        int result = *buffer, work = -1, work2 = -1;
        if (!(in_place && step->kind == SBP_ALL_REDUCE))
            SBP_TRY(add_block(b, SBP_USE_ACTIVATION, tensor, &step->to, &result));
        sbp_boxing_pack(&b->layout, shape, step, &pack);
        sbp_boxing_unpack(&b->layout, shape, step, &unpack);
        if (pack.needed)
            SBP_TRY(add_work(b, sbp_local_elements(b->mesh, shape, &step->from), &work));
        if (unpack.needed)
            SBP_TRY(add_work(b, sbp_local_elements(b->mesh, shape, &step->to), &work2));
        struct sbp_instr *instr = add_instr(b, SBP_INSTR_BOX, op, 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->tensor = tensor;
        instr->box = *step;
        instr->cause = cause;
        instr->buffer[SBP_AT_IN] = *buffer;
        instr->buffer[SBP_AT_OUT] = result;
        instr->buffer[SBP_AT_WORK] = work;
        instr->buffer[SBP_AT_WORK2] = work2;
        *buffer = result;
    }
    return SBP_OK;
}

/* An in-place all-reduce inside an operator or of a scalar; nothing for an empty group. */
static enum sbp_status add_reduce(struct builder *b, int op, sbp_axes axes, int buffer,
                                  int reduction, enum sbp_cause cause)
{
    if (axes == 0)
        return SBP_OK;
    struct sbp_instr *instr = add_instr(b, SBP_INSTR_REDUCE, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->box.kind = SBP_ALL_REDUCE;
    instr->box.axes = axes;
    instr->box.elements = b->program->buffer[buffer].elements;
    instr->reduction = reduction;
    instr->cause = cause;
    instr->buffer[SBP_AT_OUT] = buffer;
    return SBP_OK;
}

/* Tokens of the block of an activation in a distribution. */
static int64_t local_tokens(const struct builder *b, int tensor, const struct sbp_dist *dist)
{
    const struct sbp_shape *shape = &b->graph->tensor[tensor].shape;
    return sbp_local_size(b->mesh, shape, dist, SBP_DIM_BATCH) *
           sbp_local_size(b->mesh, shape, dist, SBP_DIM_SEQUENCE);
}

/* A per-token integer buffer that follows the batch and sequence splits of an activation. */
static enum sbp_status add_index(struct builder *b, int tensor, const struct sbp_dist *dist,
                                 int *buffer)
{
    struct sbp_dist tokens = *dist;
    for (int i = 0; i < b->mesh->axis_count; i++)
        if (tokens.axis[i].kind != SBP_SPLIT || tokens.axis[i].dim > SBP_DIM_SEQUENCE)
            tokens.axis[i] = SBP_STATE_B;
    return add_buffer(b, SBP_USE_INDEX, SBP_BUFFER_INT32, tensor, &tokens,
                      local_tokens(b, tensor, &tokens), buffer);
}

static struct sbp_attention_shape attention_shape(const struct builder *b, int op,
                                                  const struct sbp_dist *dist)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    const struct sbp_shape *shape = &b->graph->tensor[node->output].shape;
    return (struct sbp_attention_shape){
        .batch = sbp_local_size(b->mesh, shape, dist, SBP_DIM_BATCH),
        .sequence = sbp_local_size(b->mesh, shape, dist, SBP_DIM_SEQUENCE),
        .heads = sbp_local_size(b->mesh, shape, dist, SBP_DIM_FEATURE),
        .head_size = shape->size[SBP_DIM_INNER],
        .causal = node->attention.causal,
        .kind = node->attention.kind};
}

/* ---- forward ------------------------------------------------------------------------------- */

/* The operator's operands as buffers, boxed into what its roles want. */
static enum sbp_status forward_inputs(struct builder *b, int op)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    for (int i = 0; i < node->input_count; i++) {
        const int tensor = node->input[i];
        const struct sbp_dist want = sbp_strategy_input(b->graph, b->mesh, b->strategy, op, i);
        int buffer = b->value[tensor];
        if (tensor == b->graph->input && !b->graph->input_split) {
            SBP_TRY(add_block(b, SBP_USE_ACTIVATION, tensor, &want, &buffer));
            struct sbp_instr *instr = add_instr(b, SBP_INSTR_INPUT, op, 0);
            if (instr == NULL)
                return SBP_E_MEMORY;
            instr->tensor = tensor;
            instr->buffer[SBP_AT_OUT] = buffer;
        } else {
            struct sbp_dist at = b->strategy->rest[tensor], via;
            if (sbp_strategy_waypoint(b->graph, b->mesh, b->strategy, op, i, &via)) {
                SBP_TRY(add_boxing(b, op, tensor, &at, &via, SBP_CAUSE_ACTIVATION, false, &buffer));
                at = via;
            }
            SBP_TRY(add_boxing(b, op, tensor, &at, &want, SBP_CAUSE_ACTIVATION, false, &buffer));
        }
        b->input[op][i] = buffer;
    }
    return SBP_OK;
}

static void set_operands(const struct builder *b, struct sbp_instr *instr, int op, int output)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    instr->buffer[SBP_AT_OUT] = output;
    instr->buffer[SBP_AT_IN] = b->input[op][0];
    instr->buffer[SBP_AT_IN2] = b->input[op][1];
    for (int w = 0; w < node->weight_count; w++)
        instr->buffer[SBP_AT_W + w] = b->program->weight_buffer[node->weight[w]];
    instr->buffer[SBP_AT_SAVED] = b->saved[op];
    instr->buffer[SBP_AT_SAVED2] = b->saved2[op];
}

static enum sbp_status add_forward(struct builder *b, int op, int phase, int output, int work)
{
    struct sbp_instr *instr = add_instr(b, SBP_INSTR_FORWARD, op, phase);
    if (instr == NULL)
        return SBP_E_MEMORY;
    set_operands(b, instr, op, output);
    instr->buffer[SBP_AT_WORK] = work;
    return SBP_OK;
}

static enum sbp_status forward_layernorm(struct builder *b, int op, int output,
                                         const struct sbp_dist *dist)
{
    const int tensor = b->graph->op[op].input[0];
    SBP_TRY(add_work(b, 2 * local_tokens(b, tensor, dist), &b->saved[op]));
    SBP_TRY(add_forward(b, op, 0, output, -1));
    SBP_TRY(add_reduce(b, op, sbp_dist_split(b->mesh, dist, SBP_DIM_FEATURE), b->saved[op], 0,
                       SBP_CAUSE_OPERATOR));
    return add_forward(b, op, 1, output, -1);
}

/* Room for the logits in the loss's type; none where that is the activations'. */
static enum sbp_status add_logits(struct builder *b, int op, int *buffer)
{
    const struct sbp_dist dist = sbp_strategy_input(b->graph, b->mesh, b->strategy, op, 0);
    const int tensor = b->graph->op[op].input[0];
    *buffer = -1;
    if (b->program->bytes.loss == 0)
        return SBP_OK;
    return add_buffer(b, SBP_USE_WORK, SBP_BUFFER_LOSS, tensor, &dist,
                      sbp_local_elements(b->mesh, &b->graph->tensor[tensor].shape, &dist), buffer);
}

static enum sbp_status forward_cross_entropy(struct builder *b, int op, const struct sbp_dist *dist)
{
    const int tensor = b->graph->op[op].input[0];
    const int64_t tokens = local_tokens(b, tensor, dist);
    const sbp_axes vocabulary = sbp_dist_split(b->mesh, dist, SBP_DIM_FEATURE);
    const sbp_axes token_axes = sbp_dist_split(b->mesh, dist, SBP_DIM_BATCH) |
                                sbp_dist_split(b->mesh, dist, SBP_DIM_SEQUENCE);
    struct sbp_program *program = b->program;
    SBP_TRY(add_index(b, tensor, dist, &program->labels_buffer));
    b->input[op][1] = program->labels_buffer;
    SBP_TRY(add_work(b, tokens, &b->saved[op]));
    SBP_TRY(add_work(b, 2 * tokens, &b->saved2[op]));
    SBP_TRY(add_work(b, 1, &program->loss_buffer));
    const int loss = program->loss_buffer;
    int converted = -1, exponentials = -1;
    SBP_TRY(add_logits(b, op, &converted));
    SBP_TRY(add_forward(b, op, 0, loss, converted));
    if (converted >= 0)
        b->input[op][0] = converted;
    SBP_TRY(add_reduce(b, op, vocabulary, b->saved[op], 1, SBP_CAUSE_OPERATOR));
    SBP_TRY(add_forward(b, op, 1, loss, -1));
    SBP_TRY(add_logits(b, op, &exponentials));
    program->instr[program->instr_count - 1].buffer[SBP_AT_WORK2] = exponentials;
    SBP_TRY(add_reduce(b, op, vocabulary, b->saved2[op], 0, SBP_CAUSE_OPERATOR));
    SBP_TRY(add_forward(b, op, 2, loss, -1));
    return add_reduce(b, op, token_axes, loss, 0, SBP_CAUSE_SCALAR);
}

static enum sbp_status forward_attention(struct builder *b, int op, int output,
                                         const struct sbp_dist *dist)
{
    const struct sbp_attention_shape shape = attention_shape(b, op, dist);
    int work = -1;
    SBP_TRY(add_work(b, sbp_attention_saved_elements(&shape), &b->saved[op]));
    SBP_TRY(add_work(b, sbp_attention_scratch_elements(&shape), &work));
    return add_forward(b, op, 0, output, work);
}

static enum sbp_status forward_embedding(struct builder *b, int op, int output,
                                         const struct sbp_dist *dist)
{
    struct sbp_program *program = b->program;
    if (program->ids_buffer >= 0)
        return sbp_fail(b->diag, SBP_E_UNSUPPORTED,
                        "model: %s: a second embedding, one is supported", b->graph->op[op].name);
    const int tensor = b->graph->op[op].output;
    SBP_TRY(add_index(b, tensor, dist, &program->ids_buffer));
    SBP_TRY(add_index(b, tensor, dist, &program->positions_buffer));
    b->input[op][0] = program->ids_buffer;
    b->input[op][1] = program->positions_buffer;
    return add_forward(b, op, 0, output, -1);
}

static enum sbp_status forward_op(struct builder *b, int op)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    SBP_TRY(forward_inputs(b, op));
    if (node->kind == SBP_OP_CROSS_ENTROPY) {
        const struct sbp_dist logits = sbp_strategy_input(b->graph, b->mesh, b->strategy, op, 0);
        return forward_cross_entropy(b, op, &logits);
    }
    const struct sbp_dist dist = sbp_strategy_output(b->graph, b->mesh, b->strategy, op);
    int output = -1;
    SBP_TRY(add_block(b, SBP_USE_ACTIVATION, node->output, &dist, &output));
    switch (node->kind) {
    case SBP_OP_LAYERNORM:
        SBP_TRY(forward_layernorm(b, op, output, &dist));
        break;
    case SBP_OP_ATTENTION:
        SBP_TRY(forward_attention(b, op, output, &dist));
        b->saved2[op] = output;
        break;
    case SBP_OP_EMBEDDING:
        SBP_TRY(forward_embedding(b, op, output, &dist));
        break;
    case SBP_OP_DROPOUT:
        SBP_TRY(add_buffer(b, SBP_USE_WORK, SBP_BUFFER_BYTE, node->output, &dist,
                           b->program->buffer[output].elements, &b->saved[op]));
        SBP_TRY(add_forward(b, op, 0, output, -1));
        break;
    default:
        SBP_TRY(add_forward(b, op, 0, output, -1));
    }
    SBP_TRY(add_boxing(b, op, node->output, &dist, &b->strategy->rest[node->output],
                       SBP_CAUSE_ACTIVATION, false, &output));
    b->value[node->output] = output;
    return SBP_OK;
}

/* ---- backward ------------------------------------------------------------------------------ */

static bool wants_gradient(const struct builder *b, int tensor)
{
    return tensor != b->graph->input || b->graph->input_split;
}

/* Takes in the gradient that a consumer computed for one of its inputs, in the dual of the input's
 * distribution, and adds it to what other consumers gave. */
static enum sbp_status give_gradient(struct builder *b, int op, int input, int buffer)
{
    const int tensor = b->graph->op[op].input[input];
    const struct sbp_dist want = sbp_strategy_input(b->graph, b->mesh, b->strategy, op, input);
    struct sbp_dist at = sbp_dist_dual(b->mesh, &want), via;
    if (sbp_strategy_waypoint(b->graph, b->mesh, b->strategy, op, input, &via)) {
        SBP_TRY(
            add_boxing(b, op, tensor, &at, &via, SBP_CAUSE_ACTIVATION_GRADIENT, false, &buffer));
        at = via; /* its own dual: it is split everywhere */
    }
    SBP_TRY(add_boxing(b, op, tensor, &at, &b->strategy->rest[tensor],
                       SBP_CAUSE_ACTIVATION_GRADIENT, false, &buffer));
    if (b->gradient[tensor] < 0) {
        b->gradient[tensor] = buffer;
        return SBP_OK;
    }
    int sum = -1;
    SBP_TRY(add_block(b, SBP_USE_ACTIVATION, tensor, &b->strategy->rest[tensor], &sum));
    struct sbp_instr *instr = add_instr(b, SBP_INSTR_ADD_GRADIENT, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->buffer[SBP_AT_OUT] = sum;
    instr->buffer[SBP_AT_IN] = b->gradient[tensor];
    instr->buffer[SBP_AT_IN2] = buffer;
    b->gradient[tensor] = sum;
    return SBP_OK;
}

/* A buffer for the gradient of an input as the operator computes it. */
static enum sbp_status input_gradient_buffer(struct builder *b, int op, int input, int *buffer)
{
    const struct sbp_dist want = sbp_strategy_input(b->graph, b->mesh, b->strategy, op, input);
    const struct sbp_dist dual = sbp_dist_dual(b->mesh, &want);
    return add_block(b, SBP_USE_ACTIVATION, b->graph->op[op].input[input], &dual, buffer);
}

static enum sbp_status add_backward(struct builder *b, int op, int phase, int dy, int dx, int work,
                                    bool weights)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    struct sbp_instr *instr = add_instr(b, SBP_INSTR_BACKWARD, op, phase);
    if (instr == NULL)
        return SBP_E_MEMORY;
    set_operands(b, instr, op, dx);
    instr->buffer[SBP_AT_DY] = dy;
    instr->buffer[SBP_AT_WORK] = work;
    for (int w = 0; weights && w < node->weight_count; w++)
        instr->buffer[SBP_AT_DW + w] = b->program->gradient_buffer[node->weight[w]];
    if (node->kind == SBP_OP_DROPOUT)
        instr->buffer[SBP_AT_IN] = -1; /* the mask says it all */
    if (weights && node->weight_count > 0) {
        const int users = b->uses_left[node->weight[0]];
        instr->factor = users < 0 ? 1 : 0; /* a negative count: it has been written already */
    }
    return SBP_OK;
}

/* After the last use of a weight its gradient is summed over the axes where it is partial. */
static enum sbp_status finish_weight_gradients(struct builder *b, int op)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    for (int w = 0; w < node->weight_count; w++) {
        const int tensor = node->weight[w];
        int *left = &b->uses_left[tensor];
        const int remaining = (*left < 0 ? -*left : *left) - 1;
        *left = -remaining;
        if (remaining > 0)
            continue;
        const struct sbp_dist from = sbp_strategy_gradient(b->graph, b->mesh, b->strategy, op, w);
        const struct sbp_dist to = sbp_strategy_weight(b->graph, b->mesh, b->strategy, op, w);
        int buffer = b->program->gradient_buffer[tensor];
        SBP_TRY(add_boxing(b, op, tensor, &from, &to, SBP_CAUSE_WEIGHT_GRADIENT, true, &buffer));
    }
    return SBP_OK;
}

static enum sbp_status backward_linear(struct builder *b, int op, int dy)
{
    if (wants_gradient(b, b->graph->op[op].input[0])) {
        int dx = -1;
        SBP_TRY(input_gradient_buffer(b, op, 0, &dx));
        SBP_TRY(add_backward(b, op, 0, dy, dx, -1, false));
        SBP_TRY(give_gradient(b, op, 0, dx));
    }
    SBP_TRY(add_backward(b, op, 1, dy, -1, -1, true));
    return finish_weight_gradients(b, op);
}

static enum sbp_status backward_layernorm(struct builder *b, int op, int dy,
                                          const struct sbp_dist *dist)
{
    int dx = -1;
    SBP_TRY(input_gradient_buffer(b, op, 0, &dx));
    SBP_TRY(add_work(b, 2 * local_tokens(b, b->graph->op[op].input[0], dist), &b->saved2[op]));
    SBP_TRY(add_backward(b, op, 0, dy, dx, -1, false));
    SBP_TRY(add_reduce(b, op, sbp_dist_split(b->mesh, dist, SBP_DIM_FEATURE), b->saved2[op], 0,
                       SBP_CAUSE_OPERATOR));
    SBP_TRY(add_backward(b, op, 1, dy, dx, -1, true));
    if (wants_gradient(b, b->graph->op[op].input[0]))
        SBP_TRY(give_gradient(b, op, 0, dx));
    return finish_weight_gradients(b, op);
}

static enum sbp_status backward_cross_entropy(struct builder *b, int op)
{
    const struct sbp_shape *logits = &b->graph->tensor[b->graph->op[op].input[0]].shape;
    int dx = -1, wide = -1;
    SBP_TRY(input_gradient_buffer(b, op, 0, &dx));
    SBP_TRY(add_logits(b, op, &wide));
    SBP_TRY(add_backward(b, op, 0, -1, dx, -1, false));
    struct sbp_instr *instr = &b->program->instr[b->program->instr_count - 1];
    instr->buffer[SBP_AT_WORK2] = wide;
    instr->factor =
        1.0 / ((double)logits->size[SBP_DIM_BATCH] * (double)logits->size[SBP_DIM_SEQUENCE]);
    return give_gradient(b, op, 0, dx);
}

/* relu, gelu, dropout, attention: one input, no weights, one phase. */
static enum sbp_status backward_single(struct builder *b, int op, int dy,
                                       const struct sbp_dist *dist)
{
    if (!wants_gradient(b, b->graph->op[op].input[0]))
        return SBP_OK;
    int dx = -1, work = -1;
    SBP_TRY(input_gradient_buffer(b, op, 0, &dx));
    if (b->graph->op[op].kind == SBP_OP_ATTENTION) {
        const struct sbp_attention_shape shape = attention_shape(b, op, dist);
        SBP_TRY(add_work(b, sbp_attention_scratch_elements(&shape), &work));
    }
    SBP_TRY(add_backward(b, op, 0, dy, dx, work, false));
    return give_gradient(b, op, 0, dx);
}

/* The gradient of a sum is the gradient of each operand: nothing is computed, buffers are shared
 * (gradients are only ever added into new buffers). */
static enum sbp_status backward_add(struct builder *b, int op, int dy)
{
    for (int i = 0; i < 2; i++)
        if (wants_gradient(b, b->graph->op[op].input[i]))
            SBP_TRY(give_gradient(b, op, i, dy));
    return SBP_OK;
}

/* The gradient of the operator's output, in the dual of the output's distribution. */
static enum sbp_status output_gradient(struct builder *b, int op, const struct sbp_dist *dist,
                                       int *dy)
{
    const int tensor = b->graph->op[op].output;
    if (b->gradient[tensor] < 0) {
        SBP_TRY(add_block(b, SBP_USE_ACTIVATION, tensor, &b->strategy->rest[tensor],
                          &b->gradient[tensor]));
        struct sbp_instr *instr = add_instr(b, SBP_INSTR_OUTPUT_GRADIENT, op, 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->tensor = tensor;
        instr->buffer[SBP_AT_OUT] = b->gradient[tensor];
    }
    const struct sbp_dist dual = sbp_dist_dual(b->mesh, dist);
    *dy = b->gradient[tensor];
    return add_boxing(b, op, tensor, &b->strategy->rest[tensor], &dual,
                      SBP_CAUSE_ACTIVATION_GRADIENT, false, dy);
}

static enum sbp_status backward_op(struct builder *b, int op)
{
    const struct sbp_op_node *node = &b->graph->op[op];
    if (node->kind == SBP_OP_CROSS_ENTROPY)
        return backward_cross_entropy(b, op);
    const struct sbp_dist dist = sbp_strategy_output(b->graph, b->mesh, b->strategy, op);
    int dy = -1;
    SBP_TRY(output_gradient(b, op, &dist, &dy));
    switch (node->kind) {
    case SBP_OP_LINEAR:
        return backward_linear(b, op, dy);
    case SBP_OP_EMBEDDING:
        SBP_TRY(add_backward(b, op, 0, dy, -1, -1, true));
        return finish_weight_gradients(b, op);
    case SBP_OP_LAYERNORM:
        return backward_layernorm(b, op, dy, &dist);
    case SBP_OP_ADD:
        return backward_add(b, op, dy);
    default:
        return backward_single(b, op, dy, &dist);
    }
}

/* ---- weights and their update -------------------------------------------------------------- */

static enum sbp_status add_weight(struct builder *b, int tensor, const struct sbp_dist *dist)
{
    struct sbp_program *program = b->program;
    const int moments = sbp_training_moments(&b->graph->training);
    SBP_TRY(add_block(b, SBP_USE_WEIGHT, tensor, dist, &program->weight_buffer[tensor]));
    SBP_TRY(add_block(b, SBP_USE_GRADIENT, tensor, dist, &program->gradient_buffer[tensor]));
    int held = -1; /* no instruction of a run reads what follows: runs have one type */
    if (program->bytes.sum > 0)
        SBP_TRY(add_block(b, SBP_USE_SUM, tensor, dist, &held));
    if (program->bytes.master > 0)
        SBP_TRY(add_block(b, SBP_USE_MASTER, tensor, dist, &held));
    if (program->bytes.gradient_master > 0) /* for the update (Myelin, V-B) */
        SBP_TRY(add_block(b, SBP_USE_MASTER, tensor, dist, &held));
    if (moments > 0)
        SBP_TRY(add_block(b, SBP_USE_MOMENT, tensor, dist, &program->first_moment[tensor]));
    if (moments > 1)
        SBP_TRY(add_block(b, SBP_USE_MOMENT, tensor, dist, &program->second_moment[tensor]));
    return SBP_OK;
}

static enum sbp_status add_weights(struct builder *b)
{
    for (int op = 0; op < b->graph->op_count; op++)
        for (int w = 0; w < b->graph->op[op].weight_count; w++) {
            const int tensor = b->graph->op[op].weight[w];
            const struct sbp_dist dist = sbp_strategy_weight(b->graph, b->mesh, b->strategy, op, w);
            b->uses_left[tensor]++;
            if (b->owner[tensor] < 0)
                b->owner[tensor] = op;
            if (b->program->weight_buffer[tensor] < 0)
                SBP_TRY(add_weight(b, tensor, &dist));
        }
    return SBP_OK;
}

static enum sbp_status add_updates(struct builder *b)
{
    struct sbp_program *program = b->program;
    int norm = -1;
    if (b->graph->training.clip_norm > 0) {
        SBP_TRY(add_work(b, 1, &norm));
        struct sbp_instr *instr = add_instr(b, SBP_INSTR_NORM, -1, 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->buffer[SBP_AT_OUT] = norm;
        const sbp_axes all = (sbp_axes)(((uint64_t)1 << b->mesh->axis_count) - 1);
        SBP_TRY(add_reduce(b, -1, all, norm, 0, SBP_CAUSE_SCALAR));
    }
    for (int tensor = 0; tensor < b->graph->tensor_count; tensor++) {
        if (program->weight_buffer[tensor] < 0)
            continue;
        struct sbp_instr *instr = add_instr(b, SBP_INSTR_UPDATE, b->owner[tensor], 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->tensor = tensor;
        instr->buffer[SBP_AT_IN] = norm;
        instr->buffer[SBP_AT_W] = program->weight_buffer[tensor];
        instr->buffer[SBP_AT_DW] = program->gradient_buffer[tensor];
        instr->buffer[SBP_AT_SAVED] = program->first_moment[tensor];
        instr->buffer[SBP_AT_SAVED2] = program->second_moment[tensor];
    }
    return SBP_OK;
}

/* ---- assembly ------------------------------------------------------------------------------ */

static int *filled(struct sbp_arena *arena, int count, int value)
{
    int *array = SBP_NEW(arena, int, count);
    for (int i = 0; array != NULL && i < count; i++)
        array[i] = value;
    return array;
}

static enum sbp_status prepare(struct builder *b)
{
    struct sbp_program *program = b->program;
    struct sbp_arena *arena = &program->arena;
    const int tensors = b->graph->tensor_count, ops = b->graph->op_count;
    program->weight_buffer = filled(arena, tensors, -1);
    program->gradient_buffer = filled(arena, tensors, -1);
    program->first_moment = filled(arena, tensors, -1);
    program->second_moment = filled(arena, tensors, -1);
    program->ids_buffer = program->labels_buffer = -1;
    program->positions_buffer = program->loss_buffer = -1;
    b->value = filled(arena, tensors, -1);
    b->gradient = filled(arena, tensors, -1);
    b->uses_left = filled(arena, tensors, 0);
    b->owner = filled(arena, tensors, -1);
    b->saved = filled(arena, ops, -1);
    b->saved2 = filled(arena, ops, -1);
    int *inputs = filled(arena, ops * SBP_MAX_INPUTS, -1);
    if (program->weight_buffer == NULL || program->gradient_buffer == NULL ||
        program->first_moment == NULL || program->second_moment == NULL || b->value == NULL ||
        b->gradient == NULL || b->uses_left == NULL || b->owner == NULL || b->saved == NULL ||
        b->saved2 == NULL || inputs == NULL)
        return SBP_E_MEMORY;
    b->input = (int(*)[SBP_MAX_INPUTS])inputs;
    return SBP_OK;
}

static enum sbp_status copy_strategy(struct builder *b, const struct sbp_strategy *strategy)
{
    struct sbp_program *program = b->program;
    SBP_TRY(sbp_strategy_alloc(b->graph, &program->arena, &program->strategy));
    program->strategy.boxing = strategy->boxing;
    memcpy(program->strategy.op, strategy->op, (size_t)b->graph->op_count * sizeof *strategy->op);
    memcpy(program->strategy.rest, strategy->rest,
           (size_t)b->graph->tensor_count * sizeof *strategy->rest);
    memcpy(program->strategy.split, strategy->split,
           (size_t)b->graph->class_count * sizeof *strategy->split);
    b->strategy = &program->strategy;
    b->layout = (struct sbp_layout){
        .mesh = b->mesh, .class_count = b->graph->class_count, .split = program->strategy.split};
    return SBP_OK;
}

static enum sbp_status assemble(struct builder *b, const struct sbp_strategy *strategy)
{
    SBP_TRY(prepare(b));
    SBP_TRY(copy_strategy(b, strategy));
    SBP_TRY(add_weights(b));
    if (b->graph->input >= 0 && b->graph->input_split) {
        const int tensor = b->graph->input;
        SBP_TRY(add_block(b, SBP_USE_ACTIVATION, tensor, &b->strategy->rest[tensor],
                          &b->value[tensor]));
        struct sbp_instr *instr = add_instr(b, SBP_INSTR_INPUT, -1, 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->tensor = tensor;
        instr->buffer[SBP_AT_OUT] = b->value[tensor];
    }
    for (int op = 0; op < b->graph->op_count; op++)
        SBP_TRY(forward_op(b, op));
    for (int op = b->graph->op_count - 1; op >= 0; op--)
        SBP_TRY(backward_op(b, op));
    SBP_TRY(add_updates(b));
    return sbp_program_lay_out(b->program, b->diag);
}

enum sbp_status sbp_program_make(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                 const struct sbp_mesh *mesh, const struct sbp_strategy *strategy,
                                 const struct sbp_element_bytes *bytes, struct sbp_program *program,
                                 struct sbp_diag *diag)
{
    *program = (struct sbp_program){.graph = graph, .mesh = *mesh, .bytes = *bytes};
    struct builder b = {.program = program, .graph = graph, .mesh = &program->mesh, .diag = diag};
    enum sbp_status status = assemble(&b, strategy);
    if (status == SBP_OK)
        sbp_program_price(program, cluster);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while compiling the plan");
    if (status != SBP_OK)
        sbp_program_free(program);
    return status;
}

void sbp_program_free(struct sbp_program *program)
{
    if (program == NULL)
        return;
    sbp_arena_free(&program->arena);
    *program = (struct sbp_program){0};
}

bool sbp_instr_is_call(const struct sbp_instr *instr)
{
    return (instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_REDUCE) &&
           instr->box.kind != SBP_LOCAL;
}

enum sbp_status sbp_program_calls(const struct sbp_program *program, struct sbp_arena *arena,
                                  struct sbp_call **calls, int *count)
{
    *calls = SBP_NEW(arena, struct sbp_call, program->instr_count);
    if (*calls == NULL)
        return SBP_E_MEMORY;
    *count = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (!sbp_instr_is_call(instr))
            continue;
        const int64_t members = sbp_mesh_group_size(&program->mesh, instr->box.axes);
        (*calls)[(*count)++] = (struct sbp_call){.kind = instr->box.kind,
                                                 .axes = instr->box.axes,
                                                 .count = instr->box.kind == SBP_ALL_REDUCE
                                                              ? instr->box.elements
                                                              : instr->box.elements / members,
                                                 .instr = i};
    }
    return SBP_OK;
}

/* The backward pass: an operator's gradients, in the duals of its distributions. */
#include "costmodel/program/program_compile_priv.h"

static bool wants_gradient(const struct sbp_compiler *c, int tensor)
{
    return tensor != c->graph->input || c->graph->input_split;
}

/* Where the gradient of an activation rests. */
static struct sbp_dist gradient_rest(const struct sbp_compiler *c, int tensor)
{
    return sbp_dist_dual(c->mesh, &c->strategy->rest[tensor]);
}

/* Adds the gradient that a consumer computed for one of its inputs, in the dual of the input's
 * distribution, to those of other consumers. */
static enum sbp_status give_gradient(struct sbp_compiler *c, int op, int input, int buffer)
{
    const int tensor = c->graph->op[op].input[input];
    const struct sbp_dist want = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, input);
    const struct sbp_dist rest = gradient_rest(c, tensor);
    struct sbp_dist at = sbp_dist_dual(c->mesh, &want), via;
    if (sbp_strategy_waypoint(c->graph, c->mesh, c->strategy, op, input, &via)) {
        SBP_TRY(sbp_emit_boxing(c, op, tensor, &at, &via, SBP_CAUSE_ACTIVATION_GRADIENT, false,
                                &buffer));
        at = via; /* its own dual: it is split everywhere */
    }
    SBP_TRY(
        sbp_emit_boxing(c, op, tensor, &at, &rest, SBP_CAUSE_ACTIVATION_GRADIENT, false, &buffer));
    if (c->gradient[tensor] < 0) {
        c->gradient[tensor] = buffer;
        return SBP_OK;
    }
    int sum = -1;
    SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, tensor, &rest, &sum));
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_ADD_GRADIENT, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->buffer[SBP_AT_OUT] = sum;
    instr->buffer[SBP_AT_IN] = c->gradient[tensor];
    instr->buffer[SBP_AT_IN2] = buffer;
    c->gradient[tensor] = sum;
    return SBP_OK;
}

/* Buffers for the gradients of all inputs as the operator computes them; it may compute one that
 * nobody reads. */
static enum sbp_status add_input_gradients(struct sbp_compiler *c, int op, int *dx)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist want = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, i);
        const struct sbp_dist dual = sbp_dist_dual(c->mesh, &want);
        dx[i] = -1;
        if (i == 0 || wants_gradient(c, node->input[i]))
            SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, node->input[i], &dual, &dx[i]));
    }
    return SBP_OK;
}

static enum sbp_status give_gradients(struct sbp_compiler *c, int op, const int *dx)
{
    for (int i = 0; i < c->graph->op[op].input_count; i++)
        if (wants_gradient(c, c->graph->op[op].input[i]))
            SBP_TRY(give_gradient(c, op, i, dx[i]));
    return SBP_OK;
}

/* ---- instructions -------------------------------------------------------------------------- */

/* One backward instruction; NULL stands for operands that it has none of. */
struct backward {
    int phase, dy, work;
    const int *dx;       /* (inputs) gradients that it forms */
    const int *weight;   /* (weights) */
    const int *gradient; /* (weights) gradients that it forms */
    double factor;
};

static void name_gradients(const struct sbp_compiler *c, int op, const struct backward *backward,
                           struct sbp_instr *instr)
{
    static const int out[SBP_MAX_INPUTS] = {SBP_AT_OUT, SBP_AT_OUT2, SBP_AT_OUT3};
    const struct sbp_op_node *node = &c->graph->op[op];
    for (int i = 0; backward->dx != NULL && i < node->input_count; i++)
        instr->buffer[out[i]] = backward->dx[i];
    for (int w = 0; w < node->weight_count; w++) {
        if (backward->weight != NULL)
            instr->buffer[SBP_AT_W + w] = backward->weight[w];
        if (backward->gradient != NULL)
            instr->buffer[SBP_AT_DW + w] = backward->gradient[w];
    }
    if (backward->gradient != NULL && node->weight_count > 0 &&
        c->weight[node->weight[0]].uses_left < 0)
        instr->factor = 1; /* it has been written already */
}

static enum sbp_status add_backward(struct sbp_compiler *c, int op, const struct backward *backward)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    const struct sbp_op_kept kept = sbp_op_kept(c->graph, op, &factor);
    const bool gradients_come_later = c->program->parallel.regather &&
                                      backward->phase < sbp_op_weight_phase(node->kind) &&
                                      sbp_op_has_weight_phase(c->graph, op);
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_BACKWARD, op, backward->phase);
    if (instr == NULL)
        return SBP_E_MEMORY;
    sbp_program_set_operands(c, instr, op);
    for (int i = 0; i < node->input_count; i++)
        if ((kept.inputs >> i & 1) == 0 || gradients_come_later)
            instr->buffer[SBP_AT_IN + i] = -1;
    if (kept.output)
        instr->buffer[SBP_AT_SAVED2] = c->output[op];
    if (c->half[op] >= 0)
        instr->buffer[SBP_AT_SAVED2] = c->half[op];
    instr->buffer[SBP_AT_DY] = backward->dy;
    instr->buffer[SBP_AT_WORK] = backward->work;
    instr->factor = backward->factor;
    name_gradients(c, op, backward, instr);
    return SBP_OK;
}

/* ---- operators ----------------------------------------------------------------------------- */

static enum sbp_status backward_norm(struct sbp_compiler *c, int op, int dy,
                                     const struct sbp_dist *dist)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const double tokens = (double)sbp_emit_tokens(c, node->input[0], dist);
    int dx[SBP_MAX_INPUTS], weight[SBP_MAX_WEIGHTS], gradient[SBP_MAX_WEIGHTS];
    SBP_TRY(sbp_program_gather_weights(c, op, weight));
    SBP_TRY(add_input_gradients(c, op, dx));
    SBP_TRY(sbp_emit_statistics(c, sbp_op_norm_sums(node->kind) * tokens, &c->saved[op][1]));
    struct backward backward = {.dy = dy, .work = -1, .dx = dx, .weight = weight};
    SBP_TRY(add_backward(c, op, &backward));
    SBP_TRY(sbp_emit_reduce(c, op, sbp_dist_split(c->mesh, dist, SBP_DIM_FEATURE), c->saved[op][1],
                            0, SBP_CAUSE_OPERATOR));
    SBP_TRY(sbp_program_open_gradients(c, op, gradient));
    backward.phase = 1;
    backward.gradient = gradient;
    SBP_TRY(add_backward(c, op, &backward));
    SBP_TRY(give_gradients(c, op, dx));
    return sbp_program_close_gradients(c, op);
}

/* Factor of the loss: the mean over all tokens of the step, whatever the micro-batch. Members that
 * repeat the work divide it among them, since their gradients are summed. */
static enum sbp_status backward_cross_entropy(struct sbp_compiler *c, int op)
{
    const struct sbp_graph *graph = c->graph;
    const struct sbp_shape *logits = &graph->tensor[graph->op[op].input[0]].shape;
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    const int replicate = sbp_op_role(graph->op[op].entry, "replicate");
    const double tokens = (double)logits->size[SBP_DIM_BATCH] *
                          (double)logits->size[SBP_DIM_SEQUENCE] *
                          ((double)graph->global_batch / (double)graph->micro_batch);
    int dx[SBP_MAX_INPUTS], wide = -1;
    struct backward backward = {
        .dy = -1, .work = -1, .factor = 1.0 / (tokens * factor.of[replicate])};
    SBP_TRY(add_input_gradients(c, op, dx));
    if (c->program->bytes.loss > 0) {
        SBP_TRY(sbp_emit_logits(c, op, &backward.work));
        SBP_TRY(sbp_emit_logits(c, op, &wide));
        SBP_TRY(add_backward(c, op, &backward));
        c->program->instr[c->program->instr_count - 1].buffer[SBP_AT_WORK2] = wide;
        backward.phase = 1;
    }
    backward.dx = dx;
    backward.work = wide;
    SBP_TRY(add_backward(c, op, &backward));
    if (wide >= 0)
        c->program->instr[c->program->instr_count - 1].buffer[SBP_AT_IN] = -1;
    SBP_TRY(sbp_emit_held_logits(c, op));
    return give_gradients(c, op, dx);
}

/* The way back of a mixture's forward pass. */
static enum sbp_status backward_moe(struct sbp_compiler *c, int op, struct backward *backward)
{
    while (backward->phase < sbp_op_weight_phase(SBP_OP_MOE)) {
        SBP_TRY(add_backward(c, op, backward));
        SBP_TRY(
            sbp_emit_journey(c, op, SBP_PASS_INPUT_GRADIENT, backward->phase++, backward->work));
    }
    return SBP_OK;
}

/* Gradients of inputs, with those of weights where there is no phase for them. */
static enum sbp_status backward_inputs(struct sbp_compiler *c, int op, int dy, bool with_weights)
{
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    int dx[SBP_MAX_INPUTS] = {-1, -1, -1}, work = -1;
    int weight[SBP_MAX_WEIGHTS], gradient[SBP_MAX_WEIGHTS];
    struct backward backward = {.dy = dy, .dx = dx};
    if (sbp_op_forms_input_gradient(c->graph, op)) {
        SBP_TRY(sbp_program_gather_weights(c, op, weight));
        backward.weight = weight;
        SBP_TRY(add_input_gradients(c, op, dx));
    }
    SBP_TRY(sbp_emit_work(
        c, sbp_op_scratch_elements(c->graph, op, &factor, SBP_PASS_INPUT_GRADIENT), &work));
    backward.work = work;
    if (c->graph->op[op].kind == SBP_OP_MOE) {
        SBP_TRY(backward_moe(c, op, &backward));
        return give_gradients(c, op, dx);
    }
    if (with_weights) { /* before collectives that the operator itself makes, which it follows */
        SBP_TRY(sbp_program_open_gradients(c, op, gradient));
        backward.gradient = gradient;
    }
    SBP_TRY(sbp_emit_inner(c, op, SBP_PASS_INPUT_GRADIENT, work));
    if (with_weights)
        SBP_TRY(sbp_emit_inner(c, op, SBP_PASS_WEIGHT_GRADIENT, work));
    SBP_TRY(add_backward(c, op, &backward));
    SBP_TRY(sbp_emit_inner_sums(c, op, work, dx));
    SBP_TRY(give_gradients(c, op, dx));
    return with_weights ? sbp_program_close_gradients(c, op) : SBP_OK;
}

static enum sbp_status backward_weights(struct sbp_compiler *c, int op, int dy)
{
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    int gradient[SBP_MAX_WEIGHTS], work = -1;
    c->section = SBP_SECTION_BACKWARD_WEIGHT;
    SBP_TRY(sbp_program_box_inputs_again(c, op));
    SBP_TRY(sbp_program_open_gradients(c, op, gradient));
    SBP_TRY(sbp_emit_work(
        c, sbp_op_scratch_elements(c->graph, op, &factor, SBP_PASS_WEIGHT_GRADIENT), &work));
    SBP_TRY(sbp_emit_inner(c, op, SBP_PASS_WEIGHT_GRADIENT, work));
    const struct backward backward = {.phase = sbp_op_weight_phase(c->graph->op[op].kind),
                                      .dy = dy,
                                      .work = work,
                                      .gradient = gradient};
    SBP_TRY(add_backward(c, op, &backward));
    SBP_TRY(sbp_program_close_gradients(c, op));
    c->section = SBP_SECTION_BACKWARD;
    return SBP_OK;
}

/* The gradient of a sum is that of each operand. */
static enum sbp_status backward_pass_on(struct sbp_compiler *c, int op, int dy)
{
    for (int i = 0; i < c->graph->op[op].input_count; i++)
        if (wants_gradient(c, c->graph->op[op].input[i]))
            SBP_TRY(give_gradient(c, op, i, dy));
    return SBP_OK;
}

/* The gradient is overwritten, too: sums of gradients have buffers of their own. */
static enum sbp_status backward_in_place(struct sbp_compiler *c, int op, int dy)
{
    if (!wants_gradient(c, c->graph->op[op].input[0]))
        return SBP_OK;
    SBP_TRY(add_backward(c, op, &(struct backward){.dy = dy, .work = -1, .dx = (const int[]){dy}}));
    return give_gradient(c, op, 0, dy);
}

/* Whether a table's gradient is added to that of its other user, which waits. */
static bool follows_tied(const struct sbp_compiler *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    return sbp_compiler_parts_backward(c) && node->kind == SBP_OP_EMBEDDING &&
           c->weight[node->weight[0]].uses_left < 0;
}

static enum sbp_status backward_operator(struct sbp_compiler *c, int op, int dy)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const bool inputs = sbp_op_forms_input_gradient(c->graph, op);
    if (sbp_op_has_weight_phase(c->graph, op)) {
        if (inputs)
            SBP_TRY(backward_inputs(c, op, dy, false));
        return backward_weights(c, op, dy);
    }
    if (!inputs && node->weight_count == 0)
        return SBP_OK;
    if (follows_tied(c, op))
        c->section = SBP_SECTION_BACKWARD_WEIGHT;
    SBP_TRY(backward_inputs(c, op, dy, node->weight_count > 0));
    c->section = SBP_SECTION_BACKWARD;
    return SBP_OK;
}

/* ---- recomputation -------------------------------------------------------------------------- */

/* Before the backward pass of a segment's last operator, its forward pass once more. */
static enum sbp_status form_again(struct sbp_compiler *c, int op)
{
    const bool selective = c->program->parallel.recompute == SBP_RECOMPUTE_SELECTIVE;
    const bool last = op + 1 == c->program->scope.end_op || c->segment[op + 1] != c->segment[op];
    c->section = SBP_SECTION_RECOMPUTE;
    if (c->segment[op] >= 0 && last)
        for (int again = c->segment[op]; again <= op; again++)
            SBP_TRY(selective && sbp_compiler_is_attention(c->graph->op[again].kind)
                        ? sbp_program_box_inputs(c, again)
                        : sbp_program_compile_forward(c, again));
    if (c->program->parallel.recompute == SBP_RECOMPUTE_ATTENTION &&
        sbp_compiler_is_attention(c->graph->op[op].kind))
        SBP_TRY(sbp_program_compile_attention_again(c, op));
    c->section = SBP_SECTION_BACKWARD;
    return SBP_OK;
}

/* The gradient of the operator's output, in the dual of the output's distribution. */
static enum sbp_status output_gradient(struct sbp_compiler *c, int op, int *dy)
{
    const struct sbp_dist dist = sbp_strategy_output(c->graph, c->mesh, c->strategy, op);
    const struct sbp_dist dual = sbp_dist_dual(c->mesh, &dist);
    const int tensor = c->graph->op[op].output;
    const struct sbp_dist rest = gradient_rest(c, tensor);
    if (c->gradient[tensor] < 0) {
        SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, tensor, &rest, &c->gradient[tensor]));
        struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_OUTPUT_GRADIENT, op, 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->tensor = tensor;
        instr->buffer[SBP_AT_OUT] = c->gradient[tensor];
    }
    *dy = c->gradient[tensor];
    return sbp_emit_boxing(c, op, tensor, &rest, &dual, SBP_CAUSE_ACTIVATION_GRADIENT, false, dy);
}

enum sbp_status sbp_program_compile_backward(struct sbp_compiler *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    int dy = -1;
    SBP_TRY(form_again(c, op));
    if (node->kind == SBP_OP_CROSS_ENTROPY)
        return backward_cross_entropy(c, op);
    SBP_TRY(output_gradient(c, op, &dy));
    if (node->kind == SBP_OP_ADD)
        return backward_pass_on(c, op, dy);
    if (node->entry->in_place)
        return backward_in_place(c, op, dy);
    if (sbp_op_norm_sums(node->kind) > 0) {
        const struct sbp_dist dist = sbp_strategy_output(c->graph, c->mesh, c->strategy, op);
        return backward_norm(c, op, dy, &dist);
    }
    return backward_operator(c, op, dy);
}

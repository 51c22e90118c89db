/* The forward pass, operator by operator; recomputation emits it once more. */
#include "costmodel/program/program_compile_priv.h"
#include "costmodel/program/regather.h"

/* ---- operands ------------------------------------------------------------------------------ */

/* The model's own input in the distribution that a reader wants: loaded so. */
static enum sbp_status load_input(struct sbp_compiler *c, int op, int tensor,
                                  const struct sbp_dist *want, int *buffer)
{
    SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, tensor, want, buffer));
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_INPUT, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->buffer[SBP_AT_OUT] = *buffer;
    return SBP_OK;
}

/* From where the tensor rests to what the operator's roles want. */
static enum sbp_status box_input(struct sbp_compiler *c, int op, int input,
                                 const struct sbp_dist *want, int *buffer)
{
    const int tensor = c->graph->op[op].input[input];
    struct sbp_dist at = c->strategy->rest[tensor], via;
    *buffer = c->value[tensor];
    if (sbp_strategy_waypoint(c->graph, c->mesh, c->strategy, op, input, &via)) {
        SBP_TRY(sbp_emit_boxing(c, op, tensor, &at, &via, SBP_CAUSE_ACTIVATION, false, buffer));
        at = via;
    }
    return sbp_emit_boxing(c, op, tensor, &at, want, SBP_CAUSE_ACTIVATION, false, buffer);
}

enum sbp_status sbp_program_box_inputs(struct sbp_compiler *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    for (int i = 0; i < node->input_count; i++) {
        const int tensor = node->input[i];
        const struct sbp_dist want = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, i);
        const bool is_free = tensor == c->graph->input && !c->graph->input_split;
        SBP_TRY(is_free ? load_input(c, op, tensor, &want, &c->input[op][i])
                        : box_input(c, op, i, &want, &c->input[op][i]));
    }
    return SBP_OK;
}

/* Whether a tensor waits for its readers' weight gradients otherwise than it rests. */
static bool waits_split(const struct sbp_compiler *c, int tensor, struct sbp_dist *kept)
{
    const int op = c->graph->tensor[tensor].producer;
    if (c->gatherer[tensor] < 0)
        return false;
    const struct sbp_dist produced = sbp_strategy_output(c->graph, c->mesh, c->strategy, op);
    return sbp_regather_kept(c->mesh, &produced, &c->strategy->rest[tensor], kept);
}

/* Cuts what waits out of a tensor at rest, unless the operator left it so. */
static enum sbp_status keep_split(struct sbp_compiler *c, int op, const struct sbp_dist *produced)
{
    const int tensor = c->graph->op[op].output;
    struct sbp_dist kept;
    if (c->section != SBP_SECTION_FORWARD || !waits_split(c, tensor, &kept))
        return SBP_OK;
    const struct sbp_dist left = sbp_dist_held(c->mesh, produced);
    const struct sbp_dist waits = sbp_dist_held(c->mesh, &kept);
    const bool is_left_so = sbp_dist_equal(c->mesh, &left, &waits);
    c->kept[tensor] = is_left_so ? c->output[op] : c->value[tensor];
    return is_left_so ? SBP_OK
                      : sbp_emit_boxing(c, op, tensor, &c->strategy->rest[tensor], &kept,
                                        SBP_CAUSE_ACTIVATION, false, &c->kept[tensor]);
}

/* Gathers what waits of a tensor, for all readers whose backward passes are still to come. */
static enum sbp_status gather_again(struct sbp_compiler *c, int op, int tensor)
{
    struct sbp_dist kept;
    if (c->gatherer[tensor] != op || !waits_split(c, tensor, &kept))
        return SBP_OK;
    c->value[tensor] = c->kept[tensor];
    return sbp_emit_boxing(c, op, tensor, &kept, &c->strategy->rest[tensor], SBP_CAUSE_ACTIVATION,
                           false, &c->value[tensor]);
}

enum sbp_status sbp_program_box_inputs_again(struct sbp_compiler *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    const unsigned kept = sbp_op_kept(c->graph, op, &factor).inputs;
    const enum sbp_section section = c->section;
    if (!c->program->parallel.regather)
        return SBP_OK;
    c->section = SBP_SECTION_RECOMPUTE;
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist want = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, i);
        const int tensor = node->input[i];
        if ((kept >> i & 1) == 0 || (tensor == c->graph->input && !c->graph->input_split))
            continue;
        SBP_TRY(gather_again(c, op, tensor));
        SBP_TRY(box_input(c, op, i, &want, &c->input[op][i]));
    }
    c->section = section;
    return SBP_OK;
}

void sbp_program_set_operands(const struct sbp_compiler *c, struct sbp_instr *instr, int op)
{
    for (int i = 0; i < SBP_MAX_INPUTS; i++)
        instr->buffer[SBP_AT_IN + i] = c->input[op][i];
    instr->buffer[SBP_AT_SAVED] = c->saved[op][0];
    instr->buffer[SBP_AT_SAVED2] = c->saved[op][1];
    instr->buffer[SBP_AT_SAVED3] = c->saved[op][2];
}

static enum sbp_status add_forward(struct sbp_compiler *c, int op, int phase, const int *weight,
                                   int work)
{
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_FORWARD, op, phase);
    if (instr == NULL)
        return SBP_E_MEMORY;
    sbp_program_set_operands(c, instr, op);
    instr->buffer[SBP_AT_OUT] = c->output[op];
    instr->buffer[SBP_AT_WORK] = work;
    for (int w = 0; w < c->graph->op[op].weight_count; w++)
        instr->buffer[SBP_AT_W + w] = weight[w];
    return SBP_OK;
}

/* ---- operators ----------------------------------------------------------------------------- */

static enum sbp_status forward_norm(struct sbp_compiler *c, int op, const int *weight,
                                    const struct sbp_dist *dist)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const double tokens = (double)sbp_emit_tokens(c, node->input[0], dist);
    SBP_TRY(sbp_emit_statistics(c, sbp_op_norm_sums(node->kind) * tokens, &c->saved[op][0]));
    SBP_TRY(add_forward(c, op, 0, weight, -1));
    SBP_TRY(sbp_emit_reduce(c, op, sbp_dist_split(c->mesh, dist, SBP_DIM_FEATURE), c->saved[op][0],
                            0, SBP_CAUSE_OPERATOR));
    return add_forward(c, op, 1, weight, -1);
}

static enum sbp_status forward_cross_entropy(struct sbp_compiler *c, int op)
{
    const int tensor = c->graph->op[op].input[0];
    const struct sbp_dist dist = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, 0);
    const int64_t tokens = sbp_emit_tokens(c, tensor, &dist);
    const sbp_axes vocabulary = sbp_dist_split(c->mesh, &dist, SBP_DIM_FEATURE);
    const sbp_axes token_axes = sbp_dist_split(c->mesh, &dist, SBP_DIM_BATCH) |
                                sbp_dist_split(c->mesh, &dist, SBP_DIM_SEQUENCE);
    struct sbp_program *program = c->program;
    SBP_TRY(sbp_emit_index(c, tensor, &dist, &program->labels_buffer));
    c->input[op][1] = program->labels_buffer;
    SBP_TRY(sbp_emit_statistics(c, (double)tokens, &c->saved[op][0]));
    SBP_TRY(sbp_emit_statistics(c, 2 * (double)tokens, &c->saved[op][1]));
    SBP_TRY(sbp_emit_statistics(c, 1, &program->loss_buffer));
    c->output[op] = program->loss_buffer;
    int converted = -1, exponentials = -1;
    SBP_TRY(sbp_emit_logits(c, op, &converted));
    SBP_TRY(add_forward(c, op, 0, NULL, converted));
    if (converted >= 0)
        c->input[op][0] = converted;
    SBP_TRY(sbp_emit_reduce(c, op, vocabulary, c->saved[op][0], 1, SBP_CAUSE_OPERATOR));
    SBP_TRY(add_forward(c, op, 1, NULL, -1));
    SBP_TRY(sbp_emit_logits(c, op, &exponentials));
    program->instr[program->instr_count - 1].buffer[SBP_AT_WORK2] = exponentials;
    SBP_TRY(sbp_emit_reduce(c, op, vocabulary, c->saved[op][1], 0, SBP_CAUSE_OPERATOR));
    SBP_TRY(add_forward(c, op, 2, NULL, -1));
    return sbp_emit_reduce(c, op, token_axes, program->loss_buffer, 0, SBP_CAUSE_SCALAR);
}

/* Buffers of token ids and row numbers, which the run fills. */
static enum sbp_status add_tokens(struct sbp_compiler *c, int op, const struct sbp_dist *dist)
{
    struct sbp_program *program = c->program;
    const int tensor = c->graph->op[op].output;
    if (c->input[op][0] >= 0) /* recomputed: they persist */
        return SBP_OK;
    SBP_TRY(sbp_emit_index(c, tensor, dist, &c->input[op][0]));
    SBP_TRY(sbp_emit_index(c, tensor, dist, &c->input[op][1]));
    program->ids_buffer[op] = c->input[op][0];
    program->positions_buffer[op] = c->input[op][1];
    return SBP_OK;
}

/* Buffers that the operator keeps beside its operands: elements or statistics first, masks where
 * there is room. */
static enum sbp_status add_saved(struct sbp_compiler *c, int op)
{
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    const struct sbp_op_kept kept = sbp_op_kept(c->graph, op, &factor);
    int *const saved = c->saved[op];
    saved[0] = saved[2] = -1;
    SBP_TRY(sbp_emit_work(c, kept.elements, &saved[0]));
    if (saved[0] < 0)
        SBP_TRY(sbp_emit_statistics(c, kept.statistics, &saved[0]));
    int *const mask = saved[0] < 0 ? &saved[0] : &saved[2];
    SBP_TRY(sbp_emit_work(c, kept.bytes, mask));
    if (*mask >= 0 && kept.bytes > 0)
        c->program->buffer[*mask].type = SBP_BUFFER_BYTE;
    return SBP_OK;
}

/* Emits any operator: scratch, collectives inside, and one instruction. */
static enum sbp_status forward_generic(struct sbp_compiler *c, int op, const int *weight)
{
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    int work = -1;
    SBP_TRY(add_saved(c, op));
    SBP_TRY(
        sbp_emit_work(c, sbp_op_scratch_elements(c->graph, op, &factor, SBP_PASS_FORWARD), &work));
    SBP_TRY(sbp_emit_inner(c, op, SBP_PASS_FORWARD, work));
    return add_forward(c, op, 0, weight, work);
}

/* Copies of tokens to their slots, the experts, and the sum over a token's experts; between them
 * copies travel where experts lie apart. */
static enum sbp_status forward_moe(struct sbp_compiler *c, int op, const int *weight)
{
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    int work = -1;
    SBP_TRY(add_saved(c, op));
    SBP_TRY(
        sbp_emit_work(c, sbp_op_scratch_elements(c->graph, op, &factor, SBP_PASS_FORWARD), &work));
    for (int phase = 0; phase < sbp_op_forward_phases(SBP_OP_MOE); phase++) {
        SBP_TRY(add_forward(c, op, phase, weight, work));
        SBP_TRY(sbp_emit_journey(c, op, SBP_PASS_FORWARD, phase, work));
    }
    return SBP_OK;
}

/* Under selective recompute the first pass over a product keeps half of its output, which the
 * second pass need not recompute. */
static bool keeps_half(const struct sbp_compiler *c, int op)
{
    return c->program->parallel.recompute == SBP_RECOMPUTE_SELECTIVE && c->segment[op] >= 0 &&
           c->section == SBP_SECTION_FORWARD && sbp_op_has_weight_phase(c->graph, op);
}

static enum sbp_status keep_half(struct sbp_compiler *c, int op)
{
    const double elements = (double)c->program->buffer[c->output[op]].elements;
    SBP_TRY(sbp_emit_work(c, elements / 2, &c->half[op]));
    c->saved[op][1] = c->half[op];
    return SBP_OK;
}

static enum sbp_status forward_operator(struct sbp_compiler *c, int op, const struct sbp_dist *dist)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    int weight[SBP_MAX_WEIGHTS];
    SBP_TRY(sbp_program_gather_weights(c, op, weight));
    SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, node->output, dist, &c->output[op]));
    c->saved[op][1] = -1;
    if (keeps_half(c, op))
        SBP_TRY(keep_half(c, op));
    if (sbp_op_norm_sums(node->kind) > 0)
        return forward_norm(c, op, weight, dist);
    if (node->kind == SBP_OP_MOE)
        return forward_moe(c, op, weight);
    if (node->kind == SBP_OP_EMBEDDING)
        SBP_TRY(add_tokens(c, op, dist));
    return forward_generic(c, op, weight);
}

/* Whether a recomputed pass forms the input of an operator in place anew: what the segment begins
 * with has been overwritten already. */
static bool forms_anew(const struct sbp_compiler *c, int op)
{
    int at = op;
    while (c->graph->op[at].entry->in_place) {
        const int tensor = c->graph->op[at].input[0];
        at = c->graph->tensor[tensor].producer;
        if (at < 0 && !c->graph->input_split)
            return true;
        if (at < c->segment[op])
            return false;
    }
    return true;
}

static enum sbp_status forward_in_place(struct sbp_compiler *c, int op)
{
    c->output[op] = c->input[op][0];
    return c->section == SBP_SECTION_RECOMPUTE && !forms_anew(c, op)
               ? SBP_OK
               : add_forward(c, op, 0, NULL, -1);
}

enum sbp_status sbp_program_compile_forward(struct sbp_compiler *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    SBP_TRY(sbp_program_box_inputs(c, op));
    if (node->kind == SBP_OP_CROSS_ENTROPY)
        return forward_cross_entropy(c, op);
    const struct sbp_dist dist = sbp_strategy_output(c->graph, c->mesh, c->strategy, op);
    if (node->entry->in_place)
        SBP_TRY(forward_in_place(c, op));
    else
        SBP_TRY(forward_operator(c, op, &dist));
    int output = c->output[op];
    SBP_TRY(sbp_emit_boxing(c, op, node->output, &dist, &c->strategy->rest[node->output],
                            SBP_CAUSE_ACTIVATION, false, &output));
    c->value[node->output] = output;
    return keep_split(c, op, &dist);
}

enum sbp_status sbp_program_compile_attention_again(struct sbp_compiler *c, int op)
{
    int weight[SBP_MAX_WEIGHTS];
    c->saved[op][1] = -1;
    SBP_TRY(sbp_program_gather_weights(c, op, weight));
    return forward_generic(c, op, weight);
}

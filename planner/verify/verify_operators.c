/* Checks passes of operators over blocks, and collectives inside them. */
#include "planner/verify/verify_flow_priv.h"

/* ---- operators ------------------------------------------------------------------------------ */

/* Slots of the blocks that the first phase of a forward pass leaves, beside its output, for later
 * phases and the backward pass. */
static const int KEPT[] = {SBP_AT_SAVED, SBP_AT_SAVED3};

static void note_kept(struct sbp_flow *f, const struct sbp_instr *instr)
{
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++)
        if (instr->buffer[KEPT[i]] >= 0)
            f->there[instr->buffer[KEPT[i]]] = true;
}

static enum sbp_status check_kept(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++)
        if (instr->buffer[KEPT[i]] >= 0 && !f->there[instr->buffer[KEPT[i]]])
            return sbp_verify_refuse(f->c, "%s: %s reads what no forward pass has left",
                                     sbp_verify_flow_name(f, instr),
                                     sbp_program_instr_name(instr->kind));
    return SBP_OK;
}

/* An operator in place leaves in its block what it reads there. */
static enum sbp_status check_in_place(const struct sbp_flow *f, const struct sbp_instr *instr,
                                      int from)
{
    const int out = instr->buffer[SBP_AT_OUT];
    if (!f->graph->op[instr->op].entry->in_place || out < 0 || out == instr->buffer[from])
        return SBP_OK;
    return sbp_verify_refuse(f->c, "%s: %s works in place and leaves its result elsewhere",
                             sbp_verify_flow_name(f, instr), sbp_program_instr_name(instr->kind));
}

enum sbp_status sbp_verify_flow_forward(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &f->graph->op[instr->op];
    const int work = instr->buffer[SBP_AT_WORK];
    (instr->section == SBP_SECTION_FORWARD ? f->forward : f->again)[instr->op]++;
    if (instr->phase > 0)
        SBP_TRY(check_kept(f, instr));
    note_kept(f, instr);
    for (int i = 0; i < node->input_count; i++)
        SBP_TRY(sbp_verify_flow_input(f, instr, i));
    SBP_TRY(sbp_verify_flow_weights(f, instr));
    /* Logits in the type of the loss take the place of the input. */
    if (work >= 0 && f->program->buffer[work].type == SBP_BUFFER_LOSS) {
        f->root[work] = f->root[instr->buffer[SBP_AT_IN]];
        f->value[work] = node->input[0];
    }
    if (node->output < 0)
        return SBP_OK;
    SBP_TRY(check_in_place(f, instr, SBP_AT_IN));
    const struct sbp_dist made = sbp_verify_output(f->c, instr->op);
    return sbp_verify_flow_write(f, instr, SBP_AT_OUT, node->output, &made);
}

static enum sbp_status check_output_gradient(const struct sbp_flow *f,
                                             const struct sbp_instr *instr)
{
    const int tensor = f->graph->op[instr->op].output, dy = instr->buffer[SBP_AT_DY];
    if (tensor < 0)
        return SBP_OK;
    const struct sbp_dist made = sbp_verify_output(f->c, instr->op);
    const struct sbp_dist dual = sbp_verify_dual(&made);
    const struct sbp_dist rest = sbp_verify_dual(&f->c->strategy->rest[tensor]);
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_DY, tensor, &dual));
    if (!sbp_verify_flow_is_gradient(f, &f->program->buffer[dy], tensor))
        return sbp_verify_refuse(f->c, "%s: reads the gradient of another tensor",
                                 sbp_verify_flow_name(f, instr));
    if (f->of[dy] == tensor)
        return sbp_verify_flow_root(f, instr, dy, tensor, &rest);
    if (!sbp_verify_same(f->c, &f->program->buffer[dy].dist, &rest))
        return sbp_verify_refuse(f->c, "%s: its gradient does not come from where it rests",
                                 sbp_verify_flow_name(f, instr));
    return SBP_OK;
}

enum sbp_status sbp_verify_flow_backward(struct sbp_flow *f, const struct sbp_instr *instr)
{
    static const int OUT[SBP_MAX_INPUTS] = {SBP_AT_OUT, SBP_AT_OUT2, SBP_AT_OUT3};
    const struct sbp_op_node *node = &f->graph->op[instr->op];
    f->backward[instr->op]++;
    SBP_TRY(check_kept(f, instr));
    SBP_TRY(check_output_gradient(f, instr));
    SBP_TRY(check_in_place(f, instr, SBP_AT_DY));
    SBP_TRY(sbp_verify_flow_weights(f, instr));
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist want = sbp_verify_input(f->c, instr->op, i);
        const struct sbp_dist dual = sbp_verify_dual(&want);
        if (instr->buffer[OUT[i]] >= 0)
            SBP_TRY(sbp_verify_flow_write(f, instr, OUT[i], node->input[i], &dual));
        if (instr->buffer[SBP_AT_IN + i] >= 0 && node->kind != SBP_OP_CROSS_ENTROPY)
            SBP_TRY(sbp_verify_flow_input(f, instr, i));
    }
    for (int w = 0; w < node->weight_count; w++) {
        const int tensor = node->weight[w];
        const struct sbp_dist dist = sbp_verify_weight(f->c, instr->op, w);
        if (instr->buffer[SBP_AT_DW + w] < 0)
            continue;
        SBP_TRY(sbp_verify_flow_write(f, instr, SBP_AT_DW + w, tensor, &dist));
        SBP_TRY(sbp_verify_flow_owner(f, instr, SBP_AT_DW + w, tensor));
        f->formed[tensor]++;
        f->gradient[tensor] = sbp_verify_flow_partial(&dist, f->held[tensor].shared);
    }
    return SBP_OK;
}

enum sbp_status sbp_verify_flow_sum(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_dist rest = sbp_verify_dual(&f->c->strategy->rest[instr->tensor]);
    f->sums[instr->tensor]++;
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_IN, instr->tensor, &rest));
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_IN2, instr->tensor, &rest));
    if (!sbp_verify_flow_is_part(f, sbp_verify_flow_buffer(f, instr, SBP_AT_IN), instr->tensor) ||
        !sbp_verify_flow_is_part(f, sbp_verify_flow_buffer(f, instr, SBP_AT_IN2), instr->tensor))
        return sbp_verify_refuse(f->c, "%s: something else is added to its gradient",
                                 f->graph->tensor[instr->tensor].name);
    return sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor, &rest);
}

/* The model's input, in the state in which it rests or its reader wants it. */
enum sbp_status sbp_verify_flow_model_input(struct sbp_flow *f, const struct sbp_instr *instr)
{
    if (!sbp_verify_is_free(f->c, instr->tensor))
        return sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor,
                                     &f->c->strategy->rest[instr->tensor]);
    enum sbp_status status = SBP_E_INTERNAL;
    for (int i = 0; i < f->graph->op[instr->op].input_count; i++) {
        const struct sbp_dist want = sbp_verify_input(f->c, instr->op, i);
        if (status != SBP_OK && f->graph->op[instr->op].input[i] == instr->tensor)
            status = sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor, &want);
    }
    return status;
}

/* ---- collectives inside operators ----------------------------------------------------------- */

static sbp_axes axes_of(const struct sbp_flow *f, int op, unsigned roles)
{
    sbp_axes axes = 0;
    for (int axis = 0; axis < f->c->mesh->axis_count; axis++)
        if ((roles >> f->c->role[op][axis] & 1) != 0)
            axes |= (sbp_axes)1 << axis;
    return axes;
}

static bool is_pass(const struct sbp_instr *instr, enum sbp_pass pass)
{
    const bool forward =
        instr->section == SBP_SECTION_FORWARD || instr->section == SBP_SECTION_RECOMPUTE;
    return forward == (pass == SBP_PASS_FORWARD);
}

/* The nearest pass of the operator that an instruction serves, its first phase, in the
 * instruction's section; step: 1 behind it, -1 before it. NULL: there is none. */
static const struct sbp_instr *find_pass(const struct sbp_flow *f, const struct sbp_instr *instr,
                                         enum sbp_instr_kind kind, int step)
{
    const struct sbp_program *program = f->program;
    for (int64_t i = instr - program->instr + step; i >= 0 && i < program->instr_count; i += step) {
        const struct sbp_instr *at = &program->instr[i];
        if (at->kind == kind && at->op == instr->op && at->phase == 0 &&
            at->section == instr->section)
            return at;
    }
    return NULL;
}

/* Convolutions fetch rows of the images that they read before they do, to where they read them. */
static enum sbp_status check_fetched(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_dist want = sbp_verify_input(f->c, instr->op, 0);
    const struct sbp_instr *reader = find_pass(f, instr, SBP_INSTR_FORWARD, 1);
    if (reader == NULL)
        return sbp_verify_refuse(f->c, "%s: fetches rows that it has read by then",
                                 sbp_verify_flow_name(f, instr));
    if (instr->buffer[SBP_AT_SAVED] < 0 ||
        instr->buffer[SBP_AT_SAVED] != reader->buffer[SBP_AT_SAVED])
        return sbp_verify_refuse(f->c, "%s: fetches rows to where it does not read them",
                                 sbp_verify_flow_name(f, instr));
    return sbp_verify_flow_read(f, instr, SBP_AT_IN, f->graph->op[instr->op].input[0], &want);
}

static bool has_operand(const struct sbp_instr *instr, int buffer)
{
    for (int i = 0; i < SBP_INSTR_BUFFERS; i++)
        if (instr->buffer[i] == buffer)
            return true;
    return false;
}

/* Gradients of rows come from where they were formed, and are added to the gradient of the images
 * before others read it. */
static enum sbp_status check_brought(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_dist want = sbp_verify_input(f->c, instr->op, 0);
    const struct sbp_dist dual = sbp_verify_dual(&want);
    const struct sbp_instr *former = find_pass(f, instr, SBP_INSTR_BACKWARD, -1);
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_OUT, f->graph->op[instr->op].input[0], &dual));
    if (former == NULL || instr->buffer[SBP_AT_WORK] < 0 ||
        instr->buffer[SBP_AT_WORK] != former->buffer[SBP_AT_WORK] ||
        instr->buffer[SBP_AT_OUT] != former->buffer[SBP_AT_OUT])
        return sbp_verify_refuse(f->c, "%s: brings back rows from where it has not formed them",
                                 sbp_verify_flow_name(f, instr));
    for (const struct sbp_instr *at = former + 1; at < instr; at++)
        if (at->kind != SBP_INSTR_INNER && has_operand(at, instr->buffer[SBP_AT_OUT]))
            return sbp_verify_refuse(f->c, "%s: brings back rows that %s has read by then",
                                     sbp_verify_flow_name(f, instr),
                                     sbp_program_instr_name(at->kind));
    return SBP_OK;
}

static enum sbp_status check_rows(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    if (f->graph->op[instr->op].kind != SBP_OP_CONV2D)
        return SBP_OK;
    return (is_pass(instr, SBP_PASS_FORWARD) ? check_fetched : check_brought)(f, instr);
}

/* A collective that the operator declares for this pass and that was not seen before. */
enum sbp_status sbp_verify_flow_declared(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_factor factor = sbp_verify_factor(f->c, instr->op);
    const double elements =
        instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements;
    unsigned *seen =
        &(instr->section == SBP_SECTION_RECOMPUTE ? f->inner_again : f->inner)[instr->op];
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(f->graph, instr->op, &factor, inner);
    for (int i = 0; i < count; i++)
        if (is_pass(instr, inner[i].pass) && inner[i].kind == instr->box.kind &&
            axes_of(f, instr->op, inner[i].roles) == instr->box.axes &&
            sbp_verify_near(inner[i].elements, elements) && inner[i].count == instr->times &&
            inner[i].statistic == instr->statistic && (*seen >> i & 1) == 0) {
            *seen |= 1u << i;
            return check_rows(f, instr);
        }
    return sbp_verify_refuse(f->c, "%s: %s of %g elements is no collective of its %s pass",
                             sbp_verify_flow_name(f, instr), sbp_collective_name(instr->box.kind),
                             elements, is_pass(instr, SBP_PASS_FORWARD) ? "forward" : "backward");
}

/* What flows through a program: every block is in the state that its reader's role asks for, and
 * nothing is read before it is there or used before it is summed. */
#include <math.h>
#include <string.h>

#include "planner/check_flow.h"

static const char *name_of(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    return instr->op >= 0 ? f->graph->op[instr->op].name : "the step";
}

static const struct sbp_buffer *buffer_at(const struct sbp_flow *f, const struct sbp_instr *instr,
                                          int slot)
{
    return instr->buffer[slot] < 0 ? NULL : &f->program->buffer[instr->buffer[slot]];
}

static bool is_block(const struct sbp_buffer *buffer)
{
    return buffer->use == SBP_USE_ACTIVATION || buffer->use == SBP_USE_GATHERED ||
           buffer->use == SBP_USE_UNREDUCED;
}

/* ---- reading and writing -------------------------------------------------------------------- */

/* The block at a slot is there, in that state and whole. */
static enum sbp_status check_block(const struct sbp_flow *f, const struct sbp_instr *instr,
                                   int slot, int tensor, const struct sbp_dist *dist)
{
    const struct sbp_buffer *buffer = buffer_at(f, instr, slot);
    int64_t elements = 0;
    if (buffer == NULL)
        return sbp_check_refuse(f->c, "%s: %s has no block of %s", name_of(f, instr),
                                sbp_instr_name(instr->kind), f->graph->tensor[tensor].name);
    if (is_block(buffer) && !f->there[instr->buffer[slot]])
        return sbp_check_refuse(f->c, "%s: %s reads %s before it is there", name_of(f, instr),
                                sbp_instr_name(instr->kind), f->graph->tensor[tensor].name);
    if (!sbp_check_same(f->c, &buffer->dist, dist))
        return sbp_check_refuse(f->c, "%s: %s has %s in another state than the roles ask for",
                                name_of(f, instr), sbp_instr_name(instr->kind),
                                f->graph->tensor[tensor].name);
    SBP_TRY(sbp_check_block(f->c, tensor, dist, &elements));
    if (buffer->elements != elements)
        return sbp_check_refuse(f->c, "%s: a block of %s has %lld elements, its share is %lld",
                                name_of(f, instr), f->graph->tensor[tensor].name,
                                (long long)buffer->elements, (long long)elements);
    return SBP_OK;
}

static enum sbp_status write_block(struct sbp_flow *f, const struct sbp_instr *instr, int slot,
                                   int tensor, const struct sbp_dist *dist)
{
    const int buffer = instr->buffer[slot];
    if (buffer >= 0) {
        f->there[buffer] = true;
        f->root[buffer] = buffer;
        f->of[buffer] = -1;
    }
    return check_block(f, instr, slot, tensor, dist);
}

static enum sbp_status check_root(const struct sbp_flow *f, const struct sbp_instr *instr,
                                  int buffer, int tensor, const struct sbp_dist *rest)
{
    if (!sbp_check_same(f->c, &f->program->buffer[f->root[buffer]].dist, rest))
        return sbp_check_refuse(f->c, "%s: %s does not come from where it rests", name_of(f, instr),
                                f->graph->tensor[tensor].name);
    return SBP_OK;
}

/* Operators in place leave their result in their input's block. */
static int held_as(const struct sbp_flow *f, int tensor)
{
    const int producer = f->graph->tensor[tensor].producer;
    return producer >= 0 && f->graph->op[producer].entry->in_place
               ? held_as(f, f->graph->op[producer].input[0])
               : tensor;
}

/* An input as an operator reads it, boxed from its rest. */
static enum sbp_status check_input(const struct sbp_flow *f, const struct sbp_instr *instr,
                                   int input)
{
    const int tensor = f->graph->op[instr->op].input[input];
    const struct sbp_dist want = sbp_check_input(f->c, instr->op, input);
    SBP_TRY(check_block(f, instr, SBP_AT_IN + input, tensor, &want));
    if (held_as(f, buffer_at(f, instr, SBP_AT_IN + input)->tensor) != held_as(f, tensor))
        return sbp_check_refuse(f->c, "%s: reads another tensor in place of %s", name_of(f, instr),
                                f->graph->tensor[tensor].name);
    if (sbp_check_is_free(f->c, tensor))
        return SBP_OK;
    return check_root(f, instr, instr->buffer[SBP_AT_IN + input], tensor,
                      &f->c->strategy->rest[tensor]);
}

static enum sbp_status check_weights(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &f->graph->op[instr->op];
    for (int w = 0; w < node->weight_count; w++) {
        const struct sbp_dist dist = sbp_check_weight(f->c, instr->op, w);
        if (instr->buffer[SBP_AT_W + w] < 0)
            continue;
        SBP_TRY(check_block(f, instr, SBP_AT_W + w, node->weight[w], &dist));
        if (buffer_at(f, instr, SBP_AT_W + w)->tensor != node->weight[w])
            return sbp_check_refuse(f->c, "%s: reads another weight in place of %s",
                                    name_of(f, instr), f->graph->tensor[node->weight[w]].name);
    }
    return SBP_OK;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* What a step may do to an axis of its group; the others stay as they are. */
static bool is_legal(enum sbp_collective kind, struct sbp_state from, struct sbp_state to)
{
    switch (kind) {
    case SBP_ALL_REDUCE:
        return from.kind == SBP_PARTIAL && to.kind == SBP_BROADCAST;
    case SBP_REDUCE_SCATTER:
        return from.kind == SBP_PARTIAL && to.kind == SBP_SPLIT;
    case SBP_ALL_GATHER:
        return from.kind == SBP_SPLIT && to.kind == SBP_BROADCAST;
    case SBP_ALL_TO_ALL:
        return from.kind == SBP_SPLIT && to.kind == SBP_SPLIT && from.dim != to.dim;
    case SBP_LOCAL:
        return from.kind != SBP_PARTIAL && to.kind != SBP_BROADCAST && from.kind != to.kind;
    default:
        return false;
    }
}

static bool same_state(struct sbp_state a, struct sbp_state b)
{
    return a.kind == b.kind && (a.kind != SBP_SPLIT || a.dim == b.dim);
}

static enum sbp_status check_transition(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_boxing_step *box = &instr->box;
    const struct sbp_dist *larger = box->kind == SBP_REDUCE_SCATTER ? &box->from : &box->to;
    int64_t elements = 0;
    for (int axis = 0; axis < f->c->mesh->axis_count; axis++) {
        const struct sbp_state from = box->from.axis[axis], to = box->to.axis[axis];
        const bool legal =
            (box->axes >> axis & 1) != 0 ? is_legal(box->kind, from, to) : same_state(from, to);
        if (!legal)
            return sbp_check_refuse(f->c, "%s: %s of %s is no legal transition on axis %d",
                                    name_of(f, instr), sbp_collective_name(box->kind),
                                    f->graph->tensor[instr->tensor].name, axis);
    }
    SBP_TRY(sbp_check_block(f->c, instr->tensor, larger, &elements));
    if (box->elements != elements)
        return sbp_check_refuse(f->c, "%s: %s of %s moves %lld elements, it is counted as %lld",
                                name_of(f, instr), sbp_collective_name(box->kind),
                                f->graph->tensor[instr->tensor].name, (long long)elements,
                                (long long)box->elements);
    return SBP_OK;
}

/* The producer's steps lead to where an activation rests, a reader's away from there. Of gradients
 * it is the other way round, and a chain of steps for one tensor begins anew where the block was
 * boxed for another (a sum passes its gradient on). */
static void note_root(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const int in = instr->buffer[SBP_AT_IN], out = instr->buffer[SBP_AT_OUT];
    const bool by_producer = f->graph->tensor[instr->tensor].producer == instr->op;
    if (instr->cause == SBP_CAUSE_ACTIVATION) {
        f->root[out] = by_producer ? out : f->root[in];
    } else {
        const int root = f->of[in] == instr->tensor ? f->root[in] : in;
        f->root[out] = by_producer ? root : out;
        f->of[out] = by_producer ? instr->tensor : -1;
    }
    f->there[out] = true;
}

static enum sbp_status check_box(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_boxing_step *box = &instr->box;
    SBP_TRY(check_transition(f, instr));
    SBP_TRY(sbp_check_note(f->c, instr->tensor, &box->from));
    SBP_TRY(sbp_check_note(f->c, instr->tensor, &box->to));
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT) {
        if (!f->formed[instr->tensor] ||
            !sbp_check_same(f->c, &f->gradient[instr->tensor], &box->from))
            return sbp_check_refuse(f->c, "%s: the gradient of %s is summed before it is there",
                                    name_of(f, instr), f->graph->tensor[instr->tensor].name);
        f->gradient[instr->tensor] = box->to;
        return SBP_OK;
    }
    SBP_TRY(check_block(f, instr, SBP_AT_IN, instr->tensor, &box->from));
    if (instr->buffer[SBP_AT_OUT] < 0)
        return sbp_check_refuse(f->c, "%s: %s leads nowhere", name_of(f, instr),
                                sbp_collective_name(box->kind));
    note_root(f, instr);
    return check_block(f, instr, SBP_AT_OUT, instr->tensor, &box->to);
}

/* Between stages: an activation at rest, or its gradient in the dual state. */
static enum sbp_status check_message(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_dist *rest = &f->c->strategy->rest[instr->tensor];
    const struct sbp_dist dual = sbp_check_dual(rest);
    const struct sbp_dist *dist = instr->section == SBP_SECTION_FORWARD ? rest : &dual;
    int64_t elements = 0;
    SBP_TRY(sbp_check_block(f->c, instr->tensor, dist, &elements));
    if (instr->box.elements != elements || instr->stages != 2)
        return sbp_check_refuse(f->c, "%s: %lld elements go to %d stages, %lld to one other",
                                f->graph->tensor[instr->tensor].name,
                                (long long)instr->box.elements, instr->stages, (long long)elements);
    if (instr->kind == SBP_INSTR_RECEIVE)
        return write_block(f, instr, SBP_AT_OUT, instr->tensor, dist);
    return check_block(f, instr, SBP_AT_IN, instr->tensor, dist);
}

/* ---- operators ------------------------------------------------------------------------------ */

static enum sbp_status check_forward(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &f->graph->op[instr->op];
    const int work = instr->buffer[SBP_AT_WORK];
    f->forward[instr->op] += instr->section == SBP_SECTION_FORWARD;
    for (int i = 0; i < node->input_count; i++)
        SBP_TRY(check_input(f, instr, i));
    SBP_TRY(check_weights(f, instr));
    /* Logits in the loss's own type take the place of the input. */
    if (work >= 0 && f->program->buffer[work].type == SBP_BUFFER_LOSS)
        f->root[work] = f->root[instr->buffer[SBP_AT_IN]];
    if (node->output < 0)
        return SBP_OK;
    const struct sbp_dist made = sbp_check_output(f->c, instr->op);
    return write_block(f, instr, SBP_AT_OUT, node->output, &made);
}

static enum sbp_status check_output_gradient(const struct sbp_flow *f,
                                             const struct sbp_instr *instr)
{
    const int tensor = f->graph->op[instr->op].output, dy = instr->buffer[SBP_AT_DY];
    if (tensor < 0)
        return SBP_OK;
    const struct sbp_dist made = sbp_check_output(f->c, instr->op);
    const struct sbp_dist dual = sbp_check_dual(&made);
    const struct sbp_dist rest = sbp_check_dual(&f->c->strategy->rest[tensor]);
    SBP_TRY(check_block(f, instr, SBP_AT_DY, tensor, &dual));
    if (f->of[dy] == tensor)
        return check_root(f, instr, dy, tensor, &rest);
    if (!sbp_check_same(f->c, &f->program->buffer[dy].dist, &rest))
        return sbp_check_refuse(f->c, "%s: its gradient does not come from where it rests",
                                name_of(f, instr));
    return SBP_OK;
}

/* A weight's gradient as operators form it: partial on the axes that share the weight. */
static struct sbp_dist partial_on(const struct sbp_dist *dist, sbp_axes shared)
{
    struct sbp_dist gradient = *dist;
    for (int axis = 0; axis < SBP_MAX_AXES; axis++)
        if ((shared >> axis & 1) != 0)
            gradient.axis[axis] = SBP_STATE_P;
    return gradient;
}

static enum sbp_status check_backward(struct sbp_flow *f, const struct sbp_instr *instr)
{
    static const int OUT[SBP_MAX_INPUTS] = {SBP_AT_OUT, SBP_AT_OUT2, SBP_AT_OUT3};
    const struct sbp_op_node *node = &f->graph->op[instr->op];
    f->backward[instr->op]++;
    SBP_TRY(check_output_gradient(f, instr));
    SBP_TRY(check_weights(f, instr));
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist want = sbp_check_input(f->c, instr->op, i);
        const struct sbp_dist dual = sbp_check_dual(&want);
        if (instr->buffer[OUT[i]] >= 0)
            SBP_TRY(write_block(f, instr, OUT[i], node->input[i], &dual));
        if (instr->buffer[SBP_AT_IN + i] >= 0 && node->kind != SBP_OP_CROSS_ENTROPY)
            SBP_TRY(check_input(f, instr, i));
    }
    for (int w = 0; w < node->weight_count; w++) {
        const int tensor = node->weight[w];
        const struct sbp_dist dist = sbp_check_weight(f->c, instr->op, w);
        if (instr->buffer[SBP_AT_DW + w] < 0)
            continue;
        SBP_TRY(write_block(f, instr, SBP_AT_DW + w, tensor, &dist));
        f->formed[tensor]++;
        f->gradient[tensor] = partial_on(&dist, f->held[tensor].shared);
    }
    return SBP_OK;
}

static enum sbp_status check_sum(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_dist rest = sbp_check_dual(&f->c->strategy->rest[instr->tensor]);
    f->sums[instr->tensor]++;
    SBP_TRY(check_block(f, instr, SBP_AT_IN, instr->tensor, &rest));
    SBP_TRY(check_block(f, instr, SBP_AT_IN2, instr->tensor, &rest));
    return write_block(f, instr, SBP_AT_OUT, instr->tensor, &rest);
}

/* The model's input as it rests, or as its reader wants it. */
static enum sbp_status check_model_input(struct sbp_flow *f, const struct sbp_instr *instr)
{
    if (!sbp_check_is_free(f->c, instr->tensor))
        return write_block(f, instr, SBP_AT_OUT, instr->tensor,
                           &f->c->strategy->rest[instr->tensor]);
    enum sbp_status status = SBP_E_INTERNAL;
    for (int i = 0; i < f->graph->op[instr->op].input_count; i++) {
        const struct sbp_dist want = sbp_check_input(f->c, instr->op, i);
        if (status != SBP_OK && f->graph->op[instr->op].input[i] == instr->tensor)
            status = write_block(f, instr, SBP_AT_OUT, instr->tensor, &want);
    }
    return status;
}

/* ---- weights -------------------------------------------------------------------------------- */

/* Between shards and whole blocks, over the axes that share a weight. */
static enum sbp_status check_exchange(const struct sbp_flow *f, const struct sbp_instr *instr,
                                      enum sbp_collective sharded)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const enum sbp_owner owner = f->c->plan->parallel.owner;
    const enum sbp_collective kind = owner == SBP_OWNER_NONE        ? sharded
                                     : owner == SBP_OWNER_BROADCAST ? SBP_BROADCAST_COLL
                                                                    : SBP_SEND_RECV;
    const int64_t elements = owner == SBP_OWNER_NONE ? held->shard * held->members : held->local;
    if (held->level == 0 || instr->box.kind != kind || instr->box.axes != held->shared ||
        instr->box.elements != elements)
        return sbp_check_refuse(f->c, "%s: the %s of its states is none of %lld elements over %lld",
                                f->graph->tensor[instr->tensor].name, sbp_instr_name(instr->kind),
                                (long long)elements, (long long)held->members);
    return SBP_OK;
}

static enum sbp_status check_gather(struct sbp_flow *f, const struct sbp_instr *instr)
{
    SBP_TRY(check_exchange(f, instr, SBP_ALL_GATHER));
    if (instr->section == SBP_SECTION_STEP) {
        f->gathered[instr->tensor]++;
        return f->updated[instr->tensor] == 1
                   ? SBP_OK
                   : sbp_check_refuse(f->c, "%s: is gathered before it is updated",
                                      f->graph->tensor[instr->tensor].name);
    }
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const struct sbp_dist dist = sbp_check_weight(f->c, held->op, held->index);
    return write_block(f, instr, SBP_AT_OUT, instr->tensor, &dist);
}

static enum sbp_status check_convert(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const struct sbp_dist dist = sbp_check_weight(f->c, held->op, held->index);
    return write_block(f, instr, SBP_AT_OUT, instr->tensor, &dist);
}

static enum sbp_status check_scatter(struct sbp_flow *f, const struct sbp_instr *instr)
{
    SBP_TRY(check_exchange(f, instr, SBP_REDUCE_SCATTER));
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const struct sbp_dist dist = sbp_check_weight(f->c, held->op, held->index);
    const struct sbp_dist formed = partial_on(&dist, held->shared);
    if (!f->formed[instr->tensor] || !sbp_check_same(f->c, &f->gradient[instr->tensor], &formed))
        return sbp_check_refuse(f->c, "%s: its gradient is scattered before it is there",
                                f->graph->tensor[instr->tensor].name);
    f->gradient[instr->tensor] = dist; /* of a shard of each block */
    return SBP_OK;
}

static enum sbp_status check_update(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const char *name = f->graph->tensor[instr->tensor].name;
    f->updated[instr->tensor]++;
    if (held->op < 0)
        return sbp_check_refuse(f->c, "%s: is updated and not held", name);
    const struct sbp_dist dist = sbp_check_weight(f->c, held->op, held->index);
    if (!f->formed[instr->tensor] || !sbp_check_same(f->c, &f->gradient[instr->tensor], &dist))
        return sbp_check_refuse(f->c, "%s: is updated from a gradient that is not summed", name);
    if (f->program->updated[instr->tensor] != held->shard)
        return sbp_check_refuse(f->c, "%s: %lld parameters are updated, the device has %lld", name,
                                (long long)f->program->updated[instr->tensor],
                                (long long)held->shard);
    return SBP_OK;
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

/* One that the operator declares for this pass and that was not seen before. */
static enum sbp_status check_declared(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_factor factor = sbp_check_factor(f->c, instr->op);
    const double elements =
        instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements;
    const bool again = instr->section == SBP_SECTION_RECOMPUTE;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(f->graph, instr->op, &factor, inner);
    for (int i = 0; i < count; i++)
        if (is_pass(instr, inner[i].pass) && inner[i].kind == instr->box.kind &&
            axes_of(f, instr->op, inner[i].roles) == instr->box.axes &&
            sbp_check_near(inner[i].elements, elements) && inner[i].count == instr->times &&
            (again || (f->inner[instr->op] >> i & 1) == 0)) {
            f->inner[instr->op] |= again ? 0u : 1u << i;
            return SBP_OK;
        }
    return sbp_check_refuse(f->c, "%s: %s of %g elements is no collective of its %s pass",
                            name_of(f, instr), sbp_collective_name(instr->box.kind), elements,
                            is_pass(instr, SBP_PASS_FORWARD) ? "forward" : "backward");
}

static enum sbp_status check_inner(struct sbp_flow *f, const struct sbp_instr *instr)
{
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT) {
        const struct sbp_held_weight *held = &f->held[instr->tensor];
        f->stage_sums[instr->tensor]++;
        return instr->stages == f->c->holders[instr->tensor] &&
                       sbp_check_near(instr->inner_elements, (double)held->shard)
                   ? SBP_OK
                   : sbp_check_refuse(f->c, "%s: %d stages sum %g elements, %d hold %lld",
                                      f->graph->tensor[instr->tensor].name, instr->stages,
                                      instr->inner_elements, f->c->holders[instr->tensor],
                                      (long long)held->shard);
    }
    return instr->op >= 0 ? check_declared(f, instr) : SBP_OK;
}

/* ---- one program ---------------------------------------------------------------------------- */

static enum sbp_status check_instr(struct sbp_flow *f, const struct sbp_instr *instr)
{
    switch (instr->kind) {
    case SBP_INSTR_INPUT:
        return check_model_input(f, instr);
    case SBP_INSTR_FORWARD:
        return check_forward(f, instr);
    case SBP_INSTR_BACKWARD:
        return check_backward(f, instr);
    case SBP_INSTR_BOX:
        return check_box(f, instr);
    case SBP_INSTR_REDUCE:
    case SBP_INSTR_INNER:
        return check_inner(f, instr);
    case SBP_INSTR_GATHER:
        return check_gather(f, instr);
    case SBP_INSTR_CONVERT:
        return check_convert(f, instr);
    case SBP_INSTR_SCATTER:
        return check_scatter(f, instr);
    case SBP_INSTR_RECEIVE:
    case SBP_INSTR_SEND:
        return check_message(f, instr);
    case SBP_INSTR_ADD_GRADIENT:
        return check_sum(f, instr);
    case SBP_INSTR_OUTPUT_GRADIENT: {
        const struct sbp_dist rest = sbp_check_dual(&f->c->strategy->rest[instr->tensor]);
        return write_block(f, instr, SBP_AT_OUT, instr->tensor, &rest);
    }
    case SBP_INSTR_NORM:
        f->norms++;
        return SBP_OK;
    case SBP_INSTR_UPDATE:
        return check_update(f, instr);
    }
    return sbp_check_refuse(f->c, "an instruction of no kind");
}

/* ---- all programs --------------------------------------------------------------------------- */

static enum sbp_status allocate(struct sbp_flow *f)
{
    struct sbp_arena *arena = &f->c->scratch;
    const int tensors = f->graph->tensor_count, ops = f->graph->op_count;
    const int buffers = f->program->buffer_count + 1;
    f->held = SBP_NEW(arena, struct sbp_held_weight, tensors);
    f->there = SBP_NEW(arena, bool, buffers);
    f->root = SBP_NEW(arena, int, buffers);
    f->of = SBP_NEW(arena, int, buffers);
    int *of_ops = SBP_NEW(arena, int, 2 * (size_t)ops);
    int *of_tensors = SBP_NEW(arena, int, 6 * (size_t)tensors);
    f->gradient = SBP_NEW(arena, struct sbp_dist, tensors);
    f->inner = SBP_NEW(arena, unsigned, ops);
    if (f->held == NULL || f->there == NULL || f->root == NULL || f->of == NULL || of_ops == NULL ||
        of_tensors == NULL || f->gradient == NULL || f->inner == NULL)
        return SBP_E_MEMORY;
    f->forward = of_ops;
    f->backward = of_ops + ops;
    f->sums = of_tensors;
    f->formed = of_tensors + tensors;
    f->updated = of_tensors + 2 * tensors;
    f->stage_sums = of_tensors + 3 * tensors;
    f->gathered = of_tensors + 4 * tensors;
    f->parts = of_tensors + 5 * tensors;
    for (int b = 0; b < buffers; b++) {
        f->root[b] = b;
        f->of[b] = -1;
    }
    return SBP_OK;
}

static enum sbp_status check_program(struct sbp_checker *c, const struct sbp_program *program)
{
    struct sbp_flow flow = {.c = c, .program = program, .graph = c->graph};
    SBP_TRY(allocate(&flow));
    SBP_TRY(sbp_check_hold(c, program->scope.first_op, program->scope.end_op, flow.held));
    for (int i = 0; i < program->instr_count; i++)
        SBP_TRY(check_instr(&flow, &program->instr[i]));
    return sbp_check_complete(&flow);
}

enum sbp_status sbp_check_flow(struct sbp_checker *c)
{
    for (int i = 0; i < c->step->program_count; i++) {
        const struct sbp_arena_mark mark = sbp_arena_mark(&c->scratch);
        SBP_TRY(check_program(c, &c->step->program[i]));
        sbp_arena_release(&c->scratch, mark);
    }
    return SBP_OK;
}

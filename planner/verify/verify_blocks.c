/* Checks blocks of activations and gradients: read and written in the states that roles ask for,
 * and carried from one state to another. */
#include "planner/verify/verify_flow_priv.h"

const char *sbp_verify_flow_name(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    return instr->op >= 0 ? f->graph->op[instr->op].name : "the step";
}

const struct sbp_buffer *sbp_verify_flow_buffer(const struct sbp_flow *f,
                                                const struct sbp_instr *instr, int slot)
{
    return instr->buffer[slot] < 0 ? NULL : &f->program->buffer[instr->buffer[slot]];
}

/* With the operator that `instr` of the flow `f` serves in front. */
#define REFUSE(format, ...)                                                                        \
    sbp_verify_refuse(f->c, "%s: " format, sbp_verify_flow_name(f, instr), __VA_ARGS__)

static bool is_block(const struct sbp_buffer *buffer)
{
    return buffer->use == SBP_USE_ACTIVATION || buffer->use == SBP_USE_GATHERED ||
           buffer->use == SBP_USE_UNREDUCED;
}

/* ---- reading and writing -------------------------------------------------------------------- */

/* Elements of a buffer of a block; whole weights and gradients have room for all shards. */
static int64_t elements_of(const struct sbp_flow *f, const struct sbp_buffer *buffer, int tensor,
                           int64_t block)
{
    const struct sbp_held_weight *held = &f->held[tensor];
    switch (buffer->use) {
    case SBP_USE_WEIGHT:
    case SBP_USE_GRADIENT:
    case SBP_USE_UNREDUCED:
        return held->padded;
    case SBP_USE_GATHERED:
        return held->level == 3 ? held->padded : block;
    default:
        return block;
    }
}

/* The block was written, is in that state and whole. */
enum sbp_status sbp_verify_flow_read(const struct sbp_flow *f, const struct sbp_instr *instr,
                                     int slot, int tensor, const struct sbp_dist *dist)
{
    const struct sbp_buffer *buffer = sbp_verify_flow_buffer(f, instr, slot);
    const struct sbp_dist held = sbp_verify_held(dist);
    int64_t elements = 0;
    if (buffer == NULL)
        return REFUSE("%s has no block of %s", sbp_program_instr_name(instr->kind),
                      f->graph->tensor[tensor].name);
    if (is_block(buffer) && !f->there[instr->buffer[slot]])
        return REFUSE("%s reads %s before it is there", sbp_program_instr_name(instr->kind),
                      f->graph->tensor[tensor].name);
    if (!sbp_verify_same(f->c, &buffer->dist, &held))
        return REFUSE("%s has %s in another state than the roles ask for",
                      sbp_program_instr_name(instr->kind), f->graph->tensor[tensor].name);
    SBP_TRY(sbp_verify_block(f->c, tensor, dist, &elements));
    elements = elements_of(f, buffer, tensor, elements);
    if (buffer->elements != elements)
        return REFUSE("a block of %s has %lld elements, its share is %lld",
                      f->graph->tensor[tensor].name, (long long)buffer->elements,
                      (long long)elements);
    return SBP_OK;
}

enum sbp_status sbp_verify_flow_write(struct sbp_flow *f, const struct sbp_instr *instr, int slot,
                                      int tensor, const struct sbp_dist *dist)
{
    const int buffer = instr->buffer[slot];
    if (buffer >= 0) {
        f->there[buffer] = true;
        f->root[buffer] = buffer;
        f->of[buffer] = -1;
        f->value[buffer] = tensor;
    }
    return sbp_verify_flow_read(f, instr, slot, tensor, dist);
}

enum sbp_status sbp_verify_flow_root(const struct sbp_flow *f, const struct sbp_instr *instr,
                                     int buffer, int tensor, const struct sbp_dist *rest)
{
    const struct sbp_dist held = sbp_verify_held(rest);
    if (!sbp_verify_same(f->c, &f->program->buffer[f->root[buffer]].dist, &held))
        return REFUSE("%s does not come from where it rests", f->graph->tensor[tensor].name);
    return SBP_OK;
}

/* The tensor whose block holds a tensor: operators in place leave their result in their input's
 * block. */
static int held_as(const struct sbp_flow *f, int tensor)
{
    const int producer = f->graph->tensor[tensor].producer;
    return producer >= 0 && f->graph->op[producer].entry->in_place
               ? held_as(f, f->graph->op[producer].input[0])
               : tensor;
}

/* The input is in the state that the operator reads, made from where it rests. */
enum sbp_status sbp_verify_flow_input(const struct sbp_flow *f, const struct sbp_instr *instr,
                                      int input)
{
    const int tensor = f->graph->op[instr->op].input[input];
    const struct sbp_dist want = sbp_verify_input(f->c, instr->op, input);
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_IN + input, tensor, &want));
    if (held_as(f, sbp_verify_flow_buffer(f, instr, SBP_AT_IN + input)->tensor) !=
        held_as(f, tensor))
        return REFUSE("reads another tensor in place of %s", f->graph->tensor[tensor].name);
    if (f->value[instr->buffer[SBP_AT_IN + input]] != tensor)
        return REFUSE("reads %s where an operator in place has not formed it, or formed more",
                      f->graph->tensor[tensor].name);
    if (sbp_verify_is_free(f->c, tensor))
        return SBP_OK;
    return sbp_verify_flow_root(f, instr, instr->buffer[SBP_AT_IN + input], tensor,
                                &f->c->strategy->rest[tensor]);
}

/* The buffer is a weight's own, or its gradient's. */
enum sbp_status sbp_verify_flow_owner(const struct sbp_flow *f, const struct sbp_instr *instr,
                                      int slot, int weight)
{
    const struct sbp_buffer *buffer = sbp_verify_flow_buffer(f, instr, slot);
    if (buffer == NULL || buffer->tensor != weight)
        return REFUSE("%s has another buffer in place of %s", sbp_program_instr_name(instr->kind),
                      f->graph->tensor[weight].name);
    return SBP_OK;
}

/* A forward pass reads all weights; the operator decides which of them its gradients need. */
enum sbp_status sbp_verify_flow_weights(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &f->graph->op[instr->op];
    for (int w = 0; w < node->weight_count; w++) {
        const struct sbp_dist dist = sbp_verify_weight(f->c, instr->op, w);
        if (instr->kind == SBP_INSTR_BACKWARD && instr->buffer[SBP_AT_W + w] < 0)
            continue;
        SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_W + w, node->weight[w], &dist));
        SBP_TRY(sbp_verify_flow_owner(f, instr, SBP_AT_W + w, node->weight[w]));
    }
    return SBP_OK;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* Whether an operator passes its gradient on: a sum to what it adds, an operator in place to what
 * it overwrites. */
static bool hands_on(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_ADD || node->entry->in_place;
}

/* Whether a block holds all of a tensor's gradient: that of the tensor, or that of the output of
 * its only reader, which passes it on. */
bool sbp_verify_flow_is_gradient(const struct sbp_flow *f, const struct sbp_buffer *buffer,
                                 int tensor)
{
    while (buffer->tensor != tensor) {
        const int reader = f->parts[tensor] == 1 ? f->reader[tensor] : -1;
        if (reader < 0 || !hands_on(&f->graph->op[reader]))
            return false;
        tensor = f->graph->op[reader].output;
    }
    return true;
}

/* Whether a block holds a part of a tensor's gradient: that of one reader, or a sum of some. */
bool sbp_verify_flow_is_part(const struct sbp_flow *f, const struct sbp_buffer *buffer, int tensor)
{
    bool part = buffer->tensor == tensor;
    for (int op = f->program->scope.first_op; op < f->program->scope.end_op && !part; op++) {
        const struct sbp_op_node *node = &f->graph->op[op];
        for (int i = 0; i < node->input_count && hands_on(node) && !part; i++)
            part = node->input[i] == tensor && sbp_verify_flow_is_gradient(f, buffer, node->output);
    }
    return part;
}

/* Whether a collective may carry an axis of its group from one state to another; other axes stay as
 * they are. */
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
            return REFUSE("%s of %s is no legal transition on axis %d",
                          sbp_collective_name(box->kind), f->graph->tensor[instr->tensor].name,
                          axis);
    }
    SBP_TRY(sbp_verify_block(f->c, instr->tensor, larger, &elements));
    if (box->elements != elements)
        return REFUSE("%s of %s moves %lld elements, it is counted as %lld",
                      sbp_collective_name(box->kind), f->graph->tensor[instr->tensor].name,
                      (long long)elements, (long long)box->elements);
    return SBP_OK;
}

/* Whether a transfer brings an activation back to where it rests, out of what regather kept: on
 * each axis as it rests, or split as its operator left it. */
static bool rests_again(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const int producer = f->graph->tensor[instr->tensor].producer;
    const struct sbp_dist rest = sbp_verify_held(&f->c->strategy->rest[instr->tensor]);
    if (!f->program->parallel.regather || instr->section != SBP_SECTION_RECOMPUTE || producer < 0 ||
        !sbp_verify_same(f->c, &instr->box.to, &rest))
        return false;
    const struct sbp_dist made = sbp_verify_output(f->c, producer);
    const struct sbp_dist *kept = &f->program->buffer[f->root[instr->buffer[SBP_AT_IN]]].dist;
    bool waits = true;
    for (int axis = 0; axis < f->c->mesh->axis_count; axis++)
        waits &=
            same_state(kept->axis[axis], rest.axis[axis]) ||
            (made.axis[axis].kind == SBP_SPLIT && same_state(kept->axis[axis], made.axis[axis]));
    return waits;
}

/* Notes the root of a transfer. The producer's transfers lead to where an activation rests, a
 * reader's lead away from there; with gradients it is the other way round. A chain of transfers
 * begins anew where its block was made for another tensor (a sum passes its gradient on). */
static void note_root(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const int in = instr->buffer[SBP_AT_IN], out = instr->buffer[SBP_AT_OUT];
    const bool by_producer = f->graph->tensor[instr->tensor].producer == instr->op;
    if (instr->cause == SBP_CAUSE_ACTIVATION) {
        f->root[out] = by_producer || rests_again(f, instr) ? out : f->root[in];
        f->value[out] = f->value[in];
    } else {
        const int root = f->of[in] == instr->tensor ? f->root[in] : in;
        f->root[out] = by_producer ? root : out;
        f->of[out] = by_producer ? instr->tensor : -1;
    }
    f->there[out] = true;
}

/* The block that is moved is the instruction's activation, or all or a part of its gradient. */
static enum sbp_status check_moved(const struct sbp_flow *f, const struct sbp_instr *instr,
                                   bool forward)
{
    const struct sbp_buffer *in = sbp_verify_flow_buffer(f, instr, SBP_AT_IN);
    if (forward ? held_as(f, in->tensor) == held_as(f, instr->tensor)
                : sbp_verify_flow_is_gradient(f, in, instr->tensor) ||
                      sbp_verify_flow_is_part(f, in, instr->tensor))
        return SBP_OK;
    return REFUSE("%s moves another tensor in place of %s", sbp_program_instr_name(instr->kind),
                  f->graph->tensor[instr->tensor].name);
}

enum sbp_status sbp_verify_flow_box(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_boxing_step *box = &instr->box;
    SBP_TRY(check_transition(f, instr));
    SBP_TRY(sbp_verify_note(f->c, instr->tensor, &box->from));
    SBP_TRY(sbp_verify_note(f->c, instr->tensor, &box->to));
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT) {
        if (f->formed[instr->tensor] != f->held[instr->tensor].uses ||
            !sbp_verify_same(f->c, &f->gradient[instr->tensor], &box->from))
            return REFUSE("the gradient of %s is summed before it is there",
                          f->graph->tensor[instr->tensor].name);
        f->gradient[instr->tensor] = box->to;
        SBP_TRY(sbp_verify_flow_owner(f, instr, SBP_AT_IN, instr->tensor));
        return sbp_verify_flow_owner(f, instr, SBP_AT_OUT, instr->tensor);
    }
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_IN, instr->tensor, &box->from));
    SBP_TRY(check_moved(f, instr, instr->cause == SBP_CAUSE_ACTIVATION));
    if (instr->buffer[SBP_AT_OUT] < 0)
        return REFUSE("%s leads nowhere", sbp_collective_name(box->kind));
    note_root(f, instr);
    return sbp_verify_flow_read(f, instr, SBP_AT_OUT, instr->tensor, &box->to);
}

/* A message between stages, or chunks of one device: the activation at rest, or its gradient in the
 * dual state. */
enum sbp_status sbp_verify_flow_message(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_scope *scope = &f->program->scope;
    const bool forward = instr->section == SBP_SECTION_FORWARD;
    const bool sends = instr->kind == SBP_INSTR_SEND;
    const struct sbp_dist *rest = &f->c->strategy->rest[instr->tensor];
    const struct sbp_dist dual = sbp_verify_dual(rest);
    const struct sbp_dist *dist = forward ? rest : &dual;
    const bool is_local = f->c->plan->cut.parallel.chunks > 1 &&
                          sbp_timeline_delays_gradients(f->c->plan->cut.parallel.schedule);
    int64_t elements = 0;
    int crossing;
    (void)sbp_verify_crossings(f->c, forward == sends ? scope->end_op : scope->first_op, &crossing);
    if (instr->tensor != crossing)
        return sbp_verify_refuse(f->c, "%s: %s of what does not cross between the stages",
                                 f->graph->tensor[instr->tensor].name,
                                 sbp_program_instr_name(instr->kind));
    SBP_TRY(sbp_verify_block(f->c, instr->tensor, dist, &elements));
    if (instr->box.elements != elements || instr->stages != (is_local ? 1 : 2) ||
        instr->box.kind != (is_local ? SBP_LOCAL : SBP_SEND_RECV))
        return sbp_verify_refuse(f->c, "%s: %lld elements go to %d stages, %lld to one other",
                                 f->graph->tensor[instr->tensor].name,
                                 (long long)instr->box.elements, instr->stages,
                                 (long long)elements);
    (sends ? f->sent : f->received)[forward ? 0 : 1]++;
    if (!sends)
        return sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor, dist);
    SBP_TRY(sbp_verify_flow_read(f, instr, SBP_AT_IN, instr->tensor, dist));
    return check_moved(f, instr, forward);
}

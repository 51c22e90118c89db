/* Checks that nothing is missing from a program (after verify_flow.c). */
#include "planner/verify/verify_flow_priv.h"

/* Instructions of a backward pass: gradients of inputs and of weights are two in products; a sum
 * passes its gradient on; a loss in a type of its own converts its gradient. */
static int backward_phases(const struct sbp_flow *f, int op)
{
    const struct sbp_op_node *node = &f->graph->op[op];
    const bool inputs = sbp_op_forms_input_gradient(f->graph, op);
    if (node->kind == SBP_OP_ADD)
        return 0;
    if (node->kind == SBP_OP_CROSS_ENTROPY)
        return f->program->bytes.loss > 0 ? 2 : 1;
    if (sbp_op_norm_sums(node->kind) > 0)
        return 2;
    if (sbp_op_has_weight_phase(f->graph, op))
        return inputs ? sbp_op_weight_phase(node->kind) + 1 : 1;
    return inputs || node->weight_count > 0 ? 1 : 0;
}

/* Collectives that an operator declares for its passes, as bits; without weights there are none for
 * their gradients. `forward`: for the forward pass alone. */
static unsigned declared(const struct sbp_flow *f, int op, bool forward)
{
    const struct sbp_factor factor = sbp_verify_factor(f->c, op);
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(f->graph, op, &factor, inner);
    unsigned set = 0;
    for (int i = 0; i < count; i++)
        if (inner[i].pass == SBP_PASS_FORWARD ||
            (!forward &&
             (inner[i].pass == SBP_PASS_INPUT_GRADIENT || f->graph->op[op].weight_count > 0)))
            set |= 1u << i;
    return set;
}

static enum sbp_status check_operator(const struct sbp_flow *f, int op)
{
    const struct sbp_op_node *node = &f->graph->op[op];
    if (f->forward[op] != sbp_op_forward_phases(node->kind) ||
        f->backward[op] != backward_phases(f, op))
        return sbp_verify_refuse(f->c,
                                 "%s: runs in %d forward and %d backward phases, not %d and %d",
                                 node->name, f->forward[op], f->backward[op],
                                 sbp_op_forward_phases(node->kind), backward_phases(f, op));
    if (f->again[op] != 0 && f->again[op] != sbp_op_forward_phases(node->kind))
        return sbp_verify_refuse(f->c, "%s: %d of its %d forward phases are done again", node->name,
                                 f->again[op], sbp_op_forward_phases(node->kind));
    if (f->inner[op] != declared(f, op, false) ||
        f->inner_again[op] != (f->again[op] > 0 ? declared(f, op, true) : 0))
        return sbp_verify_refuse(f->c, "%s: a collective inside it is missing", node->name);
    return SBP_OK;
}

static enum sbp_status check_sums(const struct sbp_flow *f, int tensor)
{
    if (!sbp_verify_is_free(f->c, tensor) && f->parts[tensor] > 0 &&
        f->sums[tensor] != f->parts[tensor] - 1)
        return sbp_verify_refuse(f->c, "%s: %d additions of the %d parts of its gradient",
                                 f->graph->tensor[tensor].name, f->sums[tensor], f->parts[tensor]);
    return SBP_OK;
}

static enum sbp_status check_weight_states(const struct sbp_flow *f, int tensor)
{
    const struct sbp_held_weight *held = &f->held[tensor];
    const char *name = f->graph->tensor[tensor].name;
    if (f->formed[tensor] != held->uses || f->updated[tensor] != (held->uses > 0))
        return sbp_verify_refuse(f->c, "%s: %d of %d gradients are formed and %d updates made",
                                 name, f->formed[tensor], held->uses, f->updated[tensor]);
    if (f->gathered[tensor] != (held->level == 1 || held->level == 2))
        return sbp_verify_refuse(f->c, "%s: is gathered %d times after the update", name,
                                 f->gathered[tensor]);
    if (f->stage_sums[tensor] != (held->uses > 0 && f->c->holders[tensor] > 1))
        return sbp_verify_refuse(f->c, "%s: its gradient is summed over stages %d times", name,
                                 f->stage_sums[tensor]);
    if (f->handed[tensor] != (held->uses > 0 && sbp_verify_hands_on(f->c) ? 4 : 0))
        return sbp_verify_refuse(f->c, "%s: its gradients are handed on %d times of 4", name,
                                 f->handed[tensor]);
    if (f->chunk_sums[tensor] != (held->uses > 0 ? sbp_verify_chunk_sums(f, tensor) : 0))
        return sbp_verify_refuse(f->c, "%s: its gradient is summed over chunks %d times", name,
                                 f->chunk_sums[tensor]);
    return SBP_OK;
}

/* A weight is tied at most once, so that fewer stages than pieces hold it where one has both. */
int sbp_verify_chunk_sums(const struct sbp_flow *f, int tensor)
{
    return f->c->pieces_of[tensor] > f->c->holders[tensor] ? 1 : 0;
}

int sbp_verify_norm_sums(const struct sbp_flow *f)
{
    const int64_t devices = f->c->mesh->devices * f->c->step->stages;
    return sbp_program_has_norm(&f->graph->training, &f->c->bytes) && devices > 1 ? 1 : 0;
}

/* Every crossing activation is sent or received once, and its gradient the other way. */
static enum sbp_status check_messages(const struct sbp_flow *f)
{
    const struct sbp_scope *scope = &f->program->scope;
    const int before = scope->first_op > 0, after = scope->end_op < f->graph->op_count;
    if (f->received[0] != before || f->sent[0] != after || f->received[1] != after ||
        f->sent[1] != before)
        return sbp_verify_refuse(f->c,
                                 "%s: %d messages come in and %d go out forward, %d and %d "
                                 "backward; %d neighbours before it, %d after it",
                                 f->graph->op[scope->first_op].name, f->received[0], f->sent[0],
                                 f->received[1], f->sent[1], before, after);
    return SBP_OK;
}

enum sbp_status sbp_verify_complete(struct sbp_flow *f)
{
    const struct sbp_scope *scope = &f->program->scope;
    for (int op = scope->first_op; op < scope->end_op; op++)
        SBP_TRY(check_operator(f, op));
    for (int tensor = 0; tensor < f->graph->tensor_count; tensor++)
        SBP_TRY(f->graph->tensor[tensor].kind == SBP_WEIGHT ? check_weight_states(f, tensor)
                                                            : check_sums(f, tensor));
    if (f->norms != sbp_program_has_norm(&f->graph->training, &f->c->bytes) ||
        f->norm_sums != sbp_verify_norm_sums(f))
        return sbp_verify_refuse(f->c, "the norm of all gradients is formed %d and summed %d times",
                                 f->norms, f->norm_sums);
    if (f->copies != (f->program->host_bytes > 0 ? 2 : 0))
        return sbp_verify_refuse(f->c, "states in host memory are copied %d times", f->copies);
    return check_messages(f);
}

/* Checks the flow through a program: every block is in the state that its reader's role asks for,
 * and nothing is read before it is written or used before it is summed. */
#include "planner/verify/verify_flow_priv.h"

/* ---- one program ---------------------------------------------------------------------------- */

#define AT(section) (1u << SBP_SECTION_##section)

/* Sections that an instruction may stand in: passes of every micro-batch, their recomputation, and
 * the step. Gradients in whole blocks are summed once a step, those in shards whenever they are
 * formed. */
static unsigned sections_of(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    const unsigned forward = AT(FORWARD) | AT(RECOMPUTE);
    const unsigned backward = AT(BACKWARD) | AT(BACKWARD_WEIGHT);
    switch (instr->kind) {
    case SBP_INSTR_INPUT:
    case SBP_INSTR_FORWARD:
        return forward;
    case SBP_INSTR_BACKWARD:
        return backward;
    case SBP_INSTR_RECEIVE:
    case SBP_INSTR_SEND:
        return AT(FORWARD) | AT(BACKWARD);
    case SBP_INSTR_ADD_GRADIENT:
    case SBP_INSTR_OUTPUT_GRADIENT:
        return AT(BACKWARD);
    case SBP_INSTR_TAKE:
    case SBP_INSTR_PASS:
        return sbp_verify_hands_on(f->c) ? AT(BACKWARD) | AT(STEP) : 0;
    case SBP_INSTR_GATHER:
        return f->held[instr->tensor].level < 3 ? AT(STEP) : forward | backward;
    case SBP_INSTR_NORM:
    case SBP_INSTR_COPY_IN:
    case SBP_INSTR_UPDATE:
    case SBP_INSTR_COPY_OUT:
        return AT(STEP);
    default:
        break;
    }
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT)
        return f->held[instr->tensor].level < 2 || f->c->micro_batches == 1 || instr->stages > 1 ||
                       instr->kind == SBP_INSTR_INNER /* chunks that tie the weight add up then */
                   ? AT(STEP)
                   : backward;
    return instr->op < 0                                   ? AT(STEP)
           : instr->cause == SBP_CAUSE_ACTIVATION_GRADIENT ? AT(BACKWARD)
                                                           : forward | backward;
}

static enum sbp_status check_section(const struct sbp_flow *f, const struct sbp_instr *instr)
{
    if (sections_of(f, instr) >> instr->section & 1)
        return SBP_OK;
    return sbp_verify_refuse(f->c, "%s: %s in section %s", sbp_verify_flow_name(f, instr),
                             sbp_program_instr_name(instr->kind),
                             sbp_program_section_name(instr->section));
}

static enum sbp_status check_inner(struct sbp_flow *f, const struct sbp_instr *instr)
{
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT)
        return sbp_verify_flow_stage_sum(f, instr);
    return instr->op >= 0 ? sbp_verify_flow_declared(f, instr) : sbp_verify_flow_norm_sum(f, instr);
}

static enum sbp_status check_instr(struct sbp_flow *f, const struct sbp_instr *instr)
{
    SBP_TRY(check_section(f, instr));
    switch (instr->kind) {
    case SBP_INSTR_INPUT:
        return sbp_verify_flow_model_input(f, instr);
    case SBP_INSTR_FORWARD:
        return sbp_verify_flow_forward(f, instr);
    case SBP_INSTR_BACKWARD:
        return sbp_verify_flow_backward(f, instr);
    case SBP_INSTR_BOX:
        return sbp_verify_flow_box(f, instr);
    case SBP_INSTR_REDUCE:
    case SBP_INSTR_INNER:
        return check_inner(f, instr);
    case SBP_INSTR_GATHER:
        return sbp_verify_flow_gather(f, instr);
    case SBP_INSTR_CONVERT:
        return sbp_verify_flow_convert(f, instr);
    case SBP_INSTR_SCATTER:
        return sbp_verify_flow_scatter(f, instr);
    case SBP_INSTR_RECEIVE:
    case SBP_INSTR_SEND:
        return sbp_verify_flow_message(f, instr);
    case SBP_INSTR_TAKE:
    case SBP_INSTR_PASS:
        return sbp_verify_flow_hand_on(f, instr);
    case SBP_INSTR_ADD_GRADIENT:
        return sbp_verify_flow_sum(f, instr);
    case SBP_INSTR_OUTPUT_GRADIENT: {
        const struct sbp_dist rest = sbp_verify_dual(&f->c->strategy->rest[instr->tensor]);
        return sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor, &rest);
    }
    case SBP_INSTR_NORM:
        return sbp_verify_flow_norm(f);
    case SBP_INSTR_UPDATE:
        return sbp_verify_flow_update(f, instr);
    case SBP_INSTR_COPY_IN:
    case SBP_INSTR_COPY_OUT:
        return sbp_verify_flow_states(f, instr);
    }
    return sbp_verify_refuse(f->c, "an instruction of no kind");
}

/* Counts the parts of an activation's gradient: one from each reader, and one from the next stage.
 */
static void count_parts(struct sbp_flow *f)
{
    const struct sbp_scope *scope = &f->program->scope;
    for (int op = f->graph->op_count - 1; op >= scope->first_op; op--)
        for (int i = 0; i < f->graph->op[op].input_count; i++) {
            const int tensor = f->graph->op[op].input[i];
            f->parts[tensor] = op < scope->end_op ? f->parts[tensor] + 1 : 1;
            f->reader[tensor] = op < scope->end_op ? op : -1;
        }
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
    f->value = SBP_NEW(arena, int, buffers);
    int *of_ops = SBP_NEW(arena, int, 3 * (size_t)ops);
    int *of_tensors = SBP_NEW(arena, int, 9 * (size_t)tensors);
    f->gradient = SBP_NEW(arena, struct sbp_dist, tensors);
    f->inner = SBP_NEW(arena, unsigned, ops);
    f->inner_again = SBP_NEW(arena, unsigned, ops);
    if (f->held == NULL || f->there == NULL || f->root == NULL || f->of == NULL ||
        f->value == NULL || of_ops == NULL || of_tensors == NULL || f->gradient == NULL ||
        f->inner == NULL || f->inner_again == NULL)
        return SBP_E_MEMORY;
    f->forward = of_ops;
    f->backward = of_ops + ops;
    f->again = of_ops + 2 * (size_t)ops;
    f->sums = of_tensors;
    f->formed = of_tensors + tensors;
    f->updated = of_tensors + 2 * tensors;
    f->stage_sums = of_tensors + 3 * tensors;
    f->gathered = of_tensors + 4 * tensors;
    f->parts = of_tensors + 5 * tensors;
    f->reader = of_tensors + 6 * tensors;
    f->chunk_sums = of_tensors + 7 * tensors;
    f->handed = of_tensors + 8 * tensors;
    for (int b = 0; b < buffers; b++) {
        f->root[b] = b;
        f->of[b] = f->value[b] = -1;
    }
    return SBP_OK;
}

static enum sbp_status check_program(struct sbp_verification *c, const struct sbp_program *program)
{
    struct sbp_flow flow = {.c = c, .program = program, .graph = c->graph};
    SBP_TRY(allocate(&flow));
    SBP_TRY(sbp_verify_hold(c, program->scope.first_op, program->scope.end_op, flow.held));
    count_parts(&flow);
    for (int i = 0; i < program->instr_count; i++)
        SBP_TRY(check_instr(&flow, &program->instr[i]));
    return sbp_verify_complete(&flow);
}

enum sbp_status sbp_verify_flow(struct sbp_verification *c)
{
    for (int i = 0; i < c->step->program_count; i++) {
        const struct sbp_arena_mark mark = sbp_arena_mark(&c->scratch);
        SBP_TRY(check_program(c, &c->step->program[i]));
        sbp_arena_release(&c->scratch, mark);
    }
    return SBP_OK;
}

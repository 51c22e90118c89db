/* Instructions and buffers, one by one. */
#include <math.h>
#include <string.h>

#include "costmodel/program/program_compile_priv.h"

static void *grown(struct sbp_arena *arena, const void *old, int count, int capacity, size_t size)
{
    char *bytes = sbp_arena_alloc(arena, (size_t)capacity, size);
    if (bytes != NULL && count > 0)
        memcpy(bytes, old, (size_t)count * size);
    return bytes;
}

struct sbp_instr *sbp_emit_instr(struct sbp_compiler *c, enum sbp_instr_kind kind, int op,
                                 int phase)
{
    struct sbp_program *program = c->program;
    if (program->instr_count == c->instr_capacity) {
        c->instr_capacity = 2 * c->instr_capacity + 64;
        struct sbp_instr *more = grown(&program->arena, program->instr, program->instr_count,
                                       c->instr_capacity, sizeof *more);
        if (more == NULL)
            return NULL;
        program->instr = more;
    }
    struct sbp_instr *instr = &program->instr[program->instr_count++];
    *instr = (struct sbp_instr){.kind = kind,
                                .section = c->section,
                                .op = op,
                                .phase = phase,
                                .tensor = -1,
                                .times = 1,
                                .stages = 1};
    for (int i = 0; i < SBP_INSTR_BUFFERS; i++)
        instr->buffer[i] = -1;
    return instr;
}

enum sbp_status sbp_emit_buffer(struct sbp_compiler *c, enum sbp_buffer_use use,
                                enum sbp_buffer_type type, int tensor, const struct sbp_dist *dist,
                                int64_t elements, int *buffer)
{
    struct sbp_program *program = c->program;
    if (program->buffer_count == c->buffer_capacity) {
        c->buffer_capacity = 2 * c->buffer_capacity + 64;
        struct sbp_buffer *more = grown(&program->arena, program->buffer, program->buffer_count,
                                        c->buffer_capacity, sizeof *more);
        if (more == NULL)
            return SBP_E_MEMORY;
        program->buffer = more;
    }
    *buffer = program->buffer_count++;
    program->buffer[*buffer] = (struct sbp_buffer){.use = use,
                                                   .type = type,
                                                   .tensor = tensor,
                                                   .elements = elements,
                                                   .first = -1,
                                                   .last = -1,
                                                   .shares = -1};
    if (dist != NULL)
        program->buffer[*buffer].dist = sbp_dist_held(c->mesh, dist);
    return SBP_OK;
}

enum sbp_status sbp_emit_block(struct sbp_compiler *c, enum sbp_buffer_use use, int tensor,
                               const struct sbp_dist *dist, int *buffer)
{
    const int64_t elements =
        sbp_dist_local_elements(c->mesh, &c->graph->tensor[tensor].shape, dist);
    return sbp_emit_buffer(c, use, SBP_BUFFER_REAL, tensor, dist, elements, buffer);
}

enum sbp_status sbp_emit_work(struct sbp_compiler *c, double elements, int *buffer)
{
    *buffer = -1;
    if (!(elements > 0))
        return SBP_OK;
    if (elements > 0x1p62)
        return sbp_fail(c->diag, SBP_E_RANGE,
                        "memory: a device's buffers pass 2^62 bytes, fewer are legal");
    return sbp_emit_buffer(c, SBP_USE_WORK, SBP_BUFFER_REAL, -1, NULL, (int64_t)ceil(elements),
                           buffer);
}

enum sbp_status sbp_emit_statistics(struct sbp_compiler *c, double elements, int *buffer)
{
    SBP_TRY(sbp_emit_work(c, elements, buffer));
    if (*buffer >= 0)
        c->program->buffer[*buffer].type = SBP_BUFFER_STATISTIC;
    return SBP_OK;
}

int64_t sbp_emit_tokens(const struct sbp_compiler *c, int tensor, const struct sbp_dist *dist)
{
    const struct sbp_shape *shape = &c->graph->tensor[tensor].shape;
    return sbp_dist_local_size(c->mesh, shape, dist, SBP_DIM_BATCH) *
           sbp_dist_local_size(c->mesh, shape, dist, SBP_DIM_SEQUENCE);
}

enum sbp_status sbp_emit_index(struct sbp_compiler *c, int tensor, const struct sbp_dist *dist,
                               int *buffer)
{
    struct sbp_dist tokens = *dist;
    for (int i = 0; i < c->mesh->axis_count; i++)
        if (tokens.axis[i].kind != SBP_SPLIT || tokens.axis[i].dim > SBP_DIM_SEQUENCE)
            tokens.axis[i] = SBP_STATE_B;
    return sbp_emit_buffer(c, SBP_USE_INDEX, SBP_BUFFER_INT32, tensor, &tokens,
                           sbp_emit_tokens(c, tensor, &tokens), buffer);
}

enum sbp_status sbp_emit_logits(struct sbp_compiler *c, int op, int *buffer)
{
    const struct sbp_dist dist = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, 0);
    const int tensor = c->graph->op[op].input[0];
    *buffer = -1;
    if (c->program->bytes.loss == 0)
        return SBP_OK;
    return sbp_emit_buffer(c, SBP_USE_WORK, SBP_BUFFER_LOSS, tensor, &dist,
                           sbp_dist_local_elements(c->mesh, &c->graph->tensor[tensor].shape, &dist),
                           buffer);
}

enum sbp_status sbp_emit_held_logits(struct sbp_compiler *c, int op)
{
    const struct sbp_dist dist = sbp_strategy_input(c->graph, c->mesh, c->strategy, op, 0);
    const struct sbp_shape *shape = &c->graph->tensor[c->graph->op[op].input[0]].shape;
    const double held = (double)sbp_dist_local_elements(c->mesh, shape, &dist) *
                        (double)c->program->bytes.logit / (double)c->program->bytes.activation;
    int buffer;
    if (c->program->bytes.logit == 0)
        return SBP_OK;
    SBP_TRY(sbp_emit_work(c, held, &buffer));
    c->program->instr[c->program->instr_count - 1].buffer[SBP_AT_WORK2] = buffer;
    return SBP_OK;
}

struct sbp_factor sbp_emit_factor(const struct sbp_compiler *c, int op)
{
    return sbp_strategy_factor(c->graph, c->mesh, c->strategy, op);
}

/* ---- communication ------------------------------------------------------------------------- */

/* Pack and unpack space of one step, where its exchange needs them. */
static enum sbp_status add_pack_space(struct sbp_compiler *c, const struct sbp_shape *shape,
                                      const struct sbp_boxing_step *step, int *work, int *work2)
{
    struct sbp_permutation pack, unpack;
    *work = *work2 = -1;
    sbp_boxing_pack(&c->layout, shape, step, &pack);
    sbp_boxing_unpack(&c->layout, shape, step, &unpack);
    if (pack.needed)
        SBP_TRY(
            sbp_emit_work(c, (double)sbp_dist_local_elements(c->mesh, shape, &step->from), work));
    if (unpack.needed)
        SBP_TRY(
            sbp_emit_work(c, (double)sbp_dist_local_elements(c->mesh, shape, &step->to), work2));
    return SBP_OK;
}

/* Paths follow the prices of the model's precision, even in a run that computes in another type. */
static enum sbp_status find_boxing(struct sbp_compiler *c, const struct sbp_shape *shape,
                                   const struct sbp_dist *from, const struct sbp_dist *to,
                                   enum sbp_cause cause, struct sbp_boxing *boxing)
{
    const int64_t element_bytes =
        cause == SBP_CAUSE_WEIGHT_GRADIENT ? c->policy.reduce : c->policy.activation;
    const struct sbp_dist a = sbp_dist_held(c->mesh, from), b = sbp_dist_held(c->mesh, to);
    return c->paths == NULL ? sbp_boxing_make(&c->layout, shape, &a, &b, boxing, c->diag)
                            : sbp_paths_find(c->paths, &c->layout, shape, (double)element_bytes, &a,
                                             &b, boxing, c->diag);
}

enum sbp_status sbp_emit_boxing(struct sbp_compiler *c, int op, int tensor,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                enum sbp_cause cause, bool in_place, int *buffer)
{
    const struct sbp_shape *shape = &c->graph->tensor[tensor].shape;
    const enum sbp_buffer_use use = in_place ? SBP_USE_UNREDUCED : SBP_USE_ACTIVATION;
    const int home = *buffer;
    struct sbp_boxing boxing;
    SBP_TRY(find_boxing(c, shape, from, to, cause, &boxing));
    for (int i = 0; i < boxing.count; i++) {
        const struct sbp_boxing_step *step = &boxing.step[i];
        int result = in_place && i + 1 == boxing.count ? home : *buffer, work, work2;
        if (!in_place || (result == *buffer && step->kind != SBP_ALL_REDUCE))
            SBP_TRY(sbp_emit_block(c, use, tensor, &step->to, &result));
        SBP_TRY(add_pack_space(c, shape, step, &work, &work2));
        struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_BOX, op, 0);
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

enum sbp_status sbp_emit_reduce(struct sbp_compiler *c, int op, sbp_axes axes, int buffer,
                                int reduction, enum sbp_cause cause)
{
    if (axes == 0)
        return SBP_OK;
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_REDUCE, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->box.kind = SBP_ALL_REDUCE;
    instr->box.axes = axes;
    instr->box.elements = c->program->buffer[buffer].elements;
    instr->reduction = reduction;
    instr->statistic = c->program->buffer[buffer].type == SBP_BUFFER_STATISTIC;
    instr->cause = cause;
    instr->buffer[SBP_AT_OUT] = buffer;
    return SBP_OK;
}

/* Whether a collective takes what the pass computes: sums of it, or gradients of other members'
 * rows. */
static bool is_result(enum sbp_op_kind kind, const struct sbp_op_inner *inner)
{
    return inner->kind == SBP_REDUCE_SCATTER ||
           (kind == SBP_OP_CONV2D && inner->pass == SBP_PASS_INPUT_GRADIENT);
}

/* shared: buffers of what members share of an operator's inputs, or of their gradients, from the
 * first such input on; NULL: none. */
static enum sbp_status add_inner(struct sbp_compiler *c, int op, const struct sbp_op_inner *inner,
                                 int scratch, const int *shared)
{
    const enum sbp_op_kind kind = c->graph->op[op].kind;
    const bool results = is_result(kind, inner);
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_INNER, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->box.kind = inner->kind;
    instr->box.axes = sbp_strategy_axes(c->graph, c->mesh, c->strategy, op, inner->roles);
    instr->inner_elements = inner->elements;
    instr->times = inner->count;
    instr->statistic = inner->statistic;
    instr->cause = inner->scalar ? SBP_CAUSE_SCALAR : SBP_CAUSE_OPERATOR;
    instr->buffer[SBP_AT_WORK] = scratch;
    if (shared != NULL && (sbp_compiler_is_attention(kind) || kind == SBP_OP_CONV2D))
        instr->buffer[results ? SBP_AT_OUT : SBP_AT_IN] = shared[0];
    if (shared != NULL && kind == SBP_OP_LATENT_ATTENTION)
        instr->buffer[results ? SBP_AT_OUT2 : SBP_AT_IN2] = shared[1];
    if (kind == SBP_OP_CONV2D && !results)
        instr->buffer[SBP_AT_SAVED] = c->saved[op][0];
    return SBP_OK;
}

static enum sbp_status emit_inner(struct sbp_compiler *c, int op, enum sbp_pass pass, bool results,
                                  int scratch, const int *shared)
{
    const enum sbp_op_kind kind = c->graph->op[op].kind;
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(c->graph, op, &factor, inner);
    for (int i = 0; i < count; i++)
        if (inner[i].pass == pass && is_result(kind, &inner[i]) == results)
            SBP_TRY(add_inner(c, op, &inner[i], scratch, shared));
    return SBP_OK;
}

/* Which input members share: of attention keys and values, and latent attention's next one has more
 * of the keys; rows of images. */
static int shared_of(const struct sbp_compiler *c, int op)
{
    const enum sbp_op_kind kind = c->graph->op[op].kind;
    return kind == SBP_OP_GROUPED_ATTENTION || kind == SBP_OP_LATENT_ATTENTION ? 1 : 0;
}

enum sbp_status sbp_emit_inner(struct sbp_compiler *c, int op, enum sbp_pass pass, int scratch)
{
    return emit_inner(c, op, pass, false, scratch, &c->input[op][shared_of(c, op)]);
}

enum sbp_status sbp_emit_journey(struct sbp_compiler *c, int op, enum sbp_pass pass, int phase,
                                 int scratch)
{
    const struct sbp_factor factor = sbp_emit_factor(c, op);
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(c->graph, op, &factor, inner);
    for (int i = 0, behind = 0; i < count; i++)
        if (inner[i].pass == pass && behind++ == phase) {
            SBP_TRY(add_inner(c, op, &inner[i], scratch, NULL));
            struct sbp_instr *instr = &c->program->instr[c->program->instr_count - 1];
            instr->phase = phase;
            instr->buffer[SBP_AT_SAVED] = c->saved[op][0];
        }
    return SBP_OK;
}

enum sbp_status sbp_emit_inner_sums(struct sbp_compiler *c, int op, int scratch, const int *dx)
{
    return emit_inner(c, op, SBP_PASS_INPUT_GRADIENT, true, scratch, &dx[shared_of(c, op)]);
}

#include "executor/rank/linear_run_priv.h"

#include <stddef.h>

#include "executor/rank/rank_ops_priv.h"

static void *operand(struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    return sbp_rank_buffer(rank, instr->buffer[place]);
}

static const struct sbp_op_node *node_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return &rank->program->graph->op[instr->op];
}

/* ---- a product's gelu ------------------------------------------------------------------------ */

/* Instructions behind a product among which its gelu is looked for: sums of its weight's gradient
 * and what brings them to shards stand between. */
enum { MOST_BETWEEN = 16 };

static bool names(const struct sbp_instr *instr, int buffer)
{
    for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
        if (instr->buffer[k] == buffer)
            return true;
    return false;
}

static bool overlap(const struct sbp_rank *rank, int one, int other)
{
    const struct sbp_buffer *const a = &rank->program->buffer[one];
    const struct sbp_buffer *const b = &rank->program->buffer[other];
    const int64_t a_at = sbp_stage_buffer_at(rank->arena, rank->chunk, rank->frame, a);
    const int64_t b_at = sbp_stage_buffer_at(rank->arena, rank->chunk, rank->frame, b);
    return a_at < b_at + b->elements * sbp_rank_element_bytes(rank, other) &&
           b_at < a_at + a->elements * sbp_rank_element_bytes(rank, one);
}

/* Whether an instruction works in the place of what the product reads, which may be dead by then,
 * or writes it. */
static bool overwrites(const struct sbp_rank *rank, const struct sbp_instr *instr,
                       const struct sbp_instr *product)
{
    const bool forward = product->kind == SBP_INSTR_FORWARD;
    const int read[] = {product->buffer[forward ? SBP_AT_IN : SBP_AT_DY],
                        product->buffer[SBP_AT_W]};
    for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
        for (int r = 0; r < 2; r++) {
            const int buffer = instr->buffer[k];
            if (buffer >= 0 && read[r] >= 0 &&
                (buffer == read[r] ? k == SBP_AT_OUT : overlap(rank, buffer, read[r])))
                return true;
        }
    return false;
}

/* Whether an instruction is the gelu of a product's result and, backward, the last to read it. */
static bool takes(const struct sbp_rank *rank, const struct sbp_instr *instr,
                  const struct sbp_instr *product)
{
    const struct sbp_program *program = rank->program;
    const int out = product->buffer[SBP_AT_OUT];
    if (instr->kind != product->kind || instr->section != product->section || instr->op < 0 ||
        node_of(rank, instr)->kind != SBP_OP_GELU || instr->buffer[SBP_AT_OUT] == out)
        return false;
    return instr->kind == SBP_INSTR_FORWARD
               ? instr == product + 1 && instr->buffer[SBP_AT_IN] == out &&
                     !overlap(rank, instr->buffer[SBP_AT_OUT], out)
               : instr->buffer[SBP_AT_DY] == out &&
                     program->buffer[out].last == (int)(instr - program->instr);
}

/* The gelu that an instruction of a product, forward or of input gradients, can be one call with:
 * nobody between reads or writes the product's result, backward nobody after, and the product's
 * operands are still there. NULL: none, or the rank must leave them apart. */
static const struct sbp_instr *find_gelu(const struct sbp_rank *rank,
                                         const struct sbp_instr *product)
{
    const struct sbp_program *program = rank->program;
    const int index = (int)(product - program->instr);
    if (rank->keeps_apart || node_of(rank, product)->transposed_weight)
        return NULL;
    for (int i = index + 1; i < program->instr_count && i <= index + MOST_BETWEEN; i++) {
        const struct sbp_instr *const instr = &program->instr[i];
        if (overwrites(rank, instr, product))
            return NULL;
        if (names(instr, product->buffer[SBP_AT_OUT]))
            return takes(rank, instr, product) ? instr : NULL;
    }
    return NULL;
}

/* ---- products -------------------------------------------------------------------------------- */

/* A product with the gelu behind it; false: there is none, or no such product, or a sum of
 * gradients may still be where the gelu writes. */
static bool linear_gelu_forward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const void *const bias = sbp_rank_added_once(rank, instr, SBP_AT_W2);
    if (rank->kernels->linear_gelu_forward == NULL || bias == NULL || rank->next_waits)
        return false;
    const struct sbp_instr *const gelu = find_gelu(rank, instr);
    if (gelu == NULL ||
        !rank->kernels->linear_gelu_forward(
            operand(rank, gelu, SBP_AT_OUT), operand(rank, instr, SBP_AT_OUT),
            operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_W), bias,
            sbp_rank_tokens(rank, instr, SBP_AT_OUT), sbp_rank_features(rank, instr, SBP_AT_IN),
            sbp_rank_features(rank, instr, SBP_AT_OUT)))
        return false;
    rank->done_gelu = gelu;
    return true;
}

void sbp_rank_linear(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_kernels *k = rank->kernels;
    if (linear_gelu_forward(rank, instr))
        return;
    (node_of(rank, instr)->transposed_weight ? k->linear_transposed_forward : k->linear_forward)(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
        operand(rank, instr, SBP_AT_W), sbp_rank_added_once(rank, instr, SBP_AT_W2),
        sbp_rank_tokens(rank, instr, SBP_AT_OUT), sbp_rank_features(rank, instr, SBP_AT_IN),
        sbp_rank_features(rank, instr, SBP_AT_OUT));
}

static void linear_backward_input(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_kernels *k = rank->kernels;
    (node_of(rank, instr)->transposed_weight ? k->linear_transposed_backward_input
                                             : k->linear_backward_input)(
        operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_DY),
        operand(rank, instr, SBP_AT_W), sbp_rank_tokens(rank, instr, SBP_AT_OUT),
        sbp_rank_features(rank, instr, SBP_AT_OUT), sbp_rank_features(rank, instr, SBP_AT_DY));
}

static void linear_backward_weight(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_kernels *k = rank->kernels;
    (node_of(rank, instr)->transposed_weight ? k->linear_transposed_backward_weight
                                             : k->linear_backward_weight)(
        operand(rank, instr, SBP_AT_DW), operand(rank, instr, SBP_AT_DW2),
        operand(rank, instr, SBP_AT_IN), operand(rank, instr, SBP_AT_DY),
        sbp_rank_tokens(rank, instr, SBP_AT_IN), sbp_rank_features(rank, instr, SBP_AT_IN),
        sbp_rank_features(rank, instr, SBP_AT_DY), sbp_rank_adds_of(rank, instr));
}

/* Whether a product waits for the gelu whose gradient it forms. */
static bool waits_for_gelu(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    if (rank->kernels->linear_gelu_backward_input == NULL || rank->waiting_product != NULL ||
        find_gelu(rank, instr) == NULL)
        return false;
    rank->waiting_product = instr;
    return true;
}

void sbp_rank_linear_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    if (instr->phase > 0)
        linear_backward_weight(rank, instr);
    else if (!waits_for_gelu(rank, instr))
        linear_backward_input(rank, instr);
}

/* ---- gelus ----------------------------------------------------------------------------------- */

void sbp_rank_gelu(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    if (rank->done_gelu != instr)
        rank->kernels->gelu_forward(operand(rank, instr, SBP_AT_OUT),
                                    operand(rank, instr, SBP_AT_IN),
                                    rank->program->buffer[instr->buffer[SBP_AT_OUT]].elements);
    rank->done_gelu = NULL;
}

/* The product that waits for this gelu is formed with it, or, where there is none such, before it;
 * false: it is still to be applied. */
static bool gelu_linear_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_instr *const product = rank->waiting_product;
    if (product == NULL || product->buffer[SBP_AT_OUT] != instr->buffer[SBP_AT_DY])
        return false;
    rank->waiting_product = NULL;
    if (rank->kernels->linear_gelu_backward_input(
            operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
            operand(rank, product, SBP_AT_DY), operand(rank, product, SBP_AT_W),
            sbp_rank_tokens(rank, product, SBP_AT_OUT),
            sbp_rank_features(rank, product, SBP_AT_OUT),
            sbp_rank_features(rank, product, SBP_AT_DY)))
        return true;
    linear_backward_input(rank, product);
    return false;
}

void sbp_rank_gelu_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    (void)operand(rank, instr, SBP_AT_DY); /* the arena has its place, written or not */
    if (gelu_linear_backward(rank, instr))
        return;
    rank->kernels->gelu_backward(operand(rank, instr, SBP_AT_OUT), operand(rank, instr, SBP_AT_IN),
                                 operand(rank, instr, SBP_AT_DY),
                                 rank->program->buffer[instr->buffer[SBP_AT_OUT]].elements);
}

#include "executor/verify/magnitude_mixture_priv.h"

#include <math.h>

#include "executor/rank/mixture.h"
#include "executor/verify/magnitude_values_priv.h"

/* A product of a mixture: `blocks` of a weight with tokens of their own, one below the other. */
struct products {
    int weight; /* its tensor */
    int64_t blocks;
    struct sbp_values x, dy; /* of the first block, which the others follow */
    struct sbp_values held;  /* what is 0 in empty slots: the copies, to which no bias was added */
};

/* Rows up to the last that holds a copy, one at least: the empty slots behind it would dilute what
 * is measured in the mean. */
static int64_t filled_rows(const struct sbp_values *held)
{
    int64_t last = held->tokens * held->features - 1;
    while (last >= 0 && held->exact[last] == 0)
        last--;
    return last < 0 ? 1 : last / held->features + 1;
}

static struct sbp_values of_block(const struct sbp_values *first, int64_t block, int64_t rows)
{
    const int64_t at = block * first->tokens * first->features;
    return (struct sbp_values){rows, first->features, first->exact + at, first->shadow + at};
}

static int64_t rows_of_block(const struct products *p, int64_t block)
{
    const struct sbp_values held = of_block(&p->held, block, p->held.tokens);
    return filled_rows(&held);
}

/* Biases of the blocks' products, each `apart` from the one before in their tensor. */
static enum sbp_status note_biases(const struct sbp_lockstep *both, const struct products *p,
                                   int tensor, int64_t first, int64_t apart)
{
    for (int64_t b = 0; b < p->blocks; b++) {
        const struct sbp_values dy = of_block(&p->dy, b, rows_of_block(p, b));
        SBP_TRY(sbp_magnitude_note_part(both, &dy, tensor, first + b * apart));
    }
    return SBP_OK;
}

static enum sbp_status note_products(const struct sbp_lockstep *both, const struct products *p)
{
    sbp_magnitude_begin(both, p->weight);
    for (int64_t b = 0; b < p->blocks; b++) {
        const struct sbp_block block = {p->weight, b};
        const int64_t rows = rows_of_block(p, b);
        const struct sbp_values x = of_block(&p->x, b, rows), dy = of_block(&p->dy, b, rows);
        SBP_TRY(sbp_magnitude_note_block(both, &block, &x, &dy));
    }
    return SBP_OK;
}

enum sbp_status sbp_magnitude_note_mixture(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr)
{
    const struct sbp_program *program = both->exact->program;
    const struct sbp_op_node *node = &program->graph->op[instr->op];
    const struct sbp_rank_mixture m = sbp_rank_mixture_of(program, instr->op, 0);
    const struct sbp_rank_kept kept = sbp_rank_mixture_kept(both->exact, instr, &m);
    const struct sbp_rank_kept shadow = sbp_rank_mixture_kept(both->shadow, instr, &m);
    const int64_t tokens = m.tokens.tokens, rows = m.slots / m.experts, wide = m.ffn * m.gates;
    const int in = instr->buffer[SBP_AT_IN];
    const struct sbp_values every = {tokens, m.hidden, sbp_rank_buffer(both->exact, in),
                                     sbp_rank_buffer(both->shadow, in)};
    const struct sbp_values copies = {rows, m.hidden, kept.copies, shadow.copies};
    const struct products router = {node->weight[0], 1, .x = every, .held = every,
                                    .dy = {tokens, m.tokens.experts, kept.scores, shadow.scores}};
    const struct products first = {node->weight[1], m.experts, .x = copies, .held = copies,
                                   .dy = {rows, wide, kept.first, shadow.first}};
    const struct products second = {
        node->weight[2], m.experts, .x = {rows, m.ffn, kept.activation, shadow.activation},
        .dy = {rows, m.hidden, kept.second, shadow.second}, .held = copies};
    if (node->weight_count > 3)
        sbp_magnitude_begin(both, node->weight[3]);
    if (m.adds_bias) /* which has no gradient where it chooses alone */
        SBP_TRY(note_biases(both, &router, node->weight[3], 0, 0));
    if (m.biases_experts) {
        SBP_TRY(note_biases(both, &first, node->weight[3], m.first_bias, m.first_apart));
        SBP_TRY(note_biases(both, &second, node->weight[3], m.second_bias, m.hidden));
    }
    SBP_TRY(note_products(both, &router));
    SBP_TRY(note_products(both, &first));
    return note_products(both, &second);
}

/* Absolute values of both operands of its largest product. */
double sbp_magnitude_mixture_bytes(const struct sbp_program *program, int op)
{
    const struct sbp_rank_mixture m = sbp_rank_mixture_of(program, op, 0);
    const double rows = (double)m.slots / (double)m.experts;
    const double router = (double)m.tokens.tokens * (double)(m.hidden + m.tokens.experts);
    return fmax(router, rows * (double)(m.hidden + m.ffn * m.gates)) * sizeof(double);
}

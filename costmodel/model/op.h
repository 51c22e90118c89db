/* The operator catalogue: the roles that a mesh axis can play in an operator, and what follows.
 *
 * A strategy gives every axis one role, and a role fixes the state of every operand on that axis.
 * The states of gradients follow by duality, with two exceptions that an operator declares: a
 * parameter gradient that every member computes whole, and collectives inside an operator (layer
 * norm over a split hidden dimension, cross-entropy over a split vocabulary).
 *
 * Activations have four dimensions: 0 batch, 1 sequence (of images the rows, their height), 2
 * features (of images the channels), 3 inner (what is never split: head size, {q, k, v} x head
 * size, {gate, up}, the width of an image; 1 elsewhere). Parameters: 0 and 1 the input features and
 * inner, 2 and 3 the output ones; vectors use 2 and 3. An embedding table is (vocabulary, 1,
 * hidden, 1), a convolution's kernel (input channels, height x width, output channels, 1), the
 * experts of a mixture (experts, hidden, feed-forward, {gate, up}) and (experts, feed-forward,
 * hidden, 1).
 *
 * Image rows that a member's windows reach are fetched from their holders, even past the neighbours
 * where a kernel is larger than a member's rows; op_cost.h counts these messages. strategy.h says
 * which digits a role's axes must have.
 */
#ifndef SBP_COSTMODEL_MODEL_OP_H
#define SBP_COSTMODEL_MODEL_OP_H

#include <stdbool.h>

#include "costmodel/layout/distribution.h"

enum { SBP_DIM_BATCH, SBP_DIM_SEQUENCE, SBP_DIM_FEATURE, SBP_DIM_INNER };
enum { SBP_DIM_IN, SBP_DIM_IN_INNER, SBP_DIM_OUT, SBP_DIM_OUT_INNER };

#define SBP_OP_MAP(X)                                                                              \
    X(LINEAR, "linear")                                                                            \
    X(RELU, "relu")                                                                                \
    X(GELU, "gelu")                                                                                \
    X(EMBEDDING, "embedding")                                                                      \
    X(LAYERNORM, "layernorm")                                                                      \
    X(ATTENTION, "attention")                                                                      \
    X(ADD, "add")                                                                                  \
    X(DROPOUT, "dropout")                                                                          \
    X(CROSS_ENTROPY, "cross_entropy")                                                              \
    X(RMSNORM, "rmsnorm")                                                                          \
    X(SWIGLU, "swiglu")                                                                            \
    X(ROTARY, "rotary")                                                                            \
    X(GROUPED_ATTENTION, "grouped_attention")                                                      \
    X(LATENT_ATTENTION, "latent_attention")                                                        \
    X(CONV2D, "conv2d")                                                                            \
    X(BATCHNORM, "batchnorm")                                                                      \
    X(MAXPOOL, "maxpool")                                                                          \
    X(AVGPOOL, "avgpool")                                                                          \
    X(FLATTEN, "flatten")                                                                          \
    X(PATCH_EMBEDDING, "patch_embedding")                                                          \
    X(MOE, "moe")                                                                                  \
    X(SUMMA_LINEAR, "summa_linear")                                                                \
    X(CUSTOM, "custom")                                                                            \
    X(TANH, "tanh")                                                                                \
    X(HEAD_NORM, "head_norm")                                                                      \
    X(FIRST_TOKEN, "first_token")

#define SBP_OP_ENUM(name, text) SBP_OP_##name,
enum sbp_op_kind { SBP_OP_MAP(SBP_OP_ENUM) SBP_OP_KINDS };
#undef SBP_OP_ENUM

#define SBP_MAX_ROLES   7
#define SBP_MAX_INPUTS  3
#define SBP_MAX_WEIGHTS 4

struct sbp_role {
    const char *name; /* "batch", "column", ... */
    struct sbp_state input[SBP_MAX_INPUTS];
    struct sbp_state weight[SBP_MAX_WEIGHTS];
    struct sbp_state gradient[SBP_MAX_WEIGHTS]; /* of the weight, as backward leaves it */
    struct sbp_state output;
    bool paper; /* in the `autoddl` space: (p0, p1, p2) = batch, column, row */
    /* Played only where a fix asks for it or nothing else divides the operator: `replicate`, all
     * operands B and the work repeated (by duality its weights' gradients are partial); `mirror`,
     * all activations M, whose gradients are whole, so that the weights' are; and `partial`, a sum
     * that lives on through an operator that is linear in its inputs (OneFlow, section 3.3), which
     * the space `full` tries where it can pay (planner/space/resting_layouts.c). */
    bool spare;
};

struct sbp_op_entry {
    const char *name;
    int inputs;  /* activations; of an embedding the token ids are none of them */
    int weights; /* most it can have; bias and positions are optional */
    /* The output has the state of the first input on every axis and no choice of its own: the
     * operator runs wherever its input rests (element-wise operators of one operand). */
    bool follows;
    bool in_place; /* the output is the input's buffer, and so are the gradients */
    bool runs;     /* the executor has kernels for it; others are searched and priced */
    int role_count;
    struct sbp_role role[SBP_MAX_ROLES];
};

const struct sbp_op_entry *sbp_op(enum sbp_op_kind kind);
/* Statistics a token of a norm whose hidden dimension may be split, so that it runs in two phases;
 * 0: another operator. */
int sbp_op_norm_sums(enum sbp_op_kind kind);
/* Phases of an operator's forward pass: collectives of norms, losses and mixtures stand between
 * them. */
int sbp_op_forward_phases(enum sbp_op_kind kind);
/* The phase of the backward pass that forms gradients of weights, behind those for gradients of
 * inputs; for operators that part their backward pass. */
int sbp_op_weight_phase(enum sbp_op_kind kind);
/* The role of that name, -1 when the operator has none. */
int sbp_op_role(const struct sbp_op_entry *entry, const char *name);
/* Names as in model files, NULL-terminated, in the order of the enum. */
const char *const *sbp_op_names(void);

#endif

/* What an operator does on a device: arithmetic, memory traffic, what it keeps, and the collectives
 * inside it.
 *
 * Everything follows from the operator and from how many ways each of its roles splits it, so that
 * the search, which knows factors, and the compiled program, which knows axes, count the same.
 */
#ifndef SBP_COSTMODEL_MODEL_OP_COST_H
#define SBP_COSTMODEL_MODEL_OP_COST_H

#include "costmodel/model/graph.h"

enum sbp_pass { SBP_PASS_FORWARD, SBP_PASS_INPUT_GRADIENT, SBP_PASS_WEIGHT_GRADIENT };
#define SBP_PASSES 3

/* Parts that each role of an operator makes, by role index; all 1: the whole operator. */
struct sbp_factor {
    double of[SBP_MAX_ROLES];
};
struct sbp_factor sbp_op_factor_one(void);

/* Sizes of an operator's blocks on a device; a tied weight's stand as the linear reads it. */
struct sbp_op_sizes {
    double input[SBP_MAX_INPUTS][SBP_MAX_DIMS];
    double weight[SBP_MAX_WEIGHTS][SBP_MAX_DIMS];
    double output[SBP_MAX_DIMS]; /* of a loss: one element */
};
struct sbp_op_sizes sbp_op_sizes(const struct sbp_graph *graph, int op,
                                 const struct sbp_factor *factor);

/* A product (m, k) x (k, n), `count` times: a call of a matrix library each. */
struct sbp_product {
    double count, m, n, k;
    double elements; /* moved between memory and arithmetic by one; 0: m k + k n + m n */
};
#define SBP_MAX_PRODUCTS 4
struct sbp_work {
    int product_count;
    struct sbp_product product[SBP_MAX_PRODUCTS];
    double flops;        /* of attention's products: at the peak rate, memory permitting */
    double vector_flops; /* counted, not priced: what does so few an element is bound by memory */
    double elements;     /* activations moved between memory and arithmetic by it */
    double gradient_elements; /* weight gradients moved besides */
    double bytes;             /* moved besides, of a fixed type */
    double time_s;            /* a custom operator's measured time, instead of all the above */
    double model_flops; /* forward: what the model itself asks for, without padding, capacity and
                           causal savings (Chowdhery et al., PaLM, appendix B) */
};
/* Nothing for a pass that the operator does not have (no weights; a sum's gradient). */
struct sbp_work sbp_op_work(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                            enum sbp_pass pass);
double sbp_work_flops(const struct sbp_work *work);
/* Whether backward forms gradients of the inputs: not of a free input alone, unless the weights'
 * come with them (norms) or it is the loss. */
bool sbp_op_forms_input_gradient(const struct sbp_graph *graph, int op);
/* Whether backward has two phases, gradients of inputs and of weights: products with weights. */
bool sbp_op_has_weight_phase(const struct sbp_graph *graph, int op);

/* What backward reads, beside weights and the output's gradient. Activations are kept in the form
 * in which the operator read or wrote them. */
struct sbp_op_kept {
    unsigned inputs; /* bit i: input i */
    bool output;
    double elements; /* of activation type: statistics, probabilities, dispatched tokens */
    double bytes;    /* masks, indices */
};
struct sbp_op_kept sbp_op_kept(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor);
/* Elements of activation type that the operator needs while it works in a pass: gathered keys and
 * values, a tile of scores, tokens on their way to experts, SUMMA's panels. */
double sbp_op_scratch_elements(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor, enum sbp_pass pass);

/* A collective inside an operator, over the axes of some of its roles. */
struct sbp_op_inner {
    enum sbp_pass pass;
    enum sbp_collective kind;
    unsigned roles;  /* bit r: role r's axes are in the group */
    double elements; /* n of the cost formula, activation type */
    int count;       /* times */
    bool scalar;     /* of the loss */
};
#define SBP_MAX_INNER 8 /* a custom operator's SBP_MAX_CUSTOM_COLLECTIVES */
/* Returns how many; none whose group has one member, and none for the gradient of a free input.
 * Layer norm and cross-entropy: activations' statistics and the loss; attention on context axes:
 * keys and values, all-gathered (and their gradients reduce-scattered; gathered again in backward)
 * or passed round a ring (Liu et al., 2023); conv2d: halo rows of the member that misses most;
 * mixtures: tokens to experts and back, output gradients to experts and token gradients back;
 * SUMMA: panels of two operands a product, reductions in place of broadcasts where the result is
 * the sum. */
int sbp_op_inner(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                 struct sbp_op_inner inner[SBP_MAX_INNER]);

#endif

/* Costs of one operator on a device: arithmetic, memory traffic, memory, and its inner collectives.
 *
 * Input is the operator and how many ways each of its roles splits it; output are counts, which
 * costmodel/program/price.h turns into seconds. Neither mesh nor strategy is needed, so the search,
 * which knows factors, and the compiled program, which knows axes, count the same.
 */
#ifndef SBP_COSTMODEL_MODEL_OP_COST_H
#define SBP_COSTMODEL_MODEL_OP_COST_H

#include "costmodel/cluster/collective.h"
#include "costmodel/model/graph.h"

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

/* Token copies that a device sends and also receives, since each member of its group sends as many
 * to the experts that it holds. A device keeps equally many slots for every expert, full or not:
 * tokens x top_k / experts x capacity, rounded up (Lepikhin et al., GShard, 2020, section 2.2;
 * Fedus et al., Switch Transformers, 2021, equation 3). The product can miss a whole number by
 * roundoff. */
double sbp_op_slots(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes);
/* A product (m, k) x (k, n), `count` times: a call of a matrix library each. */
struct sbp_product {
    double count, m, n, k;
    double elements; /* moved between memory and arithmetic by one; 0: m k + k n + m n */
    bool grouped;    /* its `count` products may be one kernel: those of experts */
};
#define SBP_MAX_PRODUCTS 4
/* Prices of attention depend on these, beside the flops and bytes of its work. */
struct sbp_attention_work {
    bool given, fused;
    double head_size; /* mean of queries' and values' */
    double sequence;  /* keys that a query may see */
    double rows;      /* queries x heads of a device */
    /* With materialised scores: how many there are, how often `elements` counts them, and the flops
     * over all of them, none left out. */
    double scores, score_passes, full_flops;
};
struct sbp_work {
    int product_count;
    struct sbp_product product[SBP_MAX_PRODUCTS];
    double flops; /* of attention, or of a custom operator */
    struct sbp_attention_work attention;
    double vector_flops; /* counted; priced are vector_operations, where the device says a rate */
    double vector_operations; /* as kernels execute them: an exponential is twelve, not one */
    double elements;          /* activations moved between memory and arithmetic by it */
    double row_elements, row; /* of these, moved in rows of so many into another order */
    double gradient_elements; /* weight gradients moved besides */
    double bytes;             /* moved besides, of a fixed type */
    double time_s;            /* a custom operator's measured time, instead of all the above */
    double model_flops; /* forward: what the model itself asks for, without padding and capacity;
                           of causal attention, the scores that it keeps */
};
/* Work of a pass; all 0 for a pass that the operator lacks (no weights; the gradient of a sum). */
struct sbp_work sbp_op_work(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                            enum sbp_pass pass);
double sbp_op_work_flops(const struct sbp_work *work);
/* Floating-point operations of an operator's forward pass over the micro-batch (multiplication and
 * addition count 2), and of backward (input and weight gradients; a linear has no gradient of a
 * free input). They count the work of the device: padding is included, and causal attention
 * computes S(S+1)/2 of the S^2 scores. */
double sbp_op_forward_flops(const struct sbp_graph *graph, int op);
double sbp_op_backward_flops(const struct sbp_graph *graph, int op);
/* The model's own flops of a step, forward and backward, for the share of peak (MFU). Products
 * alone count, without padding, and backward as twice forward except for the gradient of a free
 * input (Chowdhery et al., PaLM, appendix B). Causal attention counts the S(S+1)/2 scores that it
 * keeps, so that the share cannot pass 1; published shares that count all S^2 of them are higher,
 * by a third for 8B parameters at 32K tokens. */
double sbp_op_model_flops(const struct sbp_graph *graph);
/* Whether backward computes gradients of the inputs. It does not where the inputs are free, unless
 * the weights' gradients come with them (norms) or the operator is the loss. */
bool sbp_op_forms_input_gradient(const struct sbp_graph *graph, int op);
/* Whether two operators do the same work in every pass: repeats of a site do, except that the first
 * may form no gradient of the model's input. */
bool sbp_op_works_alike(const struct sbp_graph *graph, int op, int other);
/* Whether backward has one phase for gradients of inputs and one for those of weights, as products
 * with weights do. */
bool sbp_op_has_weight_phase(const struct sbp_graph *graph, int op);

/* Activations that backward reads, beside weights and the output's gradient. They are kept as the
 * operator read or wrote them. */
struct sbp_op_kept {
    unsigned inputs; /* bit i: input i */
    bool output;
    double elements;   /* of activation type: probabilities, dispatched tokens */
    double statistics; /* elements: of norms, of the loss, log-sum-exps of attention. They are fp32
                          at the least, as in the kernels of trainers */
    double bytes;      /* masks, indices */
};
struct sbp_op_kept sbp_op_kept(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor);
/* The parts of a head of latent attention. */
struct sbp_latent_parts sbp_op_latent_parts(const struct sbp_graph *graph,
                                            const struct sbp_op_node *node);
/* Scratch elements (activation type) that the operator needs during a pass: gathered keys and
 * values, a tile of scores, tokens on their way to experts, SUMMA's panels, rows of images on their
 * way to other members. */
double sbp_op_scratch_elements(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor, enum sbp_pass pass);

/* A collective inside an operator, over the axes of some of its roles. */
struct sbp_op_inner {
    enum sbp_pass pass;
    enum sbp_collective kind;
    unsigned roles;  /* bit r: role r's axes are in the group */
    double elements; /* n of the cost formula */
    int count;       /* times */
    bool statistic;  /* they are statistics (struct sbp_op_kept); others are of activation type */
    bool scalar;     /* of the loss, and a statistic */
};
#define SBP_MAX_INNER 8 /* a custom operator's SBP_MAX_CUSTOM_COLLECTIVES */
/* How a mixture's copies of tokens travel, if a trainer runs it; copies 0: no mixture. Routers that
 * limit a token's nodes (DeepSeek-V3, section 2.1.2) do so in order to send it once to each. */
struct sbp_dispatch sbp_op_dispatch(const struct sbp_op_node *node,
                                    const struct sbp_runtime *runtime);
/* Lists the collectives inside the operator and returns how many; groups of one member and
 * gradients of a free input have none. Layer norm and cross-entropy: statistics and the loss.
 * Attention on context axes: keys and values are all-gathered (their gradients reduce-scattered,
 * and gathered again in backward) or passed round a ring (Liu et al., 2023). conv2d: halo rows
 * (halo.h), and their gradients back. Mixtures: tokens to experts and back, output gradients to
 * experts and token gradients back. SUMMA: panels of two operands a product, as reductions where
 * the result is the sum. */
int sbp_op_inner(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                 struct sbp_op_inner inner[SBP_MAX_INNER]);

#endif

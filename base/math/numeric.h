/* Numbers that several folders must agree on: products of sizes, element types, an
 * optimizer step, and the sizes of attention.
 *
 * The cost model predicts memory and the kernels use it; both take the sizes from here, so a
 * program allocates exactly the bytes that its plan predicted.
 */
#ifndef SBP_BASE_MATH_NUMERIC_H
#define SBP_BASE_MATH_NUMERIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/math/digits.h"

/* Products and sums of sizes that refuse to wrap: false on overflow or a negative operand. */
bool sbp_mul_i64(int64_t a, int64_t b, int64_t *product);
bool sbp_add_i64(int64_t a, int64_t b, int64_t *sum);
static inline int64_t sbp_least_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Types in which runs keep their tensors. Kernels compute in single precision on those of 16 bits.
 */
enum sbp_real { SBP_F32, SBP_F64, SBP_REAL_BF16, SBP_REAL_FP16 };
#define SBP_REALS 4
/* "f32", "f64", "bf16", "f16"; bytes of an element; u: relative errors of rounding are at most u.
 */
const char *sbp_real_name(enum sbp_real real);
int64_t sbp_real_bytes(enum sbp_real real);
double sbp_real_roundoff(enum sbp_real real);
/* The type of statistics, optimizer states and of all arithmetic beside tensors of a type. */
static inline enum sbp_real sbp_real_wide(enum sbp_real real)
{
    return real == SBP_F64 ? SBP_F64 : SBP_F32;
}

/* An optimizer step's constants; the step counts from 1. */
enum sbp_optimizer { SBP_SGD, SBP_ADAM, SBP_ADAMW };
struct sbp_update {
    enum sbp_optimizer optimizer;
    double learning_rate, momentum; /* momentum: sgd only, 0 uses no buffer */
    double beta1, beta2, epsilon;   /* adam, adamw */
    double weight_decay;            /* sgd and adam: added to the gradient; adamw: decoupled */
    double gradient_scale;          /* from clipping; 1 when off */
    double loss_scale;              /* what gradients in 16 bits were multiplied by; 1 when off */
    int64_t step;
};

/* Attention keeps either the probabilities or one log-sum-exp a row between forward and backward.
 */
enum sbp_attention_kind { SBP_ATTENTION_MATERIALISED, SBP_ATTENTION_FLASH };
struct sbp_attention_shape {
    int64_t batch, sequence, heads, head_size; /* local; scores are scaled by 1/sqrt(head_size) */
    bool causal;
    enum sbp_attention_kind kind;
    const struct sbp_attention_dropout *dropout; /* NULL: none */
};
/* Keeps a probability of attention with probability 1 - p and scales it by 1/(1-p); decided by
 * (seed, stream, index in (samples, heads, queries, keys) of the whole), so that it does not depend
 * on the split. */
struct sbp_attention_dropout {
    double p;
    uint64_t seed, stream;
    const struct sbp_region *region; /* of the output (B,S,H,.): which of the whole are here */
    uint8_t *mask; /* (B,H,S,K), 1 = kept: materialised attention writes it forward and reads it
                      backward; NULL: flash attention has none, and decides anew backward */
};
/* Elements of scratch that forward or backward needs at most, the same for both element types. */
int64_t sbp_attention_scratch_elements(const struct sbp_attention_shape *shape);
/* Elements in front of it where keys come block by block: a wide number for each row of the local
 * queries, which materialised attention has in its forward pass. 0 of flash attention, which keeps
 * them as statistics. */
int64_t sbp_attention_sums_elements(const struct sbp_attention_shape *shape);
/* Parts of the heads of latent attention (DeepSeek-V2, 2024, section 2.1): the rotated features of
 * queries and keys, the others, and the features of values. */
struct sbp_latent_parts {
    int64_t rope, nope, value;
};
/* The same of latent attention, of whose shape head_size is rope + nope: keys of a head put
 * together, their gradient, and sums over heads in the wide type, which come first. */
int64_t sbp_latent_scratch_elements(const struct sbp_attention_shape *shape,
                                    const struct sbp_latent_parts *parts, bool backward);
/* Rows of queries (and columns of keys) that attention handles at a time. */
#define SBP_ATTENTION_TILE 64

#endif

/* The numeric operators on one device, behind one table per device and element type.
 *
 * Kernels see local blocks only: they know shapes, not plans, ranks or collectives. An operator
 * whose rows are split over ranks comes in phases; the caller reduces the small buffer between two
 * phases. All matrices are dense and row-major, `real` means the table's element type, gradients of
 * parameters are written, not accumulated, unless said. No buffer may alias another one unless
 * said. Tensors of 16 bits are computed with in single precision and rounded where they are stored;
 * statistics (sums, maxima, log-sum-exps, the loss) and optimizer states are `wide`: single
 * precision there, else of the table's own type.
 *
 * Letters: T = tokens (local batch x local sequence), I, O = local input and output features,
 * B = local batch, S = local rows of the sequence, K = all of them, H = local heads, D = head size,
 * V = local vocabulary rows, N = elements.
 */
#ifndef SBP_KERNELS_KERNELS_H
#define SBP_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/math/digits.h"
#include "base/math/numeric.h"
#include "base/status.h"

/* A permutation's dimensions: a digit of every axis that moves, and what lies between them. */
#define SBP_MOST_PERMUTED (2 * SBP_MAX_AXES + 1)
/* The largest number of rows or columns in a product, of copies in a mixture of experts, of tokens
 * in a sequence, of a token's features in attention, and of places in a window: BLAS and kernels
 * count in int. */
#define SBP_LARGEST_MATRIX_SIDE INT32_MAX

/* Which gradients of an operator's weights a backward kernel adds to, as it does to both of
 * micro-batches after the first; it writes the others. */
enum sbp_adds {
    SBP_ADDS_FIRST = 1, /* weight or table: a tied weight's second use */
    SBP_ADDS_REST = 2   /* bias, positions */
};

/* Keys and values of some rows of the sequence (KB of K), where they come block by block, each in
 * a call of its own, in any order. After a forward call y and what is saved are those of attention
 * to the keys so far: the running maximum and sum of a row are one log-sum-exp, since y is always
 * divided by the sum (Liu et al., 2023, section 3.1, has numerator, denominator and maximum;
 * Milakov and Gimelshein, 2018, section 3). A backward call adds to the gradients of queries; it
 * takes y and what is saved as the last forward call left them. */
struct sbp_attention_block {
    const struct sbp_digits *keys; /* which rows of the sequence they are */
    bool first;                    /* of the pass: y, saved and gradients of queries begin here */
};

/* Attention on queries of some rows of the sequence, and on keys and values of all of it, or of a
 * block: then of KB rows instead of K. */
struct sbp_attention_context {
    const struct sbp_digits *rows; /* which rows of the sequence (K) the queries (S) are */
    const void *keys;              /* (B,K,H,2,D) keys and values */
    void *key_gradients; /* (B,K,H,2,D) theirs, by the local queries: backward writes them */
    const struct sbp_attention_block *block; /* NULL: they are of all of the sequence */
};

/* Heads of queries of which `share` at a time read one head of keys and values: head h of all reads
 * that of number h / share. */
struct sbp_attention_groups {
    const struct sbp_digits *heads;    /* which of all heads the local ones (H) are, */
    const struct sbp_digits *kv_heads; /* and the local ones of keys and values (KH) */
    int64_t share;
    int64_t window;                /* a causal query sees its last so many keys; 0: all */
    const struct sbp_digits *rows; /* as in a context; NULL: the queries are all of the sequence */
    const struct sbp_attention_block *block; /* as in a context; there are rows */
    /* A score of each local head (H) that joins the softmax's sum and has no value; NULL: there is
     * none, as always in materialised attention. */
    const void *sinks;
    void *sink_gradients; /* (H) theirs over the local queries, by backward, with the first block;
                             NULL: not wanted */
    bool adds;            /* backward adds to them; false: it overwrites them */
};

/* Keys and values of latent attention over all of the sequence: kv(B,K,H,{nope, value}), and the
 * rotated part of the keys that all heads share, shared(B,K,rope), which is turned only where it is
 * read. Rows of both may lie further apart than they are long. */
struct sbp_latent_keys {
    const void *kv, *shared;
    void *kv_gradients,
        *shared_gradients;      /* likewise, of the local queries: backward writes them */
    int64_t kv_row, shared_row; /* elements from row to row */
    struct sbp_latent_parts parts;
    const struct sbp_digits *rows; /* as in a context; NULL: the queries are all of the sequence */
    const struct sbp_attention_block *block; /* as in a context; there are rows */
};

/* The local tokens of a mixture of experts: T, all experts (E), experts that a token chooses (K),
 * and slots of each expert for their copies (C). A table (T,K,2) says of every copy its expert and
 * its slot, -1: it was dropped. */
struct sbp_routing {
    int64_t tokens, experts, top_k, capacity, in;
    int64_t groups, most_groups; /* a token's experts are of so many of so many; 0: of any */
    bool sigmoid;                /* weights are of sigmoids of the scores, else of a softmax */
};

/* Images cut into patches, of which a rank has some rows of the tokens (digits of the sequence):
 * x(B,patches here,pixels) without a place for the class token, which is row 0 of all. */
struct sbp_patches {
    const struct sbp_digits *rows; /* S of all rows of the sequence are here */
    int64_t batch, pixels, features;
    bool class_token;
};

/* Windows that slide over images x(B,H,C,W) and give y(B,OH,O,OW): heights and widths of both, and
 * of each side the kernel, its stride and the zeros (of maxima: nothing) around the image. A block
 * of some rows of images has in `padding` by how much the first window begins before its first row,
 * which may be less than nothing, and rows around it that convolutions read beside it. */
struct sbp_windows {
    int64_t batch, channels, height, width, out_height, out_width;
    int64_t kernel[2], stride[2], padding[2];
    int64_t above, below; /* rows around the block; beyond them, too, there are zeros */
    const void *around;   /* (above + below,B,C,W), from top to bottom; NULL: there are none */
};

/* Rows (image and height) that share their statistics: all of a block, or those in `row`. */
struct sbp_norm_rows {
    int64_t count;
    const int64_t *row; /* (count) of the block; NULL: 0 .. count - 1 */
    int64_t channels, width;
};

/* The device keeps a step's loss, norm and scales in its own memory, so that no task of the step
 * waits for the host. Before the first step_begin all of it is 0. */
struct sbp_step_state {
    double loss, loss_ahead; /* sums over tokens, of the step under way and of the one behind it */
    double squares;          /* of this rank's gradients */
    double loss_scale;       /* of the step under way, a power of 2; 1 where nothing is scaled
                                (Micikevicius et al., 2018, section 3.2) */
    double grad_norm;        /* without the loss scale; -1: none is formed, or not yet */
    double gradient_scale;   /* what clipping multiplies gradients by; at most 1 */
    double first_unbias, second_unbias; /* 1/(1 - beta1^t), 1/sqrt(1 - beta2^t): a GPU's, where each
                                           thread would have to compute them */
    double squares_at_hand;             /* room for one real */
    int64_t good_steps;                 /* since the loss scale last changed */
    int64_t left_out;                   /* steps before the one under way that changed nothing */
    int32_t has_begun;
    int32_t overflowed;       /* of a scaled step: it changes nothing */
    int32_t leaves_out;       /* updates change nothing; step_watch sets it before each of them */
    int32_t has_odd_gradient; /* one that step_watch left out */
};

/* Pointers to reals are void *: the table's type says what they hold. A device's table may lack
 * operators (NULL), which executor/rank/rank_check.c names. */
struct sbp_kernels {
    const char *name; /* "cpu-f32" */
    enum sbp_real real;
    int64_t real_bytes, wide_bytes;
    bool rounds_to_tf32; /* products take their factors with 11 bits */
    /* Features of a head of attention that this thread's device, which is open, has kernels for, 0
     * of none; NULL: any number. */
    int (*largest_head)(void);
    int64_t most_experts; /* of a mixture that moe_route takes; 0: any number */
    /* Numbers that an operator may keep of one place of an image, of which it works on some at a
     * time: (C + O) times the kernel's places of a convolution, F of patches, 2 C of a batch
     * normalisation; 0: any number. */
    int64_t largest_column;

    /* y(T,O) = x(T,I) w(I,O) [+ bias(O) when not NULL] */
    void (*linear_forward)(void *y, const void *x, const void *w, const void *bias, int64_t tokens,
                           int64_t in, int64_t out);
    /* y(T,O) += x(T,I) w(I,O) */
    void (*linear_add)(void *y, const void *x, const void *w, int64_t tokens, int64_t in,
                       int64_t out);
    /* dx(T,I) = dy(T,O) w^T */
    void (*linear_backward_input)(void *dx, const void *dy, const void *w, int64_t tokens,
                                  int64_t in, int64_t out);
    /* dw(I,O) = x^T dy; dbias(O) = column sums of dy when not NULL. adds: enum sbp_adds. */
    void (*linear_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                   int64_t tokens, int64_t in, int64_t out, unsigned adds);
    /* z(T,O) = x w + bias and y = gelu(z); dx(T,I) = (dy w^T) gelu'(z(T,I)), of a product behind a
     * gelu. Memory of the operands is apart. False: the device has no such product of these sizes,
     * and nothing was done; NULL: of none. */
    bool (*linear_gelu_forward)(void *y, void *z, const void *x, const void *w, const void *bias,
                                int64_t tokens, int64_t in, int64_t out);
    bool (*linear_gelu_backward_input)(void *dx, const void *z, const void *dy, const void *w,
                                       int64_t tokens, int64_t in, int64_t out);
    /* Products with the weight stored transposed, w(O,I): the head tied to an embedding table. */
    void (*linear_transposed_forward)(void *y, const void *x, const void *w, const void *bias,
                                      int64_t tokens, int64_t in, int64_t out);
    void (*linear_transposed_backward_input)(void *dx, const void *dy, const void *w,
                                             int64_t tokens, int64_t in, int64_t out);
    void (*linear_transposed_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                              int64_t tokens, int64_t in, int64_t out,
                                              unsigned adds);

    /* Element-wise over N; gelu is the tanh form. Backward takes the forward input x. y may be x,
     * dx may be dy. */
    void (*relu_forward)(void *y, const void *x, int64_t n);
    void (*relu_backward)(void *dx, const void *x, const void *dy, int64_t n);
    void (*gelu_forward)(void *y, const void *x, int64_t n);
    void (*gelu_backward)(void *dx, const void *x, const void *dy, int64_t n);
    /* y = tanh x; backward takes the output. */
    void (*tanh_forward)(void *y, const void *x, int64_t n);
    void (*tanh_backward)(void *dx, const void *y, const void *dy, int64_t n);
    /* y(N) = silu(gate) up of x(N,{gate, up}), silu(g) = g / (1 + e^-g) (Shazeer, 2020). */
    void (*swiglu_forward)(void *y, const void *x, int64_t n);
    void (*swiglu_backward)(void *dx, const void *x, const void *dy, int64_t n);
    /* y = a + b (y may be either). */
    void (*add)(void *y, const void *a, const void *b, int64_t n);
    /* x *= factor, x = |x|, x = 0. */
    void (*scale)(void *x, double factor, int64_t n);
    void (*absolute)(void *x, int64_t n);
    void (*zero)(void *x, int64_t n);
    /* To the wide type, exactly, and back, rounded to nearest even; copies where it is the same. */
    void (*to_wide)(void *wide, const void *x, int64_t n);
    void (*from_wide)(void *x, const void *wide, int64_t n);

    /* Keeps an element with probability 1 - p and scales it by 1/(1-p); the mask (one byte an
     * element, 1 = kept) is decided by (seed, stream, global index of the element), so it does not
     * depend on the split. backward: dx = dy * mask / (1-p). */
    void (*dropout_forward)(void *y, uint8_t *mask, const void *x, const struct sbp_region *region,
                            double p, uint64_t seed, uint64_t stream);
    void (*dropout_backward)(void *dx, const uint8_t *mask, const void *dy, int64_t n, double p);

    /* Layer norm over a hidden dimension of which I of `hidden` features are local.
     * sums(T,2) = (sum x, sum x^2) over the local features, to be summed over the ranks that share
     * a token; then y = (x - mean) rstd gain + shift, gain(I), shift(I). backward_sums(T,2) =
     * (sum dy gain, sum dy gain xhat), likewise; then dx, and dgain(I), dshift(I) (NULL: not
     * wanted) over the local tokens, written or added to. `sums` stays as forward left it (after
     * the reduction). */
    void (*layernorm_sums)(void *sums, const void *x, int64_t tokens, int64_t in);
    void (*layernorm_forward)(void *y, const void *x, const void *sums, const void *gain,
                              const void *shift, int64_t tokens, int64_t in, int64_t hidden,
                              double epsilon);
    void (*layernorm_backward_sums)(void *backward_sums, const void *dy, const void *x,
                                    const void *sums, const void *gain, int64_t tokens, int64_t in,
                                    int64_t hidden, double epsilon);
    void (*layernorm_backward)(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                               const void *sums, const void *backward_sums, const void *gain,
                               int64_t tokens, int64_t in, int64_t hidden, double epsilon,
                               bool adds);
    /* Both phases at once of a hidden dimension that is whole, which read a token once; forward
     * writes sums(T,2). NULL: the device has the phases alone. */
    void (*layernorm_whole_forward)(void *y, void *sums, const void *x, const void *gain,
                                    const void *shift, int64_t tokens, int64_t hidden,
                                    double epsilon);
    void (*layernorm_whole_backward)(void *dx, void *dgain, void *dshift, const void *dy,
                                     const void *x, const void *sums, const void *gain,
                                     int64_t tokens, int64_t hidden, double epsilon, bool adds);

    /* Root mean square norm over a hidden dimension of which I of `hidden` features are local:
     * sums(T) = sum x^2 over the local features, to be summed over the ranks that share a token;
     * then y = x rstd gain with rstd = 1 / sqrt(sums / hidden + epsilon), gain(I). backward_sums(T)
     * = sum dy gain x, likewise; then dx, and dgain(I) (NULL: not wanted) over the local tokens,
     * written or added to. */
    void (*rmsnorm_sums)(void *sums, const void *x, int64_t tokens, int64_t in);
    void (*rmsnorm_forward)(void *y, const void *x, const void *sums, const void *gain,
                            int64_t tokens, int64_t in, int64_t hidden, double epsilon);
    void (*rmsnorm_backward_sums)(void *backward_sums, const void *dy, const void *x,
                                  const void *gain, int64_t tokens, int64_t in);
    void (*rmsnorm_backward)(void *dx, void *dgain, const void *dy, const void *x, const void *sums,
                             const void *backward_sums, const void *gain, int64_t tokens,
                             int64_t in, int64_t hidden, double epsilon, bool adds);
    /* The same of the first `size` of the `width` features of each head by itself, all with one
     * gain(size); the others pass as they are. heads = T H, sums(heads) = sum x^2. */
    void (*head_norm_forward)(void *y, void *sums, const void *x, const void *gain, int64_t heads,
                              int64_t width, int64_t size, double epsilon);
    void (*head_norm_backward)(void *dx, void *dgain, const void *dy, const void *x,
                               const void *sums, const void *gain, int64_t heads, int64_t width,
                               int64_t size, double epsilon, bool adds);

    /* Embedding: y(T,I) = table(V,I)[row of ids[t]] [+ positions(position_rows,I)[position_of[t]]
     * when not NULL]; ids(T) are global; `vocabulary` says which rows are local, others contribute
     * 0. position_of(T) is not read without positions.
     * backward: dtable and dpositions(position_rows, I) by scatter-add; adds: enum sbp_adds. */
    void (*embedding_forward)(void *y, const int32_t *ids, const int32_t *position_of,
                              const void *table, const void *positions, int64_t tokens, int64_t in,
                              const struct sbp_digits *vocabulary);
    void (*embedding_backward)(void *dtable, void *dpositions, const int32_t *ids,
                               const int32_t *position_of, const void *dy, int64_t tokens,
                               int64_t in, int64_t position_rows,
                               const struct sbp_digits *vocabulary, unsigned adds);

    /* Adds types(rows,I)[position_of[t] rows / sequence] to y(T,I): the first part of a sequence is
     * of the first type. backward: dtypes(rows,I) by scatter-add, written or added to. */
    void (*token_types_forward)(void *y, const int32_t *position_of, const void *types,
                                int64_t tokens, int64_t in, int64_t rows, int64_t sequence);
    void (*token_types_backward)(void *dtypes, const int32_t *position_of, const void *dy,
                                 int64_t tokens, int64_t in, int64_t rows, int64_t sequence,
                                 bool adds);

    /* y(B,I) = the first of the S rows of x(B,S,I); the others get no gradient. */
    void (*first_token_forward)(void *y, const void *x, int64_t batch, int64_t sequence,
                                int64_t in);
    void (*first_token_backward)(void *dx, const void *dy, int64_t batch, int64_t sequence,
                                 int64_t in);

    /* y(B,S,F) = x w(pixels,F) + bias(F), with the class token(F) as the first row of all, +
     * positions(all rows,F) of each; what is NULL is not added. backward: gradients of these (NULL:
     * not wanted), of positions that are not here 0; adds: enum sbp_adds. */
    void (*patches_forward)(void *y, const void *x, const void *w, const void *bias,
                            const void *class_token, const void *positions,
                            const struct sbp_patches *patches);
    void (*patches_backward)(void *dw, void *dbias, void *dclass, void *dpositions, const void *x,
                             const void *dy, const struct sbp_patches *patches, unsigned adds);

    /* y(B,OH,O,OW) = the windows of x times w(C,kernel height,kernel width,O) [+ bias(O)]; O is
     * `out`. backward: dx, dw and dbias (NULL: not wanted); adds: enum sbp_adds. */
    void (*conv2d_forward)(void *y, const void *x, const void *w, const void *bias,
                           const struct sbp_windows *windows, int64_t out);
    void (*conv2d_backward_input)(void *dx, const void *dy, const void *w,
                                  const struct sbp_windows *windows, int64_t out);
    void (*conv2d_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                   const struct sbp_windows *windows, int64_t out, unsigned adds);

    /* The largest element of each window, the first of equals, and its place in the window, row by
     * row: index(B,OH,C,OW), bytes where a window has 256 places at most, else int32_t. The mean of
     * each window, zeros around the image included. */
    void (*maxpool_forward)(void *y, void *index, const void *x, const struct sbp_windows *windows);
    void (*maxpool_backward)(void *dx, const void *index, const void *dy,
                             const struct sbp_windows *windows);
    void (*avgpool_forward)(void *y, const void *x, const struct sbp_windows *windows);
    void (*avgpool_backward)(void *dx, const void *dy, const struct sbp_windows *windows);

    /* statistics(C,2), wide: mean and 1 / sqrt(variance + epsilon) of each channel over all rows
     * and places of images x(rows,C,W) (Ioffe and Szegedy, 2015); then y = (x - mean) rstd gain(C)
     * + shift(C). backward: dx, and dgain(C), dshift(C) (NULL: not wanted) over the rows, written
     * or added to. */
    void (*batchnorm_statistics)(void *statistics, const void *x, const struct sbp_norm_rows *rows,
                                 double epsilon);
    void (*batchnorm_forward)(void *y, const void *x, const void *statistics, const void *gain,
                              const void *shift, const struct sbp_norm_rows *rows);
    void (*batchnorm_backward)(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                               const void *statistics, const void *gain,
                               const struct sbp_norm_rows *rows, bool adds);

    /* qkv(B,S,H,3,D) -> y(B,S,H,D). saved: B*H*S*K probabilities or, of flash attention, B*H*S
     * log-sum-exps (wide); behind probabilities with dropout as many that are left of them, which
     * kernels of 16 bits and GPUs form anew and do not touch. scratch:
     * sbp_attention_scratch_elements (base/math/numeric.h) of a sequence of K, which kernels of 16
     * bits do not touch. Without a context (NULL) the sequence is whole, K = S. With one, keys and
     * values of qkv are not read, and their gradients in dqkv are 0. With a block, the scratch of
     * forward materialised attention begins with sbp_attention_sums_elements that stay as they are
     * from call to call: log-sum-exps. */
    void (*attention_forward)(void *y, void *saved, void *scratch, const void *qkv,
                              const struct sbp_attention_context *context,
                              const struct sbp_attention_shape *shape);
    void (*attention_backward)(void *dqkv, void *scratch, const void *dy, const void *qkv,
                               const void *y, const void *saved,
                               const struct sbp_attention_context *context,
                               const struct sbp_attention_shape *shape);

    /* The same with q(B,S,H,D) and, of fewer heads and all of the sequence, kv(B,K,KH,2,D). */
    void (*grouped_attention_forward)(void *y, void *saved, void *scratch, const void *q,
                                      const void *kv, const struct sbp_attention_groups *groups,
                                      const struct sbp_attention_shape *shape);
    void (*grouped_attention_backward)(void *dq, void *dkv, void *scratch, const void *dy,
                                       const void *q, const void *kv, const void *y,
                                       const void *saved, const struct sbp_attention_groups *groups,
                                       const struct sbp_attention_shape *shape);

    /* The same with q(B,S,H,{rope, nope}), turned, and keys of heads that have the shared part
     * turned by the places of the sequence (DeepSeek-V2, 2024, section 2.1.3) in front of their
     * own: y(B,S,H,value). The shape's head_size is rope + nope; scratch:
     * sbp_latent_scratch_elements. */
    void (*latent_attention_forward)(void *y, void *saved, void *scratch, const void *q,
                                     const struct sbp_latent_keys *keys,
                                     const struct sbp_attention_shape *shape);
    void (*latent_attention_backward)(void *dq, void *scratch, const void *dy, const void *q,
                                      const void *y, const void *saved,
                                      const struct sbp_latent_keys *keys,
                                      const struct sbp_attention_shape *shape);

    /* Turns in place features i and i + size/2 of the first `size` of the `width` features of each
     * head of x(B,S,H,width) by the angle p 10000^(-2i/size) (Su et al., 2021), p the place in the
     * sequence that `rows` gives; the other way for gradients (back). */
    void (*rotary)(void *x, const struct sbp_digits *rows, int64_t batch, int64_t heads,
                   int64_t width, int64_t size, bool back);

    /* Mixtures of experts, from scores(T,E). Route fills a table: each token's experts from the
     * best one on, and slots of an expert (0 to C - 1) first for first choices in the order of
     * tokens, then for second ones (Lepikhin et al., GShard, 2020, algorithm 1); copies that find
     * none are dropped. `held` says which experts one of the members that share them has: slots are
     * then those of all, (E C), of a member's experts behind those of the member before (NULL: of
     * each expert). Sigmoids are compared after bias(E) (NULL: none) is added. Of groups those
     * are chosen whose best K / most_groups experts, rounded up, have the largest sum (DeepSeek-V3,
     * 2024, section 2.1.2). taken(E): scratch. */
    void (*moe_route)(int32_t *table, int32_t *taken, const void *scores, const void *bias,
                      const struct sbp_digits *held, const struct sbp_routing *mixture);
    /* slots(E C,I) = copies of x(T,I), zeros where there is none; dx += gradients of copies. */
    void (*moe_dispatch)(void *slots, const void *x, const int32_t *table,
                         const struct sbp_routing *mixture);
    void (*moe_dispatch_backward)(void *dx, const void *dslots, const int32_t *table,
                                  const struct sbp_routing *mixture);
    /* y(T,I) = sum over a token's copies of weight times slots(E C,I), weights a softmax over the
     * scores of its K experts, or, where K is 1, of all; or sigmoids of scores over the sum of its
     * K ones, or, where K is 1, alone. Backward writes dslots, and the gradients of the scores in
     * their place. */
    void (*moe_combine)(void *y, const void *slots, const void *scores, const int32_t *table,
                        const struct sbp_routing *mixture);
    void (*moe_combine_backward)(void *dslots, void *scores, const void *dy, const void *slots,
                                 const int32_t *table, const struct sbp_routing *mixture);

    /* Softmax cross-entropy over a vocabulary of which V rows are local; entries whose global index
     * is >= valid are padding: they take no part and get no gradient. A token whose label is below
     * 0 is ignored: it has no loss and no gradient, and its sums are 0. maxima(T): local row maxima
     * (-infinity where no valid entry is local), reduced by max; sums(T,2) = (sum exp(z - max),
     * z[label] - max if the label is local else 0), reduced by sum; loss: *sum (one, wide) = sum
     * over local tokens of log(sumexp) - target; backward: dlogits = (softmax - onehot) * factor
     * (factor = 1 / global tokens), times the loss scale of `step`, where that is not NULL. */
    void (*cross_entropy_maxima)(void *maxima, const void *logits, int64_t tokens, int64_t local,
                                 const struct sbp_digits *vocabulary, int64_t valid);
    void (*cross_entropy_sums)(void *sums, const void *logits, const int32_t *labels,
                               const void *maxima, int64_t tokens, int64_t local,
                               const struct sbp_digits *vocabulary, int64_t valid);
    /* Both of a vocabulary that is whole, which read logits once; NULL as above. */
    void (*cross_entropy_whole_sums)(void *maxima, void *sums, const void *logits,
                                     const int32_t *labels, int64_t tokens, int64_t local,
                                     int64_t valid);
    void (*cross_entropy_loss)(void *sum, const void *sums, int64_t tokens);
    void (*cross_entropy_backward)(void *dlogits, const void *logits, const int32_t *labels,
                                   const void *maxima, const void *sums, int64_t tokens,
                                   int64_t local, const struct sbp_digits *vocabulary,
                                   int64_t valid, double factor, const struct sbp_step_state *step);

    /* *sum (one, wide) = sum of squares times factor (1 / how many ranks hold the same elements).
     */
    void (*sum_squares)(void *sum, const void *x, int64_t n, double factor);

    /* Before a step's work: its loss scale, out of what the step before says. scales: the scale is
     * dynamic; else 1. */
    void (*step_begin)(struct sbp_step_state *step, bool scales);
    /* *sum += *value; *value = *sum (value: one, wide; sum: of a state). */
    void (*step_add)(double *sum, const void *value);
    void (*step_take)(void *value, const double *sum);
    /* Before a step's updates: norm, overflow and clipping factor (clip_norm 0: no clipping), out
     * of the sum of squares over all ranks (one, wide); NULL: no norm is formed. */
    void (*step_decide)(struct sbp_step_state *step, const void *squares, double clip_norm,
                        const struct sbp_update *update, bool scales);
    /* Before an update without a norm: leaves it out if the sum of its gradient's squares (one,
     * wide) is no finite number. */
    void (*step_watch)(struct sbp_step_state *step, const void *squares);
    /* One optimizer step over N elements; first = momentum (sgd) or first moment, second = second
     * moment, both wide; NULL where the optimizer has none. In 16 bits the step is that of the
     * master copy (wide), of which w becomes the rounded one; gradient_master (wide) receives the
     * gradient without its loss scale. Both may be NULL elsewhere. step: its scales take the place
     * of those of `update`, whose step counts those left out as well; it may leave the update out.
     * NULL: none. */
    void (*update)(void *w, void *master, const void *g, void *gradient_master, void *first,
                   void *second, int64_t n, const struct sbp_update *update,
                   const struct sbp_step_state *step);

    /* dst gets src with its `dims` dimensions (row-major sizes `shape`, dims <= SBP_MOST_PERMUTED)
     * reordered: dst's dimension i is src's dimension order[i]. The boxing pack and unpack. */
    void (*permute)(void *dst, const void *src, int dims, const int64_t *shape, const int *order);
    /* Copies rows of n elements each, which begin `to_row` and `from_row` elements apart. */
    void (*copy_rows)(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                      int64_t rows);

    /* Fills a block with mean + spread * normal(seed, stream, global index), or with a constant
     * when spread is 0; elements of dimension 0 at or over valid_rows are 0 (padding). step: all
     * is multiplied by its loss scale; NULL: not. */
    void (*fill_normal)(void *x, const struct sbp_region *region, double mean, double spread,
                        uint64_t seed, uint64_t stream, int64_t valid_rows,
                        const struct sbp_step_state *step);
};

/* The CPU tables (OpenBLAS, one thread a call; one of every type). Thread-safe. They use up to
 * 1 MiB of stack. */
const struct sbp_kernels *sbp_kernels_cpu(enum sbp_real real);

/* y(M,N) = a(M,K) b(K,N) once, in single or double precision, for calibration: the same GEMM that
 * the linear operators call. A factor may lie in memory transposed, a as (K,M) or b as (N,K), as in
 * their backward passes. */
struct sbp_gemm_factor {
    const void *at;
    bool transposed;
};
void sbp_kernels_cpu_gemm(enum sbp_real real, void *y, struct sbp_gemm_factor a,
                          struct sbp_gemm_factor b, int64_t m, int64_t n, int64_t k);
/* Address space that BLAS maps for every thread that multiplies at a time (measured: OpenBLAS on
 * x86-64). Where there is none left, OpenBLAS tries again for ever. */
#define SBP_KERNELS_CPU_SPACE_BYTES ((int64_t)128 << 20)

#endif

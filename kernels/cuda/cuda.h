/* The numeric operators on an NVIDIA GPU, behind one table per element type.
 *
 * The functions are those of struct sbp_kernels (kernels/kernels.h), which says what each computes,
 * with a context in front and pointers into the device's memory; they return when the work lies in
 * the context's stream. What a kernel needs of the host's structures goes with the launch, so these
 * may change after the call. Products are not here: cuBLAS has them. Tensors are float, bfloat16 or
 * half precision; statistics and optimizer states are float.
 *
 * Sums have one order that their sizes and alignments fix, in every run on one kind of GPU; nothing
 * is added atomically. A head of attention has SBP_CUDA_LARGEST_HEAD features at most, and fewer
 * on a device whose blocks have little shared memory (largest_head).
 */
#ifndef SBP_KERNELS_CUDA_CUDA_H
#define SBP_KERNELS_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/kernels.h"

#define SBP_CUDA_LARGEST_HEAD 256
/* Experts of a mixture that moe_route chooses from, on every device. */
#define SBP_CUDA_MOST_EXPERTS 2000
/* What the kernels of a stream use beside their arguments: with less they take more turns. */
#define SBP_CUDA_SCRATCH_BYTES ((int64_t)16 << 20)

/* Where kernels are launched. */
struct sbp_cuda {
    void *stream;  /* cudaStream_t */
    void *scratch; /* on the device, of this stream alone */
    int64_t scratch_bytes;
    int multiprocessors; /* of the device, >= 1 */
    int shared_bytes;    /* that a block may have there */
    int error;           /* cudaError_t of the first launch that was refused; 0: none */
};

/* real is SBP_F32, SBP_REAL_BF16 or SBP_REAL_FP16. */
struct sbp_cuda_kernels {
    enum sbp_real real;

    /* y(T,O) += bias(O) in every row; sums(O) = column sums of x(T,O), written or added to: what
     * linear operators have beside their products. */
    void (*add_bias)(struct sbp_cuda *cuda, void *y, const void *bias, int64_t tokens, int64_t out);
    void (*column_sums)(struct sbp_cuda *cuda, void *sums, const void *x, int64_t tokens,
                        int64_t out, bool adds);

    /* to(n) = sums(n) of a product in single precision, or is added to. */
    void (*put_sums)(struct sbp_cuda *cuda, void *to, const void *sums, int64_t n, bool adds);

    void (*tanh_forward)(struct sbp_cuda *cuda, void *y, const void *x, int64_t n);
    void (*tanh_backward)(struct sbp_cuda *cuda, void *dx, const void *y, const void *dy,
                          int64_t n);
    void (*swiglu_forward)(struct sbp_cuda *cuda, void *y, const void *x, int64_t n);
    void (*swiglu_backward)(struct sbp_cuda *cuda, void *dx, const void *x, const void *dy,
                            int64_t n);
    void (*rotary)(struct sbp_cuda *cuda, void *x, const struct sbp_digits *rows, int64_t batch,
                   int64_t heads, int64_t width, int64_t size, bool back);

    void (*rmsnorm_sums)(struct sbp_cuda *cuda, void *sums, const void *x, int64_t tokens,
                         int64_t in);
    void (*rmsnorm_forward)(struct sbp_cuda *cuda, void *y, const void *x, const void *sums,
                            const void *gain, int64_t tokens, int64_t in, int64_t hidden,
                            double epsilon);
    void (*rmsnorm_backward_sums)(struct sbp_cuda *cuda, void *backward_sums, const void *dy,
                                  const void *x, const void *gain, int64_t tokens, int64_t in);
    /* backward_sums NULL: the hidden dimension is whole. */
    void (*rmsnorm_backward)(struct sbp_cuda *cuda, void *dx, void *dgain, const void *dy,
                             const void *x, const void *sums, const void *backward_sums,
                             const void *gain, int64_t tokens, int64_t in, int64_t hidden,
                             double epsilon, bool adds);
    void (*head_norm_forward)(struct sbp_cuda *cuda, void *y, void *sums, const void *x,
                              const void *gain, int64_t heads, int64_t width, int64_t size,
                              double epsilon);
    void (*head_norm_backward)(struct sbp_cuda *cuda, void *dx, void *dgain, const void *dy,
                               const void *x, const void *sums, const void *gain, int64_t heads,
                               int64_t width, int64_t size, double epsilon, bool adds);

    void (*relu_forward)(struct sbp_cuda *cuda, void *y, const void *x, int64_t n);
    void (*relu_backward)(struct sbp_cuda *cuda, void *dx, const void *x, const void *dy,
                          int64_t n);
    void (*gelu_forward)(struct sbp_cuda *cuda, void *y, const void *x, int64_t n);
    void (*gelu_backward)(struct sbp_cuda *cuda, void *dx, const void *x, const void *dy,
                          int64_t n);
    /* x(T,O) += bias(O), which backward needs, and y = gelu(x); dx = dy gelu'(x) and dbias(O), its
     * column sums, written or added to. dx may be dy. */
    void (*bias_gelu_forward)(struct sbp_cuda *cuda, void *y, void *x, const void *bias,
                              int64_t tokens, int64_t out);
    void (*bias_gelu_backward)(struct sbp_cuda *cuda, void *dx, void *dbias, const void *x,
                               const void *dy, int64_t tokens, int64_t out, bool adds);
    void (*add)(struct sbp_cuda *cuda, void *y, const void *a, const void *b, int64_t n);
    void (*scale)(struct sbp_cuda *cuda, void *x, double factor, int64_t n);
    void (*absolute)(struct sbp_cuda *cuda, void *x, int64_t n);
    void (*zero)(struct sbp_cuda *cuda, void *x, int64_t n);
    void (*to_wide)(struct sbp_cuda *cuda, void *wide, const void *x, int64_t n);
    void (*from_wide)(struct sbp_cuda *cuda, void *x, const void *wide, int64_t n);
    void (*dropout_forward)(struct sbp_cuda *cuda, void *y, uint8_t *mask, const void *x,
                            const struct sbp_region *region, double p, uint64_t seed,
                            uint64_t stream);
    void (*dropout_backward)(struct sbp_cuda *cuda, void *dx, const uint8_t *mask, const void *dy,
                             int64_t n, double p);

    void (*layernorm_sums)(struct sbp_cuda *cuda, void *sums, const void *x, int64_t tokens,
                           int64_t in);
    void (*layernorm_forward)(struct sbp_cuda *cuda, void *y, const void *x, const void *sums,
                              const void *gain, const void *shift, int64_t tokens, int64_t in,
                              int64_t hidden, double epsilon);
    void (*layernorm_backward_sums)(struct sbp_cuda *cuda, void *backward_sums, const void *dy,
                                    const void *x, const void *sums, const void *gain,
                                    int64_t tokens, int64_t in, int64_t hidden, double epsilon);
    void (*layernorm_backward)(struct sbp_cuda *cuda, void *dx, void *dgain, void *dshift,
                               const void *dy, const void *x, const void *sums,
                               const void *backward_sums, const void *gain, int64_t tokens,
                               int64_t in, int64_t hidden, double epsilon, bool adds);
    /* Both phases at once where the hidden dimension is whole: a token is read from memory once.
     * Forward writes sums(T,2), which backward reads. */
    void (*layernorm_whole_forward)(struct sbp_cuda *cuda, void *y, void *sums, const void *x,
                                    const void *gain, const void *shift, int64_t tokens,
                                    int64_t hidden, double epsilon);
    void (*layernorm_whole_backward)(struct sbp_cuda *cuda, void *dx, void *dgain, void *dshift,
                                     const void *dy, const void *x, const void *sums,
                                     const void *gain, int64_t tokens, int64_t hidden,
                                     double epsilon, bool adds);

    void (*embedding_forward)(struct sbp_cuda *cuda, void *y, const int32_t *ids,
                              const int32_t *position_of, const void *table, const void *positions,
                              int64_t tokens, int64_t in, const struct sbp_digits *vocabulary);
    void (*embedding_backward)(struct sbp_cuda *cuda, void *dtable, void *dpositions,
                               const int32_t *ids, const int32_t *position_of, const void *dy,
                               int64_t tokens, int64_t in, int64_t position_rows,
                               const struct sbp_digits *vocabulary, unsigned adds);

    void (*token_types_forward)(struct sbp_cuda *cuda, void *y, const int32_t *position_of,
                                const void *types, int64_t tokens, int64_t in, int64_t rows,
                                int64_t sequence);
    void (*token_types_backward)(struct sbp_cuda *cuda, void *dtypes, const int32_t *position_of,
                                 const void *dy, int64_t tokens, int64_t in, int64_t rows,
                                 int64_t sequence, bool adds);
    void (*first_token_forward)(struct sbp_cuda *cuda, void *y, const void *x, int64_t batch,
                                int64_t sequence, int64_t in);
    void (*first_token_backward)(struct sbp_cuda *cuda, void *dx, const void *dy, int64_t batch,
                                 int64_t sequence, int64_t in);

    /* cuBLAS makes the products of patches, these kernels do the rest. put: tokens of patches first
     * .. first + count - 1 of all images, of single precision from(count,F); put_class: the class
     * tokens, if they are here; take: to(count,F) = gradients of tokens of patches; sums: those of
     * bias, class token and positions. Structures lie on the host. */
    void (*patches_put)(struct sbp_cuda *cuda, void *y, const void *from, const void *bias,
                        const void *positions, const struct sbp_patches *patches, int64_t first,
                        int64_t count);
    void (*patches_put_class)(struct sbp_cuda *cuda, void *y, const void *class_token,
                              const void *positions, const struct sbp_patches *patches);
    void (*patches_take)(struct sbp_cuda *cuda, void *to, const void *dy,
                         const struct sbp_patches *patches, int64_t first, int64_t count);
    void (*patches_sums)(struct sbp_cuda *cuda, void *dbias, void *dclass, void *dpositions,
                         const void *dy, const struct sbp_patches *patches, bool adds);

    /* cuBLAS makes the products of convolutions, these kernels do the rest, for places first_place
     * .. first_place + places - 1 of all images, row by row. windows: to(terms,places) = terms
     * first_term and on of the windows of outputs; sources: to(kernel places O,places) = what
     * outputs give to places of the input, by kernel place and output channel. take: to(C,places)
     * of images x(rows,C,W); put: x of single precision from(C,places) [+ bias(C)]; images_sums:
     * sums(C) over rows and W. */
    void (*conv2d_windows)(struct sbp_cuda *cuda, void *to, const void *x,
                           const struct sbp_windows *windows, int64_t first_term, int64_t terms,
                           int64_t first_place, int64_t places);
    void (*conv2d_sources)(struct sbp_cuda *cuda, void *to, const void *dy,
                           const struct sbp_windows *windows, int64_t out, int64_t first_place,
                           int64_t places);
    void (*images_take)(struct sbp_cuda *cuda, void *to, const void *x, int64_t channels,
                        int64_t width, int64_t first_place, int64_t places);
    void (*images_put)(struct sbp_cuda *cuda, void *x, const void *from, const void *bias,
                       int64_t channels, int64_t width, int64_t first_place, int64_t places);
    void (*images_sums)(struct sbp_cuda *cuda, void *sums, const void *x, int64_t rows,
                        int64_t channels, int64_t width, bool adds);

    void (*maxpool_forward)(struct sbp_cuda *cuda, void *y, void *index, const void *x,
                            const struct sbp_windows *windows);
    void (*maxpool_backward)(struct sbp_cuda *cuda, void *dx, const void *index, const void *dy,
                             const struct sbp_windows *windows);
    void (*avgpool_forward)(struct sbp_cuda *cuda, void *y, const void *x,
                            const struct sbp_windows *windows);
    void (*avgpool_backward)(struct sbp_cuda *cuda, void *dx, const void *dy,
                             const struct sbp_windows *windows);

    /* These take all rows of a block: where `row` is not NULL nothing is done, and the error is
     * kept. */
    void (*batchnorm_statistics)(struct sbp_cuda *cuda, void *statistics, const void *x,
                                 const struct sbp_norm_rows *rows, double epsilon);
    void (*batchnorm_forward)(struct sbp_cuda *cuda, void *y, const void *x, const void *statistics,
                              const void *gain, const void *shift,
                              const struct sbp_norm_rows *rows);
    void (*batchnorm_backward)(struct sbp_cuda *cuda, void *dx, void *dgain, void *dshift,
                               const void *dy, const void *x, const void *statistics,
                               const void *gain, const struct sbp_norm_rows *rows, bool adds);

    /* Features of the largest head that fits into the device's shared memory; 0: none does. */
    int (*largest_head)(const struct sbp_cuda *cuda);
    /* Scratch is for log-sum-exps alone, of probabilities that are kept block by block; else NULL
     * is legal. keys and key_gradients of a context lie on the device, its rows and the digits of a
     * block on the host. */
    void (*attention_forward)(struct sbp_cuda *cuda, void *y, void *saved, void *scratch,
                              const void *qkv, const struct sbp_attention_context *context,
                              const struct sbp_attention_shape *shape);
    void (*attention_backward)(struct sbp_cuda *cuda, void *dqkv, const void *dy, const void *qkv,
                               const void *y, const void *saved,
                               const struct sbp_attention_context *context,
                               const struct sbp_attention_shape *shape);
    /* groups and its digits lie on the host. */
    void (*grouped_attention_forward)(struct sbp_cuda *cuda, void *y, void *saved, void *scratch,
                                      const void *q, const void *kv,
                                      const struct sbp_attention_groups *groups,
                                      const struct sbp_attention_shape *shape);
    void (*grouped_attention_backward)(struct sbp_cuda *cuda, void *dq, void *dkv, const void *dy,
                                       const void *q, const void *kv, const void *y,
                                       const void *saved, const struct sbp_attention_groups *groups,
                                       const struct sbp_attention_shape *shape);

    /* Pointers in keys lie on the device, its rows on the host. Values have SBP_CUDA_LARGEST_HEAD
     * features at most, too. */
    void (*latent_attention_forward)(struct sbp_cuda *cuda, void *y, void *saved, void *scratch,
                                     const void *q, const struct sbp_latent_keys *keys,
                                     const struct sbp_attention_shape *shape);
    void (*latent_attention_backward)(struct sbp_cuda *cuda, void *dq, void *scratch,
                                      const void *dy, const void *q, const void *y,
                                      const void *saved, const struct sbp_latent_keys *keys,
                                      const struct sbp_attention_shape *shape);

    /* held lies on the host. Of more than SBP_CUDA_MOST_EXPERTS nothing is chosen, and the error is
     * kept. */
    void (*moe_route)(struct sbp_cuda *cuda, int32_t *table, const void *scores, const void *bias,
                      const struct sbp_digits *held, const struct sbp_routing *mixture);
    void (*moe_dispatch)(struct sbp_cuda *cuda, void *slots, const void *x, const int32_t *table,
                         const struct sbp_routing *mixture);
    void (*moe_dispatch_backward)(struct sbp_cuda *cuda, void *dx, const void *dslots,
                                  const int32_t *table, const struct sbp_routing *mixture);
    void (*moe_combine)(struct sbp_cuda *cuda, void *y, const void *slots, const void *scores,
                        const int32_t *table, const struct sbp_routing *mixture);
    void (*moe_combine_backward)(struct sbp_cuda *cuda, void *dslots, void *scores, const void *dy,
                                 const void *slots, const int32_t *table,
                                 const struct sbp_routing *mixture);

    void (*cross_entropy_maxima)(struct sbp_cuda *cuda, void *maxima, const void *logits,
                                 int64_t tokens, int64_t local, const struct sbp_digits *vocabulary,
                                 int64_t valid);
    void (*cross_entropy_sums)(struct sbp_cuda *cuda, void *sums, const void *logits,
                               const int32_t *labels, const void *maxima, int64_t tokens,
                               int64_t local, const struct sbp_digits *vocabulary, int64_t valid);
    /* Both at once where the vocabulary is whole: logits are read once. */
    void (*cross_entropy_whole_sums)(struct sbp_cuda *cuda, void *maxima, void *sums,
                                     const void *logits, const int32_t *labels, int64_t tokens,
                                     int64_t local, int64_t valid);
    void (*cross_entropy_loss)(struct sbp_cuda *cuda, void *sum, const void *sums, int64_t tokens);
    /* dlogits may be logits. */
    void (*cross_entropy_backward)(struct sbp_cuda *cuda, void *dlogits, const void *logits,
                                   const int32_t *labels, const void *maxima, const void *sums,
                                   int64_t tokens, int64_t local,
                                   const struct sbp_digits *vocabulary, int64_t valid,
                                   double factor, const struct sbp_step_state *step);

    void (*sum_squares)(struct sbp_cuda *cuda, void *sum, const void *x, int64_t n, double factor);
    void (*step_begin)(struct sbp_cuda *cuda, struct sbp_step_state *step, bool scales);
    void (*step_add)(struct sbp_cuda *cuda, double *sum, const void *value);
    void (*step_take)(struct sbp_cuda *cuda, void *value, const double *sum);
    /* Adam's corrections, too. */
    void (*step_decide)(struct sbp_cuda *cuda, struct sbp_step_state *step, const void *squares,
                        double clip_norm, const struct sbp_update *update, bool scales);
    void (*step_watch)(struct sbp_cuda *cuda, struct sbp_step_state *step, const void *squares);
    /* gradient_master may be NULL, and master where w is wide. */
    void (*update)(struct sbp_cuda *cuda, void *w, void *master, const void *g,
                   void *gradient_master, void *first, void *second, int64_t n,
                   const struct sbp_update *update, const struct sbp_step_state *step);

    void (*permute)(struct sbp_cuda *cuda, void *dst, const void *src, int dims,
                    const int64_t *shape, const int *order);
    void (*copy_rows)(struct sbp_cuda *cuda, void *to, int64_t to_row, const void *from,
                      int64_t from_row, int64_t n, int64_t rows);
    void (*fill_normal)(struct sbp_cuda *cuda, void *x, const struct sbp_region *region,
                        double mean, double spread, uint64_t seed, uint64_t stream,
                        int64_t valid_rows, const struct sbp_step_state *step);
};

/* Loads a kernel of each source onto the current device, and with it the code of all that the
 * source has: none is compiled there at its first launch. A cudaError_t; 0: done. */
int sbp_cuda_kernels_load(void);
/* Fills the table; with NULL in a build without nvcc. */
void sbp_cuda_kernels_make(struct sbp_cuda_kernels *kernels, enum sbp_real real);

#ifdef __cplusplus
}
#endif
#endif

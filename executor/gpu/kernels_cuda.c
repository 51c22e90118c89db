/* The table of kernels of one element type on this thread's GPU: kernels of ours, and products by
 * cuBLAS. Compiled once for each type (type_cuda_priv.h).
 *
 * Products add up in single precision.
 */
#include "executor/gpu/type_cuda_priv.h"

/* ---- products -------------------------------------------------------------------------------- */

static struct factor plain(const void *at, int64_t row)
{
    return (struct factor){at, row, false};
}

static struct factor transposed(const void *at, int64_t row)
{
    return (struct factor){at, row, true};
}

/* y(tokens,out) = x(tokens,in) w(in,out), as cuBLASLt has it. */
static struct sbp_gpu_product product_of(void *y, const void *x, struct factor w, int64_t tokens,
                                         int64_t in, int64_t out)
{
    return (struct sbp_gpu_product){.a = w.at,
                                    .b = x,
                                    .c = y,
                                    .m = out,
                                    .n = tokens,
                                    .k = in,
                                    .a_turned = w.transposed,
                                    .data = DATA,
                                    .sum = SUM};
}

/* The same [+ bias(out)]. Where cuBLASLt has no such product, the bias is added to the result as it
 * is stored. */
static void multiply_biased(void *y, const void *x, struct factor w, const void *bias,
                            int64_t tokens, int64_t in, int64_t out)
{
    struct sbp_gpu_product product = product_of(y, x, w, tokens, in, out);
    product.bias = bias;
    if (bias != NULL && sbp_gpu_multiply_further(sbp_gpu_rank_here(), &product))
        return;
    multiply(y, DATA, plain(x, in), w, tokens, out, in, false);
    if (bias != NULL)
        LAUNCH(add_bias, y, bias, tokens, out);
}

static bool linear_gelu_forward(void *y, void *z, const void *x, const void *w, const void *bias,
                                int64_t tokens, int64_t in, int64_t out)
{
    struct sbp_gpu_product product = product_of(y, x, plain(w, out), tokens, in, out);
    product.bias = bias;
    product.before_gelu = z;
    return sbp_gpu_multiply_further(sbp_gpu_rank_here(), &product);
}

static bool linear_gelu_backward_input(void *dx, const void *z, const void *dy, const void *w,
                                       int64_t tokens, int64_t in, int64_t out)
{
    struct sbp_gpu_product product = product_of(dx, dy, transposed(w, out), tokens, out, in);
    product.gelu_of = z;
    return sbp_gpu_multiply_further(sbp_gpu_rank_here(), &product);
}

static void sum_columns(void *dbias, const void *dy, int64_t tokens, int64_t out, unsigned adds)
{
    if (dbias != NULL)
        LAUNCH(column_sums, dbias, dy, tokens, out, (adds & SBP_ADDS_REST) != 0);
}

/* Both gradients, while dy is read once. The library writes the bias's: what is to be added to that
 * of micro-batches before comes by way of the scratch. */
static bool multiply_and_sum(void *dw, void *dbias, const void *x, const void *dy, int64_t tokens,
                             int64_t in, int64_t out, unsigned adds)
{
    void *const apart = (char *)sbp_gpu_rank_here()->cuda.scratch + SBP_GPU_WORKSPACE_BYTES;
    const bool is_added = (adds & SBP_ADDS_REST) != 0;
    struct sbp_gpu_product product = product_of(dw, x, plain(dy, out), in, tokens, out);
    product.b_turned = true;
    product.row_sums = is_added ? apart : dbias;
    product.adds = (adds & SBP_ADDS_FIRST) != 0;
    if ((is_added && (size_t)out > SBP_GPU_ROWS_BYTES / REAL_BYTES) ||
        !sbp_gpu_multiply_further(sbp_gpu_rank_here(), &product))
        return false;
    if (is_added)
        LAUNCH(add, dbias, dbias, apart, out);
    return true;
}

static void linear_forward(void *y, const void *x, const void *w, const void *bias, int64_t tokens,
                           int64_t in, int64_t out)
{
    multiply_biased(y, x, plain(w, out), bias, tokens, in, out);
}

static void linear_add(void *y, const void *x, const void *w, int64_t tokens, int64_t in,
                       int64_t out)
{
    multiply(y, DATA, plain(x, in), plain(w, out), tokens, out, in, true);
}

static void linear_backward_input(void *dx, const void *dy, const void *w, int64_t tokens,
                                  int64_t in, int64_t out)
{
    multiply(dx, DATA, plain(dy, out), transposed(w, out), tokens, in, out, false);
}

static void linear_backward_weight(void *dw, void *dbias, const void *x, const void *dy,
                                   int64_t tokens, int64_t in, int64_t out, unsigned adds)
{
    if (dbias != NULL && multiply_and_sum(dw, dbias, x, dy, tokens, in, out, adds))
        return;
    multiply(dw, DATA, transposed(x, in), plain(dy, out), in, out, tokens,
             (adds & SBP_ADDS_FIRST) != 0);
    sum_columns(dbias, dy, tokens, out, adds);
}

static void linear_transposed_forward(void *y, const void *x, const void *w, const void *bias,
                                      int64_t tokens, int64_t in, int64_t out)
{
    multiply_biased(y, x, transposed(w, in), bias, tokens, in, out);
}

static void linear_transposed_backward_input(void *dx, const void *dy, const void *w,
                                             int64_t tokens, int64_t in, int64_t out)
{
    multiply(dx, DATA, plain(dy, out), plain(w, in), tokens, in, out, false);
}

static void linear_transposed_backward_weight(void *dw, void *dbias, const void *x, const void *dy,
                                              int64_t tokens, int64_t in, int64_t out,
                                              unsigned adds)
{
    multiply(dw, DATA, transposed(dy, out), plain(x, in), out, in, tokens,
             (adds & SBP_ADDS_FIRST) != 0);
    sum_columns(dbias, dy, tokens, out, adds);
}

/* ---- element by element ---------------------------------------------------------------------- */

static void relu_forward(void *y, const void *x, int64_t n)
{
    LAUNCH(relu_forward, y, x, n);
}

static void relu_backward(void *dx, const void *x, const void *dy, int64_t n)
{
    LAUNCH(relu_backward, dx, x, dy, n);
}

static void gelu_forward(void *y, const void *x, int64_t n)
{
    LAUNCH(gelu_forward, y, x, n);
}

static void gelu_backward(void *dx, const void *x, const void *dy, int64_t n)
{
    LAUNCH(gelu_backward, dx, x, dy, n);
}

static void tanh_forward(void *y, const void *x, int64_t n)
{
    LAUNCH(tanh_forward, y, x, n);
}

static void tanh_backward(void *dx, const void *y, const void *dy, int64_t n)
{
    LAUNCH(tanh_backward, dx, y, dy, n);
}

static void swiglu_forward(void *y, const void *x, int64_t n)
{
    LAUNCH(swiglu_forward, y, x, n);
}

static void swiglu_backward(void *dx, const void *x, const void *dy, int64_t n)
{
    LAUNCH(swiglu_backward, dx, x, dy, n);
}

static void add(void *y, const void *a, const void *b, int64_t n)
{
    LAUNCH(add, y, a, b, n);
}

static void scale(void *x, double factor, int64_t n)
{
    LAUNCH(scale, x, factor, n);
}

static void absolute(void *x, int64_t n)
{
    LAUNCH(absolute, x, n);
}

static void zero(void *x, int64_t n)
{
    LAUNCH(zero, x, n);
}

static void to_wide(void *wide, const void *x, int64_t n)
{
    LAUNCH(to_wide, wide, x, n);
}

static void from_wide(void *x, const void *wide, int64_t n)
{
    LAUNCH(from_wide, x, wide, n);
}

static void dropout_forward(void *y, uint8_t *mask, const void *x, const struct sbp_region *region,
                            double p, uint64_t seed, uint64_t stream)
{
    LAUNCH(dropout_forward, y, mask, x, region, p, seed, stream);
}

static void dropout_backward(void *dx, const uint8_t *mask, const void *dy, int64_t n, double p)
{
    LAUNCH(dropout_backward, dx, mask, dy, n, p);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void layernorm_sums(void *sums, const void *x, int64_t tokens, int64_t in)
{
    LAUNCH(layernorm_sums, sums, x, tokens, in);
}

static void layernorm_forward(void *y, const void *x, const void *sums, const void *gain,
                              const void *shift, int64_t tokens, int64_t in, int64_t hidden,
                              double epsilon)
{
    LAUNCH(layernorm_forward, y, x, sums, gain, shift, tokens, in, hidden, epsilon);
}

static void layernorm_backward_sums(void *backward_sums, const void *dy, const void *x,
                                    const void *sums, const void *gain, int64_t tokens, int64_t in,
                                    int64_t hidden, double epsilon)
{
    LAUNCH(layernorm_backward_sums, backward_sums, dy, x, sums, gain, tokens, in, hidden, epsilon);
}

static void layernorm_backward(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                               const void *sums, const void *backward_sums, const void *gain,
                               int64_t tokens, int64_t in, int64_t hidden, double epsilon,
                               bool adds)
{
    LAUNCH(layernorm_backward, dx, dgain, dshift, dy, x, sums, backward_sums, gain, tokens, in,
           hidden, epsilon, adds);
}

static void layernorm_whole_forward(void *y, void *sums, const void *x, const void *gain,
                                    const void *shift, int64_t tokens, int64_t hidden,
                                    double epsilon)
{
    LAUNCH(layernorm_whole_forward, y, sums, x, gain, shift, tokens, hidden, epsilon);
}

static void layernorm_whole_backward(void *dx, void *dgain, void *dshift, const void *dy,
                                     const void *x, const void *sums, const void *gain,
                                     int64_t tokens, int64_t hidden, double epsilon, bool adds)
{
    LAUNCH(layernorm_whole_backward, dx, dgain, dshift, dy, x, sums, gain, tokens, hidden, epsilon,
           adds);
}

static void rmsnorm_sums(void *sums, const void *x, int64_t tokens, int64_t in)
{
    LAUNCH(rmsnorm_sums, sums, x, tokens, in);
}

static void rmsnorm_forward(void *y, const void *x, const void *sums, const void *gain,
                            int64_t tokens, int64_t in, int64_t hidden, double epsilon)
{
    LAUNCH(rmsnorm_forward, y, x, sums, gain, tokens, in, hidden, epsilon);
}

static void rmsnorm_backward_sums(void *backward_sums, const void *dy, const void *x,
                                  const void *gain, int64_t tokens, int64_t in)
{
    LAUNCH(rmsnorm_backward_sums, backward_sums, dy, x, gain, tokens, in);
}

static void rmsnorm_backward(void *dx, void *dgain, const void *dy, const void *x, const void *sums,
                             const void *backward_sums, const void *gain, int64_t tokens,
                             int64_t in, int64_t hidden, double epsilon, bool adds)
{
    LAUNCH(rmsnorm_backward, dx, dgain, dy, x, sums, backward_sums, gain, tokens, in, hidden,
           epsilon, adds);
}

static void head_norm_forward(void *y, void *sums, const void *x, const void *gain, int64_t heads,
                              int64_t width, int64_t size, double epsilon)
{
    LAUNCH(head_norm_forward, y, sums, x, gain, heads, width, size, epsilon);
}

static void head_norm_backward(void *dx, void *dgain, const void *dy, const void *x,
                               const void *sums, const void *gain, int64_t heads, int64_t width,
                               int64_t size, double epsilon, bool adds)
{
    LAUNCH(head_norm_backward, dx, dgain, dy, x, sums, gain, heads, width, size, epsilon, adds);
}

static void rotary(void *x, const struct sbp_digits *rows, int64_t batch, int64_t heads,
                   int64_t width, int64_t size, bool back)
{
    LAUNCH(rotary, x, rows, batch, heads, width, size, back);
}

static void embedding_forward(void *y, const int32_t *ids, const int32_t *position_of,
                              const void *table, const void *positions, int64_t tokens, int64_t in,
                              const struct sbp_digits *vocabulary)
{
    LAUNCH(embedding_forward, y, ids, position_of, table, positions, tokens, in, vocabulary);
}

static void embedding_backward(void *dtable, void *dpositions, const int32_t *ids,
                               const int32_t *position_of, const void *dy, int64_t tokens,
                               int64_t in, int64_t position_rows,
                               const struct sbp_digits *vocabulary, unsigned adds)
{
    LAUNCH(embedding_backward, dtable, dpositions, ids, position_of, dy, tokens, in, position_rows,
           vocabulary, adds);
}

static int largest_head(void)
{
    const struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    return gpu->kernels[REAL].largest_head(&gpu->cuda);
}

static void attention_forward(void *y, void *saved, void *scratch, const void *qkv,
                              const struct sbp_attention_context *context,
                              const struct sbp_attention_shape *shape)
{
    LAUNCH(attention_forward, y, saved, scratch, qkv, context, shape);
}

static void attention_backward(void *dqkv, void *scratch, const void *dy, const void *qkv,
                               const void *y, const void *saved,
                               const struct sbp_attention_context *context,
                               const struct sbp_attention_shape *shape)
{
    (void)scratch; /* it stays on the chip */
    LAUNCH(attention_backward, dqkv, dy, qkv, y, saved, context, shape);
}

static void grouped_attention_forward(void *y, void *saved, void *scratch, const void *q,
                                      const void *kv, const struct sbp_attention_groups *groups,
                                      const struct sbp_attention_shape *shape)
{
    LAUNCH(grouped_attention_forward, y, saved, scratch, q, kv, groups, shape);
}

static void grouped_attention_backward(void *dq, void *dkv, void *scratch, const void *dy,
                                       const void *q, const void *kv, const void *y,
                                       const void *saved, const struct sbp_attention_groups *groups,
                                       const struct sbp_attention_shape *shape)
{
    (void)scratch;
    LAUNCH(grouped_attention_backward, dq, dkv, dy, q, kv, y, saved, groups, shape);
}

static void latent_attention_forward(void *y, void *saved, void *scratch, const void *q,
                                     const struct sbp_latent_keys *keys,
                                     const struct sbp_attention_shape *shape)
{
    LAUNCH(latent_attention_forward, y, saved, scratch, q, keys, shape);
}

static void latent_attention_backward(void *dq, void *scratch, const void *dy, const void *q,
                                      const void *y, const void *saved,
                                      const struct sbp_latent_keys *keys,
                                      const struct sbp_attention_shape *shape)
{
    LAUNCH(latent_attention_backward, dq, scratch, dy, q, y, saved, keys, shape);
}

static void moe_route(int32_t *table, int32_t *taken, const void *scores, const void *bias,
                      const struct sbp_digits *held, const struct sbp_routing *mixture)
{
    (void)taken; /* counts stay on the chip */
    LAUNCH(moe_route, table, scores, bias, held, mixture);
}

static void moe_dispatch(void *slots, const void *x, const int32_t *table,
                         const struct sbp_routing *mixture)
{
    LAUNCH(moe_dispatch, slots, x, table, mixture);
}

static void moe_dispatch_backward(void *dx, const void *dslots, const int32_t *table,
                                  const struct sbp_routing *mixture)
{
    LAUNCH(moe_dispatch_backward, dx, dslots, table, mixture);
}

static void moe_combine(void *y, const void *slots, const void *scores, const int32_t *table,
                        const struct sbp_routing *mixture)
{
    LAUNCH(moe_combine, y, slots, scores, table, mixture);
}

static void moe_combine_backward(void *dslots, void *scores, const void *dy, const void *slots,
                                 const int32_t *table, const struct sbp_routing *mixture)
{
    LAUNCH(moe_combine_backward, dslots, scores, dy, slots, table, mixture);
}

static void cross_entropy_maxima(void *maxima, const void *logits, int64_t tokens, int64_t local,
                                 const struct sbp_digits *vocabulary, int64_t valid)
{
    LAUNCH(cross_entropy_maxima, maxima, logits, tokens, local, vocabulary, valid);
}

static void cross_entropy_sums(void *sums, const void *logits, const int32_t *labels,
                               const void *maxima, int64_t tokens, int64_t local,
                               const struct sbp_digits *vocabulary, int64_t valid)
{
    LAUNCH(cross_entropy_sums, sums, logits, labels, maxima, tokens, local, vocabulary, valid);
}

static void cross_entropy_whole_sums(void *maxima, void *sums, const void *logits,
                                     const int32_t *labels, int64_t tokens, int64_t local,
                                     int64_t valid)
{
    LAUNCH(cross_entropy_whole_sums, maxima, sums, logits, labels, tokens, local, valid);
}

static void cross_entropy_loss(void *sum, const void *sums, int64_t tokens)
{
    LAUNCH(cross_entropy_loss, sum, sums, tokens);
}

static void cross_entropy_backward(void *dlogits, const void *logits, const int32_t *labels,
                                   const void *maxima, const void *sums, int64_t tokens,
                                   int64_t local, const struct sbp_digits *vocabulary,
                                   int64_t valid, double factor, const struct sbp_step_state *step)
{
    LAUNCH(cross_entropy_backward, dlogits, logits, labels, maxima, sums, tokens, local, vocabulary,
           valid, factor, step);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void sum_squares(void *sum, const void *x, int64_t n, double factor)
{
    LAUNCH(sum_squares, sum, x, n, factor);
}

static void step_begin(struct sbp_step_state *step, bool scales)
{
    LAUNCH(step_begin, step, scales);
}

static void step_add(double *sum, const void *value)
{
    LAUNCH(step_add, sum, value);
}

static void step_take(void *value, const double *sum)
{
    LAUNCH(step_take, value, sum);
}

static void step_decide(struct sbp_step_state *step, const void *squares, double clip_norm,
                        const struct sbp_update *constants, bool scales)
{
    LAUNCH(step_decide, step, squares, clip_norm, constants, scales);
}

static void step_watch(struct sbp_step_state *step, const void *squares)
{
    LAUNCH(step_watch, step, squares);
}

static void update(void *w, void *master, const void *g, void *gradient_master, void *first,
                   void *second, int64_t n, const struct sbp_update *constants,
                   const struct sbp_step_state *step)
{
    LAUNCH(update, w, master, g, gradient_master, first, second, n, constants, step);
}

static void permute(void *dst, const void *src, int dims, const int64_t *shape, const int *order)
{
    LAUNCH(permute, dst, src, dims, shape, order);
}

static void copy_rows(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                      int64_t rows)
{
    LAUNCH(copy_rows, to, to_row, from, from_row, n, rows);
}

static void fill_normal(void *x, const struct sbp_region *region, double mean, double spread,
                        uint64_t seed, uint64_t stream, int64_t valid_rows,
                        const struct sbp_step_state *step)
{
    LAUNCH(fill_normal, x, region, mean, spread, seed, stream, valid_rows, step);
}

#define IMAGE_ENTRY(name) .name = TYPED(name),
const struct sbp_kernels TABLE = {
    .name = NAME,
    .real = REAL,
    .real_bytes = REAL_BYTES,
    .wide_bytes = sizeof(float),
    .rounds_to_tf32 = SBP_TF32,
    .largest_head = largest_head,
    .most_experts = SBP_CUDA_MOST_EXPERTS,
    .largest_column = LARGEST_COLUMN,
    .linear_forward = linear_forward,
    .linear_add = linear_add,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .linear_gelu_forward = linear_gelu_forward,
    .linear_gelu_backward_input = linear_gelu_backward_input,
    .linear_transposed_forward = linear_transposed_forward,
    .linear_transposed_backward_input = linear_transposed_backward_input,
    .linear_transposed_backward_weight = linear_transposed_backward_weight,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .tanh_forward = tanh_forward,
    .tanh_backward = tanh_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .add = add,
    .scale = scale,
    .absolute = absolute,
    .zero = zero,
    .to_wide = to_wide,
    .from_wide = from_wide,
    .dropout_forward = dropout_forward,
    .dropout_backward = dropout_backward,
    .layernorm_sums = layernorm_sums,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward_sums = layernorm_backward_sums,
    .layernorm_backward = layernorm_backward,
    .layernorm_whole_forward = layernorm_whole_forward,
    .layernorm_whole_backward = layernorm_whole_backward,
    .rmsnorm_sums = rmsnorm_sums,
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_backward_sums = rmsnorm_backward_sums,
    .rmsnorm_backward = rmsnorm_backward,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .rotary = rotary,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .grouped_attention_forward = grouped_attention_forward,
    .grouped_attention_backward = grouped_attention_backward,
    .latent_attention_forward = latent_attention_forward,
    .latent_attention_backward = latent_attention_backward,
    .moe_route = moe_route,
    .moe_dispatch = moe_dispatch,
    .moe_dispatch_backward = moe_dispatch_backward,
    .moe_combine = moe_combine,
    .moe_combine_backward = moe_combine_backward,
    .cross_entropy_maxima = cross_entropy_maxima,
    .cross_entropy_sums = cross_entropy_sums,
    .cross_entropy_whole_sums = cross_entropy_whole_sums,
    .cross_entropy_loss = cross_entropy_loss,
    .cross_entropy_backward = cross_entropy_backward,
    .sum_squares = sum_squares,
    .step_begin = step_begin,
    .step_add = step_add,
    .step_take = step_take,
    .step_decide = step_decide,
    .step_watch = step_watch,
    .update = update,
    .permute = permute,
    .copy_rows = copy_rows,
    .fill_normal = fill_normal,
    IMAGE_OPERATORS(IMAGE_ENTRY) /* a comma is behind each */
};
#undef IMAGE_ENTRY

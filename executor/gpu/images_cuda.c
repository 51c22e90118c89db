/* Operators of images and of their tokens on this thread's GPU: kernels of ours, and products by
 * cuBLAS over as many places, or patches, at a time as the scratch of compute has room for.
 *
 * Products leave single precision there, which is rounded once, where it is stored. */
#include "executor/gpu/type_cuda_priv.h"

/* ---- scratch --------------------------------------------------------------------------------- */

/* Two parts of the scratch: single precision, of a product, and behind it its factors. */
struct room {
    float *sums;
    unsigned char *factors;
    int64_t count; /* places, or patches, at a time */
};

/* Room for `fixed` numbers, and for as many columns as there are, each of so many numbers and of so
 * many elements of factors. False, and the rank fails: not even for one. */
static bool find_room(struct room *room, int64_t fixed, int64_t numbers, int64_t elements,
                      int64_t columns)
{
    enum { ALIKE = 64 };
    const struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    const int64_t single = sizeof(float),
                  free_bytes = gpu->cuda.scratch_bytes - SCRATCH_APART - fixed * single;
    const int64_t each = numbers * single + elements * REAL_BYTES;
    int64_t count = free_bytes > 0 ? sbp_least_i64(columns, free_bytes / each) : 0;
    if (count > ALIKE && count < columns)
        count -= count % ALIKE;
    const int64_t sums = (fixed + count * numbers) * single;
    *room = (struct room){.sums = gpu->cuda.scratch,
                          .factors = (unsigned char *)gpu->cuda.scratch +
                                     (sums + SCRATCH_APART - 1) / SCRATCH_APART * SCRATCH_APART,
                          .count = count};
    if (count == 0)
        sbp_gpu_rank_keep("the scratch of products", cudaErrorMemoryAllocation);
    return count > 0;
}

/* Rows of a weight's gradient at a time, of so many columns: what half of the scratch has room for,
 * and at least one. */
static int64_t gradient_rows(int64_t rows, int64_t columns)
{
    const int64_t half = sbp_gpu_rank_here()->cuda.scratch_bytes / 2;
    const int64_t most = half / (int64_t)sizeof(float) / columns;
    return sbp_least_i64(rows, most > 0 ? most : 1);
}

static void clear(float *sums, int64_t n)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    gpu->kernels[SBP_F32].zero(&gpu->cuda, sums, n);
}

static const void *element(const void *first, int64_t i)
{
    return (const unsigned char *)first + i * REAL_BYTES;
}

static void *element_to(void *first, int64_t i)
{
    return (unsigned char *)first + i * REAL_BYTES;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static int64_t area(const struct sbp_windows *windows)
{
    return windows->kernel[0] * windows->kernel[1];
}

static int64_t outputs(const struct sbp_windows *windows)
{
    return windows->batch * windows->out_height * windows->out_width;
}

void TYPED(conv2d_forward)(void *y, const void *x, const void *w, const void *bias,
                           const struct sbp_windows *windows, int64_t out)
{
    const int64_t terms = windows->channels * area(windows), places = outputs(windows);
    struct room room;
    if (places == 0 || out == 0 || !find_room(&room, 0, out, terms, places))
        return;
    for (int64_t first = 0; first < places; first += room.count) {
        const int64_t count = sbp_least_i64(room.count, places - first);
        LAUNCH(conv2d_windows, room.factors, x, windows, 0, terms, first, count);
        multiply(room.sums, CUDA_R_32F, (struct factor){w, out, true},
                 (struct factor){room.factors, count, false}, out, count, terms, false);
        LAUNCH(images_put, y, room.sums, bias, out, windows->out_width, first, count);
    }
}

void TYPED(conv2d_backward_input)(void *dx, const void *dy, const void *w,
                                  const struct sbp_windows *windows, int64_t out)
{
    const int64_t lines = area(windows) * out, channels = windows->channels;
    const int64_t places = windows->batch * windows->height * windows->width;
    struct room room;
    if (places == 0 || channels == 0 || !find_room(&room, 0, channels, lines, places))
        return;
    for (int64_t first = 0; first < places; first += room.count) {
        const int64_t count = sbp_least_i64(room.count, places - first);
        LAUNCH(conv2d_sources, room.factors, dy, windows, out, first, count);
        multiply(room.sums, CUDA_R_32F, (struct factor){w, lines, false},
                 (struct factor){room.factors, count, false}, channels, count, lines, false);
        LAUNCH(images_put, dx, room.sums, NULL, channels, windows->width, first, count);
    }
}

/* Rows first_term and on of a weight's gradient, in room.sums. */
static void sum_terms(const struct room *room, const void *x, const void *dy,
                      const struct sbp_windows *windows, int64_t out, int64_t first_term,
                      int64_t terms)
{
    const int64_t places = outputs(windows);
    unsigned char *const gradients = element_to(room->factors, terms * room->count);
    clear(room->sums, terms * out);
    for (int64_t first = 0; first < places; first += room->count) {
        const int64_t count = sbp_least_i64(room->count, places - first);
        LAUNCH(conv2d_windows, room->factors, x, windows, first_term, terms, first, count);
        LAUNCH(images_take, gradients, dy, out, windows->out_width, first, count);
        multiply(room->sums, CUDA_R_32F, (struct factor){room->factors, count, false},
                 (struct factor){gradients, count, true}, terms, out, count, true);
    }
}

void TYPED(conv2d_backward_weight)(void *dw, void *dbias, const void *x, const void *dy,
                                   const struct sbp_windows *windows, int64_t out, unsigned adds)
{
    const int64_t terms = windows->channels * area(windows);
    if (terms > 0 && out > 0) {
        const int64_t rows = gradient_rows(terms, out);
        struct room room;
        if (!find_room(&room, rows * out, 0, rows + out, outputs(windows) + 1))
            return;
        for (int64_t first = 0; first < terms; first += rows) {
            const int64_t count = sbp_least_i64(rows, terms - first);
            sum_terms(&room, x, dy, windows, out, first, count);
            LAUNCH(put_sums, element_to(dw, first * out), room.sums, count * out,
                   (adds & SBP_ADDS_FIRST) != 0);
        }
    }
    if (dbias != NULL)
        LAUNCH(images_sums, dbias, dy, windows->batch * windows->out_height, out,
               windows->out_width, (adds & SBP_ADDS_REST) != 0);
}

/* ---- patches --------------------------------------------------------------------------------- */

/* Patches of all images that are here. */
static int64_t patches_here(const struct sbp_patches *p)
{
    const int64_t first = p->class_token && sbp_digits_local(p->rows, 0) == 0 ? 1 : 0;
    return p->batch * (sbp_digits_local_size(p->rows) - first);
}

void TYPED(patches_forward)(void *y, const void *x, const void *w, const void *bias,
                            const void *class_token, const void *positions,
                            const struct sbp_patches *patches)
{
    const int64_t all = patches_here(patches), features = patches->features;
    struct room room;
    if (features == 0)
        return;
    LAUNCH(patches_put_class, y, class_token, positions, patches);
    if (all == 0 || !find_room(&room, 0, features, 0, all))
        return;
    for (int64_t first = 0; first < all; first += room.count) {
        const int64_t count = sbp_least_i64(room.count, all - first);
        multiply(room.sums, CUDA_R_32F,
                 (struct factor){element(x, first * patches->pixels), patches->pixels, false},
                 (struct factor){w, features, false}, count, features, patches->pixels, false);
        LAUNCH(patches_put, y, room.sums, bias, positions, patches, first, count);
    }
}

/* Rows first_pixel and on of the weight's gradient, in room.sums. */
static void sum_pixels(const struct room *room, const void *x, const void *dy,
                       const struct sbp_patches *p, int64_t first_pixel, int64_t pixels)
{
    const int64_t all = patches_here(p);
    clear(room->sums, pixels * p->features);
    for (int64_t first = 0; first < all; first += room->count) {
        const int64_t count = sbp_least_i64(room->count, all - first);
        LAUNCH(patches_take, room->factors, dy, p, first, count);
        multiply(room->sums, CUDA_R_32F,
                 (struct factor){element(x, first * p->pixels + first_pixel), p->pixels, true},
                 (struct factor){room->factors, p->features, false}, pixels, p->features, count,
                 true);
    }
}

void TYPED(patches_backward)(void *dw, void *dbias, void *dclass, void *dpositions, const void *x,
                             const void *dy, const struct sbp_patches *patches, unsigned adds)
{
    const int64_t features = patches->features;
    if (dw != NULL && features > 0) {
        const int64_t rows = gradient_rows(patches->pixels, features);
        struct room room;
        if (!find_room(&room, rows * features, 0, features, patches_here(patches) + 1))
            return;
        for (int64_t first = 0; first < patches->pixels; first += rows) {
            const int64_t count = sbp_least_i64(rows, patches->pixels - first);
            sum_pixels(&room, x, dy, patches, first, count);
            LAUNCH(put_sums, element_to(dw, first * features), room.sums, count * features,
                   (adds & SBP_ADDS_FIRST) != 0);
        }
    }
    LAUNCH(patches_sums, dbias, dclass, dpositions, dy, patches, (adds & SBP_ADDS_REST) != 0);
}

/* ---- the others ------------------------------------------------------------------------------ */

void TYPED(maxpool_forward)(void *y, void *index, const void *x, const struct sbp_windows *windows)
{
    LAUNCH(maxpool_forward, y, index, x, windows);
}

void TYPED(maxpool_backward)(void *dx, const void *index, const void *dy,
                             const struct sbp_windows *windows)
{
    LAUNCH(maxpool_backward, dx, index, dy, windows);
}

void TYPED(avgpool_forward)(void *y, const void *x, const struct sbp_windows *windows)
{
    LAUNCH(avgpool_forward, y, x, windows);
}

void TYPED(avgpool_backward)(void *dx, const void *dy, const struct sbp_windows *windows)
{
    LAUNCH(avgpool_backward, dx, dy, windows);
}

void TYPED(batchnorm_statistics)(void *statistics, const void *x, const struct sbp_norm_rows *rows,
                                 double epsilon)
{
    LAUNCH(batchnorm_statistics, statistics, x, rows, epsilon);
}

void TYPED(batchnorm_forward)(void *y, const void *x, const void *statistics, const void *gain,
                              const void *shift, const struct sbp_norm_rows *rows)
{
    LAUNCH(batchnorm_forward, y, x, statistics, gain, shift, rows);
}

void TYPED(batchnorm_backward)(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                               const void *statistics, const void *gain,
                               const struct sbp_norm_rows *rows, bool adds)
{
    LAUNCH(batchnorm_backward, dx, dgain, dshift, dy, x, statistics, gain, rows, adds);
}

void TYPED(token_types_forward)(void *y, const int32_t *position_of, const void *types,
                                int64_t tokens, int64_t in, int64_t rows, int64_t sequence)
{
    LAUNCH(token_types_forward, y, position_of, types, tokens, in, rows, sequence);
}

void TYPED(token_types_backward)(void *dtypes, const int32_t *position_of, const void *dy,
                                 int64_t tokens, int64_t in, int64_t rows, int64_t sequence,
                                 bool adds)
{
    LAUNCH(token_types_backward, dtypes, position_of, dy, tokens, in, rows, sequence, adds);
}

void TYPED(first_token_forward)(void *y, const void *x, int64_t batch, int64_t sequence, int64_t in)
{
    LAUNCH(first_token_forward, y, x, batch, sequence, in);
}

void TYPED(first_token_backward)(void *dx, const void *dy, int64_t batch, int64_t sequence,
                                 int64_t in)
{
    LAUNCH(first_token_backward, dx, dy, batch, sequence, in);
}

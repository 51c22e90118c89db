/* Patches of images as tokens: a product, with a class token before them and rows added by place.
 */
#include "kernels/cpu/tiles_priv.h"

/* The tokens of a block: how many of an image are here, and whether the first is its class token.
 */
struct tokens {
    int64_t rows, first; /* `first` of the rows are no patches: 0 or 1 */
    int64_t patches;     /* of an image, here */
};

static struct tokens tokens_of(const struct sbp_patches *p)
{
    const int64_t rows = sbp_digits_local_size(p->rows);
    const int64_t first = p->class_token && sbp_digits_local(p->rows, 0) == 0 ? 1 : 0;
    return (struct tokens){rows, first, rows - first};
}

/* Where patch i of all lies among the tokens. */
static int64_t token_of(const struct tokens *tokens, int64_t patch)
{
    return patch / tokens->patches * tokens->rows + tokens->first + patch % tokens->patches;
}

/* Operands of the products. */
struct work {
    const struct sbp_patches *p;
    struct tokens tokens;
    const stored *x, *w, *bias, *positions, *dy;
    stored *y, *dw;
    bool adds;
};

/* ---- forward -------------------------------------------------------------------------------- */

static struct cpu_matrix load_patches(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    return CPU(load_rows)(work->x, work->p->pixels, block, tile);
}

static struct cpu_matrix load_weight(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    return CPU(load_rows)(work->w, work->p->features, block, tile);
}

static void store_tokens(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    const int64_t features = work->p->features;
    for (int64_t i = 0; i < block->rows; i++) {
        const int64_t token = token_of(&work->tokens, block->row + i);
        const int64_t row = sbp_digits_global(work->p->rows, token % work->tokens.rows);
        for (int64_t j = 0; j < block->columns; j++) {
            const int64_t feature = block->column + j;
            real value = tile[i * block->columns + j];
            value += work->bias != NULL ? load(work->bias[feature]) : 0;
            value += work->positions != NULL ? load(work->positions[row * features + feature]) : 0;
            work->y[token * features + feature] = store(value);
        }
    }
}

static void put_class(const struct work *work, const stored *class_token)
{
    for (int64_t b = 0; b < work->p->batch; b++)
        for (int64_t i = 0; i < work->p->features; i++) {
            const real place = work->positions != NULL ? load(work->positions[i]) : 0;
            work->y[b * work->tokens.rows * work->p->features + i] =
                store(load(class_token[i]) + place);
        }
}

void CPU(patches_forward)(void *y, const void *x, const void *w, const void *bias,
                          const void *class_token, const void *positions,
                          const struct sbp_patches *patches)
{
    const struct work work = {.p = patches,
                              .tokens = tokens_of(patches),
                              .x = x,
                              .w = w,
                              .bias = bias,
                              .positions = positions,
                              .y = y};
    const struct cpu_tiles tiles = {.m = patches->batch * work.tokens.patches,
                                    .n = patches->features,
                                    .k = patches->pixels,
                                    .of = &work,
                                    .a = load_patches,
                                    .b = load_weight,
                                    .store = store_tokens};
    CPU(tiled_product)(&tiles);
    if (work.tokens.first > 0)
        put_class(&work, class_token);
}

/* ---- backward ------------------------------------------------------------------------------- */

static struct cpu_matrix load_pixels(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    return CPU(load_columns)(work->x, work->p->pixels, block, tile);
}

static struct cpu_matrix load_gradients(const void *of, const struct cpu_block *block, real *tile)
{
    const struct work *work = of;
    for (int64_t i = 0; i < block->rows; i++)
        CPU(to_wide)
        (tile + i * block->columns,
         work->dy + token_of(&work->tokens, block->row + i) * work->p->features + block->column,
         block->columns);
    return cpu_plain(tile, block->columns);
}

static void store_weight(const void *of, const struct cpu_block *block, const real *tile)
{
    const struct work *work = of;
    for (int64_t i = 0; i < block->rows; i++)
        for (int64_t j = 0; j < block->columns; j++) {
            stored *to = &work->dw[(block->row + i) * work->p->features + block->column + j];
            *to = store((work->adds ? load(*to) : 0) + tile[i * block->columns + j]);
        }
}

/* Sums of a feature of dy over all images, from row `first` on, in so many rows. */
static double sum_of(const struct work *work, int64_t first, int64_t rows, int64_t feature)
{
    double sum = 0;
    for (int64_t b = 0; b < work->p->batch; b++)
        for (int64_t row = first; row < first + rows; row++)
            sum +=
                (double)load(work->dy[(b * work->tokens.rows + row) * work->p->features + feature]);
    return sum;
}

/* A vector's gradient: sums over so many rows of every image. */
static void sum_rows(const struct work *work, void *to, int64_t first, int64_t rows, bool adds)
{
    for (int64_t i = 0; to != NULL && i < work->p->features; i++) {
        stored *const at = (stored *)to + i;
        *at = store((adds ? load(*at) : 0) + (real)sum_of(work, first, rows, i));
    }
}

static void sum_positions(const struct work *work, void *dpositions, bool adds)
{
    const int64_t features = work->p->features;
    if (dpositions == NULL)
        return;
    if (!adds)
        CPU(zero)(dpositions, sbp_digits_global_size(work->p->rows) * features);
    for (int64_t row = 0; row < work->tokens.rows; row++)
        sum_rows(work, (stored *)dpositions + sbp_digits_global(work->p->rows, row) * features, row,
                 1, adds);
}

void CPU(patches_backward)(void *dw, void *dbias, void *dclass, void *dpositions, const void *x,
                           const void *dy, const struct sbp_patches *patches, unsigned adds)
{
    const struct work work = {.p = patches,
                              .tokens = tokens_of(patches),
                              .x = x,
                              .dy = dy,
                              .dw = dw,
                              .adds = (adds & SBP_ADDS_FIRST) != 0};
    const struct cpu_tiles tiles = {.m = patches->pixels,
                                    .n = patches->features,
                                    .k = patches->batch * work.tokens.patches,
                                    .of = &work,
                                    .a = load_pixels,
                                    .b = load_gradients,
                                    .store = store_weight};
    const bool adds_rest = (adds & SBP_ADDS_REST) != 0;
    if (dw != NULL)
        CPU(tiled_product)(&tiles);
    sum_rows(&work, dbias, work.tokens.first, work.tokens.patches, adds_rest);
    sum_rows(&work, dclass, 0, work.tokens.first, adds_rest);
    sum_positions(&work, dpositions, adds_rest);
}

#include "executor/verify/magnitude_image_priv.h"

#include <math.h>
#include <stdlib.h>

/* Elements of an unfolded operand at a time. */
static const int64_t AT_A_TIME = INT64_C(1) << 18;

static const struct sbp_op_node *node_of(const struct sbp_lockstep *both,
                                         const struct sbp_instr *instr)
{
    return &both->exact->program->graph->op[instr->op];
}

static const int64_t *size_of(const struct sbp_program *program, int buffer)
{
    return program->graph->tensor[program->buffer[buffer].tensor].shape.size;
}

/* ---- matrices that are copied ---------------------------------------------------------------- */

/* Room for (tokens, features) in both precisions. */
struct copies {
    struct sbp_values values;
    double *exact;
    float *shadow;
};

static enum sbp_status open_copies(struct copies *copies, int64_t tokens, int64_t features)
{
    const size_t elements = (size_t)(tokens * features) + 1;
    copies->exact = malloc(elements * sizeof *copies->exact);
    copies->shadow = malloc(elements * sizeof *copies->shadow);
    copies->values = (struct sbp_values){tokens, features, copies->exact, copies->shadow};
    return copies->exact != NULL && copies->shadow != NULL ? SBP_OK : SBP_E_MEMORY;
}

static void close_copies(struct copies *copies)
{
    free(copies->exact);
    free(copies->shadow);
}

/* Both precisions of a buffer. */
struct source {
    const double *exact;
    const float *shadow;
};

static struct source source_of(const struct sbp_lockstep *both, int buffer)
{
    return (struct source){sbp_rank_buffer(both->exact, buffer),
                           sbp_rank_buffer(both->shadow, buffer)};
}

/* Element `to` becomes that at `from`; -1: 0. */
static void copy_element(struct copies *copies, int64_t to, const struct source *of, int64_t from)
{
    copies->exact[to] = from < 0 ? 0 : of->exact[from];
    copies->shadow[to] = from < 0 ? 0 : of->shadow[from];
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Operands of a convolution's weight gradient: (places, terms) and (places, channels). */
struct windows {
    const struct sbp_op_node *node;
    const int64_t *in, *out; /* sizes of input and output */
    int64_t places, terms;   /* of all images */
    struct source x, dy;
};

static struct windows windows_of(const struct sbp_program *program, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &program->graph->op[instr->op];
    const int64_t *in = size_of(program, instr->buffer[SBP_AT_IN]);
    const int64_t *out = size_of(program, instr->buffer[SBP_AT_DY]);
    return (struct windows){
        .node = node,
        .in = in,
        .out = out,
        .places = out[SBP_DIM_BATCH] * out[SBP_DIM_SEQUENCE] * out[SBP_DIM_INNER],
        .terms = in[SBP_DIM_FEATURE] * node->window.kernel[0] * node->window.kernel[1]};
}

static int64_t places_at_a_time(const struct windows *w)
{
    const int64_t wide = w->terms > w->out[SBP_DIM_FEATURE] ? w->terms : w->out[SBP_DIM_FEATURE];
    const int64_t places = AT_A_TIME / wide + 1;
    return places < w->places ? places : w->places;
}

/* Where a term of a window lies in the input; -1: beside the image. */
static int64_t term_at(const struct windows *w, int64_t place, int64_t term)
{
    const int64_t *kernel = w->node->window.kernel, taps = kernel[0] * kernel[1];
    const int64_t tap = term % taps, width = w->in[SBP_DIM_INNER];
    const int64_t out_width = w->out[SBP_DIM_INNER], out_height = w->out[SBP_DIM_SEQUENCE];
    const int64_t row = place / out_width % out_height * w->node->window.stride[0] +
                        tap / kernel[1] - w->node->window.padding[0];
    const int64_t column = place % out_width * w->node->window.stride[1] + tap % kernel[1] -
                           w->node->window.padding[1];
    const int64_t image = place / (out_height * out_width), height = w->in[SBP_DIM_SEQUENCE];
    if (row < 0 || row >= height || column < 0 || column >= width)
        return -1;
    return ((image * height + row) * w->in[SBP_DIM_FEATURE] + term / taps) * width + column;
}

static void unfold(const struct windows *w, int64_t first, struct copies *x, struct copies *dy)
{
    const int64_t channels = w->out[SBP_DIM_FEATURE], width = w->out[SBP_DIM_INNER];
    for (int64_t i = 0; i < x->values.tokens; i++) {
        const int64_t place = first + i;
        for (int64_t term = 0; term < w->terms; term++)
            copy_element(x, i * w->terms + term, &w->x, term_at(w, place, term));
        for (int64_t c = 0; c < channels; c++)
            copy_element(dy, i * channels + c, &w->dy,
                         (place / width * channels + c) * width + place % width);
    }
}

/* Places that come later are added, as those of other micro-batches are. */
static enum sbp_status note_places(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                                   const struct windows *w, struct copies *x, struct copies *dy)
{
    struct sbp_lockstep part = *both;
    for (int64_t first = 0; first < w->places; first += x->values.tokens) {
        const int64_t left = w->places - first;
        if (left < x->values.tokens)
            x->values.tokens = dy->values.tokens = left;
        unfold(w, first, x, dy);
        part.share = both->share * (double)x->values.tokens / (double)w->places;
        SBP_TRY(sbp_magnitude_note_product(&part, instr, &x->values, &dy->values));
        part.adds = true;
    }
    return SBP_OK;
}

enum sbp_status sbp_magnitude_note_windows(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr)
{
    struct windows w = windows_of(both->exact->program, instr);
    struct copies x = {0}, dy = {0};
    w.x = source_of(both, instr->buffer[SBP_AT_IN]);
    w.dy = source_of(both, instr->buffer[SBP_AT_DY]);
    enum sbp_status status = open_copies(&x, places_at_a_time(&w), w.terms);
    if (status == SBP_OK)
        status = open_copies(&dy, places_at_a_time(&w), w.out[SBP_DIM_FEATURE]);
    if (status == SBP_OK)
        status = note_places(both, instr, &w, &x, &dy);
    close_copies(&x);
    close_copies(&dy);
    return status;
}

/* ---- patches --------------------------------------------------------------------------------- */

/* Rows of dy that are patches, or class tokens, of all images. */
static void take_rows(const struct source *dy, const int64_t *size, bool class_tokens, int64_t from,
                      struct copies *rows)
{
    const int64_t features = rows->values.features, sequence = size[SBP_DIM_SEQUENCE];
    int64_t to = 0;
    for (int64_t token = 0; token < size[SBP_DIM_BATCH] * sequence; token++)
        if (class_tokens == (token % sequence < from))
            for (int64_t i = 0; i < features; i++)
                copy_element(rows, to++, dy, token * features + i);
}

static enum sbp_status note_patch_product(const struct sbp_lockstep *both,
                                          const struct sbp_instr *instr, const struct source *dy,
                                          const int64_t *size)
{
    const struct sbp_op_node *node = node_of(both, instr);
    const struct source images = source_of(both, instr->buffer[SBP_AT_SAVED]);
    const int64_t tokens = size[SBP_DIM_BATCH] * node->patches;
    const int64_t pixels =
        both->exact->program->graph->tensor[node->weight[0]].shape.size[SBP_DIM_IN];
    const struct sbp_values x = {tokens, pixels, images.exact, images.shadow};
    struct copies rows = {0};
    enum sbp_status status = open_copies(&rows, tokens, size[SBP_DIM_FEATURE]);
    if (status == SBP_OK) {
        take_rows(dy, size, false, size[SBP_DIM_SEQUENCE] - node->patches, &rows);
        status = sbp_magnitude_note_product(both, instr, &x, &rows.values);
    }
    close_copies(&rows);
    return status;
}

static enum sbp_status note_class(const struct sbp_lockstep *both, const struct sbp_op_node *node,
                                  const struct source *dy, const int64_t *size)
{
    struct copies rows = {0};
    enum sbp_status status = open_copies(&rows, size[SBP_DIM_BATCH], size[SBP_DIM_FEATURE]);
    if (status == SBP_OK) {
        take_rows(dy, size, true, 1, &rows);
        status = sbp_magnitude_note_sums(both, &rows.values, node->weight[node->class_token]);
    }
    close_copies(&rows);
    return status;
}

/* Rows of a table by place: position times `rows` / sequence, of each token. */
static enum sbp_status note_by_place(const struct sbp_lockstep *both, const struct source *dy,
                                     const int64_t *size, int64_t rows, int tensor)
{
    const int64_t sequence = size[SBP_DIM_SEQUENCE], tokens = size[SBP_DIM_BATCH] * sequence;
    const struct sbp_values values = {tokens, size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER],
                                      dy->exact, dy->shadow};
    int32_t *row_of = malloc((size_t)tokens * sizeof *row_of);
    if (row_of == NULL)
        return SBP_E_MEMORY;
    for (int64_t t = 0; t < tokens; t++)
        row_of[t] = (int32_t)(t % sequence * rows / sequence);
    const enum sbp_status status = sbp_magnitude_note_table(both, &values, row_of, tensor);
    free(row_of);
    return status;
}

enum sbp_status sbp_magnitude_note_patches(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = node_of(both, instr);
    const int64_t *size = size_of(both->exact->program, instr->buffer[SBP_AT_DY]);
    const struct source dy = source_of(both, instr->buffer[SBP_AT_DY]);
    SBP_TRY(note_patch_product(both, instr, &dy, size));
    if (node->class_token > 0)
        SBP_TRY(note_class(both, node, &dy, size));
    if (node->positions == 0)
        return SBP_OK;
    return note_by_place(both, &dy, size, size[SBP_DIM_SEQUENCE], node->weight[node->positions]);
}

enum sbp_status sbp_magnitude_note_types(const struct sbp_lockstep *both,
                                         const struct sbp_instr *instr)
{
    const int tensor = node_of(both, instr)->weight[node_of(both, instr)->types];
    const struct sbp_graph *graph = both->exact->program->graph;
    const int64_t *size = size_of(both->exact->program, instr->buffer[SBP_AT_DY]);
    const struct source dy = source_of(both, instr->buffer[SBP_AT_DY]);
    return note_by_place(both, &dy, size, graph->tensor[tensor].shape.size[SBP_DIM_IN], tensor);
}

/* Copies of both operands, and their absolute values. */
double sbp_magnitude_image_bytes(const struct sbp_program *program, const struct sbp_instr *instr)
{
    const double each = 2 * sizeof(double) + sizeof(float);
    const struct sbp_op_node *node = &program->graph->op[instr->op];
    if (node->kind == SBP_OP_CONV2D) {
        if (instr->buffer[SBP_AT_IN] < 0)
            return 0;
        const struct windows w = windows_of(program, instr);
        return (double)places_at_a_time(&w) * (double)(w.terms + w.out[SBP_DIM_FEATURE]) * each;
    }
    const double pixels = (double)program->buffer[instr->buffer[SBP_AT_SAVED]].elements;
    return (pixels + (double)program->buffer[instr->buffer[SBP_AT_DY]].elements) * each;
}

/* ---- batch normalisation --------------------------------------------------------------------- */

/* One channel of a group of rows, with the statistics that both precisions have of it. */
struct channel {
    const struct sbp_norm_rows *rows;
    int64_t index;
    struct source x, dy;
    double mean, rstd, shadow_mean, shadow_rstd, scale;
    bool wakes;
    double xhat_variance, dy_variance; /* means over its elements, of dy at least a typical one */
};

static double square_of(double deviation)
{
    return isfinite(deviation) ? deviation * deviation : 0;
}

static int64_t element_at(const struct channel *c, int64_t i, int64_t j)
{
    const int64_t row = c->rows->row != NULL ? c->rows->row[i] : i;
    return (row * c->rows->channels + c->index) * c->rows->width + j;
}

static double xhat_at(const struct channel *c, int64_t at, double *square)
{
    const double exact = (c->x.exact[at] - c->mean) * c->rstd;
    const double other = ((double)c->x.shadow[at] - c->shadow_mean) * c->shadow_rstd;
    *square = square_of((other - exact) * c->scale);
    return exact;
}

static double dy_square(const struct channel *c, int64_t at)
{
    return square_of(((double)c->dy.shadow[at] - c->dy.exact[at]) * c->scale);
}

static void measure_channel(struct channel *c)
{
    const double elements = (double)(c->rows->count * c->rows->width);
    double square;
    for (int64_t i = 0; i < c->rows->count; i++)
        for (int64_t j = 0; j < c->rows->width; j++) {
            (void)xhat_at(c, element_at(c, i, j), &square);
            c->xhat_variance += square / elements;
            c->dy_variance += dy_square(c, element_at(c, i, j)) / elements;
        }
}

/* dgain = sum dy xhat, dshift = sum dy. The terms of xhat are x rstd and mean rstd. */
static void note_channel(const struct channel *c, struct sbp_magnitude *gain,
                         struct sbp_magnitude *shift)
{
    for (int64_t i = 0; i < c->rows->count; i++)
        for (int64_t j = 0; j < c->rows->width; j++) {
            const int64_t at = element_at(c, i, j);
            double square;
            const double xhat = xhat_at(c, at, &square), dy = c->dy.exact[at];
            const double variance = fmax(c->dy_variance, dy_square(c, at));
            const bool live = dy != 0 || (c->wakes && c->dy.shadow[at] != 0);
            gain->sum[c->index] += fabs(dy) * (fabs(c->x.exact[at]) + fabs(c->mean)) * c->rstd;
            gain->column[c->index] +=
                fmax(c->xhat_variance, square) * dy * dy + variance * xhat * xhat;
            shift->sum[c->index] += fabs(dy);
            shift->column[c->index] += variance;
            gain->live[c->index] = gain->live[c->index] || live;
            shift->live[c->index] = shift->live[c->index] || live;
            if (gain->gradient != NULL) {
                gain->gradient[c->index] += dy * xhat;
                shift->gradient[c->index] += dy;
            }
        }
}

/* Room for statistics of all channels in both precisions, and for what is measured of each. */
struct norm_space {
    double *statistics, *variance;
    float *shadow;
    struct channel *channel;
};

static int by_size(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Few rows say too little of one channel's errors, and a mean over channels is that of those that
 * hardly vary: each has at least what half of them have. */
static double typical_variance(const struct norm_space *space, int64_t channels)
{
    for (int64_t i = 0; i < channels; i++)
        space->variance[i] = space->channel[i].dy_variance;
    qsort(space->variance, (size_t)channels, sizeof *space->variance, by_size);
    return space->variance[channels / 2];
}

static void note_group(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                       const struct sbp_norm_rows *rows, const struct norm_space *space)
{
    const struct sbp_op_node *node = node_of(both, instr);
    const struct source x = source_of(both, instr->buffer[SBP_AT_IN]);
    const double *const statistics = space->statistics;
    const float *const shadow = space->shadow;
    both->exact->kernels->batchnorm_statistics(space->statistics, x.exact, rows, node->epsilon);
    both->shadow->kernels->batchnorm_statistics(space->shadow, x.shadow, rows, node->epsilon);
    for (int64_t index = 0; index < rows->channels; index++) {
        struct channel *const c = &space->channel[index];
        *c = (struct channel){.rows = rows,
                              .index = index,
                              .x = x,
                              .dy = source_of(both, instr->buffer[SBP_AT_DY]),
                              .mean = statistics[2 * index],
                              .rstd = statistics[2 * index + 1],
                              .shadow_mean = (double)shadow[2 * index],
                              .shadow_rstd = (double)shadow[2 * index + 1],
                              .scale = both->scale,
                              .wakes = !both->by_feature};
        measure_channel(c);
    }
    const double typical = typical_variance(space, rows->channels);
    for (int64_t index = 0; index < rows->channels; index++) {
        struct channel *const c = &space->channel[index];
        c->dy_variance = fmax(c->dy_variance, typical);
        note_channel(c, both->magnitude[node->weight[0]], both->magnitude[node->weight[1]]);
    }
}

enum sbp_status sbp_magnitude_note_batchnorm(const struct sbp_lockstep *both,
                                             const struct sbp_instr *instr)
{
    const int64_t *size = size_of(both->exact->program, instr->buffer[SBP_AT_DY]);
    const struct sbp_norm_groups *groups = both->exact->groups;
    const struct sbp_norm_rows all = {.count = size[0] * size[1],
                                      .channels = size[SBP_DIM_FEATURE],
                                      .width = size[SBP_DIM_INNER]};
    const size_t channels = (size_t)all.channels;
    const struct norm_space space = {.statistics = malloc(2 * channels * sizeof(double)),
                                     .variance = malloc(channels * sizeof(double)),
                                     .shadow = malloc(2 * channels * sizeof(float)),
                                     .channel = malloc(channels * sizeof(struct channel))};
    const bool complete = space.statistics != NULL && space.variance != NULL &&
                          space.shadow != NULL && space.channel != NULL;
    const int count = groups == NULL ? 1 : groups->of[instr->op].count;
    for (int w = 0; w < 2 && complete; w++)
        sbp_magnitude_begin(both, node_of(both, instr)->weight[w]);
    for (int i = 0; i < count && complete; i++)
        note_group(both, instr, groups == NULL ? &all : &groups->of[instr->op].rows[i], &space);
    free(space.statistics);
    free(space.variance);
    free(space.shadow);
    free(space.channel);
    return complete ? SBP_OK : SBP_E_MEMORY;
}

/* ---- the largest of a window ----------------------------------------------------------------- */

/* Where the two largest elements of a window lie; second -1: it has one. */
struct largest {
    int64_t first, second;
};

static struct largest largest_of(const struct windows *w, int64_t place, int64_t channel)
{
    const int64_t taps = w->node->window.kernel[0] * w->node->window.kernel[1];
    struct largest two = {-1, -1};
    for (int64_t tap = 0; tap < taps; tap++) {
        const int64_t at = term_at(w, place, channel * taps + tap);
        if (at < 0)
            continue;
        if (two.first < 0 || w->x.exact[at] > w->x.exact[two.first]) {
            two.second = two.first;
            two.first = at;
        } else if (two.second < 0 || w->x.exact[at] > w->x.exact[two.second]) {
            two.second = at;
        }
    }
    return two;
}

/* Equal elements (behind a relu, zeros) stay so in every run that has them so. */
static void swap_largest(float *shadow, const double *exact, struct largest two, double open)
{
    const double apart = two.second < 0 ? INFINITY : exact[two.first] - exact[two.second];
    if (apart > open || apart == 0)
        return;
    const float most = fmaxf(shadow[two.first], shadow[two.second]);
    shadow[two.second] = nextafterf(most, INFINITY);
}

enum sbp_status sbp_magnitude_bend_windows(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr)
{
    const struct sbp_program *program = both->exact->program;
    struct windows w = {.node = node_of(both, instr),
                        .in = size_of(program, instr->buffer[SBP_AT_IN]),
                        .out = size_of(program, instr->buffer[SBP_AT_OUT]),
                        .x = source_of(both, instr->buffer[SBP_AT_IN])};
    float *const shadow = sbp_rank_buffer(both->shadow, instr->buffer[SBP_AT_IN]);
    const int64_t rows = w.in[SBP_DIM_BATCH] * w.in[SBP_DIM_SEQUENCE];
    const int64_t width = w.in[SBP_DIM_INNER], channels = w.in[SBP_DIM_FEATURE];
    double *variance = malloc((size_t)rows * sizeof *variance);
    if (variance == NULL)
        return SBP_E_MEMORY;
    sbp_magnitude_token_variance(both, instr, SBP_AT_IN, variance);
    w.places = w.out[SBP_DIM_BATCH] * w.out[SBP_DIM_SEQUENCE] * w.out[SBP_DIM_INNER];
    for (int64_t place = 0; place < w.places; place++)
        for (int64_t channel = 0; channel < channels; channel++) {
            const struct largest two = largest_of(&w, place, channel);
            const double of_row = variance[two.first / (channels * width)];
            swap_largest(shadow, w.x.exact, two, both->either * sqrt(of_row));
        }
    free(variance);
    return SBP_OK;
}

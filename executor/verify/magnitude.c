#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "executor/verify/magnitude_image_priv.h"
#include "executor/verify/magnitude_mixture_priv.h"
#include "executor/verify/magnitude_sinks_priv.h"
#include "executor/verify/together_priv.h"

static const double OUTLIER = 4; /* squared deviations over this many variances stand alone */

/* ---- operands in both precisions ----------------------------------------------------------- */

/* An operand (tokens, features) with what is known of its errors. */
struct operand {
    int64_t tokens, features;
    const double *exact;
    const float *shadow;
    double scale;
    double together;    /* what its errors in a product are larger for not being independent */
    bool wakes;         /* what the exact rank has as 0 may be some round-off in the run */
    double *variance;   /* (tokens) mean over the features */
    double *largest;    /* (tokens) square of the largest element */
    double *by_feature; /* (features) mean over the tokens */
    double *square;     /* (features) sum of the squares over the tokens */
    double *absolute;   /* (tokens, features) */
    double *own_exact;  /* (tokens, features) of a sample; NULL: `exact` is the rank's */
    float *own_shadow;
};

static double squared_deviation(const struct operand *operand, int64_t at)
{
    const double deviation = ((double)operand->shadow[at] - operand->exact[at]) * operand->scale;
    /* A value that overflows in single precision says nothing about errors. */
    return isfinite(deviation) ? deviation * deviation : 0;
}

/* Mean over the features that deviate at all: masked ones would dilute it. */
static double token_variance(const struct operand *operand, int64_t token)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < operand->features; i++) {
        const double square = squared_deviation(operand, token * operand->features + i);
        sum += square;
        count += square > 0;
    }
    return count > 0 ? sum / (double)count : 0;
}

static struct operand make_operand(const struct sbp_lockstep *both, const double *exact,
                                   const float *shadow, int64_t tokens, int64_t features)
{
    return (struct operand){.tokens = tokens,
                            .features = features,
                            .exact = exact,
                            .shadow = shadow,
                            .scale = both->scale,
                            .together = 1,
                            .wakes = !both->by_feature};
}

static struct operand look_at(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                              int place)
{
    const int buffer = instr->buffer[place];
    return make_operand(
        both, sbp_rank_buffer(both->exact, buffer), sbp_rank_buffer(both->shadow, buffer),
        sbp_rank_tokens(both->exact, instr, place), sbp_rank_features(both->exact, instr, place));
}

void sbp_magnitude_token_variance(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                                  int place, double *variance)
{
    const struct operand operand = look_at(both, instr, place);
    for (int64_t t = 0; t < operand.tokens; t++)
        variance[t] = token_variance(&operand, t);
}

double sbp_magnitude_row_variance(const struct sbp_lockstep *both, const double *exact,
                                  const float *shadow, int64_t count)
{
    const struct operand row = make_operand(both, exact, shadow, 1, count);
    return token_variance(&row, 0);
}

static void close_operand(struct operand *operand)
{
    free(operand->variance);
    free(operand->largest);
    free(operand->by_feature);
    free(operand->square);
    free(operand->absolute);
    free(operand->own_exact);
    free(operand->own_shadow);
}

/* Measures each token over all features, also where few are kept. */
static enum sbp_status measure_tokens(struct operand *operand)
{
    operand->variance = malloc((size_t)operand->tokens * sizeof(double));
    operand->largest = malloc((size_t)operand->tokens * sizeof(double));
    if (operand->variance == NULL || operand->largest == NULL)
        return SBP_E_MEMORY;
    for (int64_t t = 0; t < operand->tokens; t++) {
        double largest = 0;
        for (int64_t i = 0; i < operand->features; i++) {
            const double exact = operand->exact[t * operand->features + i];
            largest = fmax(largest, exact * exact);
        }
        operand->largest[t] = largest;
        operand->variance[t] = token_variance(operand, t);
    }
    return SBP_OK;
}

/* Turns to the features that are kept. */
static enum sbp_status pick(struct operand *operand, const struct sbp_kept *kept)
{
    const size_t elements = (size_t)(operand->tokens * kept->count);
    operand->own_exact = malloc(elements * sizeof *operand->own_exact);
    operand->own_shadow = malloc(elements * sizeof *operand->own_shadow);
    if (operand->own_exact == NULL || operand->own_shadow == NULL)
        return SBP_E_MEMORY;
    for (int64_t t = 0; t < operand->tokens; t++)
        for (int64_t k = 0; k < kept->count; k++) {
            const int64_t from = t * operand->features + kept->output[k];
            operand->own_exact[t * kept->count + k] = operand->exact[from];
            operand->own_shadow[t * kept->count + k] = operand->shadow[from];
        }
    operand->exact = operand->own_exact;
    operand->shadow = operand->own_shadow;
    operand->features = kept->count;
    return SBP_OK;
}

/* The mean over few tokens may be small by chance: a token's share of the mean over all features is
 * added to it, which is little where there are many tokens. There is one at least. */
static void add_token(struct operand *operand)
{
    double mean = 0;
    for (int64_t t = 0; t < operand->tokens; t++)
        mean += operand->variance[t] / (double)operand->tokens;
    for (int64_t i = 0; i < operand->features; i++)
        operand->by_feature[i] += mean / (double)operand->tokens;
}

static enum sbp_status measure_features(struct operand *operand)
{
    operand->by_feature = calloc((size_t)operand->features, sizeof(double));
    operand->square = calloc((size_t)operand->features, sizeof(double));
    operand->absolute = malloc((size_t)(operand->tokens * operand->features) * sizeof(double));
    if (operand->by_feature == NULL || operand->square == NULL || operand->absolute == NULL)
        return SBP_E_MEMORY;
    for (int64_t t = 0; t < operand->tokens; t++)
        for (int64_t i = 0; i < operand->features; i++) {
            const int64_t at = t * operand->features + i;
            operand->absolute[at] = fabs(operand->exact[at]);
            operand->by_feature[i] += squared_deviation(operand, at) / (double)operand->tokens;
            operand->square[i] += operand->exact[at] * operand->exact[at];
        }
    add_token(operand);
    return SBP_OK;
}

/* `of`: whose outputs the features are, some of which may be kept; NULL: all. */
static enum sbp_status measure(struct operand *operand, const struct sbp_magnitude *of)
{
    SBP_TRY(measure_tokens(operand));
    if (of != NULL && of->kept.output != NULL)
        SBP_TRY(pick(operand, &of->kept));
    return measure_features(operand);
}

static enum sbp_status open_operand(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                                    int place, const struct sbp_magnitude *of,
                                    struct operand *operand)
{
    *operand = look_at(both, instr, place);
    return measure(operand, of);
}

static double expected_variance(const struct operand *operand, int64_t token, int64_t feature)
{
    return operand->variance[token] + operand->by_feature[feature];
}

/* The variance that is expected of an element, or its own squared deviation if that stands out. */
static double element_variance(const struct operand *operand, int64_t token, int64_t feature)
{
    const double own = squared_deviation(operand, token * operand->features + feature);
    const double expected = expected_variance(operand, token, feature);
    return own > OUTLIER * expected ? own : expected;
}

/* ---- operators ----------------------------------------------------------------------------- */

/* Adds one side of sum_t (s_t^2 dy_t^2 + x_t^2 r_t^2) for every feature of `of`: its squares times
 * the other operand's variance. An outlier of `of` meets the largest element of the other. */
static void add_product_variance(const struct operand *of, const struct operand *other,
                                 double *variance)
{
    for (int64_t t = 0; t < of->tokens; t++)
        for (int64_t i = 0; i < of->features; i++) {
            const int64_t at = t * of->features + i;
            const double own = squared_deviation(of, at);
            variance[i] +=
                other->together * other->variance[t] * of->absolute[at] * of->absolute[at];
            if (own > OUTLIER * expected_variance(of, t, i))
                variance[i] += of->together * own * other->largest[t];
        }
}

/* Adds one operand's squares and variances by feature: a sum, and a mean over all tokens. */
static void add_features(const struct operand *of, double share, double *square, double *variance)
{
    for (int64_t i = 0; i < of->features; i++) {
        square[i] += of->square[i];
        variance[i] += share * of->together * of->by_feature[i];
    }
}

static bool is_live(const struct operand *dy, int64_t at)
{
    return dy->exact[at] != 0 || (dy->wakes && dy->shadow[at] != 0);
}

static void note_live(const struct operand *dy, bool *live)
{
    for (int64_t t = 0; t < dy->tokens; t++)
        for (int64_t i = 0; i < dy->features; i++)
            live[i] = live[i] || is_live(dy, t * dy->features + i);
}

static struct sbp_deviating deviating(const struct operand *of)
{
    return (struct sbp_deviating){of->exact, of->shadow, of->tokens, of->features};
}

/* Measures for both operands of a product whether errors of tokens are one error. */
static enum sbp_status correlate(const struct sbp_lockstep *both, struct operand *x,
                                 struct operand *dy)
{
    const struct sbp_deviating left = deviating(x), right = deviating(dy);
    if (!both->correlates)
        return SBP_OK;
    SBP_TRY(sbp_together_product(&left, &right, &x->together));
    return sbp_together_product(&right, &left, &dy->together);
}

/* A bias, and a norm's shift: the column sums of dy, from element `first` of them on. */
static void note_column_sums(const struct operand *dy, struct sbp_magnitude *magnitude,
                             int64_t first)
{
    const struct sbp_deviating errors = deviating(dy);
    const double together = dy->scale * dy->scale * sbp_together_sums(&errors);
    note_live(dy, magnitude->live + first);
    for (int64_t i = 0; i < dy->features; i++) {
        double apart = 0;
        for (int64_t t = 0; t < dy->tokens; t++)
            apart += element_variance(dy, t, i);
        magnitude->column[first + i] += fmax(apart, together);
    }
}

/* What is added to a product in every row; NULL: nothing. */
static struct sbp_magnitude *bias_of(const struct sbp_lockstep *both,
                                     const struct sbp_op_node *node)
{
    const int bias = node->kind == SBP_OP_PATCH_EMBEDDING ? node->bias : node->weight_count > 1;
    return bias > 0 ? both->magnitude[node->weight[bias]] : NULL;
}

/* Sums of absolute values of the terms, and of the terms where a sample is kept. */
static void add_product(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                        const struct operand *x, const struct operand *dy, bool adds)
{
    const struct sbp_op_node *node = &both->exact->program->graph->op[instr->op];
    const struct sbp_kernels *k = both->exact->kernels;
    const struct sbp_magnitude *weight = both->magnitude[node->weight[0]];
    const struct sbp_magnitude *bias = bias_of(both, node);
    void (*const product)(void *, void *, const void *, const void *, int64_t, int64_t, int64_t,
                          unsigned) =
        node->transposed_weight ? k->linear_transposed_backward_weight : k->linear_backward_weight;
    product(weight->sum, bias != NULL ? bias->sum : NULL, x->absolute, dy->absolute, x->tokens,
            x->features, dy->features,
            (adds ? SBP_ADDS_FIRST : 0U) | (both->adds ? SBP_ADDS_REST : 0U));
    if (weight->gradient != NULL)
        product(weight->gradient, bias != NULL ? bias->gradient : NULL, x->exact, dy->exact,
                x->tokens, x->features, dy->features, SBP_ADDS_FIRST | SBP_ADDS_REST);
}

static void note_product(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                         const struct operand *x, const struct operand *dy)
{
    const struct sbp_op_node *node = &both->exact->program->graph->op[instr->op];
    struct sbp_magnitude *weight = both->magnitude[node->weight[0]];
    const bool adds = instr->factor == 1.0 || both->adds;
    add_product(both, instr, x, dy, adds);
    if (!adds)
        sbp_magnitude_clear(weight);
    const bool transposed = node->transposed_weight;
    add_product_variance(x, dy, transposed ? weight->column : weight->row);
    add_product_variance(dy, x, transposed ? weight->row : weight->column);
    add_features(x, both->share, transposed ? weight->column_square : weight->row_square,
                 transposed ? weight->column_variance : weight->row_variance);
    add_features(dy, both->share, transposed ? weight->row_square : weight->column_square,
                 transposed ? weight->row_variance : weight->column_variance);
    note_live(dy, weight->live);
    if (bias_of(both, node) != NULL) {
        if (!both->adds)
            sbp_magnitude_clear(bias_of(both, node));
        note_column_sums(dy, bias_of(both, node), 0);
    }
}

static enum sbp_status note_linear(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const int tensor = both->exact->program->graph->op[instr->op].weight[0];
    struct operand x = {0}, dy = {0};
    enum sbp_status status = open_operand(both, instr, SBP_AT_IN, NULL, &x);
    if (status == SBP_OK)
        status = open_operand(both, instr, SBP_AT_DY, both->magnitude[tensor], &dy);
    if (status == SBP_OK)
        status = correlate(both, &x, &dy);
    if (status == SBP_OK)
        note_product(both, instr, &x, &dy);
    close_operand(&x);
    close_operand(&dy);
    return status;
}

/* Rows of a table that are kept: the sum of dy over the tokens that looked the row up. */
static void note_rows(const struct operand *dy, const int32_t *row_of, bool adds,
                      struct sbp_magnitude *table)
{
    if (!adds) {
        sbp_magnitude_clear(table);
        sbp_magnitude_clear_sum(table);
    }
    for (int64_t t = 0; t < dy->tokens; t++) {
        const int64_t row = table->kept.output == NULL ? row_of[t] : table->kept.place[row_of[t]];
        const int64_t from = t * dy->features, to = row * dy->features;
        double variance = 0;
        for (int64_t i = 0; i < dy->features && row >= 0; i++) {
            variance = fmax(variance, element_variance(dy, t, i));
            table->sum[to + i] += dy->absolute[from + i];
            if (table->gradient != NULL)
                table->gradient[to + i] += dy->exact[from + i];
        }
        if (row >= 0) {
            table->row[row] += variance;
            table->live[row] = true;
        }
    }
}

static enum sbp_status note_embedding(const struct sbp_lockstep *both,
                                      const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &both->exact->program->graph->op[instr->op];
    const int32_t *ids = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_IN]);
    const int32_t *positions_of = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_IN2]);
    struct operand dy = {0};
    const enum sbp_status status = open_operand(both, instr, SBP_AT_DY, NULL, &dy);
    if (status == SBP_OK)
        note_rows(&dy, ids, instr->factor == 1.0 || both->adds, both->magnitude[node->weight[0]]);
    if (status == SBP_OK && node->positions > 0)
        note_rows(&dy, positions_of, both->adds, both->magnitude[node->weight[node->positions]]);
    close_operand(&dy);
    return status == SBP_OK && node->types > 0 ? sbp_magnitude_note_types(both, instr) : status;
}

/* The rows that a norm normalises: tokens, or each head's first `size` of `width` features. */
struct norm_rows {
    enum sbp_op_kind kind;
    int64_t count, width, size;
    double epsilon;
};

static struct norm_rows rows_of_norm(const struct sbp_graph *graph, const struct sbp_op_node *node,
                                     const struct operand *x)
{
    struct norm_rows rows = {.kind = node->kind,
                             .count = x->tokens,
                             .width = x->features,
                             .size = x->features,
                             .epsilon = node->epsilon};
    if (node->kind != SBP_OP_HEAD_NORM)
        return rows;
    rows.width = graph->tensor[node->input[0]].shape.size[SBP_DIM_INNER];
    rows.count = x->tokens * (x->features / rows.width);
    rows.size = graph->tensor[node->weight[0]].shape.size[SBP_DIM_OUT_INNER];
    return rows;
}

/* Mean (0 of a root mean square) and 1 / standard deviation of a row, from the kernel's sums. */
struct moments {
    double mean, scale;
};

static struct moments moments_of(const struct norm_rows *rows, double sum, double squares)
{
    const double mean = sum / (double)rows->size;
    const double variance = fmax(0, squares / (double)rows->size - mean * mean);
    return (struct moments){mean, 1 / sqrt(variance + rows->epsilon)};
}

static struct moments exact_moments(const struct norm_rows *rows, const double *sums, int64_t row)
{
    return rows->kind == SBP_OP_LAYERNORM ? moments_of(rows, sums[2 * row], sums[2 * row + 1])
                                          : moments_of(rows, 0, sums[row]);
}

static struct moments shadow_moments(const struct norm_rows *rows, const float *sums, int64_t row)
{
    return rows->kind == SBP_OP_LAYERNORM
               ? moments_of(rows, (double)sums[2 * row], (double)sums[2 * row + 1])
               : moments_of(rows, 0, (double)sums[row]);
}

/* A norm's gain: dgain = sum dy xhat. The terms of xhat are x / deviation and mean / deviation; the
 * error of xhat is measured like that of any operand. */
static void note_gain_row(const struct sbp_lockstep *both, const struct norm_rows *rows,
                          int64_t row, struct moments exact, struct moments shadow,
                          const struct operand *x, const struct operand *dy,
                          struct sbp_magnitude *gain)
{
    const int64_t first = row * rows->width;
    double squares = 0;
    for (int pass = 0; pass < 2; pass++) /* the row's mean square first, then its use */
        for (int64_t i = 0; i < rows->size; i++) {
            const int64_t at = first + i;
            const double xhat = (x->exact[at] - exact.mean) * exact.scale;
            const double other = ((double)x->shadow[at] - shadow.mean) * shadow.scale;
            const double deviation = (other - xhat) * both->scale;
            const double own = isfinite(deviation) ? deviation * deviation : 0;
            const double absolute = dy->absolute[at];
            if (pass == 0) {
                squares += own / (double)rows->size;
                continue;
            }
            gain->sum[i] += absolute * (x->absolute[at] + fabs(exact.mean)) * exact.scale;
            if (gain->gradient != NULL)
                gain->gradient[i] += dy->exact[at] * xhat;
            gain->live[i] = gain->live[i] || is_live(dy, at);
            gain->column[i] +=
                fmax(squares, own) * absolute * absolute +
                element_variance(dy, at / dy->features, at % dy->features) * xhat * xhat;
        }
}

static void note_gain(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                      const struct operand *x, const struct operand *dy, struct sbp_magnitude *gain)
{
    const struct sbp_graph *graph = both->exact->program->graph;
    const struct norm_rows rows = rows_of_norm(graph, &graph->op[instr->op], x);
    const double *sums = sbp_rank_buffer(both->exact, instr->buffer[SBP_AT_SAVED]);
    const float *shadow_sums = sbp_rank_buffer(both->shadow, instr->buffer[SBP_AT_SAVED]);
    for (int64_t row = 0; row < rows.count; row++)
        note_gain_row(both, &rows, row, exact_moments(&rows, sums, row),
                      shadow_moments(&rows, shadow_sums, row), x, dy, gain);
}

/* Notes the part of a vector that begins with element `first`. */
static void note_part(const struct operand *dy, struct sbp_magnitude *shift, int64_t first)
{
    note_column_sums(dy, shift, first);
    for (int64_t at = 0; at < dy->tokens * dy->features; at++) {
        shift->sum[first + at % dy->features] += dy->absolute[at];
        if (shift->gradient != NULL)
            shift->gradient[first + at % dy->features] += dy->exact[at];
    }
}

static void note_shift(const struct operand *dy, bool adds, struct sbp_magnitude *shift)
{
    if (!adds) {
        sbp_magnitude_clear(shift);
        sbp_magnitude_clear_sum(shift);
    }
    note_part(dy, shift, 0);
}

static enum sbp_status note_norm(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &both->exact->program->graph->op[instr->op];
    struct sbp_magnitude *gain = both->magnitude[node->weight[0]];
    struct operand x = {0}, dy = {0};
    enum sbp_status status = open_operand(both, instr, SBP_AT_IN, NULL, &x);
    if (status == SBP_OK)
        status = open_operand(both, instr, SBP_AT_DY, NULL, &dy);
    if (status == SBP_OK && !both->adds) {
        sbp_magnitude_clear(gain);
        sbp_magnitude_clear_sum(gain);
    }
    if (status == SBP_OK) {
        note_gain(both, instr, &x, &dy, gain);
        if (node->weight_count > 1)
            note_shift(&dy, both->adds, both->magnitude[node->weight[1]]);
    }
    close_operand(&x);
    close_operand(&dy);
    return status;
}

/* ---- operands that are not buffers (magnitude_values_priv.h) --------------------------------- */

static enum sbp_status open_values(const struct sbp_lockstep *both, const struct sbp_values *values,
                                   const struct sbp_magnitude *of, struct operand *operand)
{
    *operand = make_operand(both, values->exact, values->shadow, values->tokens, values->features);
    return measure(operand, of);
}

enum sbp_status sbp_magnitude_note_product(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr,
                                           const struct sbp_values *x, const struct sbp_values *dy)
{
    const int tensor = both->exact->program->graph->op[instr->op].weight[0];
    struct operand left = {0}, right = {0};
    enum sbp_status status = open_values(both, x, NULL, &left);
    if (status == SBP_OK)
        status = open_values(both, dy, both->magnitude[tensor], &right);
    if (status == SBP_OK)
        status = correlate(both, &left, &right);
    if (status == SBP_OK)
        note_product(both, instr, &left, &right);
    close_operand(&left);
    close_operand(&right);
    return status;
}

static void note_block(const struct sbp_lockstep *both, const struct sbp_block *block,
                       const struct operand *x, const struct operand *dy)
{
    struct sbp_magnitude *const weight = both->magnitude[block->weight];
    const int64_t row = block->number * x->features, column = block->number * dy->features;
    both->exact->kernels->linear_backward_weight(weight->sum + row * dy->features, NULL,
                                                 x->absolute, dy->absolute, x->tokens, x->features,
                                                 dy->features, 0);
    add_product_variance(x, dy, weight->row + row);
    add_product_variance(dy, x, weight->column + column);
    add_features(x, 1, weight->row_square + row, weight->row_variance + row);
    add_features(dy, 1, weight->column_square + column, weight->column_variance + column);
    note_live(dy, weight->live + column);
}

enum sbp_status sbp_magnitude_note_block(const struct sbp_lockstep *both,
                                         const struct sbp_block *block, const struct sbp_values *x,
                                         const struct sbp_values *dy)
{
    struct operand left = {0}, right = {0};
    enum sbp_status status = open_values(both, x, NULL, &left);
    if (status == SBP_OK)
        status = open_values(both, dy, NULL, &right);
    if (status == SBP_OK)
        status = correlate(both, &left, &right);
    if (status == SBP_OK)
        note_block(both, block, &left, &right);
    close_operand(&left);
    close_operand(&right);
    return status;
}

enum sbp_status sbp_magnitude_note_sums(const struct sbp_lockstep *both,
                                        const struct sbp_values *dy, int tensor)
{
    struct operand operand = {0};
    const enum sbp_status status = open_values(both, dy, NULL, &operand);
    if (status == SBP_OK)
        note_shift(&operand, both->adds, both->magnitude[tensor]);
    close_operand(&operand);
    return status;
}

enum sbp_status sbp_magnitude_note_part(const struct sbp_lockstep *both,
                                        const struct sbp_values *dy, int tensor, int64_t first)
{
    struct operand operand = {0};
    const enum sbp_status status = open_values(both, dy, NULL, &operand);
    if (status == SBP_OK)
        note_part(&operand, both->magnitude[tensor], first);
    close_operand(&operand);
    return status;
}

enum sbp_status sbp_magnitude_note_table(const struct sbp_lockstep *both,
                                         const struct sbp_values *dy, const int32_t *row_of,
                                         int tensor)
{
    struct operand operand = {0};
    const enum sbp_status status = open_values(both, dy, NULL, &operand);
    if (status == SBP_OK)
        note_rows(&operand, row_of, both->adds, both->magnitude[tensor]);
    close_operand(&operand);
    return status;
}

void sbp_magnitude_begin(const struct sbp_lockstep *both, int tensor)
{
    if (both->adds)
        return;
    sbp_magnitude_clear(both->magnitude[tensor]);
    sbp_magnitude_clear_sum(both->magnitude[tensor]);
}

/* Whether an instruction writes gradients of parameters. */
static bool is_weight_gradient(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_BACKWARD &&
           (instr->buffer[SBP_AT_DW] >= 0 || instr->buffer[SBP_AT_DW2] >= 0);
}

enum sbp_status sbp_magnitude_note(const struct sbp_lockstep *both, const struct sbp_instr *instr)
{
    if (!is_weight_gradient(instr))
        return SBP_OK;
    switch (both->exact->program->graph->op[instr->op].kind) {
    case SBP_OP_LINEAR:
    case SBP_OP_SUMMA_LINEAR:
        return note_linear(both, instr);
    case SBP_OP_MOE:
        return sbp_magnitude_note_mixture(both, instr);
    case SBP_OP_EMBEDDING:
        return note_embedding(both, instr);
    case SBP_OP_LAYERNORM:
    case SBP_OP_RMSNORM:
    case SBP_OP_HEAD_NORM:
        return note_norm(both, instr);
    case SBP_OP_GROUPED_ATTENTION:
        sbp_magnitude_note_sinks(both, instr);
        return SBP_OK;
    case SBP_OP_CONV2D:
        return sbp_magnitude_note_windows(both, instr);
    case SBP_OP_PATCH_EMBEDDING:
        return sbp_magnitude_note_patches(both, instr);
    case SBP_OP_BATCHNORM:
        return sbp_magnitude_note_batchnorm(both, instr);
    default:
        return SBP_E_INTERNAL;
    }
}

/* ---- relu and gelu ------------------------------------------------------------------------- */

/* `open`: how close to 0 the run may have either sign. */
static float relu_input(double exact, float shadow, double open)
{
    const bool either = fabs(exact) <= open;
    const bool positive = (exact > 0) != either;
    if ((shadow > 0) == positive)
        return shadow;
    return positive ? fmaxf(FLT_MIN, fabsf((float)exact)) : -fabsf((float)exact);
}

/* `deviation`: the token's, as the shadow has it. Where the sign is open over more than the width
 * in which a gelu bends, it is a relu. */
static float gelu_input(double exact, float shadow, double deviation, double open)
{
    const double own = (double)shadow - exact;
    if (open > 1 && fabs(exact) <= open)
        return (float)-exact;
    return fabs(own) >= deviation ? shadow : (float)(exact + copysign(deviation, own));
}

/* Mean variances of the features of an operand over its tokens. */
static void note_features(const struct operand *operand, double *variance)
{
    for (int64_t at = 0; at < operand->tokens * operand->features; at++)
        variance[at % operand->features] +=
            squared_deviation(operand, at) / (double)operand->tokens;
}

enum sbp_status sbp_magnitude_bend_shadow(const struct sbp_lockstep *both,
                                          const struct sbp_instr *instr)
{
    const enum sbp_op_kind kind = both->exact->program->graph->op[instr->op].kind;
    const bool relu = kind == SBP_OP_RELU, norm = kind == SBP_OP_BATCHNORM;
    if (kind == SBP_OP_MAXPOOL)
        return sbp_magnitude_bend_windows(both, instr);
    const struct operand x = look_at(both, instr, SBP_AT_IN);
    float *shadow = sbp_rank_buffer(both->shadow, instr->buffer[SBP_AT_IN]);
    double *feature = calloc((size_t)x.features + 1, sizeof *feature);
    if (feature == NULL)
        return SBP_E_MEMORY;
    if (both->by_feature)
        note_features(&x, feature);
    for (int64_t t = 0; t < x.tokens; t++) {
        const double token = token_variance(&x, t);
        for (int64_t i = 0; i < x.features; i++) {
            const int64_t at = t * x.features + i;
            const double open = norm ? 0 : both->either * sqrt(fmax(token, feature[i]));
            shadow[at] = relu ? relu_input(x.exact[at], shadow[at], open)
                              : gelu_input(x.exact[at], shadow[at], sqrt(token) / x.scale, open);
        }
    }
    free(feature);
    return SBP_OK;
}

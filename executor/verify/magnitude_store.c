#include "executor/verify/magnitude_image_priv.h"
#include "executor/verify/magnitude_mixture_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "executor/verify/together_priv.h"
#include "executor/verify/verify.h"

/* The vectors of a magnitude, for loops over them: place and whether it has an entry a row. */
struct vectors {
    double **row[3], **column[3];
};

static struct vectors vectors_of(struct sbp_magnitude *m)
{
    return (struct vectors){{&m->row, &m->row_square, &m->row_variance},
                            {&m->column, &m->column_square, &m->column_variance}};
}

static int64_t outputs_of(const struct sbp_magnitude_of *of)
{
    const int64_t *size = of->shape->size;
    return of->by_row ? size[0] * size[1] : size[2] * size[3];
}

static int64_t kept_of(const struct sbp_magnitude_of *of)
{
    const int64_t all = outputs_of(of), share = all / SBP_VERIFY_ONE_IN;
    const int64_t count = share > SBP_KEPT_LEAST ? share : SBP_KEPT_LEAST;
    return !of->is_sampled || of->keeps_all || all < count ? all : count;
}

/* Rows and columns of what is kept. */
static void set_sides(const struct sbp_magnitude_of *of, int64_t *rows, int64_t *columns)
{
    const int64_t *size = of->shape->size;
    *rows = of->by_row ? kept_of(of) : size[0] * size[1];
    *columns = of->by_row ? size[2] * size[3] : kept_of(of);
}

static enum sbp_status open_kept(struct sbp_magnitude *magnitude, const struct sbp_magnitude_of *of)
{
    struct sbp_kept *const kept = &magnitude->kept;
    const int64_t elements = magnitude->rows * magnitude->columns;
    *kept = (struct sbp_kept){.all = outputs_of(of), .count = kept_of(of)};
    if (!of->is_sampled)
        return SBP_OK;
    magnitude->gradient = calloc((size_t)elements, sizeof(double));
    if (magnitude->gradient == NULL)
        return SBP_E_MEMORY;
    if (kept->count == kept->all)
        return SBP_OK;
    kept->output = calloc((size_t)kept->count, sizeof *kept->output);
    kept->place = calloc((size_t)kept->all, sizeof *kept->place);
    return kept->output != NULL && kept->place != NULL ? SBP_OK : SBP_E_MEMORY;
}

enum sbp_status sbp_magnitude_open(struct sbp_magnitude *magnitude,
                                   const struct sbp_magnitude_of *of)
{
    int64_t rows, columns;
    set_sides(of, &rows, &columns);
    *magnitude = (struct sbp_magnitude){.rows = rows,
                                        .columns = columns,
                                        .blocks = of->blocks,
                                        .by_row = of->by_row,
                                        .key = of->key};
    const struct vectors vectors = vectors_of(magnitude);
    const int64_t by_column = of->blocks * columns;
    magnitude->sum = calloc((size_t)(rows * columns), sizeof(double));
    magnitude->live = calloc((size_t)(of->by_row ? rows : by_column), sizeof(bool));
    bool complete = magnitude->sum != NULL && magnitude->live != NULL;
    for (int i = 0; i < 3; i++) {
        *vectors.row[i] = calloc((size_t)rows, sizeof(double));
        *vectors.column[i] = calloc((size_t)by_column, sizeof(double));
        complete = complete && *vectors.row[i] != NULL && *vectors.column[i] != NULL;
    }
    return complete ? open_kept(magnitude, of) : SBP_E_MEMORY;
}

void sbp_magnitude_close(struct sbp_magnitude *magnitude)
{
    const struct vectors vectors = vectors_of(magnitude);
    for (int i = 0; i < 3; i++) {
        free(*vectors.row[i]);
        free(*vectors.column[i]);
    }
    free(magnitude->sum);
    free(magnitude->live);
    free(magnitude->gradient);
    free(magnitude->kept.output);
    free(magnitude->kept.place);
    *magnitude = (struct sbp_magnitude){0};
}

void sbp_magnitude_each(struct sbp_magnitude *magnitude,
                        void (*take)(void *context, double *at, int64_t count), void *context)
{
    const struct vectors vectors = vectors_of(magnitude);
    for (int i = 0; i < 3; i++) {
        take(context, *vectors.row[i], magnitude->rows);
        take(context, *vectors.column[i], magnitude->blocks * magnitude->columns);
    }
}

double sbp_magnitude_numbers(const struct sbp_magnitude_of *of)
{
    int64_t rows, columns;
    set_sides(of, &rows, &columns);
    return 3 * (double)(rows + of->blocks * columns);
}

double sbp_magnitude_bytes(const struct sbp_magnitude_of *of)
{
    int64_t rows, columns;
    set_sides(of, &rows, &columns);
    const bool draws = kept_of(of) < outputs_of(of);
    const double elements = (double)rows * (double)columns;
    return (elements * (of->is_sampled ? 2 : 1) + sbp_magnitude_numbers(of) +
            (draws ? (double)(outputs_of(of) + kept_of(of)) : 0)) *
           sizeof(double);
}

/* Both operands' absolute values, of a sample the values of its outputs, and the sums by which
 * errors that tokens share are looked for; other vectors are small beside these. */
double sbp_magnitude_note_bytes(const struct sbp_program *program, const struct sbp_instr *instr,
                                bool is_sampled)
{
    if (instr->kind == SBP_INSTR_BACKWARD && program->graph->op[instr->op].kind == SBP_OP_MOE)
        return sbp_magnitude_mixture_bytes(program, instr->op);
    const int x = instr->buffer[SBP_AT_IN], dy = instr->buffer[SBP_AT_DY];
    if (instr->kind != SBP_INSTR_BACKWARD || dy < 0)
        return 0;
    if (program->graph->op[instr->op].kind == SBP_OP_CONV2D ||
        program->graph->op[instr->op].kind == SBP_OP_PATCH_EMBEDDING)
        return sbp_magnitude_image_bytes(program, instr);
    if (x < 0)
        return 0;
    const enum sbp_op_kind kind = program->graph->op[instr->op].kind;
    const bool picks = is_sampled && (kind == SBP_OP_LINEAR || kind == SBP_OP_SUMMA_LINEAR);
    const struct sbp_shape *shape = &program->graph->tensor[program->buffer[dy].tensor].shape;
    const struct sbp_magnitude_of outputs = {.shape = shape, .is_sampled = picks};
    const double tokens = (double)(shape->size[0] * shape->size[1]);
    const double kept = tokens * (double)kept_of(&outputs);
    const size_t element = picks ? 2 * sizeof(double) + sizeof(float) : sizeof(double);
    return (double)program->buffer[x].elements * sizeof(double) + kept * (double)element +
           (is_sampled
                ? 0
                : sbp_together_bytes(fmax((double)program->buffer[x].elements, kept) / tokens));
}

int64_t sbp_magnitude_place(const struct sbp_magnitude *m, int64_t index)
{
    if (m->kept.output == NULL)
        return index;
    const int64_t all = m->by_row ? m->columns : m->kept.all;
    const int64_t i = index / all, j = index % all;
    const int64_t place = m->kept.place[m->by_row ? i : j];
    return place < 0 ? -1 : m->by_row ? place * all + j : i * m->columns + place;
}

double sbp_magnitude_inherited(const struct sbp_magnitude *m, int64_t place)
{
    const int64_t i = place / m->columns;
    const int64_t j = i / (m->rows / m->blocks) * m->columns + place % m->columns;
    if (!m->live[m->by_row ? i : j])
        return -1;
    return sqrt(m->row[i] + m->column[j] + m->row_square[i] * m->column_variance[j] +
                m->row_variance[i] * m->column_square[j]);
}

void sbp_magnitude_clear(struct sbp_magnitude *magnitude)
{
    const struct vectors vectors = vectors_of(magnitude);
    const int64_t by_column = magnitude->blocks * magnitude->columns;
    const int64_t outputs = magnitude->by_row ? magnitude->rows : by_column;
    for (int i = 0; i < 3; i++) {
        memset(*vectors.row[i], 0, (size_t)magnitude->rows * sizeof(double));
        memset(*vectors.column[i], 0, (size_t)by_column * sizeof(double));
    }
    memset(magnitude->live, 0, (size_t)outputs * sizeof *magnitude->live);
}

void sbp_magnitude_clear_sum(struct sbp_magnitude *magnitude)
{
    memset(magnitude->sum, 0, (size_t)(magnitude->rows * magnitude->columns) * sizeof(double));
}

void sbp_magnitude_draw(struct sbp_magnitude *magnitude, uint64_t number)
{
    struct sbp_kept *const kept = &magnitude->kept;
    sbp_magnitude_clear(magnitude);
    sbp_magnitude_clear_sum(magnitude);
    memset(magnitude->gradient, 0, (size_t)(magnitude->rows * magnitude->columns) * sizeof(double));
    if (kept->output == NULL)
        return;
    for (int64_t i = 0; i < kept->all; i++)
        kept->place[i] = -1;
    for (int64_t k = 0; k < kept->count; k++) {
        const int64_t first = k * kept->all / kept->count;
        const int64_t length = (k + 1) * kept->all / kept->count - first;
        const uint64_t drawn = sbp_random_bits_at(number, (uint64_t)magnitude->key, (uint64_t)k);
        kept->output[k] = first + (int64_t)(drawn % (uint64_t)length);
        kept->place[kept->output[k]] = k;
    }
}

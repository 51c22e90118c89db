/* The error that a parameter gradient may have: from its own sum, and from the terms it sums.
 *
 * A gradient g = sum_t x_t dy_t over n tokens differs between two machines of unit roundoff u for
 * two reasons. Its own summation: at most c (sqrt(n) + log2 p) u sum|x_t dy_t| (DESIGN.md, 7).
 * And x and dy are themselves results: with errors e_t and d_t, to first order
 *     difference = sum_t (e_t dy_t + x_t d_t),
 * which does not shrink with |x_t|: behind a relu or gelu x_t may be arbitrarily small, its error
 * is that of the sum before it. The errors of different tokens come from different roundings, so
 * they add up as their variances do (the same reasoning that puts sqrt(n) above):
 *     variance = sum_t (s_t^2 dy_t^2 + x_t^2 r_t^2),
 * with s_t, r_t the typical size of e_t, d_t. These are measured: a shadow of the
 * reference computes the same step in single precision on one device; first-order errors are
 * proportional to the unit roundoff, so its deviation times u / 2^-24 is their size in the run (and
 * times 2^-53 / 2^-24 in the reference itself, which a run in double is compared with). Mean
 * squares over a token's features and over a feature's tokens estimate the variance of an element
 * (their sum: some tokens and some features are worse than others); an element that deviates by
 * over twice that counts by itself. Behind a gelu few elements may carry all of a token's error
 * (those where it bends), and one sample of each says too little: before it the shadow's inputs are
 * moved to deviate by no less than is typical of their token.
 *
 * The weights of a mixture's experts are blocks of one matrix, one below the other, each with
 * tokens of its own: what is measured by column is measured block by block.
 *
 * A sampled verification keeps some outputs of a weight, drawn anew for each step. It forms the
 * gradient of these in double here as well, since nobody holds all of it.
 */
#ifndef SBP_EXECUTOR_VERIFY_MAGNITUDE_PRIV_H
#define SBP_EXECUTOR_VERIFY_MAGNITUDE_PRIV_H

#include "executor/rank/rank.h"

enum { SBP_KEPT_LEAST = 8 }; /* outputs of a weight that a sample keeps, if it has them */

/* Outputs of a weight that are kept: `count` of all, one drawn in each of as many stretches of
 * about the same length, so that each rank's block has some. */
struct sbp_kept {
    int64_t all, count;
    int64_t *output; /* (count) ascending; NULL: all are kept */
    int64_t *place;  /* (all) in `output`; -1: not kept */
};

/* Sizes of one parameter's gradient, seen as a matrix: rows are its dimensions 0 and 1, columns 2
 * and 3; of what is kept of its outputs. */
struct sbp_magnitude {
    int64_t rows, columns;
    struct sbp_kept kept;
    int key;
    double *gradient; /* (rows, columns) where a sample is kept; NULL: the program has it */
    double *sum;      /* (rows, columns) sum of the absolute values of the terms */
    /* Variance of an element (i, j) = row[i] + column[j] + row_square[i] column_variance[j] +
     * row_variance[i] column_square[j]: what is measured by token, and by feature. */
    double *row, *column;
    double *row_square, *row_variance, *column_square, *column_variance;
    int64_t blocks; /* of rows, each of which has (columns) of its own in what is by column */
    bool by_row;    /* whether the operator's outputs are the rows (tables) */
    bool *live;     /* (rows, or blocks and columns) of outputs; the others get exactly 0 */
};

/* A parameter whose gradient is noted. */
struct sbp_magnitude_of {
    const struct sbp_shape *shape;
    int64_t blocks; /* 1, or experts, of a whole verification */
    bool by_row;
    bool is_sampled;
    bool keeps_all; /* also of a sample: a norm's */
    int key;        /* those of one key keep the same outputs: a bias as the weight beside it */
};

/* On failure (E_MEMORY) free it all the same. */
enum sbp_status sbp_magnitude_open(struct sbp_magnitude *magnitude,
                                   const struct sbp_magnitude_of *of) SBP_MUST_USE;
void sbp_magnitude_close(struct sbp_magnitude *magnitude);
/* Begins a step of a sample: draws outputs by the number and the key, and forgets the last. */
void sbp_magnitude_draw(struct sbp_magnitude *magnitude, uint64_t number);
/* Bytes that it allocates for a parameter; the most bytes that it allocates while it notes an
 * instruction. is_sampled: the instruction may keep a sample of the outputs. */
double sbp_magnitude_bytes(const struct sbp_magnitude_of *of);
double sbp_magnitude_note_bytes(const struct sbp_program *program, const struct sbp_instr *instr,
                                bool is_sampled);

/* Calls `take` for each of its vectors: variances, and squares of exact values, which all shadows
 * have alike. The other: how many numbers they have together. */
void sbp_magnitude_each(struct sbp_magnitude *magnitude,
                        void (*take)(void *context, double *at, int64_t count), void *context);
double sbp_magnitude_numbers(const struct sbp_magnitude_of *of);

/* Where an element of the whole gradient stands in what is kept; -1: nowhere. */
int64_t sbp_magnitude_place(const struct sbp_magnitude *magnitude, int64_t index);

/* Standard deviation of the inherited error of an element at its place; -1 where the gradient is
 * exactly 0. */
double sbp_magnitude_inherited(const struct sbp_magnitude *magnitude, int64_t place);

/* The reference in double and its shadow in single precision, both in host memory. */
struct sbp_lockstep {
    struct sbp_rank *exact, *shadow;
    double scale;    /* sqrt(u^2 of the run + u^2 of the reference) / 2^-24 */
    double either;   /* standard deviations from 0 in which the sign before a relu is open, */
    bool by_feature; /* of the feature, too, where that has more than the token */
    struct sbp_magnitude **magnitude; /* (tensor_count), NULL for what is no parameter */
    bool adds;       /* to what was noted of other micro-batches, which are alike, */
    double share;    /* of this one among them all */
    bool correlates; /* looks for errors of tokens that are one error, in products */
};

/* Notes what a BACKWARD instruction adds to its parameters' gradients; nothing when it has none.
 * Called when the exact rank has executed it and the shadow has all its operands.
 * E_MEMORY. */
enum sbp_status sbp_magnitude_note(const struct sbp_lockstep *both,
                                   const struct sbp_instr *instr) SBP_MUST_USE;

/* Mean variance of the elements of an operand, by token: (tokens) in the caller's array. */
void sbp_magnitude_token_variance(const struct sbp_lockstep *both, const struct sbp_instr *instr,
                                  int place, double *variance);

/* The same of one row of elements in both. */
double sbp_magnitude_row_variance(const struct sbp_lockstep *both, const double *exact,
                                  const float *shadow, int64_t count);

/* Before an activation: moves the shadow's inputs. Those of all but a relu deviate by at least the
 * token's standard deviation. A relu's get the sign that the exact ones have, except where the run
 * may have either: there they get the other one, so that what a flip changes is part of the
 * deviation. E_MEMORY. */
enum sbp_status sbp_magnitude_bend_shadow(const struct sbp_lockstep *both,
                                          const struct sbp_instr *instr) SBP_MUST_USE;

#endif

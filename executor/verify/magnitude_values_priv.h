/* Between the files of magnitude_priv.h: operands that are no buffers of a program, and what is
 * forgotten before a gradient is noted.
 */
#ifndef SBP_EXECUTOR_VERIFY_MAGNITUDE_VALUES_PRIV_H
#define SBP_EXECUTOR_VERIFY_MAGNITUDE_VALUES_PRIV_H

#include "executor/verify/magnitude_priv.h"

/* An operand (tokens, features) as the reference and its shadow have it. */
struct sbp_values {
    int64_t tokens, features;
    const double *exact;
    const float *shadow;
};

/* A block of rows of a weight, as many as x has features: an expert's. */
struct sbp_block {
    int weight;
    int64_t number;
};

/* What magnitude.c notes of such operands, E_MEMORY: the product of an operator's first weight with
 * its bias; of a block of a weight, of which nothing was noted since it was forgotten; a vector's
 * gradient, which is the column sums of dy; a table's, of the tokens that looked its rows up. */
enum sbp_status sbp_magnitude_note_product(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr,
                                           const struct sbp_values *x,
                                           const struct sbp_values *dy) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_block(const struct sbp_lockstep *both,
                                         const struct sbp_block *block, const struct sbp_values *x,
                                         const struct sbp_values *dy) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_sums(const struct sbp_lockstep *both,
                                        const struct sbp_values *dy, int tensor) SBP_MUST_USE;
/* The same of a part of a vector, from an element on; nothing is forgotten. */
enum sbp_status sbp_magnitude_note_part(const struct sbp_lockstep *both,
                                        const struct sbp_values *dy, int tensor,
                                        int64_t first) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_table(const struct sbp_lockstep *both,
                                         const struct sbp_values *dy, const int32_t *row_of,
                                         int tensor) SBP_MUST_USE;

/* Forgets what was noted: all but the sums; the sums. */
void sbp_magnitude_clear(struct sbp_magnitude *magnitude);
void sbp_magnitude_clear_sum(struct sbp_magnitude *magnitude);
/* Forgets both of a weight, unless a step adds to them. */
void sbp_magnitude_begin(const struct sbp_lockstep *both, int tensor);

#endif

/* Sizes of gradients whose operands are no matrices in memory: windows of images, patches, batch
 * normalisation, types of tokens; and what ties in a largest element change.
 *
 * Windows are unfolded some places at a time. Batch normalisation is measured by channel.
 */
#ifndef SBP_EXECUTOR_VERIFY_MAGNITUDE_IMAGE_PRIV_H
#define SBP_EXECUTOR_VERIFY_MAGNITUDE_IMAGE_PRIV_H

#include "executor/verify/magnitude_priv.h"

/* An operand (tokens, features) as the reference and its shadow have it. */
struct sbp_values {
    int64_t tokens, features;
    const double *exact;
    const float *shadow;
};

/* What magnitude.c notes of such operands, E_MEMORY: the product of an operator's first weight with
 * its bias; a vector's gradient, which is the column sums of dy; a table's, of the tokens that
 * looked its rows up. */
enum sbp_status sbp_magnitude_note_product(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr,
                                           const struct sbp_values *x,
                                           const struct sbp_values *dy) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_sums(const struct sbp_lockstep *both,
                                        const struct sbp_values *dy, int tensor) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_table(const struct sbp_lockstep *both,
                                         const struct sbp_values *dy, const int32_t *row_of,
                                         int tensor) SBP_MUST_USE;
/* Forgets what a step noted of a weight, unless that is added to. */
void sbp_magnitude_begin(const struct sbp_lockstep *both, int tensor);

/* What a BACKWARD instruction adds, by its operator (sbp_magnitude_note); E_MEMORY. */
enum sbp_status sbp_magnitude_note_windows(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_patches(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_batchnorm(const struct sbp_lockstep *both,
                                             const struct sbp_instr *instr) SBP_MUST_USE;
enum sbp_status sbp_magnitude_note_types(const struct sbp_lockstep *both,
                                         const struct sbp_instr *instr) SBP_MUST_USE;
/* Bytes that the first two of them take. */
double sbp_magnitude_image_bytes(const struct sbp_program *program, const struct sbp_instr *instr);

/* Before a pool of largest elements: where the run may choose another element of a window, the
 * shadow does. E_MEMORY. */
enum sbp_status sbp_magnitude_bend_windows(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr) SBP_MUST_USE;

#endif

/* Sizes of gradients whose operands are no matrices in memory: windows of images, patches, batch
 * normalisation, types of tokens; and what ties in a largest element change.
 *
 * Windows are unfolded some places at a time. Batch normalisation is measured by channel.
 */
#ifndef SBP_EXECUTOR_VERIFY_MAGNITUDE_IMAGE_PRIV_H
#define SBP_EXECUTOR_VERIFY_MAGNITUDE_IMAGE_PRIV_H

#include "executor/verify/magnitude_values_priv.h"

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

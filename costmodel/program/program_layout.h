/* Where a program's buffers lie: lifetimes and static offsets in one arena.
 *
 * Persistent buffers come first; then a sweep over time gives a buffer the lowest hole when it is
 * born and takes it back after its last use. Offsets are multiples of 64. Internal to the program's
 * compiler.
 */
#ifndef SBP_COSTMODEL_PROGRAM_PROGRAM_LAYOUT_H
#define SBP_COSTMODEL_PROGRAM_PROGRAM_LAYOUT_H

#include "costmodel/program/program.h"

/* Sets first, last and offset_bytes of every buffer, and the program's arena_bytes. E_RANGE when
 * all buffers together pass 2^62 bytes, which leaves room to add a device's reserve; E_MEMORY. */
enum sbp_status sbp_program_lay_out(struct sbp_program *program,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

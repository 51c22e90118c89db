/* What changed from one calibration to another: software, settings, and times cell by cell. */
#ifndef SBP_CALIB_OUTPUT_COMPARE_H
#define SBP_CALIB_OUTPUT_COMPARE_H

#include <stdio.h>

#include "calib/samples/sample_file.h"

/* A time has changed when it is off by more than this share of the older one and by more than what
 * both scatter. */
#define SBP_CHANGED 0.1

/* Prints the differences of the last calibrations in two files of samples. E_IO, E_MEMORY. */
enum sbp_status sbp_compare_print(const struct sbp_record *older, const struct sbp_record *newer,
                                  FILE *out, struct sbp_diag *diag) SBP_MUST_USE;

#endif

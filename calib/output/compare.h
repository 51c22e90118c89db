/* Compares two calibrations: software, settings, and times cell by cell. Inputs are two records of
 * samples, output is text for people. */
#ifndef SBP_CALIB_OUTPUT_COMPARE_H
#define SBP_CALIB_OUTPUT_COMPARE_H

#include <stdio.h>

#include "calib/samples/sample_file.h"

/* A time counts as changed when it differs by more than this share of the older one and by more
 * than the scatter of both. */
#define SBP_CHANGED 0.1

/* Prints the differences of the last calibrations in two files of samples. E_IO, E_MEMORY. */
enum sbp_status sbp_compare_print(const struct sbp_record *older, const struct sbp_record *newer,
                                  FILE *out, struct sbp_diag *diag) SBP_MUST_USE;

#endif

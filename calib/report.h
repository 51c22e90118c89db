/* What a calibration prints for people. */
#ifndef SBP_CALIB_REPORT_H
#define SBP_CALIB_REPORT_H

#include <stdio.h>

#include "calib/write.h"

/* E_IO, E_MEMORY. */
enum sbp_status sbp_calibration_print(const struct sbp_calibration *calibration,
                                      const struct sbp_calibrated *calibrated,
                                      FILE *out) SBP_MUST_USE;

#endif

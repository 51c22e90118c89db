/* What a calibration prints for people. */
#ifndef SBP_CALIB_OUTPUT_REPORT_H
#define SBP_CALIB_OUTPUT_REPORT_H

#include <stdio.h>

#include "calib/output/cluster_file.h"

/* E_IO, E_MEMORY. */
enum sbp_status sbp_report_calibration(const struct sbp_calibration *calibration,
                                       const struct sbp_calibrated *calibrated,
                                       FILE *out) SBP_MUST_USE;

#endif

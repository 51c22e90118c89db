/* Prints for people how a network was fitted and what a calibration found. Inputs are the fits
 * (calib/fit/), output is text; E_IO, E_MEMORY. */
#ifndef SBP_CALIB_OUTPUT_CALIB_REPORT_H
#define SBP_CALIB_OUTPUT_CALIB_REPORT_H

#include <stdio.h>

#include "calib/fit/calibrate.h"

/* Errors in sample and on held-out sizes and shapes, mis-ordered pairs, noise; then a row a group;
 * groups that were left out, and curves that fit poorly. */
enum sbp_status sbp_calib_report_network(const struct sbp_network_fit *fit, FILE *out) SBP_MUST_USE;

/* Where it ran, the network, the device, the findings. */
enum sbp_status sbp_calib_report(const struct sbp_calibration *calibration,
                                 const struct sbp_calibrated *calibrated, FILE *out) SBP_MUST_USE;

#endif

/* Where a calibration runs: host, processor, system, and how ranks lie on hosts. */
#ifndef SBP_CALIB_ORIGIN_H
#define SBP_CALIB_ORIGIN_H

#include "calib/samples.h"
#include "calib/write.h"

/* Fills everything but version, command, seed, budget_s and wall_s. Collective over all ranks,
 * which compare host names. E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_origin_find(const struct sbp_sampler *sampler,
                                struct sbp_calibration_origin *origin,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif

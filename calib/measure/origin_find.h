/* Finds the origin of a calibration while it runs: how ranks lie on nodes, and which hosts,
 * processors, libraries and settings they have. Input are the ranks and the system; outputs are the
 * structs of calib/samples/placement.h and origin.h. */
#ifndef SBP_CALIB_MEASURE_ORIGIN_FIND_H
#define SBP_CALIB_MEASURE_ORIGIN_FIND_H

#include "calib/measure/compute.h"
#include "calib/measure/sampler.h"
#include "calib/samples/origin.h"
#include "calib/samples/placement.h"

/* Compares the names that nodes give themselves; *placement is freed by the caller. Collective.
 * E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_origin_find_placement(const struct sbp_sampler *sampler,
                                          struct sbp_rank_placement *placement,
                                          struct sbp_diag *diag) SBP_MUST_USE;

/* Fills everything but version, command, seed, runs, max_bytes, budget_s and wall_s; the calls of
 * `ranks` are those that are timed. Collective: all ranks compare their memory and cores.
 * E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_origin_find(const struct sbp_sampler *sampler,
                                const struct sbp_rank_placement *placement,
                                struct sbp_endpoint ranks, const struct sbp_processor *processor,
                                struct sbp_calibration_origin *origin,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif

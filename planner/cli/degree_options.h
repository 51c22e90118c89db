/* Degrees of the command line (--tp 8 --pp 4): which are given, and what else may be given beside
 * them. Those of the step (--pp, --vpp, --zero, --recompute) become keys of --set, so that a search
 * takes them as given; those of layers (--tp, --dp, ...) become fixes (planner/degrees/degrees.h).
 */
#ifndef SBP_PLANNER_CLI_DEGREE_OPTIONS_H
#define SBP_PLANNER_CLI_DEGREE_OPTIONS_H

#include "planner/cli/options.h"
#include "planner/cli/overrides.h"

/* Whether the command line has degrees, and whether some are of layers (--tp, --dp, ...), not of
 * the step alone (--pp, --vpp, --zero, --recompute). */
bool sbp_degree_options_given(const struct sbp_arguments *arguments);
bool sbp_degree_options_of_layers(const struct sbp_arguments *arguments);
/* Puts the degrees of a step into the settings, as --set would give them. E_USAGE: --set gives one
 * as well. */
enum sbp_status sbp_degree_options_put(const struct sbp_arguments *arguments,
                                       struct sbp_settings *settings,
                                       struct sbp_diag *diag) SBP_MUST_USE;
/* Degrees know the replicas: --set micro_batch, which counts all of them, is refused. E_USAGE. */
enum sbp_status sbp_degree_options_check_micro_batch(const struct sbp_settings *settings,
                                                     struct sbp_diag *diag) SBP_MUST_USE;
/* The degrees of the options, with the micro-batch that --set may give. */
struct sbp_degrees sbp_degree_options_all(const struct sbp_arguments *arguments,
                                          const struct sbp_settings *settings);
/* Fails with a complaint about degrees ("degrees: tp: ...", or "parallel: pipeline: ..." where --pp
 * gave it) as one about an option, "--tp: ..."; others as sbp_inputs_refuse with --set. Returns
 * status. */
enum sbp_status sbp_degree_options_refuse(const struct sbp_arguments *arguments,
                                          enum sbp_status status, const struct sbp_diag *why,
                                          struct sbp_diag *diag);

#endif

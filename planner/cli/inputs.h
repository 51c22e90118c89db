/* The inputs of the commands: models and clusters, given by path or by name
 * (planner/configs/config_files.h), with the changes that options make, and strategies given by
 * hand.
 */
#ifndef SBP_PLANNER_CLI_INPUTS_H
#define SBP_PLANNER_CLI_INPUTS_H

#include "planner/cli/options.h"
#include "planner/cli/overrides.h"
#include "planner/plan/plan.h"
#include "planner/plan/request.h"

/* Makes a plan without a strategy for the operands MODEL and CLUSTER, with the changes of --set, of
 * a sweep's row, of --devices and of the space. The plan is the caller's to free, and not allocated
 * on failure; the settings may be freed either way. `arena` holds the names of files, which
 * messages use. */
enum sbp_status sbp_inputs_read(const struct sbp_arguments *arguments, enum sbp_space_kind space,
                                struct sbp_arena *arena, struct sbp_settings *settings,
                                struct sbp_plan *plan, struct sbp_diag *diag) SBP_MUST_USE;

void sbp_inputs_free_settings(struct sbp_settings *settings);

/* Fails with a complaint about the cut of a step ("parallel: KEY: ...") or a fix ("fix: LAYER:
 * ...") and puts its source in front: --set and --fix, or a file unless NULL. Other complaints stay
 * as they are. Returns status. */
enum sbp_status sbp_inputs_refuse(const char *file, enum sbp_status status,
                                  const struct sbp_diag *why, struct sbp_diag *diag);

/* Reads a plan file; the name of a model or a cluster in its place is refused with the search that
 * makes one. As sbp_plan_read. */
enum sbp_status sbp_inputs_read_plan(const char *path, struct sbp_plan *plan,
                                     struct sbp_diag *diag) SBP_MUST_USE;
/* Whether a word, which could not be read, is such a name, and then the refusal; `wanted` is
 * "plan", `option` "-o plan.json", which makes one. Else fails with status and why. */
enum sbp_status sbp_inputs_refuse_name(const char *word, const char *wanted, const char *option,
                                       enum sbp_status status, const struct sbp_diag *why,
                                       struct sbp_diag *diag);

/* Sets the plan's parallel: the "parallel" object of a strategy file or a plan file, where it has
 * one, changed by --set. The boxing of a plan file becomes the settings' unless --set gives it.
 * E_INPUT. */
enum sbp_status sbp_inputs_read_around(struct sbp_plan *plan, struct sbp_settings *settings,
                                       const char *path, struct sbp_diag *diag) SBP_MUST_USE;
/* Reads LAYER=ROLE:FACTOR,... of every --fix into an array of the arena. E_INPUT, E_USAGE. */
enum sbp_status sbp_fixes_parse(const struct sbp_plan *plan, const struct sbp_word_list *words,
                                struct sbp_arena *arena, const struct sbp_fix **fix, int *count,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Reads the layers of a strategy file or a plan file, which must have every layer that has a
 * choice. */
enum sbp_status sbp_fixes_read(const struct sbp_plan *plan, const char *path,
                               struct sbp_arena *arena, const struct sbp_fix **fix, int *count,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif

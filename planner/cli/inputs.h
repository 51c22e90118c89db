/* What the commands work on: models and clusters by path or by name, changed as options say.
 *
 * Names stand for configs/models/NAME.json and configs/clusters/NAME.json in $SBPLAN_CONFIGS, where
 * sbplan was built (for a program that still lies there), and where it was installed, in this
 * order.
 */
#ifndef SBP_PLANNER_CLI_INPUTS_H
#define SBP_PLANNER_CLI_INPUTS_H

#include "planner/cli/options.h"
#include "planner/cli/overrides.h"
#include "planner/plan/plan.h"
#include "planner/plan/request.h"

enum sbp_config_kind { SBP_CONFIG_MODEL, SBP_CONFIG_CLUSTER };

struct sbp_config_names {
    int count;
    const char **name; /* sorted, each once; NULL-terminated */
    const char **path;
};
/* All listed names; folders that are missing count as empty. E_MEMORY. */
enum sbp_status sbp_config_list(enum sbp_config_kind kind, struct sbp_arena *arena,
                                struct sbp_config_names *names, struct sbp_diag *diag) SBP_MUST_USE;
/* The file that a path or a name stands for; E_INPUT with the nearest name. */
enum sbp_status sbp_config_find(enum sbp_config_kind kind, const char *word,
                                struct sbp_arena *arena, const char **path,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* A plan without a strategy for operands MODEL and CLUSTER, after --set, a sweep's row, --devices
 * and what the space changes of a model. On failure no plan is left allocated; the settings may be
 * freed either way. `arena` keeps the names of the files, which messages use. */
enum sbp_status sbp_inputs_read(const struct sbp_arguments *arguments, enum sbp_space_kind space,
                                struct sbp_arena *arena, struct sbp_settings *settings,
                                struct sbp_plan *plan, struct sbp_diag *diag) SBP_MUST_USE;

void sbp_inputs_free_settings(struct sbp_settings *settings);

/* Hands on a complaint about the cut of a step ("parallel: KEY: ...") or a fix ("fix: LAYER: ...")
 * with what gave it in front: --set and --fix, or, unless NULL, a file. Others as they are. Returns
 * status. */
enum sbp_status sbp_inputs_refuse(const char *file, enum sbp_status status,
                                  const struct sbp_diag *why, struct sbp_diag *diag);

/* The "parallel" object of a strategy file or a plan file, where it has one, and over it what --set
 * says: sets the plan's. A plan file's boxing is the settings' unless --set gives it. E_INPUT. */
enum sbp_status sbp_inputs_read_around(struct sbp_plan *plan, struct sbp_settings *settings,
                                       const char *path, struct sbp_diag *diag) SBP_MUST_USE;
/* LAYER=ROLE:FACTOR,... of every --fix. */
enum sbp_status sbp_fixes_parse(const struct sbp_plan *plan, const struct sbp_word_list *words,
                                struct sbp_arena *arena, const struct sbp_fix **fix, int *count,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* All layers of a strategy file or a plan file; every layer that has a choice must be there. */
enum sbp_status sbp_fixes_read(const struct sbp_plan *plan, const char *path,
                               struct sbp_arena *arena, const struct sbp_fix **fix, int *count,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif

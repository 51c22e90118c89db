/* The inputs of the commands: models and clusters, given by path or by name, with the changes that
 * options make, and strategies given by hand.
 *
 * A name stands for configs/models/NAME.json, configs/clusters/NAME.json,
 * configs/runtimes/NAME.json or, in a cluster's device.like, configs/devices/NAME.json. Folders are
 * looked at in this order: $SBPLAN_CONFIGS, the source tree (for a program that still lies in its
 * build tree), the installed configs.
 */
#ifndef SBP_PLANNER_CLI_INPUTS_H
#define SBP_PLANNER_CLI_INPUTS_H

#include "planner/cli/options.h"
#include "planner/cli/overrides.h"
#include "planner/plan/plan.h"
#include "planner/plan/request.h"

enum sbp_config_kind {
    SBP_CONFIG_MODEL,
    SBP_CONFIG_CLUSTER,
    SBP_CONFIG_RUNTIME,
    SBP_CONFIG_DEVICE
};
#define SBP_CONFIG_KINDS 4
/* "model", "cluster", "runtime", "device". */
const char *sbp_config_kind_name(enum sbp_config_kind kind);

struct sbp_config_names {
    int count;
    const char **name; /* sorted, each once; NULL-terminated */
    const char **path;
};
/* Lists all names; a missing folder counts as empty. Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_config_list(enum sbp_config_kind kind, struct sbp_arena *arena,
                                struct sbp_config_names *names, struct sbp_diag *diag) SBP_MUST_USE;
/* The file that a path or a name stands for. E_INPUT, with the nearest name. */
enum sbp_status sbp_config_find(enum sbp_config_kind kind, const char *word,
                                struct sbp_arena *arena, const char **path,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* Where a cluster's device has the key "like", which names a device file: copies every key that the
 * device lacks from there, and takes "like" away. Tables of products (gemm, gemm_grids) are copied
 * if it has neither. `name` is the cluster's, for messages. E_INPUT, E_IO, E_MEMORY. */
enum sbp_status sbp_device_file_fill(struct cJSON *cluster, const char *name,
                                     struct sbp_arena *arena, struct sbp_diag *diag) SBP_MUST_USE;

/* Replaces "runtime": "NAME" in a cluster's tree by the object of the file that the name or the
 * path stands for (configs/runtimes), so that a plan carries all that its price depends on.
 * `runtime`
 * (--runtime; NULL: as the cluster says) stands in its place, "none" takes it away. The tree is the
 * caller's; file: its name, for messages. The arena holds names of files. E_INPUT, E_IO, E_MEMORY.
 */
enum sbp_status sbp_cluster_parts_expand(struct cJSON *cluster, const char *file,
                                         const char *runtime, struct sbp_arena *arena,
                                         struct sbp_diag *diag) SBP_MUST_USE;

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

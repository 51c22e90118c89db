/* Configurations by name: models, clusters, devices, runtimes and sets of runs, shipped or the
 * user's, and what a cluster's file names of them.
 *
 * A name stands for configs/models/NAME.json, configs/clusters/NAME.json,
 * configs/runtimes/NAME.json, configs/runs/NAME.json or, in a cluster's device.like,
 * configs/devices/NAME.json. Folders are looked at in this order: $SBPLAN_CONFIGS, the source tree
 * (for a program that still lies in its build tree), the installed configs.
 */
#ifndef SBP_PLANNER_CONFIGS_CONFIG_FILES_H
#define SBP_PLANNER_CONFIGS_CONFIG_FILES_H

#include "base/arena.h"
#include "base/status.h"
#include "planner/validate/run_set.h"

struct cJSON;

enum sbp_config_kind {
    SBP_CONFIG_MODEL,
    SBP_CONFIG_CLUSTER,
    SBP_CONFIG_DEVICE,
    SBP_CONFIG_RUNTIME,
    SBP_CONFIG_RUNS
};
#define SBP_CONFIG_KINDS 5
/* "model", "cluster", "device", "runtime", "set of runs". */
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

/* Whether a word, which is no file, is the name of a model or a cluster, and of which. */
bool sbp_config_is_listed(const char *word, enum sbp_config_kind *kind);

/* Replaces "runtime": "NAME" in a cluster's tree by the object of the file that the name or the
 * path stands for (configs/runtimes), so that a plan carries all that its price depends on.
 * runtime: that of --runtime, which stands in its place, "none" takes it away; NULL: as the cluster
 * says. The tree is the caller's; file: its name, for messages. The arena holds names of files.
 * E_INPUT, E_IO, E_MEMORY. */
enum sbp_status sbp_config_expand(struct cJSON *cluster, const char *file, const char *runtime,
                                  struct sbp_arena *arena, struct sbp_diag *diag) SBP_MUST_USE;

/* Where a cluster's device has the key "like", which names a device file: copies every key that the
 * device lacks from there, of its peaks every type, and takes "like" away. Tables of products
 * (gemm, gemm_grids) are copied if it has neither. `name` is the cluster's, for messages. E_INPUT,
 * E_IO, E_MEMORY. */
enum sbp_status sbp_device_file_fill(struct cJSON *cluster, const char *name,
                                     struct sbp_arena *arena, struct sbp_diag *diag) SBP_MUST_USE;

/* Reads a set of published runs (planner/validate/run_set.h), whose cluster and runtime may be
 * names. runtime: as of --runtime, in the place of the set's; NULL: that. The arena holds names of
 * files. Fails as sbp_run_set_read. */
enum sbp_status sbp_run_set_open(const char *path, const char *runtime, struct sbp_arena *arena,
                                 struct sbp_run_set *set, struct sbp_diag *diag) SBP_MUST_USE;
/* The same of a tree in memory, as sbp_run_set_take. */
enum sbp_status sbp_run_set_open_tree(struct cJSON *tree, const char *file, const int *line,
                                      const char *runtime, struct sbp_arena *arena,
                                      struct sbp_run_set *set, struct sbp_diag *diag) SBP_MUST_USE;

#endif

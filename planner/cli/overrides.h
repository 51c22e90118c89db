/* Changes of an input by a word KEY=VALUE, of --set or of a row of --sweep.
 *
 * A key is one of the search's own (boxing, max_batch_split, devices, global_batch_tokens,
 * micro_batch_per_replica, those of struct sbp_parallel), or a path: "cluster.levels[0].size",
 * "model.layers[2].out"; without "model." or "cluster." it is a path of the model. Every member of
 * a path but the last must exist; the reader of the file says whether the last may be added. A
 * value is a number (sizes as 32K, too), true, false, or JSON in brackets or quotes; any other text
 * is a string.
 */
#ifndef SBP_PLANNER_CLI_OVERRIDES_H
#define SBP_PLANNER_CLI_OVERRIDES_H

#include "planner/plan/plan.h"

/* The search's own keys, as --set gives them. */
struct sbp_settings {
    enum sbp_boxing_mode boxing;
    bool boxing_given;
    int64_t max_batch_split;         /* 0: none */
    int64_t devices;                 /* 0: as --devices says */
    int64_t global_batch_tokens;     /* a step; 0: global_batch says the sequences */
    int64_t micro_batch_per_replica; /* sequences; 0: as --micro-batch says */
    struct cJSON *parallel;          /* owned: keys of struct sbp_parallel, as given */
};

/* The input that a word changes. */
enum sbp_override_root { SBP_OVERRIDE_SEARCH, SBP_OVERRIDE_MODEL, SBP_OVERRIDE_CLUSTER };
enum sbp_override_root sbp_override_root(const char *word);

/* The inputs that words change; all are borrowed. */
struct sbp_override_target {
    struct cJSON *model, *cluster;
    struct sbp_settings *settings;
};

/* Makes the change of a word. option: "--set" or "--sweep", for messages. E_USAGE: the word is no
 * KEY=VALUE; E_INPUT: there is no such key (with the nearest one), or the value of a key of the
 * search is wrong. */
enum sbp_status sbp_override(const char *option, const char *word,
                             const struct sbp_override_target *target,
                             struct sbp_diag *diag) SBP_MUST_USE;

#endif

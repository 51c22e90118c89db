/* What a file that the user named is, by what stands in it, so that a file in the wrong place is
 * named as what it is. Input: the JSON of a file, or its first bytes. Output: a refusal that says
 * which command takes such a file. */
#ifndef SBP_PLANNER_PLAN_INPUT_KIND_H
#define SBP_PLANNER_PLAN_INPUT_KIND_H

#include "base/json/json.h"

enum sbp_input_kind {
    SBP_INPUT_MODEL,
    SBP_INPUT_CLUSTER,
    SBP_INPUT_RUNTIME,
    SBP_INPUT_PLAN,
    SBP_INPUT_STRATEGY,     /* layers with roles, for `sbplan price --strategy` */
    SBP_INPUT_PROBLEM,      /* of `sbplan solve` */
    SBP_INPUT_MEASUREMENTS, /* samples of a calibration, or a log of a benchmark */
    SBP_INPUT_UNKNOWN
};

/* The kind by its keys; UNKNOWN where they are those of none, or of several. */
enum sbp_input_kind sbp_input_kind_of(const struct cJSON *root);

/* Whether a file is JSON of that kind; false where it cannot be read. */
bool sbp_input_kind_is(const char *path, enum sbp_input_kind kind);

/* Refuses a file that is surely of another kind: "p.json: this is a plan, not a model: ...". One
 * whose kind is unknown is left to its reader; a plan is a strategy, too. E_INPUT. */
enum sbp_status sbp_input_kind_check(const struct sbp_json *root,
                                     enum sbp_input_kind wanted) SBP_MUST_USE;

/* As sbp_json_open with sbp_input_kind_check; a text that is no JSON because it holds measurements
 * is refused as such. E_INPUT, E_IO, E_MEMORY; *root is NULL then. */
enum sbp_status sbp_input_kind_open(const char *path, enum sbp_input_kind wanted,
                                    struct cJSON **root, struct sbp_json *at,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif

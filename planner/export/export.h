/* Says a plan to a trainer: the nearest layout that the trainer's own files can express, what is
 * lost on the way, and the price of the plan as exported.
 *
 * Input: a plan and a target. Output: a second plan, of the same model and cluster, whose strategy
 * is what the target expresses; a line for everything in which it differs from the first; and the
 * text of a file. Targets that split layers by degrees get the cheapest of the degrees that layers
 * of the plan have, as planner/degrees lays them out.
 */
#ifndef SBP_PLANNER_EXPORT_EXPORT_H
#define SBP_PLANNER_EXPORT_EXPORT_H

#include "base/text.h"
#include "planner/degrees/degrees.h"
#include "planner/plan/request.h"

struct sbp_export_target;

/* Names of the targets, NULL behind the last. */
const char *sbp_export_name(int place);
/* The target at a place of the names. */
const struct sbp_export_target *sbp_export_target(int place);
/* "the argument list of Megatron-LM" */
const char *sbp_export_what(const struct sbp_export_target *target);

/* A search that keeps to plans that a target can express: its space, keys as of --set, and a bit
 * for each ZeRO level and recompute mode that may be taken (0: any). */
struct sbp_export_search {
    enum sbp_space_kind space;
    const char *const *set; /* "regather=true", ended by NULL */
    unsigned zero_levels, recomputes;
};
/* NULL: nothing restricts a search to the target. */
const struct sbp_export_search *sbp_export_search(const struct sbp_export_target *target);
/* Names of the targets that have one, NULL behind the last; the target at a place of these. */
const char *sbp_export_search_name(int place);
const struct sbp_export_target *sbp_export_search_target(int place);

/* Whether the target trains a model at all. E_INPUT: what is legal. */
enum sbp_status sbp_export_check_model(const struct sbp_export_target *target,
                                       const struct sbp_workload *workload,
                                       struct sbp_diag *diag) SBP_MUST_USE;

#define SBP_EXPORT_LOSSES 32
struct sbp_export {
    const struct sbp_export_target *target;
    const struct sbp_plan *given; /* borrowed */
    struct sbp_plan plan;         /* as exported; must not be moved */
    struct sbp_degrees degrees;   /* all given */
    int pieces, given_pieces;
    const int *blocks, *given_blocks; /* (pieces) of each, in the model's order */
    const int *layers;                /* (pieces) the same; a block may be several layers, and a
                                         layer that does not repeat is none (degrees.h) */
    double given_s, exported_s;
    int64_t given_bytes, exported_bytes; /* the most of a device */
    int loss_count;
    const char *loss[SBP_EXPORT_LOSSES]; /* sentences, of the arena */
    struct sbp_arena arena;
};

/* Finds the plan as exported. options: limits of the search for it. E_INPUT, without a file's name
 * in front: what the target cannot express at all, and what is legal; E_MEMORY. The export may be
 * freed either way. */
enum sbp_status sbp_export_make(const struct sbp_plan *given,
                                const struct sbp_export_target *target,
                                const struct sbp_solver_options *options, struct sbp_export *export,
                                struct sbp_diag *diag) SBP_MUST_USE;
void sbp_export_free(struct sbp_export *export);

/* The files of an export: path itself, or several whose names begin with it. */
struct sbp_export_file {
    struct sbp_text name, text; /* a text may hold zeros */
};
struct sbp_export_files {
    int count;
    struct sbp_export_file *file; /* owned */
};
/* Makes the files; adds a loss for what they do not hold, as keys of the model that a trainer has
 * no argument for. Nothing is written. E_INPUT as above; E_MEMORY. The files may be freed either
 * way.
 */
enum sbp_status sbp_export_write(struct sbp_export *export, const char *path,
                                 struct sbp_export_files *files,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_export_files_free(struct sbp_export_files *files);

#endif

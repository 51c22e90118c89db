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
#include "planner/inner/cut_solve.h"
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
    bool layouts; /* all layers split alike: sbp_export_find searches */
    bool all;     /* the target keeps every plan: nothing is restricted */
};
/* NULL: nothing restricts a search to the target. */
const struct sbp_export_search *sbp_export_search(const struct sbp_export_target *target);
/* Names of the targets that have one, NULL behind the last; the target at a place of these. */
const char *sbp_export_search_name(int place);
const struct sbp_export_target *sbp_export_search_target(int place);

/* The best plan of a target whose layers are all split alike. */
struct sbp_export_found {
    struct sbp_outcome outcome; /* its strategies are of `arena`, below */
    struct sbp_degrees degrees; /* with a plan: all given */
    struct sbp_parallel parallel;
    enum sbp_schedule schedule; /* beside the degrees */
    int layouts;                /* how many there are */
};
/* Searches all layouts that the target can express of the plan's model and cluster, each by
 * sbp_outer_search under the degrees' fixes; the plan is only read. Stages are cut as
 * sbp_export_list_layouts says, full recompute is of one block at a time. micro_batch: of the
 * request's given keys, that of plan->cut.parallel is kept; other keys are the layouts'. The
 * request's limits hold over all of them. A layout that is refuted costs no less than the plan
 * found, so that the outcome's bound holds over all. E_INPUT: no layout has a legal strategy, why
 * of the first; E_MEMORY. */
enum sbp_status sbp_export_find(const struct sbp_plan *plan, const struct sbp_export_target *target,
                                const struct sbp_request *request, struct sbp_arena *arena,
                                struct sbp_export_found *found, struct sbp_diag *diag) SBP_MUST_USE;
/* Cuts a plan, which has no strategy, under the schedule and with the units of what was found, and
 * makes the fixes of its degrees; the strategy is the caller's to set. As sbp_degrees_apply. */
enum sbp_status sbp_export_lay_out(struct sbp_plan *plan, const struct sbp_export_target *target,
                                   const struct sbp_degrees *degrees, enum sbp_schedule schedule,
                                   struct sbp_arena *arena, struct sbp_degrees_plan *made,
                                   struct sbp_diag *diag) SBP_MUST_USE;

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
    bool by_module;               /* layers are split as given, beside what the degrees say */
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

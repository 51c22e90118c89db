/* The table of strategy spaces (--space): the roles that operators play in each, the meshes, and
 * the choices around the strategy that it leaves open. Spaces are built, searched and explained
 * from it.
 *
 * `full` is the free search. Every other space is a published way to train, whose best plan shows
 * the most that this way can reach.
 */
#ifndef SBP_PLANNER_SPACE_SPACE_TABLE_H
#define SBP_PLANNER_SPACE_SPACE_TABLE_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"
#include "planner/space/solve_request.h"

struct sbp_cut; /* costmodel/program/cut.h */

/* The choices in how a step is cut in time that are left to the search. The plan's parallel decides
 * the others, as --set gave them or sbp_space_begin left them. */
struct sbp_outer {
    bool pipeline, micro_batch, recompute, regather, offload;
    int least_stages;     /* 2 where the space needs a pipeline, else 1 */
    unsigned zero_levels; /* bit z: level z may be chosen; exactly one bit: the space's level */
    bool per_layer_zero;  /* levels are chosen by layer, not one for all */
    unsigned schedules;   /* bit s of enum sbp_schedule, for several stages; 0: as given */
    bool allow_delayed_gradients;
};

/* Meshes over which layers are split. */
enum sbp_mesh_rule {
    SBP_MESH_FREE, /* every layer has a mesh of its own */
    SBP_MESH_BEST, /* one tensor x data mesh for all layers, the best */
    SBP_MESH_NODE, /* tensor parallelism on all levels but the outermost, data parallelism there */
};

struct sbp_space_rule {
    const char *summary;
    /* Whether operators of the entry play its role of their own accord. */
    bool (*plays)(const struct sbp_op_entry *entry, int role);
    unsigned splits; /* bit d: tensors may rest split by dimension d (SBP_DIM_BATCH, ...) */
    /* Whether they may play it where no role of `divides` divides their sizes; tensors may then
     * rest whole, too. NULL: there are no last resorts. */
    bool (*resorts)(const struct sbp_op_entry *entry, int role);
    bool (*divides)(const struct sbp_op_entry *entry, int role);
    bool plays_spare; /* operators play spare roles, too, and tensors may rest in any state */
    enum sbp_mesh_rule mesh;
    bool splits_tokens;   /* tensor axes split tokens outside of products, where these divide:
                             sequence parallelism (Korthikanti et al., 2022, section 4.2.2) */
    bool linears_on_grid; /* the model's linears are SUMMA's ("linears": "summa") */
    struct sbp_outer outer;
};

const struct sbp_space_rule *sbp_space_rule(enum sbp_space_kind kind);
/* A line about the space for the help. */
const char *sbp_space_summary(enum sbp_space_kind kind);

/* Whether `full` holds every plan of a space. */
bool sbp_space_is_part_of_full(enum sbp_space_kind kind);

/* Tuples of a cut's operators with every role, those that sizes rule out among them. */
double sbp_space_open_tuples(const struct sbp_cut *cut);
/* Whether a solve of one cut searches every role and rest that a plan may state: in space full,
 * after the first pass, where there are at most SBP_SPACE_MOST_OPEN_TUPLES. A labelled space is as
 * open as the one that it labels. */
bool sbp_space_opens(const struct sbp_solve_request *request, const struct sbp_cut *cut);

/* Changes a model's JSON before it is read, where the space asks for it: SUMMA's linears work on
 * grids. E_MEMORY. */
enum sbp_status sbp_space_change_model(enum sbp_space_kind kind, struct cJSON *model,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Sets how a plan without a strategy is cut, where the request gives nothing: ZeRO level, schedule,
 * delayed gradients and the fewest stages of the request's space. E_INPUT where the request gives a
 * value outside of the space: "parallel: KEY: the mistake, the legal values". */
enum sbp_status sbp_space_begin(const struct sbp_request *request, struct sbp_plan *plan,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif

/* What each space of strategies is: which roles operators play in it, on which meshes, and what of
 * the step around the strategy it leaves open. One table, from which spaces are built, searched
 * and explained.
 *
 * `full` is the free search; every other space is a published way to train, and its best plan is
 * what that way can do at most.
 */
#ifndef SBP_PLANNER_SPACE_SPACE_TABLE_H
#define SBP_PLANNER_SPACE_SPACE_TABLE_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"

/* What a search may choose of how a step is cut in time. What it may not choose is as the plan's
 * parallel has it: as --set gave it, else as sbp_space_begin leaves it. */
struct sbp_outer {
    bool pipeline, micro_batch, recompute, offload;
    int least_stages;     /* 2 where the space is nothing without a pipeline, else 1 */
    unsigned zero_levels; /* bit z: level z may be chosen; exactly one bit: the space's level */
    bool per_layer_zero;  /* levels are chosen by layer, not one for all */
    unsigned schedules;   /* bit s of enum sbp_schedule, for several stages; 0: as given */
    bool allow_delayed_gradients;
};

/* Meshes that the space splits every layer on. */
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
    /* Whether they may play it where no role of `divides` divides them; tensors may then rest
     * whole, too. NULL: there are no last resorts. */
    bool (*resorts)(const struct sbp_op_entry *entry, int role);
    bool (*divides)(const struct sbp_op_entry *entry, int role);
    bool rests_freely; /* tensors may stay partial or whole between operators (resting_layouts.c) */
    enum sbp_mesh_rule mesh;
    bool splits_tokens;   /* on tensor axes outside of products, tokens are split where they divide:
                             sequence parallelism (Korthikanti et al., 2022, section 4.2.2) */
    bool linears_on_grid; /* the model's linears are SUMMA's ("linears": "summa") */
    struct sbp_outer outer;
};

const struct sbp_space_rule *sbp_space_rule(enum sbp_space_kind kind);
/* A line about the space for the help. */
const char *sbp_space_summary(enum sbp_space_kind kind);

/* Whether every plan of a space is one of full's, too. */
bool sbp_space_is_part_of_full(enum sbp_space_kind kind);

/* Whether a key of --set was given; key: one of sbp_parallel_keys. */
bool sbp_request_gives(const struct sbp_request *request, const char *key);

/* Changes a model's JSON as the space has it, before it is read: SUMMA's linears work on grids.
 * E_MEMORY. */
enum sbp_status sbp_space_change_model(enum sbp_space_kind kind, struct cJSON *model,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Cuts a plan without a strategy as the request's space fixes it, where the request gives nothing
 * else: ZeRO level, schedule, delayed gradients, the fewest stages that the space works on. E_INPUT
 * where what is given is not of the space: "parallel: KEY: what is wrong, what is legal". */
enum sbp_status sbp_space_begin(const struct sbp_request *request, struct sbp_plan *plan,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif

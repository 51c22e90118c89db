/* Shardings of single modules of torchtitan's llama: where each operand lies over the axes of
 * tensor parallel. A layout's name there (spmd_types) is that of a state here: R is B, I is M, S(d)
 * a split, P a sum, each with the dual gradient (costmodel/layout/distribution.h). */
#ifndef SBP_PLANNER_EXPORT_EXPORT_MODULES_H
#define SBP_PLANNER_EXPORT_EXPORT_MODULES_H

#include "planner/plan/plan.h"

enum sbp_export_lie {
    SBP_EXPORT_LIES_BY_TOKEN,
    SBP_EXPORT_LIES_BY_FEATURE,
    SBP_EXPORT_LIES_WHOLE,
    SBP_EXPORT_LIES_MIRRORED,
    SBP_EXPORT_LIES_SUMMED,
    SBP_EXPORT_LIES_MIXED /* not all tensor axes alike, or by batch */
};

/* Operators of a block, in the graph's order. */
enum sbp_export_part {
    SBP_EXPORT_NORM1,
    SBP_EXPORT_Q,
    SBP_EXPORT_Q_ROTARY,
    SBP_EXPORT_KV,
    SBP_EXPORT_K_ROTARY,
    SBP_EXPORT_HEADS,
    SBP_EXPORT_PROJECTION,
    SBP_EXPORT_ADD1,
    SBP_EXPORT_NORM2,
    SBP_EXPORT_GATE_UP,
    SBP_EXPORT_SWIGLU,
    SBP_EXPORT_DOWN,
    SBP_EXPORT_ADD2,
    SBP_EXPORT_PARTS
};

struct sbp_export_modules {
    const struct sbp_plan *plan; /* borrowed */
    sbp_axes tensor, context;    /* the others split the batch of everything */
    enum sbp_export_lie residual;
};

/* Whether modules of torchtitan's llama can be sharded as the plan's layers are; if so *m says over
 * which axes. */
bool sbp_export_modules_of(const struct sbp_plan *plan, struct sbp_export_modules *m);
/* Members of a group over some axes. */
int64_t sbp_export_modules_ways(const struct sbp_export_modules *m, sbp_axes axes);
/* Whether the axes of another plan, of the same layers and devices, are at the same levels. */
bool sbp_export_modules_placed(const struct sbp_export_modules *m, const struct sbp_plan *plan);
/* Changes rests of a copy of the plan's strategy to those of torchtitan, where a module moves its
 * input or its output at once. */
void sbp_export_modules_straighten(const struct sbp_export_modules *m,
                                   struct sbp_strategy *strategy);
/* Whether a linear layer's weights are whole over the tensor axes. */
bool sbp_export_modules_repeat(const struct sbp_export_modules *m);

/* Where an operator's first input, output and resting output lie. */
enum sbp_export_lie sbp_export_lie_in(const struct sbp_export_modules *m, int op);
enum sbp_export_lie sbp_export_lie_out(const struct sbp_export_modules *m, int op);
enum sbp_export_lie sbp_export_lie_rest(const struct sbp_export_modules *m, int op);
/* The operators of the block that begins at `first`; false: none does. */
bool sbp_export_block(const struct sbp_graph *graph, int first, int block[SBP_EXPORT_PARTS]);

#endif

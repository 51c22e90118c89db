/* Says a plan in the words of those who train: degrees of tensor, pipeline, data, context and
 * expert parallelism, read off its roles, with the blocks of each stage and the tokens of a step.
 *
 * A free plan splits layers in different ways: a degree is the one of most layers, and where others
 * have another one, the line says from which to which.
 */
#ifndef SBP_PLANNER_REPORT_LAYOUT_LINE_H
#define SBP_PLANNER_REPORT_LAYOUT_LINE_H

#include "planner/plan/plan.h"

/* A degree over layers: that of most of them, the least and the most. */
struct sbp_layout_degree {
    int64_t common, least, most;
};

struct sbp_layout_line {
    const struct sbp_plan *plan; /* borrowed */
    struct sbp_layout_degree tensor, data, context, expert, expert_tensor, zero;
    int64_t micro_batch;    /* sequences a replica, by the common data degree */
    int64_t tokens;         /* a step; 0: the model reads none */
    bool sequence_parallel; /* most residual adds are split by sequence beside context parallel */
    int pieces;             /* stages x chunks */
    const int *blocks;      /* (pieces) in the model's order; in the arena */
};

/* first: (pieces + 1) operators at which pieces begin, as the step has them. E_MEMORY. */
enum sbp_status sbp_layout_line_make(const struct sbp_plan *plan, const int *first,
                                     struct sbp_arena *arena,
                                     struct sbp_layout_line *layout) SBP_MUST_USE;
/* "TP 8, PP 8 x 3 interleaved, DP 16, CP 1, EP 1, ZeRO 1, micro-batch 1 a replica, full recompute".
 * Returns buffer (SBP_LAYOUT_BYTES). */
#define SBP_LAYOUT_BYTES 256
const char *sbp_layout_line_text(const struct sbp_layout_line *layout, char *buffer);
/* "4 blocks a stage, 3.15 M tokens a step"; "" where there is neither. */
const char *sbp_layout_line_sizes(const struct sbp_layout_line *layout, char *buffer);
/* Adds the object `layout`; *failed is set when memory is out. */
void sbp_layout_line_put(struct cJSON *json, const struct sbp_layout_line *layout, bool *failed);

#endif

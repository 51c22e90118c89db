/* The strategy that a trainer's degrees stand for: tensor, pipeline, data, context and expert
 * parallelism as Megatron-LM lays them out (Narayanan et al., 2021; Korthikanti et al., 2022).
 *
 * Input: a plan, which has a model and a cluster, and the degrees. Output: the plan cut so, and a
 * fix for every layer that has a choice, from which the strategy follows: what is left to search is
 * the names of axes. Tensor parallel takes the innermost devices of a stage, then context, then
 * data; stages take the outermost. Where the space of strategies has no exact analogue the nearest
 * is taken, and a note says so.
 */
#ifndef SBP_PLANNER_DEGREES_DEGREES_H
#define SBP_PLANNER_DEGREES_DEGREES_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"

/* 0 stands for "not given", where no other word is said. */
struct sbp_degrees {
    int64_t tensor, context;       /* ways; default 1 */
    int64_t pipeline, chunks;      /* stages, pieces of each; default 1. From 2 pieces on the
                                      schedule is interleaved unless the plan has another one */
    bool pyramid;                  /* stages are groups of devices (struct sbp_parallel) */
    int64_t data;                  /* replicas; default: what is left of the devices */
    int64_t expert, expert_tensor; /* ways that the experts of a layer lie apart, and that each of
                                      them is split; default 1 and `tensor` */
    int64_t micro_batch;           /* sequences a replica works on at a time; default 1 */
    int64_t zero;                  /* ZeRO level; SBP_ANY: not given, 0 */
    int recompute;                 /* enum sbp_recompute; SBP_ANY: not given, none */
    int64_t recompute_every;       /* blocks of a segment under full recompute; default 1 */
    bool sequence_parallel;        /* norms and residual adds split by sequence over tensor axes */
    bool offload;                  /* optimizer states in host memory */
    int stage_blocks_count; /* pieces whose blocks are given; 0: as the plan's parallel says */
    uint16_t stage_blocks[SBP_MOST_GIVEN_PIECES];
};

/* Nothing given. */
struct sbp_degrees sbp_degrees_none(void);

#define SBP_DEGREES_NOTES      8
#define SBP_DEGREES_NOTE_BYTES 200
struct sbp_degrees_plan {
    struct sbp_degrees degrees; /* all given */
    const struct sbp_fix *fix;  /* (fix_count) one for each layer that has a choice */
    int fix_count;
    int note_count; /* where the nearest strategy stands for what was asked */
    char note[SBP_DEGREES_NOTES][SBP_DEGREES_NOTE_BYTES];
};

/* The layer of a model by architecture that each operator belongs to ("block3.qkv": 3), -1 outside
 * of layers and in other models. Returns how many layers there are; what repeats (a block of
 * costmodel/program/stages.h) may be several of them, or none. layer: (op_count). */
int sbp_degrees_layers(const struct sbp_graph *graph, int *layer);

/* Layers of the largest block: 2 where every other layer has experts, which repeat in pairs; 1 in
 * models without layers or repeats. layer, block: (op_count) as sbp_degrees_layers and
 * sbp_stages_blocks mark them. */
int sbp_degrees_block_layers(const struct sbp_graph *graph, const int *layer, const int *block);

/* The least divisor of a number above d, which is at least 0; 0: there is none. */
int64_t sbp_degrees_next_divisor(int64_t number, int64_t d);

/* Completes the degrees. E_INPUT, "degrees: KEY: what is wrong, what is legal", names the degree
 * (tp, pp, dp, ...) that does not divide the devices, the heads, the layers or the batch. */
enum sbp_status sbp_degrees_complete(const struct sbp_degrees *asked,
                                     const struct sbp_workload *workload,
                                     struct sbp_degrees *degrees,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* Completes the degrees, cuts the plan's step so (what no degree says of it stays as the plan's
 * parallel has it, but for the micro-batch) and makes the fixes, which come out of the arena. The
 * plan stays without a strategy: a search under the fixes gives it one
 * (planner/outer/branch_and_bound.h). E_INPUT as above, and what sbp_plan_cut fails with; E_MEMORY.
 */
enum sbp_status sbp_degrees_apply(const struct sbp_degrees *asked, struct sbp_plan *plan,
                                  struct sbp_arena *arena, struct sbp_degrees_plan *made,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif

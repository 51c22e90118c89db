/* Small models, meshes and random legal strategies for the tests of the executor. */
#ifndef SBP_TESTS_RUN_PLANS_H
#define SBP_TESTS_RUN_PLANS_H

#include "base/math/random.h"
#include "costmodel/program/step.h"

struct plan {
    struct sbp_arena arena;
    struct sbp_cluster cluster;
    struct sbp_mesh mesh; /* of a stage */
    struct sbp_graph graph;
    struct sbp_parallel parallel; /* all of the batch at once, in one stage, until drawn */
    struct sbp_strategy strategy;
    struct sbp_step step;
    struct sbp_program *program; /* of the first stage */
};

/* A model file as text and a mesh of levels (outermost first, 0 ends). Fails the test on error. */
void plan_open(struct plan *plan, const char *model, const int *levels);
/* Draws micro-batches, ZeRO, recomputation and boxing once more for the step; before the strategy.
 */
void plan_cut_step(struct plan *plan, struct sbp_random *random);
/* Makes the mesh of a stage of plan->parallel; false: the model or the mesh has no such stages. */
bool plan_place_stages(struct plan *plan);
/* What draws how a plan is cut, as the functions below do. */
typedef bool cut_function(struct plan *plan, struct sbp_random *random);
/* Draws several stages and their schedule, which has a flush, too; false: the model or the mesh has
 * none. */
bool plan_cut_stages(struct plan *plan, struct sbp_random *random);
/* Draws stages, or one, under a schedule without a flush; false: the model or the mesh has none. */
bool plan_cut_cyclic(struct plan *plan, struct sbp_random *random);
/* The same with all of two stages or more on each device. */
bool plan_cut_on_device(struct plan *plan, struct sbp_random *random);
/* The same with all of them on each stage, of which there are as many, and nothing that replicas do
 * not take. */
bool plan_cut_replicas(struct plan *plan, struct sbp_random *random);
/* The same on a pyramid of groups of devices, of one each or of the plan's mesh each, of which the
 * plan's cluster gets as many; 24 ranks at the most. */
bool plan_cut_pyramid(struct plan *plan, struct sbp_random *random);
/* Gives weights owners in two of three plans that shard nothing, drawn from a stream of its own:
 * all else stays the same plan. */
void plan_draw_owner(struct plan *plan, struct sbp_random random);
/* The plan's step cut as `parallel` says, with its own strategy where that is NULL, compiled for a
 * run in `real`; the test fails where it is not legal. */
void plan_step(const struct plan *plan, const struct sbp_parallel *parallel,
               const struct sbp_strategy *strategy, enum sbp_real real, struct sbp_step *step);
/* A random strategy that sbp_strategy_close accepts, compiled for a run in `real`. wide: work is
 * repeated, sums live on and activations rest whole, too; else every axis splits. */
void plan_randomise(struct plan *plan, struct sbp_random *random, bool wide,
                    enum sbp_boxing_mode boxing, enum sbp_real real);
void plan_close(struct plan *plan);

/* A random model as text: kind 0 perceptron, 1 residual perceptron, 2 GPT, 3 perceptron of widths
 * that no group divides, for a mesh of one axis: roles and rests that divide are many, and legal
 * ones few; 4 residual perceptron with norms and gates, 5 decoder as Llama, Qwen3 or Gemma,
 * 6 mixture of experts; 7 encoder as BERT, 8 images cut into patches, 9 convolutions; 10 decoder as
 * DeepSeek; 11 one of the others' kinds, the linears of which are SUMMA's. */
void random_model(struct sbp_random *random, int kind, char *text, int size);
/* Levels of a mesh of 2, 4, 6 or 8 ranks. */
const int *random_levels(struct sbp_random *random);

#endif

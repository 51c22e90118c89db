/* A small GPT in a grid of G_inter stages x G_data replicas x G_intra ways a layer, as Myelin,
 * DeepSpeed and Megatron-LM lay it out, compiled for a run on CPU ranks.
 *
 * The cluster is Summit's, slowed for ranks that compute at `flops`: alphas and betas are those of
 * the links that a grid's groups span (tests/papers/summit.h), and grow so that a layer's products
 * and the all-reduce of a sequence's activations take times in the proportion that 12 billion
 * parameters have on V100 GPUs.
 */
#ifndef SBP_TESTS_PAPERS_CPU_GRID_H
#define SBP_TESTS_PAPERS_CPU_GRID_H

#include "costmodel/program/step.h"
#include "tests/papers/summit.h"

struct cpu_grid_setting {
    struct setting_gpt model;
    int sequence, vocabulary, batch;
    const char *optimizer; /* as a model file has it: JSON */
    enum summit_framework framework;
    enum sbp_real real;
    bool plain;   /* what Myelin's authors trained beside: no recomputing, states on the device */
    double flops; /* a second of a rank */
};

struct cpu_grid {
    struct sbp_arena arena;
    struct setting_model model;
    struct sbp_cluster cluster;
    struct sbp_strategy strategy;
    struct sbp_step step;
};

/* Ends the program where sizes do not divide. */
void cpu_grid_open(struct cpu_grid *at, const struct cpu_grid_setting *setting,
                   const struct summit_grid *grid);
void cpu_grid_close(struct cpu_grid *at);

/* Figure 11 of Myelin, small: what each of the three trains with on 12 `times` ranks. Theirs
 * (table II, 12 x 10^9 parameters on 48 GPUs): G_intra x G_inter x G_data of 1 x 6 x 8, 3 x 2 x 8
 * and 3 x 16 x 1; replicas and the batch grow with the GPUs. */
void cpu_grid_figure_11(enum summit_framework framework, int times, double flops,
                        struct cpu_grid_setting *setting, struct summit_grid *grid);
/* "Expected training time" of 300 x 10^9 words (section VI.D). */
double cpu_grid_training_s(const struct cpu_grid_setting *setting, double step_s);

extern const char *const cpu_grid_names[SUMMIT_FRAMEWORKS];

#endif

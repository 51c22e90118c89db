/* Random tiny models of every operator in the catalogue, clusters of 2 .. 8 devices for them with
 * networks from very fast to very slow, and ways to cut a step of one stage. One seed, one set.
 */
#ifndef SBP_TESTS_TINY_MODELS_H
#define SBP_TESTS_TINY_MODELS_H

#include "base/math/random.h"
#include "costmodel/program/parallel.h"
#include "small_models.h"

/* A model of 1 .. 4 operators with weights in a chain or with sums of branches, or a small one of
 * an architecture. */
void tiny_model_draw(struct sbp_random *random, struct small_text *model);
/* One or two levels. */
void tiny_cluster_draw(struct sbp_random *random, struct small_text *cluster);
/* One stage; micro-batches, ZeRO, recompute and regather are drawn over the default. */
void tiny_parallel_draw(struct sbp_random *random, int64_t global_batch,
                        struct sbp_parallel *parallel);

#endif

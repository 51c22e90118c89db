/* A transformer trained on Summit by a grid of G_inter stages x G_data replicas x G_intra ways a
 * layer, as Myelin, DeepSpeed and Megatron-LM lay it out: compiled and priced by sbp_step_make.
 *
 * Ranks go through a stage's G_intra devices first, then through its replica's G_inter stages, then
 * through G_data replicas (Myelin, section III). Levels of the cluster that is priced stand in
 * another order, since stages are parted outermost: stages, replicas, devices of a layer; each has
 * the links of Summit that its groups span.
 */
#ifndef SBP_TESTS_PAPERS_SUMMIT_H
#define SBP_TESTS_PAPERS_SUMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/papers/setting.h"

enum summit_framework { SUMMIT_MYELIN, SUMMIT_DEEPSPEED, SUMMIT_MEGATRON, SUMMIT_FRAMEWORKS };

struct summit_grid {
    int intra, inter, data;
    int micro_batch; /* sequences of a replica */
};

/* summit-v100 as the grid's groups see it. */
void summit_cluster(const struct summit_grid *grid, struct sbp_cluster *cluster);

struct summit_setting {
    struct setting_gpt model;
    int batch;
    enum summit_framework framework;
    double efficiency;     /* share of peak that products reach */
    int64_t reserve_bytes; /* of a device, for contexts and libraries */
};

struct summit_price {
    bool legal; /* sizes divide, and a layer's devices share nodes out */
    bool fits;
    double step_s, bubble_s, exposed_s, device_bytes;
};
struct summit_price summit_price(const struct summit_setting *setting,
                                 const struct summit_grid *grid);

#endif

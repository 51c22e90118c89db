/* Computes the memory that the compiled program of one stage of a pipeline holds on its device. */
#ifndef SBP_TESTS_PAPERS_STAGE_MEMORY_H
#define SBP_TESTS_PAPERS_STAGE_MEMORY_H

#include "tests/papers/pipeline.h"

struct stage_memory {
    double parameters;       /* of the stage */
    double state_bytes;      /* weights, gradients, master copies, moments, the bucket */
    double kept_bytes;       /* of a micro-batch between forward and backward */
    double activation_bytes; /* with so many micro-batches in flight */
};

/* One device a stage; blocks are formed again `setting->every` at a time. */
struct stage_memory stage_memory_of(const struct pipeline_setting *setting, int stage,
                                    int in_flight);

#endif

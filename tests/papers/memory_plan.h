/* The memory that sbplan predicts for a training run as Megatron-LM and its kin lay it out.
 *
 * Tensor-parallel axes are the innermost ones of a stage, context-parallel axes lie around them,
 * data-parallel ones outermost. Projections into a block (qkv, up and the like) are split by
 * columns, those out of it by rows, attention by heads (Shoeybi et al., 2019, section 3); the
 * residual stream between them is whole, or, with sequence parallelism, split by sequence
 * (Korthikanti et al., 2022, section 4.2.2).
 */
#ifndef SBP_TESTS_PAPERS_MEMORY_PLAN_H
#define SBP_TESTS_PAPERS_MEMORY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

struct memory_case {
    struct sbp_text model, cluster, parallel; /* files' texts */
    int64_t tensor, context;                  /* ways; the rest of a stage's devices is data */
    bool sequence_parallel;
    bool vocabulary_split; /* embedding and head over the tensor axes; else those split tokens */
};

#define MEMORY_MOST_STAGES 64
struct memory_stage {
    double state_bytes;    /* parameters, gradients, optimizer states */
    double gathered_bytes; /* of the largest activation that is all-gathered */
    double kept_bytes;     /* what forward leaves for backward, of all micro-batches in flight */
    double live_bytes;     /* most that is in use at once, beside the states */
    double device_bytes;   /* all of it as it is laid out, and the runtime's reserve */
};
struct memory_answer {
    int stages;
    struct memory_stage stage[MEMORY_MOST_STAGES];
};

/* Ends the program with a message when sbplan refuses the case. */
void memory_predict(const struct memory_case *question, struct memory_answer *answer);
double memory_most_bytes(const struct memory_answer *answer);
void memory_case_free(struct memory_case *question);

#endif

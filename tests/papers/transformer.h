/* AutoDDL's transformers, searched as its section 4.5.2 searches: the batch of every product is
 * split in at most so many parts, the most for which the best strategy fits a device.
 */
#ifndef SBP_TESTS_PAPERS_TRANSFORMER_H
#define SBP_TESTS_PAPERS_TRANSFORMER_H

#include "tests/papers/plot.h"
#include "tests/papers/trial.h"

/* Constants of the machine as multiples; 0: as the cluster file has them. */
struct machine {
    double alpha_scale, beta_scale;
    double efficiency; /* share of peak that products reach */
};

struct transformer_setting {
    const char *model, *cluster;
    int64_t devices; /* 0: all of the cluster's */
    int64_t batch;   /* 0: the model's */
    int64_t stages;
    enum sbp_space_kind space;
    int64_t micro_batch;    /* 0: as many sequences as fit (powers of two) */
    bool least_micro_batch; /* or a sequence for each part */
    int64_t parts;          /* of the batch, at most; 0: the most that fit */
    struct machine machine;
};

struct transformer {
    bool found; /* and fits */
    int64_t parts, micro_batch;
    struct trial trial;          /* of the least micro-batch where none fits */
    char qkv[TRIAL_TUPLE_BYTES]; /* of its first product, by batch, column, row */
};
struct transformer transformer_search(const struct transformer_setting *setting);

/* The seconds that the wide model takes on 128 nodes of Piz Daint, in one stage, by Megatron and by
 * AutoDDL (table 3). transformer_fit chooses the machine's constants to reproduce them. */
#define TRANSFORMER_MEGATRON_S 503.0
#define TRANSFORMER_AUTODDL_S  315.0
struct machine transformer_fit(void);

/* Shares of communication and of a step that are saved. */
struct gains {
    double communication, step;
};

/* Gains over nodes: theirs, by the cluster file, by fitted constants. */
enum { GAINS_KINDS = 3, GAINS_POINTS = 3 };
struct gains_plot {
    const char *title;
    double most; /* per cent */
    double nodes[GAINS_POINTS];
    struct gains saved[GAINS_KINDS][GAINS_POINTS];
};
void gains_draw(const struct gains_plot *gains, struct sbp_text *svg);

#endif

/* A transformer trained as Myelin trains it: stages of whole blocks, message-driven, every stage on
 * a GPU of Summit, replicas with all-reduced gradients; priced by the cost model, played by the
 * timeline.
 */
#ifndef SBP_TESTS_PAPERS_PIPELINE_H
#define SBP_TESTS_PAPERS_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "costmodel/timeline/timeline.h"
#include "tests/papers/setting.h"

#define PIPELINE_MOST_STAGES 48
/* Ranks go through a pipeline first (G_inter stages), then through replicas (G_data). */
struct pipeline_setting {
    struct setting_gpt model;
    enum sbp_schedule schedule;
    int limit; /* micro-batches in flight, message-driven; 0: as many as stages */
    int inter, data, micro_batch, batch;
    int every;         /* blocks between checkpoints (ac) */
    double efficiency; /* share of peak that products reach */
    bool offload;      /* optimizer states in host memory */
    int64_t bucket;    /* parameters of a bucket */
    int chunk;         /* buckets of an all-reduce beside the optimizer; 0: all-reduce first */
    double slow_bytes,
        slow_factor; /* all-reduces of up to so many bytes take so many times longer */
};

struct pipeline_times {
    double pipeline_s;  /* without all-reduce and optimizer */
    double sync_s;      /* all-reduce alone */
    double optimizer_s; /* alone */
    double step_s;
    double stage_parameters;
    int in_flight[PIPELINE_MOST_STAGES]; /* micro-batches whose activations a stage holds, at most
                                          */
};

struct pipeline_times pipeline_play(const struct pipeline_setting *setting);

#endif

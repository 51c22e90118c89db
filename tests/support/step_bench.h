/* A step of a model on a cluster, for tests; what is refused fails the test. */
#ifndef SBP_TESTS_STEP_BENCH_H
#define SBP_TESTS_STEP_BENCH_H

#include "costmodel/program/step.h"
#include "tests/support/program_oracle.h"
#include "tests/support/unit.h"

/* A model, a cluster, and a step of them. */
struct bench {
    struct oracle_model model;
    struct sbp_cluster cluster, stage;
    struct sbp_mesh mesh;
    struct sbp_arena arena;
    struct sbp_strategy strategy;
    struct sbp_parallel parallel;
    struct sbp_element_bytes bytes;
    const int *first; /* of pieces; NULL: as the model is cut */
    struct sbp_step step;
};

/* Sets the micro-batch and an empty strategy on a stage's mesh; the caller labels it. */
static inline void bench_open(struct bench *b, const char *text, const struct sbp_cluster *cluster,
                              const struct sbp_parallel *parallel)
{
    struct sbp_diag diag = {{0}};
    int level;
    oracle_model_read(&b->model, text);
    b->cluster = *cluster;
    b->parallel = parallel == NULL ? sbp_parallel_default(&b->model.graph) : *parallel;
    b->bytes = sbp_program_element_bytes(&b->model.graph.precision);
    if (sbp_graph_set_micro_batch(&b->model.graph, b->parallel.micro_batch, &diag) != SBP_OK ||
        sbp_parallel_stage_cluster(&b->parallel, cluster, &b->stage, &level, &diag) != SBP_OK ||
        sbp_mesh_make(&b->stage, &b->mesh, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_init(&b->arena);
    assert_int_equal(sbp_strategy_alloc(&b->model.graph, &b->arena, &b->strategy), SBP_OK);
    for (int t = 0; t < b->model.graph.tensor_count; t++)
        b->strategy.rest[t] = sbp_dist_all(SBP_STATE_S(SBP_DIM_BATCH));
}

static inline void bench_run(struct bench *b)
{
    struct sbp_diag diag = {{0}};
    const struct sbp_step_request request = {.graph = &b->model.graph,
                                             .cluster = &b->cluster,
                                             .parallel = &b->parallel,
                                             .strategy = &b->strategy,
                                             .bytes = &b->bytes,
                                             .first = b->first};
    if (sbp_strategy_close(&b->model.graph, &b->mesh, &b->strategy, &diag) != SBP_OK ||
        sbp_step_make(&request, &b->step, &diag) != SBP_OK)
        fail_msg("%s: %s", b->model.graph.name, diag.text);
}

static inline void bench_close(struct bench *b)
{
    sbp_step_free(&b->step);
    sbp_arena_free(&b->arena);
    oracle_model_drop(&b->model);
}

static inline struct sbp_cluster flat(int64_t devices)
{
    struct sbp_cluster cluster = oracle_cluster(1, (int64_t[]){devices});
    cluster.level[0].alpha_s = 1e-5;
    cluster.level[0].beta_s_per_byte = 1e-10;
    cluster.level[0].ports = 0;
    return cluster;
}

/* One chunk a device, recompute by the block and buckets of one parameter. */
static inline struct sbp_parallel in_stages(int64_t pipeline, int64_t micro_batch,
                                            enum sbp_schedule schedule)
{
    return (struct sbp_parallel){.pipeline = pipeline,
                                 .chunks = 1,
                                 .micro_batch = micro_batch,
                                 .schedule = schedule,
                                 .recompute_every = 1,
                                 .bucket_parameters = 1};
}

static inline int64_t slot(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif

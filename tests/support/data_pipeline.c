#include "tests/support/data_pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "executor/actor/actor_check.h"

static int64_t elements_of(const struct data_shape *shape)
{
    return (int64_t)shape->batch * shape->features;
}

/* ---- the stages ----------------------------------------------------------------------------- */

static enum sbp_status read_records(const struct data_pipeline *pipeline, int64_t step,
                                    const void *in, void *out)
{
    const int64_t bytes = elements_of(&pipeline->shape);
    (void)in;
    return pread(pipeline->file, out, (size_t)bytes, step * bytes) == bytes ? SBP_OK : SBP_E_IO;
}

static enum sbp_status prepare(const struct data_pipeline *pipeline, int64_t step, const void *in,
                               void *out)
{
    const unsigned char *bytes = in;
    float *x = out;
    for (int record = 0; record < pipeline->shape.batch; record++) {
        const float gamma = (float)(0.5 + sbp_random_unit_at(1, (uint64_t)step, (uint64_t)record));
        for (int i = 0; i < pipeline->shape.features; i++)
            *x++ = powf((float)*bytes++ / 255.0F, gamma) - 0.5F;
    }
    return SBP_OK;
}

static enum sbp_status copy(const struct data_pipeline *pipeline, int64_t step, const void *in,
                            void *out)
{
    const int64_t bytes = elements_of(&pipeline->shape) * (int64_t)sizeof(float);
    (void)step;
    return pipeline->device->memory->from_host(out, in, bytes);
}

/* output = x weights; the error against x itself gives the gradient. */
static enum sbp_status train(const struct data_pipeline *pipeline, int64_t step, const void *in,
                             void *out)
{
    const struct sbp_kernels *k = pipeline->kernels;
    const int64_t batch = pipeline->shape.batch, features = pipeline->shape.features;
    const float *x = in;
    (void)step;
    (void)out;
    k->linear_forward(pipeline->output, x, pipeline->weights, NULL, batch, features, features);
    for (int64_t i = 0; i < batch * features; i++)
        pipeline->output[i] -= x[i];
    k->linear_backward_weight(pipeline->gradient, NULL, x, pipeline->output, batch, features,
                              features, 0);
    const float rate = 1e-3F / (float)batch;
    for (int64_t i = 0; i < features * features; i++)
        pipeline->weights[i] -= rate * pipeline->gradient[i];
    return SBP_OK;
}

static const struct {
    const char *name;
    enum sbp_actor_lane lane;
    enum sbp_status (*run)(const struct data_pipeline *pipeline, int64_t step, const void *in,
                           void *out);
    int element_bytes; /* of its result; 0: none */
} stages[DATA_STAGES] = {
    [DATA_READ] = {"read", SBP_LANE_READ, read_records, 1},
    [DATA_PREPARE] = {"prepare", SBP_LANE_PREPARE, prepare, sizeof(float)},
    [DATA_COPY] = {"copy", SBP_LANE_COPY_IN, copy, sizeof(float)},
    [DATA_TRAIN] = {"train", SBP_LANE_COMPUTE, train, 0},
};

/* Stages are timed each by the thread that runs it. */
static enum sbp_status run_stage(struct data_pipeline *pipeline, int stage, int64_t step,
                                 const void *in, void *out, struct sbp_diag *diag)
{
    const double start_s = sbp_thread_cpu_s();
    const enum sbp_status status = stages[stage].run(pipeline, step, in, out);
    pipeline->spent_s[stage] += sbp_thread_cpu_s() - start_s;
    return status == SBP_OK ? SBP_OK
                            : sbp_fail(diag, status, "step %lld: %s failed", (long long)step,
                                       stages[stage].name);
}

/* ---- as actors ------------------------------------------------------------------------------ */

static enum sbp_status act(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    const bool reads = act->actor > DATA_READ, writes = act->actor < DATA_TRAIN;
    return run_stage(context, act->actor, act->number, reads ? act->in[0].memory : NULL,
                     writes ? act->out[0].memory : NULL, diag);
}

static void draw(const struct data_shape *shape, int slots, struct sbp_actor_graph *graph,
                 struct sbp_arena *arena)
{
    int result = -1;
    sbp_actor_graph_init(graph, arena, 1);
    for (int s = 0; s < DATA_STAGES; s++) {
        const int actor = sbp_actor_add(graph, stages[s].name, 0, stages[s].lane, shape->steps);
        if (s > 0)
            (void)sbp_actor_add_read(graph, actor, result, 1);
        if (stages[s].element_bytes > 0)
            result = sbp_actor_add_register(graph, actor, slots,
                                            elements_of(shape) * stages[s].element_bytes);
    }
}

enum sbp_status data_pipeline_run(struct data_pipeline *pipeline, int slots, struct sbp_diag *diag)
{
    struct sbp_arena arena = {0};
    struct sbp_actor_graph graph;
    draw(&pipeline->shape, slots, &graph, &arena);
    const struct sbp_actor_job job = {
        .graph = &graph, .memory = pipeline->device->memory, .action = act, .context = pipeline};
    enum sbp_status status = sbp_actor_check(&graph, diag);
    if (status == SBP_OK)
        status = sbp_actor_run(&job, diag);
    sbp_arena_free(&arena);
    return status;
}

/* ---- without -------------------------------------------------------------------------------- */

static enum sbp_status run_stages(struct data_pipeline *pipeline, int64_t step, int end,
                                  struct sbp_diag *diag)
{
    void *const result[] = {pipeline->bytes, pipeline->host, pipeline->batch, NULL};
    for (int s = 0; s < end; s++)
        SBP_TRY(run_stage(pipeline, s, step, s > 0 ? result[s - 1] : NULL, result[s], diag));
    return SBP_OK;
}

enum sbp_status data_pipeline_in_turn(struct data_pipeline *pipeline, struct sbp_diag *diag)
{
    for (int64_t step = 0; step < pipeline->shape.steps; step++)
        SBP_TRY(run_stages(pipeline, step, DATA_STAGES, diag));
    return SBP_OK;
}

enum sbp_status data_pipeline_synthetic(struct data_pipeline *pipeline, struct sbp_diag *diag)
{
    SBP_TRY(run_stages(pipeline, 0, DATA_TRAIN, diag));
    for (int64_t step = 0; step < pipeline->shape.steps; step++)
        SBP_TRY(run_stage(pipeline, DATA_TRAIN, step, pipeline->batch, NULL, diag));
    return SBP_OK;
}

/* ---- open and close ------------------------------------------------------------------------- */

static enum sbp_status write_file(struct data_pipeline *pipeline, struct sbp_diag *diag)
{
    const char *folder = getenv("TMPDIR");
    const int64_t bytes = elements_of(&pipeline->shape);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/records-XXXXXX", folder != NULL ? folder : "/tmp");
    pipeline->file = mkstemp(path);
    if (pipeline->file < 0 || unlink(path) != 0)
        return sbp_fail(diag, SBP_E_IO, "%s: cannot be made", path);
    unsigned char *record = pipeline->bytes;
    for (int64_t step = 0; step < pipeline->shape.steps; step++) {
        for (int64_t i = 0; i < bytes; i++)
            record[i] = (unsigned char)sbp_random_bits_at(2, (uint64_t)step, (uint64_t)i);
        if (pwrite(pipeline->file, record, (size_t)bytes, step * bytes) != bytes)
            return sbp_fail(diag, SBP_E_IO, "%s: cannot be written", path);
    }
    return SBP_OK;
}

enum sbp_status data_pipeline_open(struct data_pipeline *pipeline, const struct data_shape *shape,
                                   struct sbp_diag *diag)
{
    const int64_t features = shape->features, elements = elements_of(shape);
    const int64_t real = (int64_t)sizeof(float);
    *pipeline =
        (struct data_pipeline){.shape = *shape, .device = sbp_device("cpu", diag), .file = -1};
    const struct sbp_memory_ops *memory = pipeline->device->memory;
    pipeline->kernels = pipeline->device->kernels(SBP_F32);
    pipeline->bytes = memory->allocate(elements);
    pipeline->host = memory->allocate(elements * real);
    pipeline->batch = memory->allocate(elements * real);
    pipeline->output = memory->allocate(elements * real);
    pipeline->weights = memory->allocate(features * features * real);
    pipeline->gradient = memory->allocate(features * features * real);
    if (pipeline->bytes == NULL || pipeline->host == NULL || pipeline->batch == NULL ||
        pipeline->output == NULL || pipeline->weights == NULL || pipeline->gradient == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a data pipeline");
    return write_file(pipeline, diag);
}

void data_pipeline_reset(struct data_pipeline *pipeline)
{
    const size_t weights = (size_t)pipeline->shape.features * (size_t)pipeline->shape.features;
    memset(pipeline->weights, 0, weights * sizeof *pipeline->weights);
    memset(pipeline->spent_s, 0, sizeof pipeline->spent_s);
}

void data_pipeline_close(struct data_pipeline *pipeline)
{
    const struct sbp_memory_ops *memory = pipeline->device->memory;
    memory->release(pipeline->bytes);
    memory->release(pipeline->host);
    memory->release(pipeline->batch);
    memory->release(pipeline->output);
    memory->release(pipeline->weights);
    memory->release(pipeline->gradient);
    if (pipeline->file >= 0)
        (void)close(pipeline->file);
}

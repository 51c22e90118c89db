/* The lanes of a rank's GPU: streams, and the events between them.
 *
 * An event is recorded at the end of what comes first, and waited for by the stream of what comes
 * behind; the host waits for none of them. Two events around each task tell its time.
 */
#include <stdlib.h>

#include "executor/gpu/rank_cuda_priv.h"

/* ---- the lane at hand ------------------------------------------------------------------------ */

static void turn(struct sbp_gpu_rank *gpu, enum sbp_device_lane lane)
{
    gpu->lane = lane;
    gpu->cuda.stream = gpu->stream[lane];
    gpu->cuda.scratch = gpu->scratch[lane];
}

/* `behind` waits for what `before` has been given so far, whose end the event marks. */
static void order(struct sbp_gpu_rank *gpu, enum sbp_device_lane before, cudaEvent_t event,
                  enum sbp_device_lane behind)
{
    sbp_gpu_rank_keep("cudaEventRecord", cudaEventRecord(event, gpu->stream[before]));
    sbp_gpu_rank_keep("cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->stream[behind], event, 0));
}

/* A lane waits for the end of a task that was given. */
static void await(const struct sbp_gpu_rank *gpu, enum sbp_device_lane lane, int64_t task)
{
    sbp_gpu_rank_keep("cudaStreamWaitEvent",
                      cudaStreamWaitEvent(gpu->stream[lane], gpu->task[task].end, 0));
}

/* The event of the task's begin marks first where compute is, then when its own lane comes to it:
 * a wait is for the record before it. */
static void lanes_begin(int64_t task, enum sbp_device_lane lane, int64_t behind)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    gpu->given[gpu->given_count++] = task;
    gpu->is_in_task = true;
    if (lane != SBP_DEVICE_COMPUTE)
        order(gpu, SBP_DEVICE_COMPUTE, gpu->task[task].begin, lane);
    if (behind >= 0)
        await(gpu, lane, behind);
    turn(gpu, lane);
    sbp_gpu_rank_keep("cudaEventRecord", cudaEventRecord(gpu->task[task].begin, gpu->stream[lane]));
}

static void lanes_await(int64_t task)
{
    await(sbp_gpu_rank_here(), SBP_DEVICE_COMPUTE, task);
}

static void lanes_end(bool beside)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    const int64_t task = gpu->given[gpu->given_count - 1];
    sbp_gpu_rank_keep("cudaEventRecord",
                      cudaEventRecord(gpu->task[task].end, gpu->stream[gpu->lane]));
    if (gpu->lane != SBP_DEVICE_COMPUTE && !beside)
        lanes_await(task);
    gpu->is_in_task = false;
    turn(gpu, SBP_DEVICE_COMPUTE);
}

static void *lanes_stream(void)
{
    const struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    return gpu->stream[gpu->lane];
}

static enum sbp_status lanes_copy(void *to, const void *from, int64_t bytes, bool to_host)
{
    const struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    if (bytes < 0)
        return SBP_E_RANGE;
    if (bytes > 0)
        sbp_gpu_rank_keep("cudaMemcpyAsync",
                          cudaMemcpyAsync(to, from, (size_t)bytes,
                                          to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                          gpu->stream[gpu->lane]));
    return gpu->failed;
}

/* ---- times ----------------------------------------------------------------------------------- */

static void lanes_begin_step(void)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    gpu->given_count = gpu->over = 0;
    sbp_gpu_rank_keep("cudaEventRecord",
                      cudaEventRecord(gpu->origin, gpu->stream[SBP_DEVICE_COMPUTE]));
}

static double since_origin(const struct sbp_gpu_rank *gpu, cudaEvent_t event)
{
    float elapsed_ms = 0;
    sbp_gpu_rank_keep("cudaEventElapsedTime",
                      cudaEventElapsedTime(&elapsed_ms, gpu->origin, event));
    return (double)elapsed_ms * 1e-3;
}

static void lanes_times(int64_t task, double *begin_s, double *end_s)
{
    const struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    *begin_s = since_origin(gpu, gpu->task[task].begin);
    *end_s = since_origin(gpu, gpu->task[task].end);
}

static void lanes_watch(enum sbp_status (*look)(void *context, int64_t task, struct sbp_diag *diag),
                        void *context)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    gpu->look = look;
    gpu->context = context;
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum sbp_status sbp_gpu_lanes_open(struct sbp_gpu_rank *gpu, struct sbp_diag *diag)
{
    for (int lane = 0; lane < SBP_DEVICE_LANES; lane++)
        SBP_CUDA_TRY(diag, cudaStreamCreateWithFlags, &gpu->stream[lane], cudaStreamNonBlocking);
    SBP_CUDA_TRY(diag, cudaEventCreate, &gpu->origin);
    SBP_TRY(sbp_gpu_context_open(&gpu->cuda, gpu->stream[SBP_DEVICE_COMPUTE], diag));
    gpu->scratch[SBP_DEVICE_COMPUTE] = gpu->cuda.scratch;
    struct sbp_diag why = {0};
    const enum sbp_status status =
        sbp_cuda_allocate(SBP_CUDA_SCRATCH_BYTES, &gpu->scratch[SBP_DEVICE_COLLECTIVE], &why);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "the scratch of collectives: %s", why.text);
    turn(gpu, SBP_DEVICE_COMPUTE);
    return SBP_OK;
}

/* Ignores codes: a failure here follows one of a call that was checked, or harms nobody. */
void sbp_gpu_lanes_close(struct sbp_gpu_rank *gpu)
{
    for (int64_t i = 0; i < 2 * gpu->tasks; i++) {
        const cudaEvent_t event = i % 2 == 0 ? gpu->task[i / 2].begin : gpu->task[i / 2].end;
        if (event != NULL)
            (void)cudaEventDestroy(event);
    }
    if (gpu->origin != NULL)
        (void)cudaEventDestroy(gpu->origin);
    for (int lane = 0; lane < SBP_DEVICE_LANES; lane++) {
        sbp_memory_cuda.release(gpu->scratch[lane]);
        if (gpu->stream[lane] != NULL)
            (void)cudaStreamDestroy(gpu->stream[lane]);
    }
    free(gpu->task);
    free(gpu->given);
}

static enum sbp_status lanes_reserve(int64_t tasks, struct sbp_diag *diag)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    gpu->task = calloc((size_t)tasks, sizeof *gpu->task);
    gpu->given = calloc((size_t)tasks, sizeof *gpu->given);
    if (gpu->task == NULL || gpu->given == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "device cuda: out of memory for %lld tasks",
                        (long long)tasks);
    gpu->tasks = tasks;
    for (int64_t i = 0; i < tasks; i++) {
        SBP_CUDA_TRY(diag, cudaEventCreate, &gpu->task[i].begin);
        SBP_CUDA_TRY(diag, cudaEventCreate, &gpu->task[i].end);
    }
    return SBP_OK;
}

const struct sbp_device_lanes sbp_gpu_rank_lanes = {
    .reserve = lanes_reserve,
    .watch = lanes_watch,
    .look = sbp_gpu_rank_look,
    .begin_step = lanes_begin_step,
    .begin = lanes_begin,
    .end = lanes_end,
    .await = lanes_await,
    .stream = lanes_stream,
    .copy = lanes_copy,
    .times = lanes_times,
};

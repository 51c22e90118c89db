/* The `cuda` device: this thread's rank on a GPU.
 *
 * The table of a device is called without a context, as the CPU's is. CUDA itself keeps a thread's
 * current device, and what a rank has on it stands beside that, in the thread's own memory; so this
 * file is compiled into modules alone, and no library of ours has state.
 */
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "executor/gpu/rank_cuda_priv.h"

enum { STAGING_BYTES = 4 << 20 };

static _Thread_local struct sbp_gpu_rank here;

struct sbp_gpu_rank *sbp_gpu_rank_here(void)
{
    return &here;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static enum sbp_status check_cublas(struct sbp_diag *diag, const char *call, cublasStatus_t code)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return SBP_OK;
    return sbp_fail(diag, code == CUBLAS_STATUS_ALLOC_FAILED ? SBP_E_MEMORY : SBP_E_BACKEND,
                    "%s: %s", call, cublasGetStatusString(code));
}

/* Says which device has failed, and passes the failure on. */
static enum sbp_status name_device(enum sbp_status status, const struct sbp_diag *why,
                                   struct sbp_diag *diag)
{
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "device cuda: %s", why->text);
}

/* Keeps the first failure: who calls next may not pass its own on, and is told of that one. */
static enum sbp_status keep(enum sbp_status status, const struct sbp_diag *why)
{
    if (here.failed == SBP_OK && status != SBP_OK) {
        here.failed = status;
        here.why = *why;
    }
    return status;
}

void sbp_gpu_rank_keep(const char *call, cudaError_t code)
{
    struct sbp_diag why = {0};
    (void)keep(sbp_cuda_check(&why, call, (int)code), &why);
}

/* The first task given that is not over; -1. */
static int64_t first_under_way(void)
{
    const int64_t ended = here.given_count - here.is_in_task;
    while (here.over < ended && cudaEventQuery(here.task[here.given[here.over]].end) == cudaSuccess)
        here.over++;
    (void)cudaGetLastError(); /* or the next launch is blamed for what is not ready */
    return here.over < here.given_count ? here.given[here.over] : -1;
}

/* Yields at first: other ranks, and NCCL's own threads, may need the core. */
static void pass_time(int looks)
{
    enum { YIELDS = 64 };
    const struct timespec pause = {.tv_nsec = 20000};
    if (looks < YIELDS)
        (void)sched_yield();
    else
        (void)nanosleep(&pause, NULL);
}

static enum sbp_status wait_for(cudaStream_t stream, struct sbp_diag *diag)
{
    for (int looks = 0;; looks += looks < INT_MAX) {
        const cudaError_t code = cudaStreamQuery(stream);
        if (code != cudaErrorNotReady)
            return sbp_cuda_check(diag, "cudaStreamQuery", (int)code);
        (void)cudaGetLastError();
        if (here.look != NULL)
            SBP_TRY(here.look(here.context, first_under_way(), diag));
        pass_time(looks);
    }
}

void sbp_gpu_rank_look(void)
{
    struct sbp_diag why = {0};
    if (here.look != NULL)
        (void)keep(here.look(here.context, first_under_way(), &why), &why);
}

static enum sbp_status wait(cudaStream_t stream, struct sbp_diag *diag)
{
    SBP_TRY(sbp_cuda_check(diag, "a kernel was not launched", here.cuda.error));
    SBP_TRY(check_cublas(diag, here.refused_call, here.refused));
    return wait_for(stream, diag);
}

enum sbp_status sbp_gpu_rank_wait(enum sbp_device_lane lane)
{
    struct sbp_diag why = {0};
    if (here.failed == SBP_OK)
        (void)keep(wait(here.stream[lane], &why), &why);
    return here.failed;
}

static enum sbp_status cuda_finish(struct sbp_diag *diag)
{
    for (int lane = 0; lane < SBP_DEVICE_LANES; lane++)
        if (sbp_gpu_rank_wait((enum sbp_device_lane)lane) != SBP_OK)
            return name_device(here.failed, &here.why, diag);
    here.staged_bytes = 0;
    return SBP_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int cuda_count(void)
{
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

static enum sbp_status choose_device(int place, struct sbp_diag *diag)
{
    struct sbp_diag why = {0};
    int devices = 0;
    enum sbp_status status =
        sbp_cuda_check(&why, "cudaGetDeviceCount", (int)cudaGetDeviceCount(&devices));
    if (status == SBP_OK && devices == 0)
        status = sbp_fail(&why, SBP_E_BACKEND, "cudaGetDeviceCount: 0");
    if (status != SBP_OK || devices < 1)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "place %d of the host finds no GPU: %s", place,
                        why.text);
    if (place >= 0)
        SBP_CUDA_TRY(diag, cudaSetDevice, place % devices);
    return SBP_OK;
}

static enum sbp_status make(struct sbp_gpu_rank *gpu, struct sbp_diag *diag)
{
    SBP_TRY(sbp_gpu_lanes_open(gpu, diag));
    SBP_CUDA_TRY(diag, cudaMallocHost, (void **)&gpu->staging, STAGING_BYTES);
    SBP_TRY(check_cublas(diag, "cublasCreate", cublasCreate(&gpu->blas)));
    SBP_TRY(check_cublas(diag, "cublasSetStream",
                         cublasSetStream(gpu->blas, gpu->stream[SBP_DEVICE_COMPUTE])));
    /* Sums of products of 16 bits are not joined in 16 bits. */
    SBP_TRY(check_cublas(
        diag, "cublasSetMathMode",
        cublasSetMathMode(gpu->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    for (int real = 0; real < SBP_REALS; real++)
        if (real != SBP_F64)
            sbp_cuda_kernels_make(&gpu->kernels[real], (enum sbp_real)real);
    return SBP_OK;
}

/* Whether the device has code of this build: asked of the smallest kernel, and waited for. */
static enum sbp_status try_kernel(struct sbp_gpu_rank *gpu, struct sbp_diag *diag)
{
    gpu->kernels[SBP_F32].absolute(&gpu->cuda, gpu->cuda.scratch, 1);
    return wait(gpu->stream[SBP_DEVICE_COMPUTE], diag);
}

/* Ignores codes: a failure here follows one of a call that was checked, or harms nobody. */
static void cuda_close(void)
{
    sbp_gpu_products_close(&here);
    if (here.blas != NULL)
        (void)cublasDestroy(here.blas);
    if (here.staging != NULL)
        (void)cudaFreeHost(here.staging);
    sbp_gpu_lanes_close(&here);
    here = (struct sbp_gpu_rank){.tasks = 0};
}

static enum sbp_status cuda_open(int place, struct sbp_diag *diag)
{
    struct sbp_diag why = {0};
    here = (struct sbp_gpu_rank){.tasks = 0};
    enum sbp_status status = choose_device(place, &why);
    if (status == SBP_OK)
        status = make(&here, &why);
    if (status == SBP_OK)
        status = try_kernel(&here, &why);
    if (status != SBP_OK)
        cuda_close();
    return name_device(status, &why, diag);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t device_free_bytes(void)
{
    size_t free_bytes, whole_bytes;
    return cudaMemGetInfo(&free_bytes, &whole_bytes) == cudaSuccess ? (int64_t)free_bytes : -1;
}

static void *device_allocate(int64_t bytes)
{
    struct sbp_diag why = {0};
    void *memory;
    const enum sbp_status status = sbp_cuda_allocate(bytes, &memory, &why);
    if (status != SBP_E_MEMORY)
        (void)keep(status, &why);
    return memory;
}

static void device_release(void *memory)
{
    sbp_memory_cuda.release(memory);
}

/* Waits for the lane at hand alone: what other lanes do is ordered by events. A copy of memory that
 * is not pinned would wait for what comes before it, too, but without looking. */
static enum sbp_status copy_now(void *to, const void *from, int64_t bytes, bool to_host)
{
    SBP_TRY(sbp_gpu_rank_wait(here.lane));
    SBP_TRY(sbp_gpu_rank_lanes.copy(to, from, bytes, to_host));
    return sbp_gpu_rank_wait(here.lane);
}

static enum sbp_status device_to_host(void *host, const void *memory, int64_t bytes)
{
    return copy_now(host, memory, bytes, true);
}

/* Small pieces are on their way behind what the lane does when this returns, in a copy. */
static enum sbp_status device_from_host(void *memory, const void *host, int64_t bytes)
{
    if (bytes < 0 || bytes > STAGING_BYTES)
        return copy_now(memory, host, bytes, false);
    if (bytes > STAGING_BYTES - here.staged_bytes)
        SBP_TRY(cuda_finish(NULL));
    unsigned char *const copy = here.staging + here.staged_bytes;
    if (bytes > 0)
        memcpy(copy, host, (size_t)bytes);
    here.staged_bytes += bytes;
    return sbp_gpu_rank_lanes.copy(memory, copy, bytes, false);
}

static const struct sbp_memory_ops device_memory = {
    .name = "cuda",
    .allocate = device_allocate,
    .release = device_release,
    .to_host = device_to_host,
    .from_host = device_from_host,
};

/* Pinned, or copies would not run beside the rank. */
static void *pinned_allocate(int64_t bytes)
{
    void *memory = NULL;
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    if (bytes < 0 || cudaMallocHost(&memory, size) != cudaSuccess)
        return NULL;
    memset(memory, 0, size);
    return memory;
}

static void pinned_release(void *memory)
{
    if (memory != NULL)
        (void)cudaFreeHost(memory); /* what fails here failed before */
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct sbp_kernels *cuda_kernels(enum sbp_real real)
{
    static const struct sbp_kernels *const tables[SBP_REALS] = {
        [SBP_F32] = &sbp_gpu_rank_f32,
        [SBP_REAL_BF16] = &sbp_gpu_rank_bf16,
        [SBP_REAL_FP16] = &sbp_gpu_rank_fp16};
    return tables[real];
}

static const struct sbp_kernels *cuda_kernels_tf32(enum sbp_real real)
{
    return real == SBP_F32 ? &sbp_gpu_rank_tf32 : cuda_kernels(real);
}

static const struct sbp_device_ops cuda_ops = {
    .name = "cuda",
    .memory = &device_memory,
    .count = cuda_count,
    .allocate_host = pinned_allocate,
    .release_host = pinned_release,
    .lanes = &sbp_gpu_rank_lanes,
    .open = cuda_open,
    .close = cuda_close,
    .finish = cuda_finish,
    .free_bytes = device_free_bytes,
    .kernels = cuda_kernels,
    .kernels_tf32 = cuda_kernels_tf32,
};

/* The program that loads the module finds this. */
extern const struct sbp_device_module sbp_device_module;
__attribute__((visibility("default")))
const struct sbp_device_module sbp_device_module = {.version = SBP_VERSION, .ops = &cuda_ops};

/* The `cuda` device: this thread's rank on a GPU.
 *
 * The table of a device is called without a context, as the CPU's is. CUDA itself keeps a thread's
 * current device, and what a rank has on it stands beside that, in the thread's own memory; so this
 * file is compiled into modules alone, and no library of ours has state.
 */
#include "executor/gpu/rank_cuda_priv.h"

static _Thread_local struct sbp_gpu_rank here;

/* Records the begin of what the device will do without a wait between. */
struct sbp_gpu_rank *sbp_gpu_rank_here(void)
{
    if (!here.is_timed)
        here.is_timed = cudaEventRecord(here.before, here.stream) == cudaSuccess;
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

static enum sbp_status take_time(struct sbp_diag *diag)
{
    float elapsed_ms = 0;
    if (here.is_timed)
        SBP_CUDA_TRY(diag, cudaEventRecord, here.behind, here.stream);
    SBP_CUDA_TRY(diag, cudaStreamSynchronize, here.stream);
    if (here.is_timed)
        SBP_CUDA_TRY(diag, cudaEventElapsedTime, &elapsed_ms, here.before, here.behind);
    here.is_timed = false;
    here.compute_s += (double)elapsed_ms * 1e-3;
    return SBP_OK;
}

static enum sbp_status wait(struct sbp_diag *diag)
{
    SBP_TRY(sbp_cuda_check(diag, "a kernel was not launched", here.cuda.error));
    SBP_TRY(check_cublas(diag, here.refused_call, here.refused));
    return take_time(diag);
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

static enum sbp_status cuda_finish(struct sbp_diag *diag)
{
    struct sbp_diag why = {0};
    if (here.failed == SBP_OK)
        (void)keep(wait(&why), &why);
    return name_device(here.failed, &here.why, diag);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static enum sbp_status choose_device(int place, struct sbp_diag *diag)
{
    struct sbp_diag why = {0};
    int devices = 0;
    enum sbp_status status =
        sbp_cuda_check(&why, "cudaGetDeviceCount", (int)cudaGetDeviceCount(&devices));
    if (status == SBP_OK && devices == 0)
        status = sbp_fail(&why, SBP_E_BACKEND, "cudaGetDeviceCount: 0");
    if (status != SBP_OK)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "place %d of the host finds no GPU: %s", place,
                        why.text);
    if (place >= 0)
        SBP_CUDA_TRY(diag, cudaSetDevice, place % devices);
    return SBP_OK;
}

static enum sbp_status make(struct sbp_gpu_rank *gpu, struct sbp_diag *diag)
{
    SBP_CUDA_TRY(diag, cudaStreamCreateWithFlags, &gpu->stream, cudaStreamNonBlocking);
    SBP_CUDA_TRY(diag, cudaEventCreate, &gpu->before);
    SBP_CUDA_TRY(diag, cudaEventCreate, &gpu->behind);
    SBP_TRY(check_cublas(diag, "cublasCreate", cublasCreate(&gpu->blas)));
    SBP_TRY(check_cublas(diag, "cublasSetStream", cublasSetStream(gpu->blas, gpu->stream)));
    /* Sums of products of 16 bits are not joined in 16 bits. */
    SBP_TRY(check_cublas(
        diag, "cublasSetMathMode",
        cublasSetMathMode(gpu->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    for (int real = 0; real < SBP_REALS; real++)
        if (real != SBP_F64)
            sbp_cuda_kernels_make(&gpu->kernels[real], (enum sbp_real)real);
    return sbp_gpu_context_open(&gpu->cuda, gpu->stream, diag);
}

/* Whether the device has code of this build: asked of the smallest kernel, and waited for. */
static enum sbp_status try_kernel(struct sbp_gpu_rank *gpu, struct sbp_diag *diag)
{
    gpu->kernels[SBP_F32].absolute(&gpu->cuda, gpu->cuda.scratch, 1);
    return wait(diag);
}

/* Ignores codes: a failure here follows one of a call that was checked, or harms nobody. */
static void cuda_close(void)
{
    sbp_gpu_products_close(&here);
    sbp_gpu_context_close(&here.cuda);
    if (here.blas != NULL)
        (void)cublasDestroy(here.blas);
    if (here.behind != NULL)
        (void)cudaEventDestroy(here.behind);
    if (here.before != NULL)
        (void)cudaEventDestroy(here.before);
    if (here.stream != NULL)
        (void)cudaStreamDestroy(here.stream);
    here = (struct sbp_gpu_rank){.stream = NULL};
}

static enum sbp_status cuda_open(int place, struct sbp_diag *diag)
{
    struct sbp_diag why = {0};
    here = (struct sbp_gpu_rank){.stream = NULL};
    enum sbp_status status = choose_device(place, &why);
    if (status == SBP_OK)
        status = make(&here, &why);
    if (status == SBP_OK)
        status = try_kernel(&here, &why);
    if (status != SBP_OK)
        cuda_close();
    return name_device(status, &why, diag);
}

static double cuda_compute_s(void)
{
    return here.compute_s;
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

/* Copies have a stream of their own, so they wait for what this one still reads or writes. */
static enum sbp_status device_to_host(void *host, const void *memory, int64_t bytes)
{
    struct sbp_diag why = {0};
    SBP_TRY(cuda_finish(NULL));
    return keep(sbp_cuda_copy(host, memory, bytes, true, &why), &why);
}

static enum sbp_status device_from_host(void *memory, const void *host, int64_t bytes)
{
    struct sbp_diag why = {0};
    SBP_TRY(cuda_finish(NULL));
    return keep(sbp_cuda_copy(memory, host, bytes, false, &why), &why);
}

static const struct sbp_memory_ops device_memory = {
    .name = "cuda",
    .allocate = device_allocate,
    .release = device_release,
    .to_host = device_to_host,
    .from_host = device_from_host,
};

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
    .open = cuda_open,
    .close = cuda_close,
    .finish = cuda_finish,
    .free_bytes = device_free_bytes,
    .compute_s = cuda_compute_s,
    .kernels = cuda_kernels,
    .kernels_tf32 = cuda_kernels_tf32,
};

/* The program that loads the module finds this. */
extern const struct sbp_device_module sbp_device_module;
__attribute__((visibility("default")))
const struct sbp_device_module sbp_device_module = {.version = SBP_VERSION, .ops = &cuda_ops};

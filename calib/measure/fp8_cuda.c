#include "calib/measure/fp8_cuda.h"

#include <cublasLt.h>
#include <stdlib.h>

#include "executor/gpu/gpu.h"

#define WORKSPACE_BYTES ((int64_t)32 << 20) /* as much as NVIDIA advises for Hopper */
#define ASKED_SIZE      1024                /* of the product by which a device is asked */

struct sbp_fp8 {
    cublasLtHandle_t handle;
    void *workspace;
    float *scale; /* of either factor: 1 */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, y; /* a is the library's first factor, our b */
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulAlgo_t way;
};

static enum sbp_status check_lt(struct sbp_diag *diag, const char *call, cublasStatus_t code)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return SBP_OK;
    return sbp_fail(diag, code == CUBLAS_STATUS_ALLOC_FAILED ? SBP_E_MEMORY : SBP_E_BACKEND,
                    "%s: %s", call, cublasLtGetStatusString(code));
}

#define LT_TRY(diag, function, ...) SBP_TRY(check_lt((diag), #function, function(__VA_ARGS__)))

/* --- the library's --- */

/* Ignores codes: what is destroyed here was made. */
static void forget_plan(struct sbp_fp8 *fp8)
{
    if (fp8->y != NULL)
        (void)cublasLtMatrixLayoutDestroy(fp8->y);
    if (fp8->b != NULL)
        (void)cublasLtMatrixLayoutDestroy(fp8->b);
    if (fp8->a != NULL)
        (void)cublasLtMatrixLayoutDestroy(fp8->a);
    if (fp8->product != NULL)
        (void)cublasLtMatmulDescDestroy(fp8->product);
    fp8->y = fp8->b = fp8->a = NULL;
    fp8->product = NULL;
}

void sbp_fp8_close(struct sbp_fp8 *fp8)
{
    if (fp8 == NULL)
        return;
    forget_plan(fp8);
    if (fp8->preference != NULL)
        (void)cublasLtMatmulPreferenceDestroy(fp8->preference);
    if (fp8->handle != NULL)
        (void)cublasLtDestroy(fp8->handle);
    sbp_memory_cuda.release(fp8->scale);
    sbp_memory_cuda.release(fp8->workspace);
    free(fp8);
}

static enum sbp_status open_all(struct sbp_fp8 *fp8, struct sbp_diag *diag)
{
    const float one = 1;
    const size_t bytes = (size_t)WORKSPACE_BYTES;
    fp8->workspace = sbp_memory_cuda.allocate(WORKSPACE_BYTES);
    fp8->scale = sbp_memory_cuda.allocate((int64_t)sizeof one);
    if (fp8->workspace == NULL || fp8->scale == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "the GPU has no memory for products in fp8");
    if (sbp_memory_cuda.from_host(fp8->scale, &one, (int64_t)sizeof one) != SBP_OK)
        return sbp_fail(diag, SBP_E_BACKEND, "a scale cannot be copied to the GPU");
    LT_TRY(diag, cublasLtCreate, &fp8->handle);
    LT_TRY(diag, cublasLtMatmulPreferenceCreate, &fp8->preference);
    LT_TRY(diag, cublasLtMatmulPreferenceSetAttribute, fp8->preference,
           CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    return SBP_OK;
}

enum sbp_status sbp_fp8_open(struct sbp_fp8 **fp8, struct sbp_diag *diag)
{
    *fp8 = calloc(1, sizeof **fp8);
    if (*fp8 == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const enum sbp_status status = open_all(*fp8, diag);
    if (status != SBP_OK) {
        sbp_fp8_close(*fp8);
        *fp8 = NULL;
    }
    return status;
}

/* --- one product --- */

/* Only one factor of a product may be E5M2: the gradient of the output. */
static cudaDataType_t type_of(bool is_gradient)
{
    return is_gradient ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

static enum sbp_status describe(struct sbp_fp8 *fp8, const struct sbp_gemm_point *product,
                                struct sbp_diag *diag)
{
    const uint64_t m = (uint64_t)product->m, n = (uint64_t)product->n, k = (uint64_t)product->k;
    const cublasOperation_t turned = CUBLAS_OP_T, as_is = CUBLAS_OP_N;
    const int8_t is_fast = product->pass == SBP_PASS_FORWARD;
    const void *scale = fp8->scale;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        const void *value;
        size_t bytes;
    } wanted[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned},
                  {CUBLASLT_MATMUL_DESC_TRANSB, &as_is, sizeof as_is},
                  {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &is_fast, sizeof is_fast},
                  {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, sizeof scale},
                  {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale, sizeof scale}};
    LT_TRY(diag, cublasLtMatmulDescCreate, &fp8->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        LT_TRY(diag, cublasLtMatmulDescSetAttribute, fp8->product, wanted[i].attribute,
               wanted[i].value, wanted[i].bytes);
    /* The library stores by columns: its (k,n) has the rows of b (n,k). */
    LT_TRY(diag, cublasLtMatrixLayoutCreate, &fp8->a,
           type_of(product->pass == SBP_PASS_WEIGHT_GRADIENT), k, n, product->k);
    LT_TRY(diag, cublasLtMatrixLayoutCreate, &fp8->b,
           type_of(product->pass == SBP_PASS_INPUT_GRADIENT), k, m, product->k);
    LT_TRY(diag, cublasLtMatrixLayoutCreate, &fp8->y, CUDA_R_16BF, n, m, product->n);
    return SBP_OK;
}

enum sbp_status sbp_fp8_plan(struct sbp_fp8 *fp8, const struct sbp_gemm_point *product,
                             struct sbp_diag *diag)
{
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    forget_plan(fp8);
    SBP_TRY(describe(fp8, product, diag));
    LT_TRY(diag, cublasLtMatmulAlgoGetHeuristic, fp8->handle, fp8->product, fp8->a, fp8->b, fp8->y,
           fp8->y, fp8->preference, 1, &best, &found);
    if (found < 1 || best.state != CUBLAS_STATUS_SUCCESS)
        return sbp_fail(diag, SBP_E_BACKEND,
                        "cublasLtMatmulAlgoGetHeuristic: no fp8 product of "
                        "%lld x %lld x %lld",
                        (long long)product->m, (long long)product->n, (long long)product->k);
    fp8->way = best.algo;
    return SBP_OK;
}

enum sbp_status sbp_fp8_multiply(struct sbp_fp8 *fp8, void *y, const void *a, const void *b,
                                 void *stream, struct sbp_diag *diag)
{
    const float one = 1, zero = 0;
    LT_TRY(diag, cublasLtMatmul, fp8->handle, fp8->product, &one, b, fp8->a, a, fp8->b, &zero, y,
           fp8->y, y, fp8->y, &fp8->way, fp8->workspace, (size_t)WORKSPACE_BYTES, stream);
    return SBP_OK;
}

bool sbp_fp8_is_offered(void)
{
    const struct sbp_gemm_point asked = {SBP_FP8, ASKED_SIZE, ASKED_SIZE, ASKED_SIZE,
                                         SBP_PASS_FORWARD};
    struct sbp_fp8 *fp8;
    if (sbp_fp8_open(&fp8, NULL) != SBP_OK)
        return false;
    const bool is_there = sbp_fp8_plan(fp8, &asked, NULL) == SBP_OK;
    sbp_fp8_close(fp8);
    return is_there;
}

/* Products of cuBLASLt take a made-up time.
 *
 * Those in fp8 leave their result where they are small. What is checked is what tensor cores of
 * Hopper ask for: factors whose summed dimension is contiguous, one of them E5M2 at the most, sizes
 * and places of multiples of 16, scales on the device, results in bf16. SBP_DOUBLE_FAIL=fp8:1
 * stands for a GPU without such products.
 *
 * Those with an epilogue are made, as cuBLAS makes its own; operands have to be aligned as was
 * promised when the way was chosen, and what the epilogue reads and writes as it was then. Rows of
 * a gelu's argument are a multiple of 8. SBP_DOUBLE_FAIL=bias:N (gelu:N, dgelu:N, bgrad:N): of the
 * N-th choice with that epilogue there is no way. */
#include <cublasLt.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/gpu_double/gpu_double.h"
#include "tests/support/gpu_double/product_double.h"

#define MOST_COMPUTED 2e6 /* multiplications */

struct cublasLtContext {
    int unused;
};

/* The library's opaque structures hold these here. */
struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t stride;
};
struct product {
    cublasComputeType_t sum;
    cudaDataType_t scale_type;
    cublasOperation_t transa, transb;
    int8_t is_fast;
    const float *scale[2]; /* on the device */
    cublasLtEpilogue_t epilogue;
    const void *vector, *aux; /* of the epilogue */
    int64_t aux_rows;
};
struct preference {
    uint64_t workspace_bytes;
    uint32_t schemes, alignment[4]; /* of a, b, c, d */
};
/* What a way holds of them. */
struct way {
    uint64_t workspace_bytes;
    uint32_t alignment[6]; /* of a, b, c, d, the vector, aux */
};
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "it fits");
_Static_assert(sizeof(struct product) <= sizeof(cublasLtMatmulDescOpaque_t), "it fits");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "it fits");
_Static_assert(sizeof(struct way) <= sizeof(cublasLtMatmulAlgo_t), "it fits");

static struct layout layout_of(cublasLtMatrixLayout_t from)
{
    struct layout layout;
    memcpy(&layout, from, sizeof layout);
    return layout;
}

static struct product product_of(cublasLtMatmulDesc_t from)
{
    struct product product;
    memcpy(&product, from, sizeof product);
    return product;
}

/* --- handles and descriptions --- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (double_fails("cublasLtCreate"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct cublasLtContext *context = calloc(1, sizeof *context);
    *handle = (cublasLtHandle_t)context;
    return context != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free((void *)handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "a failure of the stand-in";
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    const struct preference made = {.schemes = 7, .alignment = {256, 256, 256, 256}};
    *preference = calloc(1, sizeof **preference);
    if (*preference == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(*preference, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    struct preference own;
    memcpy(&own, preference, sizeof own);
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        void *at;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &own.workspace_bytes, sizeof(uint64_t)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &own.schemes, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &own.alignment[0], sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &own.alignment[1], sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &own.alignment[2], sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &own.alignment[3], sizeof(uint32_t)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute && known[i].bytes == bytes) {
            memcpy(known[i].at, value, bytes);
            memcpy(preference, &own, sizeof own);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t sum,
                                        cudaDataType_t scale_type)
{
    const struct product product = {.sum = sum, .scale_type = scale_type};
    *desc = calloc(1, sizeof **desc);
    if (*desc == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(*desc, &product, sizeof product);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    struct product product = product_of(desc);
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *at;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &product.transa, sizeof product.transa},
        {CUBLASLT_MATMUL_DESC_TRANSB, &product.transb, sizeof product.transb},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &product.is_fast, sizeof product.is_fast},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &product.scale[0], sizeof product.scale[0]},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &product.scale[1], sizeof product.scale[1]},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &product.epilogue, sizeof product.epilogue},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product.vector, sizeof product.vector},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &product.aux, sizeof product.aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &product.aux_rows, sizeof product.aux_rows},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute && known[i].bytes == bytes) {
            memcpy(known[i].at, value, bytes);
            memcpy(desc, &product, sizeof product);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride)
{
    const struct layout made = {type, rows, columns, stride};
    *layout = calloc(1, sizeof **layout);
    if (*layout == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(*layout, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

/* --- what tensor cores take --- */

static bool is_factor(const struct layout *layout)
{
    return (layout->type == CUDA_R_8F_E4M3 || layout->type == CUDA_R_8F_E5M2) &&
           layout->stride == (int64_t)layout->rows && layout->rows % 16 == 0 &&
           layout->columns % 16 == 0;
}

static bool is_legal_fp8(const struct product *product, const struct layout *a,
                         const struct layout *b, const struct layout *c, const struct layout *d)
{
    return product->sum == CUBLAS_COMPUTE_32F && product->scale_type == CUDA_R_32F &&
           product->transa == CUBLAS_OP_T && product->transb == CUBLAS_OP_N &&
           double_is_device(product->scale[0], sizeof(float)) &&
           double_is_device(product->scale[1], sizeof(float)) && is_factor(a) && is_factor(b) &&
           (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) && a->rows == b->rows &&
           d->type == CUDA_R_16BF && d->rows == a->columns && d->columns == b->columns &&
           d->stride == (int64_t)d->rows && memcmp(c, d, sizeof *d) == 0;
}

/* The factor has these sizes, and rows that follow each other, after its operation. */
static bool has_sizes(const struct layout *of, cublasOperation_t operation, uint64_t rows,
                      uint64_t columns)
{
    return of->stride == (int64_t)of->rows &&
           (operation == CUBLAS_OP_N   ? of->rows == rows && of->columns == columns
            : operation == CUBLAS_OP_T ? of->rows == columns && of->columns == rows
                                       : false);
}

static const struct epilogue {
    cublasLtEpilogue_t kind;
    const char *trap;
    bool has_vector, has_aux;
} epilogues[] = {
    {CUBLASLT_EPILOGUE_BIAS, "bias", true, false},
    {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, "gelu", true, true},
    {CUBLASLT_EPILOGUE_DGELU, "dgelu", false, true},
    {CUBLASLT_EPILOGUE_BGRADA, "bgrad", true, false},
};

/* NULL: it is a product in fp8. */
static const struct epilogue *epilogue_of(const struct product *product)
{
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
        if (epilogues[i].kind == product->epilogue)
            return &epilogues[i];
    return NULL;
}

/* Rows are counted by eights, and none is cut off. */
static bool is_legal_epilogue(const struct product *product, const struct layout *d)
{
    const struct epilogue *epilogue = epilogue_of(product);
    return epilogue->has_vector == (product->vector != NULL) &&
           epilogue->has_aux == (product->aux != NULL) &&
           (!epilogue->has_aux ||
            (product->aux_rows % 8 == 0 && product->aux_rows == (int64_t)d->rows));
}

static bool is_legal_wide(const struct product *product, const struct layout *a,
                          const struct layout *b, const struct layout *c, const struct layout *d)
{
    const uint64_t inner = product->transa == CUBLAS_OP_N ? a->columns : a->rows;
    const bool sums = product->sum == CUBLAS_COMPUTE_32F ||
                      (product->sum == CUBLAS_COMPUTE_32F_FAST_TF32 && d->type == CUDA_R_32F);
    return sums && product->scale_type == CUDA_R_32F && a->type == d->type && b->type == d->type &&
           (d->type == CUDA_R_32F || d->type == CUDA_R_16BF || d->type == CUDA_R_16F) &&
           is_legal_epilogue(product, d) && inner > 0 &&
           has_sizes(a, product->transa, d->rows, inner) &&
           has_sizes(b, product->transb, inner, d->columns) &&
           has_sizes(d, CUBLAS_OP_N, d->rows, d->columns) && memcmp(c, d, sizeof *d) == 0;
}

static bool is_legal(const struct product *product, const struct layout *a, const struct layout *b,
                     const struct layout *c, const struct layout *d)
{
    return (epilogue_of(product) != NULL ? is_legal_wide : is_legal_fp8)(product, a, b, c, d);
}

/* The widest access that an address allows. */
static uint32_t access_at(const void *at)
{
    uint32_t bytes = 1;
    while (bytes < 16 && (uintptr_t)at % (2 * bytes) == 0)
        bytes *= 2;
    return bytes;
}

static cublasLtMatmulHeuristicResult_t way_for(const struct preference *preference,
                                               const struct product *product)
{
    cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_SUCCESS};
    struct way way = {.workspace_bytes = preference->workspace_bytes};
    memcpy(way.alignment, preference->alignment, sizeof preference->alignment);
    way.alignment[4] = access_at(product->vector);
    way.alignment[5] = access_at(product->aux);
    memcpy(&result.algo, &way, sizeof way);
    return result;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    const struct product product = product_of(desc);
    const struct layout first = layout_of(a), second = layout_of(b), third = layout_of(c),
                        result = layout_of(d);
    struct preference wishes;
    memcpy(&wishes, preference, sizeof wishes);
    (void)handle;
    *found = 0;
    if (double_fails("cublasLtMatmulAlgoGetHeuristic"))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    const struct epilogue *epilogue = epilogue_of(&product);
    if (double_fails(epilogue != NULL ? epilogue->trap : "fp8"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* Partial sums in the type of the result lose digits, in place they have no order. */
    if (epilogue != NULL && wishes.schemes != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (wanted < 1 || !is_legal(&product, &first, &second, &third, &result))
        return CUBLAS_STATUS_INVALID_VALUE;
    results[0] = way_for(&wishes, &product);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- a product --- */

struct work {
    const uint8_t *a, *b;
    uint16_t *d;
    int a_mantissa, b_mantissa;
    uint64_t m, n, k; /* by columns: d (m,n) = a' (m,k) b (k,n) */
    const float *scale[2];
};

/* Sign, exponent and mantissa of 1 + 4 + 3 or 1 + 5 + 2 bits, without what is no number. */
static float number_of(uint8_t bits, int mantissa_bits)
{
    const int bias = mantissa_bits == 3 ? 7 : 15;
    const int exponent = (bits & 127) >> mantissa_bits;
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int whole = exponent > 0 ? mantissa + (1 << mantissa_bits) : mantissa;
    const float size = ldexpf((float)whole, (exponent > 0 ? exponent : 1) - bias - mantissa_bits);
    return (bits & 128) != 0 ? -size : size;
}

/* Rounds to the nearest, halves to even. */
static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void multiply(void *argument)
{
    const struct work *work = argument;
    const float scale = *work->scale[0] * *work->scale[1];
    for (uint64_t column = 0; column < work->n; column++)
        for (uint64_t row = 0; row < work->m; row++) {
            float sum = 0;
            for (uint64_t i = 0; i < work->k; i++)
                sum += number_of(work->a[row * work->k + i], work->a_mantissa) *
                       number_of(work->b[column * work->k + i], work->b_mantissa);
            work->d[column * work->m + row] = bf16_of(scale * sum);
        }
}

static bool is_there(const void *matrix, const struct layout *layout, size_t element)
{
    return (uintptr_t)matrix % 16 == 0 &&
           double_is_device(matrix, layout->rows * layout->columns * element);
}

static bool is_aligned(const void *at, uint32_t bytes)
{
    return bytes > 0 && (uintptr_t)at % bytes == 0;
}

/* Whether what the epilogue reads and writes is there, and as the way has it. */
static bool has_further(const struct product *product, const struct layout *d,
                        const struct way *way, size_t bytes)
{
    const bool has_vector =
        product->vector == NULL || (is_aligned(product->vector, way->alignment[4]) &&
                                    double_is_device(product->vector, d->rows * bytes));
    return has_vector &&
           (product->aux == NULL || (is_aligned(product->aux, way->alignment[5]) &&
                                     double_is_device(product->aux, d->rows * d->columns * bytes)));
}

/* The product as cuBLAS makes it, with its epilogue. */
static struct double_product whole(const struct product *product, const struct layout *a,
                                   const struct layout *b, const struct layout *d,
                                   const void *const operand[3], bool adds)
{
    void *const vector = (void *)(uintptr_t)product->vector;
    void *const aux = (void *)(uintptr_t)product->aux;
    const enum sbp_real real = d->type == CUDA_R_32F    ? SBP_F32
                               : d->type == CUDA_R_16BF ? SBP_REAL_BF16
                                                        : SBP_REAL_FP16;
    return (struct double_product){
        .real = real,
        .of_c = real,
        .is_tf32 = product->sum == CUBLAS_COMPUTE_32F_FAST_TF32,
        .m = (int64_t)d->rows,
        .n = (int64_t)d->columns,
        .k = (int64_t)(product->transa == CUBLAS_OP_N ? a->columns : a->rows),
        .a = {operand[0], product->transa == CUBLAS_OP_T, a->stride},
        .b = {operand[1], product->transb == CUBLAS_OP_T, b->stride},
        .c = (void *)(uintptr_t)operand[2],
        .stride = d->stride,
        .adds = adds,
        .bias = product->epilogue == CUBLASLT_EPILOGUE_BGRADA ? NULL : vector,
        .before_gelu = product->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ? aux : NULL,
        .gelu_of = product->epilogue == CUBLASLT_EPILOGUE_DGELU ? aux : NULL,
        .row_sums = product->epilogue == CUBLASLT_EPILOGUE_BGRADA ? vector : NULL};
}

/* With an epilogue: alpha is 1, beta 0 or, of sums of rows, 1. */
static cublasStatus_t multiply_wide(const struct product *product, const struct layout *a,
                                    const struct layout *b, const struct layout *d,
                                    const void *const operand[3], bool adds,
                                    const cublasLtMatmulAlgo_t *algo, cudaStream_t stream)
{
    const bool is_wide = d->type == CUDA_R_32F;
    const size_t bytes = is_wide ? 4 : 2;
    const struct layout *const layouts[] = {a, b, d};
    struct way way;
    memcpy(&way, algo, sizeof way);
    for (int i = 0; i < 3; i++)
        if (!is_aligned(operand[i], way.alignment[i]) ||
            !double_is_device(operand[i], layouts[i]->rows * layouts[i]->columns * bytes))
            return CUBLAS_STATUS_INVALID_VALUE;
    if (!has_further(product, d, &way, bytes) ||
        (adds && product->epilogue != CUBLASLT_EPILOGUE_BGRADA))
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct double_product work = whole(product, a, b, d, operand, adds);
    const double flops = is_wide ? DOUBLE_FP32_FLOPS : DOUBLE_BF16_FLOPS;
    const double time_s =
        DOUBLE_LAUNCH_S + 2.0 * (double)work.m * (double)work.n * (double)work.k / flops;
    return double_launch(stream, double_multiply, &work, sizeof work, time_s) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
                              cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const struct product product = product_of(desc);
    const struct layout a = layout_of(Adesc), b = layout_of(Bdesc), c = layout_of(Cdesc),
                        d = layout_of(Ddesc);
    if (double_fails("cublasLtMatmul"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const float by = *(const float *)alpha, before = *(const float *)beta;
    if (handle == NULL || algo == NULL || stream == NULL || !is_legal(&product, &a, &b, &c, &d) ||
        by != 1 || (before != 0 && before != 1) || C != D ||
        !double_is_device(workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (epilogue_of(&product) != NULL)
        return multiply_wide(&product, &a, &b, &d, (const void *const[]){A, B, D}, before == 1,
                             algo, stream);
    if (before != 0 || !is_there(A, &a, 1) || !is_there(B, &b, 1) || !is_there(D, &d, 2))
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct work work = {A,
                              B,
                              D,
                              a.type == CUDA_R_8F_E4M3 ? 3 : 2,
                              b.type == CUDA_R_8F_E4M3 ? 3 : 2,
                              d.rows,
                              d.columns,
                              a.rows,
                              {product.scale[0], product.scale[1]}};
    const double multiplications = (double)work.m * (double)work.n * (double)work.k;
    const double flops = product.is_fast ? DOUBLE_FP8_FLOPS : DOUBLE_FP8_EXACT_FLOPS;
    return double_launch(stream, multiplications <= MOST_COMPUTED ? multiply : double_run_nothing,
                         &work, sizeof work,
                         DOUBLE_LAUNCH_S + 2 * multiplications / flops) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* Products of which cuBLASLt does more, in single precision, before it rounds the result: it adds a
 * bias, applies a gelu or its slope, or sums a factor's rows on the way.
 *
 * A product's description and the library's way for it are kept for the next one of the same
 * sizes: asking takes longer than the product. Ways that join partial sums in the result's type,
 * or in no fixed order, are not asked for.
 */
#include <cublasLt.h>
#include <stdlib.h>

#include "executor/gpu/rank_cuda_priv.h"

enum {
    MOST_PLANS = 64,
    ALIGNMENTS = 5,
    LEAST_ALIGNMENT = 16, /* bytes, of what an epilogue reads and writes: of one access */
    AUX_ROWS = 8          /* of which those of a gelu's argument are a multiple */
};

/* A way is chosen for these. */
struct key {
    int64_t m, n, k;
    bool a_turned, b_turned;
    cudaDataType_t data;
    cublasComputeType_t sum;
    cublasLtEpilogue_t epilogue;
    uint32_t alignment[ALIGNMENTS]; /* of a, b, c, the vector, aux */
};

struct plan {
    struct key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t way;
    bool has_way;
};

struct sbp_gpu_products {
    struct plan plan[MOST_PLANS];
    int count, next; /* next: to be forgotten, where there is no room */
};

static void forget(struct plan *plan)
{
    if (plan->c != NULL)
        (void)cublasLtMatrixLayoutDestroy(plan->c);
    if (plan->b != NULL)
        (void)cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->a != NULL)
        (void)cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->product != NULL)
        (void)cublasLtMatmulDescDestroy(plan->product);
    *plan = (struct plan){.has_way = false};
}

void sbp_gpu_products_close(struct sbp_gpu_rank *gpu)
{
    for (int i = 0; gpu->products != NULL && i < gpu->products->count; i++)
        forget(&gpu->products->plan[i]);
    free(gpu->products);
    gpu->products = NULL;
}

/* The largest power of 2, up to 256, that divides an address. */
static uint32_t alignment_of(const void *at)
{
    uint32_t bytes = 1;
    while (bytes < 256 && (uintptr_t)at % (2 * bytes) == 0)
        bytes *= 2;
    return bytes;
}

/* What an epilogue reads or writes of a number a row. */
static const void *vector_of(const struct sbp_gpu_product *of)
{
    return of->row_sums != NULL ? of->row_sums : of->bias;
}

static cublasLtEpilogue_t epilogue_of(const struct sbp_gpu_product *of)
{
    if (of->row_sums != NULL)
        return CUBLASLT_EPILOGUE_BGRADA;
    if (of->gelu_of != NULL)
        return CUBLASLT_EPILOGUE_DGELU;
    return of->before_gelu != NULL ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
}

static const void *aux_of(const struct sbp_gpu_product *of)
{
    return of->before_gelu != NULL ? of->before_gelu : of->gelu_of;
}

static struct key key_of(const struct sbp_gpu_product *of)
{
    return (struct key){.m = of->m,
                        .n = of->n,
                        .k = of->k,
                        .a_turned = of->a_turned,
                        .b_turned = of->b_turned,
                        .data = of->data,
                        .sum = of->sum,
                        .epilogue = epilogue_of(of),
                        .alignment = {alignment_of(of->a), alignment_of(of->b), alignment_of(of->c),
                                      alignment_of(vector_of(of)), alignment_of(aux_of(of))}};
}

static bool is_same(const struct key *one, const struct key *other)
{
    for (int i = 0; i < ALIGNMENTS; i++)
        if (one->alignment[i] != other->alignment[i])
            return false;
    return one->m == other->m && one->n == other->n && one->k == other->k &&
           one->a_turned == other->a_turned && one->b_turned == other->b_turned &&
           one->data == other->data && one->sum == other->sum && one->epilogue == other->epilogue;
}

/* Goes on where all went well so far. */
#define LT_TRY(...)                                                                                \
    do {                                                                                           \
        const cublasStatus_t lt_status = (__VA_ARGS__);                                            \
        if (lt_status != CUBLAS_STATUS_SUCCESS)                                                    \
            return lt_status;                                                                      \
    } while (0)

static cublasStatus_t set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(product, attribute, value, bytes);
}

/* A way is chosen by the alignment of these addresses, too. */
static cublasStatus_t set_pointers(cublasLtMatmulDesc_t product, const struct sbp_gpu_product *of)
{
    const void *const vector = vector_of(of), *const aux = aux_of(of);
    if (vector != NULL)
        LT_TRY(set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector));
    if (aux == NULL)
        return CUBLAS_STATUS_SUCCESS;
    LT_TRY(set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    return set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &of->m, sizeof of->m);
}

static cublasStatus_t describe(struct plan *plan, const struct sbp_gpu_product *of)
{
    const struct key *key = &plan->key;
    const cublasOperation_t a = key->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = key->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t m = (uint64_t)key->m, n = (uint64_t)key->n, k = (uint64_t)key->k;
    LT_TRY(cublasLtMatmulDescCreate(&plan->product, key->sum, CUDA_R_32F));
    LT_TRY(set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LT_TRY(set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    LT_TRY(set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &key->epilogue, sizeof key->epilogue));
    LT_TRY(set_pointers(plan->product, of));
    LT_TRY(cublasLtMatrixLayoutCreate(&plan->a, key->data, key->a_turned ? k : m,
                                      key->a_turned ? m : k, key->a_turned ? key->k : key->m));
    LT_TRY(cublasLtMatrixLayoutCreate(&plan->b, key->data, key->b_turned ? n : k,
                                      key->b_turned ? k : n, key->b_turned ? key->n : key->k));
    return cublasLtMatrixLayoutCreate(&plan->c, key->data, m, n, key->m);
}

static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference, const struct key *key)
{
    const size_t bytes = SBP_GPU_WORKSPACE_BYTES;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } wanted[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->alignment[0], sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->alignment[1], sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->alignment[2], sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->alignment[2], sizeof(uint32_t)},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, wanted[i].attribute,
                                                    wanted[i].value, wanted[i].bytes));
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's guess of the fastest way; there may be none, of which it says that it supports
 * none, or that no such product can be. */
static cublasStatus_t choose(struct sbp_gpu_rank *gpu, struct plan *plan)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    LT_TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = set_preference(preference, &plan->key);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)gpu->blas, plan->product, plan->a,
                                           plan->b, plan->c, plan->c, preference, 1, &best, &found);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        return CUBLAS_STATUS_SUCCESS;
    plan->has_way = status == CUBLAS_STATUS_SUCCESS && found > 0;
    if (plan->has_way)
        plan->way = best.algo;
    return status;
}

/* NULL where memory is out: the caller does without. */
static struct plan *find_plan(struct sbp_gpu_rank *gpu, const struct sbp_gpu_product *of,
                              cublasStatus_t *status)
{
    const struct key key = key_of(of);
    *status = CUBLAS_STATUS_SUCCESS;
    if (gpu->products == NULL)
        gpu->products = calloc(1, sizeof *gpu->products);
    struct sbp_gpu_products *const products = gpu->products;
    if (products == NULL)
        return NULL;
    for (int i = 0; i < products->count; i++)
        if (is_same(&products->plan[i].key, &key))
            return &products->plan[i];
    struct plan *const plan = &products->plan[products->next];
    forget(plan);
    plan->key = key;
    *status = describe(plan, of);
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = choose(gpu, plan);
    if (products->count < MOST_PLANS)
        products->count++;
    products->next = (products->next + 1) % MOST_PLANS;
    return plan;
}

static cublasStatus_t multiply(struct sbp_gpu_rank *gpu, const struct plan *plan,
                               const struct sbp_gpu_product *of)
{
    const float one = 1, beta = of->adds ? 1 : 0;
    LT_TRY(set_pointers(plan->product, of));
    return cublasLtMatmul((cublasLtHandle_t)gpu->blas, plan->product, &one, of->a, plan->a, of->b,
                          plan->b, &beta, of->c, plan->c, of->c, plan->c, &plan->way,
                          gpu->cuda.scratch, SBP_GPU_WORKSPACE_BYTES,
                          (cudaStream_t)gpu->cuda.stream);
}

/* Whether the library takes what its epilogue is to read and write. */
static bool is_legal(const struct sbp_gpu_product *of)
{
    return of->m > 0 && of->n > 0 && of->k > 0 && alignment_of(vector_of(of)) >= LEAST_ALIGNMENT &&
           alignment_of(aux_of(of)) >= LEAST_ALIGNMENT &&
           (aux_of(of) == NULL || of->m % AUX_ROWS == 0);
}

bool sbp_gpu_multiply_further(struct sbp_gpu_rank *gpu, const struct sbp_gpu_product *product)
{
    cublasStatus_t status;
    if (!is_legal(product))
        return false;
    const struct plan *const plan = find_plan(gpu, product, &status);
    if (status == CUBLAS_STATUS_SUCCESS && (plan == NULL || !plan->has_way))
        return false;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = multiply(gpu, plan, product);
    if (gpu->refused == CUBLAS_STATUS_SUCCESS) {
        gpu->refused = status;
        gpu->refused_call = "cublasLtMatmul";
    }
    return true;
}

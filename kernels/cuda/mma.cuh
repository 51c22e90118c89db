/* Products of tiles by the tensor cores of a warp: c(16,8) += a(16,K) b(K,8) with K = 16 for
 * elements of 16 bits and 8 for floats, in registers laid out as PTX lays them out (mma.sync,
 * m16n8k16 and m16n8k8). On the host the lanes show each other their registers.
 *
 * Lane l has rows g = l / 4 and g + 8 of c and of a, column g of b, and of every group of four
 * neighbours t = l % 4: c columns 2t and 2t + 1; of 16 bits k = 2t, 2t + 1, 2t + 8, 2t + 9. For
 * floats the tensor cores take t and t + 4; what is called k there stands for 2t and 2t + 1 here,
 * in a and b alike, so that accumulators can be factors without moving.
 *
 * A float is a sum of two numbers of TF32, whose 11 bits each make 22: three products of four make
 * one of 21 bits. The cores cut off what a sum has behind 24 bits, always toward zero, as the host
 * does here: so a long sum of floats is not theirs, but adds up outside, where it is rounded to
 * nearest (Ootomo and Yokota, 2022).
 */
#ifndef SBP_KERNELS_CUDA_MMA_CUH
#define SBP_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/gpu.cuh"

/* Elements of K, and registers a lane has of each factor. */
template <class T> struct gpu_mma {
    static const int K = 16;
    typedef uint32_t a_type, b_type;
};
template <> struct gpu_mma<float> {
    static const int K = 8;
    typedef float a_type, b_type;
};

template <class T> struct gpu_a {
    typename gpu_mma<T>::a_type at[4];
};
template <class T> struct gpu_b {
    typename gpu_mma<T>::b_type at[2];
};

template <class T> static __device__ __forceinline__ uint32_t gpu_pack(T low, T high)
{
    return (uint32_t)low.bits | (uint32_t)high.bits << 16;
}

/* ---- products ------------------------------------------------------------------------------- */

#ifdef __CUDACC__
static __device__ __forceinline__ void gpu_multiply(float (&c)[4], const gpu_a<gpu_bf16> &a,
                                                    const gpu_b<gpu_bf16> &b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]),
                   "r"(b.at[1]));
}

static __device__ __forceinline__ void gpu_multiply(float (&c)[4], const gpu_a<gpu_fp16> &a,
                                                    const gpu_b<gpu_fp16> &b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]),
                   "r"(b.at[1]));
}

/* Rounded to 11 bits, ties away from zero. */
static __device__ __forceinline__ uint32_t gpu_tf32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

static __device__ __forceinline__ void gpu_multiply_tf32(float (&c)[4], const uint32_t (&a)[4],
                                                         const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four matrices of 8 x 8 elements of 16 bits from shared memory: lane l names row l % 8 of matrix
 * l / 8 and gets elements 2t and 2t + 1 of row g of each; TURNED: of column g. */
template <bool TURNED>
static __device__ __forceinline__ void gpu_load_matrices(uint32_t (&to)[4], const void *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}
#else
/* Lanes need not be watched in what they show each other. */
#define GPU_UNWATCHED inline __attribute__((no_sanitize("thread")))

/* Element k of a row or a column out of a lane's registers, of which its own are so many apart; k
 * counted as above. */
template <class T> static GPU_UNWATCHED float gpu_part(const uint32_t *at, int apart, int k)
{
    const uint32_t both = at[k / 8 * apart];
    return gpu_load(T{(uint16_t)(k % 2 == 0 ? both : both >> 16)});
}

template <> GPU_UNWATCHED float gpu_part<float>(const uint32_t *at, int apart, int k)
{
    return __uint_as_float(at[k % 2 * apart]);
}

static GPU_UNWATCHED uint32_t gpu_tf32(float x)
{
    return (__float_as_uint(x) + 0x1000) & ~0x1fffU;
}

/* Rounds to a float, toward zero. */
static GPU_UNWATCHED float gpu_cut(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~(uint64_t)0x1fffffff;
    memcpy(&x, &bits, sizeof x);
    return (float)x;
}

struct gpu_factors {
    uint32_t a[4], b[2];
};

/* A row of a, or a column of b, which four neighbours have. */
template <class T>
static GPU_UNWATCHED void gpu_gather(float (&to)[gpu_mma<T>::K], int lane, bool is_a, int i)
{
    const gpu_factors *of[4];
    for (int j = 0; j < 4; j++)
        of[j] = (const gpu_factors *)gpu_host::of_lane(lane + j);
    for (int k = 0; k < gpu_mma<T>::K; k++)
        to[k] =
            is_a ? gpu_part<T>(of[k % 8 / 2]->a + i, 2, k) : gpu_part<T>(of[k % 8 / 2]->b, 1, k);
}

template <class T>
__attribute__((noinline, no_sanitize("thread"))) static void
gpu_multiply_registers(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const int lane = gpu_host::lane();
    const gpu_factors mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    float rows[2][gpu_mma<T>::K], columns[2][gpu_mma<T>::K];
    gpu_host::meet(&mine, sizeof mine, GPU_HOST_PLACE("mma"), false);
    for (int i = 0; i < 2; i++) {
        gpu_gather<T>(rows[i], lane / 4 * 4, true, i);
        gpu_gather<T>(columns[i], (lane % 4 * 2 + i) * 4, false, 0);
    }
    for (int i = 0; i < 4; i++) {
        double sum = c[i];
        for (int k = 0; k < gpu_mma<T>::K; k++)
            sum += (double)rows[i / 2][k] * columns[i % 2][k];
        c[i] = gpu_cut(sum);
    }
}

template <class T>
static inline void gpu_multiply(float (&c)[4], const gpu_a<T> &a, const gpu_b<T> &b)
{
    gpu_multiply_registers<T>(c, a.at, b.at);
}

static inline void gpu_multiply_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    gpu_multiply_registers<float>(c, a, b);
}

template <bool TURNED> static inline void gpu_load_matrices(uint32_t (&to)[4], const void *row)
{
    const int g = gpu_lane() / 4, t = gpu_lane() % 4;
    gpu_host::meet(&row, sizeof row, GPU_HOST_PLACE("ldmatrix"), false);
    for (int i = 0; i < 4; i++) {
        const uint16_t *low, *high;
        memcpy(&low, gpu_host::of_lane(8 * i + (TURNED ? 2 * t : g)), sizeof low);
        memcpy(&high, gpu_host::of_lane(8 * i + (TURNED ? 2 * t + 1 : g)), sizeof high);
        to[i] = (uint32_t)low[TURNED ? g : 2 * t] | (uint32_t)high[TURNED ? g : 2 * t + 1] << 16;
    }
}
#endif

static __device__ __forceinline__ void gpu_multiply(float (&c)[4], const gpu_a<float> &a,
                                                    const gpu_b<float> &b)
{
    uint32_t a_large[4], a_small[4], b_large[2], b_small[2];
    float sum[4] = {0, 0, 0, 0};
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        a_large[i] = gpu_tf32(a.at[i]);
        a_small[i] = gpu_tf32(a.at[i] - __uint_as_float(a_large[i]));
    }
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        b_large[i] = gpu_tf32(b.at[i]);
        b_small[i] = gpu_tf32(b.at[i] - __uint_as_float(b_large[i]));
    }
    gpu_multiply_tf32(sum, a_small, b_large);
    gpu_multiply_tf32(sum, a_large, b_small);
    gpu_multiply_tf32(sum, a_large, b_large);
    GPU_UNROLL
    for (int i = 0; i < 4; i++)
        c[i] += sum[i];
}

/* ---- factors out of shared memory, and out of accumulators ---------------------------------- */

/* a: rows row .. row + 15, columns k .. k + K - 1 of a matrix with rows `stride` apart. */
template <class T>
static __device__ __forceinline__ void gpu_load_a(gpu_a<T> &a, const T *matrix, int stride, int row,
                                                  int k)
{
    const int lane = gpu_lane();
    gpu_load_matrices<false>(a.at, matrix + (row + lane % 16) * stride + k + lane / 16 * 8);
}

static __device__ __forceinline__ void gpu_load_a(gpu_a<float> &a, const float *matrix, int stride,
                                                  int row, int k)
{
    const float *const at = matrix + (row + gpu_lane() / 4) * stride + k + gpu_lane() % 4 * 2;
    const gpu_chunk<float, 2> upper = gpu_get<2>(at), lower = gpu_get<2>(at + 8 * stride);
    a.at[0] = upper.at[0];
    a.at[1] = lower.at[0];
    a.at[2] = upper.at[1];
    a.at[3] = lower.at[1];
}

/* b of columns n .. n + 7 and n + 8 .. n + 15, where the matrix has a row for every n. */
template <class T>
static __device__ __forceinline__ void gpu_load_b_rows(gpu_b<T> (&b)[2], const T *matrix,
                                                       int stride, int n, int k)
{
    const int lane = gpu_lane();
    uint32_t at[4];
    gpu_load_matrices<false>(at, matrix + (n + lane % 8 + lane / 16 * 8) * stride + k +
                                     lane / 8 % 2 * 8);
    b[0].at[0] = at[0];
    b[0].at[1] = at[1];
    b[1].at[0] = at[2];
    b[1].at[1] = at[3];
}

static __device__ __forceinline__ void gpu_load_b_rows(gpu_b<float> (&b)[2], const float *matrix,
                                                       int stride, int n, int k)
{
    const float *const at = matrix + (n + gpu_lane() / 4) * stride + k + gpu_lane() % 4 * 2;
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        const gpu_chunk<float, 2> pair = gpu_get<2>(at + 8 * i * stride);
        b[i].at[0] = pair.at[0];
        b[i].at[1] = pair.at[1];
    }
}

/* The same where the matrix has a row for every k. */
template <class T>
static __device__ __forceinline__ void gpu_load_b_columns(gpu_b<T> (&b)[2], const T *matrix,
                                                          int stride, int k, int n)
{
    const int lane = gpu_lane();
    uint32_t at[4];
    gpu_load_matrices<true>(at, matrix + (k + lane % 16) * stride + n + lane / 16 * 8);
    b[0].at[0] = at[0];
    b[0].at[1] = at[1];
    b[1].at[0] = at[2];
    b[1].at[1] = at[3];
}

static __device__ __forceinline__ void gpu_load_b_columns(gpu_b<float> (&b)[2], const float *matrix,
                                                          int stride, int k, int n)
{
    const float *const at = matrix + (k + gpu_lane() % 4 * 2) * stride + n + gpu_lane() / 4;
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        b[i].at[0] = at[8 * i];
        b[i].at[1] = at[8 * i + stride];
    }
}

/* K columns of accumulators as a factor, rounded to T. */
template <class T>
static __device__ __forceinline__ void gpu_take_a(gpu_a<T> &a, const float (*c)[4])
{
    GPU_UNROLL
    for (int i = 0; i < 4; i++)
        a.at[i] =
            gpu_pack(gpu_store<T>(c[i / 2][i % 2 * 2]), gpu_store<T>(c[i / 2][i % 2 * 2 + 1]));
}

static __device__ __forceinline__ void gpu_take_a(gpu_a<float> &a, const float (*c)[4])
{
    a.at[0] = c[0][0];
    a.at[1] = c[0][2];
    a.at[2] = c[0][1];
    a.at[3] = c[0][3];
}

#endif

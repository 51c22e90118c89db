#include "kernels/cpu/rows_priv.h"

enum { BLOCK = 64 * LANES };

SBP_SIMD_WIDE
real CPU(row_maximum)(const stored *row, int64_t n, real largest)
{
    real lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = largest;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = load(row[i + j]) > lane[j] ? load(row[i + j]) : lane[j];
    for (; i < n; i++)
        largest = load(row[i]) > largest ? load(row[i]) : largest;
    for (int j = 0; j < LANES; j++)
        largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

#define DEFINE_SUM(name, type, value)                                                              \
    SBP_SIMD_WIDE                                                                                  \
    double name(const type *row, int64_t n)                                                        \
    {                                                                                              \
        double lane[LANES] = {0}, rest = 0;                                                        \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int j = 0; j < LANES; j++)                                                        \
                lane[j] += (double)value(row[i + j]);                                              \
        for (; i < n; i++)                                                                         \
            rest += (double)value(row[i]);                                                         \
        return lane_sum(lane, rest);                                                               \
    }
DEFINE_SUM(CPU(row_sum), stored, load)
DEFINE_SUM(CPU(real_sum), real, )

SBP_SIMD_WIDE
double CPU(row_dot)(const stored *a, const stored *b, int64_t n)
{
    double lane[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)load(a[i + j]) * (double)load(b[i + j]);
    for (; i < n; i++)
        rest += (double)load(a[i]) * (double)load(b[i]);
    return lane_sum(lane, rest);
}

SBP_SIMD_WIDE
void CPU(row_exp)(stored *y, const stored *x, int64_t n, real shift, real factor)
{
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = store(real_exp(load(x[i]) - shift) * factor);
}

SBP_SIMD_WIDE
static void exponentiate(real *restrict block, const stored *restrict x, int64_t n, real shift)
{
    for (int64_t i = 0; i < n; i++)
        block[i] = real_exp(load(x[i]) - shift);
}

double CPU(row_exp_sum)(const stored *x, int64_t n, real shift)
{
    real block[BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t count = n - i < BLOCK ? n - i : BLOCK;
        exponentiate(block, x + i, count, shift);
        sum += CPU(real_sum)(block, count);
    }
    return sum;
}

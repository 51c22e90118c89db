#include "kernels/cpu/rows_priv.h"

enum { BLOCK = 64 * LANES };

SBP_SIMD_WIDE
real CPU(row_maximum)(const real *row, int64_t n, real largest)
{
    real lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = largest;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = row[i + j] > lane[j] ? row[i + j] : lane[j];
    for (; i < n; i++)
        largest = row[i] > largest ? row[i] : largest;
    for (int j = 0; j < LANES; j++)
        largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

SBP_SIMD_WIDE
double CPU(row_sum)(const real *row, int64_t n)
{
    double lane[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)row[i + j];
    for (; i < n; i++)
        rest += (double)row[i];
    return lane_sum(lane, rest);
}

SBP_SIMD_WIDE
double CPU(row_dot)(const real *a, const real *b, int64_t n)
{
    double lane[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++)
        rest += (double)a[i] * (double)b[i];
    return lane_sum(lane, rest);
}

SBP_SIMD_WIDE
void CPU(row_exp)(real *y, const real *x, int64_t n, real shift, real factor)
{
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = real_exp(x[i] - shift) * factor;
}

double CPU(row_exp_sum)(const real *x, int64_t n, real shift)
{
    real block[BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t count = n - i < BLOCK ? n - i : BLOCK;
        CPU(row_exp)(block, x + i, count, shift, 1);
        sum += CPU(row_sum)(block, count);
    }
    return sum;
}

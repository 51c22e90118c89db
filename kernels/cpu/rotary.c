/* Rotary embedding of places in the sequence (Su et al., 2021), in place. */
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/real_priv.h"

enum { PAIRS = 256 }; /* worked on at a time */
static const double BASE = 10000;

/* Angles by which pairs first .. first + count - 1 of `size` features turn from place to place. */
static void find_rates(double *rate, int64_t first, int64_t count, int64_t size)
{
    for (int64_t i = 0; i < count; i++)
        rate[i] = pow(BASE, -2 * (double)(first + i) / (double)size);
}

SBP_SIMD_WIDE
static void turn(stored *x, stored *y, const real *cosine, const real *sine, int64_t count)
{
    SBP_INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        const real a = load(x[i]), b = load(y[i]);
        x[i] = store(a * cosine[i] - b * sine[i]);
        y[i] = store(b * cosine[i] + a * sine[i]);
    }
}

/* Pairs of all heads that lie in one place of every sequence: `first` is their first feature. */
struct pairs {
    stored *x;
    int64_t first, count, half, heads, width, batch, sequence;
};

static void turn_place(const struct pairs *pairs, int64_t local, int64_t place, const double *rate)
{
    real cosine[PAIRS], sine[PAIRS];
    for (int64_t i = 0; i < pairs->count; i++) {
        cosine[i] = (real)cos((double)place * rate[i]);
        sine[i] = (real)sin((double)place * rate[i]);
    }
    for (int64_t b = 0; b < pairs->batch; b++)
        for (int64_t h = 0; h < pairs->heads; h++) {
            const int64_t head = (b * pairs->sequence + local) * pairs->heads + h;
            stored *const x = pairs->x + head * pairs->width + pairs->first;
            turn(x, x + pairs->half, cosine, sine, pairs->count);
        }
}

void CPU(rotary)(void *x, const struct sbp_digits *rows, int64_t batch, int64_t heads,
                 int64_t width, int64_t size, bool back)
{
    double rate[PAIRS];
    const int64_t sequence = sbp_digits_local_size(rows), half = size / 2;
    for (int64_t first = 0; first < half; first += PAIRS) {
        const int64_t count = half - first < PAIRS ? half - first : PAIRS;
        const struct pairs pairs = {x, first, count, half, heads, width, batch, sequence};
        find_rates(rate, first, count, size);
        for (int64_t s = 0; s < sequence; s++) {
            const int64_t place = sbp_digits_global(rows, s);
            turn_place(&pairs, s, back ? -place : place, rate);
        }
    }
}

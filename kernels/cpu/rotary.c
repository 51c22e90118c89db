/* Rotary embedding of places in the sequence (Su et al., 2021), in place. */
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/real_priv.h"

enum { PAIRS = 256 }; /* worked on at a time */
static const double BASE = 10000;

/* Cosines and sines of the angles of pairs first .. first + count - 1 of `size` features. */
static void find_angles(real *cosine, real *sine, int64_t place, int64_t first, int64_t count,
                        int64_t size)
{
    for (int64_t i = 0; i < count; i++) {
        const double angle = (double)place * pow(BASE, -2 * (double)(first + i) / (double)size);
        cosine[i] = (real)cos(angle);
        sine[i] = (real)sin(angle);
    }
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

/* All heads of one token. */
static void turn_token(stored *x, int64_t place, int64_t heads, int64_t width, int64_t size,
                       bool back)
{
    real cosine[PAIRS], sine[PAIRS];
    const int64_t half = size / 2;
    for (int64_t first = 0; first < half; first += PAIRS) {
        const int64_t count = half - first < PAIRS ? half - first : PAIRS;
        find_angles(cosine, sine, back ? -place : place, first, count, size);
        for (int64_t h = 0; h < heads; h++)
            turn(x + h * width + first, x + h * width + first + half, cosine, sine, count);
    }
}

void CPU(rotary)(void *x, const struct sbp_digits *rows, int64_t batch, int64_t heads,
                 int64_t width, int64_t size, bool back)
{
    const int64_t sequence = sbp_digits_local_size(rows);
    for (int64_t t = 0; t < batch * sequence; t++)
        turn_token((stored *)x + t * heads * width, sbp_digits_global(rows, t % sequence), heads,
                   width, size, back);
}

/* Numbers of 16 bits: every pattern, and floats of every exponent against rounding by the
 * definition. */
#include <math.h>

#include "base/math/half.h"
#include "base/math/random.h"
#include "base/math/simd.h"
#include "tests/support/unit.h"

struct format {
    const char *name;
    int exponent_bits, fraction_bits;
    float (*to_float)(uint16_t bits);
    uint16_t (*from_float)(float x);
};

static const struct format FORMATS[] = {
    {"bfloat16", 8, 7, sbp_half_from_bf16, sbp_half_to_bf16},
    {"half precision", 5, 10, sbp_half_from_fp16, sbp_half_to_fp16},
};

/* The definition: sign, exponent, fraction. */
static double value_of(const struct format *format, uint16_t bits)
{
    const int most = (1 << format->exponent_bits) - 1, bias = most / 2;
    const int exponent = bits >> format->fraction_bits & most;
    const int fraction = bits & ((1 << format->fraction_bits) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == most)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    const double digits = fraction + (exponent > 0 ? 1 << format->fraction_bits : 0);
    return sign * ldexp(digits, (exponent > 0 ? exponent : 1) - bias - format->fraction_bits);
}

/* All 65536: to float exactly, and back to the same bits; a NaN stays one. */
static void every_pattern(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const double want = value_of(&FORMATS[f], (uint16_t)bits);
            const float got = FORMATS[f].to_float((uint16_t)bits);
            const uint16_t back = FORMATS[f].from_float(got);
            if (isnan(want)
                    ? !isnan(got) || !isnan(FORMATS[f].to_float(back))
                    : (double)got != want || !signbit(got) != !signbit(want) || back != bits)
                fail_msg("%s 0x%04x: %.9g for %.9g, back 0x%04x", FORMATS[f].name, bits,
                         (double)got, want, back);
        }
}

/* Nearest, ties to even, by distances in double; finite values end half a unit above the largest.
 */
static void expect_nearest(const struct format *format, float x)
{
    const uint16_t got = format->from_float(x);
    const double value = value_of(format, got), distance = fabs((double)x - value);
    const uint16_t largest =
        (uint16_t)(((1 << format->exponent_bits) - 1) << format->fraction_bits) - 1;
    const double most = value_of(format, largest);
    const double unit = most - value_of(format, largest - 1);
    bool right = !signbit(value) == !signbit(x);
    if (fabs((double)x) >= most + unit / 2) {
        right = right && isinf(value);
    } else {
        for (int step = -1; step <= 1; step += 2) { /* neighbours by magnitude */
            const int other = (got & 0x7fff) + step;
            if (other < 0 || other > largest)
                continue;
            const double to_other = fabs(fabs((double)x) - value_of(format, (uint16_t)other));
            right = right && (distance < to_other || (distance == to_other && got % 2 == 0));
        }
        right = right && isfinite(value);
    }
    if (!right)
        fail_msg("%s of %.9g (%a): 0x%04x, %.9g", format->name, (double)x, (double)x, got, value);
}

/* Every exponent and sign with random fractions and those around ties. */
static void floats_round_to_nearest(void **state)
{
    static const uint32_t ends[] = {0,        1,        0x7fff,  0x8000, 0x8001,   0xffff,
                                    0x17fff,  0x18000,  0x18001, 0x0fff, 0x1000,   0x1001,
                                    0x2fff,   0x3000,   0x3001,  0x1fff, 0x7fffff, 0x7f7fff,
                                    0x7f8000, 0x7fefff, 0x7ff000};
    enum { ENDS = sizeof ends / sizeof ends[0], DRAWS = 400 };
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, 5);
    for (size_t f = 0; f < 2; f++)
        for (uint32_t head = 0; head < 512; head++)
            for (int i = 0; i < ENDS + DRAWS && (head & 255) < 255; i++) {
                const uint32_t fraction =
                    i < ENDS ? ends[i] : (uint32_t)(sbp_random_next(&random) >> 41);
                expect_nearest(&FORMATS[f], sbp_lanes_f32_of(head << 23 | fraction));
            }
}

static void ends_of_the_range(void **state)
{
    (void)state;
    assert_int_equal(sbp_half_to_fp16(65519.996F), 0x7bff);
    assert_int_equal(sbp_half_to_fp16(65520), 0x7c00);
    assert_int_equal(sbp_half_to_fp16(-INFINITY), 0xfc00);
    assert_int_equal(sbp_half_to_fp16(0x1p-25F), 0);
    assert_int_equal(sbp_half_to_fp16(0x1.8p-25F), 1);
    assert_int_equal(sbp_half_to_bf16(0x1.fep127F), 0x7f7f);
    assert_int_equal(sbp_half_to_bf16(0x1.ffp127F), 0x7f80);
    assert_int_equal(sbp_half_to_bf16(-0.0F), 0x8000);
    for (uint32_t fraction = 1; fraction < 0x800000; fraction += 0x1357) {
        assert_true(
            isnan(sbp_half_from_bf16(sbp_half_to_bf16(sbp_lanes_f32_of(0x7f800000 | fraction)))));
        assert_true(
            isnan(sbp_half_from_fp16(sbp_half_to_fp16(sbp_lanes_f32_of(0xff800000 | fraction)))));
    }
}

/* Loops that compilers may turn into vector instructions, for any machine. */
#define DEFINE_LOOPS(type)                                                                         \
    SBP_SIMD_WIDE static void widen_##type(float *restrict to, const uint16_t *restrict from,      \
                                           int n)                                                  \
    {                                                                                              \
        for (int i = 0; i < n; i++)                                                                \
            to[i] = sbp_half_from_##type(from[i]);                                                 \
    }                                                                                              \
    SBP_SIMD_WIDE static void narrow_##type(uint16_t *restrict to, const float *restrict from,     \
                                            int n)                                                 \
    {                                                                                              \
        for (int i = 0; i < n; i++)                                                                \
            to[i] = sbp_half_to_##type(from[i]);                                                   \
    }
DEFINE_LOOPS(bf16)
DEFINE_LOOPS(fp16)

static void in_vectors_as_alone(void **state)
{
    static uint16_t bits[65536], narrow[65536];
    static float wide[65536];
    (void)state;
    for (int i = 0; i < 65536; i++)
        bits[i] = (uint16_t)i;
    for (size_t f = 0; f < 2; f++) {
        (f == 0 ? widen_bf16 : widen_fp16)(wide, bits, 65536);
        for (int i = 0; i < 65536; i++) {
            const float alone = FORMATS[f].to_float(bits[i]);
            assert_int_equal(sbp_lanes_f32_bits(wide[i]), sbp_lanes_f32_bits(alone));
            wide[i] = sbp_lanes_f32_of((uint32_t)i * 65537U + (uint32_t)i * 31U);
        }
        (f == 0 ? narrow_bf16 : narrow_fp16)(narrow, wide, 65536);
        for (int i = 0; i < 65536; i++)
            assert_int_equal(narrow[i], FORMATS[f].from_float(wide[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern),
        cmocka_unit_test(floats_round_to_nearest),
        cmocka_unit_test(ends_of_the_range),
        cmocka_unit_test(in_vectors_as_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

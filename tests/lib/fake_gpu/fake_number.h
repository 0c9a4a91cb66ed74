/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of 8 and 16 bits, for the kernels of the fake GPU.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_NUMBER_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Sign, 4 bits of exponent (bias 7), 3 of fraction; 0x7f is NaN and there is no infinity. */
static inline float from_e4m3(uint8_t v)
{
    int exponent = v >> 3 & 15, fraction = v & 7;
    float f =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    f = (v & 0x7f) == 0x7f ? NAN : f;
    return v & 0x80 ? -f : f;
}

/* Sign, 5 bits of exponent (bias 15), 2 of fraction: the upper half of an IEEE half. */
static inline float from_e5m2(uint8_t v)
{
    int exponent = v >> 2 & 31, fraction = v & 3;
    float f =
        exponent == 0 ? ldexpf((float)fraction, -16) : ldexpf((float)(4 + fraction), exponent - 17);
    f = exponent == 31 ? (fraction == 0 ? INFINITY : NAN) : f;
    return v & 0x80 ? -f : f;
}

/* The nearest of the numbers 0 to `last`, ties to even. Saturates. */
static inline uint8_t nearest_fp8(float (*from)(uint8_t), uint8_t last, float f)
{
    uint8_t sign = signbit(f) ? 0x80 : 0, best = 0;
    float size = fabsf(f), distance = INFINITY;
    if (isnan(f)) {
        return 0x7f;
    }
    for (int v = 0; v <= last; v++) {
        float d = fabsf(from((uint8_t)v) - size);
        if (d < distance || (d == distance && v % 2 == 0)) {
            distance = d;
            best = (uint8_t)v;
        }
    }
    return sign | best;
}

static inline uint8_t to_e4m3(float f)
{
    return nearest_fp8(from_e4m3, 0x7e, f);
}

static inline uint8_t to_e5m2(float f)
{
    return nearest_fp8(from_e5m2, 0x7b, f);
}

#endif

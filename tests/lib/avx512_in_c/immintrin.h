/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of AVX-512 and AVX512-BF16 that kernels/cpu/cpu_head16.c uses, in plain C, so that
 * a test runs that file on every processor. Found in place of the compiler's header of this name.
 * Lanes are in the order of memory, so no function depends on what the compiler makes of a vector.
 */
#ifndef CT_TESTS_LIB_AVX512_IN_C_IMMINTRIN_H
#define CT_TESTS_LIB_AVX512_IN_C_IMMINTRIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What the processor has, as the test says. */
bool avx512_in_c_has(const char *feature);
#define __builtin_cpu_supports(feature) avx512_in_c_has(feature)

typedef float __m512 __attribute__((vector_size(64)));
typedef double __m512d __attribute__((vector_size(64)));
typedef long long __m512i __attribute__((vector_size(64)));
typedef short __m512bh __attribute__((vector_size(64)));
typedef uint32_t __mmask32;

/* A vector as its lanes. */
union avx512_in_c {
    float f32[16];
    double f64[8];
    uint16_t u16[32];
    uint32_t u32[16];
    __m512 ps;
    __m512d pd;
    __m512i si;
    __m512bh pbh;
};

static inline __m512i _mm512_loadu_si512(const void *from)
{
    union avx512_in_c to;
    memcpy(&to, from, sizeof(to));
    return to.si;
}

static inline void _mm512_storeu_si512(void *to, __m512i from)
{
    memcpy(to, &from, sizeof(from));
}

static inline __m512 _mm512_loadu_ps(const void *from)
{
    union avx512_in_c to;
    memcpy(&to, from, sizeof(to));
    return to.ps;
}

static inline void _mm512_storeu_ps(void *to, __m512 from)
{
    memcpy(to, &from, sizeof(from));
}

static inline __m512 _mm512_setzero_ps(void)
{
    return (__m512){0};
}

static inline __m512i _mm512_setzero_si512(void)
{
    return (__m512i){0};
}

static inline __m512i _mm512_set1_epi32(int value)
{
    union avx512_in_c to;
    for (size_t i = 0; i < 16; i++) {
        to.u32[i] = (uint32_t)value;
    }
    return to.si;
}

static inline __m512i _mm512_set1_epi16(short value)
{
    union avx512_in_c to;
    for (size_t i = 0; i < 32; i++) {
        to.u16[i] = (uint16_t)value;
    }
    return to.si;
}

/* The arguments begin with the last lane. */
static inline __m512i avx512_in_c_reversed(const short values[32])
{
    union avx512_in_c to;
    for (size_t i = 0; i < 32; i++) {
        to.u16[i] = (uint16_t)values[31 - i];
    }
    return to.si;
}
#define _mm512_set_epi16(...) avx512_in_c_reversed((const short[32]){__VA_ARGS__})

static inline __m512 _mm512_castpd_ps(__m512d from)
{
    return (__m512)from;
}

static inline __m512d _mm512_castps_pd(__m512 from)
{
    return (__m512d)from;
}

static inline __m512 _mm512_add_ps(__m512 a, __m512 b)
{
    return a + b;
}

static inline __m512i _mm512_add_epi16(__m512i a, __m512i b)
{
    union avx512_in_c x = {.si = a}, y = {.si = b};
    for (size_t i = 0; i < 32; i++) {
        x.u16[i] = (uint16_t)(x.u16[i] + y.u16[i]);
    }
    return x.si;
}

/* The lower (0) or upper (2) half of each four lanes, in turn of a and of b. */
static inline __m512 avx512_in_c_unpack_ps(__m512 a, __m512 b, size_t half)
{
    union avx512_in_c x = {.ps = a}, y = {.ps = b}, to;
    for (size_t i = 0; i < 16; i++) {
        size_t from = i / 4 * 4 + half + i % 4 / 2;
        to.f32[i] = i % 2 == 0 ? x.f32[from] : y.f32[from];
    }
    return to.ps;
}
#define _mm512_unpacklo_ps(a, b) avx512_in_c_unpack_ps(a, b, 0)
#define _mm512_unpackhi_ps(a, b) avx512_in_c_unpack_ps(a, b, 2)

/* The lower (0) or upper (1) of each two lanes. */
static inline __m512d avx512_in_c_unpack_pd(__m512d a, __m512d b, size_t half)
{
    union avx512_in_c x = {.pd = a}, y = {.pd = b}, to;
    for (size_t i = 0; i < 8; i++) {
        size_t from = i / 2 * 2 + half;
        to.f64[i] = i % 2 == 0 ? x.f64[from] : y.f64[from];
    }
    return to.pd;
}
#define _mm512_unpacklo_pd(a, b) avx512_in_c_unpack_pd(a, b, 0)
#define _mm512_unpackhi_pd(a, b) avx512_in_c_unpack_pd(a, b, 1)

/* Two of the four quarters of a, then two of b; two bits of `which` name each. */
static inline __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int which)
{
    union avx512_in_c x = {.ps = a}, y = {.ps = b}, to;
    for (size_t i = 0; i < 16; i++) {
        size_t quarter = (size_t)(which >> 2 * (int)(i / 4) & 3);
        to.f32[i] = (i < 8 ? x : y).f32[4 * quarter + i % 4];
    }
    return to.ps;
}

static inline __m512i _mm512_permutex2var_epi16(__m512i a, __m512i index, __m512i b)
{
    union avx512_in_c x = {.si = a}, y = {.si = b}, at = {.si = index}, to;
    for (size_t i = 0; i < 32; i++) {
        size_t from = at.u16[i] & 31;
        to.u16[i] = (at.u16[i] & 32) != 0 ? y.u16[from] : x.u16[from];
    }
    return to.si;
}

static inline __mmask32 _mm512_cmpgt_epi16_mask(__m512i a, __m512i b)
{
    union avx512_in_c x = {.si = a}, y = {.si = b};
    __mmask32 mask = 0;
    for (size_t i = 0; i < 32; i++) {
        mask |= (uint32_t)((int16_t)x.u16[i] > (int16_t)y.u16[i]) << i;
    }
    return mask;
}

static inline __m512i _mm512_maskz_mov_epi16(__mmask32 mask, __m512i from)
{
    union avx512_in_c to = {.si = from};
    for (size_t i = 0; i < 32; i++) {
        to.u16[i] = (mask >> i & 1) != 0 ? to.u16[i] : 0;
    }
    return to.si;
}

/* ---- bfloat16: subnormal numbers count as zero ------------------------------------------------
 */

static inline uint32_t avx512_in_c_flushed(uint32_t bits)
{
    return (bits & 0x7f800000u) != 0 ? bits : bits & 0x80000000u;
}

static inline float avx512_in_c_wide(uint16_t narrow)
{
    uint32_t bits = avx512_in_c_flushed((uint32_t)narrow << 16);
    float wide;
    memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

static inline uint16_t avx512_in_c_narrow(uint32_t bits)
{
    bits = avx512_in_c_flushed(bits);
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Each product of two bfloat16 numbers is exact in float32. */
static inline __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b)
{
    union avx512_in_c to = {.ps = sum}, x = {.pbh = a}, y = {.pbh = b};
    for (size_t i = 0; i < 16; i++) {
        to.f32[i] += avx512_in_c_wide(x.u16[2 * i + 1]) * avx512_in_c_wide(y.u16[2 * i + 1]);
        to.f32[i] += avx512_in_c_wide(x.u16[2 * i]) * avx512_in_c_wide(y.u16[2 * i]);
    }
    return to.ps;
}

/* The numbers of b come first. */
static inline __m512bh _mm512_cvtne2ps_pbh(__m512 a, __m512 b)
{
    union avx512_in_c x = {.ps = a}, y = {.ps = b}, to;
    for (size_t i = 0; i < 16; i++) {
        to.u16[i] = avx512_in_c_narrow(y.u32[i]);
        to.u16[16 + i] = avx512_in_c_narrow(x.u32[i]);
    }
    return to.pbh;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops that read or write bfloat16, which is the upper half of a float32. Widening is a shift.
 * Narrowing rounds to nearest, ties to even, in integer arithmetic that every instruction set can
 * vectorise and that gives the same bits as the processor's conversion. They cannot fail.
 */
#include "kernels/cpu/cpu_isa.h"

#include <string.h>

static inline float widen(uint16_t narrow)
{
    uint32_t bits = (uint32_t)narrow << 16;
    float wide;
    memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

static inline uint32_t round_bits(uint32_t bits)
{
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

static inline uint16_t round_to_16(float wide)
{
    uint32_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    /* Rounding could turn a NaN into infinity or zero, so it becomes the quiet NaN. */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : round_bits(bits));
}

/* Rounds a number that is not NaN. */
static inline uint16_t round_number(float wide)
{
    uint32_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    return (uint16_t)round_bits(bits);
}

static void scale_row16(size_t count, const uint8_t *restrict from, float scale, float shift,
                        uint16_t *restrict to)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = round_number((float)from[i] * scale + shift);
    }
}

/* Rows that are prefetched ahead of the copied one, as in gather(). */
#define AHEAD 8
#define CACHE_LINE 64

void CT_ISA_NAME(ct_gather16)(const struct ct_gather *op)
{
    float scale = (float)(1.0 / (255.0 * (double)op->stddev));
    float shift = (float)(-(double)op->mean / (double)op->stddev);
    for (size_t b = 0; b < op->batch; b++) {
        size_t at = op->index[b];
        if (b + AHEAD < op->batch) {
            const uint8_t *next = op->images + op->index[b + AHEAD] * op->features;
            for (size_t i = 0; i < op->features; i += CACHE_LINE) {
                __builtin_prefetch(next + i);
            }
            __builtin_prefetch(op->labels + op->index[b + AHEAD]);
        }
        scale_row16(op->features, op->images + at * op->features, scale, shift,
                    (uint16_t *)op->x + b * op->features);
        op->y[b] = op->labels[at];
    }
}

static void add_row16(size_t count, const uint16_t *restrict row, float *restrict sum)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] += widen(row[i]);
    }
}

void CT_ISA_NAME(ct_column_sum16)(size_t rows, size_t cols, const uint16_t *m, float *sum)
{
    memset(sum, 0, cols * sizeof(*sum));
    for (size_t r = 0; r < rows; r++) {
        add_row16(cols, m + r * cols, sum);
    }
}

static void mask_all(size_t count, uint16_t *restrict x, const uint16_t *restrict by)
{
    for (size_t i = 0; i < count; i++) {
        /* As a signed integer a bfloat16 is positive exactly if the number is, or it is a NaN. */
        x[i] = (int16_t)by[i] > 0 ? x[i] : 0;
    }
}

void CT_ISA_NAME(ct_mask16)(size_t count, uint16_t *x, const uint16_t *mask)
{
    mask_all(count, x, mask);
}

static void narrow_all(size_t count, const float *restrict from, uint16_t *restrict to)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = round_to_16(from[i]);
    }
}

void CT_ISA_NAME(ct_narrow)(size_t count, const float *from, uint16_t *to)
{
    narrow_all(count, from, to);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers that depend only on (seed, stream, counter). Any rank can compute any number
 * without drawing the earlier ones, so a result cannot depend on which rank draws what.
 */
#ifndef CT_TRAINER_FORMATS_RNG_H
#define CT_TRAINER_FORMATS_RNG_H

#include <stdint.h>

/* Each use has a stream of its own, so that no two uses share numbers under one seed. */
enum ct_rng_stream {
    CT_RNG_INIT = 1 << 8, /* + layer index */
    CT_RNG_SYNTHETIC = 2 << 8,
    CT_RNG_AUGMENT = 1 << 29, /* + epoch */
    CT_RNG_EPOCH = 1 << 30,   /* + epoch */
};

/* The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014; David Stafford's variant 13). */
static inline uint64_t ct_rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t ct_rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio, odd */
    uint64_t key = ct_rng_mix(seed + golden * (stream + 1));
    return ct_rng_mix(key + golden * (counter + 1));
}

/* Returns a number in [0, 1), a multiple of 2^-24, which a float holds exactly. */
static inline float ct_rng_unit(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (float)(ct_rng_u64(seed, stream, counter) >> 40) * 0x1p-24f;
}

/* Returns a number in [0, limit), as the high half of a product; the bias is below limit / 2^64. */
static inline uint64_t ct_rng_below(uint64_t random, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)random * limit) >> 64);
}

#endif

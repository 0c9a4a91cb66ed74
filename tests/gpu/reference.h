/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of kernels/device/device.h in plain float64, and seeded random numbers for their
 * inputs.
 */
#ifndef CT_TESTS_GPU_REFERENCE_H
#define CT_TESTS_GPU_REFERENCE_H

#include "kernels/device/device.h"

/* Numerical Recipes' 64-bit congruential generator; the top bits are used. */
struct ct_random {
    uint64_t state;
};

static inline uint32_t ct_random_next(struct ct_random *rng)
{
    rng->state = rng->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng->state >> 32);
}

static inline size_t ct_random_below(struct ct_random *rng, size_t limit)
{
    return ct_random_next(rng) % limit;
}

/* In [-1, 1). */
static inline float ct_random_float(struct ct_random *rng)
{
    return (float)(int32_t)ct_random_next(rng) / 2147483648.0f;
}

/* All pointers in `op` that are read must be host memory. */
void ct_ref_linear(const struct ct_linear *op, double *y);
void ct_ref_linear_grad(const struct ct_linear_grad *op, double *dw, double *db, double *dx);
void ct_ref_loss(const struct ct_loss *op, double *dlogits, double totals[2]);

/* One step; of `op` only the numbers are read. */
void ct_ref_sgd(const struct ct_sgd *op, const float *grad, double *param, double *momentum_buf);
void ct_ref_adamw(const struct ct_adamw *op, const float *grad, double *param, double *m,
                  double *v);

#endif

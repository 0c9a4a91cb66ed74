/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that emulated kernels (tests/lib/fake_gpu/fake_block.h) work on: float or bfloat16, at any
 * address, with what lies behind them watched.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_ARRAY_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_ARRAY_H

#include "kernels/device/device.h"
#include "tests/gpu/reference.h"

#include <cuda_runtime_api.h>

/* What an array is full of: as a float and as a bfloat16 tiny, not NaN. */
#define ARRAY_POISON 0xa7

struct array {
    unsigned char *whole, *data;
    size_t bytes;
};

/* `count` numbers of `size` bytes that begin `skip` numbers behind what cudaMalloc() would give. */
struct array array_of(size_t count, size_t size, size_t skip);
/* Random ones in [-1, 1) unless `rng` is NULL. */
struct array array_floats(size_t count, size_t skip, struct ct_random *rng);
/* Random ones of either type; `worth` gets what they are. */
struct array array_numbers(bool narrow, size_t count, size_t skip, struct ct_random *rng,
                           float *worth);
float array_at(const struct array *a, bool narrow, size_t i);
void array_set(struct array *a, bool narrow, size_t i, float v);
/* Frees it; fails when anything behind it has changed. */
void array_end(struct array *a);

/* Zeroed, to be freed with ct_free(). */
double *array_doubles(size_t count);
float *array_plain(size_t count);

/* Waits for the default stream; fails when the launch did, or when a rule was broken. */
void kernel_done(cudaError_t status);

/* Fails unless |got - expected| <= tolerance + what rounding to the type gives. */
void expect_near(const char *what, size_t i, float got, double expected, double tolerance,
                 bool narrow);

/* Where ct_precision_narrow() is so, or not. */
enum ct_precision precision_of(bool narrow);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays for tests of emulated kernels (tests/lib/fake_gpu/fake_block.h): float or bfloat16, at any
 * address. The bytes behind an array are checked for changes.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_ARRAY_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_ARRAY_H

#include "kernels/cuda/launch.h"
#include "kernels/device/device.h"
#include "tests/gpu/reference.h"

#include <cuda_runtime_api.h>

/* Each byte of a new array. As a float or a bfloat16 it is a tiny number, not NaN. */
#define ARRAY_POISON 0xa7

struct array {
    unsigned char *whole, *data;
    size_t bytes;
};

/* Makes an array of `count` numbers of `size` bytes, which begins `skip` numbers after an aligned
 * address. */
struct array array_of(size_t count, size_t size, size_t skip);
/* Makes an array of floats, random ones in [-1, 1) unless `rng` is NULL. */
struct array array_floats(size_t count, size_t skip, struct ct_random *rng);
/* Makes an array of random numbers of either type. `worth` gets their values. */
struct array array_numbers(bool narrow, size_t count, size_t skip, struct ct_random *rng,
                           float *worth);
float array_at(const struct array *a, bool narrow, size_t i);
void array_set(struct array *a, bool narrow, size_t i, float v);
/* Frees the array. The test fails if any byte behind it has changed. */
void array_end(struct array *a);

/* Zeroed numbers, for the caller to free with ct_free(). */
double *array_doubles(size_t count);
float *array_plain(size_t count);

/* The default stream. Kernels are launched early, so that each must wait. */
extern const struct ct_launch_on on_default;

/* Waits for the default stream. The test fails if the launch failed, or if a rule was broken. */
void kernel_done(cudaError_t status);

/* Fails unless |got - expected| <= tolerance + the error of rounding to the type. */
void expect_near(const char *what, size_t i, float got, double expected, double tolerance,
                 bool narrow);

/* Returns a precision for which ct_precision_narrow() is `narrow`. */
enum ct_precision precision_of(bool narrow);

#endif

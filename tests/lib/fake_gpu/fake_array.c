/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays have guard bytes behind them. Functions that find a difference fail the test.
 */
#include "tests/lib/fake_gpu/fake_array.h"

#include "common/alloc.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/fake_gpu/fake_gpu.h"
#include "tests/lib/fake_gpu/fake_number.h"
#include "tests/lib/fake_gpu/fake_view.h"

#include <math.h>

#define GUARD 32

struct array array_of(size_t count, size_t size, size_t skip)
{
    struct array a = {.bytes = count * size};
    a.whole = ct_malloc(16 + skip * size + a.bytes + GUARD);
    assert_non_null(a.whole);
    a.data = (unsigned char *)(((uintptr_t)a.whole + 15) / 16 * 16) + skip * size;
    memset(a.data, ARRAY_POISON, a.bytes + GUARD);
    fake_view_add(a.whole, 16 + skip * size + a.bytes + GUARD);
    return a;
}

struct array array_floats(size_t count, size_t skip, struct ct_random *rng)
{
    struct array a = array_of(count, sizeof(float), skip);
    for (size_t i = 0; rng != NULL && i < count; i++) {
        ((float *)a.data)[i] = ct_random_float(rng);
    }
    return a;
}

struct array array_numbers(bool narrow, size_t count, size_t skip, struct ct_random *rng,
                           float *worth)
{
    struct array a = array_of(count, narrow ? sizeof(uint16_t) : sizeof(float), skip);
    for (size_t i = 0; i < count; i++) {
        worth[i] = ct_random_float(rng);
        if (narrow) {
            ((uint16_t *)a.data)[i] = to_bf16(worth[i]);
            worth[i] = from_bf16(((uint16_t *)a.data)[i]);
        } else {
            ((float *)a.data)[i] = worth[i];
        }
    }
    return a;
}

float array_at(const struct array *a, bool narrow, size_t i)
{
    return narrow ? from_bf16(((uint16_t *)a->data)[i]) : ((float *)a->data)[i];
}

void array_set(struct array *a, bool narrow, size_t i, float v)
{
    if (narrow) {
        ((uint16_t *)a->data)[i] = to_bf16(v);
    } else {
        ((float *)a->data)[i] = v;
    }
}

void array_end(struct array *a)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(a->data[a->bytes + i], ARRAY_POISON);
    }
    fake_view_remove(a->whole);
    ct_free(a->whole);
}

double *array_doubles(size_t count)
{
    double *p = ct_calloc(count, sizeof *p);
    assert_non_null(p);
    return p;
}

float *array_plain(size_t count)
{
    float *p = ct_calloc(count, sizeof *p);
    assert_non_null(p);
    return p;
}

const struct ct_launch_on on_default = {.early = true};

void kernel_done(cudaError_t status)
{
    assert_int_equal(status, cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
}

/* Rounding to bfloat16 changes a number by at most half of its last bit, 0.4 %. */
void expect_near(const char *what, size_t i, float got, double expected, double tolerance,
                 bool narrow)
{
    double allowed = tolerance + fabs(expected) * (narrow ? 0.004 : 2e-6);
    if (!(fabs((double)got - expected) <= allowed)) {
        fail_msg("%s[%zu]: %.9g, reference %.9g", what, i, (double)got, expected);
    }
}

enum ct_precision precision_of(bool narrow)
{
    return narrow ? CT_PRECISION_BF16 : CT_PRECISION_TF32;
}

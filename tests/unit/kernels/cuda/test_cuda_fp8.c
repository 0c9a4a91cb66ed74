/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA kernel that makes 8-bit copies of a matrix and of its transpose, emulated
 * (tests/lib/fake_gpu/fake_block.h), against rounding by search: every tile's edge, both types,
 * what is not finite, and how the scale follows the numbers of the launches before.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/cuda/launch.h"
#include "tests/lib/fake_gpu/fake_array.h"
#include "tests/lib/fake_gpu/fake_gpu.h"
#include "tests/lib/fake_gpu/fake_number.h"
#include "tests/lib/fake_gpu/fake_view.h"

#include <float.h>
#include <math.h>

static struct ct_fp8_scale scale;

static float widest_of(enum ct_fp8_type type)
{
    return type == CT_E4M3 ? 448.0f : 57344.0f;
}

static float scale_of(enum ct_fp8_type type, float largest)
{
    return largest == 0.0f ? 1.0f : fmaxf(largest * (2.0f / widest_of(type)), FLT_MIN);
}

static uint8_t rounded(enum ct_fp8_type type, float v)
{
    float scaled = v * (1.0f / scale.scale);
    return type == CT_E4M3 ? to_e4m3(scaled) : to_e5m2(scaled);
}

static float worth(enum ct_fp8_type type, uint8_t v)
{
    return type == CT_E4M3 ? from_e4m3(v) : from_e5m2(v);
}

static void expect_copy(const struct ct_fp8_copy *op, size_t r, size_t c, float v)
{
    const uint8_t *copies[] = {op->to == NULL ? NULL : op->to + r * op->cols + c,
                               op->transposed == NULL ? NULL : op->transposed + c * op->rows + r};
    for (size_t i = 0; i < 2; i++) {
        if (copies[i] != NULL && !isfinite(v)) {
            assert_true(isnan(worth(op->type, *copies[i])));
        } else if (copies[i] != NULL) {
            assert_int_equal(*copies[i], rounded(op->type, v));
        }
    }
}

enum { PLAIN = 1, TRANSPOSED = 2 };

/* Looks at each `step`-th number. */
static void check_copy(enum ct_fp8_type type, size_t rows, size_t cols, int wanted, float size,
                       size_t step)
{
    size_t count = rows * cols;
    struct ct_random rng = {rows + cols};
    float *numbers = array_plain(count), largest = 0;
    struct array from = array_numbers(true, count, 0, &rng, numbers);
    struct array to = array_of(count, 1, 0), transposed = array_of(count, 1, 0);
    const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f};
    for (size_t i = 0; i < count; i++) {
        array_set(&from, true, i, i % 37 == 5 ? odd[i / 37 % 4] : numbers[i] * size);
        numbers[i] = array_at(&from, true, i);
        largest = isfinite(numbers[i]) ? fmaxf(largest, fabsf(numbers[i])) : largest;
    }
    const struct ct_fp8_copy op = {
        .rows = rows,
        .cols = cols,
        .type = type,
        .from = (uint16_t *)from.data,
        .to = wanted & PLAIN ? to.data : NULL,
        .transposed = wanted & TRANSPOSED ? transposed.data : NULL,
        .scale = &scale,
    };
    kernel_done(ct_launch_fp8_seed(on_default, count, op.from, &scale));
    kernel_done(ct_launch_fp8(on_default, &op));
    assert_true(scale.scale == scale_of(type, largest));
    for (size_t i = 0; i < count; i += step) {
        expect_copy(&op, i / cols, i % cols, numbers[i]);
    }
    array_end(&from), array_end(&to), array_end(&transposed);
    ct_free(numbers);
}

static void copies_and_transposes_are_rounded_to_8_bits(void **state)
{
    (void)state;
    const size_t sizes[][2] = {{16, 16}, {16, 64}, {128, 16}, {144, 80}, {112, 208}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int wanted = PLAIN; wanted <= (PLAIN | TRANSPOSED); wanted++) {
            check_copy(CT_E4M3, sizes[i][0], sizes[i][1], wanted, 1, 1);
            check_copy(CT_E5M2, sizes[i][0], sizes[i][1], wanted, 1, 1);
        }
    }
    const float of[] = {3e38f, 0, 1e-37f, 1e-39f};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        check_copy(CT_E4M3, 16, 48, PLAIN | TRANSPOSED, of[i], 1);
        check_copy(CT_E5M2, 16, 48, PLAIN | TRANSPOSED, of[i], 1);
    }
    check_copy(CT_E4M3, 16, (size_t)64 * 1030, TRANSPOSED, 1, 61); /* more tiles than blocks */
}

/* Copies a matrix of one number, which must take the given scale. */
static void expect_scale(enum ct_fp8_type type, float number, float expected, bool saturates)
{
    struct array from = array_of(256, 2, 0), to = array_of(256, 1, 0);
    for (size_t i = 0; i < 256; i++) {
        array_set(&from, true, i, number);
    }
    const struct ct_fp8_copy op = {16, 16, type, (uint16_t *)from.data, to.data, NULL, &scale};
    kernel_done(ct_launch_fp8(on_default, &op));
    assert_true(scale.scale == expected);
    float got = worth(type, to.data[77]);
    float most_off = 1e-6f * number; /* the largest numbers of the types are no powers of two */
    assert_true(saturates ? got == widest_of(type) : fabsf(got * scale.scale - number) <= most_off);
    array_end(&from), array_end(&to);
}

/* Numbers that both types have at all of these scales. */
static void the_scale_follows_the_launches_before(void **state)
{
    (void)state;
    for (enum ct_fp8_type type = CT_E4M3; type <= CT_E5M2; type++) {
        float one = 2.0f / widest_of(type);
        memset(&scale, 0, sizeof scale);
        expect_scale(type, 4, 1, false); /* nothing is known yet */
        expect_scale(type, 4, 4 * one, false);
        expect_scale(type, 8, 4 * one, false); /* the margin */
        expect_scale(type, 64, 8 * one, true);
        expect_scale(type, 1, 64 * one, false);
        for (unsigned i = 2; i <= CT_FP8_HISTORY; i++) {
            expect_scale(type, 1, 64 * one, false);
        }
        expect_scale(type, 1, one, false); /* 64 is forgotten */
        for (unsigned i = 0; i <= CT_FP8_HISTORY; i++) {
            expect_scale(type, 0, one, false);
        }
        expect_scale(type, 1, one, false);
    }
}

static int begin(void **state)
{
    (void)state;
    fake_gpu_begin(&(struct fake_gpu){.seed = 3});
    fake_view_add(&scale, sizeof scale);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_and_transposes_are_rounded_to_8_bits),
        cmocka_unit_test(the_scale_follows_the_launches_before),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

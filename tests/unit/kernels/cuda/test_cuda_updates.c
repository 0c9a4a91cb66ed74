/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA kernels that update parameters and make copies in fewer bits, emulated
 * (tests/lib/fake_gpu/fake_block.h), against the float64 reference: on sizes that are no multiple
 * of anything, at odd addresses, with NaN and infinity where they can come, and with what lies
 * behind the result watched.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/update_scalars.h"
#include "tests/gpu/reference.h"
#include "tests/lib/fake_gpu/fake_array.h"
#include "tests/lib/fake_gpu/fake_gpu.h"
#include "tests/lib/fake_gpu/fake_number.h"

#include <math.h>

static const size_t counts[] = {1, 2, 3, 7, 8, 9, 63, 255, 257, 1000, 4099};
#define COUNTS (sizeof counts / sizeof counts[0])

/* ---- updates --------------------------------------------------------------------------------- */

/* Where each array begins, in numbers: all at 16 bytes, all off, each elsewhere. */
static const size_t skips[][5] = {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}, {0, 0, 0, 0, 1},
                                  {0, 0, 0, 1, 0}, {0, 0, 1, 0, 0}, {0, 1, 0, 0, 4},
                                  {2, 0, 0, 0, 0}, {0, 0, 0, 0, 4}};
#define SKIPS (sizeof skips / sizeof skips[0])

struct update {
    struct array p, g, m, v, narrow;
    double *rp, *rm, *rv;
};

static struct update begin_update(size_t count, const size_t *skip)
{
    struct ct_random rng = {count};
    struct update u = {
        .p = array_floats(count, skip[0], &rng),
        .g = array_floats(count, skip[1], &rng),
        .m = array_floats(count, skip[2], &rng),
        .v = array_floats(count, skip[3], &rng),
        .narrow = array_of(count, 2, skip[4]),
        .rp = array_doubles(count),
        .rm = array_doubles(count),
        .rv = array_doubles(count),
    };
    for (size_t i = 0; i < count; i++) {
        float *v = (float *)u.v.data + i;
        *v *= *v;
        u.rp[i] = (double)((float *)u.p.data)[i];
        u.rm[i] = (double)((float *)u.m.data)[i];
        u.rv[i] = (double)*v;
    }
    return u;
}

static void end_update(struct update *u, size_t count, bool momentum, bool narrow)
{
    for (size_t i = 0; i < count; i++) {
        float p = ((float *)u->p.data)[i];
        expect_near("p", i, p, u->rp[i], 2e-5, false);
        if (momentum) {
            expect_near("m", i, ((float *)u->m.data)[i], u->rm[i], 1e-6, false);
        }
        expect_near("v", i, ((float *)u->v.data)[i], u->rv[i], 1e-6, false);
        assert_int_equal(((uint16_t *)u->narrow.data)[i],
                         narrow ? to_bf16(p) : ARRAY_POISON << 8 | ARRAY_POISON);
    }
    array_end(&u->p), array_end(&u->g), array_end(&u->m), array_end(&u->v), array_end(&u->narrow);
    ct_free(u->rp), ct_free(u->rm), ct_free(u->rv);
}

/* Two steps; the second one finds its rate in the cursor. */
static void check_sgd(size_t count, const size_t *skip, bool momentum, bool narrow)
{
    const uint64_t now = 1;
    const struct ct_update_scalars scalars[3] = {{.lr = 9}, {.lr = 9}, {.lr = 0.2f}};
    const struct ct_step_cursor cursor = {.now = &now, .ahead = 1, .scalars = scalars};
    struct update u = begin_update(count, skip);
    struct ct_sgd op = {
        .count = count,
        .param = (float *)u.p.data,
        .momentum_buf = momentum ? (float *)u.m.data : NULL,
        .grad = (float *)u.g.data,
        .lr = 0.1f,
        .momentum = momentum ? 0.9f : 0.0f,
        .weight_decay = 0.01f,
        .narrow = narrow ? (uint16_t *)u.narrow.data : NULL,
    };
    ct_ref_sgd(&op, op.grad, u.rp, u.rm);
    kernel_done(ct_launch_sgd(on_default, &op, (struct ct_update_scalars){.lr = op.lr}));
    op.cursor = &cursor;
    op.lr = 0.2f;
    ct_ref_sgd(&op, op.grad, u.rp, u.rm);
    kernel_done(ct_launch_sgd(on_default, &op, (struct ct_update_scalars){.lr = 7}));
    end_update(&u, count, momentum, narrow);
}

static void check_adamw(size_t count, const size_t *skip, bool narrow)
{
    struct update u = begin_update(count, skip);
    struct ct_adamw op = {
        .count = count,
        .param = (float *)u.p.data,
        .m = (float *)u.m.data,
        .v = (float *)u.v.data,
        .grad = (float *)u.g.data,
        .lr = 0.01f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-8f,
        .weight_decay = 0.1f,
        .narrow = narrow ? (uint16_t *)u.narrow.data : NULL,
    };
    struct ct_update_scalars scalars[2];
    for (op.step = 1; op.step <= 2; op.step++) {
        scalars[op.step - 1] =
            ct_update_scalars_adamw(op.lr, op.beta1, op.beta2, op.weight_decay, op.step);
        ct_ref_adamw(&op, op.grad, u.rp, u.rm, u.rv);
    }
    const uint64_t now = 1;
    const struct ct_step_cursor cursor = {.now = &now, .scalars = scalars};
    kernel_done(ct_launch_adamw(on_default, &op, scalars[0]));
    op.cursor = &cursor;
    kernel_done(ct_launch_adamw(on_default, &op, (struct ct_update_scalars){0}));
    end_update(&u, count, true, narrow);
}

static void updates_as_the_reference_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS * SKIPS; i++) {
        size_t count = counts[i / SKIPS];
        const size_t *skip = skips[i % SKIPS];
        check_sgd(count, skip, true, true);
        check_sgd(count, skip, true, false);
        check_sgd(count, skip, false, true);
        check_adamw(count, skip, true);
        check_adamw(count, skip, false);
    }
    const uint64_t steps = 5;
    uint64_t now = 37;
    kernel_done(ct_launch_advance(on_default, &now, steps));
    assert_int_equal(now, 42);
}

/* ---- fewer bits ------------------------------------------------------------------------------ */

static void check_narrow(size_t count, size_t skip_from, size_t skip_to)
{
    struct ct_random rng = {count + skip_from};
    struct array from = array_floats(count, skip_from, &rng), to = array_of(count, 2, skip_to);
    float *f = (float *)from.data;
    const float edges[] = {NAN,         INFINITY,      -INFINITY, 1.00390625f,
                           1.01171875f, 3.4028235e38f, -0.0f,     1e-40f};
    for (size_t i = 0; i < count && count > 8; i++) {
        f[i] = i % 5 == 2 ? edges[i / 5 % 8] : f[i];
    }
    kernel_done(ct_launch_narrow(on_default, count, f, (uint16_t *)to.data));
    for (size_t i = 0; i < count; i++) {
        uint16_t got = ((uint16_t *)to.data)[i];
        assert_true(isnan(f[i]) ? isnan(from_bf16(got)) : got == to_bf16(f[i]));
    }
    array_end(&from), array_end(&to);
}

static void narrows_to_the_nearest_bfloat16(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++) {
        for (size_t skip = 0; skip < 32; skip += 1 + skip / 4) {
            check_narrow(counts[i], skip % 4, skip % 8);
        }
    }
    check_narrow(8192 * 256 + 77, 0, 0); /* more than there are threads */
}

static int begin(void **state)
{
    (void)state;
    fake_gpu_begin(&(struct fake_gpu){.seed = 3});
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_as_the_reference_does),
        cmocka_unit_test(narrows_to_the_nearest_bfloat16),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

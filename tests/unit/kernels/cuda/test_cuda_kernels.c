/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA kernels of a layer's and a batch's work, emulated (tests/lib/fake_gpu/fake_block.h),
 * against the float64 reference: on sizes that are no multiple of anything, at odd addresses, with
 * NaN and infinity where they can come, and with what lies behind the result watched.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/cuda/launch.h"
#include "tests/gpu/reference.h"
#include "tests/lib/fake_gpu/fake_array.h"
#include "tests/lib/fake_gpu/fake_gpu.h"
#include "tests/lib/fake_gpu/fake_number.h"
#include "tests/lib/fake_gpu/fake_view.h"

#include <math.h>

static const size_t counts[] = {1, 2, 3, 7, 8, 9, 63, 255, 257, 1000, 4099};
#define COUNTS (sizeof counts / sizeof counts[0])

/* ---- element by element ---------------------------------------------------------------------- */

static void check_mask(bool narrow, size_t count, size_t skip_x, size_t skip_mask)
{
    struct ct_random rng = {count * 3 + skip_x};
    float *worth = array_plain(count), *by = array_plain(count);
    struct array x = array_numbers(narrow, count, skip_x, &rng, worth);
    struct array mask = array_numbers(narrow, count, skip_mask, &rng, by);
    const float edges[] = {NAN, 0.0f, -0.0f, INFINITY, -INFINITY, 1e-40f};
    for (size_t i = 0; i < count; i += 2) {
        by[i] = edges[i / 2 % 6];
        array_set(&mask, narrow, i, by[i]);
    }
    if (count > 6) { /* what it keeps, it does not look at */
        worth[6] = NAN, array_set(&x, narrow, 6, NAN);
    }
    kernel_done(ct_launch_mask(on_default, precision_of(narrow), count, x.data, mask.data));
    for (size_t i = 0; i < count; i++) {
        float expected = by[i] > 0.0f ? worth[i] : 0.0f, got = array_at(&x, narrow, i);
        assert_true(isnan(expected) ? isnan(got) : got == expected);
        assert_true(got != 0.0f || !signbit(got));
    }
    array_end(&x), array_end(&mask);
    ct_free(worth), ct_free(by);
}

static void masks_as_the_reference_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++) {
        for (size_t skip = 0; skip < 8; skip++) {
            for (int narrow = 0; narrow < 2; narrow++) {
                check_mask(narrow, counts[i], skip, skip);
                check_mask(narrow, counts[i], skip, (skip + 1) % 8);
            }
        }
    }
}

static void check_add_bias(bool narrow, bool wide, bool relu, size_t batch, size_t out, size_t skip,
                           size_t skip_b)
{
    struct ct_random rng = {batch * 31 + out};
    size_t count = batch * out;
    bool stored = narrow && !wide;
    float *worth = array_plain(count);
    struct array y = array_numbers(stored, count, skip, &rng, worth),
                 b = array_floats(out, skip_b, &rng);
    worth[count - 1] = NAN, array_set(&y, stored, count - 1, NAN);
    const struct ct_linear op = {
        .batch = batch, .out = out, .y = y.data, .b = (float *)b.data, .relu = relu, .wide = wide};
    kernel_done(ct_launch_add_bias(on_default, precision_of(narrow), &op));
    assert_true(isnan(array_at(&y, stored, count - 1)));
    for (size_t i = 0; i + 1 < count; i++) {
        double sum = (double)worth[i] + (double)((float *)b.data)[i % out];
        expect_near("y", i, array_at(&y, stored, i), relu && sum < 0 ? 0 : sum, 1e-7, stored);
    }
    array_end(&y), array_end(&b);
    ct_free(worth);
}

static void adds_biases_as_the_reference_does(void **state)
{
    (void)state;
    const size_t outs[] = {1, 3, 4, 8, 10, 16, 31, 256};
    for (size_t o = 0; o < sizeof outs / sizeof outs[0]; o++) {
        for (size_t batch = 1; batch < 70; batch = batch * 2 + 1) {
            for (size_t skip = 0; skip < 8; skip += 1 + skip) {
                bool relu = (batch + o) % 2;
                size_t skip_b = batch % 4 == 3 ? 0 : skip % 4;
                check_add_bias(false, false, relu, batch, outs[o], skip, skip_b);
                check_add_bias(true, false, relu, batch, outs[o], skip, skip_b);
                check_add_bias(true, true, relu, batch, outs[o], skip, skip_b);
            }
        }
    }
}

/* ---- rows and columns ------------------------------------------------------------------------ */

static void sums_columns_as_the_reference_does(void **state)
{
    (void)state;
    const size_t rows[] = {1, 3, 16, 17, 1000}, cols[] = {1, 3, 31, 33, 256};
    for (size_t i = 0; i < 50; i++) {
        size_t r = rows[i % 5], c = cols[i / 5 % 5];
        bool narrow = i >= 25;
        struct ct_random rng = {i};
        float *worth = array_plain(r * c);
        struct array m = array_numbers(narrow, r * c, 0, &rng, worth),
                     sum = array_floats(c, 0, NULL);
        array_set(&m, narrow, c / 2, NAN);
        kernel_done(ct_launch_column_sums(on_default, precision_of(narrow), 1, r, c, m.data, 0,
                                          (float *)sum.data));
        for (size_t k = 0; k < c; k++) {
            double expected = 0;
            for (size_t b = 0; b < r; b++) {
                expected += (double)worth[b * c + k];
            }
            float got = ((float *)sum.data)[k];
            if (k == c / 2) {
                assert_true(isnan(got));
            } else {
                expect_near("sum", k, got, expected, 1e-6 * (sqrt((double)r) + 1), false);
            }
        }
        array_end(&m), array_end(&sum);
        ct_free(worth);
    }
}

/* Where --consistent puts the parts of a batch depends on how many ranks there are. */
static void sums_columns_in_one_order_at_any_address(void **state)
{
    (void)state;
    enum { ROWS = 1029, COLS = 136 };
    for (int narrow = 0; narrow < 2; narrow++) {
        float *worth = array_plain((size_t)ROWS * COLS), expected[COLS];
        for (size_t skip = 0; skip < 3; skip++) {
            struct ct_random rng = {7};
            struct array m = array_numbers(narrow, (size_t)ROWS * COLS, skip, &rng, worth),
                         sum = array_floats(COLS, 0, NULL);
            kernel_done(ct_launch_column_sums(on_default, precision_of(narrow), 1, ROWS, COLS,
                                              m.data, 0, (float *)sum.data));
            if (skip == 0) {
                memcpy(expected, sum.data, sizeof expected);
            }
            assert_memory_equal(sum.data, expected, sizeof expected);
            array_end(&m), array_end(&sum);
        }
        ct_free(worth);
    }
}

static void check_gather(bool narrow, bool by_cursor, size_t features, size_t skip)
{
    enum { SAMPLES = 50, BATCH = 7 };
    struct ct_random rng = {features};
    struct array images = array_of(SAMPLES * features, 1, skip), labels = array_of(SAMPLES, 1, 0);
    struct array x = array_of(BATCH * features, narrow ? 2 : 4, 0), y = array_of(BATCH, 1, 0);
    for (size_t i = 0; i < SAMPLES * features; i++) {
        images.data[i] = (uint8_t)ct_random_below(&rng, 256);
    }
    uint32_t order[SAMPLES];
    for (size_t i = 0; i < SAMPLES; i++) {
        labels.data[i] = (uint8_t)(i * 5);
        order[i] = (uint32_t)((i * 11 + 3) % SAMPLES);
    }
    /* The third batch of 14, of which the second half is this rank's. */
    const uint64_t now = 1;
    const struct ct_step_cursor cursor = {
        .now = &now, .ahead = 1, .order = order, .batch = 2 * BATCH, .begin = BATCH};
    const struct ct_gather op = {
        .images = images.data,
        .labels = labels.data,
        .batch = BATCH,
        .features = features,
        .mean = 0.25f,
        .stddev = 0.5f,
        .x = x.data,
        .y = y.data,
        .cursor = by_cursor ? &cursor : NULL,
    };
    const uint32_t *index = by_cursor ? order + 2 * cursor.batch + BATCH : order;
    kernel_done(ct_launch_gather(on_default, precision_of(narrow), &op, by_cursor ? NULL : order));
    for (size_t b = 0; b < BATCH; b++) {
        assert_int_equal(y.data[b], labels.data[index[b]]);
        for (size_t i = 0; i < features; i++) {
            double pixel = (double)images.data[index[b] * features + i] / 255.0;
            expect_near("x", i, array_at(&x, narrow, b * features + i), (pixel - 0.25) / 0.5, 1e-6,
                        narrow);
        }
    }
    array_end(&images), array_end(&labels), array_end(&x), array_end(&y);
}

static void gathers_as_the_reference_does(void **state)
{
    (void)state;
    const size_t features[] = {1, 3, 16, 255, 784};
    for (size_t i = 0; i < 20; i++) {
        check_gather(i % 2, i / 2 % 2, features[i / 4], 0);
        check_gather(i % 2, i / 2 % 2, features[i / 4], 1);
    }
}

/* ---- loss ------------------------------------------------------------------------------------ */

static struct ct_loss_sums sums;

static void check_loss(bool narrow, size_t batch, size_t classes, float spread)
{
    struct ct_random rng = {batch * 7 + classes};
    struct array logits = array_floats(batch * classes, 0, &rng), labels = array_of(batch, 1, 0);
    struct array d = array_of(batch * classes, narrow ? 2 : 4, 0);
    for (size_t i = 0; i < batch * classes; i++) {
        ((float *)logits.data)[i] *= spread;
    }
    for (size_t b = 0; b < batch; b++) {
        labels.data[b] = (uint8_t)ct_random_below(&rng, classes);
    }
    double totals[2] = {3, 2}, expected[2] = {3, 2}, *ref = array_doubles(batch * classes);
    struct ct_loss op = {
        .batch = batch,
        .classes = classes,
        .logits = (float *)logits.data,
        .labels = labels.data,
        .scale = 0.25f,
        .dlogits = d.data,
        .totals = totals,
    };
    ct_ref_loss(&op, ref, expected);
    kernel_done(ct_launch_loss(on_default, precision_of(narrow), &op, &sums));
    for (size_t i = 0; i < batch * classes; i++) {
        expect_near("dlogits", i, array_at(&d, narrow, i), ref[i], 1e-7, narrow);
    }
    assert_true(fabs(totals[0] - expected[0]) <= 1e-6 * (double)batch + 1e-6 * expected[0]);
    assert_true(totals[1] == expected[1]);
    /* Again with the threads in another order: the same to the last bit. The steps are counted. */
    double again[2] = {3, 2};
    uint64_t now = 40;
    const struct ct_step_cursor cursor = {.now = &now, .counter = &now, .steps = 2};
    op.totals = again;
    op.cursor = &cursor;
    kernel_done(ct_launch_loss(on_default, precision_of(narrow), &op, &sums));
    assert_memory_equal(again, totals, sizeof again);
    assert_int_equal(now, 42);
    array_end(&logits), array_end(&labels), array_end(&d);
    ct_free(ref);
}

static void computes_losses_as_the_reference_does(void **state)
{
    (void)state;
    const size_t batches[] = {1, 3, 5, 128, 129}, classes[] = {1, 2, 10, 33, 256};
    for (size_t i = 0; i < 100; i++) {
        check_loss(i % 2, batches[i / 2 % 5], classes[i / 10 % 5], i < 50 ? 3 : 300);
    }
    check_loss(false, 8192 * 4 + 5, 2, 3); /* more rows than there are warps */
}

static void losses_show_what_is_no_number(void **state)
{
    (void)state;
    const float rows[4][3] = {{0, NAN, 0}, {INFINITY, 0, 0}, {-INFINITY, 0, 0}, {0, 0, 0}};
    for (size_t r = 0; r < 4; r++) {
        for (uint8_t label = 0; label < 3; label++) {
            float d[3] = {0};
            double totals[2] = {0, 0};
            const struct ct_loss op = {.batch = 1,
                                       .classes = 3,
                                       .logits = rows[r],
                                       .labels = &label,
                                       .scale = 1,
                                       .dlogits = d,
                                       .totals = totals};
            kernel_done(ct_launch_loss(on_default, CT_PRECISION_F32, &op, &sums));
            if (r < 2) {
                assert_true(isnan(totals[0]) && isnan(d[0] + d[1] + d[2]));
                assert_true(totals[1] == (r == 1 && label == 0 ? 1 : 0));
            } else { /* a class that cannot be is no fault, but for its label */
                assert_true(r == 2 && label == 0 ? isinf(totals[0]) : isfinite(totals[0]));
                assert_true(isfinite(d[0] + d[1] + d[2]));
            }
        }
    }
}

static int begin(void **state)
{
    (void)state;
    fake_gpu_begin(&(struct fake_gpu){.seed = 3});
    fake_view_add(&sums, sizeof sums);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_as_the_reference_does),
        cmocka_unit_test(adds_biases_as_the_reference_does),
        cmocka_unit_test(sums_columns_as_the_reference_does),
        cmocka_unit_test(sums_columns_in_one_order_at_any_address),
        cmocka_unit_test(gathers_as_the_reference_does),
        cmocka_unit_test(computes_losses_as_the_reference_does),
        cmocka_unit_test(losses_show_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

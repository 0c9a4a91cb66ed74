/* SPDX-License-Identifier: Apache-2.0
 *
 * Mirrored and moved images, pixel by pixel, and images that cannot be augmented.
 */
#include "tests/lib/ct_test.h"
#include "trainer/data/augment.h"

static const struct ct_augment_choice flip = {.flip = true}, shift = {.shift = true};

static void test_flip_mirrors_pixels_not_their_bytes(void **state)
{
    (void)state;
    /* Two rows of three pixels, of two bytes each. */
    const struct ct_image_shape shape = {1, 2, 3, 2};
    const uint8_t in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const uint8_t mirrored[] = {5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8};
    uint8_t out[sizeof in];
    ct_augment_image(&flip, &shape, 1, in, out);
    assert_memory_equal(out, mirrored, sizeof in);
    ct_augment_image(&flip, &shape, 2, in, out);
    assert_memory_equal(out, in, sizeof in);
}

/* Every move up to 2 of 28 pixels each way comes about, and nothing else. */
static void test_shift_moves_within_its_bounds(void **state)
{
    (void)state;
    enum { SIDE = 28, PLANES = 2 };
    const struct ct_image_shape shape = {PLANES, SIDE, SIDE, 1};
    static uint8_t in[PLANES * SIDE * SIDE], out[PLANES * SIDE * SIDE];
    in[14 * SIDE + 14] = 200; /* one dot in each plane */
    in[SIDE * SIDE + 14 * SIDE + 14] = 100;
    bool seen[5][5] = {{false}};
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t random = i * UINT64_C(0x9e3779b97f4a7c15);
        ct_augment_image(&shift, &shape, random, in, out);
        size_t dots = 0, at = 0;
        for (size_t p = 0; p < SIDE * SIDE; p++) {
            if (out[p] != 0) {
                assert_int_equal(out[p], 200);
                assert_int_equal(out[SIDE * SIDE + p], 100);
                at = p;
                dots++;
            }
        }
        assert_int_equal(dots, 1);
        size_t y = at / SIDE, x = at % SIDE;
        assert_in_range(y, 12, 16);
        assert_in_range(x, 12, 16);
        seen[y - 12][x - 12] = true;
    }
    for (size_t i = 0; i < 25; i++) {
        assert_true(seen[i / 5][i % 5]);
    }
}

static void test_what_moves_in_is_black(void **state)
{
    (void)state;
    enum { SIDE = 14 };
    const struct ct_image_shape shape = {1, SIDE, SIDE, 1};
    uint8_t in[SIDE * SIDE], out[SIDE * SIDE];
    memset(in, 9, sizeof in);
    for (uint64_t i = 0; i < 100; i++) {
        ct_augment_image(&shift, &shape, i * UINT64_C(0x9e3779b97f4a7c15), in, out);
        size_t zeros = 0;
        for (size_t p = 0; p < sizeof out; p++) {
            assert_true(out[p] == 9 || out[p] == 0);
            zeros += out[p] == 0;
        }
        assert_true(zeros == 0 || zeros == SIDE || zeros == 2 * SIDE - 1);
    }
}

static void test_flat_images_are_refused(void **state)
{
    (void)state;
    struct ct_augment augment;
    struct ct_err err = {0};
    const struct ct_dataset set = {.features = 9, .shape = {1, 1, 1, 9}};
    assert_int_equal(ct_augment_init(&augment, &flip, &set, NULL, 1, 1, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "no height and width"));
    ct_augment_fini(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flip_mirrors_pixels_not_their_bytes),
        cmocka_unit_test(test_shift_moves_within_its_bounds),
        cmocka_unit_test(test_what_moves_in_is_black),
        cmocka_unit_test(test_flat_images_are_refused),
    };
    return cmocka_run_group_tests_name("augment", tests, NULL, NULL);
}

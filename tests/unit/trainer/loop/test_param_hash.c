/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash of the parameters: every bit and every place counts, and parts add up to the whole.
 */
#include "tests/lib/ct_test.h"
#include "trainer/loop/param_hash.h"

#define COUNT 32

static uint64_t hash_of(const float *params, size_t count)
{
    return ct_param_hash_of(ct_param_hash_part(params, 0, count));
}

static void numbers(float *params)
{
    for (int i = 0; i < COUNT; i++) {
        params[i] = (float)i / 7;
    }
}

/* Written down: hashes of one version are compared with those of another. */
static void hash_stays_what_it_is(void **state)
{
    (void)state;
    float params[COUNT];
    numbers(params);
    assert_int_equal(hash_of(params, COUNT), UINT64_C(0x25677583d4704c92));
}

static void every_bit_and_every_place_counts(void **state)
{
    (void)state;
    float params[COUNT];
    numbers(params);
    uint64_t whole = hash_of(params, COUNT);
    assert_true(hash_of(params, COUNT - 2) != whole);
    for (size_t i = 0; i < COUNT; i++) {
        for (int bit = 0; bit < 32; bit += 31) {
            uint32_t bits;
            memcpy(&bits, &params[i], sizeof(bits));
            bits ^= UINT32_C(1) << bit;
            memcpy(&params[i], &bits, sizeof(bits));
            assert_true(hash_of(params, COUNT) != whole);
            numbers(params);
        }
    }
    /* Pairs change places. */
    for (size_t i = 2; i < COUNT; i += 2) {
        memcpy(params, &(float[]){params[i], params[i + 1]}, 2 * sizeof(float));
        params[i] = 0;
        params[i + 1] = 1.0F / 7;
        assert_true(hash_of(params, COUNT) != whole);
        numbers(params);
    }
}

/* As the stages of a pipeline find it. */
static void parts_add_up_to_the_whole(void **state)
{
    (void)state;
    float params[COUNT];
    numbers(params);
    for (size_t cut = 0; cut <= COUNT; cut += 2) {
        uint64_t below = ct_param_hash_part(params, 0, cut);
        uint64_t above = ct_param_hash_part(params + cut, cut, COUNT - cut);
        assert_int_equal(ct_param_hash_of(above + below), hash_of(params, COUNT));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_stays_what_it_is),
        cmocka_unit_test(every_bit_and_every_place_counts),
        cmocka_unit_test(parts_add_up_to_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory on the CPU: its alignment, and what becomes of it.
 */
#include "tests/lib/ct_test.h"

#include "kernels/cpu/cpu_memory.h"

#define LARGE ((size_t)2 << 20)

static void blocks_are_aligned_whole_and_given_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,         1,         8,     63,        64,       65,
                                   LARGE / 4, LARGE / 2, LARGE, LARGE + 1, 5 * LARGE};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    unsigned char *block[SIZES];
    ct_fault_begin(-1);
    for (size_t s = 0; s < SIZES; s++) {
        block[s] = ct_cpu_memory_new(sizes[s]);
        assert_non_null(block[s]);
        assert_int_equal((uintptr_t)block[s] % (sizes[s] >= LARGE / 2 ? LARGE : 64), 0);
        memset(block[s], (int)s + 1, sizes[s]);
    }
    for (size_t s = 0; s < SIZES; s++) { /* none lies within another */
        for (size_t i = 0; i < sizes[s]; i++) {
            assert_int_equal(block[s][i], s + 1);
        }
        ct_cpu_memory_free(block[s]);
    }
    ct_cpu_memory_free(NULL);
    assert_int_equal(ct_fault_end(), 0);
}

static void what_no_memory_can_hold_is_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - LARGE, SIZE_MAX - 2 * LARGE};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        assert_null(ct_cpu_memory_new(sizes[s]));
    }
    ct_fault_begin(0);
    assert_null(ct_cpu_memory_new(1));
    assert_int_equal(ct_fault_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_whole_and_given_back),
        cmocka_unit_test(what_no_memory_can_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

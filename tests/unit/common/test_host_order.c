/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that numbers in host names are compared as numbers.
 */
#include "common/host_order.h"
#include "tests/lib/ct_test.h"

/* In ascending order: each pair of them is compared both ways. */
static const char *const sorted[] = {
    "",
    "0",
    "00",
    "1",
    "9",
    "10",
    "10.0.0.9",
    "10.0.0.10",
    "10.0.1.1",
    "99999999999999999999999999999999999999",
    "100000000000000000000000000000000000000",
    "GPU-1",
    "gpu-1",
    "gpu-2",
    "gpu-10",
    "gpu-10a",
    "gpu-10b",
    "node",
    "node0",
    "node1",
    "node07",
    "node7",
    "node66",
    "node66-ib0",
    "node66.cluster",
    "rack2node9",
    "rack2node10",
    "rack10node1",
    "\xff",
};
static const int count = sizeof(sorted) / sizeof(sorted[0]);

static int sign(int n)
{
    return (n > 0) - (n < 0);
}

static void test_host_names_sort_by_their_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            if (sign(ct_host_compare(sorted[i], sorted[j])) != sign(i - j)) {
                fail_msg("'%s' and '%s' are in the wrong order", sorted[i], sorted[j]);
            }
        }
    }
}

/* With another text behind each end, since a comparison must stop there. */
static void test_equal_names_end_together(void **state)
{
    (void)state;
    const char a[] = "gpu-7\0a", b[] = "gpu-7\0b";
    assert_int_equal(ct_host_compare(a, b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_names_sort_by_their_numbers),
        cmocka_unit_test(test_equal_names_end_together),
    };
    return cmocka_run_group_tests_name("host_order", tests, NULL, NULL);
}

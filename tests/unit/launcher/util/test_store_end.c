/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a store outlives its job.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/util/store_end.h"

#define BEGAN INT64_C(1000000000)

static void test_it_goes_when_all_have_heard_or_after_a_moment(void **state)
{
    struct ct_store_end end = {.lingers = false};
    (void)state;
    ct_store_end_begin(&end, 0, BEGAN);
    assert_true(ct_store_end_is_over(&end, false, BEGAN));
    assert_false(ct_store_end_is_over(&end, true, BEGAN + 99 * CT_NS_PER_MS));
    assert_true(ct_store_end_is_over(&end, true, BEGAN + 100 * CT_NS_PER_MS));
}

static void test_it_lingers_until_its_time_is_over_or_it_is_told_to_go(void **state)
{
    struct ct_store_end end = {.lingers = true};
    (void)state;
    ct_store_end_begin(&end, 5, BEGAN);
    uint64_t slow_ms = ct_store_end_poll_ms(&end);
    assert_false(ct_store_end_is_over(&end, false, BEGAN + 4 * CT_NS_PER_S));
    assert_true(ct_store_end_is_over(&end, false, BEGAN + 5 * CT_NS_PER_S));
    assert_false(end.lingers);
    assert_true(ct_store_end_poll_ms(&end) < slow_ms);

    ct_store_end_begin(&end, 5, BEGAN);
    end.lingers = true;
    end.lingers = false; /* as Ctrl-C does */
    assert_true(ct_store_end_is_over(&end, false, BEGAN + CT_NS_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_goes_when_all_have_heard_or_after_a_moment),
        cmocka_unit_test(test_it_lingers_until_its_time_is_over_or_it_is_told_to_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

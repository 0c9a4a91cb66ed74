/* SPDX-License-Identifier: Apache-2.0
 *
 * When a process in uninterruptible sleep counts as a failed worker.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/hang/uninterruptible.h"

static void only_a_number_turns_the_check_on(void **state)
{
    static const struct {
        const char *var;
        int64_t ns;
    } cases[] = {
        {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=", 0},
        {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=soon", 0},
        {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=-1", 0},
        {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=0", 0},
        {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT= 1.5 ", CT_NS_PER_S * 3 / 2},
        {"OTHER=1", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *const env[] = {(char *)cases[i].var, NULL};
        assert_int_equal(ct_uninterruptible_timeout_ns(env), cases[i].ns);
    }
}

static void looks_are_frequent_and_never_busy(void **state)
{
    (void)state;
    assert_int_equal(ct_uninterruptible_period_ms(1), 100);
    assert_int_equal(ct_uninterruptible_period_ms(5 * CT_NS_PER_S), 500);
    assert_int_equal(ct_uninterruptible_period_ms(3600 * CT_NS_PER_S), 1000);
}

static void only_sleep_at_every_look_counts(void **state)
{
    struct ct_uninterruptible process = {0};
    const int64_t timeout = 2 * CT_NS_PER_S, begin = 100 * CT_NS_PER_S;
    (void)state;
    assert_int_equal(ct_uninterruptible_step(&process, 'D', timeout, begin), -1);
    assert_int_equal(ct_uninterruptible_step(&process, 'D', timeout, begin + timeout - 1), -1);
    /* Another state, or one that could not be read, starts the time anew. */
    assert_int_equal(ct_uninterruptible_step(&process, 'S', timeout, begin + timeout), -1);
    assert_int_equal(ct_uninterruptible_step(&process, 'D', timeout, begin + timeout), -1);
    assert_int_equal(ct_uninterruptible_step(&process, '?', timeout, begin + 2 * timeout), -1);
    assert_int_equal(ct_uninterruptible_step(&process, 'D', timeout, begin + 3 * timeout), -1);
    assert_int_equal(ct_uninterruptible_step(&process, 'D', timeout, begin + 4 * timeout), timeout);
    assert_int_equal(ct_uninterruptible_step(&process, 'D', timeout, begin + 5 * timeout),
                     2 * timeout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_number_turns_the_check_on),
        cmocka_unit_test(looks_are_frequent_and_never_busy),
        cmocka_unit_test(only_sleep_at_every_look_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that a C library of 2018 does not have: names of signals, and closing a range of
 * descriptors.
 */
#include "tests/lib/ct_test.h"

#include "common/older_libc.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void names_are_those_of_the_library(void **state)
{
    (void)state;
    for (int signo = -1; signo < 80; signo++) {
        const char *expected = sigabbrev_np(signo), *found = ct_older_libc_sigabbrev(signo);
        assert_int_equal(expected == NULL, found == NULL);
        if (expected != NULL) {
            assert_string_equal(found, expected);
        }
    }
}

static void a_range_of_descriptors_is_closed(void **state)
{
    (void)state;
    int first = fcntl(STDERR_FILENO, F_DUPFD, 200), beyond = fcntl(STDERR_FILENO, F_DUPFD, 210);
    assert_true(first >= 200 && beyond > first);
    if (ct_older_libc_close_range((unsigned)first, (unsigned)beyond - 1, 0) != 0) {
        assert_int_equal(errno, ENOSYS);
        skip();
    }
    assert_int_equal(fcntl(first, F_GETFD), -1);
    assert_int_not_equal(fcntl(beyond, F_GETFD), -1);
    assert_int_equal(close(beyond), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_library),
        cmocka_unit_test(a_range_of_descriptors_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

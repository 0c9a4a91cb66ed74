/* SPDX-License-Identifier: Apache-2.0
 *
 * What SIGTERM and SIGUSR1 do to a process. Each case runs in a child, which sends them to itself.
 */
#ifndef CT_TESTS_LIB_SIGNAL_CHILD_H
#define CT_TESTS_LIB_SIGNAL_CHILD_H

#include <unistd.h>

/* In a case: ends the child with the number of the line at which it was not as expected. */
#define CT_EXPECT(cond)      \
    do {                     \
        if (!(cond)) {       \
            _exit(__LINE__); \
        }                    \
    } while (0)

/* What a child does with one of the two signals. It is killed after 20 s. */
typedef void ct_signal_case(int number);

/* Runs the case in a child for each signal. `before` is called in front of each child; NULL =
 * nothing. The test fails unless every child returns from the case. */
void ct_assert_outlived(ct_signal_case *body, void (*before)(void));

/* The same, but the test fails unless the signal ends every child. */
void ct_assert_ended(ct_signal_case *body, void (*before)(void));

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What every unit test includes: cmocka with the headers it wants in order.
 */
#ifndef CT_TESTS_LIB_CT_TEST_H
#define CT_TESTS_LIB_CT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/fault.h"

#endif

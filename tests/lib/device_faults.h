/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU device of which one operation fails, as any operation of a GPU may. The operations after it
 * succeed, so that a failure that is passed over is not hidden by another one. For tests that are
 * linked with -Wl,--wrap=ct_device_open.
 */
#ifndef CT_TESTS_LIB_DEVICE_FAULTS_H
#define CT_TESTS_LIB_DEVICE_FAULTS_H

#include <stdbool.h>

/* What the failing operation returns, and says. */
#define DEVICE_FAULT_CODE CT_EIO
#define DEVICE_FAULT_TEXT "the device has failed"

/* Counts from 0, which is the opening of the device; -1 = none fails. */
void device_faults_begin(int fail_at);
bool device_faults_hit(void); /* was the failing operation reached since then? */

#endif

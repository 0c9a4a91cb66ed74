/* SPDX-License-Identifier: Apache-2.0
 *
 * One body of checks for every kind of device: each operation of the table against a float64
 * reference on random data, with poisoned outputs and guarded ends. tests/unit/test_kernels_cpu.c
 * runs it on the CPU, tests/gpu/test_cuda.c on a GPU.
 */
#ifndef CT_TESTS_GPU_DEVICE_CHECKS_H
#define CT_TESTS_GPU_DEVICE_CHECKS_H

#include "kernels/device.h"

#include <stddef.h>

struct CMUnitTest;

/* Opens the device, runs every check on it as one cmocka group and closes it. Returns the number of
 * failed checks, as main() should. */
int ct_device_checks_run(const char *group, enum ct_device_kind kind);

#endif

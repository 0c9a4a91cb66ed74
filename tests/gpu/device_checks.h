/* SPDX-License-Identifier: Apache-2.0
 *
 * One body of checks for every kind of device: each operation of the table against a float64
 * reference on random data, with poisoned outputs and guarded ends.
 * tests/unit/kernels/cpu/test_kernels_cpu.c runs it on the CPU, tests/gpu/test_cuda.c on a GPU.
 */
#ifndef CT_TESTS_GPU_DEVICE_CHECKS_H
#define CT_TESTS_GPU_DEVICE_CHECKS_H

#include "tests/gpu/harness.h"

extern const struct ct_check ct_checks_layers[], ct_checks_training[], ct_checks_precision[],
    ct_checks_cut[], ct_checks_head[];

#endif

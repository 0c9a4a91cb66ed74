/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/device_checks.h"

int main(void)
{
    return ct_device_checks_run("kernels_cpu", CT_DEVICE_CPU);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the device of a kind, and answers what needs no device.
 */
#include "kernels/device/device.h"

#include "kernels/cpu/cpu.h"
#include "kernels/device/device_cuda.h"

int ct_device_open(enum ct_device_kind kind, int index, struct ct_device **out, struct ct_err *err)
{
    return kind == CT_DEVICE_CUDA ? ct_cuda_open(index, out, err) : ct_cpu_open(out, err);
}

int ct_device_set_precision(struct ct_device *dev, enum ct_precision precision, struct ct_err *err)
{
    return precision == dev->precision ? 0 : dev->ops->set_precision(dev, precision, err);
}

int ct_device_cuda_count(void)
{
    return ct_cuda_count();
}

bool ct_device_cuda_possible(void)
{
    return ct_cuda_possible();
}

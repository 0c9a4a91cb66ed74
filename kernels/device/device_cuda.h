/* SPDX-License-Identifier: Apache-2.0
 *
 * The way to the CUDA table: loaded from the plug-in ctrun-cuda.so (device_cuda_load.c), or absent
 * (device_cuda_fallback.c).
 */
#ifndef CT_KERNELS_DEVICE_DEVICE_CUDA_H
#define CT_KERNELS_DEVICE_DEVICE_CUDA_H

#include "kernels/device/device.h"

/* As ct_device_open(), ct_device_cuda_count() and ct_device_cuda_possible(). */
CT_MUST_CHECK int ct_cuda_open(int index, struct ct_device **out, struct ct_err *err);
int ct_cuda_count(void);
bool ct_cuda_possible(void);

#endif

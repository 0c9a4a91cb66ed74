/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun-cuda.so shows to device_cuda_load.c: one constant named ct_cuda_plugin.
 */
#ifndef CT_KERNELS_CUDA_CUDA_PLUGIN_H
#define CT_KERNELS_CUDA_CUDA_PLUGIN_H

#include "kernels/device/device.h"

#define CT_CUDA_PLUGIN_FILE "ctrun-cuda.so"
#define CT_CUDA_PLUGIN_SYMBOL "ct_cuda_plugin"

struct ct_cuda_plugin {
    const char *version; /* CT_VERSION of its build; first, so that any version can read it */
    size_t ops_size;     /* sizeof(struct ct_device_ops) there */
    int (*open)(int index, struct ct_device **out, struct ct_err *err); /* as ct_device_open() */
    int (*count)(int *out, struct ct_err *err);
};

#endif

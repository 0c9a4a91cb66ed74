/* SPDX-License-Identifier: Apache-2.0
 *
 * The only symbol that ctrun-cuda.so exports, for device_cuda_load.c: a constant with the functions
 * of the plug-in.
 */
#ifndef CT_KERNELS_CUDA_CUDA_PLUGIN_H
#define CT_KERNELS_CUDA_CUDA_PLUGIN_H

#include "kernels/device/device.h"

#define CT_CUDA_PLUGIN_FILE "ctrun-cuda.so"
#define CT_CUDA_PLUGIN_SYMBOL "ct_cuda_plugin"

struct ct_cuda_plugin {
    const char *version; /* CT_VERSION of its build; first, so that any version can read it */
    size_t ops_size;     /* sizeof(struct ct_device_ops) in its build */
    int (*open)(int index, struct ct_device **out, struct ct_err *err); /* as ct_device_open() */
    int (*count)(int *out, struct ct_err *err);
};

#endif

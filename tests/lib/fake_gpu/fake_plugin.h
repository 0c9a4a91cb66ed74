/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices of the CUDA plug-in on the stand-in for a GPU. What goes wrong fails the test.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_PLUGIN_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_PLUGIN_H

#include "kernels/cuda/cuda_plugin.h"
#include "tests/lib/fake_gpu/fake_gpu.h"

extern const struct ct_cuda_plugin ct_cuda_plugin;

/* Begins the stand-in anew with `script` (NULL: an ordinary machine) and opens its GPU 3. */
struct ct_device *fake_plugin_open(const struct fake_gpu *script);

/* Nothing that the plug-in took from CUDA or cuBLASLt is left, and it has broken no rule. */
void fake_plugin_expect_clean(void);

/* Closes the device, and expects that nothing is left. */
void fake_plugin_close(struct ct_device *dev);

#endif

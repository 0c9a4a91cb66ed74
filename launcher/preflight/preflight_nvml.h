/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVIDIA's management library says of the GPUs. It is loaded at run time, so nothing depends
 * on it.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_NVML_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_NVML_H

#include "launcher/preflight/preflight.h"

/* The driver's, not the stub of the toolkit. */
#define CT_PREFLIGHT_NVML "libnvidia-ml.so.1"

/* Sets `gpus` and `gpu_trouble`. Without the library `gpus` stays -1. A library that cannot be
 * initialized is trouble, unless there is no driver at all. */
void ct_preflight_nvml(const char *library, struct ct_preflight_machine *machine);

#endif

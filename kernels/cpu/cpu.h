/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's device table.
 */
#ifndef CT_KERNELS_CPU_CPU_H
#define CT_KERNELS_CPU_CPU_H

#include "kernels/device/device.h"

/* Gives *out, which the caller must close by out->ops->close(). */
CT_MUST_CHECK int ct_cpu_open(struct ct_device **out, struct ct_err *err);

#endif

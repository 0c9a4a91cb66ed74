/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the precisions, as --precision and messages have them.
 */
#include "kernels/device/device.h"

/* In a file of its own because the CUDA plug-in has it, too: a plug-in finds nothing in programs.
 */
const char *ct_precision_name(enum ct_precision precision)
{
    static const char *const names[] = {
        [CT_PRECISION_F32] = "f32",
        [CT_PRECISION_BF16] = "bf16",
        [CT_PRECISION_TF32] = "tf32",
        [CT_PRECISION_FP8] = "fp8",
    };
    return names[precision];
}

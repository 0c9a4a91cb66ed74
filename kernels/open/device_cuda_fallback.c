/* SPDX-License-Identifier: Apache-2.0
 *
 * Equals "built without CUDA".
 */
#include "kernels/device/device_cuda.h"

int ct_cuda_open(int index, struct ct_device **out, struct ct_err *err)
{
    (void)out;
    return ct_err_set(err, CT_EUNSUPPORTED,
                      "cannot open CUDA device %d: this build has no CUDA (configure with "
                      "-Dcuda=enabled where the CUDA Toolkit is installed)",
                      index);
}

int ct_cuda_count(void)
{
    return 0;
}

bool ct_cuda_possible(void)
{
    return false;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The NCCL back end of a build without NCCL: opening fails with CT_EUNSUPPORTED.
 */
#include "worker/comm/comm.h"

int comm_nccl_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    (void)setup;
    (void)out;
    return ct_err_set(err, CT_EUNSUPPORTED, "this build has no NCCL back end");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a communicator's back end, for code that opens further communicators.
 */
#ifndef CT_WORKER_OPEN_COMM_OPEN_H
#define CT_WORKER_OPEN_COMM_OPEN_H

#include "worker/comm/comm.h"

/* Opens the back end for the ranks and machines of `setup`: solo, host or net. Gives *out. */
CT_MUST_CHECK int comm_open_without_gpus(const struct comm_setup *setup, struct ctw_comm **out,
                                         struct ct_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a crew: ranks that are threads of one process and share its memory.
 */
#ifndef CT_WORKER_OPEN_CREW_H
#define CT_WORKER_OPEN_CREW_H

#include "worker/comm/comm.h"
#include "worker/ctworker.h"

/* Waits until every rank has called it. Gives *ready, the rank's handle for the next communicator,
 * which then belongs to the caller, and *over, the flag that a rank has given up. The last rank to
 * call makes all handles. CT_EPEER if a rank has given up, CT_ETIMEDOUT. */
CT_MUST_CHECK int crew_connect(struct ctw_crew *crew, const struct comm_setup *setup, void **ready,
                               atomic_bool **over, struct ct_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a crew: ranks that are threads of one process and share its memory.
 */
#ifndef CT_WORKER_OPEN_CREW_H
#define CT_WORKER_OPEN_CREW_H

#include "worker/comm/comm.h"
#include "worker/ctworker.h"

/* Waits until every rank has come and gives each its handle for the next communicator in *ready,
 * which then belongs to the caller, and where its wish to end is seen in *over. The last to come
 * makes them. CT_EPEER when a rank has given up, CT_ETIMEDOUT. */
CT_MUST_CHECK int crew_connect(struct ctw_crew *crew, const struct comm_setup *setup, void **ready,
                               atomic_bool **over, struct ct_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a crew: ranks that are threads of one process and share its memory.
 */
#ifndef CT_WORKER_OPEN_CREW_H
#define CT_WORKER_OPEN_CREW_H

#include "worker/comm/comm.h"
#include "worker/ctworker.h"

/* Lets the ranks of a communicator find each other through the crew's memory, as there is no store,
 * and gives it the flag that a rank has given up. setup->data is the communicator's origin. */
void crew_setup(struct ctw_crew *crew, struct comm_setup *setup);

#endif

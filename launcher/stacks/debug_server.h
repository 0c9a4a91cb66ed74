/* SPDX-License-Identifier: Apache-2.0
 *
 * Where do the debug servers of PyTorch programs listen?
 * torch.distributed.debug.start_debug_server() opens a worker server at a TCP port of each rank,
 * and sets the key debug_server/rankN of the job's store to its address, such as http://gpu-1:34511
 * (torch/distributed/debug/__init__.py).
 *
 * Only the port is taken from there, and it is asked on this machine, where the worker runs.
 * Whoever may write to the store could name any port of this machine, which gets one POST request
 * for a path that only a worker server knows.
 */
#ifndef CT_LAUNCHER_STACKS_DEBUG_SERVER_H
#define CT_LAUNCHER_STACKS_DEBUG_SERVER_H

#include "launcher/stacks/probe.h"

/* The job's store. */
struct ct_debug_store {
    const char *host; /* NULL = nobody is asked */
    uint16_t port;
    int first_rank; /* global rank of local rank 0 */
};

/* Sets `port` of the targets that have told one. Blocks until `deadline_ns` at most. What the store
 * does not tell stays as it is. */
void ct_debug_servers_find(const struct ct_debug_store *store, int64_t deadline_ns,
                           struct ct_probe_target *targets, int count);

#endif

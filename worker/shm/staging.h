/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a host's ranks share, through which goes what callers keep in private memory: a place
 * for each rank's numbers and one for their sum. It is made when it is first needed, and grows.
 */
#ifndef CT_WORKER_SHM_STAGING_H
#define CT_WORKER_SHM_STAGING_H

#include "worker/shm/host.h"

/* Zeroed at first. The memory is the host's. */
struct staging {
    size_t bytes;             /* of each */
    unsigned char *own, *sum; /* this rank's numbers; the host's sum */
    size_t apart;             /* between the numbers of two ranks */
};

/* All ranks of the host come with the same size. */
CT_MUST_CHECK int staging_reserve(struct staging *staging, struct host *host, size_t bytes,
                                  struct ct_err *err);

/* host_find_sources(), after which also those readable that are private; `send` is this rank's. */
CT_MUST_CHECK int staging_sources(struct staging *staging, struct host *host, const float *send,
                                  size_t bytes, struct ct_err *err);

#endif

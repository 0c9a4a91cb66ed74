/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory for the data that callers keep in private memory: one place for each rank's numbers
 * and one for their sum. It is reserved when first needed, and grows.
 */
#ifndef CT_WORKER_SHM_STAGING_H
#define CT_WORKER_SHM_STAGING_H

#include "worker/shm/host.h"

/* Zeroed at first. The host owns the memory. */
struct staging {
    size_t bytes;             /* size of each place */
    unsigned char *own, *sum; /* this rank's place; the place of the sum */
    size_t apart;             /* distance in bytes between the places of two ranks */
};

/* Collective: all ranks of the host give the same size. */
CT_MUST_CHECK int staging_reserve(struct staging *staging, struct host *host, size_t bytes,
                                  struct ct_err *err);

/* As host_find_sources(), but copies private sources to the staging memory, so that all can read
 * them. `send` is this rank's source. */
CT_MUST_CHECK int staging_sources(struct staging *staging, struct host *host, const float *send,
                                  size_t bytes, struct ct_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The staging memory is reserved in the shared file by the first operation that needs it, by all
 * ranks together. It is freed with the host; a failure is as for host_alloc().
 */
#include "worker/shm/staging.h"

#include <string.h>

/* The smallest size that is reserved. */
#define LEAST ((size_t)1024 * 1024)

int staging_reserve(struct staging *staging, struct host *host, size_t bytes, struct ct_err *err)
{
    if (staging->bytes >= bytes) {
        return 0;
    }
    size_t size = 2 * staging->bytes; /* no overflow: a file can hold staging->bytes */
    size = size > bytes ? size : bytes;
    size = size > LEAST ? size : LEAST;
    void *own, *sum;
    int rc = arena_add(&host->arena, CTW_MEMORY_OWN, size, &own, err);
    if (rc == 0) {
        rc = arena_add(&host->arena, CTW_MEMORY_SHARED, size, &sum, err);
    }
    if (rc == 0) {
        *staging = (struct staging){.bytes = size, .own = own, .sum = sum};
        (void)shm_round_up(size, &staging->apart);
        rc = sync_barrier(&host->sync, err);
    }
    return rc;
}

int staging_sources(struct staging *staging, struct host *host, const float *send, size_t bytes,
                    struct ct_err *err)
{
    bool all_shared;
    int rc = host_find_sources(host, bytes, &all_shared, err);
    if (rc != 0 || all_shared || bytes == 0) {
        return rc;
    }
    rc = staging_reserve(staging, host, bytes, err);
    if (rc != 0) {
        return rc;
    }
    int rank = host->comm.rank;
    for (int r = 0; r < host->comm.size; r++) {
        if (host_desc(host, r)->send == ARENA_PRIVATE) {
            ptrdiff_t apart = (ptrdiff_t)staging->apart * (r - rank);
            host->sources[r] = (const float *)(const void *)(staging->own + apart);
        }
    }
    if (host_desc(host, rank)->send == ARENA_PRIVATE) {
        memcpy(staging->own, send, bytes);
    }
    return sync_barrier(&host->sync, err);
}

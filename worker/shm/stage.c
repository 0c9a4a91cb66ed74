/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory is reserved in the shared file on the first operation that needs it, by all ranks
 * together.
 */
#include "worker/shm/stage.h"

#include <string.h>

/* The least that is made. */
#define LEAST ((size_t)1024 * 1024)

int stage_reserve(struct stage *stage, struct host *host, size_t bytes, struct ct_err *err)
{
    if (stage->bytes >= bytes) {
        return 0;
    }
    size_t size = stage->bytes > SIZE_MAX / 2 ? bytes : 2 * stage->bytes;
    size = size > bytes ? size : bytes;
    size = size > LEAST ? size : LEAST;
    void *own, *sum;
    int rc = arena_add(&host->arena, CTW_MEMORY_OWN, size, &own, err);
    if (rc == 0) {
        rc = arena_add(&host->arena, CTW_MEMORY_SHARED, size, &sum, err);
    }
    if (rc == 0) {
        *stage = (struct stage){.bytes = size, .own = own, .sum = sum};
        (void)shm_round_up(size, &stage->apart);
        rc = sync_barrier(&host->sync, err);
    }
    return rc;
}

int stage_sources(struct stage *stage, struct host *host, const float *send, size_t bytes,
                  struct ct_err *err)
{
    bool all_shared = true;
    int rc = host_find_sources(host, bytes, &all_shared, err);
    if (rc != 0 || all_shared) {
        return rc;
    }
    rc = stage_reserve(stage, host, bytes, err);
    if (rc != 0) {
        return rc;
    }
    int rank = host->comm.rank;
    /* Of nothing there is no stage, and there are no sources. */
    for (int r = 0; bytes > 0 && r < host->comm.size; r++) {
        if (host_desc(host, r)->send == ARENA_PRIVATE) {
            ptrdiff_t apart = (ptrdiff_t)stage->apart * (r - rank);
            host->sources[r] = (const float *)(const void *)(stage->own + apart);
        }
    }
    if (host_desc(host, rank)->send == ARENA_PRIVATE && bytes > 0) {
        memcpy(stage->own, send, bytes);
    }
    return sync_barrier(&host->sync, err);
}

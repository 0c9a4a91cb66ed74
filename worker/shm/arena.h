/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory in the shared file: regions, each either one block per rank or one block for all, mapped
 * whole by every rank. A buffer is named to peers by its offset in the file.
 */
#ifndef CT_WORKER_SHM_ARENA_H
#define CT_WORKER_SHM_ARENA_H

#include "worker/ctworker.h"
#include "worker/shm/shm.h"

struct arena_region {
    unsigned char *base;
    enum ctw_memory kind;
    size_t offset; /* in the file */
    size_t block;  /* bytes of one block: of one rank's, or the only one */
    size_t bytes;  /* of the mapping */
};

struct arena {
    struct shm *shm; /* borrowed */
    int rank, size;
    size_t end; /* of the file so far; the same on every rank, which ask in the same order */
    struct arena_region *regions;
    size_t count;
};

#define ARENA_PRIVATE (-1) /* "offset" of memory outside the arena */

void arena_init(struct arena *arena, struct shm *shm, int rank, int size);
void arena_fini(struct arena *arena);

/* Gives this rank's block of a new region; zeroed. Peers' blocks may be touched only after a
 * barrier: each rank gets the memory of its own. */
CT_MUST_CHECK int arena_add(struct arena *arena, enum ctw_memory kind, size_t bytes, void **out,
                            struct ct_err *err);

/* Offset of a buffer in this rank's memory of that kind, ARENA_PRIVATE when it is elsewhere.
 * CT_EINVAL when it starts there and runs past the end. */
CT_MUST_CHECK int arena_locate(const struct arena *arena, enum ctw_memory kind, const void *buf,
                               size_t bytes, int64_t *out, struct ct_err *err);

/* Where this rank sees what a peer named; NULL when it is not inside that peer's memory. */
void *arena_resolve(const struct arena *arena, enum ctw_memory kind, int peer, int64_t offset,
                    size_t bytes);

#endif

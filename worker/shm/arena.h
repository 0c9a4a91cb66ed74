/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory in the shared file. A region is either one block per rank or one block for all, and every
 * rank maps all of it. Ranks name a buffer to each other by its offset in the file.
 */
#ifndef CT_WORKER_SHM_ARENA_H
#define CT_WORKER_SHM_ARENA_H

#include "worker/ctworker.h"
#include "worker/shm/shm.h"

struct arena_region {
    unsigned char *base;
    enum ctw_memory kind;
    size_t offset; /* in the file */
    size_t block;  /* bytes of one block: each rank's, or the only one */
    size_t bytes;  /* of the mapping */
};

struct arena {
    struct shm *shm; /* borrowed */
    int rank, size;
    size_t end; /* of the file so far; equal on every rank, because all append alike */
    struct arena_region *regions;
    size_t count;
};

#define ARENA_PRIVATE (-1) /* the "offset" of memory outside the arena */

void arena_init(struct arena *arena, struct shm *shm, int rank, int size);
void arena_fini(struct arena *arena);

/* Gives this rank's block of a new region, zeroed. Peers' blocks may be touched only after a
 * barrier, because each rank reserves the memory of its own block. */
CT_MUST_CHECK int arena_add(struct arena *arena, enum ctw_memory kind, size_t bytes, void **out,
                            struct ct_err *err);

/* Gives the file offset of a buffer in this rank's memory of that kind, or ARENA_PRIVATE if it lies
 * elsewhere. CT_EINVAL if it starts there and runs past the end. */
CT_MUST_CHECK int arena_locate(const struct arena *arena, enum ctw_memory kind, const void *buf,
                               size_t bytes, int64_t *out, struct ct_err *err);

/* Returns this rank's address of a peer's buffer; NULL if it is not inside the peer's memory. */
void *arena_resolve(const struct arena *arena, enum ctw_memory kind, int peer, int64_t offset,
                    size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena of the shared file. All ranks append regions in the same order, so each knows a
 * region's offset without asking. arena_fini() unmaps the regions.
 */
#include "worker/shm/arena.h"

#include "common/alloc.h"
#include "common/num.h"

#include <sys/mman.h>

void arena_init(struct arena *arena, struct shm *shm, int rank, int size)
{
    *arena = (struct arena){.shm = shm, .rank = rank, .size = size, .end = shm->page_bytes};
}

void arena_fini(struct arena *arena)
{
    for (size_t i = 0; i < arena->count; i++) {
        (void)munmap(arena->regions[i].base, arena->regions[i].bytes);
    }
    ct_free(arena->regions);
    *arena = (struct arena){0};
}

/* Returns the offset of `rank`'s block within its region. */
static size_t block_at(const struct arena_region *region, int rank)
{
    return region->kind == CTW_MEMORY_OWN ? region->block * (size_t)rank : 0;
}

int arena_add(struct arena *arena, enum ctw_memory kind, size_t bytes, void **out,
              struct ct_err *err)
{
    struct arena_region region = {.kind = kind, .offset = arena->end};
    size_t blocks = kind == CTW_MEMORY_OWN ? (size_t)arena->size : 1;
    size_t end;
    if (!shm_round_up(bytes, &region.block) || !ct_mul_size(region.block, blocks, &region.bytes) ||
        !ct_add_size(arena->end, region.bytes, &end)) {
        return ct_err_set(err, CT_ELIMIT, "%zu bytes of shared memory are too many", bytes);
    }
    struct arena_region *grown =
        ct_realloc(arena->regions, (arena->count + 1) * sizeof(*arena->regions));
    if (grown == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    arena->regions = grown;
    /* Each rank reserves its own pages, so that they lie near its core; rank 0 a block for all. */
    size_t mine = block_at(&region, arena->rank);
    if (kind == CTW_MEMORY_OWN || arena->rank == 0) {
        int rc = shm_reserve(arena->shm, region.offset + mine, region.block, err);
        if (rc != 0) {
            return rc;
        }
    }
    void *base;
    int rc = shm_map(arena->shm, region.offset, region.bytes, &base, err);
    if (rc != 0) {
        return rc;
    }
    region.base = base;
    arena->regions[arena->count++] = region;
    arena->end = end;
    *out = region.base + mine;
    return 0;
}

int arena_locate(const struct arena *arena, enum ctw_memory kind, const void *buf, size_t bytes,
                 int64_t *out, struct ct_err *err)
{
    uintptr_t at = (uintptr_t)buf;
    for (size_t i = 0; i < arena->count; i++) {
        const struct arena_region *region = &arena->regions[i];
        size_t mine = block_at(region, arena->rank);
        uintptr_t start = (uintptr_t)region->base + mine;
        if (region->kind != kind || at < start || at - start >= region->block) {
            continue;
        }
        size_t delta = at - start;
        if (bytes > region->block - delta) {
            return ct_err_set(err, CT_EINVAL,
                              "%zu bytes run past the end of a block of %zu (at byte %zu)", bytes,
                              region->block, delta);
        }
        *out = (int64_t)(region->offset + mine + delta);
        return 0;
    }
    *out = ARENA_PRIVATE;
    return 0;
}

void *arena_resolve(const struct arena *arena, enum ctw_memory kind, int peer, int64_t offset,
                    size_t bytes)
{
    for (size_t i = 0; i < arena->count && offset >= 0; i++) {
        const struct arena_region *region = &arena->regions[i];
        size_t mine = block_at(region, peer);
        size_t start = region->offset + mine;
        if (region->kind == kind && (size_t)offset >= start &&
            (size_t)offset - start < region->block) {
            size_t delta = (size_t)offset - start;
            return bytes <= region->block - delta ? region->base + mine + delta : NULL;
        }
    }
    return NULL;
}

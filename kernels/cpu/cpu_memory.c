/* SPDX-License-Identifier: Apache-2.0
 *
 * Each block is allocated larger than asked for, and its own address is kept in front of the
 * aligned part that is handed out.
 */
#include "kernels/cpu/cpu_memory.h"

#include "common/alloc.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* A cache line and an AVX-512 vector. */
#define ALIGNMENT ((size_t)64)
/* Of x86-64; elsewhere it is a request that the kernel may not be able to follow. */
#define LARGE_PAGE ((size_t)2 << 20)

/* The allocation table knows no alignment: the block's own address is kept in front of what is
 * handed out. */
void *ct_cpu_memory_new(size_t bytes)
{
    size_t alignment = bytes >= LARGE_PAGE / 2 ? LARGE_PAGE : ALIGNMENT;
    char *block = NULL;
    if (bytes <= SIZE_MAX - 2 * LARGE_PAGE - sizeof(block)) {
        bytes = (bytes + alignment - 1) / alignment * alignment; /* the last page is a large one */
        block = ct_malloc(bytes + alignment + sizeof(block));
    }
    if (block == NULL) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)block + sizeof(block);
    char *memory = block + sizeof(block) + (alignment - first % alignment) % alignment;
    memcpy(memory - sizeof(block), &block, sizeof(block));
    if (alignment == LARGE_PAGE) {
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* without it all is as right, and slower */
    }
    return memory;
}

void ct_cpu_memory_free(void *memory)
{
    if (memory != NULL) {
        char *block;
        memcpy(&block, (char *)memory - sizeof(block), sizeof(block));
        ct_free(block);
    }
}

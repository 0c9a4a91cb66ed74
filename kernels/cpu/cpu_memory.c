/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates each block larger than requested, and stores its own address before the aligned part
 * that the caller gets. Failure is NULL; ct_cpu_memory_free() frees.
 */
#include "kernels/cpu/cpu_memory.h"

#include "common/alloc.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* The size of a cache line and of an AVX-512 vector. */
#define ALIGNMENT ((size_t)64)
/* The size on x86-64. On other processors the kernel may not have large pages of this size. */
#define LARGE_PAGE ((size_t)2 << 20)

void *ct_cpu_memory_new(size_t bytes)
{
    size_t alignment = bytes >= LARGE_PAGE / 2 ? LARGE_PAGE : ALIGNMENT;
    char *block = NULL;
    if (bytes <= SIZE_MAX - 2 * LARGE_PAGE - sizeof(block)) {
        bytes =
            (bytes + alignment - 1) / alignment * alignment; /* the last page is a large one, too */
        block = ct_malloc(bytes + alignment + sizeof(block));
    }
    if (block == NULL) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)block + sizeof(block);
    char *memory = block + sizeof(block) + (alignment - first % alignment) % alignment;
    memcpy(memory - sizeof(block), &block, sizeof(block));
    if (alignment == LARGE_PAGE) {
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* without large pages it is only slower */
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

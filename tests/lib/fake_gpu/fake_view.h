/* SPDX-License-Identifier: Apache-2.0
 *
 * Views: what blocks of an emulated grid see of each other's writes. From the first atomic
 * operation or fence of a grid on, each block has a copy of small allocations of device memory.
 * Others see what a block has written after its next fence or its end. The block sees what others
 * have written after its own next fence. All blocks see atomic operations at once. So a missing
 * __threadfence() gives wrong results, whether it is missing after a write or before a read. This
 * is the weakest order that CUDA allows, except for the order within one block.
 *
 * At most FAKE_VIEW_MAX bytes are copied, of the oldest allocations. This is enough, because blocks
 * exchange little, and a device allocates the memory for it when it is opened.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_VIEW_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_VIEW_MAX ((size_t)48 << 10)

/* Adds device memory when it is allocated, and removes it when it is freed. Tests call these for
 * memory that cudaMalloc() has not allocated. */
void fake_view_add(void *memory, size_t bytes);
void fake_view_remove(const void *memory);

/* The view of one block: all memory as it was after the last fence, and as it is now. NULL before
 * the views begin. */
struct fake_view {
    unsigned char *base, *mine;
};

/* True if the views begin now. Then every block that has begun needs one. */
bool fake_views_begin(void);
void fake_views_end(void);

/* This function and those below do nothing before the views begin. */
void fake_view_new(struct fake_view *view);
/* Ends the view together with its block. `runs`: memory is as this block sees it. */
void fake_view_end(struct fake_view *view, bool runs);

/* Between these two calls, memory is as the block sees it. */
void fake_view_enter(struct fake_view *view);
void fake_view_leave(struct fake_view *view);

/* These are for the block that runs. */
void fake_view_fence(struct fake_view *view);
void fake_view_before_atomic(void *at, size_t bytes);
void fake_view_after_atomic(struct fake_view *view, const void *at, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks of an emulated grid see of each other. From a grid's first atomic operation or fence
 * on each block has a copy of small device memory. What it writes is seen by others after its next
 * fence or its end, and what others have written is seen by it after its own next fence. Atomic
 * operations are seen by all at once. So a missing __threadfence() shows, before the writing as
 * before the reading: the weakest that CUDA allows, but for the order within one block.
 *
 * Only so much is copied, the oldest first: what blocks tell each other is small, and a device
 * makes room for it when it is opened.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_VIEW_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_VIEW_MAX ((size_t)48 << 10)

/* Device memory, from its allocation to its end. Tests name theirs if it is no allocation's. */
void fake_view_add(void *memory, size_t bytes);
void fake_view_remove(const void *memory);

/* Of one block: all memory as it was after the last fence, and as it is now. NULL before the views
 * begin. */
struct fake_view {
    unsigned char *base, *mine;
};

/* True when they begin now; then every block that runs needs one. */
bool fake_views_begin(void);
void fake_views_end(void);

/* Does nothing before the views begin, as all below. */
void fake_view_new(struct fake_view *view);
/* The block ends; `runs`: memory is as it sees it. */
void fake_view_end(struct fake_view *view, bool runs);

/* Between the two, memory is as the block sees it. */
void fake_view_enter(struct fake_view *view);
void fake_view_leave(struct fake_view *view);

/* Of the block that runs. */
void fake_view_fence(struct fake_view *view);
void fake_view_before_atomic(void *at, size_t bytes);
void fake_view_after_atomic(struct fake_view *view, const void *at, size_t bytes);

#endif

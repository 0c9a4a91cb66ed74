/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks to change between, for the threads of an emulated block: tests/lib/fake_gpu/fake_block.h.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_FIBER_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_FIBER_H

#include <stddef.h>

struct fake_fiber {
    void *top;    /* where it goes on */
    void *mapped; /* its stack; NULL = that of the thread which changed from it */
    void (*run)(void);
    /* For AddressSanitizer: where its stack is, and what else is known of it. */
    const void *stack;
    size_t size;
    void *kept;
};

/* Makes the next change to it start `run`, which must never return; takes a stack when it has none.
 * What it was in the middle of is forgotten. A fiber that never began is its thread's own one. */
void fake_fiber_begin(struct fake_fiber *fiber, void (*run)(void));

/* Comes back when somebody changes to `from`. */
void fake_fiber_change(struct fake_fiber *from, struct fake_fiber *to);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers: stacks between which a thread changes. Each thread of an emulated block
 * (tests/lib/fake_gpu/fake_block.h) runs on a fiber.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_FIBER_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_FIBER_H

#include <stddef.h>

struct fake_fiber {
    void *top;    /* the saved stack pointer, or a ucontext_t */
    void *mapped; /* its stack; NULL = that of the thread which changed from it */
    void (*run)(void);
    /* For AddressSanitizer: its stack, and what the sanitizer keeps for it. */
    const void *stack;
    size_t size;
    void *kept;
};

/* The next change to the fiber starts `run`, which must never return. Allocates a stack if the
 * fiber has none. A function that was running on the fiber is forgotten. A fiber for which this was
 * never called stands for the stack of the thread itself. */
void fake_fiber_begin(struct fake_fiber *fiber, void (*run)(void));

/* Returns when another fiber changes to `from`. */
void fake_fiber_change(struct fake_fiber *from, struct fake_fiber *to);

#endif

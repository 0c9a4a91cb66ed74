/* SPDX-License-Identifier: Apache-2.0
 *
 * swapcontext() makes a system call in each change, and an emulated kernel changes millions of
 * times. So there is a change of our own for x86-64. Other processors use swapcontext().
 */
#include "tests/lib/fake_gpu/fake_fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* Kernels need little stack, but a sanitizer makes frames larger and prints its report on the same
 * stack. Pages that are never touched take no memory. */
#define STACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)64 << 10)

#ifdef __x86_64__

/* Saves the registers that a function must keep in the System V ABI. The caller saves the others.
 */
void fake_fiber_jump(void **save, void *top);
__asm__(".text\n"
        ".globl fake_fiber_jump\n"
        ".hidden fake_fiber_jump\n"
        ".type fake_fiber_jump, @function\n"
        "fake_fiber_jump:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size fake_fiber_jump, .-fake_fiber_jump\n");

/* Returns another offset for each stack, because stacks that all end at the same place of a page
 * would use the same lines of the cache. */
static size_t shift(void)
{
    static size_t last;
    last = (last + 320) % 4096;
    return last;
}

static void prepare(struct fake_fiber *fiber, void (*begin)(void))
{
    /* Six registers, the address of `begin`, and the return address of `begin`, which is never
     * used. With it the stack is aligned as at the first instruction of any function. */
    uintptr_t *top = (uintptr_t *)((char *)fiber->mapped + STACK_BYTES - shift()) - 8;
    memset(top, 0, 8 * sizeof *top);
    top[6] = (uintptr_t)begin;
    fiber->top = top;
}

static void jump(struct fake_fiber *from, struct fake_fiber *to)
{
    fake_fiber_jump(&from->top, to->top);
}

#else

#include <ucontext.h>

static ucontext_t *context_of(struct fake_fiber *fiber)
{
    if (fiber->top == NULL) {
        fiber->top = calloc(1, sizeof(ucontext_t));
    }
    return fiber->top;
}

static void prepare(struct fake_fiber *fiber, void (*begin)(void))
{
    ucontext_t *context = context_of(fiber);
    (void)getcontext(context);
    context->uc_stack.ss_sp = fiber->mapped;
    context->uc_stack.ss_size = STACK_BYTES;
    makecontext(context, begin, 0);
}

static void jump(struct fake_fiber *from, struct fake_fiber *to)
{
    (void)swapcontext(context_of(from), context_of(to));
}

#endif

/* The fibers of the change in progress. Only one thread at a time runs kernels. */
static struct fake_fiber *left, *arriving;

static void arrive(void *kept)
{
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(kept, &left->stack, &left->size);
#else
    (void)kept;
#endif
}

static void begin(void)
{
    void (*run)(void) = arriving->run;
    arrive(NULL);
    run();
    abort();
}

void fake_fiber_begin(struct fake_fiber *fiber, void (*run)(void))
{
    if (fiber->mapped == NULL) {
        char *all = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED || mprotect(all, GUARD_BYTES, PROT_NONE) != 0) {
            abort();
        }
        fiber->mapped = all + GUARD_BYTES;
    }
    fiber->stack = fiber->mapped;
    fiber->size = STACK_BYTES;
    fiber->run = run;
#ifdef WITH_ASAN
    __asan_unpoison_memory_region(fiber->mapped, STACK_BYTES);
#endif
    prepare(fiber, begin);
}

void fake_fiber_change(struct fake_fiber *from, struct fake_fiber *to)
{
    left = from;
    arriving = to;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&from->kept, to->stack, to->size);
#endif
    jump(from, to);
    arrive(from->kept);
}

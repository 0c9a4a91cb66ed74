/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces the table of common/alloc.h by one that counts down to the allocation that fails and
 * counts the blocks that are alive. The counters are atomic, since the code under test may have
 * threads.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "common/err.h"

#include <stdatomic.h>
#include <stdlib.h>

/* No constructor under test allocates more often; beyond it the sweep is not making progress. */
#define MAX_FAULTS 10000

/* What is under test may have threads. */
static struct {
    atomic_int countdown; /* allocations until the failing one; -1 = never */
    atomic_int hit;
    atomic_size_t alive;
} state;

static int should_fail(void)
{
    if (state.countdown < 0) {
        return 0;
    }
    if (state.countdown-- != 0) {
        return 0;
    }
    state.hit = 1;
    return 1;
}

static void *fault_malloc(size_t size, void *data)
{
    (void)data;
    if (should_fail()) {
        return NULL;
    }
    void *ptr = malloc(size);
    state.alive += ptr != NULL;
    return ptr;
}

static void *fault_realloc(void *ptr, size_t size, void *data)
{
    (void)data;
    if (should_fail()) {
        return NULL;
    }
    void *grown = realloc(ptr, size);
    state.alive += ptr == NULL && grown != NULL;
    return grown;
}

static void fault_free(void *ptr, void *data)
{
    (void)data;
    state.alive -= ptr != NULL;
    free(ptr);
}

static const struct ct_allocator table = {fault_malloc, fault_realloc, fault_free, NULL};

void ct_fault_begin(int fail_at)
{
    state.countdown = fail_at;
    state.hit = 0;
    state.alive = 0;
    ct_alloc_install(&table);
}

size_t ct_fault_end(void)
{
    ct_alloc_install(NULL);
    return state.alive;
}

int ct_fault_hit(void)
{
    return state.hit;
}

int ct_fault_sweep(ct_fault_fn fn, void *data, int tolerant)
{
    for (int n = 0; n < MAX_FAULTS; n++) {
        ct_fault_begin(n);
        int rc = fn(data);
        size_t alive = ct_fault_end();
        if (alive != 0) {
            fail_msg("allocation %d failed: %zu blocks leaked", n, alive);
        }
        if (!ct_fault_hit()) {
            if (rc != 0) {
                fail_msg("without a fault the body returned %d (%s)", rc, ct_code_text(rc));
            }
            return n;
        }
        if (rc != CT_ENOMEM && !(tolerant && rc == 0)) {
            fail_msg("allocation %d failed: body returned %d (%s)", n, rc, ct_code_text(rc));
        }
    }
    fail_msg("still failing after %d faults", MAX_FAULTS);
    return -1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation faults: run one body with the first allocation failing, then the second, and so on,
 * until it ends before the fault is reached. After each run everything that was allocated through
 * common/alloc.h must have been freed.
 */
#ifndef CT_TESTS_LIB_FAULT_H
#define CT_TESTS_LIB_FAULT_H

#include <stddef.h>

/* Does the work and cleans up after itself. Returns 0 or the CT_E code of the failed allocation. */
typedef int (*ct_fault_fn)(void *data);

/* Fails the calling cmocka test when a run leaks, when a run that hit a fault returns 0 although
 * `tolerant` is 0, when it returns anything but CT_ENOMEM or 0, or when the faults never end.
 * Returns how many faults were injected, so that a test can insist on at least one. */
int ct_fault_sweep(ct_fault_fn fn, void *data, int tolerant);

/* The parts of a sweep, for a test that cannot be one body. */
void ct_fault_begin(int fail_at); /* counts from 0; -1 = none fails, blocks are only counted */
size_t ct_fault_end(void);        /* restores libc's allocator; returns the blocks still alive */
int ct_fault_hit(void);           /* was the fault reached since begin? */

#endif

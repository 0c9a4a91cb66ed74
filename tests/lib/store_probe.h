/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine alone, and waiters that note in which order they were woken. Every function fails the
 * calling test instead of returning an error.
 */
#ifndef CT_TESTS_LIB_STORE_PROBE_H
#define CT_TESTS_LIB_STORE_PROBE_H

#include "tests/lib/ct_test.h"

#include "rendezvous/store/store.h"

/* For cmocka: *state is an empty store. */
int ct_probe_set_up(void **state);
int ct_probe_tear_down(void **state);

/* The bytes of a text. */
struct ct_bytes b(const char *text);

void set(struct ct_store *store, const char *key, const char *value);

struct probe {
    struct ct_waiter waiter;
    int *clock;
    int woken; /* the clock's time of it; 0 = not yet */
};

void probe_init(struct probe *probe, int *clock);

/* Waits for the keys in `list`, separated by blanks. */
int wait_for(struct ct_store *store, struct probe *probe, const char *list);

#endif

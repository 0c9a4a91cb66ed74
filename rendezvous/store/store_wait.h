/* SPDX-License-Identifier: Apache-2.0
 *
 * How the engine wakes its waiters. A wake callback does not touch the store, so lists stay valid
 * while they are walked. For the files of the engine (store*.c) alone.
 */
#ifndef CT_RENDEZVOUS_STORE_STORE_WAIT_H
#define CT_RENDEZVOUS_STORE_STORE_WAIT_H

#include "rendezvous/store/store_entry.h"

/* Called when the key has got a value: wakes all who wait for it, except those at a barrier. */
void ct_store_wait_wake_all(struct ct_store *store, struct ct_store_entry *entry);

/* Called when the barrier is complete: wakes all who wait, also those at the barrier. */
void ct_store_wait_wake_barrier(struct ct_store *store, struct ct_store_entry *entry);

/* Called when the queue has got an element: wakes the first waiter that misses nothing else. */
void ct_store_wait_wake_one(struct ct_store *store, struct ct_store_entry *entry);

/* Ends the waiter's claim to an element of a queue, if it has one. The next waiter gets the claim,
 * unless the waiter took the element: then `used` is the entry of that queue. */
void ct_store_wait_end_claim(struct ct_store *store, struct ct_waiter *waiter,
                             const struct ct_store_entry *used);

/* Enlists the waiter at one key. */
void ct_store_wait_enlist(struct ct_store *store, struct ct_waiter *waiter,
                          struct ct_store_entry *entry);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the engine (store*.c) share with each other and with nobody else.
 */
#ifndef CT_RENDEZVOUS_STORE_STORE_IMPL_H
#define CT_RENDEZVOUS_STORE_STORE_IMPL_H

#include "common/buf.h"
#include "common/map.h"
#include "rendezvous/store/store.h"

/* A name that has a value, a queue, waiters, or several of these. */
struct ct_store_entry {
    struct ct_map_node node;
    struct ct_list waiters; /* ct_waiter_link.at_key, in the order they came */
    struct ct_blob *value;  /* NULL: no such key */
    struct ct_buf *queue;   /* struct ct_blob * each, oldest first; NULL: empty */
    uint32_t pins;          /* who else relies on the entry staying where it is */
    uint32_t key_len;
    unsigned char key[];
};

struct ct_store {
    struct ct_map map;
    struct ct_change_sink *sink; /* may be NULL */
    struct ct_watches *watches;  /* NULL: nobody watches anything */
    struct ct_budget budget;
    size_t keys, key_bytes; /* that have a value */
    size_t queued;          /* elements of all queues */
    size_t bytes;           /* of those keys, and of all values and elements */
    size_t waiters;
};

/* NULL when there is none. */
struct ct_store_entry *ct_entry_find(struct ct_store *store, struct ct_bytes key);

/* Makes the entry, which must not be there; NULL when memory is out, or the budget unless
 * `granted`.
 */
struct ct_store_entry *ct_entry_add(struct ct_store *store, struct ct_bytes key, bool granted);

static inline size_t ct_entry_cost(size_t key_len)
{
    return sizeof(struct ct_store_entry) + key_len + CT_BLOCK_COST + CT_BUCKET_COST;
}

/* Frees an entry that nobody needs any more. */
void ct_entry_drop_if_idle(struct ct_store *store, struct ct_store_entry *entry);

/* What CHECK and WAIT take for an existing key. NULL is allowed. */
static inline bool ct_entry_exists(const struct ct_store_entry *entry)
{
    return entry != NULL && (entry->value != NULL || entry->queue != NULL);
}

/* Takes the queue and what is in it away, not the entry. */
void ct_entry_clear_queue(struct ct_store *store, struct ct_store_entry *entry);

/* Must this change not be made? Asked when all that could fail otherwise has been done. `more` as
 * in struct ct_change. */
CT_MUST_CHECK int ct_store_tell(struct ct_store *store, enum ct_change_kind kind,
                                const struct ct_store_entry *entry, const struct ct_blob *value,
                                bool more);

/* ---- watches -------------------------------------------------------------------------------- */

/* Tells those who watch the key; some must watch something. */
void ct_store_notify(struct ct_store *store, const struct ct_store_entry *entry,
                     struct ct_blob *before);

/* The entry's value was `before` (takes the reference; NULL = none) until this change. Comes after
 * the wakes: PyTorch's server answers a WAIT first. */
static inline void ct_entry_changed(struct ct_store *store, const struct ct_store_entry *entry,
                                    struct ct_blob *before)
{
    if (store->watches != NULL) {
        ct_store_notify(store, entry, before);
    }
    ct_blob_unref(before);
}

/* ---- wakes: they do not touch the store, so lists stay valid -------------------------------- */

/* The key came: everybody who waits for it, but for those at a barrier. */
void ct_wake_all(struct ct_store *store, struct ct_store_entry *entry);

/* The barrier is complete: those at it as well. */
void ct_wake_barrier(struct ct_store *store, struct ct_store_entry *entry);

/* The queue got an element: the first waiter that it completes. */
void ct_wake_one(struct ct_store *store, struct ct_store_entry *entry);

/* The waiter's claim to an element of a queue ends, if it has one; the next waiter gets it unless
 * `used`, the queue that it took from, is the one. */
void ct_claim_end(struct ct_store *store, struct ct_waiter *waiter,
                  const struct ct_store_entry *used);

/* Enlists the waiter at one key. */
void ct_waiter_enlist_one(struct ct_store *store, struct ct_waiter *waiter,
                          struct ct_store_entry *entry);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of a store: the map from a name to its value, its queue and its waiters. For the files
 * of the engine (store*.c) alone.
 */
#ifndef CT_RENDEZVOUS_STORE_STORE_ENTRY_H
#define CT_RENDEZVOUS_STORE_STORE_ENTRY_H

#include "common/buf.h"
#include "common/map.h"
#include "rendezvous/store/store.h"

/* A name that has a value, a queue, waiters, or several of these. */
struct ct_store_entry {
    struct ct_map_node node;
    struct ct_list waiters; /* ct_waiter_link.at_key, in the order they came */
    struct ct_blob *value;  /* NULL: no such key */
    struct ct_buf *queue;   /* struct ct_blob * each, oldest first; NULL: empty */
    uint32_t pins;          /* users of the entry that keep it from being freed */
    uint32_t key_len;
    unsigned char key[];
};

struct ct_store {
    struct ct_map map;
    struct ct_change_log *change_log; /* may be NULL */
    struct ct_watches *watches;       /* NULL: nobody watches anything */
    struct ct_budget budget;
    size_t keys, key_bytes; /* keys that have a value, and their bytes */
    size_t queued;          /* elements of all queues */
    size_t bytes;           /* of those keys, and of all values and elements */
    size_t waiters;
};

/* Sets up the map of a store; there is no cap on memory yet. */
void ct_store_entry_map_init(struct ct_store *store);

/* Returns NULL when there is none. */
struct ct_store_entry *ct_store_entry_find(struct ct_store *store, struct ct_bytes key);

/* Makes an entry; there must be none. NULL: no memory or, unless `granted`, no budget. */
struct ct_store_entry *ct_store_entry_add(struct ct_store *store, struct ct_bytes key,
                                          bool granted);

static inline struct ct_store_entry *ct_store_entry_of(const struct ct_map_node *node)
{
    return CT_CONTAINER_OF(node, struct ct_store_entry, node);
}

static inline size_t ct_store_entry_cost(size_t key_len)
{
    return sizeof(struct ct_store_entry) + key_len + CT_BLOCK_COST + CT_BUCKET_COST;
}

/* Frees an entry that nobody needs any more. */
void ct_store_entry_drop_if_idle(struct ct_store *store, struct ct_store_entry *entry);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, makes and frees the entries of a store. The budget counts each entry.
 */
#include "rendezvous/store/store_entry.h"

#include "common/alloc.h"

#include <string.h>

static bool entry_has_key(const struct ct_map_node *node, const void *key, size_t len)
{
    const struct ct_store_entry *entry = ct_store_entry_of(node);
    return entry->key_len == len && (len == 0 || memcmp(entry->key, key, len) == 0);
}

void ct_store_entry_map_init(struct ct_store *store)
{
    ct_map_init(&store->map, entry_has_key);
}

struct ct_store_entry *ct_store_entry_find(struct ct_store *store, struct ct_bytes key)
{
    struct ct_map_node *node = ct_map_find(&store->map, key.ptr, key.len);
    return node != NULL ? ct_store_entry_of(node) : NULL;
}

struct ct_store_entry *ct_store_entry_add(struct ct_store *store, struct ct_bytes key, bool granted)
{
    if (granted) {
        ct_budget_force(&store->budget, ct_store_entry_cost(key.len));
    } else if (!ct_budget_take(&store->budget, ct_store_entry_cost(key.len))) {
        return NULL;
    }
    struct ct_store_entry *entry = ct_malloc(sizeof(*entry) + key.len);
    if (entry == NULL) {
        ct_budget_give(&store->budget, ct_store_entry_cost(key.len));
        return NULL;
    }
    entry->value = NULL;
    entry->queue = NULL;
    entry->pins = 0;
    entry->key_len = (uint32_t)key.len;
    memcpy(entry->key, key.ptr, key.len);
    ct_list_init(&entry->waiters);
    if (ct_map_insert(&store->map, &entry->node, key.ptr, key.len) != 0) {
        ct_budget_give(&store->budget, ct_store_entry_cost(key.len));
        ct_free(entry);
        return NULL;
    }
    return entry;
}

void ct_store_entry_drop_if_idle(struct ct_store *store, struct ct_store_entry *entry)
{
    if (entry->value == NULL && entry->queue == NULL && entry->pins == 0 &&
        ct_list_empty(&entry->waiters)) {
        ct_map_unlink(&store->map, &entry->node);
        ct_budget_give(&store->budget, ct_store_entry_cost(entry->key_len));
        ct_free(entry);
    }
}

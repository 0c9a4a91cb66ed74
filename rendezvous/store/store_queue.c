/* SPDX-License-Identifier: Apache-2.0
 *
 * The queues of the engine. An empty queue takes no memory.
 */
#include "common/alloc.h"
#include "rendezvous/store/store_impl.h"

#include <string.h>

static size_t queue_len(const struct ct_store_entry *entry)
{
    return entry->queue != NULL ? entry->queue->len / sizeof(struct ct_blob *) : 0;
}

static struct ct_blob *queue_first(const struct ct_store_entry *entry)
{
    struct ct_blob *first;
    memcpy(&first, ct_buf_bytes(entry->queue), sizeof(first));
    return first;
}

static size_t queue_cost(const struct ct_buf *queue)
{
    return queue == NULL ? 0 : sizeof(*queue) + queue->cap + 2 * CT_BLOCK_COST;
}

static void queue_free_if_empty(struct ct_store *store, struct ct_store_entry *entry)
{
    if (entry->queue != NULL && entry->queue->len == 0) {
        ct_budget_give(&store->budget, queue_cost(entry->queue));
        ct_buf_fini(entry->queue);
        ct_free(entry->queue);
        entry->queue = NULL;
    }
}

/* Makes room for one more element. A queue that was not there is empty then, which must not last.
 */
static int queue_reserve(struct ct_store *store, struct ct_store_entry *entry)
{
    size_t before = queue_cost(entry->queue);
    if (entry->queue == NULL) {
        entry->queue = ct_calloc(1, sizeof(*entry->queue));
    }
    int rc =
        entry->queue != NULL ? ct_buf_reserve(entry->queue, sizeof(struct ct_blob *)) : CT_ENOMEM;
    /* Small beside the element that must fit. */
    ct_budget_force(&store->budget, queue_cost(entry->queue) - before);
    return rc;
}

int ct_store_push(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry = ct_entry_find(store, key);
    struct ct_blob *blob = ct_blob_new(&store->budget, value.ptr, value.len);
    if (entry == NULL && blob != NULL) {
        entry = ct_entry_add(store, key, false);
    }
    int rc = entry != NULL && blob != NULL ? queue_reserve(store, entry) : CT_ENOMEM;
    rc = rc == 0 ? ct_store_tell(store, CT_CHANGE_PUSH, entry, blob, false) : rc;
    if (rc == 0) {
        CT_ASSERT(ct_buf_append(entry->queue, &blob, sizeof(blob)) == 0);
        store->queued++;
        store->bytes += value.len;
        ct_wake_one(store, entry);
        return 0;
    }
    ct_blob_unref(blob);
    if (entry != NULL) {
        queue_free_if_empty(store, entry);
        ct_entry_drop_if_idle(store, entry);
    }
    return rc;
}

/* There must be one. */
static struct ct_blob *queue_take(struct ct_store *store, struct ct_store_entry *entry)
{
    struct ct_blob *first = queue_first(entry);
    ct_buf_consume(entry->queue, sizeof(first));
    store->queued--;
    store->bytes -= first->len;
    queue_free_if_empty(store, entry);
    return first;
}

int ct_store_pop(struct ct_store *store, struct ct_waiter *waiter, struct ct_bytes key, size_t *len,
                 struct ct_blob **out)
{
    struct ct_store_entry *entry = ct_entry_find(store, key);
    *len = entry != NULL ? queue_len(entry) : 0;
    *out = NULL;
    if (*len > 0) {
        int rc = ct_store_tell(store, CT_CHANGE_POP, entry, NULL, false);
        if (rc != 0) {
            return rc;
        }
        *out = queue_take(store, entry);
        entry->pins++; /* the end of the claim may be the end of the entry */
    }
    ct_claim_end(store, waiter, entry);
    if (*len > 0) {
        entry->pins--;
        ct_entry_drop_if_idle(store, entry);
    }
    return 0;
}

size_t ct_store_queue_len(struct ct_store *store, struct ct_bytes key)
{
    const struct ct_store_entry *entry = ct_entry_find(store, key);
    return entry != NULL ? queue_len(entry) : 0;
}

void ct_entry_clear_queue(struct ct_store *store, struct ct_store_entry *entry)
{
    while (entry->queue != NULL) {
        ct_blob_unref(queue_take(store, entry));
    }
}

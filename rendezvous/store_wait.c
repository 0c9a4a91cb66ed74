/* SPDX-License-Identifier: Apache-2.0
 *
 * The waiters of the engine: who is woken by what.
 */
#include "common/alloc.h"
#include "rendezvous/store_impl.h"

/* ---- the life of a wait --------------------------------------------------------------------- */

static void begin(struct ct_store *store, struct ct_waiter *waiter, size_t missing)
{
    ct_claim_end(store, waiter, NULL);
    waiter->links = &waiter->one;
    waiter->slots = 0;
    waiter->missing = (uint32_t)missing;
    waiter->at_barrier = false;
    store->waiters++;
}

static void release(struct ct_store *store, struct ct_waiter *waiter)
{
    if (waiter->links != &waiter->one) {
        ct_free(waiter->links);
    }
    waiter->links = NULL;
    waiter->slots = 0;
    waiter->missing = 0;
    store->waiters--;
}

static void enlist(struct ct_waiter *waiter, struct ct_store_entry *entry)
{
    struct ct_waiter_link *link = &waiter->links[waiter->slots++];
    link->waiter = waiter;
    link->entry = entry;
    ct_list_append(&entry->waiters, &link->at_key);
}

void ct_waiter_enlist_one(struct ct_store *store, struct ct_waiter *waiter,
                          struct ct_store_entry *entry)
{
    begin(store, waiter, 1);
    enlist(waiter, entry);
}

/* ---- waking --------------------------------------------------------------------------------- */

/* One key less to wait for. True when that was the last: the waiter is free and to be woken. */
static bool satisfy(struct ct_store *store, struct ct_waiter_link *link)
{
    struct ct_waiter *waiter = link->waiter;
    ct_list_remove(&link->at_key);
    link->entry = NULL;
    if (--waiter->missing > 0) {
        return false;
    }
    release(store, waiter);
    return true;
}

/* Satisfies those that the event is for; stops after waking one if `claim`. */
static void wake(struct ct_store *store, struct ct_store_entry *entry, bool barrier, bool claim)
{
    struct ct_list *next;
    for (struct ct_list *at = entry->waiters.next; at != &entry->waiters; at = next) {
        struct ct_waiter_link *link = CT_CONTAINER_OF(at, struct ct_waiter_link, at_key);
        struct ct_waiter *waiter = link->waiter;
        next = at->next;
        if ((waiter->at_barrier && !barrier) || !satisfy(store, link)) {
            continue;
        }
        if (claim) {
            waiter->claims = true;
            waiter->one.entry = entry;
            entry->pins++;
        }
        waiter->wake(waiter);
        if (claim) {
            return;
        }
    }
}

void ct_wake_all(struct ct_store *store, struct ct_store_entry *entry)
{
    wake(store, entry, false, false);
}

void ct_wake_barrier(struct ct_store *store, struct ct_store_entry *entry)
{
    wake(store, entry, true, false);
}

void ct_wake_one(struct ct_store *store, struct ct_store_entry *entry)
{
    wake(store, entry, false, true);
}

void ct_claim_end(struct ct_store *store, struct ct_waiter *waiter,
                  const struct ct_store_entry *used)
{
    if (!waiter->claims) {
        return;
    }
    struct ct_store_entry *entry = waiter->one.entry;
    waiter->claims = false;
    waiter->one.entry = NULL;
    if (entry != used && entry->queue != NULL) {
        ct_wake_one(store, entry);
    }
    entry->pins--;
    ct_entry_drop_if_idle(store, entry);
}

/* ---- asking --------------------------------------------------------------------------------- */

static size_t count_missing(struct ct_store *store, struct ct_bytes keys, size_t count)
{
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        missing += !ct_entry_exists(ct_entry_find(store, ct_request_next(&keys)));
    }
    return missing;
}

bool ct_store_check(struct ct_store *store, struct ct_bytes keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!ct_entry_exists(ct_entry_find(store, ct_request_next(&keys)))) {
            return false;
        }
    }
    return true;
}

int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter, struct ct_bytes keys,
                  size_t count)
{
    CT_ASSERT(waiter->missing == 0);
    size_t missing = count_missing(store, keys, count);
    if (missing == 0) {
        return 0;
    }
    struct ct_waiter_link *links = NULL;
    if (missing > 1) {
        links = ct_malloc(missing * sizeof(*links));
        if (links == NULL) {
            return CT_ENOMEM;
        }
    }
    begin(store, waiter, missing);
    if (links != NULL) {
        waiter->links = links;
    }
    for (size_t i = 0; i < count; i++) {
        struct ct_bytes key = ct_request_next(&keys);
        struct ct_store_entry *entry = ct_entry_find(store, key);
        if (ct_entry_exists(entry)) {
            continue;
        }
        if (entry == NULL) {
            entry = ct_entry_need(store, key);
        }
        if (entry == NULL) {
            ct_store_cancel(store, waiter);
            return CT_ENOMEM;
        }
        enlist(waiter, entry);
    }
    return CT_STORE_E_PENDING;
}

void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter)
{
    ct_claim_end(store, waiter, NULL);
    if (waiter->missing == 0) {
        return;
    }
    for (size_t i = 0; i < waiter->slots; i++) {
        struct ct_waiter_link *link = &waiter->links[i];
        if (link->entry != NULL) {
            ct_list_remove(&link->at_key);
            ct_entry_drop_if_idle(store, link->entry);
        }
    }
    release(store, waiter);
}

struct ct_bytes ct_store_waited_key(const struct ct_waiter *waiter)
{
    for (size_t i = 0; waiter->missing > 0 && i < waiter->slots; i++) {
        const struct ct_store_entry *entry = waiter->links[i].entry;
        if (entry != NULL) {
            return (struct ct_bytes){entry->key, entry->key_len};
        }
    }
    return (struct ct_bytes){NULL, 0};
}

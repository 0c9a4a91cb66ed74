/* SPDX-License-Identifier: Apache-2.0
 *
 * The waiters of the engine: who waits for which names, and who is woken by what. store.h says who
 * is woken in which order.
 *
 * A waiter has one link for each name that it misses. A link stands in the list of its entry; when
 * the name comes, the link leaves the list, and the last one to leave wakes the waiter.
 */
#include "rendezvous/store/store_wait.h"

#include "common/alloc.h"
#include "rendezvous/wire/limits.h"

/* ---- the life of a wait --------------------------------------------------------------------- */

/* One place is in the waiter itself. */
static size_t links_cost(size_t places)
{
    return places > 1 ? places * sizeof(struct ct_waiter_link) + CT_BLOCK_COST : 0;
}

/* `links` has room for `missing` names, zeroed; NULL = the waiter's own for one. */
static void begin(struct ct_store *store, struct ct_waiter *waiter, struct ct_waiter_link *links,
                  size_t missing)
{
    ct_store_wait_end_claim(store, waiter, NULL);
    waiter->one.entry = NULL;
    waiter->links = links != NULL ? links : &waiter->one;
    waiter->places = (uint32_t)missing;
    waiter->missing = (uint32_t)missing;
    waiter->at_barrier = false;
    ct_budget_force(&store->budget, links_cost(missing));
    store->waiters++;
}

static void release(struct ct_store *store, struct ct_waiter *waiter)
{
    ct_budget_give(&store->budget, links_cost(waiter->places));
    if (waiter->links != &waiter->one) {
        ct_free(waiter->links);
    }
    waiter->links = NULL;
    waiter->places = 0;
    waiter->missing = 0;
    store->waiters--;
}

static void enlist(struct ct_waiter *waiter, size_t slot, struct ct_store_entry *entry)
{
    struct ct_waiter_link *link = &waiter->links[slot];
    link->waiter = waiter;
    link->entry = entry;
    ct_list_append(&entry->waiters, &link->at_key);
}

void ct_store_wait_enlist(struct ct_store *store, struct ct_waiter *waiter,
                          struct ct_store_entry *entry)
{
    begin(store, waiter, NULL, 1);
    enlist(waiter, 0, entry);
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

void ct_store_wait_wake_all(struct ct_store *store, struct ct_store_entry *entry)
{
    wake(store, entry, false, false);
}

void ct_store_wait_wake_barrier(struct ct_store *store, struct ct_store_entry *entry)
{
    wake(store, entry, true, false);
}

void ct_store_wait_wake_one(struct ct_store *store, struct ct_store_entry *entry)
{
    wake(store, entry, false, true);
}

void ct_store_wait_end_claim(struct ct_store *store, struct ct_waiter *waiter,
                             const struct ct_store_entry *used)
{
    if (!waiter->claims) {
        return;
    }
    struct ct_store_entry *entry = waiter->one.entry;
    CT_ASSERT(entry != NULL);
    waiter->claims = false;
    waiter->one.entry = NULL;
    if (entry != used && entry->queue != NULL) {
        ct_store_wait_wake_one(store, entry);
    }
    entry->pins--;
    ct_store_entry_drop_if_idle(store, entry);
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Is it a key or a queue that CHECK and WAIT accept? NULL is allowed. */
static bool exists(const struct ct_store_entry *entry)
{
    return entry != NULL && (entry->value != NULL || entry->queue != NULL);
}

struct missing {
    size_t count, cost; /* cost: of the entries that are to be made */
};

static struct missing find_missing(struct ct_store *store, struct ct_bytes keys, size_t count)
{
    struct missing missing = {0, 0};
    for (size_t i = 0; i < count; i++) {
        struct ct_bytes key = ct_request_next(&keys);
        const struct ct_store_entry *entry = ct_store_entry_find(store, key);
        missing.count += !exists(entry);
        missing.cost += entry == NULL ? ct_store_entry_cost(key.len) : 0;
    }
    return missing;
}

bool ct_store_check(struct ct_store *store, struct ct_bytes keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!exists(ct_store_entry_find(store, ct_request_next(&keys)))) {
            return false;
        }
    }
    return true;
}

/* Room for the links of a wait; small ones are granted whatever the budget. */
static int make_links(struct ct_store *store, const struct missing *missing,
                      struct ct_waiter_link **out)
{
    size_t cost = missing->cost + links_cost(missing->count);
    if (cost > CT_GRANT_BYTES && !ct_budget_fits(&store->budget, cost)) {
        store->budget.refused++;
        return CT_ENOMEM;
    }
    *out = NULL;
    if (missing->count > 1) {
        *out = ct_calloc(missing->count, sizeof(**out));
    }
    return missing->count > 1 && *out == NULL ? CT_ENOMEM : 0;
}

int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter, struct ct_bytes keys,
                  size_t count)
{
    CT_ASSERT(waiter->missing == 0);
    const struct missing missing = find_missing(store, keys, count);
    if (missing.count == 0) {
        return 0;
    }
    struct ct_waiter_link *links;
    int rc = make_links(store, &missing, &links);
    if (rc != 0) {
        return rc;
    }
    begin(store, waiter, links, missing.count);
    size_t slot = 0;
    for (size_t i = 0; i < count; i++) {
        struct ct_bytes key = ct_request_next(&keys);
        struct ct_store_entry *entry = ct_store_entry_find(store, key);
        if (exists(entry)) {
            continue;
        }
        if (entry == NULL) {
            entry = ct_store_entry_add(store, key, true);
        }
        if (entry == NULL) {
            ct_store_cancel(store, waiter);
            return CT_ENOMEM;
        }
        enlist(waiter, slot++, entry);
    }
    return CT_STORE_E_PENDING;
}

void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter)
{
    ct_store_wait_end_claim(store, waiter, NULL);
    if (waiter->missing == 0) {
        return;
    }
    for (size_t i = 0; i < waiter->places; i++) {
        struct ct_waiter_link *link = &waiter->links[i];
        if (link->entry != NULL) {
            ct_list_remove(&link->at_key);
            ct_store_entry_drop_if_idle(store, link->entry);
        }
    }
    release(store, waiter);
}

struct ct_bytes ct_store_waited_key(const struct ct_waiter *waiter)
{
    for (size_t i = 0; waiter->missing > 0 && i < waiter->places; i++) {
        const struct ct_store_entry *entry = waiter->links[i].entry;
        if (entry != NULL) {
            return (struct ct_bytes){entry->key, entry->key_len};
        }
    }
    return (struct ct_bytes){NULL, 0};
}

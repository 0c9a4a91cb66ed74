/* SPDX-License-Identifier: Apache-2.0
 *
 * The waiters of the engine: which names they wait for, and what wakes them. store.h has the rules.
 *
 * A waiter has one link for each name that it misses. A link stands in the list of its entry; when
 * the name comes, the link leaves the list, and the last one to leave wakes the waiter.
 */
#include "rendezvous/store/store_wait.h"

#include "common/alloc.h"
#include "rendezvous/wire/limits.h"

/* ---- the life of a wait --------------------------------------------------------------------- */

/* Places of a wait for several names: those of one call of ct_store_wait(). */
struct ct_waiter_block {
    struct ct_waiter_block *next;
    size_t places;
    struct ct_waiter_link links[];
};

static size_t block_cost(size_t places)
{
    return sizeof(struct ct_waiter_block) + places * sizeof(struct ct_waiter_link) + CT_BLOCK_COST;
}

/* Begins a wait for no key; the caller adds those that are missing. */
static void begin(struct ct_store *store, struct ct_waiter *waiter)
{
    ct_store_wait_end_claim(store, waiter, NULL);
    waiter->one.entry = NULL;
    waiter->blocks = NULL;
    waiter->unfinished = false;
    waiter->at_barrier = false;
    store->waiters++;
}

static void release(struct ct_store *store, struct ct_waiter *waiter)
{
    struct ct_waiter_block *next;
    for (struct ct_waiter_block *block = waiter->blocks; block != NULL; block = next) {
        next = block->next;
        ct_budget_give(&store->budget, block_cost(block->places));
        ct_free(block);
    }
    waiter->blocks = NULL;
    waiter->missing = 0;
    store->waiters--;
}

static void enlist(struct ct_waiter *waiter, struct ct_waiter_link *link,
                   struct ct_store_entry *entry)
{
    link->waiter = waiter;
    link->entry = entry;
    ct_list_append(&entry->waiters, &link->at_key);
    waiter->missing++;
}

void ct_store_wait_enlist(struct ct_store *store, struct ct_waiter *waiter,
                          struct ct_store_entry *entry)
{
    begin(store, waiter);
    enlist(waiter, &waiter->one, entry);
}

/* ---- waking --------------------------------------------------------------------------------- */

/* Takes a name off a wait. True: it was the last one, and the caller must wake the waiter. */
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

/* Satisfies the waiters of the entry; those at a barrier only if `barrier`. With `claim` it stops
 * after waking one, which gets the claim. */
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

/* Does the entry have a value or an element, as CHECK and WAIT ask? NULL is allowed. */
static bool exists(const struct ct_store_entry *entry)
{
    return entry != NULL && (entry->value != NULL || entry->queue != NULL);
}

struct missing {
    size_t count, cost; /* cost: memory of the entries that must be made */
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

/* Gives the links for the missing names. A wait for one name uses the waiter's own link.
 * CT_GRANT_BYTES are granted even without budget. */
static int make_links(struct ct_store *store, struct ct_waiter *waiter,
                      const struct missing *missing, struct ct_waiter_link **out)
{
    bool one = missing->count == 1 && waiter->one.entry == NULL && waiter->blocks == NULL;
    size_t cost = missing->cost + (one ? 0 : block_cost(missing->count));
    if (cost > CT_GRANT_BYTES && !ct_budget_fits(&store->budget, cost)) {
        store->budget.refused++;
        return CT_ENOMEM;
    }
    if (one) {
        *out = &waiter->one;
        return 0;
    }
    struct ct_waiter_block *block =
        ct_calloc(1, sizeof(*block) + missing->count * sizeof(block->links[0]));
    if (block == NULL) {
        return CT_ENOMEM;
    }
    ct_budget_force(&store->budget, block_cost(missing->count));
    block->places = missing->count;
    block->next = waiter->blocks;
    waiter->blocks = block;
    *out = block->links;
    return 0;
}

/* Adds the names that are missing to what the waiter waits for. */
static int add_missing(struct ct_store *store, struct ct_waiter *waiter, struct ct_bytes keys,
                       size_t count, const struct missing *missing)
{
    struct ct_waiter_link *link;
    int rc = make_links(store, waiter, missing, &link);
    for (size_t i = 0; i < count && rc == 0; i++) {
        struct ct_bytes key = ct_request_next(&keys);
        struct ct_store_entry *entry = ct_store_entry_find(store, key);
        if (exists(entry)) {
            continue;
        }
        if (entry == NULL) {
            entry = ct_store_entry_add(store, key, true);
        }
        if (entry != NULL) {
            enlist(waiter, link++, entry);
        } else {
            rc = CT_ENOMEM;
        }
    }
    return rc;
}

int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter, struct ct_bytes keys,
                  size_t count, bool more)
{
    CT_ASSERT(waiter->missing == 0 || waiter->unfinished);
    const struct missing missing = find_missing(store, keys, count);
    if (missing.count == 0 && waiter->missing == 0) {
        return 0;
    }
    if (waiter->missing == 0) {
        begin(store, waiter);
        waiter->unfinished = true;
        waiter->missing = 1;
    }
    int rc = missing.count > 0 ? add_missing(store, waiter, keys, count, &missing) : 0;
    if (rc != 0) {
        ct_store_cancel(store, waiter);
        return rc;
    }
    if (more) {
        return CT_STORE_E_PENDING;
    }
    waiter->unfinished = false;
    if (--waiter->missing == 0) {
        release(store, waiter);
        return 0;
    }
    return CT_STORE_E_PENDING;
}

static void delist(struct ct_store *store, struct ct_waiter_link *link)
{
    if (link->entry != NULL) {
        ct_list_remove(&link->at_key);
        ct_store_entry_drop_if_idle(store, link->entry);
        link->entry = NULL;
    }
}

void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter)
{
    ct_store_wait_end_claim(store, waiter, NULL);
    if (waiter->missing == 0) {
        return;
    }
    delist(store, &waiter->one);
    for (struct ct_waiter_block *block = waiter->blocks; block != NULL; block = block->next) {
        for (size_t i = 0; i < block->places; i++) {
            delist(store, &block->links[i]);
        }
    }
    waiter->unfinished = false;
    release(store, waiter);
}

struct ct_bytes ct_store_waited_key(const struct ct_waiter *waiter)
{
    const struct ct_store_entry *entry = waiter->missing > 0 ? waiter->one.entry : NULL;
    const struct ct_waiter_block *block = waiter->missing > 0 ? waiter->blocks : NULL;
    for (; entry == NULL && block != NULL; block = block->next) {
        for (size_t i = 0; entry == NULL && i < block->places; i++) {
            entry = block->links[i].entry;
        }
    }
    return entry != NULL ? (struct ct_bytes){entry->key, entry->key_len} : (struct ct_bytes){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/store.h"

#include "common/alloc.h"
#include "common/map.h"
#include "rendezvous/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A key that exists, is waited for, or both. */
struct ct_store_entry {
    struct ct_map_node node;
    struct ct_list waiters; /* ct_waiter_link.at_key, in the order they came */
    struct ct_blob *value;  /* NULL: only waited for */
    size_t key_len;
    unsigned char key[];
};

struct ct_store {
    struct ct_map map;
    struct ct_change_sink *sink; /* may be NULL */
    size_t keys, bytes, waiters;
};

/* ---- entries -------------------------------------------------------------------------------- */

static struct ct_store_entry *entry_of(const struct ct_map_node *node)
{
    return CT_CONTAINER_OF(node, struct ct_store_entry, node);
}

static bool entry_has_key(const struct ct_map_node *node, const void *key, size_t len)
{
    const struct ct_store_entry *entry = entry_of(node);
    return entry->key_len == len && (len == 0 || memcmp(entry->key, key, len) == 0);
}

static struct ct_store_entry *entry_find(struct ct_store *store, struct ct_bytes key)
{
    struct ct_map_node *node = ct_map_find(&store->map, key.ptr, key.len);
    return node != NULL ? entry_of(node) : NULL;
}

/* Makes the entry if it is not there; NULL when memory is out. */
static struct ct_store_entry *entry_need(struct ct_store *store, struct ct_bytes key)
{
    struct ct_store_entry *entry = entry_find(store, key);
    if (entry != NULL) {
        return entry;
    }
    entry = ct_malloc(sizeof(*entry) + key.len);
    if (entry == NULL) {
        return NULL;
    }
    entry->value = NULL;
    entry->key_len = key.len;
    memcpy(entry->key, key.ptr, key.len);
    ct_list_init(&entry->waiters);
    if (ct_map_insert(&store->map, &entry->node, key.ptr, key.len) != 0) {
        ct_free(entry);
        return NULL;
    }
    return entry;
}

/* Frees an entry that neither exists nor is waited for. */
static void entry_drop_if_idle(struct ct_store *store, struct ct_store_entry *entry)
{
    if (entry->value == NULL && ct_list_empty(&entry->waiters)) {
        (void)ct_map_remove(&store->map, entry->key, entry->key_len);
        ct_free(entry);
    }
}

/* Takes the key's value away, not the entry. */
static void entry_clear(struct ct_store *store, struct ct_store_entry *entry)
{
    if (entry->value != NULL) {
        store->keys--;
        store->bytes -= entry->key_len + entry->value->len;
        ct_blob_unref(entry->value);
        entry->value = NULL;
    }
}

/* ---- waiters -------------------------------------------------------------------------------- */

static void waiter_release(struct ct_store *store, struct ct_waiter *waiter)
{
    if (waiter->links != &waiter->one) {
        ct_free(waiter->links);
    }
    waiter->links = NULL;
    waiter->slots = 0;
    waiter->missing = 0;
    store->waiters--;
}

/* Wakes do not touch the store, so nobody changes the list under us. */
static void wake_all(struct ct_store *store, struct ct_store_entry *entry)
{
    while (!ct_list_empty(&entry->waiters)) {
        struct ct_waiter_link *link =
            CT_CONTAINER_OF(entry->waiters.next, struct ct_waiter_link, at_key);
        struct ct_waiter *waiter = link->waiter;
        ct_list_remove(&link->at_key);
        link->entry = NULL;
        if (--waiter->missing == 0) {
            waiter_release(store, waiter);
            waiter->wake(waiter);
        }
    }
}

void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter)
{
    if (waiter->missing == 0) {
        return;
    }
    for (size_t i = 0; i < waiter->slots; i++) {
        struct ct_waiter_link *link = &waiter->links[i];
        if (link->entry != NULL) {
            ct_list_remove(&link->at_key);
            entry_drop_if_idle(store, link->entry);
        }
    }
    waiter_release(store, waiter);
}

static bool entry_exists(const struct ct_store_entry *entry)
{
    return entry != NULL && entry->value != NULL;
}

static size_t count_missing(struct ct_store *store, struct ct_bytes keys, size_t count)
{
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        missing += !entry_exists(entry_find(store, ct_request_next(&keys)));
    }
    return missing;
}

bool ct_store_check(struct ct_store *store, struct ct_bytes keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!entry_exists(entry_find(store, ct_request_next(&keys)))) {
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
    waiter->links = &waiter->one;
    if (missing > 1) {
        waiter->links = ct_malloc(missing * sizeof(*waiter->links));
        if (waiter->links == NULL) {
            return CT_ENOMEM;
        }
    }
    waiter->slots = 0;
    waiter->missing = missing;
    store->waiters++;
    for (size_t i = 0; i < count; i++) {
        struct ct_bytes key = ct_request_next(&keys);
        struct ct_store_entry *entry = entry_find(store, key);
        if (entry_exists(entry)) {
            continue;
        }
        if (entry == NULL) {
            entry = entry_need(store, key);
        }
        if (entry == NULL) {
            ct_store_cancel(store, waiter);
            return CT_ENOMEM;
        }
        struct ct_waiter_link *link = &waiter->links[waiter->slots++];
        link->waiter = waiter;
        link->entry = entry;
        ct_list_append(&entry->waiters, &link->at_key);
    }
    return CT_STORE_E_PENDING;
}

/* ---- changes -------------------------------------------------------------------------------- */

/* Must this change not be made? Asked when all that could fail otherwise has been done. */
static int tell_sink(struct ct_store *store, enum ct_change_kind kind, struct ct_bytes key,
                     const struct ct_blob *value)
{
    if (store->sink == NULL) {
        return 0;
    }
    struct ct_change change = {.kind = kind, .key = key};
    if (value != NULL) {
        change.value = (struct ct_bytes){value->bytes, value->len};
    }
    return store->sink->change(store->sink, &change);
}

/* Takes `value` (NULL = its allocation failed), also on failure. `entry` NULL = look it up. */
static int store_value(struct ct_store *store, struct ct_store_entry *entry, struct ct_bytes key,
                       struct ct_blob *value)
{
    if (value != NULL && entry == NULL) {
        entry = entry_need(store, key);
    }
    if (value == NULL || entry == NULL) {
        ct_blob_unref(value);
        return CT_ENOMEM;
    }
    int rc = tell_sink(store, CT_CHANGE_SET, key, value);
    if (rc != 0) {
        ct_blob_unref(value);
        entry_drop_if_idle(store, entry);
        return rc;
    }
    entry_clear(store, entry);
    entry->value = value;
    store->keys++;
    store->bytes += entry->key_len + value->len;
    wake_all(store, entry);
    return 0;
}

int ct_store_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    return store_value(store, NULL, key, ct_blob_new(value.ptr, value.len));
}

int ct_store_append(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry = entry_find(store, key);
    struct ct_blob *old = entry != NULL ? entry->value : NULL;
    size_t old_len = old != NULL ? old->len : 0;
    if (value.len > CT_MAX_VALUE_LEN - old_len) {
        return CT_ELIMIT;
    }
    const unsigned char *old_bytes = old != NULL ? old->bytes : NULL;
    return store_value(store, entry, key, ct_blob_join(old_bytes, old_len, value.ptr, value.len));
}

struct ct_blob *ct_store_get(struct ct_store *store, struct ct_bytes key)
{
    struct ct_store_entry *entry = entry_find(store, key);
    return entry != NULL ? entry->value : NULL;
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* What C++'s stoll() accepts: blanks, a sign, digits, and anything behind them. */
static int parse_counter(const struct ct_blob *value, int64_t *out)
{
    const unsigned char *p = value->bytes, *end = p + value->len;
    while (p < end && is_blank(*p)) {
        p++;
    }
    bool negative = p < end && *p == '-';
    p += p < end && (*p == '-' || *p == '+');
    const unsigned char *digits = p;
    /* Collected below zero, where there is one number more. */
    int64_t n = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, *p - '0', &n)) {
            return CT_EFORMAT;
        }
    }
    if (p == digits || (!negative && n == INT64_MIN)) {
        return CT_EFORMAT;
    }
    *out = negative ? n : -n;
    return 0;
}

int ct_store_add(struct ct_store *store, struct ct_bytes key, int64_t delta, int64_t *out)
{
    struct ct_store_entry *entry = entry_find(store, key);
    int64_t old = 0;
    if (entry_exists(entry)) {
        int rc = parse_counter(entry->value, &old);
        if (rc != 0) {
            return rc;
        }
    }
    int64_t sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRId64, sum);
    int rc = store_value(store, entry, key, ct_blob_new(text, (size_t)len));
    if (rc == 0) {
        *out = sum;
    }
    return rc;
}

int ct_store_compare_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes expected,
                         struct ct_bytes desired, struct ct_blob **out)
{
    struct ct_store_entry *entry = entry_find(store, key);
    struct ct_blob *held = entry != NULL ? entry->value : NULL;
    bool same = held == NULL
                    ? expected.len == 0
                    : held->len == expected.len &&
                          (held->len == 0 || memcmp(held->bytes, expected.ptr, held->len) == 0);
    if (same) {
        held = ct_blob_new(desired.ptr, desired.len);
        int rc = store_value(store, entry, key, held);
        if (rc != 0) {
            return rc;
        }
    }
    *out = held;
    return 0;
}

int ct_store_delete(struct ct_store *store, struct ct_bytes key)
{
    struct ct_store_entry *entry = entry_find(store, key);
    if (!entry_exists(entry)) {
        return CT_STORE_E_MISSING;
    }
    int rc = tell_sink(store, CT_CHANGE_DELETE, key, NULL);
    if (rc != 0) {
        return rc;
    }
    entry_clear(store, entry);
    entry_drop_if_idle(store, entry);
    return 0;
}

/* ---- telling and being told ----------------------------------------------------------------- */

void ct_store_set_sink(struct ct_store *store, struct ct_change_sink *sink)
{
    store->sink = sink;
}

int ct_store_apply(struct ct_store *store, const struct ct_change *change)
{
    int rc = CT_EFORMAT;
    switch (change->kind) {
    case CT_CHANGE_SET:
        return ct_store_set(store, change->key, change->value);
    case CT_CHANGE_DELETE:
        rc = ct_store_delete(store, change->key);
        return rc == CT_STORE_E_MISSING ? 0 : rc;
    case CT_CHANGE_PUSH:
    case CT_CHANGE_POP:
        return CT_EUNSUPPORTED;
    }
    return rc;
}

struct dump {
    struct ct_change_sink *sink;
    int rc;
};

static void dump_entry(struct ct_map_node *node, void *data)
{
    struct dump *dump = data;
    const struct ct_store_entry *entry = entry_of(node);
    if (dump->rc == 0 && entry_exists(entry)) {
        const struct ct_change change = {
            .kind = CT_CHANGE_SET,
            .key = {entry->key, entry->key_len},
            .value = {entry->value->bytes, entry->value->len},
        };
        dump->rc = dump->sink->change(dump->sink, &change);
    }
}

int ct_store_dump(struct ct_store *store, struct ct_change_sink *sink)
{
    struct dump dump = {.sink = sink};
    ct_map_each(&store->map, dump_entry, &dump);
    return dump.rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

int ct_store_new(struct ct_store **out)
{
    struct ct_store *store = ct_calloc(1, sizeof(*store));
    if (store == NULL) {
        return CT_ENOMEM;
    }
    ct_map_init(&store->map, entry_has_key);
    *out = store;
    return 0;
}

struct keep {
    struct ct_store *store;
    struct ct_list idle; /* through ct_store_entry.waiters, which is empty for these */
};

static void clear_entry(struct ct_map_node *node, void *data)
{
    struct keep *keep = data;
    struct ct_store_entry *entry = entry_of(node);
    entry_clear(keep->store, entry);
    if (ct_list_empty(&entry->waiters)) {
        ct_list_append(&keep->idle, &entry->waiters);
    }
}

void ct_store_clear(struct ct_store *store)
{
    /* The map must not change while it is walked, so idle entries are collected first. */
    struct keep keep = {.store = store};
    ct_list_init(&keep.idle);
    ct_map_each(&store->map, clear_entry, &keep);
    while (!ct_list_empty(&keep.idle)) {
        struct ct_list *link = keep.idle.next;
        ct_list_remove(link);
        entry_drop_if_idle(store, CT_CONTAINER_OF(link, struct ct_store_entry, waiters));
    }
}

void ct_store_free(struct ct_store *store)
{
    if (store == NULL) {
        return;
    }
    CT_ASSERT(store->waiters == 0);
    ct_store_clear(store);
    ct_map_fini(&store->map);
    ct_free(store);
}

size_t ct_store_num_keys(const struct ct_store *store)
{
    return store->keys;
}

size_t ct_store_num_bytes(const struct ct_store *store)
{
    return store->bytes;
}

size_t ct_store_num_waiters(const struct ct_store *store)
{
    return store->waiters;
}

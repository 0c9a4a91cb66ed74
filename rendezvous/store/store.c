/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/store/store.h"

#include "common/alloc.h"
#include "rendezvous/store/store_impl.h"
#include "rendezvous/wire/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

struct ct_store_entry *ct_entry_find(struct ct_store *store, struct ct_bytes key)
{
    struct ct_map_node *node = ct_map_find(&store->map, key.ptr, key.len);
    return node != NULL ? entry_of(node) : NULL;
}

struct ct_store_entry *ct_entry_add(struct ct_store *store, struct ct_bytes key, bool granted)
{
    if (granted) {
        ct_budget_force(&store->budget, ct_entry_cost(key.len));
    } else if (!ct_budget_take(&store->budget, ct_entry_cost(key.len))) {
        return NULL;
    }
    struct ct_store_entry *entry = ct_malloc(sizeof(*entry) + key.len);
    if (entry == NULL) {
        ct_budget_give(&store->budget, ct_entry_cost(key.len));
        return NULL;
    }
    entry->value = NULL;
    entry->queue = NULL;
    entry->pins = 0;
    entry->key_len = (uint32_t)key.len;
    memcpy(entry->key, key.ptr, key.len);
    ct_list_init(&entry->waiters);
    if (ct_map_insert(&store->map, &entry->node, key.ptr, key.len) != 0) {
        ct_budget_give(&store->budget, ct_entry_cost(key.len));
        ct_free(entry);
        return NULL;
    }
    return entry;
}

void ct_entry_drop_if_idle(struct ct_store *store, struct ct_store_entry *entry)
{
    if (entry->value == NULL && entry->queue == NULL && entry->pins == 0 &&
        ct_list_empty(&entry->waiters)) {
        (void)ct_map_remove(&store->map, entry->key, entry->key_len);
        ct_budget_give(&store->budget, ct_entry_cost(entry->key_len));
        ct_free(entry);
    }
}

/* Takes the key's value away, not the entry. The caller gets its reference; NULL = it had none. */
static struct ct_blob *take_value(struct ct_store *store, struct ct_store_entry *entry)
{
    struct ct_blob *value = entry->value;
    if (value != NULL) {
        store->keys--;
        store->key_bytes -= entry->key_len;
        store->bytes -= entry->key_len + value->len;
        entry->value = NULL;
    }
    return value;
}

/* ---- changes -------------------------------------------------------------------------------- */

/* Makes a value for the entry (NULL = there is none). What the old one takes does not count against
 * it, or a counter could not go on when the store is full. */
static struct ct_blob *value_for(struct ct_store *store, const struct ct_store_entry *entry,
                                 struct ct_bytes a, struct ct_bytes b)
{
    const struct ct_blob *old = entry != NULL ? entry->value : NULL;
    size_t credit = old != NULL && old->refs == 1 ? ct_blob_cost(old->cap) : 0;
    ct_budget_give(&store->budget, credit);
    struct ct_blob *value = ct_blob_join(&store->budget, a.ptr, a.len, b.ptr, b.len);
    ct_budget_force(&store->budget, credit);
    return value;
}

/* Takes `value` and gives the one before it, for ct_entry_changed(); cannot fail, wakes nobody. */
static struct ct_blob *put_value(struct ct_store *store, struct ct_store_entry *entry,
                                 struct ct_blob *value)
{
    struct ct_blob *before = take_value(store, entry);
    entry->value = value;
    store->keys++;
    store->key_bytes += entry->key_len;
    store->bytes += entry->key_len + value->len;
    return before;
}

/* Takes `value` (NULL = its allocation failed), also on failure; wakes nobody. `*entry` NULL =
 * there is none: makes it. *before: as put_value() gives it. */
static int prepare(struct ct_store *store, struct ct_store_entry **entry, struct ct_bytes key,
                   struct ct_blob *value, struct ct_blob **before)
{
    if (value != NULL && *entry == NULL) {
        *entry = ct_entry_add(store, key, false);
    }
    if (value == NULL || *entry == NULL) {
        ct_blob_unref(value);
        return CT_ENOMEM;
    }
    int rc = ct_store_tell(store, CT_CHANGE_SET, *entry, value, false);
    if (rc != 0) {
        ct_blob_unref(value);
        ct_entry_drop_if_idle(store, *entry);
        return rc;
    }
    *before = put_value(store, *entry, value);
    return 0;
}

static int store_value(struct ct_store *store, struct ct_store_entry *entry, struct ct_bytes key,
                       struct ct_blob *value)
{
    struct ct_blob *before;
    int rc = prepare(store, &entry, key, value, &before);
    if (rc == 0) {
        ct_wake_all(store, entry);
        ct_entry_changed(store, entry, before);
    }
    return rc;
}

int ct_store_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry = ct_entry_find(store, key);
    return store_value(store, entry, key, value_for(store, entry, value, (struct ct_bytes){0}));
}

/* One pair of a MULTI_SET, ready to be put where it belongs. */
struct staged {
    struct ct_store_entry *entry; /* pinned */
    struct ct_blob *value;
};

static int stage(struct ct_store *store, struct ct_bytes key, struct ct_bytes value,
                 struct staged *out)
{
    out->entry = ct_entry_find(store, key);
    out->value = value_for(store, out->entry, value, (struct ct_bytes){0});
    if (out->entry == NULL && out->value != NULL) {
        out->entry = ct_entry_add(store, key, false);
    }
    if (out->entry == NULL || out->value == NULL) {
        ct_blob_unref(out->value);
        return CT_ENOMEM;
    }
    out->entry->pins++;
    return 0;
}

static void unstage(struct ct_store *store, const struct staged *staged)
{
    ct_blob_unref(staged->value);
    staged->entry->pins--;
    ct_entry_drop_if_idle(store, staged->entry);
}

static void commit(struct ct_store *store, const struct staged *staged)
{
    staged->entry->pins--;
    struct ct_blob *before = put_value(store, staged->entry, staged->value);
    ct_wake_all(store, staged->entry);
    ct_entry_changed(store, staged->entry, before);
}

/* Pairs of a MULTI_SET that need no allocation of their own. */
#define STAGED_ON_STACK 32

int ct_store_multi_set(struct ct_store *store, struct ct_bytes pairs, size_t count)
{
    struct staged few[STAGED_ON_STACK], *staged = few;
    if (count > STAGED_ON_STACK) {
        staged = ct_malloc(count * sizeof(*staged));
        if (staged == NULL) {
            return CT_ENOMEM;
        }
    }
    int rc = 0;
    size_t ready = 0;
    while (ready < count && rc == 0) {
        struct ct_bytes key = ct_request_next(&pairs);
        rc = stage(store, key, ct_request_next(&pairs), &staged[ready]);
        ready += rc == 0;
    }
    for (size_t i = 0; i < ready && rc == 0; i++) {
        rc = ct_store_tell(store, CT_CHANGE_SET, staged[i].entry, staged[i].value, i + 1 < ready);
    }
    for (size_t i = 0; i < ready; i++) {
        (rc == 0 ? commit : unstage)(store, &staged[i]);
    }
    if (staged != few) {
        ct_free(staged);
    }
    return rc;
}

/* Nobody else holds the old value, and nobody must be told of both: not a reply that is on its way,
 * nor a journal, nor who watches. */
static bool grows_in_place(const struct ct_store *store, const struct ct_blob *old)
{
    return old != NULL && old->refs == 1 && store->sink == NULL && store->watches == NULL;
}

size_t ct_store_append_copies(struct ct_store *store, struct ct_bytes key)
{
    const struct ct_store_entry *entry = ct_entry_find(store, key);
    const struct ct_blob *old = entry != NULL ? entry->value : NULL;
    return old != NULL && !grows_in_place(store, old) ? old->len : 0;
}

int ct_store_append(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry = ct_entry_find(store, key);
    struct ct_blob *old = entry != NULL ? entry->value : NULL;
    size_t old_len = old != NULL ? old->len : 0;
    if (value.len > CT_MAX_VALUE_LEN - old_len) {
        return CT_ELIMIT;
    }
    if (grows_in_place(store, old)) {
        if (!ct_blob_extend(&entry->value, value.ptr, value.len)) {
            return CT_ENOMEM;
        }
        store->bytes += value.len;
        ct_wake_all(store, entry);
        return 0;
    }
    const struct ct_bytes head = {old != NULL ? old->bytes : NULL, old_len};
    return store_value(store, entry, key, value_for(store, entry, head, value));
}

struct ct_blob *ct_store_get(struct ct_store *store, struct ct_bytes key)
{
    struct ct_store_entry *entry = ct_entry_find(store, key);
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

/* Counts on without waking anybody; *entry and *before as for prepare(). */
static int count_on(struct ct_store *store, struct ct_store_entry **entry, struct ct_bytes key,
                    int64_t delta, int64_t *out, struct ct_blob **before)
{
    *entry = ct_entry_find(store, key);
    int64_t old = 0;
    if (*entry != NULL && (*entry)->value != NULL) {
        int rc = parse_counter((*entry)->value, &old);
        if (rc != 0) {
            return rc;
        }
    }
    int64_t sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRId64, sum);
    const struct ct_bytes value = {(const unsigned char *)text, (size_t)len};
    int rc =
        prepare(store, entry, key, value_for(store, *entry, value, (struct ct_bytes){0}), before);
    if (rc == 0) {
        *out = sum;
    }
    return rc;
}

int ct_store_add(struct ct_store *store, struct ct_bytes key, int64_t delta, int64_t *out)
{
    struct ct_store_entry *entry;
    struct ct_blob *before;
    int rc = count_on(store, &entry, key, delta, out, &before);
    if (rc == 0) {
        ct_wake_all(store, entry);
        ct_entry_changed(store, entry, before);
    }
    return rc;
}

int ct_store_barrier(struct ct_store *store, struct ct_waiter *waiter, struct ct_bytes key,
                     int64_t needed)
{
    CT_ASSERT(waiter->missing == 0);
    struct ct_store_entry *entry;
    struct ct_blob *before;
    int64_t arrived = 0;
    int rc = count_on(store, &entry, key, 1, &arrived, &before);
    if (rc != 0) {
        return rc;
    }
    bool complete = arrived >= needed;
    if (complete) {
        ct_wake_barrier(store, entry);
    }
    ct_entry_changed(store, entry, before);
    if (complete) {
        return 0;
    }
    ct_waiter_enlist_one(store, waiter, entry);
    waiter->at_barrier = true;
    return CT_STORE_E_PENDING;
}

int ct_store_compare_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes expected,
                         struct ct_bytes desired, struct ct_blob **out)
{
    struct ct_store_entry *entry = ct_entry_find(store, key);
    struct ct_blob *held = entry != NULL ? entry->value : NULL;
    bool same = held == NULL
                    ? expected.len == 0
                    : held->len == expected.len &&
                          (held->len == 0 || memcmp(held->bytes, expected.ptr, held->len) == 0);
    if (same) {
        held = value_for(store, entry, desired, (struct ct_bytes){0});
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
    struct ct_store_entry *entry = ct_entry_find(store, key);
    if (entry == NULL || entry->value == NULL) {
        return CT_STORE_E_MISSING;
    }
    int rc = ct_store_tell(store, CT_CHANGE_DELETE, entry, NULL, false);
    if (rc != 0) {
        return rc;
    }
    ct_entry_changed(store, entry, take_value(store, entry));
    ct_entry_drop_if_idle(store, entry);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

int ct_store_new(struct ct_store **out)
{
    struct ct_store *store = ct_calloc(1, sizeof(*store));
    if (store == NULL) {
        return CT_ENOMEM;
    }
    store->budget.max = SIZE_MAX;
    ct_map_init(&store->map, entry_has_key);
    *out = store;
    return 0;
}

static void clear_entry(struct ct_map_node *node, void *data)
{
    struct ct_store_entry *entry = entry_of(node);
    ct_blob_unref(take_value(data, entry));
    ct_entry_clear_queue(data, entry);
    ct_entry_drop_if_idle(data, entry);
}

void ct_store_clear(struct ct_store *store)
{
    ct_map_each(&store->map, clear_entry, store);
}

struct listing {
    void (*fn)(void *data, struct ct_bytes key);
    void *data;
};

static void list_entry(struct ct_map_node *node, void *data)
{
    const struct listing *listing = data;
    const struct ct_store_entry *entry = entry_of(node);
    if (entry->value != NULL) {
        listing->fn(listing->data, (struct ct_bytes){entry->key, entry->key_len});
    }
}

void ct_store_list(struct ct_store *store, void (*fn)(void *data, struct ct_bytes key), void *data)
{
    struct listing listing = {fn, data};
    ct_map_each(&store->map, list_entry, &listing);
}

void ct_store_free(struct ct_store *store)
{
    if (store == NULL) {
        return;
    }
    CT_ASSERT(store->waiters == 0 && store->watches == NULL);
    ct_store_clear(store);
    CT_ASSERT(store->budget.used == 0);
    ct_map_fini(&store->map);
    ct_free(store);
}

size_t ct_store_num_keys(const struct ct_store *store)
{
    return store->keys;
}

size_t ct_store_key_bytes(const struct ct_store *store)
{
    return store->key_bytes;
}

size_t ct_store_num_bytes(const struct ct_store *store)
{
    return store->bytes;
}

size_t ct_store_num_waiters(const struct ct_store *store)
{
    return store->waiters;
}

size_t ct_store_num_queued(const struct ct_store *store)
{
    return store->queued;
}

struct ct_budget *ct_store_budget(struct ct_store *store)
{
    return &store->budget;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of the engine. A change is made in this order: allocate the new value and its
 * entry, ask the journal (ask_log()), make the change, which cannot fail, wake waiters, notify
 * watchers. A failure before the change undoes what was prepared.
 *
 * Watches are made with the first watcher and freed with the last. So a store in which nobody
 * watches anything only tests one pointer for each change.
 */
#include "rendezvous/store/store.h"

#include "common/alloc.h"
#include "rendezvous/store/store_entry.h"
#include "rendezvous/store/store_wait.h"
#include "rendezvous/wire/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the change log and the watchers --------------------------------------------------------- */

static struct ct_change change_of(enum ct_change_kind kind, const struct ct_store_entry *entry,
                                  const struct ct_blob *value)
{
    struct ct_change change = {.kind = kind, .key = {entry->key, entry->key_len}};
    if (value != NULL) {
        change.value = (struct ct_bytes){value->bytes, value->len};
    }
    return change;
}

/* Asks the change log whether the change may be made; a negative code means no. Called when
 * everything else that can fail has been done. `more` is as in struct ct_change. */
static int ask_log(struct ct_store *store, enum ct_change_kind kind,
                   const struct ct_store_entry *entry, const struct ct_blob *value, bool more)
{
    if (store->change_log == NULL) {
        return 0;
    }
    struct ct_change change = change_of(kind, entry, value);
    change.more = more;
    return store->change_log->append(store->change_log, &change);
}

/* Notifies the watchers that the entry's value is not `before` any more (NULL = it had none). Takes
 * the reference. Called after the wakes, because PyTorch's server answers a WAIT first. */
static void tell_watchers(struct ct_store *store, const struct ct_store_entry *entry,
                          struct ct_blob *before)
{
    if (store->watches != NULL) {
        const struct ct_notice notice = {
            .key = {entry->key, entry->key_len},
            .before = before,
            .after = entry->value,
        };
        ct_watches_tell(store->watches, &notice);
    }
    ct_blob_unref(before);
}

/* ---- values --------------------------------------------------------------------------------- */

/* Removes the value, not the entry. The caller gets the reference; NULL = there was none. */
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

/* Makes a value for the entry (NULL = there is none). The memory of the old value is available to
 * the new one, because otherwise a counter could not be changed when the store is full. */
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

/* Takes the new value and returns the old one, for tell_watchers(). Cannot fail, wakes nobody. */
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

/* Sets the value of the key, and makes *entry if it is NULL. Takes `value`, even on failure; NULL
 * means that its allocation failed. *before gets the value before it. Wakes nobody. */
static int replace_value(struct ct_store *store, struct ct_store_entry **entry, struct ct_bytes key,
                         struct ct_blob *value, struct ct_blob **before)
{
    if (value != NULL && *entry == NULL) {
        *entry = ct_store_entry_add(store, key, false);
    }
    if (value == NULL || *entry == NULL) {
        ct_blob_unref(value);
        return CT_ENOMEM;
    }
    int rc = ask_log(store, CT_CHANGE_SET, *entry, value, false);
    if (rc != 0) {
        ct_blob_unref(value);
        ct_store_entry_drop_if_idle(store, *entry);
        return rc;
    }
    *before = put_value(store, *entry, value);
    return 0;
}

static int store_value(struct ct_store *store, struct ct_store_entry *entry, struct ct_bytes key,
                       struct ct_blob *value)
{
    struct ct_blob *before;
    int rc = replace_value(store, &entry, key, value, &before);
    if (rc == 0) {
        ct_store_wait_wake_all(store, entry);
        tell_watchers(store, entry, before);
    }
    return rc;
}

int ct_store_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry = ct_store_entry_find(store, key);
    return store_value(store, entry, key, value_for(store, entry, value, (struct ct_bytes){0}));
}

/* One pair of a MULTI_SET for which everything is allocated. */
struct new_value {
    struct ct_store_entry *entry; /* pinned */
    struct ct_blob *value;
};

static int prepare_pair(struct ct_store *store, struct ct_bytes key, struct ct_bytes value,
                        struct new_value *out)
{
    out->entry = ct_store_entry_find(store, key);
    out->value = value_for(store, out->entry, value, (struct ct_bytes){0});
    if (out->entry == NULL && out->value != NULL) {
        out->entry = ct_store_entry_add(store, key, false);
    }
    if (out->entry == NULL || out->value == NULL) {
        ct_blob_unref(out->value);
        return CT_ENOMEM;
    }
    out->entry->pins++;
    return 0;
}

static void discard_pair(struct ct_store *store, const struct new_value *pair)
{
    ct_blob_unref(pair->value);
    pair->entry->pins--;
    ct_store_entry_drop_if_idle(store, pair->entry);
}

static void apply_pair(struct ct_store *store, const struct new_value *pair)
{
    pair->entry->pins--;
    struct ct_blob *before = put_value(store, pair->entry, pair->value);
    ct_store_wait_wake_all(store, pair->entry);
    tell_watchers(store, pair->entry, before);
}

/* Prepares all pairs and asks the change log about each. *ready gets how many, even on failure. */
static int prepare_pairs(struct ct_store *store, struct ct_bytes pairs, size_t count,
                         struct new_value *out, size_t *ready)
{
    for (*ready = 0; *ready < count; ++*ready) {
        struct ct_bytes key = ct_request_next(&pairs);
        int rc = prepare_pair(store, key, ct_request_next(&pairs), &out[*ready]);
        if (rc != 0) {
            return rc;
        }
    }
    for (size_t i = 0; i < count; i++) {
        int rc = ask_log(store, CT_CHANGE_SET, out[i].entry, out[i].value, i + 1 < count);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* So many pairs of a MULTI_SET need no memory from the heap. */
#define PAIRS_ON_STACK 32

int ct_store_multi_set(struct ct_store *store, struct ct_bytes pairs, size_t count)
{
    struct new_value few[PAIRS_ON_STACK], *prepared = few;
    if (count > PAIRS_ON_STACK) {
        prepared = ct_malloc(count * sizeof(*prepared));
        if (prepared == NULL) {
            return CT_ENOMEM;
        }
    }
    size_t ready;
    int rc = prepare_pairs(store, pairs, count, prepared, &ready);
    for (size_t i = 0; i < ready; i++) {
        (rc == 0 ? apply_pair : discard_pair)(store, &prepared[i]);
    }
    if (prepared != few) {
        ct_free(prepared);
    }
    return rc;
}

/* Can the old value be lengthened in place? Not if somebody else holds it, such as an unsent reply,
 * and not if a journal needs the new value or a watcher both. */
static bool grows_in_place(const struct ct_store *store, const struct ct_blob *old)
{
    return old != NULL && old->refs == 1 && store->change_log == NULL && store->watches == NULL;
}

size_t ct_store_append_copies(struct ct_store *store, struct ct_bytes key)
{
    const struct ct_store_entry *entry = ct_store_entry_find(store, key);
    const struct ct_blob *old = entry != NULL ? entry->value : NULL;
    return old != NULL && !grows_in_place(store, old) ? old->len : 0;
}

int ct_store_append(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry = ct_store_entry_find(store, key);
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
        ct_store_wait_wake_all(store, entry);
        return 0;
    }
    const struct ct_bytes head = {old != NULL ? old->bytes : NULL, old_len};
    return store_value(store, entry, key, value_for(store, entry, head, value));
}

struct ct_blob *ct_store_get(struct ct_store *store, struct ct_bytes key)
{
    struct ct_store_entry *entry = ct_store_entry_find(store, key);
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
    /* The number is built below zero, because INT64_MIN has no positive counterpart. */
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

/* Adds `delta` to the number at the key; wakes nobody. *entry, *before: see replace_value(). */
static int add_to_counter(struct ct_store *store, struct ct_store_entry **entry,
                          struct ct_bytes key, int64_t delta, int64_t *out, struct ct_blob **before)
{
    *entry = ct_store_entry_find(store, key);
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
    int rc = replace_value(store, entry, key, value_for(store, *entry, value, (struct ct_bytes){0}),
                           before);
    if (rc == 0) {
        *out = sum;
    }
    return rc;
}

int ct_store_add(struct ct_store *store, struct ct_bytes key, int64_t delta, int64_t *out)
{
    struct ct_store_entry *entry;
    struct ct_blob *before;
    int rc = add_to_counter(store, &entry, key, delta, out, &before);
    if (rc == 0) {
        ct_store_wait_wake_all(store, entry);
        tell_watchers(store, entry, before);
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
    int rc = add_to_counter(store, &entry, key, 1, &arrived, &before);
    if (rc != 0) {
        return rc;
    }
    bool complete = arrived >= needed;
    if (complete) {
        ct_store_wait_wake_barrier(store, entry);
    }
    tell_watchers(store, entry, before);
    if (complete) {
        return 0;
    }
    ct_store_wait_enlist(store, waiter, entry);
    waiter->at_barrier = true;
    return CT_STORE_E_PENDING;
}

int ct_store_compare_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes expected,
                         struct ct_bytes desired, struct ct_blob **out)
{
    struct ct_store_entry *entry = ct_store_entry_find(store, key);
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
    struct ct_store_entry *entry = ct_store_entry_find(store, key);
    if (entry == NULL || entry->value == NULL) {
        return CT_STORE_E_MISSING;
    }
    int rc = ask_log(store, CT_CHANGE_DELETE, entry, NULL, false);
    if (rc != 0) {
        return rc;
    }
    tell_watchers(store, entry, take_value(store, entry));
    ct_store_entry_drop_if_idle(store, entry);
    return 0;
}

/* ---- queues --------------------------------------------------------------------------------- */

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

/* Makes room for one more element. Creates the queue if there is none; as a queue must not stay
 * empty, the caller then adds an element or calls queue_free_if_empty(). */
static int queue_reserve(struct ct_store *store, struct ct_store_entry *entry)
{
    size_t before = queue_cost(entry->queue);
    if (entry->queue == NULL) {
        entry->queue = ct_calloc(1, sizeof(*entry->queue));
    }
    int rc =
        entry->queue != NULL ? ct_buf_reserve(entry->queue, sizeof(struct ct_blob *)) : CT_ENOMEM;
    /* Forced, because it is small compared with the element, which must fit. */
    ct_budget_force(&store->budget, queue_cost(entry->queue) - before);
    return rc;
}

/* Does the part of a push that can fail. Gives *entry even on failure; NULL = there is none. */
static int prepare_push(struct ct_store *store, struct ct_bytes key, struct ct_blob *blob,
                        struct ct_store_entry **entry)
{
    *entry = ct_store_entry_find(store, key);
    if (blob == NULL) {
        return CT_ENOMEM;
    }
    if (*entry == NULL) {
        *entry = ct_store_entry_add(store, key, false);
    }
    if (*entry == NULL || queue_reserve(store, *entry) != 0) {
        return CT_ENOMEM;
    }
    return ask_log(store, CT_CHANGE_PUSH, *entry, blob, false);
}

int ct_store_push(struct ct_store *store, struct ct_bytes key, struct ct_bytes value)
{
    struct ct_store_entry *entry;
    struct ct_blob *blob = ct_blob_new(&store->budget, value.ptr, value.len);
    int rc = prepare_push(store, key, blob, &entry);
    if (rc != 0) {
        ct_blob_unref(blob);
        if (entry != NULL) {
            queue_free_if_empty(store, entry);
            ct_store_entry_drop_if_idle(store, entry);
        }
        return rc;
    }
    CT_ASSERT(ct_buf_append(entry->queue, &blob, sizeof(blob)) == 0);
    store->queued++;
    store->bytes += value.len;
    ct_store_wait_wake_one(store, entry);
    return 0;
}

/* Takes the first element; there must be one. */
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
    struct ct_store_entry *entry = ct_store_entry_find(store, key);
    *len = entry != NULL ? queue_len(entry) : 0;
    *out = NULL;
    if (*len > 0) {
        int rc = ask_log(store, CT_CHANGE_POP, entry, NULL, false);
        if (rc != 0) {
            return rc;
        }
        *out = queue_take(store, entry);
        entry->pins++; /* the end of the claim must not free the entry */
    }
    ct_store_wait_end_claim(store, waiter, entry);
    if (*len > 0) {
        entry->pins--;
        ct_store_entry_drop_if_idle(store, entry);
    }
    return 0;
}

size_t ct_store_queue_len(struct ct_store *store, struct ct_bytes key)
{
    const struct ct_store_entry *entry = ct_store_entry_find(store, key);
    return entry != NULL ? queue_len(entry) : 0;
}

/* Removes the queue and its elements, but not the entry. */
static void clear_queue(struct ct_store *store, struct ct_store_entry *entry)
{
    while (entry->queue != NULL) {
        ct_blob_unref(queue_take(store, entry));
    }
}

/* ---- watching ------------------------------------------------------------------------------- */

static void free_if_empty(struct ct_store *store)
{
    if (ct_watches_empty(store->watches)) {
        ct_watches_free(store->watches);
        store->watches = NULL;
    }
}

int ct_store_watch(struct ct_store *store, struct ct_bytes key, void *watcher, ct_notice_fn fn)
{
    int rc = store->watches == NULL ? ct_watches_new(&store->budget, &store->watches) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = ct_watches_add(store->watches, key, watcher, fn);
    free_if_empty(store);
    return rc;
}

void ct_store_unwatch(struct ct_store *store, const void *watcher)
{
    if (store->watches != NULL) {
        ct_watches_drop(store->watches, watcher);
        free_if_empty(store);
    }
}

/* ---- journal -------------------------------------------------------------------------------- */

void ct_store_set_change_log(struct ct_store *store, struct ct_change_log *change_log)
{
    store->change_log = change_log;
}

static int apply_pop(struct ct_store *store, struct ct_bytes key)
{
    struct ct_waiter nobody = {0};
    struct ct_blob *value = NULL;
    size_t len;
    int rc = ct_store_pop(store, &nobody, key, &len, &value);
    ct_blob_unref(value);
    return rc;
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
        return ct_store_push(store, change->key, change->value);
    case CT_CHANGE_POP:
        return apply_pop(store, change->key);
    }
    return rc;
}

struct dump {
    struct ct_change_log *change_log;
    int rc;
};

static void dump_one(struct dump *dump, enum ct_change_kind kind,
                     const struct ct_store_entry *entry, const struct ct_blob *value)
{
    if (dump->rc == 0) {
        const struct ct_change change = change_of(kind, entry, value);
        dump->rc = dump->change_log->append(dump->change_log, &change);
    }
}

static void dump_entry(struct ct_map_node *node, void *data)
{
    const struct ct_store_entry *entry = ct_store_entry_of(node);
    if (entry->value != NULL) {
        dump_one(data, CT_CHANGE_SET, entry, entry->value);
    }
    for (size_t at = 0; entry->queue != NULL && at < entry->queue->len;) {
        struct ct_blob *value;
        memcpy(&value, ct_buf_bytes(entry->queue) + at, sizeof(value));
        dump_one(data, CT_CHANGE_PUSH, entry, value);
        at += sizeof(value);
    }
}

int ct_store_dump(struct ct_store *store, struct ct_change_log *change_log)
{
    struct dump dump = {.change_log = change_log};
    ct_map_each(&store->map, dump_entry, &dump);
    return dump.rc;
}

/* ---- the whole store ------------------------------------------------------------------------- */

int ct_store_new(struct ct_store **out)
{
    struct ct_store *store = ct_calloc(1, sizeof(*store));
    if (store == NULL) {
        return CT_ENOMEM;
    }
    store->budget.max = SIZE_MAX;
    ct_store_entry_map_init(store);
    *out = store;
    return 0;
}

static void clear_entry(struct ct_map_node *node, void *data)
{
    struct ct_store_entry *entry = ct_store_entry_of(node);
    ct_blob_unref(take_value(data, entry));
    clear_queue(data, entry);
    ct_store_entry_drop_if_idle(data, entry);
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
    const struct ct_store_entry *entry = ct_store_entry_of(node);
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

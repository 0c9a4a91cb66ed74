/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine and a journal: telling changes, and being told them.
 */
#include "rendezvous/store/store_impl.h"

#include <string.h>

void ct_store_set_sink(struct ct_store *store, struct ct_change_sink *sink)
{
    store->sink = sink;
}

static struct ct_change change_of(enum ct_change_kind kind, const struct ct_store_entry *entry,
                                  const struct ct_blob *value)
{
    struct ct_change change = {.kind = kind, .key = {entry->key, entry->key_len}};
    if (value != NULL) {
        change.value = (struct ct_bytes){value->bytes, value->len};
    }
    return change;
}

int ct_store_tell(struct ct_store *store, enum ct_change_kind kind,
                  const struct ct_store_entry *entry, const struct ct_blob *value, bool more)
{
    if (store->sink == NULL) {
        return 0;
    }
    struct ct_change change = change_of(kind, entry, value);
    change.more = more;
    return store->sink->change(store->sink, &change);
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
    struct ct_change_sink *sink;
    int rc;
};

static void dump_one(struct dump *dump, enum ct_change_kind kind,
                     const struct ct_store_entry *entry, const struct ct_blob *value)
{
    if (dump->rc == 0) {
        const struct ct_change change = change_of(kind, entry, value);
        dump->rc = dump->sink->change(dump->sink, &change);
    }
}

static void dump_entry(struct ct_map_node *node, void *data)
{
    const struct ct_store_entry *entry = CT_CONTAINER_OF(node, struct ct_store_entry, node);
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

int ct_store_dump(struct ct_store *store, struct ct_change_sink *sink)
{
    struct dump dump = {.sink = sink};
    ct_map_each(&store->map, dump_entry, &dump);
    return dump.rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The watches of the engine. They are made with the first and freed with the last, so that a store
 * where nobody watches anything tests one pointer for each change.
 */
#include "rendezvous/store/store_impl.h"

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

void ct_store_notify(struct ct_store *store, const struct ct_store_entry *entry,
                     struct ct_blob *before)
{
    const struct ct_notice notice = {
        .key = {entry->key, entry->key_len},
        .before = before,
        .after = entry->value,
    };
    ct_watches_tell(store->watches, &notice);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchers of keys, and their notices. A store has a struct ct_watches while at least one key
 * is watched. The values stay in the store.
 *
 * A key need not have a value to be watched. A client that watches a key twice gets each notice
 * twice, as from PyTorch's server.
 */
#ifndef CT_RENDEZVOUS_STORE_WATCH_H
#define CT_RENDEZVOUS_STORE_WATCH_H

#include "common/err.h"
#include "rendezvous/store/blob.h"
#include "rendezvous/wire/proto.h"

#include <stdbool.h>

/* A change that was made. All is borrowed for the call; a blob may be kept with a reference. */
struct ct_notice {
    struct ct_bytes key;
    struct ct_blob *before, *after; /* NULL: the key had, or has, no value */
};

/* Must call neither the store nor the watches. It cannot refuse the change, which has been made. */
typedef void (*ct_notice_fn)(void *watcher, const struct ct_notice *notice);

struct ct_watches;

/* Borrows `budget`, which counts what is taken. CT_ENOMEM gives nothing. */
CT_MUST_CHECK int ct_watches_new(struct ct_budget *budget, struct ct_watches **out);

/* No watcher may be left. NULL is allowed. */
void ct_watches_free(struct ct_watches *watches);

/* From now on `fn` is called with `watcher` for each change of the key. A watcher always has the
 * same `fn`. CT_ENOMEM, also when the budget is used up, changes nothing. */
CT_MUST_CHECK int ct_watches_add(struct ct_watches *watches, struct ct_bytes key, void *watcher,
                                 ct_notice_fn fn);

/* Forgets the watcher and whatever it watches, if anything. */
void ct_watches_drop(struct ct_watches *watches, const void *watcher);

/* Calls the watchers of the key, in the order in which they came. */
void ct_watches_tell(struct ct_watches *watches, const struct ct_notice *notice);

bool ct_watches_empty(const struct ct_watches *watches);

#endif

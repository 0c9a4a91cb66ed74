/* SPDX-License-Identifier: Apache-2.0
 *
 * The key/value engine of the store: no sockets, no clock, no wire format. One thread.
 *
 * Keys and values are byte strings whose lengths the codec has checked. A value is an immutable
 * counted blob. Semantics are those of PyTorch's libuv server, except where that one is at fault.
 *
 * Queues are a name space of their own: a key and a queue of one name know nothing of each other,
 * except that CHECK and WAIT are content with either, an empty queue being no queue.
 *
 * Waiters stand in a list at each name they miss, in the order they came:
 * - A value, however it came about, is news to all who wait for the key. (COMPARE_SET wakes only
 *   when the key exists afterwards.)
 * - An element pushed to a queue wakes one waiter: the first one that misses nothing else. Those
 *   before it that also wait for other names have seen this one come, as with a key, and are passed
 *   over, or they would keep an element from somebody who could take it. The one woken has a claim
 *   until it pops, waits for something that is not there, or cancels; if it has not popped from
 *   that queue then, the next waiter is woken in its place. A claim reserves nothing: whoever pops
 *   first gets the element.
 * - A barrier lets go those at it, and whoever waits for its key, only when it is complete. Its
 *   count is a value that the key has meanwhile; writing that in other ways wakes no one at it.
 *
 * Watchers are told of each change of a key's value, whatever operation made it and however little
 * it changed, after those who wait for the key are woken. Queues are not watched.
 *
 * Every call either does its whole effect or, with CT_ENOMEM or what a sink answered, none of it.
 */
#ifndef CT_RENDEZVOUS_STORE_STORE_H
#define CT_RENDEZVOUS_STORE_STORE_H

#include "common/err.h"
#include "common/list.h"
#include "rendezvous/store/blob.h"
#include "rendezvous/store/change.h"
#include "rendezvous/store/watch.h"
#include "rendezvous/wire/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_store;
struct ct_store_entry;
struct ct_waiter;

/* One place of a waiter in the list of one key. */
struct ct_waiter_link {
    struct ct_list at_key;
    struct ct_waiter *waiter;
    struct ct_store_entry *entry;
};

/* Whoever waits; embedded in its owner, which must call ct_store_cancel() before it dies. */
struct ct_waiter {
    /* The last missing key came. The waiter is already free for another wait. Must not call the
     * store: it is in the middle of a change. */
    void (*wake)(struct ct_waiter *waiter);
    struct ct_waiter_link *links; /* `places` of them: &one, or allocated for several keys */
    uint32_t missing;             /* names that have not come; 0 = not waiting */
    uint32_t places : 30;
    bool at_barrier : 1;
    bool claims : 1; /* woken by a push to the queue at one.entry, and has not popped yet */
    struct ct_waiter_link one;
};

/* CT_ENOMEM gives nothing. */
CT_MUST_CHECK int ct_store_new(struct ct_store **out);

/* No waiter or watcher may be left, nor anything else that its budget counts. NULL is allowed. */
void ct_store_free(struct ct_store *store);

/* Forgets all keys and queues; waiters and watchers stay where they are and are not told. */
void ct_store_clear(struct ct_store *store);

CT_MUST_CHECK int ct_store_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes value);

/* Sets `count` keys; `pairs` holds key and value of each in turn. */
CT_MUST_CHECK int ct_store_multi_set(struct ct_store *store, struct ct_bytes pairs, size_t count);

/* Creates the key or lengthens its value. CT_ELIMIT when the value would pass CT_MAX_VALUE_LEN. */
CT_MUST_CHECK int ct_store_append(struct ct_store *store, struct ct_bytes key,
                                  struct ct_bytes value);

/* Bytes of the old value that an append to the key would copy: none of one that can grow where it
 * is. */
size_t ct_store_append_copies(struct ct_store *store, struct ct_bytes key);

/* NULL when missing; borrowed until the next change. */
struct ct_blob *ct_store_get(struct ct_store *store, struct ct_bytes key);

/* Adds to the decimal number that the value starts with (0 when missing), wrapping at 64 bits, and
 * stores the result as decimal text. CT_EFORMAT when the value is no 64-bit number. *out is there
 * before anybody is woken or told. */
CT_MUST_CHECK int ct_store_add(struct ct_store *store, struct ct_bytes key, int64_t delta,
                               int64_t *out);

/* Stores `desired` when the value equals `expected`, or when the key is missing and `expected` is
 * empty. *out is what to answer: the value held now, borrowed until the next change, or NULL when
 * the key is missing still (the protocol then echoes `expected`). */
CT_MUST_CHECK int ct_store_compare_set(struct ct_store *store, struct ct_bytes key,
                                       struct ct_bytes expected, struct ct_bytes desired,
                                       struct ct_blob **out);

/* Outcome of ct_store_delete(): there was no such key. */
#define CT_STORE_E_MISSING 2

CT_MUST_CHECK int ct_store_delete(struct ct_store *store, struct ct_bytes key);

/* Have all `count` names in `keys` a value or an element? True for none. */
bool ct_store_check(struct ct_store *store, struct ct_bytes keys, size_t count);

/* ---- queues --------------------------------------------------------------------------------- */

/* Puts the value at the end of the queue. */
CT_MUST_CHECK int ct_store_push(struct ct_store *store, struct ct_bytes key, struct ct_bytes value);

/* Takes the first element off: *out, with a reference that the caller owns, or NULL when there is
 * none. *len: how many there were. `waiter` is the one of who asks. */
CT_MUST_CHECK int ct_store_pop(struct ct_store *store, struct ct_waiter *waiter,
                               struct ct_bytes key, size_t *len, struct ct_blob **out);

size_t ct_store_queue_len(struct ct_store *store, struct ct_bytes key);

/* ---- waiting -------------------------------------------------------------------------------- */

/* Outcome of ct_store_wait() and ct_store_barrier(): waiter->wake() will be called. */
#define CT_STORE_E_PENDING 1

/* 0: all names have a value or an element. Each one missing now must come once from now on; one
 * that is gone again meanwhile is not looked at; one named twice counts twice. The waiter must not
 * be waiting. */
CT_MUST_CHECK int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter,
                                struct ct_bytes keys, size_t count);

/* Counts up the number at the key, as ct_store_add() does. 0: it is now `needed` or more, and all
 * who waited are woken. The count is not reset: from then on the barrier is open. Whoever cancels
 * has been counted all the same. */
CT_MUST_CHECK int ct_store_barrier(struct ct_store *store, struct ct_waiter *waiter,
                                   struct ct_bytes key, int64_t needed);

/* Ends the wait or the claim if there is one; wake() is not called. */
void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter);

/* One of the keys that it waits for, borrowed; .ptr is NULL when it does not wait. */
struct ct_bytes ct_store_waited_key(const struct ct_waiter *waiter);

/* ---- watching ------------------------------------------------------------------------------- */

/* From now on `fn` is called with `watcher` for each change of the key, in the middle of that
 * change. One watcher always comes with the same `fn`, and must call ct_store_unwatch() before it
 * dies. */
CT_MUST_CHECK int ct_store_watch(struct ct_store *store, struct ct_bytes key, void *watcher,
                                 ct_notice_fn fn);

/* Forgets whatever it watches, if anything. */
void ct_store_unwatch(struct ct_store *store, const void *watcher);

/* ---- journal -------------------------------------------------------------------------------- */

/* From now on `sink` (borrowed; NULL = nobody) is told of each change before it is made. Only
 * ct_store_clear() is not told. */
void ct_store_set_sink(struct ct_store *store, struct ct_change_sink *sink);

/* Makes a change as the sink of another store was told it. */
CT_MUST_CHECK int ct_store_apply(struct ct_store *store, const struct ct_change *change);

/* Tells `sink` the changes that make an empty store into this one; ends at its first negative code
 * and returns that. */
CT_MUST_CHECK int ct_store_dump(struct ct_store *store, struct ct_change_sink *sink);

/* ---- the whole ------------------------------------------------------------------------------ */

/* Calls fn for each key that has a value, in no order; fn must not change the store. */
void ct_store_list(struct ct_store *store, void (*fn)(void *data, struct ct_bytes key), void *data);

/* What the memory of this store is counted by, and of whatever else its owner wants counted. There
 * is no cap at first. Over it a call fails with CT_ENOMEM, as it does when memory is out. */
struct ct_budget *ct_store_budget(struct ct_store *store);

/* Keys that have a value. */
size_t ct_store_num_keys(const struct ct_store *store);

/* Bytes of those keys alone. */
size_t ct_store_key_bytes(const struct ct_store *store);

/* Elements of all queues. */
size_t ct_store_num_queued(const struct ct_store *store);

/* Bytes of all keys, values and elements. */
size_t ct_store_num_bytes(const struct ct_store *store);

/* Waiters that wait. */
size_t ct_store_num_waiters(const struct ct_store *store);

#endif

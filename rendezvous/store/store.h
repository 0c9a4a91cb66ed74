/* SPDX-License-Identifier: Apache-2.0
 *
 * The key/value engine of the store: no sockets, no clock, no wire format. One thread.
 *
 * Keys and values are byte strings whose lengths the codec has checked. A value is an immutable
 * counted blob. Semantics are those of PyTorch's libuv server, except where that one is at fault.
 *
 * Queues have a name space of their own: a key and a queue of the same name are independent, except
 * that CHECK and WAIT accept either. An empty queue does not exist.
 *
 * A waiter is in the list of each name that it misses, in the order of arrival:
 * - A value wakes all waiters of the key, whatever operation made it. COMPARE_SET wakes them only
 *   if the key exists afterwards.
 * - An element pushed to a queue wakes one waiter: the first one that misses no other name. Waiters
 *   before it that miss other names, too, count this name as seen, as with a key, but are passed
 *   over: they would keep the element from a waiter that can take it. The woken waiter has a claim
 *   until it pops, waits for a missing name, or cancels. If it has not popped from that queue by
 *   then, the next waiter is woken in its place. A claim reserves nothing: the element goes to the
 *   first client that pops.
 * - A barrier wakes the waiters at it, and those that wait for its key, only when it is complete.
 *   Until then the value of the key is its count. Writing that value in another way wakes no waiter
 *   at the barrier.
 *
 * Watchers are told of each change of a key's value, even if the value stays the same, after the
 * waiters of the key are woken. Queues are not watched.
 *
 * Every call has its whole effect or, with CT_ENOMEM or the code of a sink, none of it.
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
struct ct_waiter_block;

/* One place of a waiter in the list of one key. */
struct ct_waiter_link {
    struct ct_list at_key;
    struct ct_waiter *waiter;
    struct ct_store_entry *entry;
};

/* A client that may wait. Embedded in its owner, which must call ct_store_cancel() before it is
 * freed. */
struct ct_waiter {
    /* Called when the last missing name came. The waiter may be used for another wait by then. Must
     * not call the store, which is in the middle of a change. */
    void (*wake)(struct ct_waiter *waiter);
    struct ct_waiter_block *blocks; /* places of a wait for several names */
    uint32_t missing;    /* names that have not come, and 1 if `unfinished`; 0 = not waiting */
    bool unfinished : 1; /* more names are to be added; it is not woken before */
    bool at_barrier : 1;
    bool claims : 1; /* woken by a push to the queue at one.entry, and has not popped yet */
    struct ct_waiter_link one;
};

/* CT_ENOMEM gives nothing. */
CT_MUST_CHECK int ct_store_new(struct ct_store **out);

/* No waiter or watcher may be left, nor anything else that its budget counts. NULL is allowed. */
void ct_store_free(struct ct_store *store);

/* Forgets all keys and queues. Waiters and watchers stay and are not told. */
void ct_store_clear(struct ct_store *store);

CT_MUST_CHECK int ct_store_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes value);

/* Sets `count` keys; `pairs` holds key and value of each in turn. */
CT_MUST_CHECK int ct_store_multi_set(struct ct_store *store, struct ct_bytes pairs, size_t count);

/* Creates the key or lengthens its value. CT_ELIMIT when the value would pass CT_MAX_VALUE_LEN. */
CT_MUST_CHECK int ct_store_append(struct ct_store *store, struct ct_bytes key,
                                  struct ct_bytes value);

/* Bytes of the old value that an append to the key would copy; 0 if the value can grow in place. */
size_t ct_store_append_copies(struct ct_store *store, struct ct_bytes key);

/* NULL when missing; borrowed until the next change. */
struct ct_blob *ct_store_get(struct ct_store *store, struct ct_bytes key);

/* Adds to the decimal number that the value starts with (0 when missing), wrapping at 64 bits, and
 * stores the result as decimal text. CT_EFORMAT when the value is no 64-bit number. *out is set
 * before waiters are woken and watchers are told. */
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

/* Has each of the `count` names in `keys` a value or an element? True for no names. */
bool ct_store_check(struct ct_store *store, struct ct_bytes keys, size_t count);

/* ---- queues --------------------------------------------------------------------------------- */

/* Puts the value at the end of the queue. */
CT_MUST_CHECK int ct_store_push(struct ct_store *store, struct ct_bytes key, struct ct_bytes value);

/* Removes the first element: *out, with a reference that the caller owns, or NULL when there is
 * none. *len: how many elements there were. `waiter` is that of the client that pops. */
CT_MUST_CHECK int ct_store_pop(struct ct_store *store, struct ct_waiter *waiter,
                               struct ct_bytes key, size_t *len, struct ct_blob **out);

size_t ct_store_queue_len(struct ct_store *store, struct ct_bytes key);

/* ---- waiting -------------------------------------------------------------------------------- */

/* Outcome of ct_store_wait() and ct_store_barrier(): waiter->wake() will be called. */
#define CT_STORE_E_PENDING 1

/* 0: all names have a value or an element. Each name that is missing now must come once from now
 * on; that it may be deleted again meanwhile does not matter. A name that is given twice counts
 * twice. The waiter must not be waiting.
 *
 * The names may be given in several calls, with `more` in all but the last: what came in between is
 * not waited for, and the result of the last call counts. CT_ENOMEM ends the whole wait. */
CT_MUST_CHECK int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter,
                                struct ct_bytes keys, size_t count, bool more);

/* Adds 1 to the number at the key, as ct_store_add() does. 0: it is now `needed` or more, and all
 * waiters are woken. The count is not reset: from then on the barrier is open. A client that
 * cancels stays counted. */
CT_MUST_CHECK int ct_store_barrier(struct ct_store *store, struct ct_waiter *waiter,
                                   struct ct_bytes key, int64_t needed);

/* Ends the wait or the claim, if there is one. wake() is not called. */
void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter);

/* One of the keys that it waits for, borrowed; .ptr is NULL when it does not wait. */
struct ct_bytes ct_store_waited_key(const struct ct_waiter *waiter);

/* ---- watching ------------------------------------------------------------------------------- */

/* From now on `fn` is called with `watcher` for each change of the key, in the middle of that
 * change. A watcher always has the same `fn`. ct_store_unwatch() must be called before it is freed.
 */
CT_MUST_CHECK int ct_store_watch(struct ct_store *store, struct ct_bytes key, void *watcher,
                                 ct_notice_fn fn);

/* The watcher watches nothing any more. */
void ct_store_unwatch(struct ct_store *store, const void *watcher);

/* ---- journal -------------------------------------------------------------------------------- */

/* From now on `sink` (borrowed; NULL = nobody) is told of each change before it is made. Only
 * ct_store_clear() is not told. */
void ct_store_set_sink(struct ct_store *store, struct ct_change_sink *sink);

/* Repeats a change that a sink was told. */
CT_MUST_CHECK int ct_store_apply(struct ct_store *store, const struct ct_change *change);

/* Tells `sink` the changes that make an empty store into this one; ends at its first negative code
 * and returns that. */
CT_MUST_CHECK int ct_store_dump(struct ct_store *store, struct ct_change_sink *sink);

/* ---- the whole ------------------------------------------------------------------------------ */

/* Calls fn for each key that has a value, in no order; fn must not change the store. */
void ct_store_list(struct ct_store *store, void (*fn)(void *data, struct ct_bytes key), void *data);

/* Counts the memory of this store; its owner may count other things with it, too. There is no cap
 * at first. Over the cap a call fails with CT_ENOMEM, as it does when memory is out. */
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

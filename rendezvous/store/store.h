/* SPDX-License-Identifier: Apache-2.0
 *
 * The key/value engine of the store: no sockets, no clock, no wire format. One thread.
 *
 * Keys and values are byte strings whose lengths the codec has checked. A value is an immutable
 * blob with a reference count. Semantics are those of PyTorch's libuv server, except for that
 * server's faults.
 *
 * Queues have a name space of their own: a key and a queue of the same name are independent, except
 * that CHECK and WAIT accept either. An empty queue does not exist.
 *
 * A waiter is in the list of each name that it misses, in the order of arrival:
 * - A value wakes all waiters of the key, whatever operation made it. COMPARE_SET wakes them only
 *   if the key exists afterwards.
 * - An element pushed to a queue wakes one waiter: the first one that misses no other name. A
 *   waiter before it that misses other names, too, could not take the element yet. So it is not
 *   woken, but it stops missing the queue, as it would with a key. The woken waiter has a claim
 *   until it pops, waits for a missing name, or cancels. If it has not popped from that queue by
 *   then, the next waiter is woken in its place. A claim reserves nothing: the element goes to the
 *   first client that pops.
 * - A barrier wakes the waiters at it, and those that wait for its key, only when it is complete.
 *   Until then the value of the key is its count. Writing that value in another way wakes no waiter
 *   at the barrier.
 *
 * Watchers get a notice of each change of a key's value, even if the value stays the same. The
 * waiters of the key are woken before that. Queues are not watched.
 *
 * Every call has its whole effect or, with CT_ENOMEM or the code of a change log, none of it.
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

/* A client that may wait. Its owner embeds it and calls ct_store_cancel() before freeing it. */
struct ct_waiter {
    /* Called when the last missing name has come. The waiter may already be used for another wait.
     * The callback must not call the store, which is in the middle of a change. */
    void (*wake)(struct ct_waiter *waiter);
    struct ct_waiter_block *blocks; /* places of a wait for several names */
    uint32_t missing;    /* names that have not come, plus 1 if `unfinished`; 0 = not waiting */
    bool unfinished : 1; /* more names will be added; it is not woken before that */
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
 * empty. *out gets the value after the call, borrowed until the next change, or NULL when the key
 * is still missing. */
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

/* Removes the first element. *out gets it, with a reference that the caller owns, or NULL when
 * there is none. *len gets the number of elements before. `waiter` belongs to the client that pops.
 */
CT_MUST_CHECK int ct_store_pop(struct ct_store *store, struct ct_waiter *waiter,
                               struct ct_bytes key, size_t *len, struct ct_blob **out);

size_t ct_store_queue_len(struct ct_store *store, struct ct_bytes key);

/* ---- waiting -------------------------------------------------------------------------------- */

/* Outcome of ct_store_wait() and ct_store_barrier(): waiter->wake() will be called. */
#define CT_STORE_E_PENDING 1

/* Returns 0 if all names have a value or an element. Otherwise it waits until each name that is
 * missing now has come once, even if it is deleted again meanwhile. A name that is given twice
 * counts twice. The waiter must not be waiting.
 *
 * The names may be given in several calls, with `more` in all but the last. Names that come in
 * between are not waited for, and the result of the last call counts. CT_ENOMEM ends the whole
 * wait. */
CT_MUST_CHECK int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter,
                                struct ct_bytes keys, size_t count, bool more);

/* Adds 1 to the number at the key, as ct_store_add() does. If it is now `needed` or more, wakes all
 * waiters and returns 0; otherwise waits. The count is not reset, so the barrier stays open from
 * then on. A client that cancels stays counted. */
CT_MUST_CHECK int ct_store_barrier(struct ct_store *store, struct ct_waiter *waiter,
                                   struct ct_bytes key, int64_t needed);

/* Ends the wait or the claim, if there is one. wake() is not called. */
void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter);

/* Returns a key that the waiter waits for, borrowed; .ptr is NULL when it does not wait. */
struct ct_bytes ct_store_waited_key(const struct ct_waiter *waiter);

/* ---- watching ------------------------------------------------------------------------------- */

/* From now on `fn` is called with `watcher` for each change of the key, in the middle of that
 * change. A watcher always has the same `fn`. ct_store_unwatch() must be called before it is freed.
 */
CT_MUST_CHECK int ct_store_watch(struct ct_store *store, struct ct_bytes key, void *watcher,
                                 ct_notice_fn fn);

/* Ends all watches of this watcher. */
void ct_store_unwatch(struct ct_store *store, const void *watcher);

/* ---- journal -------------------------------------------------------------------------------- */

/* Asks `change_log` (borrowed; NULL = none) before each change, except by ct_store_clear(). */
void ct_store_set_change_log(struct ct_store *store, struct ct_change_log *change_log);

/* Repeats a change that a change log has got. */
CT_MUST_CHECK int ct_store_apply(struct ct_store *store, const struct ct_change *change);

/* Gives `change_log` the changes that make this store from an empty one. Ends at the log's first
 * negative code and returns it. */
CT_MUST_CHECK int ct_store_dump(struct ct_store *store, struct ct_change_log *change_log);

/* ---- the whole store ------------------------------------------------------------------------- */

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

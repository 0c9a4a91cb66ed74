/* SPDX-License-Identifier: Apache-2.0
 *
 * The key/value engine of the store: no sockets, no clock, no wire format. One thread.
 *
 * Keys and values are byte strings whose lengths the codec has checked. A value is an immutable
 * counted blob. Waiters stand in a list at each key they miss; whoever creates the key takes them
 * off. Semantics are those of PyTorch's libuv server, except where that one is at fault:
 * COMPARE_SET wakes only when the key exists afterwards.
 *
 * Every call either does its whole effect or, with CT_ENOMEM or what a sink answered, none of it.
 */
#ifndef CT_RENDEZVOUS_STORE_H
#define CT_RENDEZVOUS_STORE_H

#include "common/err.h"
#include "common/list.h"
#include "rendezvous/blob.h"
#include "rendezvous/change.h"
#include "rendezvous/proto.h"

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
    size_t missing;               /* wakes still needed; 0 = not waiting */
    struct ct_waiter_link *links; /* `slots` places: &one, or allocated for several keys */
    size_t slots;
    struct ct_waiter_link one;
};

/* CT_ENOMEM gives nothing. */
CT_MUST_CHECK int ct_store_new(struct ct_store **out);

/* No waiter may be left. NULL is allowed. */
void ct_store_free(struct ct_store *store);

/* Forgets all keys; waiters stay where they are. */
void ct_store_clear(struct ct_store *store);

CT_MUST_CHECK int ct_store_set(struct ct_store *store, struct ct_bytes key, struct ct_bytes value);

/* Creates the key or lengthens its value. CT_ELIMIT when the value would pass CT_MAX_VALUE_LEN. */
CT_MUST_CHECK int ct_store_append(struct ct_store *store, struct ct_bytes key,
                                  struct ct_bytes value);

/* NULL when missing; borrowed until the next change. */
struct ct_blob *ct_store_get(struct ct_store *store, struct ct_bytes key);

/* Adds to the decimal number that the value starts with (0 when missing), wrapping at 64 bits, and
 * stores the result as decimal text. CT_EFORMAT when the value is no 64-bit number. */
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

/* Do all `count` keys in `keys` exist? True for none. */
bool ct_store_check(struct ct_store *store, struct ct_bytes keys, size_t count);

/* Outcome of ct_store_wait(): some keys are missing, waiter->wake() will be called. */
#define CT_STORE_E_PENDING 1

/* 0: all keys exist. Each key missing now must be created once from now on; one that is deleted
 * meanwhile is not looked at again; one named twice counts twice. The waiter must not be waiting.
 */
CT_MUST_CHECK int ct_store_wait(struct ct_store *store, struct ct_waiter *waiter,
                                struct ct_bytes keys, size_t count);

/* Ends the wait if there is one; wake() is not called. */
void ct_store_cancel(struct ct_store *store, struct ct_waiter *waiter);

/* From now on `sink` (borrowed; NULL = nobody) is told of each change before it is made. Only
 * ct_store_clear() is not told. */
void ct_store_set_sink(struct ct_store *store, struct ct_change_sink *sink);

/* Makes a change as the sink of another store was told it. */
CT_MUST_CHECK int ct_store_apply(struct ct_store *store, const struct ct_change *change);

/* Tells `sink` the changes that make an empty store into this one; ends at its first negative code
 * and returns that. */
CT_MUST_CHECK int ct_store_dump(struct ct_store *store, struct ct_change_sink *sink);

/* Keys that exist. */
size_t ct_store_num_keys(const struct ct_store *store);

/* Bytes of all keys and values. */
size_t ct_store_num_bytes(const struct ct_store *store);

/* Waiters that wait. */
size_t ct_store_num_waiters(const struct ct_store *store);

#endif

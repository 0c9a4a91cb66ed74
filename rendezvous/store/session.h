/* SPDX-License-Identifier: Apache-2.0
 *
 * One client's conversation with the store, without its socket: bytes in, reply bytes in a queue.
 * The first bytes show the dialect: VALIDATE opens the current one, anything else is legacy, or no
 * client at all. Requests are applied strictly in order, and only when they are complete.
 *
 * Bounded on both sides: a request by CT_MAX_REQUEST_LEN, unsent replies by CT_OUT_STALL_BYTES plus
 * the replies of one request (large values are referenced, not copied). Beyond that the session
 * stalls: it keeps the bytes it got and serves them when the queue is empty again. Notices of
 * watched keys cannot be delayed like that. If a client does not read them, its connection ends,
 * because otherwise it would not know what it missed.
 */
#ifndef CT_RENDEZVOUS_STORE_SESSION_H
#define CT_RENDEZVOUS_STORE_SESSION_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/store/outq.h"
#include "rendezvous/store/store.h"
#include "rendezvous/wire/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_session;

/* What all sessions of a store share. */
struct ct_service {
    struct ct_store *store; /* borrowed */
    /* Called when a request, of this client or another one, has ended the session's WAIT or changed
     * a key that it watches. The owner later calls ct_session_answer_wait(), which puts the answer
     * into `out` or says that the session has to end. The callback must not call the session or the
     * store. */
    void (*on_woken)(struct ct_session *session);
    uint64_t requests;           /* served so far */
    uint64_t by_op[CT_OP_LIMIT]; /* the same by opcode */
    /* The session whose ADD has not been answered yet, if it watches keys; NULL = none. Its answer
     * must come before the notice of its own change. */
    struct ct_session *adder;
    int64_t sum; /* of the last ADD */
    /* Bytes read and copied for all sessions in this turn; the owner resets it after each. */
    size_t turn_bytes;
};

struct ct_partial;

/* Small, since most sessions are idle most of the time. */
struct ct_session {
    struct ct_service *service;
    struct ct_waiter waiter;
    struct ct_partial *partial; /* bytes not served yet; NULL = none */
    struct ct_outq out;         /* replies to be sent; the owner takes them from here */
    enum ct_dialect dialect;
    bool greeted : 1; /* the dialect is known */
    bool woken : 1;   /* a WAIT is over, and its answer is not in `out` yet */
    bool watches : 1;
    bool blocked : 1; /* set by the owner: the client does not read, so a write is blocked */
    int8_t error;     /* why it must end; 0 = it need not */
};

/* The reason to log when ct_session_answer_wait() returns CT_ELIMIT. */
#define CT_SESSION_LAGS "it does not read the notices of the keys it watches"

/* Borrows `service`; allocates nothing. */
void ct_session_init(struct ct_session *session, struct ct_service *service);

/* Ends the wait and the watches and frees everything, unsent replies, too. Zeroed memory and
 * repeated calls are allowed. */
void ct_session_fini(struct ct_session *session);

/* Puts the answer of a WAIT that is over into `out`. To be called after on_woken(); feeding does it
 * too. CT_ENOMEM or CT_ELIMIT (see CT_SESSION_LAGS): end this connection; later calls return the
 * same code. */
CT_MUST_CHECK int ct_session_answer_wait(struct ct_session *session);

/* Outcome of ct_session_feed(): nothing more is served until `out` is empty. Then the owner feeds
 * again with no bytes. It should not read meanwhile. */
#define CT_SESSION_E_STALLED 1
/* Outcome of ct_session_feed(): the next request copies so much (LIST_KEYS of a large store, APPEND
 * to a large value) or has so many keys that the rest of it must wait for another turn of the loop.
 * Then the owner feeds again with no bytes. */
#define CT_SESSION_E_YIELDED 2

/* Serves all complete requests. Any negative code (CT_EPROTO, CT_ELIMIT, CT_EFORMAT, CT_ENOMEM,
 * CT_EIO from a journal) means: end this connection. Replies to earlier requests are in `out`. */
CT_MUST_CHECK int ct_session_feed(struct ct_session *session, const void *bytes, size_t len,
                                  struct ct_err *err);

/* Has part of a request come, whose rest is still missing? */
bool ct_session_mid_request(const struct ct_session *session);

#endif

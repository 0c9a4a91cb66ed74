/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections of agents whose peers have to do the next step soon: prove the token, join, or take
 * what is sent to them last. Each has a deadline, and the number of those that have proved nothing
 * is limited. It does not own the connections and closes none. Pure.
 */
#ifndef CT_RENDEZVOUS_SERVER_PENDING_CONNS_H
#define CT_RENDEZVOUS_SERVER_PENDING_CONNS_H

#include "common/list.h"
#include "rendezvous/admission/source_quota.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The part of a connection. */
struct ct_pending_conn {
    struct ct_list at_pending; /* in no list if nothing is waited for */
    int64_t deadline_ns;
    bool counted;   /* the quota counts it */
    uint8_t source; /* of ct_source_quota_add(), if it is counted */
};

struct ct_pending_conns {
    struct ct_list list; /* the earliest deadline first */
    struct ct_source_quota quota;
};

/* No more than `max_unproved` may prove nothing. */
void ct_pending_conns_init(struct ct_pending_conns *pending, size_t max_unproved);

/* Must be called before all others for a connection. */
void ct_pending_conn_init(struct ct_pending_conn *conn);

/* The deadline of this connection, which is in no list, begins. It counts as one of `peer`, which
 * has proved nothing; NULL = it is not counted. */
void ct_pending_conns_add(struct ct_pending_conns *pending, struct ct_pending_conn *conn,
                          const struct sockaddr *peer, int64_t now_ns);

/* The peer has proved the token. The deadline stays. */
void ct_pending_conns_proved(struct ct_pending_conns *pending, struct ct_pending_conn *conn);

/* Does nothing if it is not pending. */
void ct_pending_conns_remove(struct ct_pending_conns *pending, struct ct_pending_conn *conn);

/* Returns a connection of too many, which the caller has to close; NULL = there are not too many.
 * It is not counted any more, but stays pending until it is removed. */
struct ct_pending_conn *ct_pending_conns_one_too_many(struct ct_pending_conns *pending);

/* Removes and returns a connection whose deadline is over; NULL = there is none. */
struct ct_pending_conn *ct_pending_conns_late(struct ct_pending_conns *pending, int64_t now_ns);

/* The earliest deadline; INT64_MAX = none. */
int64_t ct_pending_conns_next(const struct ct_pending_conns *pending);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits the HTTP connections of peers that are not admitted by address and user. When there is no
 * room for another one, an idle one ends: one on which nothing was given that needs a right. So who
 * has no right cannot lock out who has one.
 */
#ifndef CT_RENDEZVOUS_HTTP_HTTP_UNADMITTED_H
#define CT_RENDEZVOUS_HTTP_HTTP_UNADMITTED_H

#include "common/list.h"
#include "rendezvous/admission/source_quota.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The part of a connection. Zeroed memory is one that was not added. */
struct ct_http_unadmitted_conn {
    struct ct_list at_idle; /* in no list if it is not idle */
    int fd;                 /* borrowed */
    bool counted;           /* the quota counts it */
    bool ending;            /* it had to make room */
    uint8_t source;         /* of ct_source_quota_add(), if it is counted */
};

struct ct_http_unadmitted {
    struct ct_source_quota quota; /* over if there is no room for one more */
    struct ct_list idle;          /* the oldest first */
    size_t ending;                /* had to make room, and are not removed yet */
    uint64_t ended;               /* had to make room, ever */
};

/* There may be `max` of them, and as many that are ending. */
void ct_http_unadmitted_init(struct ct_http_unadmitted *all, size_t max);

/* The connection at `fd` counts as one of `peer`, and is idle. */
void ct_http_unadmitted_add(struct ct_http_unadmitted *all, struct ct_http_unadmitted_conn *conn,
                            int fd, const struct sockaddr *peer);

/* The peer is given something that needs a right. Does nothing if it was not added. */
void ct_http_unadmitted_keep(struct ct_http_unadmitted_conn *conn);

/* The connection is closed. Does nothing if it was not added. */
void ct_http_unadmitted_remove(struct ct_http_unadmitted *all,
                               struct ct_http_unadmitted_conn *conn);

/* Makes room for one more: if there is none, shuts the socket of an idle one down and does not
 * count it any more. False: there is none that may be ended. */
bool ct_http_unadmitted_make_room(struct ct_http_unadmitted *all);

#endif

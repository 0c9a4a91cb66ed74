/* SPDX-License-Identifier: Apache-2.0
 *
 * All have the same time, so a list in the order in which they come is one in the order of their
 * deadlines.
 */
#include "rendezvous/server/pending_conns.h"

#include "common/clock.h"

/* How long a proof may take (two round trips), or the last flush to a dropped member (one). */
#define PATIENCE_NS (10 * CT_NS_PER_S)

static struct ct_pending_conn *conn_at(const struct ct_list *at)
{
    return CT_CONTAINER_OF(at, struct ct_pending_conn, at_pending);
}

void ct_pending_conns_init(struct ct_pending_conns *pending, size_t max_unproved)
{
    ct_list_init(&pending->list);
    ct_source_quota_init(&pending->quota, max_unproved);
}

void ct_pending_conn_init(struct ct_pending_conn *conn)
{
    *conn = (struct ct_pending_conn){.counted = false};
    ct_list_init(&conn->at_pending);
}

void ct_pending_conns_add(struct ct_pending_conns *pending, struct ct_pending_conn *conn,
                          const struct sockaddr *peer, int64_t now_ns)
{
    conn->deadline_ns = now_ns + PATIENCE_NS;
    ct_list_append(&pending->list, &conn->at_pending);
    if (peer != NULL) {
        conn->source = ct_source_quota_add(&pending->quota, peer);
        conn->counted = true;
    }
}

static void leave_quota(struct ct_pending_conns *pending, struct ct_pending_conn *conn)
{
    if (conn->counted) {
        ct_source_quota_remove(&pending->quota, conn->source);
        conn->counted = false;
    }
}

void ct_pending_conns_proved(struct ct_pending_conns *pending, struct ct_pending_conn *conn)
{
    leave_quota(pending, conn);
}

void ct_pending_conns_remove(struct ct_pending_conns *pending, struct ct_pending_conn *conn)
{
    leave_quota(pending, conn);
    ct_list_remove(&conn->at_pending);
}

struct ct_pending_conn *ct_pending_conns_one_too_many(struct ct_pending_conns *pending)
{
    int source;
    if (!ct_source_quota_is_over(&pending->quota, &source)) {
        return NULL;
    }
    for (struct ct_list *at = pending->list.next; at != &pending->list; at = at->next) {
        struct ct_pending_conn *conn = conn_at(at);
        if (conn->counted && (source < 0 || conn->source == source)) {
            leave_quota(pending, conn);
            return conn;
        }
    }
    return NULL;
}

struct ct_pending_conn *ct_pending_conns_late(struct ct_pending_conns *pending, int64_t now_ns)
{
    if (ct_list_empty(&pending->list) || ct_pending_conns_next(pending) > now_ns) {
        return NULL;
    }
    struct ct_pending_conn *conn = conn_at(pending->list.next);
    ct_pending_conns_remove(pending, conn);
    return conn;
}

int64_t ct_pending_conns_next(const struct ct_pending_conns *pending)
{
    return ct_list_empty(&pending->list) ? INT64_MAX : conn_at(pending->list.next)->deadline_ns;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The address that holds more than half of the connections makes room, so one address alone can
 * end none of another. If several share them, the oldest idle one ends, because who has a right
 * asks as soon as it is connected.
 *
 * A connection whose socket was shut down takes a moment to end. Many may come in that moment, so
 * only as many may be ending as there may be in all.
 */
#include "rendezvous/http/http_unadmitted.h"

void ct_http_unadmitted_init(struct ct_http_unadmitted *all, size_t max)
{
    *all = (struct ct_http_unadmitted){.ending = 0};
    ct_source_quota_init(&all->quota, max - 1);
    ct_list_init(&all->idle);
}

void ct_http_unadmitted_add(struct ct_http_unadmitted *all, struct ct_http_unadmitted_conn *conn,
                            int fd, const struct sockaddr *peer)
{
    *conn = (struct ct_http_unadmitted_conn){.fd = fd, .counted = true};
    conn->source = ct_source_quota_add(&all->quota, peer);
    ct_list_init(&conn->at_idle);
    ct_list_append(&all->idle, &conn->at_idle);
}

void ct_http_unadmitted_keep(struct ct_http_unadmitted_conn *conn)
{
    if (conn->counted) {
        ct_list_remove(&conn->at_idle);
    }
}

static void leave_quota(struct ct_http_unadmitted *all, struct ct_http_unadmitted_conn *conn)
{
    if (conn->counted) {
        ct_list_remove(&conn->at_idle);
        ct_source_quota_remove(&all->quota, conn->source);
        conn->counted = false;
    }
}

void ct_http_unadmitted_remove(struct ct_http_unadmitted *all, struct ct_http_unadmitted_conn *conn)
{
    leave_quota(all, conn);
    all->ending -= conn->ending;
    conn->ending = false;
}

/* The oldest idle connection of this source; -1 = of any. NULL = there is none. */
static struct ct_http_unadmitted_conn *oldest_idle(const struct ct_http_unadmitted *all, int source)
{
    for (struct ct_list *at = all->idle.next; at != &all->idle; at = at->next) {
        struct ct_http_unadmitted_conn *conn =
            CT_CONTAINER_OF(at, struct ct_http_unadmitted_conn, at_idle);
        if (source < 0 || conn->source == source) {
            return conn;
        }
    }
    return NULL;
}

bool ct_http_unadmitted_make_room(struct ct_http_unadmitted *all)
{
    int source;
    if (!ct_source_quota_is_over(&all->quota, &source)) {
        return true;
    }
    struct ct_http_unadmitted_conn *end = oldest_idle(all, source);
    if (end == NULL) { /* the address with more than half of them has a right on each */
        end = oldest_idle(all, -1);
    }
    if (end == NULL || all->ending > all->quota.max) {
        return false;
    }
    leave_quota(all, end);
    end->ending = true;
    all->ending++;
    all->ended++;
    (void)shutdown(end->fd, SHUT_RDWR);
    return true;
}

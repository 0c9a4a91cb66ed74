/* SPDX-License-Identifier: Apache-2.0
 *
 * It is decided once, when a connection is accepted, whether its peer is admitted: by the peer's
 * address and, if the gate has been told so, by the user who holds the other end on this machine.
 * HTTP only reads, so the address alone decides which pages a peer gets; address and user decide
 * how many connections it may have.
 */
#include "rendezvous/server/conn_gate_uv.h"

#include "common/addr.h"
#include "rendezvous/admission/peer_user.h"
#include "rendezvous/control/control.h"
#include "rendezvous/http/http_uv.h"
#include "rendezvous/wire/sock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <unistd.h>

void ct_conn_gate_init(struct ct_conn_gate *gate)
{
    *gate = (struct ct_conn_gate){.users_fd = -1};
    ct_list_init(&gate->unadmitted);
    ct_source_quota_init(&gate->quota, CT_MAX_UNADMITTED);
    ct_agent_addresses_init(&gate->agent_addresses);
}

void ct_conn_gate_fini(struct ct_conn_gate *gate)
{
    ct_agent_addresses_fini(&gate->agent_addresses);
    if (gate->users_fd >= 0) {
        (void)close(gate->users_fd);
        gate->users_fd = -1;
    }
}

void ct_conn_gate_peer(const struct ct_conn *conn, char *text, size_t size)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    int len = sizeof(addr);
    (void)uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&addr, &len);
    ct_addr_format((const struct sockaddr *)&addr, text, size);
}

/* ---- admission ------------------------------------------------------------------------------ */

void ct_conn_gate_refuse(struct ct_conn *conn, struct ct_refusal_log *refusals, const char *why)
{
    uint64_t unreported = ct_refusal_log_add(refusals, uv_now(conn->tcp.loop));
    if (unreported > 0) {
        char text[CT_ADDR_TEXT_MAX];
        ct_conn_gate_peer(conn, text, sizeof(text));
        ct_log(ct_conn_hub_of(conn)->log, CT_LOG_WARNING,
               "store: refused %" PRIu64 " connection%s %s, the last from %s", unreported,
               unreported == 1 ? "" : "s", why, text);
    }
    ct_conn_close(conn);
}

static bool get_names(const struct ct_conn *conn, struct sockaddr_storage *peer,
                      struct sockaddr_storage *local)
{
    int peer_len = sizeof(*peer), local_len = sizeof(*local);
    return uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)peer, &peer_len) == 0 &&
           uv_tcp_getsockname(&conn->tcp, (struct sockaddr *)local, &local_len) == 0;
}

static bool admits_address(struct ct_conn_gate *gate, const struct ct_conn *conn)
{
    struct sockaddr_storage peer, local;
    return gate->access == NULL ||
           (get_names(conn, &peer, &local) &&
            (ct_access_admits(gate->access, (const struct sockaddr *)&peer,
                              (const struct sockaddr *)&local) ||
             ct_agent_addresses_has(&gate->agent_addresses, (const struct sockaddr *)&peer)));
}

/* Is the peer's user admitted? This only matters for peers on this machine. The kernel is asked
 * about every peer, because a process of this machine can bind to any of its addresses. If a peer
 * on this machine has no user, it has already closed the connection, so it is refused, but it is
 * not another user's. */
static bool admits_user(const struct ct_conn_gate *gate, struct ct_conn *conn)
{
    struct sockaddr_storage peer, local;
    uid_t user;
    if (gate->users_fd < 0) {
        return true;
    }
    if (!get_names(conn, &peer, &local)) {
        return false;
    }
    int rc = ct_peer_user_find(gate->users_fd, (const struct sockaddr *)&peer,
                               (const struct sockaddr *)&local, &user);
    if (rc == 0) {
        return user == geteuid() || user == 0;
    }
    bool is_here = ct_sock_is_own_address((const struct sockaddr *)&peer);
    conn->left = is_here && rc == CT_ENOENT;
    return !is_here;
}

void ct_conn_gate_refuse_unadmitted(struct ct_conn *conn)
{
    struct ct_conn_gate *gate = &ct_conn_hub_of(conn)->gate;
    if (conn->left) { /* nobody is there who could be told, or of whom to tell */
        ct_conn_log_end(conn, CT_LOG_DEBUG, "closed by the peer before it was accepted");
        ct_conn_close(conn);
        return;
    }
    ct_conn_gate_refuse(conn, &gate->refusals,
                        admits_address(gate, conn) ? "of other users (--open admits them)"
                                                   : "by address");
}

static void end_one_too_many(const struct ct_conn_gate *gate)
{
    int source;
    bool over = ct_source_quota_is_over(&gate->quota, &source);
    for (struct ct_list *at = gate->unadmitted.next; over; at = at->next) {
        struct ct_conn *conn = CT_CONTAINER_OF(at, struct ct_conn, at_hub);
        if (source < 0 || conn->source == source) {
            ct_conn_gate_refuse_unadmitted(conn);
            return;
        }
    }
}

void ct_conn_gate_enroll(struct ct_conn *conn)
{
    struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    struct ct_conn_gate *gate = &hub->gate;
    conn->admitted = admits_address(gate, conn) && admits_user(gate, conn);
    if (conn->admitted) {
        ct_list_append(&hub->conns, &conn->at_hub);
        return;
    }
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC}, local;
    (void)get_names(conn, &peer, &local);
    ct_list_append(&gate->unadmitted, &conn->at_hub);
    conn->source = ct_source_quota_add(&gate->quota, (const struct sockaddr *)&peer);
    end_one_too_many(gate);
}

/* ---- other dialects ------------------------------------------------------------------------- */

enum dialect { NOTHING_YET, STORE, HTTP, AGENT };

static enum dialect dialect_of(int fd)
{
    unsigned char first;
    if (recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
        return NOTHING_YET;
    }
    if (first == CT_CONTROL_FIRST_BYTE) {
        return AGENT;
    }
    return ct_http_begins(first) ? HTTP : STORE;
}

bool ct_conn_gate_is_of_store(int fd)
{
    return dialect_of(fd) == STORE;
}

static enum dialect dialect_spoken(const struct ct_conn *conn)
{
    uv_os_fd_t fd = -1;
    return uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0 ? dialect_of(fd) : NOTHING_YET;
}

/* HTTP is served to everybody, because some pages are for everybody. A peer that is not admitted
 * may be an agent only if agents have to prove the token. */
bool ct_conn_gate_is_foreign(const struct ct_conn *conn)
{
    const struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    enum dialect dialect = dialect_spoken(conn);
    return (dialect == HTTP && hub->on_http != NULL) ||
           (dialect == AGENT && hub->on_agent != NULL &&
            (conn->admitted || hub->gate.agents_prove));
}

/* libuv cannot release a socket, so a duplicate is handed over and the original closed. */
void ct_conn_gate_hand_over(struct ct_conn *conn)
{
    struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    bool agent = dialect_spoken(conn) == AGENT;
    bool ours = conn->admitted, admitted = ours || admits_address(&hub->gate, conn);
    uv_os_fd_t fd = -1;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0) {
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    if (fd < 0) {
        ct_conn_log_fault(conn, CT_ELIMIT, "no descriptor is left to hand it over");
    }
    ct_conn_close(conn);
    if (fd >= 0 && agent) {
        hub->on_agent(hub, fd);
    } else if (fd >= 0) {
        hub->on_http(hub, fd, ours, admitted);
    }
}

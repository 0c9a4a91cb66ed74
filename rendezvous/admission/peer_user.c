/* SPDX-License-Identifier: Apache-2.0
 *
 * One question over a netlink socket for each connection, answered before send() returns.
 *
 * Failure modes: a kernel without the module, or a sandbox, gives no answer or "not found". The
 * latter is also the answer about a socket that is gone. So the kernel is asked about a socket of
 * our own when the descriptor is opened; only one that finds it is asked later.
 */
#include "rendezvous/admission/peer_user.h"

#include "common/addr.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

struct question {
    struct nlmsghdr header;
    struct inet_diag_req_v2 about;
};

/* Writes the address in the kernel's form. Returns its family; 0 if it is neither IPv4 nor IPv6. A
 * mapped IPv4 address counts as IPv4. */
static unsigned char write_address(const struct sockaddr *addr, __be32 out[4])
{
    struct in6_addr v6;
    if (!ct_addr_as_v6(addr, &v6)) {
        return 0;
    }
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        memcpy(&out[0], &v6.s6_addr[12], sizeof(out[0]));
        return AF_INET;
    }
    memcpy(out, &v6, sizeof(v6));
    return AF_INET6;
}

static bool ask(int fd, const struct sockaddr *peer, const struct sockaddr *local)
{
    struct question question = {
        .header = {.nlmsg_len = sizeof(question),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST},
        .about = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0U},
    };
    struct inet_diag_sockid *id = &question.about.id;
    unsigned char family = write_address(peer, id->idiag_src);
    if (family == 0 || write_address(local, id->idiag_dst) != family) {
        return false;
    }
    question.about.sdiag_family = family;
    id->idiag_sport = htons(ct_addr_port(peer));
    id->idiag_dport = htons(ct_addr_port(local));
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (peer->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, peer, sizeof(v6));
        id->idiag_if = v6.sin6_scope_id;
    }
    return send(fd, &question, sizeof(question), MSG_NOSIGNAL) == (ssize_t)sizeof(question);
}

static int find(int fd, const struct sockaddr *peer, const struct sockaddr *local,
                struct inet_diag_msg *out)
{
    union {
        struct nlmsghdr header; /* aligns it */
        char bytes[1024];
    } answer;
    if (!ask(fd, peer, local)) {
        return CT_EIO;
    }
    ssize_t len = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);
    if (len < (ssize_t)sizeof(answer.header)) {
        return CT_EIO;
    }
    if (answer.header.nlmsg_type == NLMSG_ERROR &&
        len >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
        struct nlmsgerr error;
        memcpy(&error, NLMSG_DATA(&answer.header), sizeof(error));
        return error.error == -ENOENT ? CT_ENOENT : CT_EIO;
    }
    if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        len < (ssize_t)NLMSG_LENGTH(sizeof(*out))) {
        return CT_EIO;
    }
    memcpy(out, NLMSG_DATA(&answer.header), sizeof(*out));
    return 0;
}

int ct_peer_user_find(int fd, const struct sockaddr *peer, const struct sockaddr *local, uid_t *out)
{
    struct inet_diag_msg found;
    int rc = find(fd, peer, local, &found);
    if (rc != 0) {
        return rc;
    }
    if (found.idiag_state == TCP_LISTEN) {
        return CT_ENOENT; /* there is no such connection, so the kernel has found the listener on
                             that port */
    }
    if (found.idiag_inode == 0) {
        return CT_ENOENT; /* the process has closed it, and the kernel only sends the rest */
    }
    *out = found.idiag_uid;
    return 0;
}

int ct_peer_user_open(int listener, int *out)
{
    struct sockaddr_storage own = {0}, nobody = {0};
    socklen_t len = sizeof(own);
    struct inet_diag_msg found;
    if (getsockname(listener, (struct sockaddr *)&own, &len) != 0) {
        return CT_EIO;
    }
    nobody.ss_family = own.ss_family;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) {
        return CT_EIO;
    }
    if (find(fd, (struct sockaddr *)&own, (struct sockaddr *)&nobody, &found) != 0) {
        (void)close(fd);
        return CT_EIO;
    }
    *out = fd;
    return 0;
}

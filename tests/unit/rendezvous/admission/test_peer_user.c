/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose the other end of a connection is, asked of this machine's own kernel. Skipped where the
 * kernel does not tell.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/admission/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

struct fixture {
    int listener, asker;
};

static int listen_on(int family)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr *addr =
        family == AF_INET6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, addr, family == AF_INET6 ? sizeof(v6) : sizeof(v4)) != 0 ||
        listen(fd, 4) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Does the kernel list the TCP sockets of that family? */
static bool kernel_tells(int family)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 about;
    } question = {
        .header = {.nlmsg_len = sizeof(question),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .about = {.sdiag_family = (uint8_t)family,
                  .sdiag_protocol = IPPROTO_TCP,
                  .idiag_states = ~0U},
    };
    struct nlmsghdr answer[512];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool told = fd >= 0 && send(fd, &question, sizeof(question), 0) == (ssize_t)sizeof(question) &&
                recv(fd, answer, sizeof(answer), 0) > (ssize_t)sizeof(answer[0]) &&
                answer[0].nlmsg_type == SOCK_DIAG_BY_FAMILY;
    (void)close(fd);
    return told;
}

static void begin(struct fixture *f, int family)
{
    f->listener = listen_on(family);
    if (f->listener < 0 || !kernel_tells(family)) {
        (void)close(f->listener);
        skip();
    }
    assert_int_equal(ct_peer_user_open(f->listener, &f->asker), 0);
}

static void end(struct fixture *f)
{
    (void)close(f->listener);
    (void)close(f->asker);
}

static socklen_t names(int fd, struct sockaddr_storage *own, struct sockaddr_storage *peer)
{
    socklen_t len = sizeof(*own);
    assert_int_equal(getsockname(fd, (struct sockaddr *)own, &len), 0);
    len = sizeof(*peer);
    assert_int_equal(getpeername(fd, (struct sockaddr *)peer, &len), 0);
    return len;
}

static void find_ourselves(int family)
{
    struct fixture f;
    begin(&f, family);
    struct sockaddr_storage server = {0}, own, peer;
    socklen_t len = sizeof(server);
    assert_int_equal(getsockname(f.listener, (struct sockaddr *)&server, &len), 0);
    int client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&server, len), 0);
    int accepted = accept(f.listener, NULL, NULL);
    assert_true(accepted >= 0);
    (void)names(accepted, &own, &peer);
    uid_t user = (uid_t)-1;
    assert_int_equal(
        ct_peer_user_find(f.asker, (struct sockaddr *)&peer, (struct sockaddr *)&own, &user), 0);
    assert_int_equal(user, geteuid());

    /* The other end is closed: nobody holds it any more. */
    (void)close(client);
    assert_int_equal(
        ct_peer_user_find(f.asker, (struct sockaddr *)&peer, (struct sockaddr *)&own, &user),
        CT_ENOENT);
    (void)close(accepted);
    end(&f);
}

static void test_the_user_of_an_ipv4_peer_is_found_until_it_closes(void **state)
{
    (void)state;
    find_ourselves(AF_INET);
}

static void test_the_user_of_an_ipv6_peer_is_found_until_it_closes(void **state)
{
    (void)state;
    find_ourselves(AF_INET6);
}

/* Its port has a listener, which is no connection. */
static void test_a_listener_is_no_peer(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, AF_INET);
    struct sockaddr_storage server = {0};
    struct sockaddr_in other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(server);
    uid_t user = 0;
    assert_int_equal(getsockname(f.listener, (struct sockaddr *)&server, &len), 0);
    other.sin_port = htons(1);
    assert_int_equal(
        ct_peer_user_find(f.asker, (struct sockaddr *)&server, (struct sockaddr *)&other, &user),
        CT_ENOENT);
    end(&f);
}

static void test_addresses_of_two_families_are_refused(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, AF_INET);
    const struct sockaddr_in v4 = {.sin_family = AF_INET};
    const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct sockaddr none = {.sa_family = AF_UNIX};
    uid_t user = 0;
    assert_int_equal(ct_peer_user_find(f.asker, (const struct sockaddr *)&v4,
                                       (const struct sockaddr *)&v6, &user),
                     CT_EIO);
    assert_int_equal(ct_peer_user_find(f.asker, &none, &none, &user), CT_EIO);
    end(&f);
}

static void test_what_is_no_socket_cannot_be_opened(void **state)
{
    int out = -7;
    (void)state;
    assert_int_equal(ct_peer_user_open(-1, &out), CT_EIO);
    int unbound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(ct_peer_user_open(unbound, &out), CT_EIO);
    assert_int_equal(out, -7);
    (void)close(unbound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_user_of_an_ipv4_peer_is_found_until_it_closes),
        cmocka_unit_test(test_the_user_of_an_ipv6_peer_is_found_until_it_closes),
        cmocka_unit_test(test_a_listener_is_no_peer),
        cmocka_unit_test(test_addresses_of_two_families_are_refused),
        cmocka_unit_test(test_what_is_no_socket_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening on several addresses of one port, and who has the port when that fails.
 */
#include "tests/lib/ct_test.h"

#include "common/addr.h"
#include "rendezvous/wire/listen.h"
#include "rendezvous/wire/port_holder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static bool reaches(const char *host, uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, host, &addr.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0;
    (void)close(fd);
    return ok;
}

static void test_several_addresses_share_the_kernels_port(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"};
    struct ct_listeners listeners;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_listen(hosts, 4, 0, &listeners, &err), 0);
    assert_int_equal(listeners.count, 2); /* each is named twice */
    assert_int_not_equal(listeners.port, 0);
    assert_true(reaches("127.0.0.1", listeners.port));
    assert_true(reaches("127.0.0.2", listeners.port));
    assert_false(reaches("127.0.0.3", listeners.port));
    ct_listeners_fini(&listeners);
    assert_int_equal(listeners.count, 0);
    assert_false(reaches("127.0.0.1", listeners.port));
}

static void test_a_star_is_every_address(void **state)
{
    static const char *const hosts[] = {"*"};
    struct ct_listeners listeners;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_listen(hosts, 1, 0, &listeners, &err), 0);
    assert_int_equal(listeners.count, 1);
    assert_true(reaches("127.0.0.1", listeners.port));
    assert_true(reaches("127.9.9.9", listeners.port));
    ct_listeners_fini(&listeners);
}

/* Valid until the next call. */
static const struct sockaddr *at(const char *host, uint16_t port)
{
    static struct sockaddr_storage addr;
    socklen_t len;
    assert_true(ct_addr_literal(host, port, &addr, &len));
    return (const struct sockaddr *)&addr;
}

static void test_a_taken_port_names_its_holder(void **state)
{
    static const char *const hosts[] = {"127.0.0.2", "127.0.0.1"};
    struct ct_listeners first, second = {.count = 0};
    struct ct_err err = {0};
    char want[64], holder[320], cut[8];
    (void)state;
    assert_int_equal(ct_listen(hosts + 1, 1, 0, &first, &err), 0);
    assert_int_equal(ct_listen(hosts, 2, first.port, &second, &err), CT_EBUSY);
    (void)snprintf(want, sizeof(want), "port %u on 127.0.0.1 is in use by pid %d (",
                   (unsigned)first.port, (int)getpid());
    assert_non_null(strstr(err.text, want));
    assert_non_null(strstr(err.text, "; stop it or choose another port"));
    /* What was opened before it is closed again. */
    assert_false(reaches("127.0.0.2", first.port));

    ct_port_holder(at("127.0.0.1", first.port), cut, sizeof(cut));
    assert_int_equal(strlen(cut), sizeof(cut) - 1);
    uint16_t port = first.port;
    ct_listeners_fini(&first);
    ct_port_holder(at("127.0.0.1", port), holder, sizeof(holder));
    assert_string_equal(holder, "");
}

/* ctrdzvd named a daemon that had the port at another address. */
static void test_the_holder_is_one_that_is_in_the_way(void **state)
{
    static const struct {
        const char *listens, *other;
        bool in_conflict;
    } cases[] = {
        {"127.0.0.2", "127.0.0.2", true},
        {"127.0.0.2", "127.0.0.1", false},
        {"127.0.0.2", "0.0.0.0", true},
        {"127.0.0.2", "::", true},
        {"127.0.0.2", "::ffff:127.0.0.2", true},
        {"127.0.0.2", "::ffff:127.0.0.1", false},
        {"127.0.0.2", "::1", false},
        {"*", "127.0.0.1", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_listeners listeners;
        struct ct_err err = {0};
        char holder[320];
        assert_int_equal(ct_listen(&cases[i].listens, 1, 0, &listeners, &err), 0);
        ct_port_holder(at(cases[i].other, listeners.port), holder, sizeof(holder));
        if ((holder[0] != '\0') != cases[i].in_conflict) {
            fail_msg("%s beside %s: '%s'", cases[i].other, cases[i].listens, holder);
        }
        ct_listeners_fini(&listeners);
    }
}

static void test_an_address_of_another_machine_is_refused(void **state)
{
    static const char *const hosts[] = {"192.0.2.1"};
    struct ct_listeners listeners = {.count = 0};
    struct ct_err err = {0};
    (void)state;
    assert_true(ct_listen(hosts, 1, 0, &listeners, &err) < 0);
    assert_non_null(strstr(err.text, "cannot listen on 192.0.2.1 port 0"));
    assert_int_equal(listeners.count, 0);
}

static void test_none_and_too_many_addresses_are_refused(void **state)
{
    const char *hosts[CT_MAX_LISTENERS + 1];
    struct ct_listeners listeners;
    struct ct_err err = {0};
    (void)state;
    for (size_t i = 0; i <= CT_MAX_LISTENERS; i++) {
        hosts[i] = "127.0.0.1";
    }
    assert_int_equal(ct_listen(hosts, 0, 0, &listeners, &err), CT_ELIMIT);
    assert_int_equal(ct_listen(hosts, CT_MAX_LISTENERS + 1, 0, &listeners, &err), CT_ELIMIT);
    assert_string_equal(err.text, "17 addresses to listen on; 1 to 16 are possible");
    assert_int_equal(ct_listen(hosts, CT_MAX_LISTENERS, 0, &listeners, &err), 0);
    ct_listeners_fini(&listeners);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_addresses_share_the_kernels_port),
        cmocka_unit_test(test_a_star_is_every_address),
        cmocka_unit_test(test_a_taken_port_names_its_holder),
        cmocka_unit_test(test_the_holder_is_one_that_is_in_the_way),
        cmocka_unit_test(test_an_address_of_another_machine_is_refused),
        cmocka_unit_test(test_none_and_too_many_addresses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which texts are addresses of hosts and ports, how addresses are written, how names are
 * resolved, and how a machine finds its own address towards another one.
 */
#include "common/addr.h"
#include "tests/lib/ct_test.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

static void test_hosts_and_ports_in_each_form_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t port;
        bool has_port;
    } cases[] = {
        {"node7", "node7", 29400, false},
        {"node7:1", "node7", 1, true},
        {"10.0.0.1:65535", "10.0.0.1", 65535, true},
        {"localhost:0", "localhost", 0, true},
        {"[::1]", "::1", 29400, false},
        {"[::1]:8080", "::1", 8080, true},
        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80, true},
        {"::", "::", 29400, false},
        {"2001:db8::7", "2001:db8::7", 29400, false},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.1", 29400, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_endpoint ep;
        struct ct_err err = {0};
        if (ct_endpoint_parse(cases[i].text, 29400, &ep, &err) != 0) {
            fail_msg("'%s': %s", cases[i].text, err.text);
        }
        assert_string_equal(ep.host, cases[i].host);
        assert_int_equal(ep.port, cases[i].port);
        assert_int_equal(ep.has_port, cases[i].has_port);
        assert_int_equal(err.code, 0);
    }
}

static void test_a_malformed_address_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why; /* the message must hold `why` */
    } cases[] = {
        {"", "no host"},
        {":80", "no host"},
        {"[]", "no host"},
        {"[]:80", "no host"},
        {"host:", "port ''"},
        {"host:-1", "port '-1'"},
        {"host:65536", "port '65536'"},
        {"host:99999999999999999999", "not a number from 0 to 65535"},
        {"host:8 0", "port '8 0'"},
        {"host:0x50", "port '0x50'"},
        {"host:http", "port 'http'"},
        {"[::1", "form [IPV6]:PORT"},
        {"[::1]x", "form [IPV6]:PORT"},
        {"[::1]:", "port ''"},
        {"[::1]:70000", "port '70000'"},
        {"[node]:80", "'node' is not an IPv6 address"},
        {"[10.0.0.1]:80", "not an IPv6 address"},
        {"[%eth0]:80", "not an IPv6 address"},
        {"host:80:90", "not an IPv6 address"},
        {"::1::2", "not an IPv6 address"},
        {"http://host:80", "is a URL: leave out 'http://'"},
        {"tcp://host", "is a URL: leave out 'tcp://'"},
        {"http://[::1]:80", "is a URL: leave out 'http://'"},
        {" host", "a blank or another character that no address has"},
        {"ho st:80", "a blank or another character that no address has"},
        {"ho\nst:80", "a blank or another character that no address has"},
        {"ho\x1b[31mst", "a blank or another character that no address has"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_endpoint ep = {.port = 77};
        struct ct_err err = {0};
        assert_int_equal(ct_endpoint_parse(cases[i].text, 1, &ep, &err), CT_EFORMAT);
        assert_int_equal(err.code, CT_EFORMAT);
        if (strstr(err.text, cases[i].why) == NULL) {
            fail_msg("'%s' gave: %s", cases[i].text, err.text);
        }
        /* Outputs stay untouched. */
        assert_int_equal(ep.port, 77);
        assert_int_equal(ct_endpoint_parse(cases[i].text, 1, &ep, NULL), CT_EFORMAT);
    }
}

static void test_a_host_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    char text[CT_HOST_MAX + 16];
    struct ct_endpoint ep;
    struct ct_err err = {0};
    memset(text, 'a', sizeof(text));
    text[CT_HOST_MAX - 1] = '\0';
    assert_int_equal(ct_endpoint_parse(text, 1, &ep, &err), 0);
    assert_int_equal(strlen(ep.host), CT_HOST_MAX - 1);

    text[CT_HOST_MAX - 1] = 'a';
    text[CT_HOST_MAX] = '\0';
    assert_int_equal(ct_endpoint_parse(text, 1, &ep, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "255"));
}

static void test_an_address_is_told_with_its_port(void **state)
{
    (void)state;
    char text[CT_ADDR_TEXT_MAX];
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(80)};
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ct_addr_format((struct sockaddr *)&v4, text, sizeof(text));
    assert_string_equal(text, "127.0.0.1:80");
    assert_int_equal(ct_addr_port((struct sockaddr *)&v4), 80);

    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(65535)};
    v6.sin6_addr = in6addr_loopback;
    ct_addr_format((struct sockaddr *)&v6, text, sizeof(text));
    assert_string_equal(text, "[::1]:65535");
    assert_int_equal(ct_addr_port((struct sockaddr *)&v6), 65535);

    /* What a dual-stack listener reports for an IPv4 peer reads as the peer's real address. */
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr), 1);
    ct_addr_format((struct sockaddr *)&v6, text, sizeof(text));
    assert_string_equal(text, "10.1.2.3:65535");

    struct sockaddr_un un = {.sun_family = AF_UNIX};
    ct_addr_format((struct sockaddr *)&un, text, sizeof(text));
    assert_string_equal(text, "unknown");
    assert_int_equal(ct_addr_port((struct sockaddr *)&un), 0);

    char tiny[6];
    ct_addr_format((struct sockaddr *)&v4, tiny, sizeof(tiny));
    assert_string_equal(tiny, "127.0");
    ct_addr_host((struct sockaddr *)&v4, tiny, 1);
    assert_string_equal(tiny, "");
}

static void test_longest_address_fits(void **state)
{
    (void)state;
    char text[CT_ADDR_TEXT_MAX];
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(65535)};
    memset(&v6.sin6_addr, 0xff, sizeof(v6.sin6_addr));
    ct_addr_format((struct sockaddr *)&v6, text, sizeof(text));
    assert_string_equal(text, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
}

static void test_join_brackets_literals_alone(void **state)
{
    (void)state;
    char text[CT_ADDR_JOIN_MAX];
    ct_addr_join("node7.example", 80, text, sizeof(text));
    assert_string_equal(text, "node7.example:80");
    ct_addr_join("fe80::1%eth0", 65535, text, sizeof(text));
    assert_string_equal(text, "[fe80::1%eth0]:65535");
}

static void test_resolve_literals_and_localhost(void **state)
{
    (void)state;
    static const struct {
        const char *host, *text;
    } cases[] = {
        {"127.0.0.1", "127.0.0.1:29500"},
        {"::1", "[::1]:29500"},
        {"localhost", "127.0.0.1:29500"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sockaddr_storage addr;
        socklen_t len = 0;
        struct ct_err err = {0};
        char text[CT_ADDR_TEXT_MAX];
        assert_int_equal(ct_addr_resolve(cases[i].host, 29500, &addr, &len, &err), 0);
        ct_addr_format((struct sockaddr *)&addr, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
        assert_true(len >= sizeof(struct sockaddr_in));
    }
}

static void test_resolve_failure_names_the_host(void **state)
{
    (void)state;
    struct sockaddr_storage addr;
    socklen_t len = 77;
    struct ct_err err = {0};
    /* RFC 6761: ".invalid" never resolves. */
    assert_int_equal(ct_addr_resolve("no-such-host.invalid", 1, &addr, &len, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
    assert_int_equal(len, 77);
    /* No name server is asked for an interface that does not exist, so the reason is certain. */
    assert_int_equal(ct_addr_resolve("fe80::1%absent", 1, &addr, &len, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, gai_strerror(EAI_NONAME)));
}

static void test_what_is_no_address_and_what_is_the_loopback(void **state)
{
    static const struct {
        const char *host;
        bool any, loopback;
    } rows[] = {
        {"0.0.0.0", true, false},    {"::", true, false},
        {"0.0.0.1", false, false},   {"::ffff:0.0.0.0", true, false},
        {"::1", false, true},        {"127.0.1.1", false, true},
        {"128.0.0.1", false, false}, {"::ffff:127.9.9.9", false, true},
        {"localhost", false, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_storage addr;
        socklen_t len;
        assert_int_equal(ct_addr_is_any(rows[i].host), rows[i].any);
        assert_true(ct_addr_literal(rows[i].host, 0, &addr, &len));
        assert_int_equal(ct_addr_is_loopback((struct sockaddr *)&addr), rows[i].loopback);
    }
    assert_false(ct_addr_is_any("a name"));
}

static void test_the_own_address_towards_a_host_is_found(void **state)
{
    char text[CT_ADDR_TEXT_MAX] = "kept";
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_addr_towards("127.0.0.1", text, sizeof(text), &err), 0);
    assert_string_equal(text, "127.0.0.1");
    assert_int_equal(ct_addr_towards("localhost", text, sizeof(text), &err), 0);
    assert_string_equal(text, "127.0.0.1");
}

static void test_a_host_without_a_way_is_named(void **state)
{
    char text[CT_ADDR_TEXT_MAX] = "kept";
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_addr_towards("no-such-host.invalid", text, sizeof(text), &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
    /* A broadcast address needs a right that the socket does not ask for. */
    assert_int_equal(ct_addr_towards("255.255.255.255", text, sizeof(text), &err), CT_EIO);
    assert_memory_equal(err.text, "there is no way to host 255.255.255.255: ", 41);
    assert_string_equal(text, "kept");
}

static void test_what_is_no_literal_gives_no_address(void **state)
{
    struct sockaddr_storage addr;
    socklen_t len = 0;
    (void)state;
    assert_true(ct_addr_literal("10.0.0.1", 1, &addr, &len));
    assert_true(ct_addr_literal("::1", 1, &addr, &len));
    assert_true(ct_addr_literal("localhost", 1, &addr, &len));
    assert_false(ct_addr_literal("node7", 1, &addr, &len));
    assert_false(ct_addr_literal("10.0.0", 1, &addr, &len));
    assert_false(ct_addr_literal("", 1, &addr, &len));
}

/* Where tests connect to 127.0.0.1 the loopback is up. */
static void test_the_loopback_of_this_machine_is_up(void **state)
{
    (void)state;
    assert_true(ct_addr_loopback_up());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_and_ports_in_each_form_are_read),
        cmocka_unit_test(test_a_malformed_address_is_refused_with_its_reason),
        cmocka_unit_test(test_a_host_beyond_the_limit_is_refused),
        cmocka_unit_test(test_an_address_is_told_with_its_port),
        cmocka_unit_test(test_longest_address_fits),
        cmocka_unit_test(test_join_brackets_literals_alone),
        cmocka_unit_test(test_resolve_literals_and_localhost),
        cmocka_unit_test(test_resolve_failure_names_the_host),
        cmocka_unit_test(test_what_is_no_address_and_what_is_the_loopback),
        cmocka_unit_test(test_the_own_address_towards_a_host_is_found),
        cmocka_unit_test(test_a_host_without_a_way_is_named),
        cmocka_unit_test(test_what_is_no_literal_gives_no_address),
        cmocka_unit_test(test_the_loopback_of_this_machine_is_up),
    };
    return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}

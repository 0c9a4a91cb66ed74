/* SPDX-License-Identifier: Apache-2.0
 *
 * Admission by address, and the limited rate at which refusals are told.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/admission/access.h"
#include "rendezvous/admission/refusal_log.h"

#include <arpa/inet.h>

static struct sockaddr_storage addr(const char *text)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
        v6->sin6_family = AF_INET6;
    }
    return out;
}

static bool admits(const struct ct_access *access, const char *peer, const char *local)
{
    struct sockaddr_storage p = addr(peer), l = addr(local);
    return ct_access_admits(access, (struct sockaddr *)&p, (struct sockaddr *)&l);
}

static void allow(struct ct_access *access, const char *text)
{
    struct ct_err err = {0};
    if (ct_access_allow(access, text, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void test_this_machine_alone_is_admitted_at_first(void **state)
{
    (void)state;
    const struct ct_access access = {0};
    static const char *const ours[] = {"127.0.0.1", "127.255.3.4", "::1", "::ffff:127.0.0.1"};
    static const char *const strangers[] = {
        "10.0.0.9",    "128.0.0.1", "126.255.255.255", "::ffff:10.0.0.9",  "::",     "::2",
        "::127.0.0.1", "fe80::1",   "0.0.0.0",         "1:ffff:7f00:1::1", "8000::1"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        assert_true(admits(&access, ours[i], "10.0.0.1"));
    }
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        if (admits(&access, strangers[i], "10.0.0.1")) {
            fail_msg("%s was admitted", strangers[i]);
        }
    }
    /* A process here that uses the machine's name comes from the address it connects to. */
    assert_true(admits(&access, "10.0.0.1", "10.0.0.1"));
    assert_true(admits(&access, "10.0.0.1", "::ffff:10.0.0.1"));
    assert_true(admits(&access, "2001:db8::5", "2001:db8::5"));
    assert_false(admits(&access, "2001:db8::5", "2001:db8::6"));
}

static void test_a_network_admits_its_addresses_alone(void **state)
{
    (void)state;
    static const struct {
        const char *net, *in, *out;
    } cases[] = {
        {"10.0.0.0/8", "10.255.255.255", "11.0.0.0"},
        {"10.1.2.3/8", "10.9.9.9", "9.255.255.255"},
        {"10.1.2.3", "10.1.2.3", "10.1.2.2"},
        {"192.168.4.0/22", "192.168.7.255", "192.168.8.0"},
        {"192.168.4.128/25", "::ffff:192.168.4.200", "::ffff:192.168.4.127"},
        {"0.0.0.0/0", "8.8.8.8", "2001:db8::1"},
        {"0.0.0.0/1", "100.0.0.1", "128.0.0.1"},
        {"2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"},
        {"2001:db8::1", "2001:db8::1", "2001:db8::2"},
        {"fe80::/10", "febf::1", "fec0::1"},
        {"::ffff:10.0.0.0/104", "10.7.7.7", "11.0.0.1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_access access = {0};
        allow(&access, cases[i].net);
        if (!admits(&access, cases[i].in, "1.1.1.1") || admits(&access, cases[i].out, "1.1.1.1")) {
            fail_msg("%s: %s or %s is judged wrongly", cases[i].net, cases[i].in, cases[i].out);
        }
    }
    struct ct_access all = {0};
    allow(&all, "::/0");
    assert_true(admits(&all, "2001:db8::1", "1.1.1.1") && admits(&all, "8.8.8.8", "1.1.1.1"));
}

static void test_each_of_several_networks_admits(void **state)
{
    (void)state;
    struct ct_access access = {0};
    allow(&access, "10.0.0.0/8");
    allow(&access, "172.16.0.0/12");
    assert_true(admits(&access, "10.1.1.1", "1.1.1.1"));
    assert_true(admits(&access, "172.31.1.1", "1.1.1.1"));
    assert_false(admits(&access, "172.32.1.1", "1.1.1.1"));
}

static void test_refuses_what_is_no_network(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "/8",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/8x",
        "10.0.0",
        "10.0.0.0.0",
        "::/129",
        "localhost",
        "10.0.0.0/8/8",
        " 10.0.0.0/8",
        "[::1]/128",
        "fe80::1%lo/64",
        "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd:eeee/1",
    };
    struct ct_access access = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ct_err err = {0};
        if (ct_access_allow(&access, bad[i], &err) != CT_EFORMAT) {
            fail_msg("'%s' was accepted", bad[i]);
        }
        assert_non_null(strstr(err.text, bad[i]));
    }
    assert_int_equal(access.count, 0);
}

static void test_networks_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    struct ct_access access = {0};
    for (int i = 0; i < CT_MAX_ALLOWED; i++) {
        allow(&access, "10.0.0.0/8");
    }
    assert_int_equal(ct_access_allow(&access, "10.0.0.0/8", NULL), CT_ELIMIT);
    assert_int_equal(access.count, CT_MAX_ALLOWED);
}

static void test_other_families_are_admitted_if_open(void **state)
{
    (void)state;
    struct ct_access access = {0};
    const struct sockaddr other = {.sa_family = AF_UNIX};
    assert_false(ct_access_admits(&access, &other, &other));
    access.open = true;
    assert_true(ct_access_admits(&access, &other, &other));
    assert_true(admits(&access, "8.8.8.8", "1.1.1.1"));
}

static void test_refusals_are_told_once_a_second(void **state)
{
    (void)state;
    struct ct_refusal_log r = {0};
    assert_int_equal(ct_refusal_log_add(&r, 5000), 1);
    for (uint64_t t = 5000; t < 5000 + CT_REFUSAL_QUIET_MS; t += 100) {
        assert_int_equal(ct_refusal_log_add(&r, t), 0);
    }
    assert_int_equal(ct_refusal_log_add(&r, 5000 + CT_REFUSAL_QUIET_MS), 11);
    assert_int_equal(ct_refusal_log_add(&r, 99999), 1);
    assert_int_equal(r.total, 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_machine_alone_is_admitted_at_first),
        cmocka_unit_test(test_a_network_admits_its_addresses_alone),
        cmocka_unit_test(test_each_of_several_networks_admits),
        cmocka_unit_test(test_refuses_what_is_no_network),
        cmocka_unit_test(test_networks_beyond_the_limit_are_refused),
        cmocka_unit_test(test_other_families_are_admitted_if_open),
        cmocka_unit_test(test_refusals_are_told_once_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

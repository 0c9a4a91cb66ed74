/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has to go when too many have proved nothing yet.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/admission/source_quota.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#define MAX 16

static uint8_t add(struct ct_source_quota *quota, const char *host)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, host, &addr.sin6_addr), 1);
    return ct_source_quota_add(quota, (const struct sockaddr *)&addr);
}

static void test_one_address_alone_has_all(void **state)
{
    struct ct_source_quota quota;
    int source;
    (void)state;
    ct_source_quota_init(&quota, MAX);
    for (int i = 0; i < MAX; i++) {
        (void)add(&quota, "::ffff:10.0.0.1");
        assert_false(ct_source_quota_is_over(&quota, &source));
    }
    uint8_t own = add(&quota, "::ffff:10.0.0.1");
    assert_true(ct_source_quota_is_over(&quota, &source));
    assert_int_equal(source, own);
    ct_source_quota_remove(&quota, own);
    assert_false(ct_source_quota_is_over(&quota, &source));
}

/* Its own connection goes when another address comes, until it has half. */
static void test_one_address_pushes_out_no_other(void **state)
{
    struct ct_source_quota quota;
    int source;
    (void)state;
    ct_source_quota_init(&quota, MAX);
    uint8_t flood = 0, other;
    for (int i = 0; i < MAX; i++) {
        flood = add(&quota, "2001:db8::1");
    }
    do { /* a host whose hash is another */
        static unsigned host;
        char text[INET6_ADDRSTRLEN];
        (void)snprintf(text, sizeof(text), "::ffff:10.0.0.%u", ++host % 255);
        other = add(&quota, text);
        assert_true(ct_source_quota_is_over(&quota, &source));
        assert_int_equal(source, flood);
        ct_source_quota_remove(&quota, other == flood ? other : (uint8_t)source);
    } while (other == flood);
    /* Addresses of its network are no others. */
    assert_int_equal(add(&quota, "2001:db8::2:3"), flood);
    assert_true(ct_source_quota_is_over(&quota, &source));
    assert_int_equal(source, flood);
}

static void test_of_many_addresses_the_oldest_goes(void **state)
{
    struct ct_source_quota quota;
    int source;
    (void)state;
    ct_source_quota_init(&quota, MAX);
    for (int i = 0; i <= MAX; i++) { /* one of each hash */
        quota.held[i]++;
        quota.count++;
    }
    assert_true(ct_source_quota_is_over(&quota, &source));
    assert_int_equal(source, -1);

    ct_source_quota_init(&quota, 5);
    quota.held[0] = quota.held[1] = 3; /* the half is not more than the half */
    quota.count = 6;
    assert_true(ct_source_quota_is_over(&quota, &source));
    assert_int_equal(source, -1);
}

static void test_a_peer_that_is_gone_has_no_address(void **state)
{
    struct ct_source_quota quota;
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    (void)state;
    ct_source_quota_init(&quota, MAX);
    ct_source_quota_remove(&quota, ct_source_quota_add(&quota, &none));
    assert_int_equal(quota.count, 0);
}

static void test_a_connection_that_ends_makes_room(void **state)
{
    struct ct_source_quota quota;
    int source;
    (void)state;
    ct_source_quota_init(&quota, MAX);
    uint8_t own = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MAX; i++) {
            own = add(&quota, "::1");
        }
        assert_false(ct_source_quota_is_over(&quota, &source));
        for (int i = 0; i < MAX; i++) {
            ct_source_quota_remove(&quota, own);
        }
        assert_int_equal(quota.held[own], 0);
    }
}

/* Those of IPv4 are of one /64 when IPv6 maps them, and still not of one machine. */
static void test_ipv4_addresses_are_sources_of_their_own(void **state)
{
    struct ct_source_quota quota;
    bool differ = false;
    (void)state;
    ct_source_quota_init(&quota, MAX);
    uint8_t first = add(&quota, "::ffff:10.0.0.1");
    for (unsigned host = 2; host < 40 && !differ; host++) {
        char text[INET6_ADDRSTRLEN];
        (void)snprintf(text, sizeof(text), "::ffff:10.0.0.%u", host);
        differ = add(&quota, text) != first;
    }
    assert_true(differ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_address_alone_has_all),
        cmocka_unit_test(test_one_address_pushes_out_no_other),
        cmocka_unit_test(test_of_many_addresses_the_oldest_goes),
        cmocka_unit_test(test_a_peer_that_is_gone_has_no_address),
        cmocka_unit_test(test_a_connection_that_ends_makes_room),
        cmocka_unit_test(test_ipv4_addresses_are_sources_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

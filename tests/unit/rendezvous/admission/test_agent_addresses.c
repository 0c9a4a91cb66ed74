/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses that are admitted because an agent is there.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include "rendezvous/admission/agent_addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static struct sockaddr_storage v4(const char *text, uint16_t port)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in *addr = (struct sockaddr_in *)&out;
    addr->sin_family = AF_INET;
    addr->sin_port = htons(port);
    assert_int_equal(inet_pton(AF_INET, text, &addr->sin_addr), 1);
    return out;
}

static struct sockaddr_storage v6(const char *text)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in6 *addr = (struct sockaddr_in6 *)&out;
    addr->sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, text, &addr->sin6_addr), 1);
    return out;
}

#define ADDR(storage) ((const struct sockaddr *)&(storage))

static void test_an_address_stays_until_its_last_agent_is_gone(void **state)
{
    (void)state;
    struct ct_agent_addresses guests;
    struct sockaddr_storage one = v4("10.0.0.1", 1), again = v4("10.0.0.1", 2);
    struct sockaddr_storage mapped = v6("::ffff:10.0.0.1"), other = v4("10.0.0.2", 1);
    ct_agent_addresses_init(&guests);
    assert_false(ct_agent_addresses_has(&guests, ADDR(one)));
    assert_int_equal(ct_agent_addresses_add(&guests, ADDR(one)), 0);
    assert_int_equal(ct_agent_addresses_add(&guests, ADDR(mapped)),
                     0);                                       /* the same, as IPv6 has it */
    assert_true(ct_agent_addresses_has(&guests, ADDR(again))); /* whatever the port */
    assert_false(ct_agent_addresses_has(&guests, ADDR(other)));
    ct_agent_addresses_remove(&guests, ADDR(other)); /* was never there */
    ct_agent_addresses_remove(&guests, ADDR(one));
    assert_true(ct_agent_addresses_has(&guests, ADDR(one)));
    ct_agent_addresses_remove(&guests, ADDR(again));
    assert_false(ct_agent_addresses_has(&guests, ADDR(one)));
    ct_agent_addresses_fini(&guests);
}

static void test_an_address_of_another_family_is_refused(void **state)
{
    (void)state;
    struct ct_agent_addresses guests;
    struct sockaddr_storage local = {.ss_family = AF_UNIX};
    ct_agent_addresses_init(&guests);
    assert_int_equal(ct_agent_addresses_add(&guests, ADDR(local)), CT_EINVAL);
    assert_false(ct_agent_addresses_has(&guests, ADDR(local)));
    ct_agent_addresses_remove(&guests, ADDR(local));
    ct_agent_addresses_fini(&guests);
}

static int add_two(void *data)
{
    (void)data;
    struct ct_agent_addresses guests;
    struct sockaddr_storage one = v4("10.0.0.1", 1), two = v6("2001:db8::1");
    ct_agent_addresses_init(&guests);
    int rc = ct_agent_addresses_add(&guests, ADDR(one));
    rc = rc != 0 ? rc : ct_agent_addresses_add(&guests, ADDR(two));
    assert_true(rc != 0 || ct_agent_addresses_has(&guests, ADDR(two)));
    ct_agent_addresses_fini(&guests);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(add_two, NULL, 0) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_address_stays_until_its_last_agent_is_gone),
        cmocka_unit_test(test_an_address_of_another_family_is_refused),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests_name("guests", tests, NULL, NULL);
}

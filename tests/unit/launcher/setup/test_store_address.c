/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which address of the store workers and other machines are told.
 */
#include "tests/lib/ct_test.h"

#include "launcher/setup/store_address.h"

/* 192.0.2.0/24 is reserved for documentation (RFC 5737): no machine's. */
static void other_machines_are_told_by_binding(void **state)
{
    struct ct_store_address address = {
        .host = "127.0.0.2", .option = "--local-addr", .also = "localhost"};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_store_address_check(&address, false, &err), 0);
    address.also = "192.0.2.1";
    assert_int_equal(ct_store_address_check(&address, false, &err), CT_EINVAL);
    assert_non_null(
        strstr(err.text, "--rdzv-endpoint 192.0.2.1 is not an address of this machine"));
    address = (struct ct_store_address){.host = "192.0.2.1", .option = "--master-addr"};
    assert_int_equal(ct_store_address_check(&address, false, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--master-addr 192.0.2.1"));
    address.option = NULL; /* the default is not asked about */
    assert_int_equal(ct_store_address_check(&address, false, &err), 0);
}

static void a_shared_store_must_be_found(void **state)
{
    struct ct_store_address address = {.duty = CT_HOST_IF_OURS, .host = "127.0.0.1", .port = 5};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_store_address_check(&address, true, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--rdzv-endpoint"));
    address.option = "--master-addr";
    assert_int_equal(ct_store_address_check(&address, true, &err), 0);
    address.host = "192.0.2.1"; /* whose it is turns out later */
    assert_int_equal(ct_store_address_check(&address, true, &err), 0);
    address.port = 0;
    assert_int_equal(ct_store_address_check(&address, true, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--master-port: port 0 is a free one"));
    address.option = "--rdzv-endpoint";
    address.duty = CT_HOST_HERE; /* also where it is known which machine hosts the store */
    assert_int_equal(ct_store_address_check(&address, true, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--rdzv-endpoint: port 0 is a free one"));
}

static void a_name_may_become_known_later(void **state)
{
    struct ct_store_address address = {
        .host = "nowhere.invalid", .port = 5, .option = "--master-addr"};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_store_address_check(&address, true, &err), CT_ENOENT);
    address.host = "192.0.2.1"; /* an address is known */
    assert_int_equal(ct_store_address_check(&address, true, &err), CT_EINVAL);
}

static void workers_are_told_what_leads_to_the_store_from_here(void **state)
{
    static const struct {
        const char *host, *told;
        bool on_loopback;
        const char *store_addr, *master;
    } rows[] = {
        {"node-1", "node-1", false, "10.0.0.1", "node-1"},
        {"10.0.0.1", "10.0.0.1", false, "10.0.0.1", "10.0.0.1"},
        /* the machine of the store, whose name is 127.0.1.1 there */
        {"node-1", "node-1", true, "10.0.0.1", "10.0.0.1"},
        {"node-1", "node-1", true, "", "node-1"},
        /* --master-addr 0.0.0.0 there, and what other machines have */
        {"0.0.0.0", "0.0.0.0", true, "10.0.0.1", "10.0.0.1"},
        {"0.0.0.0", "0.0.0.0", true, "", "127.0.0.1"},
        {"::", "::", true, "fd00::1", "fd00::1"},
        {"node-1", "", false, "10.0.0.1", "node-1"},
        {"0.0.0.0", "", true, "10.0.0.1", "10.0.0.1"},
        /* node rank 0 is on another machine than the job's store */
        {"store", "10.0.0.9", false, "10.0.0.1", "10.0.0.9"},
        {"store", "10.0.0.9", true, "10.0.0.1", "10.0.0.9"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ct_store_address address = {.host = rows[i].host, .master = rows[i].host};
        assert_string_equal(ct_store_address_master(&address, rows[i].told, rows[i].on_loopback,
                                                    rows[i].store_addr),
                            rows[i].master);
    }
}

static void a_name_of_our_own_is_no_literal(void **state)
{
    (void)state;
    /* Names are asked for in test_ctrun_nodes.py, with a hosts file of its own. */
    static const char *const others[] = {"127.0.0.1", "127.0.1.1", "::1", "localhost", "10.9.1.1"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(ct_store_address_is_own_name(others[i]));
    }
    assert_false(ct_store_address_is_own_name("no such name"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_of_our_own_is_no_literal),
        cmocka_unit_test(workers_are_told_what_leads_to_the_store_from_here),
        cmocka_unit_test(other_machines_are_told_by_binding),
        cmocka_unit_test(a_shared_store_must_be_found),
        cmocka_unit_test(a_name_may_become_known_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

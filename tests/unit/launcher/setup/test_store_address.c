/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ct_test.h"

#include "launcher/setup/store_address.h"

static void options_decide_by_rank(void **state)
{
    static const struct {
        const char *words[8];
        const char *host;
        int port;
        const char *option, *also; /* "" = none */
        enum ct_host_duty duty;
        const char *master; /* NULL = as host */
    } rows[] = {
        {{NULL}, "127.0.0.1", 0, "", ""},
        {{"--master-addr=h", "--master-port=5"}, "h", 5, "--master-addr", ""},
        {{"--rdzv-endpoint=e:7", "--master-addr=h"}, "e", 7, "--rdzv-endpoint", ""},
        {{"--rdzv-endpoint=e:7", "--local-addr=l"}, "e", 7, "--rdzv-endpoint", ""},
        {{"--rdzv-backend=c10d", "--rdzv-endpoint=e"}, "e", 0, "--rdzv-endpoint", ""},
        {{"--rdzv-backend=c10d", "--rdzv-endpoint=e:7", "--local-addr=l"},
         "l",
         7,
         "--local-addr",
         "e"},
        {{"--rdzv-backend=c10d", "--master-addr=h", "--master-port=5"}, "127.0.0.1", 0, "", ""},
        {{"--local-addr=l", "--master-port=5"}, "l", 5, "--local-addr", ""},
        {{"--local-addr=l", "--master-addr=h"}, "h", 0, "--master-addr", ""},
        /* several machines */
        {{"--nnodes=2"}, "127.0.0.1", 29500, "--master-addr", "", CT_HOST_IF_OURS},
        {{"--nnodes=2", "--master-addr=h", "--master-port=5", "--local-addr=l"},
         "h",
         5,
         "--master-addr",
         "",
         CT_HOST_IF_OURS},
        {{"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=e", "--local-addr=l"},
         "e",
         29400,
         "--rdzv-endpoint",
         "",
         CT_HOST_IF_OURS,
         "l"},
        {{"--spares=1", "--rdzv-endpoint=e:7", "--rdzv-conf=is_host=1"},
         "e",
         7,
         "--rdzv-endpoint",
         "",
         CT_HOST_HERE},
        {{"--rdzv-endpoint=e:7", "--rdzv-conf=is_host=0"},
         "e",
         7,
         "--rdzv-endpoint",
         "",
         CT_HOST_ELSEWHERE},
        {{"--standalone", "--rdzv-endpoint=e:7", "--master-port=5"}, "127.0.0.1", 0, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *argv[10] = {(char *)"ctrun"};
        char *env[] = {NULL};
        struct ct_options options;
        struct ct_store_address place;
        struct ct_err err = {0};
        size_t n = 1;
        for (; rows[i].words[n - 1] != NULL; n++) {
            argv[n] = (char *)rows[i].words[n - 1];
        }
        argv[n] = (char *)"x";
        assert_int_equal(ct_options_parse(argv, env, &options, &err), 0);
        ct_store_address_decide(&options, &place);
        assert_string_equal(place.host, rows[i].host);
        assert_int_equal(place.port, rows[i].port);
        assert_string_equal(place.option != NULL ? place.option : "", rows[i].option);
        assert_string_equal(place.also != NULL ? place.also : "", rows[i].also);
        assert_int_equal(place.duty, rows[i].duty);
        assert_string_equal(place.master, rows[i].master != NULL ? rows[i].master : rows[i].host);
    }
}

/* 192.0.2.0/24 is reserved for documentation (RFC 5737): no machine's. */
static void other_machines_are_told_by_binding(void **state)
{
    struct ct_store_address place = {
        .host = "127.0.0.2", .option = "--local-addr", .also = "localhost"};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_store_address_check(&place, &err), 0);
    place.also = "192.0.2.1";
    assert_int_equal(ct_store_address_check(&place, &err), CT_EINVAL);
    assert_non_null(
        strstr(err.text, "--rdzv-endpoint 192.0.2.1 is not an address of this machine"));
    place = (struct ct_store_address){.host = "192.0.2.1", .option = "--master-addr"};
    assert_int_equal(ct_store_address_check(&place, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--master-addr 192.0.2.1"));
    place.option = NULL; /* the default is not asked about */
    assert_int_equal(ct_store_address_check(&place, &err), 0);
}

static void a_shared_store_must_be_found(void **state)
{
    struct ct_store_address place = {.duty = CT_HOST_IF_OURS, .host = "127.0.0.1", .port = 5};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_store_address_check(&place, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--rdzv-endpoint"));
    place.option = "--master-addr";
    assert_int_equal(ct_store_address_check(&place, &err), 0);
    place.host = "192.0.2.1"; /* whose it is turns out later */
    assert_int_equal(ct_store_address_check(&place, &err), 0);
    place.port = 0;
    assert_int_equal(ct_store_address_check(&place, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--master-addr: port 0"));
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
        const struct ct_store_address place = {.host = rows[i].host, .master = rows[i].host};
        assert_string_equal(
            ct_store_address_master(&place, rows[i].told, rows[i].on_loopback, rows[i].store_addr),
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
        cmocka_unit_test(options_decide_by_rank),
        cmocka_unit_test(other_machines_are_told_by_binding),
        cmocka_unit_test(a_shared_store_must_be_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

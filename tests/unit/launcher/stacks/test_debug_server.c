/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports that ranks have told a real store, as torch.distributed.debug tells them.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"
#include "tests/lib/ranks.h"

#include "common/clock.h"
#include "launcher/stacks/debug_server.h"
#include "rendezvous/client/client.h"

#include <string.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
#define FIRST_RANK 8

static void tell(const char *key, const char *value)
{
    struct ct_client *client;
    assert_int_equal(ct_client_open("127.0.0.1", ranks.port, LONG_MS, &client, NULL), 0);
    assert_int_equal(ct_client_set(client, key, value, strlen(value), NULL), 0);
    int64_t unused; /* its answer says that the store has the value */
    assert_int_equal(ct_client_add(client, "told", 1, &unused, NULL), 0);
    ct_client_free(client);
}

static void find(struct ct_probe_target *targets, int count)
{
    const struct ct_debug_store store = {"127.0.0.1", ranks.port, FIRST_RANK};
    ct_debug_servers_find(&store, ct_deadline_in(NULL, LONG_MS), targets, count);
}

static void test_ports_that_ranks_have_told_are_found(void **state)
{
    (void)state;
    struct ct_probe_target targets[4] = {{.pid = 1}, {.pid = 1, .port = 7}, {.pid = 0}, {.pid = 1}};
    tell("debug_server/rank8", "http://gpu-1:34511");
    tell("debug_server/rank10", "http://gpu-1:34512"); /* it does not live any more */
    tell("debug_server/rank11", "http://[::1]:34513");
    find(targets, 4);
    assert_int_equal(targets[0].port, 34511);
    assert_int_equal(targets[1].port, 7); /* nothing was told */
    assert_int_equal(targets[2].port, 0);
    assert_int_equal(targets[3].port, 34513);
}

static void test_values_that_are_no_address_are_passed_over(void **state)
{
    (void)state;
    static const char *const values[] = {
        "",
        "http://",
        "http://gpu-1",
        "http://gpu-1:",
        "http://gpu-1:0",
        "http://gpu-1:65536",
        "http://gpu-1:-1",
        "http://gpu-1:80/x",
        "https://gpu-1:80",
        "34511",
        "http://gpu-1:3\n",
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct ct_probe_target targets[2] = {{.pid = 1}, {.pid = 1}};
        tell("debug_server/rank8", values[i]);
        tell("debug_server/rank9", "http://gpu-1:1");
        find(targets, 2);
        assert_int_equal(targets[0].port, 0);
        assert_int_equal(targets[1].port, 1);
    }
}

static int find_one(void *data)
{
    struct ct_probe_target target = {.pid = 1};
    (void)data;
    find(&target, 1);
    return 0;
}

/* A value of 64 bytes fills the smallest block of a buffer, so that its NUL needs another one. */
static void test_without_memory_a_value_is_passed_over(void **state)
{
    static const char value[] = "http://gpu-1.a-name-that-makes-it-sixty-four-bytes.example:34511";
    (void)state;
    assert_int_equal(strlen(value), 64);
    tell("debug_server/rank8", value);
    assert_true(ct_fault_sweep(find_one, NULL, 1) >= 3);
}

static void test_without_a_store_nothing_is_found(void **state)
{
    (void)state;
    struct ct_probe_target target = {.pid = 1};
    const struct ct_debug_store none = {.host = NULL}, gone = {.host = "127.0.0.1", .port = 1};
    ct_debug_servers_find(&none, ct_deadline_in(NULL, LONG_MS), &target, 1);
    int64_t begun_ns = ct_clock_now(NULL);
    ct_debug_servers_find(&gone, ct_deadline_in(NULL, 20), &target, 1);
    assert_true(ct_clock_now(NULL) - begun_ns < LONG_MS * CT_NS_PER_MS / 2);
    assert_int_equal(target.port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(test_ports_that_ranks_have_told_are_found),
        RANKS_TEST(test_values_that_are_no_address_are_passed_over),
        RANKS_TEST(test_without_memory_a_value_is_passed_over),
        cmocka_unit_test(test_without_a_store_nothing_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

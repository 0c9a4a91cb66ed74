/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of hosts and hostfiles.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include "launcher/fleet/hosts.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void expect(const struct ct_hosts *hosts, int index, const char *name, int workers)
{
    assert_true(index < hosts->count);
    assert_string_equal(hosts->list[index].name, name);
    assert_int_equal(hosts->list[index].workers, workers);
}

static void test_hosts_are_read_with_users_and_slots(void **state)
{
    (void)state;
    struct ct_hosts hosts = {0};
    struct ct_err err = {0};
    assert_int_equal(
        ct_hosts_parse(&hosts, "a:2,user@b,[2001:db8::1]:4,2001:db8::2,c.d:1,fe80::", &err), 0);
    assert_int_equal(hosts.count, 6);
    expect(&hosts, 0, "a", 2);
    expect(&hosts, 1, "user@b", 0);
    expect(&hosts, 2, "2001:db8::1", 4);
    expect(&hosts, 3, "2001:db8::2", 0);
    expect(&hosts, 4, "c.d", 1);
    expect(&hosts, 5, "fe80::", 0);
    ct_hosts_fini(&hosts);
}

static void test_a_host_named_again_adds_its_slots(void **state)
{
    (void)state;
    struct ct_hosts hosts = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_hosts_parse(&hosts, "a,b:2,a,b:3,a:2", &err), 0);
    assert_int_equal(hosts.count, 2);
    expect(&hosts, 0, "a", 4);
    expect(&hosts, 1, "b", 5);
    ct_hosts_fini(&hosts);
}

static void test_all_workers_are_counted_if_every_host_says_how_many(void **state)
{
    (void)state;
    struct ct_hosts hosts = {0};
    assert_int_equal(ct_hosts_parse(&hosts, "a:2,b:3", NULL), 0);
    assert_int_equal(ct_hosts_workers(&hosts), 5);
    assert_int_equal(ct_hosts_parse(&hosts, "c", NULL), 0);
    assert_int_equal(ct_hosts_workers(&hosts), INT_MAX);
    ct_hosts_fini(&hosts);
}

static void test_a_malformed_host_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "an empty host"},   {"a,,b", "an empty host"},
        {"a,", "an empty host"}, {"a:0", "from 1 to 4096"},
        {"a:x", "'x'"},          {"a:99999", "'99999'"},
        {"a:4097", "'4097'"},    {":2", "no host"},
        {"a b", "blank"},        {"-oProxyCommand=x", "is not a host name"},
        {"[a]:2", "[a]"},        {"a:4096,a", "more than 4096 workers"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_hosts hosts = {0};
        struct ct_err err = {0};
        assert_true(ct_hosts_parse(&hosts, cases[i].text, &err) < 0);
        if (strstr(err.text, cases[i].says) == NULL) {
            fail_msg("'%s' gave '%s'", cases[i].text, err.text);
        }
        ct_hosts_fini(&hosts);
    }
}

static void test_too_many_hosts_are_refused(void **state)
{
    (void)state;
    struct ct_hosts hosts = {0};
    struct ct_err err = {0};
    char name[16];
    for (int i = 0; i < CT_HOSTS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(ct_hosts_parse(&hosts, name, &err), 0);
    }
    assert_int_equal(ct_hosts_parse(&hosts, "another", &err), CT_ELIMIT);
    assert_int_equal(ct_hosts_parse(&hosts, "n3", &err), 0);
    ct_hosts_fini(&hosts);
}

static void test_a_hostfile_is_read_with_comments_and_slots(void **state)
{
    (void)state;
    static const char text[] = "# ours\n"
                               "\n"
                               "a slots=2 max_slots=4  # Open MPI\r\n"
                               "\tb:3\n"
                               "c\n"
                               "a slots=1";
    struct ct_hosts hosts = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_hosts_parse_file(&hosts, text, sizeof(text) - 1, "F", &err), 0);
    assert_int_equal(hosts.count, 3);
    expect(&hosts, 0, "a", 3);
    expect(&hosts, 1, "b", 3);
    expect(&hosts, 2, "c", 0);
    ct_hosts_fini(&hosts);
}

static void test_a_malformed_hostfile_is_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "names no host"},
        {"# nobody\n", "names no host"},
        {"a\nb slots=many\n", "--hostfile F, line 2: host 'b': 'many'"},
        {"a cores=2\n", "--hostfile F, line 1: 'cores=2' is not understood"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_hosts hosts = {0};
        struct ct_err err = {0};
        assert_int_equal(
            ct_hosts_parse_file(&hosts, cases[i].text, strlen(cases[i].text), "F", &err),
            CT_EFORMAT);
        assert_non_null(strstr(err.text, cases[i].says));
        ct_hosts_fini(&hosts);
    }
    struct ct_hosts hosts = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_hosts_parse_file(&hosts, "a\0b", 3, "F", &err), CT_EFORMAT);
    assert_int_equal(ct_hosts_read(&hosts, "/nowhere/hosts", &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/hosts"));
    ct_hosts_fini(&hosts);
}

static int parse_some(void *data)
{
    (void)data;
    struct ct_hosts hosts = {0};
    int rc = ct_hosts_parse(&hosts, "a:2,b", NULL);
    rc = rc != 0 ? rc : ct_hosts_parse_file(&hosts, "c\n", 2, "F", NULL);
    ct_hosts_fini(&hosts);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(parse_some, NULL, 0), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_are_read_with_users_and_slots),
        cmocka_unit_test(test_a_host_named_again_adds_its_slots),
        cmocka_unit_test(test_all_workers_are_counted_if_every_host_says_how_many),
        cmocka_unit_test(test_a_malformed_host_is_refused_with_its_reason),
        cmocka_unit_test(test_too_many_hosts_are_refused),
        cmocka_unit_test(test_a_hostfile_is_read_with_comments_and_slots),
        cmocka_unit_test(test_a_malformed_hostfile_is_refused_by_line),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What `ssh -G` answers; a real ssh is asked in test_ctrun_hosts.py.
 */
#include "tests/lib/ct_test.h"

#include "launcher/fleet/ssh.h"

#include <string.h>

static void the_host_name_stands_in_the_answer(void **state)
{
    static const struct {
        const char *answer, *name; /* NULL = none */
    } rows[] = {
        {"host gpu-1\nuser root\nhostname 10.9.1.2\nport 22\n", "10.9.1.2"},
        {"hostname fd00::7", "fd00::7"},
        {"hostname node-1\r\n", "node-1"},
        {"canonicalizehostname false\nproxyhostname x\n", NULL},
        {"hostname \n", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[CT_HOST_MAX] = "kept";
        assert_int_equal(ct_ssh_parse(rows[i].answer, name), rows[i].name != NULL);
        assert_string_equal(name, rows[i].name != NULL ? rows[i].name : "kept");
    }
}

static void a_name_that_is_too_long_is_none(void **state)
{
    char answer[16 + CT_HOST_MAX] = "hostname ", name[CT_HOST_MAX];
    (void)state;
    memset(answer + strlen(answer), 'x', CT_HOST_MAX);
    assert_false(ct_ssh_parse(answer, name));
}

static void another_agent_is_not_asked(void **state)
{
    char *const env[] = {(char *)"PATH=/bin:/usr/bin", NULL};
    struct ct_host host = {"gpu-1", 1};
    const struct ct_hosts hosts = {&host, 1};
    const struct ct_fleet_plan plan = {.hosts = &hosts, .agent = "echo hostname"};
    char name[CT_HOST_MAX];
    (void)state;
    assert_false(ct_ssh_host_name(&plan, 0, env, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_name_stands_in_the_answer),
        cmocka_unit_test(a_name_that_is_too_long_is_none),
        cmocka_unit_test(another_agent_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What `ssh -G` answers; a real ssh is asked in test_ctrun_hosts.py.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/fleet/ssh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    const struct ct_fleet_spec spec = {.hosts = &hosts, .agent = "echo hostname"};
    char name[CT_HOST_MAX];
    (void)state;
    assert_false(ct_ssh_host_name(&spec, 0, env, name));
}

/* Asks a script that stands for ssh about the host gpu-1. */
static bool ask_script(const char *script, char name[CT_HOST_MAX])
{
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_write(dir, "ssh", script, strlen(script));
    char *const env[] = {(char *)"PATH=/bin:/usr/bin", NULL};
    struct ct_host host = {"gpu-1", 1};
    const struct ct_hosts hosts = {&host, 1};
    const struct ct_fleet_spec spec = {.hosts = &hosts, .agent = path};
    assert_int_equal(chmod(path, 0700), 0);
    bool told = ct_ssh_host_name(&spec, 0, env, name);
    free(path);
    ct_tmpdir_free(dir);
    return told;
}

static void ssh_is_asked_about_the_host(void **state)
{
    char name[CT_HOST_MAX] = "";
    (void)state;
    assert_true(ask_script("#!/bin/sh\necho port 22; echo hostname $1.$2.example\n", name));
    assert_string_equal(name, "gpu-1.-G.example");
}

static void an_answer_that_makes_no_sense_is_none(void **state)
{
    char name[CT_HOST_MAX] = "kept";
    (void)state;
    assert_false(ask_script("#!/bin/sh\nexit 255\n", name));
    assert_false(ask_script("#!/bin/sh\necho unknown option -G >&2\n", name));
    /* One that never ends is cut off, although the name stands in it. */
    assert_false(ask_script("#!/bin/sh\necho hostname x; yes\n", name));
    assert_string_equal(name, "kept");
}

static void an_ssh_that_cannot_be_started_is_none(void **state)
{
    char *const env[] = {(char *)"PATH=/nowhere", NULL};
    struct ct_host host = {"gpu-1", 1};
    const struct ct_hosts hosts = {&host, 1};
    struct ct_fleet_spec spec = {.hosts = &hosts, .agent = "ssh"};
    char name[CT_HOST_MAX];
    (void)state;
    assert_false(ct_ssh_host_name(&spec, 0, env, name));
    spec.agent = "/nowhere/ssh -p 22";
    assert_false(ct_ssh_host_name(&spec, 0, env, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_name_stands_in_the_answer),
        cmocka_unit_test(a_name_that_is_too_long_is_none),
        cmocka_unit_test(another_agent_is_not_asked),
        cmocka_unit_test(ssh_is_asked_about_the_host),
        cmocka_unit_test(an_answer_that_makes_no_sense_is_none),
        cmocka_unit_test(an_ssh_that_cannot_be_started_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

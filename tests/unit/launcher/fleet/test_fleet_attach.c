/* SPDX-License-Identifier: Apache-2.0
 *
 * A job on other machines is shown by a launch agent: a script stands for it.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/detach/detach.h"
#include "launcher/fleet/fleet_attach.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOES_ON "ctrun: the job goes on; ctrun --attach run7-0a shows it again\n"

/* Attaches to the job run7-0a of the machine far-away. Returns the exit code, and what was said. */
static int attach(const char *script, char *said, size_t size)
{
    char *dir = ct_tmpdir_new(), *agent = ct_tmpdir_write(dir, "agent", script, strlen(script));
    char *shown = ct_tmpdir_path(dir, "shown"), state[512];
    struct ct_detached_job job = {.id = "run7-0a", .via = "far-away", .ctrun = "/opt/ctrun"};
    struct ct_err err = {0};
    assert_int_equal(chmod(agent, 0700), 0);
    (void)snprintf(job.agent, sizeof(job.agent), "%s", agent);
    (void)snprintf(state, sizeof(state), "XDG_STATE_HOME=%s/state", dir);
    char *const env[] = {state, (char *)"PATH=/bin:/usr/bin", NULL};
    assert_int_equal(ct_detach_note(env, "here", &job, &err), 0);
    int file = open(shown, O_RDWR | O_CREAT | O_CLOEXEC, 0600), own = dup(STDERR_FILENO);
    assert_true(file >= 0 && own >= 0 && dup2(file, STDERR_FILENO) == STDERR_FILENO);
    int code = ct_fleet_attach(NULL, env, "here");
    assert_int_equal(dup2(own, STDERR_FILENO), STDERR_FILENO);
    ssize_t len = pread(file, said, size - 1, 0);
    said[len > 0 ? len : 0] = '\0';
    (void)close(own);
    (void)close(file);
    free(shown);
    free(agent);
    ct_tmpdir_free(dir);
    return code;
}

static void the_code_is_that_of_the_agent(void **state)
{
    static const struct {
        const char *script;
        int code;
    } rows[] = {
        {"#!/bin/sh\nexit 0\n", 0},
        {"#!/bin/sh\nexit 7\n", 7},
        {"#!/bin/sh\nexit 255\n", 255}, /* it has not reached the machine, and has said so */
        {"#!/bin/sh\nkill -TERM $$\n", 128 + 15},
    };
    char said[1024];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(attach(rows[i].script, said, sizeof(said)), rows[i].code);
        assert_string_equal(said,
                            "ctrun: job run7-0a was started from here, and far-away shows it\n");
    }
}

static void the_machine_is_asked_for_its_part(void **state)
{
    char said[1024];
    (void)state;
    assert_int_equal(attach("#!/bin/sh\necho \"$1: $2\" >&2\n", said, sizeof(said)), 0);
    assert_non_null(strstr(said, "\nfar-away: exec '/opt/ctrun' --attach 'run7-0a-0'\n"));
}

/* ssh ends with 255 then, another launch agent by the signal, and none says anything. */
static void ctrl_c_leaves_the_job_alone(void **state)
{
    static const char *const ways[] = {"trap 'exit 255' INT\n", ""};
    char said[1024], script[256];
    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        (void)snprintf(script, sizeof(script),
                       "#!/bin/sh\n%skill -INT $PPID\nwhile :; do sleep 0.01; done\n", ways[i]);
        assert_int_equal(attach(script, said, sizeof(said)), 130);
        assert_non_null(strstr(said, "far-away shows it\n" GOES_ON));
    }
}

/* The ctrun there has got the signal by itself, or the job has ended before. */
static void what_the_other_machine_says_of_ctrl_c_is_not_said_twice(void **state)
{
    char said[1024];
    (void)state;
    assert_int_equal(
        attach("#!/bin/sh\ntrap '' INT\nkill -INT $PPID\nexit 130\n", said, sizeof(said)), 130);
    assert_null(strstr(said, GOES_ON));
    assert_int_equal(
        attach("#!/bin/sh\ntrap '' INT\nkill -INT $PPID\nexit 3\n", said, sizeof(said)), 3);
    assert_null(strstr(said, GOES_ON));
}

static void an_agent_that_is_missing_is_named(void **state)
{
    char said[1024];
    (void)state;
    assert_int_equal(attach("#!/nonexistent/interpreter\n", said, sizeof(said)), 1);
    assert_non_null(strstr(said, "ctrun: the launch agent: cannot execute "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_code_is_that_of_the_agent),
        cmocka_unit_test(the_machine_is_asked_for_its_part),
        cmocka_unit_test(ctrl_c_leaves_the_job_alone),
        cmocka_unit_test(what_the_other_machine_says_of_ctrl_c_is_not_said_twice),
        cmocka_unit_test(an_agent_that_is_missing_is_named),
    };
    return cmocka_run_group_tests_name("fleet_attach", tests, NULL, NULL);
}

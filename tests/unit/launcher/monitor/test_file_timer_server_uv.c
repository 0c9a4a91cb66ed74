/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a named pipe that is there already.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"
#include "tests/lib/tmpdir.h"

#include "launcher/monitor/file_timer_server_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The error of an attempt to open a file for writing only; 0 = it is opened. */
static int trouble;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    if (trouble != 0 && (flags & O_ACCMODE) == O_WRONLY) {
        errno = trouble;
        return -1;
    }
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return __real_open64(path, flags, mode);
}

struct rig {
    uv_loop_t loop;
    struct ct_resolved resolved;
    struct ct_job_spec job;
    struct ct_file_timer_server server;
    char *folder, *pipe;
    char *env[3];
    char variable[256], enabled[64];
};

static void rig_open(struct rig *rig)
{
    *rig = (struct rig){.resolved = {.workers = 1}};
    rig->folder = ct_tmpdir_new();
    rig->pipe = ct_tmpdir_path(rig->folder, "timers");
    (void)snprintf(rig->variable, sizeof(rig->variable), "%s=%s", CT_TIMER_FILE_ENV, rig->pipe);
    (void)snprintf(rig->enabled, sizeof(rig->enabled), "TORCHELASTIC_ENABLE_FILE_TIMER=1");
    rig->env[0] = rig->variable;
    rig->env[1] = rig->enabled;
    rig->job = (struct ct_job_spec){.env = rig->env, .resolved = &rig->resolved};
    rig->server = (struct ct_file_timer_server){.job = &rig->job};
    assert_int_equal(mkfifo(rig->pipe, 0600), 0);
    ct_loop_begin(&rig->loop);
}

static void rig_close(struct rig *rig)
{
    trouble = 0;
    ct_file_timer_server_close(&rig->server);
    ct_loop_end(&rig->loop);
    free(rig->pipe);
    ct_tmpdir_free(rig->folder);
}

static ino_t inode(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_ino;
}

static void test_a_pipe_that_nobody_serves_is_replaced(void **state)
{
    struct rig rig;
    (void)state;
    rig_open(&rig);
    assert_int_equal(ct_file_timer_server_open(&rig.server, &rig.loop, NULL), 0);
    assert_string_equal(rig.server.path, rig.pipe);
    rig_close(&rig);
}

/* Another user's pipe cannot be asked whether it is served, and neither can any without a free
 * descriptor. */
static void test_a_pipe_that_cannot_be_asked_is_left_alone(void **state)
{
    static const int troubles[] = {EACCES, EMFILE};
    (void)state;
    for (size_t i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++) {
        struct rig rig;
        struct ct_err err = {0};
        rig_open(&rig);
        ino_t before = inode(rig.pipe);
        trouble = troubles[i];
        assert_int_not_equal(ct_file_timer_server_open(&rig.server, &rig.loop, &err), 0);
        assert_non_null(strstr(err.text, rig.pipe));
        assert_int_equal(inode(rig.pipe), before);
        assert_null(rig.server.path);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pipe_that_nobody_serves_is_replaced),
        cmocka_unit_test(test_a_pipe_that_cannot_be_asked_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

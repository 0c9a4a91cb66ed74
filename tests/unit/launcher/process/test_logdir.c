/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that log folders are laid out as torchrun's, and that a temporary one goes with the job
 * unless it is to stay.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "launcher/process/logdir.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void lays_out_as_torchrun(void **state)
{
    char *tmp = ct_tmpdir_new();
    char *base = ct_tmpdir_path(tmp, "a/b/c/");
    struct ct_logdir logdir;
    char expected[4096];
    (void)state;
    assert_int_equal(ct_logdir_init(base, NULL, "job", &logdir, NULL), 0);
    assert_false(logdir.temporary);
    assert_int_equal(ct_logdir_make(&logdir, 0, 2, NULL), 0);
    assert_int_equal(ct_logdir_make(&logdir, 1, 2, NULL), 0);
    (void)snprintf(expected, sizeof(expected), "%s/job_", logdir.base);
    assert_memory_equal(logdir.run, expected, strlen(expected));
    assert_int_equal(strlen(logdir.run), strlen(expected) + 8);
    char *path = ct_logdir_path(&logdir, 1, 1, "stdout.log");
    (void)snprintf(expected, sizeof(expected), "%s/attempt_1/1/stdout.log", logdir.run);
    assert_string_equal(path, expected);
    ct_free(path);
    path = ct_logdir_path(&logdir, 0, 1, "");
    assert_true(is_dir(path));
    ct_free(path);
    char *run = strdup(logdir.run);
    ct_logdir_fini(&logdir, false);
    assert_true(is_dir(run)); /* the user's folder is never removed */
    free(run);
    free(base);
    ct_tmpdir_free(tmp);
}

static void folders_are_made_and_an_id_may_have_a_slash(void **state)
{
    char *tmp = ct_tmpdir_new();
    struct ct_logdir logdir;
    (void)state;
    assert_int_equal(chdir(tmp), 0);
    errno = 0; /* is EEXIST behind a path whose beginning is there */
    assert_int_equal(ct_logdir_init("new/logs", NULL, "team/job", &logdir, NULL), 0);
    assert_non_null(strstr(logdir.run, "/new/logs/team_job_"));
    assert_true(is_dir(logdir.run));
    ct_logdir_fini(&logdir, false);
    assert_int_equal(chdir("/"), 0);
    ct_tmpdir_free(tmp);
}

/* What a worker may leave behind. */
static void leave_deep(const struct ct_logdir *logdir)
{
    char *path = ct_logdir_path(logdir, 0, 1, "a");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(mkdir(path, 0700), 0);
        char *deeper = ct_asprintf("%s/a", path);
        ct_free(path);
        path = deeper;
    }
    assert_int_equal(symlink("/", path), 0);
    ct_free(path);
}

static void temporary_one_goes_unless_kept(void **state)
{
    char *tmp = ct_tmpdir_new();
    (void)state;
    for (int keep = 0; keep <= 1; keep++) {
        struct ct_logdir logdir;
        assert_int_equal(ct_logdir_init(NULL, tmp, "job", &logdir, NULL), 0);
        assert_true(logdir.temporary);
        assert_memory_equal(logdir.base, tmp, strlen(tmp));
        assert_int_equal(ct_logdir_make(&logdir, 0, 3, NULL), 0);
        char *file = ct_logdir_path(&logdir, 0, 2, "error.json");
        FILE *stream = fopen(file, "w");
        assert_non_null(stream);
        (void)fclose(stream);
        leave_deep(&logdir);
        char *base = strdup(logdir.base);
        ct_logdir_fini(&logdir, keep);
        assert_int_equal(is_dir(base), keep);
        free(base);
        ct_free(file);
    }
    ct_tmpdir_free(tmp);
}

static void dev_null_switches_it_off(void **state)
{
    struct ct_logdir logdir;
    (void)state;
    assert_int_equal(ct_logdir_init("/dev/null", NULL, "job", &logdir, NULL), 0);
    assert_int_equal(ct_logdir_make(&logdir, 0, 2, NULL), 0);
    char *path = ct_logdir_path(&logdir, 0, 0, "error.json");
    assert_string_equal(path, "");
    ct_free(path);
    ct_logdir_fini(&logdir, false);
}

static void errors_name_the_path(void **state)
{
    char *tmp = ct_tmpdir_new();
    char *file = ct_tmpdir_write(tmp, "file", "x", 1);
    char *below = ct_tmpdir_path(tmp, "file/below");
    struct ct_logdir logdir = {0};
    struct ct_err err = {0};
    (void)state;
    assert_true(ct_logdir_init(file, NULL, "job", &logdir, &err) < 0);
    char expected[4096];
    (void)snprintf(expected, sizeof(expected), "%s is no folder: name another one", file);
    assert_string_equal(err.text, expected);
    assert_true(ct_logdir_init(below, NULL, "job", &logdir, &err) < 0);
    assert_string_equal(err.text, expected);
    assert_true(ct_logdir_init(NULL, "/nonexistent", "job", &logdir, &err) < 0);
    assert_null(logdir.base);
    free(file);
    free(below);
    ct_tmpdir_free(tmp);
}

static int sweep_body(void *data)
{
    struct ct_logdir logdir = {0};
    int rc = ct_logdir_init(NULL, data, "job", &logdir, NULL);
    rc = rc != 0 ? rc : ct_logdir_make(&logdir, 0, 2, NULL);
    ct_logdir_fini(&logdir, false);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    char *tmp = ct_tmpdir_new();
    (void)state;
    assert_true(ct_fault_sweep(sweep_body, tmp, 0) >= 4);
    ct_tmpdir_free(tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lays_out_as_torchrun),
        cmocka_unit_test(folders_are_made_and_an_id_may_have_a_slash),
        cmocka_unit_test(temporary_one_goes_unless_kept),
        cmocka_unit_test(dev_null_switches_it_off),
        cmocka_unit_test(errors_name_the_path),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

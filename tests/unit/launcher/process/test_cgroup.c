/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the own cgroup in /proc/self/cgroup, and removing a tree of them.
 */
#include "tests/lib/ct_test.h"

#include "launcher/process/cgroup.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool nothing_is_mounted; /* not even cgroups */
static int folders_made;

int __real_statfs64(const char *path, struct statfs *out);
int __wrap_statfs64(const char *path, struct statfs *out);
int __wrap_statfs64(const char *path, struct statfs *out)
{
    if (nothing_is_mounted) {
        errno = ENOENT;
        return -1;
    }
    return __real_statfs64(path, out);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    folders_made++;
    return __real_mkdir(path, mode);
}

static void without_cgroups_no_folder_is_made(void **state)
{
    struct ct_cookie cookie = {.env = CT_COOKIE_NAME "=0123456789abcdef"};
    struct ct_cgroup cgroup;
    (void)state;
    nothing_is_mounted = true;
    folders_made = 0;
    ct_cgroup_make(&cgroup, &cookie);
    nothing_is_mounted = false;
    assert_int_equal(cgroup.fd, -1);
    assert_string_equal(cgroup.path, "");
    assert_int_equal(folders_made, 0);
}

static void own_path_is_that_of_version_2(void **state)
{
    static const struct {
        const char *text, *path; /* NULL = there is none */
    } rows[] = {
        {"0::/user.slice/x.scope\n", "/user.slice/x.scope"},
        {"0::/\n", "/"},
        {"0::/a", "/a"},
        {"9:name=systemd:/\n4:memory:/m\n0::/b\n", "/b"},
        {"", NULL},
        {"4:memory:/m\n", NULL},
        {"10::/no\n", NULL},
        {"0::/../outside\n", NULL},
        {"0::/a (deleted)\n", NULL},
        {"0::/0123456789abcdef0123456789\n", NULL}, /* no room */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[24] = "";
        bool found = ct_cgroup_own_path(rows[i].text, path, sizeof(path));
        assert_int_equal(found, rows[i].path != NULL);
        if (found) {
            assert_string_equal(path, rows[i].path);
        }
    }
}

/* Folders stand in for cgroups: both go by rmdir(2) only, and only when nothing is left in them. */
static void what_is_below_goes_first(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *job = ct_tmpdir_path(dir, "job");
    char *nested = ct_tmpdir_path(job, "nested");
    char *deep = ct_tmpdir_path(nested, "deep");
    assert_int_equal(mkdir(job, 0755), 0);
    assert_int_equal(mkdir(nested, 0755), 0);
    assert_int_equal(mkdir(deep, 0755), 0);
    char *busy = ct_tmpdir_write(deep, "busy", "", 0);
    assert_false(ct_cgroup_remove(job));
    assert_int_equal(access(deep, F_OK), 0);
    assert_int_equal(unlink(busy), 0);
    assert_true(ct_cgroup_remove(job));
    assert_int_equal(access(job, F_OK), -1);
    free(busy);
    free(deep);
    free(nested);
    free(job);
    ct_tmpdir_free(dir);
}

static void a_tree_that_is_too_deep_is_left(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *job = ct_tmpdir_path(dir, "job");
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s", job);
    for (int i = 0; i < 24; i++) {
        assert_int_equal(mkdir(path, 0755), 0);
        len += snprintf(path + len, sizeof(path) - (size_t)len, "/d");
    }
    assert_false(ct_cgroup_remove(job));
    assert_int_equal(access(job, F_OK), 0);
    free(job);
    ct_tmpdir_free(dir);
}

static void no_path_is_nothing_to_do(void **state)
{
    (void)state;
    ct_cgroup_kill("");
    assert_true(ct_cgroup_remove(""));
    ct_cgroup_kill("/nowhere/at/all");
    assert_true(ct_cgroup_remove("/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_cgroups_no_folder_is_made),
        cmocka_unit_test(own_path_is_that_of_version_2),
        cmocka_unit_test(what_is_below_goes_first),
        cmocka_unit_test(a_tree_that_is_too_deep_is_left),
        cmocka_unit_test(no_path_is_nothing_to_do),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}

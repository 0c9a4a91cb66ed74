/* SPDX-License-Identifier: Apache-2.0
 *
 * Where plug-ins are looked for.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VARIABLE "CTRUN_PLUGIN_DIR"

static void test_a_named_folder_is_the_only_one(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *file = ct_tmpdir_write(dir, "x.so", "", 0);
    char path[PATH_MAX], want[PATH_MAX + 64];
    struct ct_err err = {0};
    assert_int_equal(setenv(VARIABLE, dir, 1), 0);
    assert_string_equal(ct_plugin_named_dir(), dir);
    assert_int_equal(ct_plugin_find("x.so", path, &err), 0);
    assert_string_equal(path, file);
    assert_int_equal(ct_plugin_find("y.so", path, &err), CT_EUNSUPPORTED);
    (void)snprintf(want, sizeof(want), "no y.so in " VARIABLE "=%s", dir);
    assert_string_equal(err.text, want);
    /* The program lies beside itself, but a folder is named. */
    assert_int_equal(ct_plugin_find("test_plugin", path, &err), CT_EUNSUPPORTED);
    free(file);
    ct_tmpdir_free(dir);
}

static void test_without_a_name_it_is_beside_the_program(void **state)
{
    (void)state;
    char path[PATH_MAX];
    static const char *const values[] = {NULL, ""};
    for (size_t i = 0; i < 2; i++) {
        (void)unsetenv(VARIABLE);
        assert_int_equal(values[i] != NULL ? setenv(VARIABLE, values[i], 1) : 0, 0);
        assert_null(ct_plugin_named_dir());
        assert_int_equal(ct_plugin_find("test_plugin", path, NULL), 0);
        assert_int_equal(access(path, X_OK), 0);
    }
}

static void test_a_missing_plugin_names_both_places(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct ct_err err = {0};
    (void)unsetenv(VARIABLE);
    assert_int_equal(ct_plugin_find("no-such.so", path, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "no no-such.so beside the program or in /"));
}

static void test_a_path_that_is_too_long_is_not_cut(void **state)
{
    (void)state;
    char dir[PATH_MAX + 1], path[PATH_MAX];
    memset(dir, '/', sizeof(dir) - 1);
    dir[PATH_MAX] = '\0';
    assert_int_equal(setenv(VARIABLE, dir, 1), 0);
    assert_int_equal(ct_plugin_find("", path, NULL), CT_EUNSUPPORTED);
    /* "dir/file" is that long with its NUL: one byte less fits, and is the root folder. */
    dir[PATH_MAX - 2] = '\0';
    assert_int_equal(setenv(VARIABLE, dir, 1), 0);
    assert_int_equal(ct_plugin_find("", path, NULL), 0);
    (void)unsetenv(VARIABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_named_folder_is_the_only_one),
        cmocka_unit_test(test_without_a_name_it_is_beside_the_program),
        cmocka_unit_test(test_a_missing_plugin_names_both_places),
        cmocka_unit_test(test_a_path_that_is_too_long_is_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

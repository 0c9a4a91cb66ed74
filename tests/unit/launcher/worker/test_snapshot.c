/* SPDX-License-Identifier: Apache-2.0
 *
 * The file in memory that workers of one generation leave to the next.
 */
#include "tests/lib/ct_test.h"

#include "common/env_names.h"
#include "launcher/worker/snapshot.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static void keep(void *data, enum ct_log_level level, const char *line)
{
    assert_int_equal(level, CT_LOG_WARNING);
    memcpy(data, line, strlen(line) + 1);
}

static void test_a_worker_finds_what_another_wrote(void **state)
{
    struct ct_snapshot snapshot = CT_SNAPSHOT_INIT;
    char got[4] = "";
    (void)state;
    assert_null(ct_snapshot_env(&snapshot));
    ct_snapshot_open(&snapshot, NULL);
    const char *env = ct_snapshot_env(&snapshot);
    assert_non_null(env);
    const char *path = strchr(env, '=') + 1;
    assert_memory_equal(env, CT_SNAPSHOT_ENV "=", sizeof(CT_SNAPSHOT_ENV));
    int one = open(path, O_RDWR | O_CLOEXEC), two = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(write(one, "abc", 3), 3);
    assert_int_equal(read(two, got, sizeof(got)), 3);
    assert_string_equal(got, "abc");
    (void)close(one);
    (void)close(two);
    ct_snapshot_fini(&snapshot);
    assert_null(ct_snapshot_env(&snapshot));
    assert_int_equal(open(path, O_RDONLY | O_CLOEXEC), -1);
    ct_snapshot_fini(&snapshot); /* again is allowed */
}

static void test_without_a_descriptor_it_is_said_and_left_out(void **state)
{
    char line[CT_LOG_LINE_MAX] = "";
    const struct ct_log log = {keep, line, CT_LOG_WARNING};
    struct ct_snapshot snapshot = CT_SNAPSHOT_INIT;
    struct rlimit before, none;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ct_snapshot_open(&snapshot, &log);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_string_equal(line, "no memory for snapshots: Too many open files");
    assert_null(ct_snapshot_env(&snapshot));
    ct_snapshot_fini(&snapshot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_finds_what_another_wrote),
        cmocka_unit_test(test_without_a_descriptor_it_is_said_and_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

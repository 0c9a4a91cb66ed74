/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a kill for lack of memory is told once, where the cgroup counts it or the kernel's
 * log names it, and that files which are missing or make no sense do no harm.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/hang/oom.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct rig {
    char *dir;
    char membership[256], cgroups[256], kmsg[256];
    struct ct_oom_roots roots;
};

static void put(const char *path, const char *mode, const char *text)
{
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_below(const struct rig *rig, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", rig->cgroups, name);
    for (char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(path, 0777);
        *p = '/';
    }
    put(path, "w", text);
}

static void begin(struct rig *rig, const char *membership)
{
    rig->dir = ct_tmpdir_new();
    (void)snprintf(rig->membership, sizeof(rig->membership), "%.200s/self", rig->dir);
    (void)snprintf(rig->cgroups, sizeof(rig->cgroups), "%.200s/cgroup", rig->dir);
    (void)snprintf(rig->kmsg, sizeof(rig->kmsg), "%.200s/kmsg", rig->dir);
    rig->roots = (struct ct_oom_roots){rig->membership, rig->cgroups, rig->kmsg};
    put(rig->membership, "w", membership);
    put(rig->kmsg, "w", "4,1,1,-;Out of memory: Killed process 42 (old) total-vm:1kB\n");
}

static void check(struct ct_oom *oom, pid_t pid, const char *want)
{
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_oom_find(oom, pid, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), want);
    ct_buf_fini(&out);
}

static void a_kill_that_the_cgroup_counts_is_told_once(void **state)
{
    (void)state;
    static const struct {
        const char *membership, *events, *limit;
    } places[] = {
        {"0::/user/job\n", "user/job/memory.events", "user/job/memory.max"},
        {"3:cpu:/x\n4:memory:/user/job\n0::/\n", "memory/user/job/memory.oom_control",
         "memory/user/job/memory.limit_in_bytes"},
        {"0::/a/path/of/the/host\n", "memory.events", "memory.max"},
        {"1:cpu:/\n0::/job\n", "unified/job/memory.events", "unified/job/memory.max"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct rig rig;
        struct ct_oom oom;
        begin(&rig, places[i].membership);
        put_below(&rig, places[i].events, "low 0\noom 9\noom_kill 3\n");
        put_below(&rig, places[i].limit, "536870912\n");
        ct_oom_open(&oom, &rig.roots);
        check(&oom, 42, ""); /* all of it happened before */
        put_below(&rig, places[i].events, "low 0\noom 10\noom_kill 4\n");
        check(&oom, 42,
              "the kernel has just killed 1 process of our cgroup, whose limit is 512 MiB");
        check(&oom, 43, "");
        put_below(&rig, places[i].events, "oom_kill 6\n");
        put_below(&rig, places[i].limit, "max\n");
        check(&oom, 43, "the kernel has just killed 2 processes of our cgroup");
        /* Somebody else was killed long ago, and nobody asked why. */
        put_below(&rig, places[i].events, "oom_kill 7\n");
        ct_oom_look(&oom);
        ct_oom_look(&oom);
        check(&oom, 44, "");
        put_below(&rig, places[i].events, "oom_kill 8\n");
        ct_oom_look(&oom); /* between the kill and the question */
        check(&oom, 44, "the kernel has just killed 1 process of our cgroup");
        ct_oom_fini(&oom);
        ct_oom_fini(&oom);
        ct_tmpdir_free(rig.dir);
    }
}

static void a_kill_that_the_kernel_log_names_is_told_once(void **state)
{
    (void)state;
    struct rig rig;
    struct ct_oom oom;
    begin(&rig, "");
    ct_oom_open(&oom, &rig.roots);
    check(&oom, 42, "");
    ct_oom_follow_log(&oom, &rig.roots);
    check(&oom, 42, "");
    put(rig.kmsg, "a", "6,2,2,-;Killed process 42 (x) by somebody\n");
    check(&oom, 42, "");
    put(rig.kmsg, "a", "3,3,3,-;Memory cgroup out of memory: Killed process 421 (y) x\n");
    check(&oom, 42, "");
    put(rig.kmsg, "a",
        "3,4,4,-;Memory cgroup out of memory: Killed process 42 (x) rss:9kB\n K=V\n");
    check(&oom, 42,
          "the kernel log says \"Memory cgroup out of memory: Killed process 42 (x) rss:9kB\"");
    check(&oom, 42, "");
    ct_oom_fini(&oom);
    ct_tmpdir_free(rig.dir);
}

static void nothing_to_read_and_nonsense(void **state)
{
    (void)state;
    const struct ct_oom_roots nowhere = {"/nowhere/a", "/nowhere/b", "/nowhere/c"};
    struct ct_oom oom;
    ct_oom_open(&oom, &nowhere);
    ct_oom_follow_log(&oom, &nowhere);
    check(&oom, 1, "");
    ct_oom_fini(&oom);

    static const char *const events[] = {
        "oom_kill\n", "oom_kill x\n", "oom_kill -1\n", "oom_kill 99999999999999999999999\n",
        "",           "oom_kills 3\n"};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        struct rig rig;
        begin(&rig, "::::\n\n0::\n0::/\n");
        put_below(&rig, "memory.events", events[i]);
        ct_oom_open(&oom, &rig.roots);
        assert_false(oom.has_kills);
        put(rig.kmsg, "a", "no semicolon");
        check(&oom, 1, "");
        ct_oom_fini(&oom);
        ct_tmpdir_free(rig.dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_that_the_cgroup_counts_is_told_once),
        cmocka_unit_test(a_kill_that_the_kernel_log_names_is_told_once),
        cmocka_unit_test(nothing_to_read_and_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory is free for spares, by the machine and by its cgroup.
 */
#include "launcher/warm/warm_memory.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* A file of this size is counted if the sum grows by that, give or take what the test itself uses.
 */
#define LARGE (16 * MIB)
#define NOISE (4 * MIB)

static char watched[64]; /* a path */
static int looks;        /* how often stat() was called for it */

int __real_stat64(const char *path, struct stat *out);
int __wrap_stat64(const char *path, struct stat *out);
int __wrap_stat64(const char *path, struct stat *out)
{
    looks += strcmp(path, watched) == 0;
    return __real_stat64(path, out);
}

/* A machine in a folder. */
struct scene {
    char *dir, *meminfo, *membership, *cgroups;
};

static void put(const struct scene *scene, const char *name, const char *text)
{
    char *path = ct_tmpdir_path(scene->dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    free(path);
}

static struct scene scene_new(void)
{
    struct scene scene = {.dir = ct_tmpdir_new()};
    scene.meminfo = ct_tmpdir_path(scene.dir, "meminfo");
    scene.membership = ct_tmpdir_path(scene.dir, "cgroup");
    scene.cgroups = ct_tmpdir_path(scene.dir, "fs");
    char *own = ct_tmpdir_path(scene.dir, "fs/own");
    char *below = ct_tmpdir_path(scene.dir, "fs/own/task");
    assert_int_equal(mkdir(scene.cgroups, 0700), 0);
    assert_int_equal(mkdir(own, 0700), 0);
    assert_int_equal(mkdir(below, 0700), 0);
    free(own);
    free(below);
    put(&scene, "meminfo",
        "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    700 kB\n");
    return scene;
}

static void scene_free(struct scene *scene)
{
    free(scene->meminfo);
    free(scene->membership);
    free(scene->cgroups);
    ct_tmpdir_free(scene->dir);
}

static struct ct_warm_memory read_scene(const struct scene *scene)
{
    const struct ct_warm_roots roots = {scene->meminfo, scene->membership, scene->cgroups};
    struct ct_warm_memory memory = {0};
    ct_warm_memory_read(&roots, &memory);
    return memory;
}

static void test_the_machine_counts_without_a_lower_limit(void **state)
{
    (void)state;
    struct scene scene = scene_new();
    struct ct_warm_memory memory = read_scene(&scene);
    assert_int_equal(memory.total, 1000 * KIB);
    assert_int_equal(memory.available, 700 * KIB);
    put(&scene, "cgroup", "1:memory:/old\n0::/own\n");
    put(&scene, "fs/own/memory.max", "max\n");
    memory = read_scene(&scene);
    assert_int_equal(memory.total, 1000 * KIB);
    assert_int_equal(memory.available, 700 * KIB);
    put(&scene, "fs/own/memory.max", "1024000\n"); /* no less than the machine has */
    put(&scene, "fs/own/memory.current", "1000000\n");
    assert_int_equal(read_scene(&scene).available, 700 * KIB);
    scene_free(&scene);
}

static void test_a_cgroup_with_a_lower_limit_counts(void **state)
{
    (void)state;
    struct scene scene = scene_new();
    put(&scene, "cgroup", "0::/own\n");
    put(&scene, "fs/own/memory.max", "512000\n");
    put(&scene, "fs/own/memory.current", "300000\n");
    put(&scene, "fs/own/memory.stat", "anon 1\ninactive_file 100000\n");
    struct ct_warm_memory memory = read_scene(&scene);
    assert_int_equal(memory.total, 512000);
    assert_int_equal(memory.available, 312000); /* the cache can be freed */
    put(&scene, "fs/own/memory.current", "900000\n");
    assert_int_equal(read_scene(&scene).available, 0);
    scene_free(&scene);
}

/* A scheduler limits the job, and starts programs in a cgroup below it. */
static void test_a_cgroup_below_one_with_less(void **state)
{
    (void)state;
    struct scene scene = scene_new();
    put(&scene, "cgroup", "0::/own/task\n");
    put(&scene, "fs/own/memory.max", "512000\n");
    put(&scene, "fs/own/memory.current", "300000\n");
    put(&scene, "fs/own/task/memory.max", "max\n");
    struct ct_warm_memory memory = read_scene(&scene);
    assert_int_equal(memory.total, 512000);
    assert_int_equal(memory.available, 212000);
    put(&scene, "fs/own/task/memory.max", "400000\n");
    put(&scene, "fs/own/task/memory.current", "100000\n");
    assert_int_equal(read_scene(&scene).available, 212000); /* less than the 300000 here */
    put(&scene, "fs/own/task/memory.current", "250000\n");
    memory = read_scene(&scene);
    assert_int_equal(memory.total, 400000);
    assert_int_equal(memory.available, 150000);
    /* The limit of a container is in the top folder that it sees. */
    put(&scene, "fs/memory.max", "600000\n");
    put(&scene, "fs/memory.current", "590000\n");
    memory = read_scene(&scene);
    assert_int_equal(memory.total, 600000);
    assert_int_equal(memory.available, 10000);
    put(&scene, "fs/memory.max", "max\n");
    put(&scene, "fs/memory.high", "595000\n"); /* everything slows down from here on */
    memory = read_scene(&scene);
    assert_int_equal(memory.total, 595000);
    assert_int_equal(memory.available, 5000);
    put(&scene, "fs/memory.max", "600000\n"); /* the lower one of both counts */
    assert_int_equal(read_scene(&scene).total, 595000);
    scene_free(&scene);
}

static void test_what_cannot_be_read_is_zero(void **state)
{
    (void)state;
    const struct ct_warm_roots roots = {"/nowhere", "/nowhere", "/nowhere"};
    struct ct_warm_memory memory = {0};
    ct_warm_memory_read(&roots, &memory);
    assert_int_equal(memory.total, 0);
    uint64_t bytes = 1;
    assert_true(ct_warm_memory_of(0, &bytes));
    assert_int_equal(bytes, 0);
    assert_true(ct_warm_memory_of(getpid(), &bytes));
    assert_true(bytes > 0);
}

static uint64_t own_memory(void)
{
    uint64_t bytes;
    assert_true(ct_warm_memory_of(getpid(), &bytes));
    return bytes;
}

static void assert_grown(uint64_t before, uint64_t by)
{
    uint64_t now = own_memory();
    assert_in_range(now, before + by - (by > 0 ? NOISE : 0), before + by + NOISE);
}

static char *map(int fd, int flags)
{
    char *bytes = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, flags, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    return bytes;
}

static int large_memfd(void)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, LARGE), 0);
    return fd;
}

static void test_a_file_in_memory_counts_once(void **state)
{
    (void)state;
    uint64_t before = own_memory();
    int fd = large_memfd();
    assert_grown(before, LARGE);
    int again = dup(fd);
    assert_grown(before, LARGE);
    char *bytes = map(fd, MAP_SHARED);
    memset(bytes, 1, LARGE);
    assert_grown(before, LARGE);
    close(fd);
    close(again);
    assert_grown(before, LARGE);
    munmap(bytes, LARGE);
    assert_grown(before, 0);
}

static void test_shared_memory_without_a_name_counts(void **state)
{
    (void)state;
    uint64_t before = own_memory();
    int fd = large_memfd();
    char *bytes = map(-1, MAP_SHARED | MAP_ANONYMOUS);
    memset(bytes, 1, LARGE);
    assert_grown(before, 2 * LARGE);
    close(fd);
    munmap(bytes, LARGE);
}

/* A data set in /dev/shm is there for all, and stays when a spare ends. */
static void test_a_file_with_a_name_does_not_count(void **state)
{
    (void)state;
    char path[] = "/dev/shm/ct-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    if (ftruncate(fd, LARGE) != 0) {
        fail();
    }
    uint64_t before = own_memory();
    char *bytes = map(fd, MAP_SHARED);
    memset(bytes, 1, LARGE);
    assert_grown(before, 0);
    assert_int_equal(unlink(path), 0);
    assert_grown(before, LARGE);
    close(fd);
    munmap(bytes, LARGE);
}

static int looks_at(int fd)
{
    (void)snprintf(watched, sizeof(watched), "/proc/%d/fd/%d", (int)getpid(), fd);
    looks = 0;
    (void)own_memory();
    return looks;
}

/* Its file system could be that of a server that does not answer. */
static void test_a_file_with_a_name_is_not_looked_at(void **state)
{
    (void)state;
    int named = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int nameless = memfd_create("test", MFD_CLOEXEC);
    assert_true(named >= 0 && nameless >= 0);
    assert_int_equal(looks_at(named), 0);
    assert_int_equal(looks_at(nameless), 1);
    close(named);
    close(nameless);
}

/* A wrapper may wait for the interpreter, so that the memory is that of its child. */
static void test_what_is_below_a_process_counts(void **state)
{
    (void)state;
    uint64_t before = own_memory();
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* when the test fails */
        memset(map(-1, MAP_PRIVATE | MAP_ANONYMOUS), 1, LARGE);
        if (write(ready[1], "", 1) == 1) {
            for (;;) {
                (void)pause();
            }
        }
        _exit(1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_in_range(own_memory(), before + LARGE, before + 3 * LARGE);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_grown(before, 0);
    close(ready[0]);
    close(ready[1]);
}

/* Descriptors that a process may have and still be counted. */
#define COUNTED 1024

static int memfds[COUNTED];

static void fill_memfds(int count, uint64_t bytes)
{
    for (int i = 0; i < count; i++) {
        memfds[i] = memfd_create("test", MFD_CLOEXEC);
        assert_true(memfds[i] >= 0);
        assert_int_equal(posix_fallocate(memfds[i], 0, (off_t)bytes), 0);
    }
}

static void close_memfds(int count)
{
    for (int i = 0; i < count; i++) {
        close(memfds[i]);
    }
}

/* A spare must not hide memory from --warm-memory behind many small files. */
static void test_each_of_many_files_counts(void **state)
{
    (void)state;
    uint64_t before = own_memory();
    fill_memfds(200, MIB / 4);
    assert_grown(before, 200 * MIB / 4);
    close_memfds(200);
    assert_grown(before, 0);
}

static void test_more_descriptors_than_can_be_counted(void **state)
{
    (void)state;
    struct rlimit before, more;
    uint64_t bytes;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 2 * COUNTED) {
        skip();
    }
    more = (struct rlimit){before.rlim_max, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
    fill_memfds(COUNTED / 2, 4 * KIB);
    assert_true(ct_warm_memory_of(getpid(), &bytes));
    for (int i = COUNTED / 2; i < COUNTED; i++) {
        memfds[i] = dup(STDIN_FILENO);
        assert_true(memfds[i] >= 0);
    }
    assert_false(ct_warm_memory_of(getpid(), &bytes)); /* there are standard streams, too */
    close_memfds(COUNTED);
    assert_true(ct_warm_memory_of(getpid(), &bytes));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_machine_counts_without_a_lower_limit),
        cmocka_unit_test(test_a_cgroup_with_a_lower_limit_counts),
        cmocka_unit_test(test_a_cgroup_below_one_with_less),
        cmocka_unit_test(test_what_cannot_be_read_is_zero),
        cmocka_unit_test(test_a_file_in_memory_counts_once),
        cmocka_unit_test(test_shared_memory_without_a_name_counts),
        cmocka_unit_test(test_a_file_with_a_name_does_not_count),
        cmocka_unit_test(test_a_file_with_a_name_is_not_looked_at),
        cmocka_unit_test(test_what_is_below_a_process_counts),
        cmocka_unit_test(test_each_of_many_files_counts),
        cmocka_unit_test(test_more_descriptors_than_can_be_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

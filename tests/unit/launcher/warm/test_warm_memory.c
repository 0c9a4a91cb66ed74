/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory is free for spares, by the machine and by its cgroup.
 */
#include "launcher/warm/warm_memory.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB ((uint64_t)1024)

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
    assert_int_equal(mkdir(scene.cgroups, 0700), 0);
    assert_int_equal(mkdir(own, 0700), 0);
    free(own);
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

static void test_the_machine(void **state)
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
    scene_free(&scene);
}

static void test_a_cgroup_with_less(void **state)
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

static void test_what_cannot_be_read_is_zero(void **state)
{
    (void)state;
    const struct ct_warm_roots roots = {"/nowhere", "/nowhere", "/nowhere"};
    struct ct_warm_memory memory = {0};
    ct_warm_memory_read(&roots, &memory);
    assert_int_equal(memory.total, 0);
    assert_int_equal(ct_warm_memory_of(0), 0);
    assert_true(ct_warm_memory_of(getpid()) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_machine),
        cmocka_unit_test(test_a_cgroup_with_less),
        cmocka_unit_test(test_what_cannot_be_read_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines as sysfs describes them, made in a folder, and who is bound to which CPUs on them.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/binding/binder.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- sets ----------------------------------------------------------------------------------- */

static void cpu_lists_are_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *text, *again;
    } cases[] = {
        {"0-3,8,10-11\n", "0-3,8,10-11"},
        {"", ""},
        {"\n", ""},
        {"7,3,3,4", "3-4,7"},
        {"3-3", "3"},
        {"0-99999", "0-4095"},
        {"5000", ""},
        {"-1", NULL},
        {"3-1", NULL},
        {"1,,2", NULL},
        {"1-", NULL},
        {"a", NULL},
        {"1 2", NULL},
        {"99999999999999999999", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_cpus cpus = {{0}};
        struct ct_buf out = CT_BUF_INIT;
        int want = cases[i].again != NULL ? 0 : CT_EFORMAT;
        assert_int_equal(ct_cpus_parse(cases[i].text, &cpus), want);
        if (want == 0) {
            assert_int_equal(ct_cpus_print(&cpus, &out), 0);
            assert_string_equal(ct_buf_cstr(&out), cases[i].again);
        }
        ct_buf_fini(&out);
    }
}

/* ---- machines ------------------------------------------------------------------------------- */

/* All figures are per node, which is a quarter, half or whole of a socket. */
struct machine {
    int sockets, nodes, cores, threads; /* nodes per socket, cores per node, threads per core */
    int caches;                         /* per node */
};

struct rig {
    char *dir;
    char sysfs[300], gpus[300];
    struct ct_cpus all;
};

static void put(const char *dir, const char *name, const char *text)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    for (char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(path, 0777);
        *p = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
}

/* The threads of a core are numbered as on most machines: first all first ones, then the second. */
static void build(struct rig *rig, const struct machine *m)
{
    char name[128], text[256];
    int cores = m->sockets * m->nodes * m->cores;
    *rig = (struct rig){0};
    rig->dir = ct_tmpdir_new();
    (void)snprintf(rig->sysfs, sizeof(rig->sysfs), "%s/sys", rig->dir);
    (void)snprintf(rig->gpus, sizeof(rig->gpus), "%s/gpus", rig->dir);
    for (int cpu = 0; cpu < cores * m->threads; cpu++) {
        int core = cpu % cores, node = core / m->cores, per_cache = m->cores / m->caches;
        int first = core - core % m->cores % per_cache, last = first + per_cache - 1;
        ct_cpus_add(&rig->all, cpu);
        (void)snprintf(name, sizeof(name), "devices/system/cpu/cpu%d/topology/physical_package_id",
                       cpu);
        (void)snprintf(text, sizeof(text), "%d", node / m->nodes);
        put(rig->sysfs, name, text);
        (void)snprintf(name, sizeof(name), "devices/system/cpu/cpu%d/topology/thread_siblings_list",
                       cpu);
        (void)snprintf(text, sizeof(text), m->threads > 1 ? "%d,%d" : "%d", core, core + cores);
        put(rig->sysfs, name, text);
        for (int level = 1; level <= 3; level++) {
            (void)snprintf(name, sizeof(name), "devices/system/cpu/cpu%d/cache/index%d/level", cpu,
                           level);
            (void)snprintf(text, sizeof(text), "%d", level);
            put(rig->sysfs, name, text);
            (void)snprintf(name, sizeof(name), "devices/system/cpu/cpu%d/cache/index%d/type", cpu,
                           level);
            put(rig->sysfs, name, "Unified");
            (void)snprintf(name, sizeof(name),
                           "devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, level);
            (void)snprintf(text, sizeof(text), m->threads > 1 ? "%d-%d,%d-%d" : "%d-%d",
                           level == 3 ? first : core, level == 3 ? last : core,
                           (level == 3 ? first : core) + cores, (level == 3 ? last : core) + cores);
            put(rig->sysfs, name, text);
        }
    }
    int nodes = m->sockets * m->nodes;
    (void)snprintf(text, sizeof(text), "0-%d", nodes - 1);
    put(rig->sysfs, "devices/system/node/online", text);
    for (int node = 0; node < nodes; node++) {
        int low = node * m->cores, high = low + m->cores - 1;
        (void)snprintf(name, sizeof(name), "devices/system/node/node%d/cpulist", node);
        (void)snprintf(text, sizeof(text), m->threads > 1 ? "%d-%d,%d-%d" : "%d-%d", low, high,
                       low + cores, high + cores);
        put(rig->sysfs, name, text);
    }
}

static void add_gpu(struct rig *rig, const char *address, const char *uuid, int node)
{
    char name[128], text[64];
    (void)snprintf(name, sizeof(name), "%s/information", address);
    (void)snprintf(text, sizeof(text), "Model: \t\t NVIDIA X\nGPU UUID: \t %s", uuid);
    put(rig->gpus, name, text);
    (void)snprintf(name, sizeof(name), "bus/pci/devices/%s/numa_node", address);
    (void)snprintf(text, sizeof(text), "%d", node);
    put(rig->sysfs, name, text);
}

/* "0-1|2-3" for two workers; "-" for one that is not bound. */
static void check(const struct rig *rig, enum ct_bind bind, const char *visible, int workers,
                  const char *want)
{
    const struct ct_binder_roots roots = {rig->sysfs, rig->gpus};
    struct ct_binder binder;
    struct ct_buf got = CT_BUF_INIT;
    struct ct_err err = {0};
    int rc = ct_binder_open(bind, &roots, &rig->all, visible, workers, &binder, &err);
    if (rc != 0) {
        assert_string_equal(err.text, want);
        return;
    }
    for (int i = 0; i < workers; i++) {
        const struct ct_cpus *cpus = ct_binder_cpus(&binder, i);
        assert_int_equal(ct_buf_append(&got, i > 0 ? "|" : "", i > 0), 0);
        assert_int_equal(cpus != NULL ? ct_cpus_print(cpus, &got) : ct_buf_append(&got, "-", 1), 0);
    }
    assert_string_equal(ct_buf_cstr(&got), want);
    ct_buf_fini(&got);
    ct_binder_fini(&binder);
}

static void workers_get_the_threads_of_their_socket(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){2, 1, 4, 2, 2});
    check(&rig, CT_BIND_NONE, NULL, 2, "-|-");
    check(&rig, CT_BIND_NODE, NULL, 2, "0-3,8-11|4-7,12-15");
    check(&rig, CT_BIND_SOCKET, NULL, 2, "0-3,8-11|4-7,12-15");
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 4, "0-1,8-9|2-3,10-11|4-5,12-13|6-7,14-15");
    /* Three workers: two on the first node, one on the second. */
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 3, "0-1,8-9|2-3,10-11|4-7,12-15");
    check(&rig, CT_BIND_CORE_COMPLEX, NULL, 4, "0-1,8-9|2-3,10-11|4-5,12-13|6-7,14-15");
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 10,
          "cannot bind worker 0: NUMA node 0 has 4 cores for 5 workers or devices; bind to the "
          "node, or start fewer workers");
    ct_tmpdir_free(rig.dir);
}

/* Four nodes per socket: a node is less than a socket. */
static void a_node_may_be_less_than_a_socket(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){2, 4, 2, 1, 1});
    check(&rig, CT_BIND_NODE, NULL, 8, "0-1|2-3|4-5|6-7|8-9|10-11|12-13|14-15");
    check(&rig, CT_BIND_SOCKET, NULL, 2, "0-7|8-15");
    check(&rig, CT_BIND_NODE, NULL, 2, "0-1|8-9");
    ct_tmpdir_free(rig.dir);
}

/* Seven cores for two: the first gets one more. */
static void the_first_worker_gets_the_core_that_is_left_over(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){1, 1, 7, 1, 1});
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 2, "0-3|4-6");
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 3, "0-2|3-4|5-6");
    check(&rig, CT_BIND_CORE_COMPLEX, NULL, 2, "0-6|0-6");
    ct_tmpdir_free(rig.dir);
}

static void only_what_we_were_given(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){2, 1, 4, 2, 2});
    /* Holes: of the first node one core whole and one thread, of the second three cores. */
    assert_int_equal(ct_cpus_parse("1,3,5-7,9,14", &rig.all), 0);
    check(&rig, CT_BIND_NODE, NULL, 2, "1,3,9|5-7,14");
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 4, "1,9|3|5-6,14|7");
    /* The greater group comes first. */
    check(&rig, CT_BIND_CORE_COMPLEX, NULL, 4, "1,9|3|6-7,14|5");
    /* One node alone is all that we have. */
    assert_int_equal(ct_cpus_parse("4-7", &rig.all), 0);
    check(&rig, CT_BIND_NODE, NULL, 2, "4-7|4-7");
    ct_tmpdir_free(rig.dir);
}

static void workers_follow_their_gpu(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){2, 1, 4, 1, 1});
    add_gpu(&rig, "0000:d8:00.0", "GPU-dddd", 0);
    add_gpu(&rig, "0000:3b:00.0", "GPU-3b3b", 1);
    add_gpu(&rig, "0000:af:00.0", "GPU-afaf", 1);
    check(&rig, CT_BIND_NODE, NULL, 3, "4-7|4-7|0-3"); /* by PCI address */
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 3, "4-5|6-7|0-3");
    check(&rig, CT_BIND_NODE, "2,0", 2, "0-3|4-7");
    check(&rig, CT_BIND_NODE, " GPU-dd, GPU-afaf", 2, "0-3|4-7");
    check(&rig, CT_BIND_NODE, "MIG-1234,GPU-nope", 2, "0-3|0-3"); /* tells no node: the first */
    check(&rig, CT_BIND_NODE, "0,2", 4, "4-7|0-3|4-7|0-3");       /* they share */
    /* The firmware does not know. */
    add_gpu(&rig, "0000:3b:00.0", "GPU-3b3b", -1);
    check(&rig, CT_BIND_NODE, "0", 1, "0-3");
    add_gpu(&rig, "0000:e1:00.0", "GPU-e1e1", 1);
    check(&rig, CT_BIND_NODE, "3", 1, "4-7");
    /* The GPU's node is not ours. */
    assert_int_equal(ct_cpus_parse("0-3", &rig.all), 0);
    check(&rig, CT_BIND_NODE, "1", 1, "-");
    ct_tmpdir_free(rig.dir);
}

static void a_sysfs_that_says_nothing(void **state)
{
    (void)state;
    struct rig rig = {.sysfs = "/nowhere", .gpus = "/nowhere"};
    assert_int_equal(ct_cpus_parse("0-3", &rig.all), 0);
    check(&rig, CT_BIND_NODE, NULL, 2, "0-3|0-3");
    check(&rig, CT_BIND_SOCKET, NULL, 2, "0-3|0-3");
    check(&rig, CT_BIND_EXCLUSIVE, NULL, 2, "0-1|2-3");
    check(&rig, CT_BIND_CORE_COMPLEX, NULL, 2, "0-3|0-3");
    rig.all = (struct ct_cpus){{0}};
    check(&rig, CT_BIND_NODE, NULL, 1, "the kernel does not tell which CPUs may be used");
}

static void append_line(void *data, enum ct_log_level level, const char *line)
{
    (void)level;
    assert_int_equal(ct_buf_printf(data, "%s\n", line), 0);
}

static void each_worker_is_told_its_cpus(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){1, 2, 2, 1, 1});
    const struct ct_binder_roots roots = {rig.sysfs, rig.gpus};
    struct ct_buf said = CT_BUF_INIT;
    const struct ct_log log = {append_line, &said, CT_LOG_DEBUG};
    struct ct_binder binder;
    assert_int_equal(ct_binder_open(CT_BIND_NODE, &roots, &rig.all, NULL, 2, &binder, NULL), 0);
    ct_binder_report(&binder, 4, &log);
    assert_string_equal(ct_buf_cstr(&said), "rank 4 is bound to CPUs 0-1 (NUMA node 0)\n"
                                            "rank 5 is bound to CPUs 2-3 (NUMA node 1)\n");
    ct_binder_fini(&binder);
    ct_buf_reset(&said);
    add_gpu(&rig, "0000:3b:00.0", "GPU-3b3b", 1);
    assert_int_equal(ct_binder_open(CT_BIND_NODE, &roots, &rig.all, NULL, 1, &binder, NULL), 0);
    ct_binder_report(&binder, 4, &log);
    assert_string_equal(ct_buf_cstr(&said),
                        "rank 4 is bound to CPUs 2-3 (NUMA node 1, that of its GPU)\n");
    ct_binder_fini(&binder);
    ct_buf_fini(&said);
    ct_tmpdir_free(rig.dir);
}

/* This machine's sysfs, if it tells of a NUMA node. */
static void only_what_this_process_may_use(void **state)
{
    (void)state;
    char *const env[] = {(char *)"CUDA_VISIBLE_DEVICES=", NULL}; /* a GPU may have another node */
    cpu_set_t all, one;
    struct ct_cpus allowed;
    struct ct_binder binder;
    ct_cpus_allowed(&allowed);
    CPU_ZERO(&one);
    CPU_SET((size_t)ct_cpus_next(&allowed, 0), &one);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    int rc = ct_binder_open_here(CT_BIND_NODE, env, 1, &binder, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    if (rc != 0) {
        skip();
    }
    const struct ct_cpus *cpus = ct_binder_cpus(&binder, 0);
    assert_non_null(cpus);
    assert_int_equal(ct_cpus_count(cpus), 1);
    assert_true(ct_cpus_has(cpus, ct_cpus_next(&allowed, 0)));
    ct_binder_fini(&binder);
}

static int open_and_fini(void *data)
{
    const struct rig *rig = data;
    const struct ct_binder_roots roots = {rig->sysfs, rig->gpus};
    struct ct_binder binder = {0};
    int rc = ct_binder_open(CT_BIND_NODE, &roots, &rig->all, NULL, 2, &binder, NULL);
    ct_binder_fini(&binder);
    return rc;
}

/* What cannot be read for want of memory counts as not told, so not every fault is a failure. */
static void each_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct rig rig;
    build(&rig, &(struct machine){1, 1, 2, 1, 1});
    assert_true(ct_fault_sweep(open_and_fini, &rig, 1) > 3);
    ct_tmpdir_free(rig.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_lists_are_read_and_written),
        cmocka_unit_test(workers_get_the_threads_of_their_socket),
        cmocka_unit_test(a_node_may_be_less_than_a_socket),
        cmocka_unit_test(the_first_worker_gets_the_core_that_is_left_over),
        cmocka_unit_test(only_what_we_were_given),
        cmocka_unit_test(workers_follow_their_gpu),
        cmocka_unit_test(a_sysfs_that_says_nothing),
        cmocka_unit_test(each_worker_is_told_its_cpus),
        cmocka_unit_test(only_what_this_process_may_use),
        cmocka_unit_test(each_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

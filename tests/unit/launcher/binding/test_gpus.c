/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks how GPUs are counted from the driver's files and the environment, without a GPU.
 */
#include "tests/lib/ct_test.h"

#include "launcher/binding/gpus.h"
#include "tests/lib/tmpdir.h"

#include <stdlib.h>
#include <sys/stat.h>

static void add(const char *dir, const char *name)
{
    free(ct_tmpdir_write(dir, name, "", 0));
}

static void counts_what_the_driver_shows(void **state)
{
    char *proc = ct_tmpdir_new(), *dev = ct_tmpdir_new();
    (void)state;
    assert_int_equal(ct_gpus_count("/nonexistent", "/nonexistent"), 0);
    add(dev, "nvidiactl");
    add(dev, "nvidia-uvm");
    add(dev, "nvidia");
    assert_int_equal(ct_gpus_count(proc, dev), 0);
    add(proc, "0000:01:00.0");
    add(proc, "0000:02:00.0");
    assert_int_equal(ct_gpus_count(proc, dev), 2); /* no device node yet */
    add(dev, "nvidia0");
    assert_int_equal(ct_gpus_count(proc, dev), 1); /* a container with one of them */
    add(dev, "nvidia1");
    add(dev, "nvidia10");
    assert_int_equal(ct_gpus_count(proc, dev), 2);
    assert_int_equal(ct_gpus_count("/nonexistent", dev), 3);
    ct_tmpdir_free(proc);
    ct_tmpdir_free(dev);
}

static void honours_visible_devices(void **state)
{
    static const struct {
        const char *visible;
        int count;
    } rows[] = {
        {"", 0},        {"0", 1},        {"1,0", 2},        {"0,1,2", 2},
        {"-1", 0},      {"0,-1,1", 1},   {"NoDevFiles", 0}, {"GPU-8932f937,GPU-1", 2},
        {"MIG-x/1", 1}, {" 0 , 1", 2},   {"0,,1", 1},       {"0 1", 1},
        {"0,1,", 2},    {"99999999", 0}, {"1x", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ct_gpu_facts facts = {.physical = 2, .visible = rows[i].visible};
        int count = ct_gpus_workers(&facts);
        if (count != rows[i].count) {
            fail_msg("'%s' gives %d", rows[i].visible, count);
        }
    }
    const struct ct_gpu_facts none = {.physical = 0, .visible = "0"};
    assert_int_equal(ct_gpus_workers(&none), 0);
}

/* HAMi-core, MIG and what a container was given, without any of them. */
static void facts_come_from_files_and_environment(void **state)
{
    char *proc = ct_tmpdir_new(), *caps = ct_tmpdir_new();
    char *preload = ct_tmpdir_write(proc, "ld.so.preload", "/usr/lib/libvgpu.so\n", 20);
    char *const nothing[] = {NULL};
    char *const slurm[] = {(char *)"SLURM_JOB_ID=7", (char *)"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
                           (char *)"CUDA_VISIBLE_DEVICES=0", NULL};
    char *const mig[] = {(char *)"NVIDIA_VISIBLE_DEVICES=MIG-a,MIG-b", NULL};
    char *const mixed[] = {(char *)"NVIDIA_VISIBLE_DEVICES=MIG-a,all", NULL};
    char *const cache[] = {(char *)"CUDA_DEVICE_MEMORY_SHARED_CACHE=/x",
                           (char *)"NVIDIA_VISIBLE_DEVICES=GPU-a", NULL};
    struct ct_gpus_roots roots = {proc, "/nonexistent", caps, "/nonexistent"};
    struct ct_gpu_facts facts;
    (void)state;

    ct_gpus_read(&roots, nothing, &facts);
    assert_int_equal(facts.physical, 1); /* the only file in `proc` */
    assert_false(facts.hami || facts.mig_on || facts.slurm_mps);
    assert_null(facts.visible);
    assert_null(facts.mig);

    roots.preload = preload;
    ct_gpus_read(&roots, slurm, &facts);
    assert_true(facts.hami && facts.slurm_mps);
    assert_string_equal(facts.visible, "0");
    assert_int_equal(ct_gpus_workers(&facts), 1);

    roots.preload = "/nonexistent";
    add(caps, "mig");
    char *gpu = ct_tmpdir_path(caps, "gpu0"), *pieces = ct_tmpdir_path(caps, "gpu0/mig");
    assert_int_equal(mkdir(gpu, 0700) + mkdir(pieces, 0700), 0);
    ct_gpus_read(&roots, mig, &facts);
    assert_string_equal(facts.mig, "MIG-a,MIG-b");
    assert_int_equal(ct_gpus_workers(&facts), 2);
    assert_false(facts.mig_on);
    add(pieces, "gi3");
    ct_gpus_read(&roots, mixed, &facts);
    assert_null(facts.mig);
    assert_true(facts.mig_on);

    ct_gpus_read(&roots, cache, &facts);
    assert_true(facts.hami);
    assert_null(facts.mig);
    free(gpu);
    free(pieces);
    free(preload);
    ct_tmpdir_free(proc);
    ct_tmpdir_free(caps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_the_driver_shows),
        cmocka_unit_test(honours_visible_devices),
        cmocka_unit_test(facts_come_from_files_and_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

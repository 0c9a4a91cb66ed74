/* SPDX-License-Identifier: Apache-2.0
 *
 * What a preflight finds on this machine: rooms of file systems, the kernel's log, and GPUs, of
 * which a library in NVML's place tells (tests/lib/fake_nvml.c).
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/preflight/preflight_here.h"
#include "launcher/preflight/preflight_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const wishes[] = {"INIT",    "COUNT",  "LOST",  "ECC",
                                     "PENDING", "FAILED", "PAGES", "RECOVERY"};

/* What the library says of this machine when one thing is wrong. */
static struct ct_preflight_machine ask(const char *wish, const char *value)
{
    struct ct_preflight_machine machine;
    char name[64];
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        (void)snprintf(name, sizeof(name), "FAKE_NVML_%s", wishes[i]);
        (void)unsetenv(name);
    }
    (void)setenv("FAKE_NVML_COUNT", "3", 1);
    (void)snprintf(name, sizeof(name), "FAKE_NVML_%s", wish);
    (void)setenv(name, value, 1);
    ct_preflight_machine_init(&machine);
    ct_preflight_nvml(getenv("FAKE_NVML"), &machine);
    return machine;
}

static void test_gpus_are_counted(void **state)
{
    (void)state;
    struct ct_preflight_machine machine = ask("COUNT", "3");
    assert_int_equal(machine.gpus, 3);
    assert_string_equal(machine.gpu_trouble, "");
    assert_int_equal(ask("COUNT", "0").gpus, 0);
    assert_int_equal(ask("COUNT", "-1").gpus, 0); /* more than any machine has */
}

static void test_what_is_wrong_with_a_gpu(void **state)
{
    (void)state;
    assert_string_equal(ask("ECC", "1").gpu_trouble,
                        "GPU 2 (GPU-00000002): 1 uncorrected ECC error since its last reset");
    assert_string_equal(ask("LOST", "0").gpu_trouble,
                        "GPU 0 (GPU-00000000): it has fallen off the bus");
    assert_string_equal(ask("PENDING", "1").gpu_trouble,
                        "GPU 2 (GPU-00000002): rows of its memory are replaced only by a reset");
    assert_string_equal(ask("FAILED", "1").gpu_trouble,
                        "GPU 2 (GPU-00000002): its memory has no spare rows left");
    assert_string_equal(ask("PAGES", "1").gpu_trouble,
                        "GPU 2 (GPU-00000002): pages of its memory are retired only by a reset");
    assert_string_equal(ask("RECOVERY", "2").gpu_trouble,
                        "GPU 2 (GPU-00000002): the machine has to be started again after an error");
    assert_string_equal(ask("RECOVERY", "99").gpu_trouble, ""); /* newer than this program */
}

static void test_a_driver_that_cannot_be_used(void **state)
{
    (void)state;
    struct ct_preflight_machine machine = ask("INIT", "18");
    assert_int_equal(machine.gpus, 0);
    assert_string_equal(machine.gpu_trouble,
                        "NVML cannot be used: Driver/library version mismatch");
    machine = ask("INIT", "9"); /* a machine without GPUs may have the library */
    assert_int_equal(machine.gpus, 0);
    assert_string_equal(machine.gpu_trouble, "");
    ct_preflight_machine_init(&machine);
    ct_preflight_nvml("libno-such-library.so.1", &machine);
    assert_int_equal(machine.gpus, -1);
    assert_string_equal(machine.gpu_trouble, "");
}

static void test_xids_in_the_kernel_log_are_counted(void **state)
{
    static const char log[] = "6,1,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"
                              "3,2,2,-;NVRM: Xid (PCI:0000:17:00): 13, pid=4, name=train\n";
    char *folder = ct_tmpdir_new();
    char *path = ct_tmpdir_write(folder, "kmsg", log, strlen(log));
    struct ct_preflight_machine machine;
    (void)state;
    ct_preflight_machine_init(&machine);
    ct_preflight_count_xids(path, &machine);
    assert_int_equal(machine.xids, 1);
    assert_string_equal(machine.last_xid, "13 on 0000:17:00");
    ct_preflight_machine_init(&machine);
    ct_preflight_count_xids(folder, &machine); /* a folder cannot be read */
    assert_int_equal(machine.xids, 0);
    (void)remove(path);
    ct_preflight_machine_init(&machine);
    ct_preflight_count_xids(path, &machine);
    assert_int_equal(machine.xids, -1);
    free(path);
    ct_tmpdir_free(folder);
}

static void note(void *data, const char *name)
{
    (void)snprintf((char *)data + strlen(data), 100, "%s;", name);
}

static void test_this_machine_is_looked_at_in_stages(void **state)
{
    char stages[400] = "", *folder = ct_tmpdir_new();
    struct ct_preflight_places places = ct_preflight_places_here;
    struct ct_preflight_machine machine;
    (void)state;
    places.shm = "/proc"; /* another file system than the folders */
    places.nvml = "libno-such-library.so.1";
    places.folders[0] = folder;
    places.folders[1] = "/no/such/folder";
    places.stage = note;
    places.data = stages;
    ct_preflight_machine_init(&machine);
    ct_preflight_look(&places, &machine);
    assert_string_equal(stages, "/proc;the disks;the kernel's log;the GPUs (NVML);");
    assert_true(machine.shm_free >= 0);
    assert_true(machine.folder_free > 0);
    assert_string_equal(machine.folder, folder);
    assert_int_equal(machine.gpus, -1);
    places.shm = folder; /* the check of /dev/shm is enough for what is there */
    ct_preflight_machine_init(&machine);
    ct_preflight_look(&places, &machine);
    assert_int_equal(machine.folder_free, -1);
    ct_tmpdir_free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_are_counted),
        cmocka_unit_test(test_what_is_wrong_with_a_gpu),
        cmocka_unit_test(test_a_driver_that_cannot_be_used),
        cmocka_unit_test(test_xids_in_the_kernel_log_are_counted),
        cmocka_unit_test(test_this_machine_is_looked_at_in_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

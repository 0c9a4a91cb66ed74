/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what is found out about the machine, and how many CPUs ranks of one launcher share.
 */
#include "tests/lib/ct_test.h"

#include "launcher/setup/machine.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static const char *wrong_name; /* what gethostname() says; NULL = the truth */

int __real_gethostname(char *name, size_t len);
int __wrap_gethostname(char *name, size_t len);
int __wrap_gethostname(char *name, size_t len)
{
    if (wrong_name == NULL) {
        return __real_gethostname(name, len);
    }
    (void)snprintf(name, len, "%s", wrong_name);
    return 0;
}

static void facts_are_the_kernels(void **state)
{
    char *const env[] = {(char *)"CUDA_VISIBLE_DEVICES=", NULL};
    struct ct_machine machine;
    char path[PATH_MAX + 32];
    char host[CT_HOST_MAX] = "";
    (void)state;
    ct_machine_read(env, &machine);
    assert_int_equal(machine.gpus, 0);
    assert_in_range(machine.cpus, 1, sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    assert_string_equal(machine.host, host);
    (void)snprintf(path, sizeof(path), "%s/test_machine", machine.own_dir);
    assert_int_equal(access(path, X_OK), 0);
}

/* It went to the terminal as it was. */
static void the_name_of_the_machine_is_harmless(void **state)
{
    char *const env[] = {(char *)"CUDA_VISIBLE_DEVICES=", NULL};
    struct ct_machine machine;
    (void)state;
    wrong_name = "n\x1b[31m\xe2\x80\xae"
                 "7\xc3\xbc"; /* red, right to left, and an umlaut */
    ct_machine_read(env, &machine);
    wrong_name = NULL;
    assert_string_equal(machine.host, "n?[31m???7\xc3\xbc");
}

static void ranks_share_what_their_launcher_has(void **state)
{
    const struct ct_resolved single = {.mode = CT_MODE_SINGLE, .local_size = 8};
    struct ct_resolved shim = {.mode = CT_MODE_SHIM, .local_size = 8};
    struct ct_machine machine = {.cpus = 3};
    cpu_set_t parent;
    (void)state;
    assert_int_equal(sched_getaffinity(getppid(), sizeof(parent), &parent), 0);
    int all = CPU_COUNT(&parent);
    assert_int_equal(ct_machine_cpus_to_share(&machine, &single), 3);
    shim.local_size = 1;
    assert_int_equal(ct_machine_cpus_to_share(&machine, &shim), 3);
    /* Bound to a CPU each: theirs together, as far as there are so many. */
    machine.cpus = 1;
    shim.local_size = 2;
    assert_int_equal(ct_machine_cpus_to_share(&machine, &shim), all < 2 ? 1 : 2);
    shim.local_size = 1 << 20;
    assert_int_equal(ct_machine_cpus_to_share(&machine, &shim), all);
    /* Not bound: what each has, all have. */
    machine.cpus = 1 << 20;
    shim.local_size = 4;
    assert_int_equal(ct_machine_cpus_to_share(&machine, &shim), 1 << 20);
}

static void options_become_a_request(void **state)
{
    const struct ct_machine machine = {.gpu_facts = {.physical = 2}};
    struct ct_options options = {.nproc_kind = CT_NPROC_COUNT};
    struct ct_resolved single = {.mode = CT_MODE_SINGLE, .workers = 3};
    const struct ct_resolved shim = {.mode = CT_MODE_SHIM, .workers = 1, .local_size = 3};
    struct ct_gpu_masks gpus;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_machine_gpus(&machine, &options, &single, &gpus, NULL), 0);
    assert_int_equal(gpus.devices, 0);
    options.virtual_local_rank = true;
    assert_int_equal(ct_machine_gpus(&machine, &options, &single, &gpus, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "--virtual-local-rank: 3 workers, but 2"));
    options.share_gpu = true;
    assert_int_equal(ct_machine_gpus(&machine, &options, &single, &gpus, NULL), 0);
    assert_true(gpus.masked && gpus.shared);
    options = (struct ct_options){.nproc_kind = CT_NPROC_GPU};
    assert_int_equal(ct_machine_gpus(&machine, &options, &shim, &gpus, NULL), CT_ENOENT);
    options = (struct ct_options){.gpu_bind = CT_GPU_BIND_MASK};
    single.workers = 2;
    assert_int_equal(ct_machine_gpus(&machine, &options, &single, &gpus, NULL), 0);
    assert_true(gpus.masked && !gpus.shared);
}

static void uuids_are_random_and_well_formed(void **state)
{
    char a[CT_UUID_TEXT], b[CT_UUID_TEXT];
    (void)state;
    assert_int_equal(ct_machine_uuid(a, NULL), 0);
    assert_int_equal(ct_machine_uuid(b, NULL), 0);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 36);
    assert_int_equal(strspn(a, "0123456789abcdef-"), 36);
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
    /* The digits on both sides of a byte's end are drawn apart. */
    int same = 0;
    for (int i = 0; i < 64; i++) {
        assert_int_equal(ct_machine_uuid(a, NULL), 0);
        same += a[15] == a[17];
    }
    assert_int_not_equal(same, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_the_kernels),
        cmocka_unit_test(the_name_of_the_machine_is_harmless),
        cmocka_unit_test(ranks_share_what_their_launcher_has),
        cmocka_unit_test(options_become_a_request),
        cmocka_unit_test(uuids_are_random_and_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

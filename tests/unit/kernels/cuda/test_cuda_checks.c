/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks that run on a GPU where there is one, of the CUDA plug-in on stand-ins for CUDA and
 * cuBLASLt.
 */
#include "tests/lib/ct_test.h"

#include "kernels/device/device.h"
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/lib/fake_gpu/fake_plugin.h"

#include <cublasLt.h>
#include <malloc.h>

static void run_checks(const struct fake_gpu *script)
{
    const struct ct_check *const lists[] = {ct_checks_layers,    ct_checks_training,
                                            ct_checks_precision, ct_checks_cut,
                                            ct_checks_head,      NULL};
    struct ct_device *dev = fake_plugin_open(script);
    assert_int_equal(ct_check_quietly(lists, dev), 0);
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
    dev->ops->close(dev);
}

static void passes_the_checks_of_a_gpu(void **state)
{
    (void)state;
    run_checks(NULL);
    assert_true(fake.timed > 0);
}

/* Everything that cuBLASLt may refuse has a way around it. */
static void passes_them_without_epilogues(void **state)
{
    (void)state;
    run_checks(&(struct fake_gpu){
        .seed = 5,
        .any_wins = true,
        .no_epilogues = CUBLASLT_EPILOGUE_RELU_AUX_BIAS | CUBLASLT_EPILOGUE_BGRADB,
    });
}

/* Some shapes have one epilogue, some another, and each its own order of adding. */
static void passes_them_on_another_chip(void **state)
{
    (void)state;
    run_checks(&(struct fake_gpu){.seed = 6, .any_wins = true, .chip = 1});
}

int main(void)
{
    /* Each device opened here takes a workspace of many pages, and gives it back soon after: pages
     * that are kept need not be fetched from the kernel again. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_the_checks_of_a_gpu),
        cmocka_unit_test(passes_them_without_epilogues),
        cmocka_unit_test(passes_them_on_another_chip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

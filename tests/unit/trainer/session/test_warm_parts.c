/* SPDX-License-Identifier: Apache-2.0
 *
 * What a spare makes ready: the same data set as a cold start has, a device only where training
 * will be on the CPU, and nothing that is still of use after the data set has changed.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/session/warm_parts.h"

#include <stdlib.h>
#include <unistd.h>

static const struct ct_train_options plain = {
    .data = CT_DATASET_SYNTHETIC,
    .hidden = {1, {16}},
    .epochs = 1,
    .batch_size = 32,
    .device = CT_CHOOSE_CPU,
};

static void makes_data_set_and_device(void **state)
{
    struct ct_warm_parts parts;
    struct ct_dataset set;
    (void)state;
    assert_int_equal(ct_warm_parts_make(&parts, &plain, 1, 3, NULL), 0);
    assert_int_equal(ct_dataset_load(CT_DATASET_SYNTHETIC, &set, NULL), 0);
    assert_true(parts.loaded && parts.dev != NULL);
    assert_int_equal(parts.set.train.count, set.train.count);
    assert_memory_equal(parts.set.train.images, set.train.images, set.train.count * set.features);
    assert_null(ct_warm_parts_check(&parts));
    ct_dataset_fini(&set);
    ct_warm_parts_fini(&parts);
    ct_warm_parts_fini(&parts);
}

static void leaves_the_device_to_the_worker_where_it_is_another(void **state)
{
    struct ct_train_options options[] = {plain, plain, plain, plain, plain};
    (void)state;
    options[0].device = CT_CHOOSE_CUDA;
    options[1].precision = CT_PRECISION_CHOOSE_BF16;
    options[2].shards = 4;
    options[3].pipeline_stages = 2;
    options[4].gpus = 1;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        struct ct_warm_parts parts;
        assert_int_equal(ct_warm_parts_make(&parts, &options[i], 0, 2, NULL), 0);
        assert_true(parts.loaded);
        assert_null(parts.dev);
        ct_warm_parts_fini(&parts);
    }
}

static void a_rank_without_samples_rehearses_nothing(void **state)
{
    struct ct_train_options options = plain;
    struct ct_warm_parts parts;
    (void)state;
    options.batch_size = 2;
    assert_int_equal(ct_warm_parts_make(&parts, &options, 2, 3, NULL), 0);
    assert_non_null(parts.dev);
    ct_warm_parts_fini(&parts);
}

static void is_of_no_use_when_the_data_set_has_changed(void **state)
{
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 1, 0};
    struct ct_train_options options = plain;
    struct ct_warm_parts parts;
    struct ct_err err = {0};
    (void)state;
    char *dir = ct_tmpdir_new();
    free(ct_tmpdir_write(dir, "train-images-idx3-ubyte", images, sizeof images));
    free(ct_tmpdir_write(dir, "train-labels-idx1-ubyte", labels, sizeof labels));
    free(ct_tmpdir_write(dir, "t10k-images-idx3-ubyte", images, sizeof images));
    char *path = ct_tmpdir_write(dir, "t10k-labels-idx1-ubyte", labels, sizeof labels);
    options.data = dir;
    assert_int_equal(ct_warm_parts_make(&parts, &options, 0, 1, &err), 0);
    assert_null(ct_warm_parts_check(&parts));
    assert_int_equal(unlink(path), 0);
    assert_string_equal(ct_warm_parts_check(&parts), "the data set has changed");
    ct_warm_parts_fini(&parts);
    assert_int_equal(ct_warm_parts_make(&parts, &options, 0, 1, &err), CT_ENOENT);
    assert_false(parts.loaded);
    ct_warm_parts_fini(&parts);
    free(path);
    ct_tmpdir_free(dir);
}

static int make(void *data)
{
    struct ct_warm_parts parts;
    int rc = ct_warm_parts_make(&parts, data, 0, 2, NULL);
    ct_warm_parts_fini(&parts);
    return rc;
}

static void survives_allocation_failures(void **state)
{
    struct ct_train_options options = plain;
    (void)state;
    assert_true(ct_fault_sweep(make, &options, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_data_set_and_device),
        cmocka_unit_test(leaves_the_device_to_the_worker_where_it_is_another),
        cmocka_unit_test(a_rank_without_samples_rehearses_nothing),
        cmocka_unit_test(is_of_no_use_when_the_data_set_has_changed),
        cmocka_unit_test(survives_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

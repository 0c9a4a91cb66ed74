/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of --metrics, byte for byte.
 */
#include "common/file.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/show/metrics.h"

#include <math.h>
#include <stdlib.h>

static const struct ct_epoch_report report = {
    .epoch = 3,
    .epochs = 10,
    .world_size = 2,
    .step = 1407,
    .loss = 0.5,
    .test_loss = 0.25,
    .test_accuracy = 0.875,
    .samples_per_s = 123456,
    .us_per_step = 10,
    .param_hash = 255,
};
static const struct ct_train_result result = {.test_accuracy = 0.875,
                                              .seconds = 1.5,
                                              .samples_per_s = 1000,
                                              .param_hash = UINT64_C(0xfedcba9876543210)};

static void test_lines_are_exact_and_appended(void **state)
{
    (void)state;
    static const char *const expected =
        "before\n"
        "{\"event\":\"epoch\",\"epoch\":3,\"step\":1407,\"loss\":0.5,\"test_loss\":0.25,"
        "\"test_accuracy\":0.875,\"samples_per_s\":123456,\"world_size\":2,"
        "\"param_hash\":\"00000000000000ff\"}\n"
        "{\"event\":\"done\",\"test_accuracy\":0.875,\"seconds\":1.5,\"samples_per_s\":1000,"
        "\"param_hash\":\"fedcba9876543210\"}\n";
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "m", "before\n", 7);
    struct ct_metrics metrics = CT_METRICS_INIT;
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_metrics_open(&metrics, path, NULL), 0);
    assert_int_equal(ct_metrics_epoch(&metrics, &report, NULL), 0);
    assert_int_equal(ct_metrics_done(&metrics, &result, NULL), 0);
    /* Read before it is closed: each line must be out at once. */
    assert_int_equal(ct_file_read(path, 4096, &text, NULL), 0);
    assert_string_equal(ct_buf_cstr(&text), expected);
    ct_metrics_close(&metrics);
    ct_metrics_close(&metrics);
    ct_buf_fini(&text);
    free(path);
    ct_tmpdir_free(dir);
}

/* Diverging is when somebody reads these lines: they must stay JSON, which has no NaN. */
static void test_no_number_is_null(void **state)
{
    (void)state;
    static const char *const expected =
        "{\"event\":\"step\",\"step\":7,\"epoch\":1,\"loss\":null,\"accuracy\":0.5,"
        "\"samples_per_s\":10,\"comm_share\":0,\"lr\":2}\n"
        "{\"event\":\"epoch\",\"epoch\":1,\"step\":0,\"loss\":1,\"test_loss\":null,\"test_"
        "accuracy\":0,"
        "\"samples_per_s\":0,\"world_size\":1,\"param_hash\":\"0000000000000000\"}\n";
    const struct ct_step_report step = {
        .step = 7, .epoch = 1, .loss = NAN, .accuracy = 0.5, .samples_per_s = 10, .lr = 2};
    const struct ct_epoch_report epoch = {
        .epoch = 1, .world_size = 1, .loss = 1, .test_loss = INFINITY};
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "m", "", 0);
    struct ct_metrics metrics = CT_METRICS_INIT;
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_metrics_open(&metrics, path, NULL), 0);
    assert_int_equal(ct_metrics_step(&metrics, &step, NULL), 0);
    assert_int_equal(ct_metrics_epoch(&metrics, &epoch, NULL), 0);
    ct_metrics_close(&metrics);
    assert_int_equal(ct_file_read(path, 4096, &text, NULL), 0);
    assert_string_equal(ct_buf_cstr(&text), expected);
    ct_buf_fini(&text);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_nothing_without_a_file(void **state)
{
    (void)state;
    struct ct_metrics metrics = CT_METRICS_INIT;
    assert_int_equal(ct_metrics_epoch(&metrics, &report, NULL), 0);
    assert_int_equal(ct_metrics_done(&metrics, &result, NULL), 0);
}

static void test_full_disk_fails_once(void **state)
{
    (void)state;
    struct ct_metrics metrics = CT_METRICS_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_metrics_open(&metrics, "/dev/full", NULL), 0);
    assert_int_equal(ct_metrics_epoch(&metrics, &report, &err), CT_ELIMIT);
    assert_string_equal(
        err.text, "cannot write metrics to /dev/full, going on without: No space left on device");
    assert_int_equal(ct_metrics_epoch(&metrics, &report, &err), 0);
    assert_int_equal(ct_metrics_done(&metrics, &result, &err), 0);
    ct_metrics_close(&metrics);
}

static void test_unwritable_path_is_named(void **state)
{
    (void)state;
    struct ct_metrics metrics = CT_METRICS_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_metrics_open(&metrics, "/no/such/folder/m", &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "cannot write metrics to /no/such/folder/m"));
}

static int metrics_body(void *data)
{
    (void)data;
    struct ct_metrics metrics = CT_METRICS_INIT;
    int rc = ct_metrics_open(&metrics, "/dev/null", NULL);
    if (rc == 0) {
        rc = ct_metrics_epoch(&metrics, &report, NULL);
    }
    ct_metrics_close(&metrics);
    return rc;
}

static void test_metrics_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(metrics_body, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_exact_and_appended),
        cmocka_unit_test(test_no_number_is_null),
        cmocka_unit_test(test_nothing_without_a_file),
        cmocka_unit_test(test_full_disk_fails_once),
        cmocka_unit_test(test_unwritable_path_is_named),
        cmocka_unit_test(test_metrics_survive_lack_of_memory),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading IDX files (plain and compressed), CIFAR-10, NumPy arrays and the synthetic set; what is
 * said about bad and missing files.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/data/dataset.h"
#include "trainer/data/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define TRAIN_IMAGES "train-images-idx3-ubyte"
#define TRAIN_LABELS "train-labels-idx1-ubyte"
#define TEST_IMAGES "t10k-images-idx3-ubyte"
#define TEST_LABELS "t10k-labels-idx1-ubyte"

/* Three training and two test images of 1 x 2 pixels. */
static const struct {
    const char *name;
    unsigned char bytes[24];
    size_t len;
} good[] = {
    {TRAIN_IMAGES, {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 0, 255, 0, 255}, 22},
    {TRAIN_LABELS, {0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 9}, 11},
    {TEST_IMAGES, {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4}, 20},
    {TEST_LABELS, {0, 0, 8, 1, 0, 0, 0, 2, 9, 0}, 10},
};

static void put(const char *dir, const char *name, const void *bytes, size_t len)
{
    free(ct_tmpdir_write(dir, name, bytes, len));
}

static void put_gz(const char *dir, const char *name, const void *bytes, size_t len)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s.gz", name);
    char *path = ct_tmpdir_path(dir, file);
    gzFile gz = gzopen(path, "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, bytes, (unsigned)len), (int)len);
    assert_int_equal(gzclose(gz), Z_OK);
    free(path);
}

static char *good_dir(void)
{
    char *dir = ct_tmpdir_new();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        put(dir, good[i].name, good[i].bytes, good[i].len);
    }
    return dir;
}

static void check_good(const char *dir)
{
    struct ct_dataset set;
    struct ct_err err = {0};
    if (ct_dataset_load(dir, &set, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(set.train.count, 3);
    assert_int_equal(set.test.count, 2);
    assert_int_equal(set.features, 2);
    assert_int_equal(set.classes, 10);
    assert_int_equal(set.train.images[1], 255);
    assert_int_equal(set.train.labels[2], 9);
    assert_int_equal(set.test.images[3], 4);
    assert_int_equal(set.test.labels[0], 9);
    /* Half of the training pixels are 0, half 1. */
    assert_true(fabsf(set.mean - 0.5f) < 1e-6f);
    assert_true(fabsf(set.stddev - 0.5f) < 1e-6f);
    ct_dataset_fini(&set);
    ct_dataset_fini(&set);
}

static void test_plain_files_are_read(void **state)
{
    (void)state;
    char *dir = good_dir();
    check_good(dir);
    ct_tmpdir_free(dir);
}

static void test_gzipped_files_are_read(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        put_gz(dir, good[i].name, good[i].bytes, good[i].len);
    }
    check_good(dir);
    ct_tmpdir_free(dir);
}

static void expect(const char *dir, int code, const char *why)
{
    struct ct_dataset set = {.features = 77};
    struct ct_err err = {0};
    int rc = ct_dataset_load(dir, &set, &err);
    if (rc != code || strstr(err.text, why) == NULL) {
        fail_msg("%d '%s', expected '%s'", rc, err.text, why);
    }
    assert_int_equal(set.features, 77);
}

static void test_one_bad_file_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned char bytes[24];
        size_t len;
        int code;
        const char *why;
    } cases[] = {
        {TRAIN_IMAGES, {0}, 0, CT_EFORMAT, "/train-images-idx3-ubyte: truncated"},
        {TRAIN_IMAGES, {1, 2, 3, 4, 5}, 5, CT_EFORMAT, "/train-images-idx3-ubyte: wrong magic"},
        {TEST_LABELS, {0, 0, 8, 1, 0, 0, 0, 2, 9}, 9, CT_EFORMAT, "t10k-labels-idx1-ubyte: trunc"},
        {TEST_LABELS, {0, 0, 8, 1, 0, 0, 0, 2, 9, 9, 9}, 11, CT_EFORMAT, "ubyte: oversized"},
        {TRAIN_LABELS, {0, 0, 8, 1, 0, 0, 0, 2, 0, 1}, 10, CT_EFORMAT, "3 images but 2 labels"},
        {TRAIN_LABELS,
         {0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 200},
         11,
         CT_EFORMAT,
         "label 200 of the training set is out of range"},
        {TEST_LABELS,
         {0, 0, 8, 1, 0, 0, 0, 2, 9, 10},
         10,
         CT_EFORMAT,
         "label 10 of the test set is out of range"},
        {TEST_IMAGES,
         {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2},
         18,
         CT_EFORMAT,
         "images are 1x2 but test images 1x1"},
        {TRAIN_IMAGES, {0x1f, 0x8b, 8}, 3, CT_EFORMAT, "idx3-ubyte: truncated gzip data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *dir = good_dir();
        put(dir, cases[i].name, cases[i].bytes, cases[i].len);
        expect(dir, cases[i].code, cases[i].why);
        ct_tmpdir_free(dir);
    }
}

static void test_missing_file_is_named(void **state)
{
    (void)state;
    char *dir = good_dir();
    char *path = ct_tmpdir_path(dir, TEST_LABELS);
    assert_int_equal(unlink(path), 0);
    expect(dir, CT_ENOENT, "holds neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz");
    expect("/no/such/folder", CT_ENOENT,
           "cannot open the data folder /no/such/folder: No such file");
    free(path);
    ct_tmpdir_free(dir);
}

static void test_gzip_that_holds_more_than_its_header_says(void **state)
{
    (void)state;
    char *dir = good_dir();
    char *path = ct_tmpdir_path(dir, TRAIN_LABELS);
    assert_int_equal(unlink(path), 0);
    enum { BOMB = 4 << 20 };
    unsigned char *bytes = calloc(BOMB, 1);
    assert_non_null(bytes);
    memcpy(bytes, good[1].bytes, good[1].len);
    put_gz(dir, TRAIN_LABELS, bytes, BOMB);
    expect(dir, CT_ELIMIT, "oversized: inflates to more than the 11 bytes");
    put(dir, TRAIN_LABELS ".gz", "plainly no gzip", 15);
    expect(dir, CT_EFORMAT, "train-labels-idx1-ubyte.gz: damaged gzip data");
    free(bytes);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_numbering_from_one_is_allowed(void **state)
{
    (void)state;
    uint8_t images[26] = {0}, labels[26];
    for (size_t i = 0; i < 26; i++) {
        labels[i] = (uint8_t)(i + 1);
    }
    struct ct_dataset set = {
        .train = {.count = 26, .images = images, .labels = labels},
        .test = {.count = 26, .images = images, .labels = labels},
        .shape = {1, 1, 1, 1},
    };
    assert_int_equal(ct_dataset_finish(&set, NULL), 0);
    assert_int_equal(set.classes, 27);
    /* All pixels are the same: nothing to scale by. */
    assert_true(set.mean == 0.0f && set.stddev == 1.0f);
}

/* ---- CIFAR-10 -------------------------------------------------------------------------------- */

#define CIFAR_RECORD 3073

/* A record in each of the six files: its label, then pixels of which the first is `label` + 100. */
static char *cifar_dir(void)
{
    char *dir = ct_tmpdir_new();
    for (int i = 1; i <= 6; i++) {
        unsigned char record[CIFAR_RECORD] = {(unsigned char)i, (unsigned char)(100 + i)};
        char name[32] = "test_batch.bin";
        if (i < 6) {
            (void)snprintf(name, sizeof name, "data_batch_%d.bin", i);
        }
        put(dir, name, record, sizeof record);
    }
    return dir;
}

static void test_cifar_joins_its_five_training_files(void **state)
{
    (void)state;
    char *dir = cifar_dir();
    struct ct_dataset set;
    assert_int_equal(ct_dataset_load(dir, &set, NULL), 0);
    assert_int_equal(set.train.count, 5);
    assert_int_equal(set.test.count, 1);
    assert_int_equal(set.features, 3 * 32 * 32);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(set.train.labels[i], i + 1);
        assert_int_equal(set.train.images[i * set.features], 101 + i);
    }
    assert_int_equal(set.test.labels[0], 6);
    ct_dataset_fini(&set);
    ct_tmpdir_free(dir);
}

static void test_cifar_file_that_is_cut_or_missing_is_named(void **state)
{
    (void)state;
    const unsigned char record[CIFAR_RECORD] = {0};
    char *dir = cifar_dir();
    put(dir, "data_batch_3.bin", record, CIFAR_RECORD - 1);
    expect(dir, CT_EFORMAT, "data_batch_3.bin: 3072 bytes are not a whole number of CIFAR-10");
    put(dir, "data_batch_3.bin", record, 0);
    expect(dir, CT_EFORMAT, "data_batch_3.bin: 0 bytes");
    put(dir, "data_batch_3.bin", record, CIFAR_RECORD);
    char *path = ct_tmpdir_path(dir, "test_batch.bin");
    assert_int_equal(unlink(path), 0);
    expect(dir, CT_ENOENT, "test_batch.bin");
    free(path);
    ct_tmpdir_free(dir);
}

/* ---- NumPy arrays ---------------------------------------------------------------------------- */

static void put_npy(const char *dir, const char *name, const char *type, const char *shape,
                    const void *data, size_t len)
{
    unsigned char bytes[512] = "\x93NUMPY\x01";
    int header =
        snprintf((char *)bytes + 10, sizeof bytes - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", type, shape);
    assert_in_range(header, 1, 200);
    bytes[8] = (unsigned char)header;
    memcpy(bytes + 10 + header, data, len);
    put(dir, name, bytes, 10 + (size_t)header + len);
}

/* Two training images and one test image of 1 x 2 pixels, which may be of another type. */
static char *npy_dir(const char *type, const void *train, const void *test, size_t pixel)
{
    char *dir = ct_tmpdir_new();
    put_npy(dir, "train-images.npy", type, "2, 1, 2", train, 4 * pixel);
    put_npy(dir, "train-labels.npy", "|u1", "2,", "\x00\x01", 2);
    put_npy(dir, "test-images.npy", type, "1, 1, 2", test, 2 * pixel);
    put_npy(dir, "test-labels.npy", "|u1", "1, 1", "\x01", 1);
    return dir;
}

static void check_pixels(const char *dir, const unsigned char *train, const unsigned char *test)
{
    struct ct_dataset set;
    struct ct_err err = {0};
    if (ct_dataset_load(dir, &set, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(set.features, 2);
    assert_memory_equal(set.train.images, train, 4);
    assert_memory_equal(set.test.images, test, 2);
    assert_int_equal(set.train.labels[1], 1);
    assert_int_equal(set.test.labels[0], 1);
    ct_dataset_fini(&set);
}

static void test_npy_bytes_are_used_as_they_are(void **state)
{
    (void)state;
    const unsigned char train[] = {0, 7, 200, 255}, test[] = {3, 4};
    char *dir = npy_dir("|u1", train, test, 1);
    check_pixels(dir, train, test);
    ct_tmpdir_free(dir);
}

static void test_npy_floats_come_back_as_the_bytes_they_were(void **state)
{
    (void)state;
    const unsigned char train[] = {0, 7, 200, 255}, test[] = {3, 4};
    float divided[4], plain[4], divided_test[2], plain_test[2];
    for (size_t i = 0; i < 4; i++) {
        plain[i] = train[i];
        divided[i] = (float)train[i] / 255;
    }
    for (size_t i = 0; i < 2; i++) {
        plain_test[i] = test[i];
        divided_test[i] = (float)test[i] / 255;
    }
    char *dir = npy_dir("<f4", divided, divided_test, sizeof(float));
    check_pixels(dir, train, test);
    ct_tmpdir_free(dir);
    dir = npy_dir("<f4", plain, plain_test, sizeof(float));
    check_pixels(dir, train, test);
    ct_tmpdir_free(dir);
}

/* Another range than 0 .. 1 and 0 .. 255 is spread, and the test set is cut to it. */
static void test_npy_range_is_that_of_the_training_set(void **state)
{
    (void)state;
    const float train[] = {-1, 1, 0, 1};
    /* Far outside of the range, and so little above it that 255.7 would be rounded to 256. */
    const float tests[][2] = {{-9, 9}, {-1.005f, 1.0055f}};
    for (size_t i = 0; i < 2; i++) {
        char *dir = npy_dir("<f4", train, tests[i], sizeof(float));
        check_pixels(dir, (const unsigned char[]){0, 255, 128, 255},
                     (const unsigned char[]){0, 255});
        ct_tmpdir_free(dir);
    }
}

static void test_npy_arrays_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static const float nan4[] = {0, 0, NAN, 0}, far4[] = {-3e38f, 3e38f, 0, 0};
    static const unsigned char zeros[16];
    static const struct {
        const char *name, *type, *shape;
        const void *data;
        size_t len;
        int code;
        const char *why;
    } cases[] = {
        {"train-images.npy", "<f4", "2, 1, 2", nan4, 16, CT_EFORMAT, "item 2 is not a finite"},
        {"train-images.npy", "<f4", "2, 1, 2", far4, 16, CT_ELIMIT, "too far apart"},
        {"train-images.npy", "|u1", "2,", zeros, 2, CT_EFORMAT, "2, 3 or 4 dimensions"},
        {"train-images.npy", "<i8", "2, 1", zeros, 16, CT_EUNSUPPORTED, "uint8 or float32"},
        {"test-images.npy", "|u1", "1, 2, 1", zeros, 2, CT_EFORMAT, "different shapes"},
        {"train-labels.npy", "|u1", "1,", zeros, 1, CT_EFORMAT, "1 labels for 2 images"},
        {"train-labels.npy", "<f4", "2,", zeros, 8, CT_EFORMAT, "one whole number each"},
        {"train-labels.npy", "|u1", "1, 2", zeros, 2, CT_EFORMAT, "one whole number each"},
        {"train-labels.npy", "<i8", "2,", "\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 16,
         CT_ELIMIT, "label 0 is not within 0 .. 255"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *dir = npy_dir("|u1", zeros, zeros, 1);
        put_npy(dir, cases[i].name, cases[i].type, cases[i].shape, cases[i].data, cases[i].len);
        expect(dir, cases[i].code, cases[i].why);
        ct_tmpdir_free(dir);
    }
}

/* ---- the synthetic set ----------------------------------------------------------------------- */

static void test_without_a_name_the_default_folder_is_loaded(void **state)
{
    (void)state;
    struct ct_dataset set = {0};
    struct ct_err err = {0};
    int rc = ct_dataset_load(NULL, &set, &err);
    assert_true(rc == 0 || err.text[0] != '\0');
    assert_int_equal(strstr(err.text, "no data set in ") != NULL,
                     access(CT_DATASET_DEFAULT_DIR, F_OK) != 0);
    ct_dataset_fini(&set);
}

static void test_synthetic_is_the_same_each_time(void **state)
{
    (void)state;
    struct ct_dataset a, b;
    assert_int_equal(ct_dataset_load("synthetic", &a, NULL), 0);
    assert_int_equal(ct_dataset_load("synthetic", &b, NULL), 0);
    assert_int_equal(a.train.count, CT_SYNTHETIC_TRAIN);
    assert_int_equal(a.test.count, CT_SYNTHETIC_TEST);
    assert_int_equal(a.features, CT_SYNTHETIC_SIDE * CT_SYNTHETIC_SIDE);
    assert_int_equal(a.classes, CT_SYNTHETIC_CLASSES);
    assert_memory_equal(a.train.images, b.train.images, a.train.count * a.features);
    assert_memory_equal(a.test.labels, b.test.labels, a.test.count);
    /* No sample stands in both splits, not even with the noise of another one. */
    size_t same_label = 0;
    for (size_t i = 0; i < a.test.count; i++) {
        if (a.train.labels[i] == a.test.labels[i]) {
            same_label++;
            assert_memory_not_equal(a.train.images + i * a.features, a.test.images + i * a.features,
                                    a.features);
        }
    }
    assert_in_range(same_label, CT_SYNTHETIC_TEST / 15, CT_SYNTHETIC_TEST / 7);
    size_t per_class[CT_SYNTHETIC_CLASSES] = {0};
    for (size_t i = 0; i < a.train.count; i++) {
        per_class[a.train.labels[i]]++;
    }
    for (size_t c = 0; c < CT_SYNTHETIC_CLASSES; c++) {
        assert_in_range(per_class[c], CT_SYNTHETIC_TRAIN / 12, CT_SYNTHETIC_TRAIN / 8);
    }
    ct_dataset_fini(&a);
    ct_dataset_fini(&b);
}

static int load_body(void *data)
{
    struct ct_dataset set;
    int rc = ct_dataset_load(data, &set, NULL);
    if (rc == 0) {
        ct_dataset_fini(&set);
    }
    return rc;
}

static void test_loading_survives_lack_of_memory(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (i % 2 == 0) {
            put_gz(dir, good[i].name, good[i].bytes, good[i].len);
        } else {
            put(dir, good[i].name, good[i].bytes, good[i].len);
        }
    }
    assert_true(ct_fault_sweep(load_body, dir, 0) > 8);
    assert_true(ct_fault_sweep(load_body, (char *)"synthetic", 0) >= 4);
    ct_tmpdir_free(dir);
    dir = cifar_dir();
    assert_true(ct_fault_sweep(load_body, dir, 0) > 8);
    ct_tmpdir_free(dir);
    dir = npy_dir("<f4", (const float[4]){0}, (const float[2]){0}, sizeof(float));
    assert_true(ct_fault_sweep(load_body, dir, 0) >= 8);
    ct_tmpdir_free(dir);
}

static uint64_t stamp(const char *dir)
{
    uint64_t out;
    assert_int_equal(ct_dataset_stamp(dir, &out, NULL), 0);
    return out;
}

static void test_the_stamp_changes_with_the_files_of_the_set_only(void **state)
{
    (void)state;
    char *dir = good_dir();
    char *path = ct_tmpdir_path(dir, TEST_LABELS);
    uint64_t first = stamp(dir), out;
    put(dir, "a.log", "x", 1);
    assert_true(stamp(dir) == first);
    put(dir, "test_batch.bin", "x", 1); /* would be read, if others came, too */
    uint64_t second = stamp(dir);
    assert_true(second != first);
    assert_int_equal(truncate(path, 9), 0);
    uint64_t third = stamp(dir);
    assert_true(third != second);
    assert_int_equal(unlink(path), 0);
    assert_true(stamp(dir) != third);
    assert_true(stamp(CT_DATASET_SYNTHETIC) == stamp(CT_DATASET_SYNTHETIC));
    assert_int_equal(ct_dataset_stamp("/nowhere", &out, NULL), CT_ENOENT);
    free(path);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_files_are_read),
        cmocka_unit_test(test_gzipped_files_are_read),
        cmocka_unit_test(test_one_bad_file_is_named),
        cmocka_unit_test(test_missing_file_is_named),
        cmocka_unit_test(test_gzip_that_holds_more_than_its_header_says),
        cmocka_unit_test(test_numbering_from_one_is_allowed),
        cmocka_unit_test(test_cifar_joins_its_five_training_files),
        cmocka_unit_test(test_cifar_file_that_is_cut_or_missing_is_named),
        cmocka_unit_test(test_npy_bytes_are_used_as_they_are),
        cmocka_unit_test(test_npy_floats_come_back_as_the_bytes_they_were),
        cmocka_unit_test(test_npy_range_is_that_of_the_training_set),
        cmocka_unit_test(test_npy_arrays_that_do_not_fit_are_named),
        cmocka_unit_test(test_without_a_name_the_default_folder_is_loaded),
        cmocka_unit_test(test_synthetic_is_the_same_each_time),
        cmocka_unit_test(test_loading_survives_lack_of_memory),
        cmocka_unit_test(test_the_stamp_changes_with_the_files_of_the_set_only),
    };
    return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}

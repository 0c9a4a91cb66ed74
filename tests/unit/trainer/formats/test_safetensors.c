/* SPDX-License-Identifier: Apache-2.0
 *
 * What is written can be read again, and a file that is wrong in any way is refused.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/formats/safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}"
#define B "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}"

static int parse(const char *json, uint64_t data_len, struct ct_safetensors *out,
                 struct ct_err *err)
{
    /* An exact copy on the heap, so that a sanitizer sees a read past the end. */
    size_t len = strlen(json);
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, json, len);
    int rc = ct_safetensors_parse(copy, len, data_len, out, err);
    free(copy);
    return rc;
}

static void test_reads_tensors_and_metadata(void **state)
{
    (void)state;
    struct ct_safetensors file;
    struct ct_err err = {0};
    /* In any order, padded with spaces. */
    if (parse("{" B ",\"__metadata__\":{\"k\":\"v\"}," A "}   ", 11, &file, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(file.count, 2);
    assert_string_equal(file.tensor[0].name, "a");
    assert_string_equal(file.tensor[0].dtype, "F32");
    assert_int_equal(file.tensor[0].dims, 2);
    assert_int_equal(file.tensor[0].shape[0], 2);
    assert_int_equal(file.tensor[1].begin, 8);
    assert_ptr_equal(ct_safetensors_find(&file, "b"), &file.tensor[1]);
    assert_null(ct_safetensors_find(&file, "c"));
    assert_string_equal(ct_safetensors_metadata(&file, "k"), "v");
    assert_null(ct_safetensors_metadata(&file, "K"));
    ct_safetensors_fini(&file);
    ct_safetensors_fini(&file);
}

static void test_scalars_and_empty_tensors_are_read(void **state)
{
    (void)state;
    struct ct_safetensors file;
    /* A scalar has no dimensions and one item; a dimension of 0 has none. */
    assert_int_equal(parse("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]}}",
                           4, &file, NULL),
                     0);
    assert_int_equal(file.count, 2);
    ct_safetensors_fini(&file);
    assert_int_equal(parse("{}", 0, &file, NULL), 0);
    assert_null(ct_safetensors_metadata(&file, "k"));
    ct_safetensors_fini(&file);
}

#define T(dtype, shape, offsets) \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_refuses_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        uint64_t data_len;
        const char *why;
    } cases[] = {
        {"", 0, "not a JSON object"},
        {" {}", 0, "not a JSON object"},
        {"[]", 0, "not a JSON object"},
        {"null", 0, "not a JSON object"},
        {"{", 0, "not a JSON object"},
        {"{}x", 0, "not a JSON object"},
        {"{}\n", 0, "not a JSON object"},
        {"{" A, 8, "not a JSON object"},
        {"{\"t\":3}", 0, "tensor t has no known dtype"},
        {"{\"t\":{}}", 0, "no known dtype"},
        {T("\"F31\"", "[1]", "[0,4]"), 4, "no known dtype"},
        {T("32", "[1]", "[0,4]"), 4, "no known dtype"},
        {T("\"F32\"", "3", "[0,4]"), 4, "has no shape"},
        {T("\"F32\"", "[-1]", "[0,4]"), 4, "an invalid shape"},
        {T("\"F32\"", "[1.5]", "[0,4]"), 4, "an invalid shape"},
        {T("\"F32\"", "[\"1\"]", "[0,4]"), 4, "an invalid shape"},
        {T("\"F32\"", "[1e300]", "[0,4]"), 4, "an invalid shape"},
        {T("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "an invalid shape"},
        {T("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8 dimensions"},
        /* 2^62 items of 4 bytes are 0 bytes in 64 bits. */
        {T("\"F32\"", "[2147483648,2147483648]", "[0,0]"), 0, "which is not its shape"},
        {T("\"F32\"", "[1]", "[0,8]"), 8, "8 bytes, which is not its shape"},
        {T("\"F32\"", "[1]", "[0]"), 4, "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[0,4,8]"), 4, "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[4,0]"), 4, "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[-4,0]"), 4, "no valid data_offsets"},
        {T("\"F32\"", "[1]", "7"), 4, "no valid data_offsets"},
        {T("\"F32\"", "[1]", "[0,4]"), 3, "truncated: tensor t ends at byte 4 of 3"},
        {T("\"F32\"", "[1]", "[18014398509481980,18014398509481984]"), 4, "no valid data_offsets"},
        {"{" A "," A "}", 8, "tensor a occurs twice"},
        {"{" A "}", 9, "1 bytes follow the last tensor"},
        {"{" B "}", 11, "tensor b begins at byte 8, expected 0"},
        {"{\"c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}," A "}", 8, "begins at"},
        {"{\"__metadata__\":3}", 0, "__metadata__ is not"},
        {"{\"__metadata__\":{\"k\":3}}", 0, "__metadata__ is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ct_safetensors file = {.count = 77};
        struct ct_err err = {0};
        int rc = parse(cases[i].json, cases[i].data_len, &file, &err);
        if (rc >= 0 || strstr(err.text, cases[i].why) == NULL) {
            fail_msg("%s: %d '%s', expected '%s'", cases[i].json, rc, err.text, cases[i].why);
        }
        assert_int_equal(file.count, 77);
    }
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *json = malloc(5 + DEPTH + 1);
    assert_non_null(json);
    memcpy(json, "{\"t\":", 5);
    memset(json + 5, '[', DEPTH);
    json[5 + DEPTH] = '\0';
    struct ct_safetensors file;
    assert_int_equal(parse(json, 0, &file, NULL), CT_EFORMAT);
    free(json);
}

static int parse_metadata(size_t entries, struct ct_err *err)
{
    static const char entry[] = ",\"k\":\"v\"";
    size_t len = sizeof entry - 1;
    static const char begin[] = "{\"__metadata__\":{";
    char *json = malloc(sizeof begin + entries * len + sizeof "}}");
    assert_non_null(json);
    memcpy(json, begin, sizeof begin);
    char *end = json + strlen(json);
    for (size_t i = 0; i < entries; i++) {
        memcpy(end, entry + (i == 0), len);
        end += len - (i == 0);
    }
    memcpy(end, "}}", sizeof "}}");
    struct ct_safetensors file = {.fd = -1};
    int rc = parse(json, 0, &file, err);
    ct_safetensors_fini(&file);
    free(json);
    return rc;
}

/* Reading them all costs the square of their number. */
static void test_metadata_are_limited(void **state)
{
    (void)state;
    struct ct_err err = {0};
    assert_int_equal(parse_metadata(CT_METADATA_MAX, &err), 0);
    assert_int_equal(parse_metadata(CT_METADATA_MAX + 1, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "more than 4096 entries of __metadata__"));
}

/* A parsed value takes 64 bytes, so a header of the longest kind could take 3 GB. */
static void test_values_are_limited_before_they_are_parsed(void **state)
{
    (void)state;
    enum { VALUES = (CT_TENSORS_MAX + CT_METADATA_MAX) * 16 };
    static const char begin[] = "{\"t\":[0", end[] = "]}";
    struct ct_safetensors file = {.fd = -1};
    struct ct_err err = {0};
    char *json = malloc(sizeof begin + (size_t)2 * VALUES + sizeof end);
    assert_non_null(json);
    memcpy(json, begin, sizeof begin);
    char *at = json + strlen(json);
    for (int i = 0; i < VALUES; i++) {
        *at++ = ',';
        *at++ = '0';
    }
    memcpy(at, end, sizeof end);
    assert_int_equal(parse(json, 0, &file, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "a header of more than 1114112 values"));
    free(json);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void expect_file(const char *dir, const void *bytes, size_t len, const char *why)
{
    char *path = ct_tmpdir_write(dir, "f", bytes, len);
    struct ct_safetensors file;
    struct ct_err err = {0};
    int rc = ct_safetensors_open(path, &file, &err);
    if (rc >= 0 || strstr(err.text, why) == NULL || strncmp(err.text, path, strlen(path)) != 0) {
        fail_msg("%d '%s', expected '%s'", rc, err.text, why);
    }
    free(path);
}

static void test_hostile_files_are_refused(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    expect_file(dir, "", 0, "truncated: 0 bytes");
    expect_file(dir, "1234567", 7, "truncated: 7 bytes");
    expect_file(dir, "\0\0\0\0\0\0\0\0", 8, "not a JSON object");
    expect_file(dir, "\2\0\0\0\0\0\0\0{", 9, "a header of 2 bytes does not fit");
    expect_file(dir, "\377\377\377\377\377\377\377\377{}", 10, "a header of 18446744073709551615");
    expect_file(dir, "\377\377\377\377\377\377\377\177{}", 10, "beyond the limit of 100000000");
    expect_file(dir, "\2\0\0\0\0\0\0\0{}x", 11, "1 bytes follow the last tensor");
    struct ct_safetensors file;
    struct ct_err err = {0};
    assert_int_equal(ct_safetensors_open(dir, &file, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "not a regular file"));
    char *fifo = ct_tmpdir_path(dir, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(ct_safetensors_open(fifo, &file, &err), CT_EFORMAT);
    assert_int_equal(ct_safetensors_open("/no/such/file", &file, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "/no/such/file"));
    free(fifo);
    ct_tmpdir_free(dir);
}

static char *write_sample(const char *dir, const float *values)
{
    const struct ct_tensor_out tensors[] = {
        {.name = "w", .dims = 2, .shape = {2, 3}, .data = values},
        {.name = "b", .dims = 1, .shape = {2}, .data = values + 6},
    };
    const struct ct_metadata metadata[] = {{"note", "quote \" and \\ and \n"}};
    char *path = ct_tmpdir_path(dir, "sample");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ct_safetensors_write(fd, tensors, 2, metadata, 1, NULL), 0);
    assert_int_equal(close(fd), 0);
    return path;
}

static const float sample[8] = {1, 2, 3, 4, 5, 6, -0.0f, 1e-30f};

static void test_a_file_gives_back_what_was_written(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = write_sample(dir, sample);
    struct ct_safetensors file;
    struct ct_err err = {0};
    if (ct_safetensors_open(path, &file, &err) != 0) {
        fail_msg("%s", err.text);
    }
    float got[8];
    assert_int_equal(file.data_start % 8, 0);
    assert_int_equal(ct_safetensors_read(&file, ct_safetensors_find(&file, "w"), got, NULL), 0);
    assert_int_equal(ct_safetensors_read(&file, ct_safetensors_find(&file, "b"), got + 6, NULL), 0);
    assert_memory_equal(got, sample, sizeof sample);
    assert_string_equal(ct_safetensors_metadata(&file, "note"), "quote \" and \\ and \n");
    /* It shrinks while it is open: an error, not a hang. */
    assert_int_equal(truncate(path, (off_t)file.data_start + 4), 0);
    assert_int_equal(ct_safetensors_read(&file, ct_safetensors_find(&file, "w"), got, &err),
                     CT_EFORMAT);
    assert_non_null(strstr(err.text, "tensor w: truncated"));
    ct_safetensors_fini(&file);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_every_truncation_is_noticed(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = write_sample(dir, sample);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t len = st.st_size - 1; len >= 0; len--) {
        struct ct_safetensors file;
        assert_int_equal(truncate(path, len), 0);
        assert_int_equal(ct_safetensors_open(path, &file, NULL), CT_EFORMAT);
    }
    free(path);
    ct_tmpdir_free(dir);
}

static void test_write_errors_are_reported(void **state)
{
    (void)state;
    int fd = open("/dev/full", O_WRONLY);
    assert_true(fd >= 0);
    const struct ct_tensor_out tensor = {.name = "w", .dims = 1, .shape = {1}, .data = sample};
    struct ct_err err = {0};
    assert_int_equal(ct_safetensors_write(fd, &tensor, 1, NULL, 0, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "No space left"));
    assert_int_equal(close(fd), 0);
}

static int open_body(void *path)
{
    struct ct_safetensors file;
    int rc = ct_safetensors_open(path, &file, NULL);
    if (rc == 0) {
        ct_safetensors_fini(&file);
    }
    return rc;
}

static void test_opening_survives_lack_of_memory(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = write_sample(dir, sample);
    assert_int_equal(ct_fault_sweep(open_body, path, 0), 2);
    free(path);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_tensors_and_metadata),
        cmocka_unit_test(test_scalars_and_empty_tensors_are_read),
        cmocka_unit_test(test_refuses_hostile_headers),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_metadata_are_limited),
        cmocka_unit_test(test_values_are_limited_before_they_are_parsed),
        cmocka_unit_test(test_hostile_files_are_refused),
        cmocka_unit_test(test_a_file_gives_back_what_was_written),
        cmocka_unit_test(test_every_truncation_is_noticed),
        cmocka_unit_test(test_write_errors_are_reported),
        cmocka_unit_test(test_opening_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
